//! Decisions of somebody who only writes down what it is told: nothing is begun, and whoever does what is owed begins it.

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnResult};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{note, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

#[test]
fn a_message_waits_for_somebody_who_answers_it() {
    let mut stage = chat();
    stage.with_deferred_dispatch(|stage| {
        stage.send_message("hi").advance_and_tick(1_000).take_log();
    });
    assert_eq!((stage.session().queued_messages.len(), stage.session().current_turn.is_some()), (1, false));
    assert!(stage.session().open_calls.is_empty() && !stage.session().is_idle(), "it is owed, and nobody has begun");
    stage.crash_and_recover();
    expect_test::expect![[r#"
        t1 begins with m1
        c1 speaker asked reply on plain, th1 new: nothing was remembered here yet
    "#]]
    .assert_eq(&stage.take_log());
    stage.answer_call("speaker", "yes");
    assert_eq!(stage.session().ledger.total.unknown_attempts, 0);
}

#[test]
fn what_waits_behind_a_turn_that_is_stopped_waits_on() {
    let mut stage = chat();
    stage.send_message("one").send_message("two").take_log();
    stage.with_deferred_dispatch(|stage| {
        stage.run_command(OperatorCommand::Cancel);
    });
    assert_eq!(stage.take_log(), "c1 cancelled in flight, maybe billed: stopped by hand\nt1 cancelled\n");
    stage.crash_and_recover().answer_call("speaker", "to two");
    assert_eq!((stage.last_reply().as_str(), outcomes(&stage).len()), ("to two", 2));
    assert_eq!(stage.session().ledger.total.unknown_attempts, 1, "only the one that was made");
}

#[test]
fn a_copy_made_before_a_turn_begins_has_made_no_call_when_it_is_taken_up() {
    let mut stage = chat();
    stage.send_message("one").answer_call("speaker", "1").send_message("two");
    let received = stage.journal().iter().rposition(|event| matches!(event.event, Event::UserMessageReceived(_)));
    let mut copy = stage.fork_deferred_at(received.expect("it was said") + 1);
    assert!(copy.session().open_calls.is_empty() && !copy.session().is_idle());
    copy.crash_and_recover().answer_call("speaker", "2");
    let total = copy.session().ledger.total;
    assert_eq!((copy.last_reply().as_str(), total.answered_calls, total.unknown_attempts), ("2", 2, 0));
}

#[test]
fn a_call_that_a_flow_wishes_is_opened_by_whoever_makes_it() {
    let worker = ClosureFlow::test_role("worker", Scope::per_session());
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role()).with_role(worker);
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnEnded { outcome: TurnResult::Cancelled, .. } => {
            vec![note("worker", "clean up"), note("worker", "twice")]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.send_message("hi");
    stage.take_log();
    stage.with_deferred_dispatch(|stage| {
        stage.run_command(OperatorCommand::Cancel);
    });
    expect_test::expect![[r#"
        c1 cancelled in flight, maybe billed: stopped by hand
        t1 cancelled
        call of worker for note waits for somebody to make it
        call of worker for note waits for somebody to make it
    "#]]
    .assert_eq(&stage.take_log());
    assert!(!stage.session().is_idle());
    stage.assign_model("worker", "strong");
    stage.crash_and_recover();
    expect_test::expect![[r#"
        waiting call 1 goes on
        c2 worker asked note on strong, th2 new: nothing was remembered here yet
    "#]]
    .assert_eq(&stage.take_log());
    stage.answer_call("worker", "done").answer_call("worker", "done");
    assert!(stage.session().is_idle());
}

#[test]
fn what_is_closed_by_hand_owes_nothing() {
    let mut stage = chat();
    stage.send_message("one").send_message("two").with_deferred_dispatch(|stage| {
        stage.run_command(OperatorCommand::Close);
    });
    assert!(stage.session().is_idle());
}
