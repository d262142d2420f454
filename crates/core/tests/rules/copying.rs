//! Copies made while calls were under way beside the turns. The copy made none of them: it makes them once it is at work, and
//! what the other pays for them is the other's.

use segue_core::decide::{OperatorCommand, RecomputeOptions};
use segue_core::event::{Event, TurnResult};
use segue_core::flow::{FlowStep, ToolRunner, UnknownOutcomePolicy};
use segue_core::ids::CallId;
use segue_core::ledger::UsageTotals;
use segue_core::prompt::FailureKind;
use segue_core::scope::Scope;
use segue_core::session::Effect;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::note;

/// A turn that sets a worker going and ends.
fn at_work() -> SessionHarness {
    let mut worker = ClosureFlow::test_role("worker", Scope::per_session());
    worker.unknown_outcome = UnknownOutcomePolicy::Retry;
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role()).with_role(worker);
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "dig")],
        _ => Vec::new(),
    }));
    stage.send_message("go");
    stage
}

fn copy_by_hand(stage: &SessionHarness) -> SessionHarness {
    stage.fork_deferred_at(stage.journal().len())
}

fn owed(stage: &SessionHarness) -> Vec<Effect> {
    stage.session().pending_effects(&segue_core::flow::FlowSpec::new("x", "x"))
}

fn since_the_fork(stage: &mut SessionHarness) -> String {
    let log = stage.take_log();
    let place = log.find("forked from").expect("it is a copy");
    log[place..].to_owned()
}

#[test]
fn a_copy_makes_the_call_when_it_is_taken_up_and_nothing_was_lost() {
    let mut copy = copy_by_hand(&at_work());
    assert!(owed(&copy).is_empty() && !copy.session().is_idle(), "it is for somebody else to make");
    copy.crash_and_recover();
    expect_test::expect![[r#"
        forked from test at 6
        c1 is made here, as it was owed before the fork
    "#]]
    .assert_eq(&since_the_fork(&mut copy));
    assert_eq!(copy.oldest_open_call("worker"), (CallId(1), 1));
    copy.answer_call("worker", "dug");
    assert!(copy.session().is_idle());
    let total = copy.session().ledger.total;
    assert_eq!((total.answered_calls, total.unknown_attempts), (1, 0));
}

#[test]
fn a_copy_that_is_at_work_at_once_makes_it_at_once() {
    let mut stage = at_work();
    stage.fork();
    assert_eq!(owed(&stage).len(), 1);
    assert_eq!(since_the_fork(&mut stage), "forked from test at 6\nc1 is made here, as it was owed before the fork\n");
    stage.crash_and_recover();
    assert_eq!(
        stage.session().ledger.total.unknown_attempts,
        1,
        "from then on it is its own, and may be lost like any other"
    );
}

#[test]
fn a_copy_of_a_copy_that_nobody_took_up_has_lost_nothing_either() {
    let first = copy_by_hand(&at_work());
    let mut second = copy_by_hand(&first);
    second.crash_and_recover().crash_and_recover();
    assert_eq!(
        second.session().ledger.total.unknown_attempts,
        1,
        "the first time it was taken up it was not under way"
    );
}

#[test]
fn a_try_that_was_to_wait_waits_in_the_copy_too() {
    let mut stage = at_work();
    stage.fail_call("worker", FailureKind::Overload);
    let waits = owed(&stage);
    let mut copy = copy_by_hand(&stage);
    copy.crash_and_recover();
    assert_eq!(owed(&copy), waits);
    let mut late = copy_by_hand(&stage);
    late.advance_clock(60_000).crash_and_recover();
    assert_eq!(
        (owed(&late), late.session().ledger.total.unknown_attempts),
        (waits, 0),
        "its moment came, and nobody was there"
    );
}

#[test]
fn a_call_that_nobody_took_up_is_not_billed_when_it_is_ended() {
    let mut copy = copy_by_hand(&at_work());
    copy.with_deferred_dispatch(|copy| {
        copy.run_command(OperatorCommand::Close);
    });
    assert_eq!((copy.session().ledger.total, copy.session().is_idle()), (UsageTotals::default(), true));
}

#[test]
fn a_call_that_somebody_decides_about_is_decided_about_in_the_copy() {
    let mut worker = ClosureFlow::test_role("worker", Scope::per_session());
    worker.unknown_outcome = UnknownOutcomePolicy::AskOperator;
    let mut stage =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(worker), |_, event| match &event.event {
            Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "dig")],
            _ => Vec::new(),
        }));
    stage.send_message("go").crash_and_recover();
    let mut copy = copy_by_hand(&stage);
    copy.crash_and_recover();
    assert_eq!(
        (copy.session().calls_awaiting_operator().count(), copy.session().ledger.total.unknown_attempts),
        (1, 1)
    );
}

#[test]
fn what_was_made_once_more_there_is_not_made_here() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage.send_message("hi").answer_call("speaker", "yes");
    stage.recompute_call(CallId(1), &RecomputeOptions::default());
    let before = stage.session().ledger.total;
    stage.fork();
    assert_eq!(since_the_fork(&mut stage), "forked from test at 9\nc2 cancelled: the session was forked meanwhile\n");
    assert_eq!((stage.session().ledger.total, stage.session().is_idle()), (before, true));
}

/// A session whose worker, after the turn has ended, asked for two tools.
fn worker_with_tools() -> SessionHarness {
    let worker = ClosureFlow::test_role("worker", Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(worker).with_tool(super::tool("look", ToolRunner::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "dig")],
        _ => Vec::new(),
    }));
    stage.send_message("go");
    stage
}

fn position_of(stage: &SessionHarness, wanted: impl Fn(&Event) -> bool) -> usize {
    stage.journal().iter().position(|recorded| wanted(&recorded.event)).expect("the journal has such an event")
}

#[test]
fn fork_cancels_the_tool_runs_that_the_original_session_still_runs() {
    let mut stage = worker_with_tools();
    stage.answer_with_tool_call("worker", "look", json!({}));
    let fork = stage.fork_at(stage.journal().len());
    assert!(fork.session().open_tool_runs.is_empty(), "only the original session runs the tool");
    assert_eq!(fork.oldest_open_call("worker"), (CallId(2), 1), "the worker is given the cancelled result");
    assert_eq!(stage.session().open_tool_runs.len(), 1);
}

#[test]
fn fork_between_an_answer_and_its_tool_runs_drops_the_round() {
    let mut stage = worker_with_tools();
    stage.answer_with_tool_call("worker", "look", json!({}));
    let answered = position_of(&stage, |event| matches!(event, Event::CallAnswered(_)));
    let fork = stage.fork_at(answered + 1);
    assert!(
        fork.session().tool_rounds.is_empty() && fork.session().is_idle(),
        "nothing waits for a tool that never ran"
    );
}

#[test]
fn finished_tool_round_is_pending_work_in_a_fork_that_opens_no_calls() {
    let mut stage = worker_with_tools();
    stage.answer_with_tool_call("worker", "missing", json!({}));
    let refused = position_of(&stage, |event| matches!(event, Event::ToolRunEnded { .. }));
    let mut fork = stage.fork_deferred_at(refused + 1);
    assert!(!fork.session().is_idle(), "the next call of the round is still to be made");
    fork.crash_and_recover();
    assert_eq!(fork.oldest_open_call("worker"), (CallId(2), 1));
}
