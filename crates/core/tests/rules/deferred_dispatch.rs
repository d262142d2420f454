//! Decisions with deferred dispatch: nothing is started, and another process starts the pending work.

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnOutcome};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{note, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

#[test]
fn message_waits_until_dispatch_is_immediate() {
    let mut harness = chat();
    harness.with_deferred_dispatch(|harness| {
        harness.send_message("hi").advance_and_tick(1_000).take_new_event_lines();
    });
    assert_eq!((harness.session().queued_messages.len(), harness.session().current_turn.is_some()), (1, false));
    assert!(harness.session().open_calls.is_empty() && !harness.session().is_idle(), "it is pending and not started");
    harness.crash_and_recover();
    expect_test::expect![[r#"
        t1 started with m1
        c1 speaker asked reply on plain, th1 new: first call in this scope
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    harness.answer_call("speaker", "yes");
    assert_eq!(harness.session().ledger.total.unknown_attempts, 0);
}

#[test]
fn messages_queued_behind_a_cancelled_turn_keep_waiting() {
    let mut harness = chat();
    harness.send_message("one").send_message("two").take_new_event_lines();
    harness.with_deferred_dispatch(|harness| {
        harness.run_command(OperatorCommand::Cancel { turn: None });
    });
    assert_eq!(
        harness.take_new_event_lines(),
        "c1 cancelled in flight, possibly billed: cancelled on request\nt1 cancelled\n"
    );
    harness.crash_and_recover().answer_call("speaker", "to two");
    assert_eq!((harness.last_reply().as_str(), outcomes(&harness).len()), ("to two", 2));
    assert_eq!(harness.session().ledger.total.unknown_attempts, 1, "only the one that was made");
}

#[test]
fn fork_before_a_turn_has_made_no_call_when_it_is_resumed() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "1").send_message("two");
    let received = harness.journal().iter().rposition(|event| matches!(event.event, Event::UserMessageReceived(_)));
    let mut copy = harness.fork_deferred_at(received.expect("it was said") + 1);
    assert!(copy.session().open_calls.is_empty() && !copy.session().is_idle());
    copy.crash_and_recover().answer_call("speaker", "2");
    let total = copy.session().ledger.total;
    assert_eq!((copy.last_reply().as_str(), total.answered_calls, total.unknown_attempts), ("2", 2, 0));
}

#[test]
fn requested_call_is_opened_by_the_process_that_makes_it() {
    let worker = ClosureFlow::test_role("worker", Scope::per_session());
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role()).with_role(worker);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnEnded { outcome: TurnOutcome::Cancelled, .. } => {
            vec![note("worker", "clean up"), note("worker", "twice")]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("hi");
    harness.take_new_event_lines();
    harness.with_deferred_dispatch(|harness| {
        harness.run_command(OperatorCommand::Cancel { turn: None });
    });
    expect_test::expect![[r#"
        c1 cancelled in flight, possibly billed: cancelled on request
        t1 cancelled
        call of worker for note waits for a client to start it
        call of worker for note waits for a client to start it
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    assert!(!harness.session().is_idle());
    harness.assign_model("worker", "strong");
    harness.crash_and_recover();
    expect_test::expect![[r#"
        deferred call 1 resumed
        c2 worker asked note on strong, th2 new: first call in this scope
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    harness.answer_call("worker", "done").answer_call("worker", "done");
    assert!(harness.session().is_idle());
}

#[test]
fn closed_session_has_no_pending_work() {
    let mut harness = chat();
    harness.send_message("one").send_message("two").with_deferred_dispatch(|harness| {
        harness.run_command(OperatorCommand::Close);
    });
    assert!(harness.session().is_idle());
}
