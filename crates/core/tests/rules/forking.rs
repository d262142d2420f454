//! Forks made while calls outside turns were in flight. The fork has made none of them: it makes them once it is
//! started, and the original's cost is not counted in it.

use segue_core::decide::{OperatorCommand, RecomputeCallOverrides};
use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::{FlowStep, ToolRunnerKind, UnknownOutcomePolicy};
use segue_core::ids::CallId;
use segue_core::prompt::CallFailureKind;
use segue_core::scope::Scope;
use segue_core::session::{Effect, UsageTotals};
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::note;

/// A turn that starts a worker and ends.
fn at_work() -> SessionHarness {
    let mut worker = ClosureFlow::test_role("worker", Scope::per_session());
    worker.unknown_outcome = UnknownOutcomePolicy::Retry;
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role()).with_role(worker);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "dig")],
        _ => Vec::new(),
    }));
    harness.send_message("go");
    harness
}

fn deferred_fork(harness: &SessionHarness) -> SessionHarness {
    harness.fork_deferred_at(harness.journal().len())
}

fn pending_effects(harness: &SessionHarness) -> Vec<Effect> {
    harness.session().pending_effects(&segue_core::flow::FlowSpec::new("x", "x"))
}

fn since_the_fork(harness: &mut SessionHarness) -> String {
    let log = harness.take_new_event_lines();
    let place = log.find("forked from").expect("it is a copy");
    log[place..].to_owned()
}

#[test]
fn fork_makes_the_call_when_it_is_resumed_and_nothing_was_lost() {
    let mut copy = deferred_fork(&at_work());
    assert!(pending_effects(&copy).is_empty() && !copy.session().is_idle(), "another process must start it");
    copy.crash_and_recover();
    expect_test::expect![[r#"
        forked from test at event 6
        c1 started here; it was pending before the fork
    "#]]
    .assert_eq(&since_the_fork(&mut copy));
    assert_eq!(copy.oldest_open_call("worker"), (CallId(1), 1));
    copy.answer_call("worker", "dug");
    assert!(copy.session().is_idle());
    let total = copy.session().ledger.total;
    assert_eq!((total.answered_calls, total.unknown_attempts), (1, 0));
}

#[test]
fn fork_with_immediate_dispatch_makes_the_call_at_once() {
    let mut harness = at_work();
    harness.fork();
    assert_eq!(pending_effects(&harness).len(), 1);
    assert_eq!(
        since_the_fork(&mut harness),
        "forked from test at event 6\nc1 started here; it was pending before the fork\n"
    );
    harness.crash_and_recover();
    assert_eq!(
        harness.session().ledger.total.unknown_attempts,
        1,
        "from then on it is its own, and may be lost like any other"
    );
}

#[test]
fn fork_of_an_unresumed_fork_has_lost_nothing() {
    let first = deferred_fork(&at_work());
    let mut second = deferred_fork(&first);
    second.crash_and_recover().crash_and_recover();
    assert_eq!(second.session().ledger.total.unknown_attempts, 1, "it was not in flight when it was first resumed");
}

#[test]
fn scheduled_retry_waits_in_the_fork_too() {
    let mut harness = at_work();
    harness.fail_call("worker", CallFailureKind::Overload);
    let waits = pending_effects(&harness);
    let mut copy = deferred_fork(&harness);
    copy.crash_and_recover();
    assert_eq!(pending_effects(&copy), waits);
    let mut late = deferred_fork(&harness);
    late.advance_clock(60_000).crash_and_recover();
    assert_eq!(
        (pending_effects(&late), late.session().ledger.total.unknown_attempts),
        (waits, 0),
        "its time came while no process was running"
    );
}

#[test]
fn call_that_never_started_is_not_billed_when_it_ends() {
    let mut copy = deferred_fork(&at_work());
    copy.with_deferred_dispatch(|copy| {
        copy.run_command(OperatorCommand::Close);
    });
    assert_eq!((copy.session().ledger.total, copy.session().is_idle()), (UsageTotals::default(), true));
}

#[test]
fn call_awaiting_an_operator_is_resolved_in_the_fork() {
    let mut worker = ClosureFlow::test_role("worker", Scope::per_session());
    worker.unknown_outcome = UnknownOutcomePolicy::AskOperator;
    let mut harness =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(worker), |_, event| match &event.event {
            Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "dig")],
            _ => Vec::new(),
        }));
    harness.send_message("go").crash_and_recover();
    let mut copy = deferred_fork(&harness);
    copy.crash_and_recover();
    assert_eq!(
        (copy.session().calls_awaiting_operator().count(), copy.session().ledger.total.unknown_attempts),
        (1, 1)
    );
}

#[test]
fn repeated_call_is_not_made_in_the_fork() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.send_message("hi").answer_call("speaker", "yes");
    harness.recompute_call(CallId(1), &RecomputeCallOverrides::default());
    let before = harness.session().ledger.total;
    harness.fork();
    assert_eq!(since_the_fork(&mut harness), "forked from test at event 9\nc2 cancelled: the session was forked\n");
    assert_eq!((harness.session().ledger.total, harness.session().is_idle()), (before, true));
}

/// A session whose worker, after the turn has ended, asked for two tools.
fn worker_with_tools() -> SessionHarness {
    let worker = ClosureFlow::test_role("worker", Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(worker).with_tool(super::tool("look", ToolRunnerKind::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "dig")],
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
