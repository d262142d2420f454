//! Calls that fail, are retried or abandoned, and answers that arrive too late.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, MidTurnPolicy, RetryDecision};
use segue_core::flow::FlowStep;
use segue_core::ids::CallId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailure, CallFailureKind, FailedCallAttemptCost, ModelReply};
use segue_core::scope::Scope;
use segue_core::session::{Effect, OpenCallStatus};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

fn answer(call: u32, attempt: u32, text: &str) -> SessionInput {
    let reply = ModelReply { text: text.to_owned(), ..ModelReply::default() };
    SessionInput::Answer { call: CallId(call), attempt, reply, cost_microusd: Some(10), duration_ms: 5 }
}

fn failure(call: u32, attempt: u32, kind: CallFailureKind) -> SessionInput {
    SessionInput::CallFailure { call: CallId(call), attempt, failure: CallFailure::new(kind, "no") }
}

/// The delay between each failure and the next attempt.
fn waits(harness: &SessionHarness) -> Vec<u64> {
    harness
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallFailed { next: RetryDecision::Retry { at }, .. } => Some(at.ms_since(recorded.at)),
            _ => None,
        })
        .collect()
}

#[test]
fn transient_failure_is_retried_with_growing_delay_and_then_given_up() {
    let mut harness = chat();
    harness.set_retry_random(0);
    harness.send_message("hi");
    for attempt in 1..=4 {
        harness.apply_input(failure(1, attempt, CallFailureKind::Overload));
    }
    assert_eq!(waits(&harness), [250, 500, 1000], "half the backoff, and no jitter");
    assert_eq!(outcomes(&harness), ["failed"]);
    assert!(harness.session().is_idle());
}

#[test]
fn permanent_failure_is_not_retried() {
    for kind in [
        CallFailureKind::InvalidApiKey,
        CallFailureKind::Refused,
        CallFailureKind::ContextTooLong,
        CallFailureKind::BadRequest,
    ] {
        let mut harness = chat();
        harness.send_message("hi").apply_input(failure(1, 1, kind));
        assert_eq!(outcomes(&harness), ["failed"], "{kind}");
    }
}

#[test]
fn retry_after_of_a_vendor_is_respected() {
    let mut harness = chat();
    let limited = |attempt, ms| SessionInput::CallFailure {
        call: CallId(1),
        attempt,
        failure: CallFailure { retry_after_ms: Some(ms), ..CallFailure::new(CallFailureKind::RateLimit, "slow down") },
    };
    harness.send_message("hi").apply_input(limited(1, 45_000));
    assert_eq!(waits(&harness), [45_000]);
    let due = harness.journal().last().expect("it failed").at.plus_ms(45_000);
    let pending = harness.session().pending_effects(&segue_core::flow::FlowSpec::new("x", "x"));
    assert_eq!(pending, [Effect::CallModel { call: CallId(1), attempt: 2, not_before: due }]);
    harness.apply_input(limited(2, 1));
    assert!(waits(&harness)[1] >= 500, "but our own backoff is the least");
    harness.apply_input(limited(3, SESSION_LIMITS.retry_after_ms_max + 1));
    assert_eq!(outcomes(&harness), ["failed"], "a turn does not wait for hours");
}

#[test]
fn answer_to_an_earlier_attempt_is_refused_while_another_is_in_flight() {
    let mut harness = chat();
    harness.send_message("hi").apply_input(failure(1, 1, CallFailureKind::Timeout));
    assert_eq!(
        harness.session().open_calls[&CallId(1)].status,
        OpenCallStatus::WaitingUntil(harness.now().plus_ms(257))
    );
    assert_eq!(
        harness.try_input(answer(1, 1, "late")).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    harness.apply_input(answer(1, 2, "in time"));
    assert_eq!(harness.last_reply(), "in time");
}

#[test]
fn late_reply_is_refused() {
    let mut harness = chat();
    harness.send_message("hi").apply_input(answer(1, 1, "first"));
    let before = harness.journal().len();
    assert_eq!(
        harness.try_input(answer(1, 1, "first")).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    assert_eq!(
        harness.try_input(failure(1, 1, CallFailureKind::Network)).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    assert!(harness.try_input(answer(9, 1, "never asked")).is_err());
    assert_eq!(harness.journal().len(), before);
}

#[test]
fn late_answer_is_recorded_and_counted_and_changes_nothing_else() {
    let mut harness = chat();
    harness.send_message("hi").apply_input(failure(1, 1, CallFailureKind::InvalidApiKey));
    let threads = harness.session().threads.clone();
    harness.take_new_event_lines();
    harness.apply_input(answer(1, 1, "sorry for the delay"));
    assert_eq!(harness.take_new_event_lines(), "c1 answered too late; the answer is recorded but not used\n");
    assert_eq!(harness.session().threads, threads);
    assert_eq!(harness.last_reply(), "");
    let total = harness.session().ledger.total;
    assert_eq!((total.answered_calls, total.late_answers, total.cost_microusd, total.output_tokens), (0, 1, 10, 4));
    assert!(harness.try_input(answer(1, 1, "again")).is_err(), "it comes once");
    harness.send_message("again");
    assert!(!harness.prompt_lines("speaker").contains("delay"));
}

#[test]
fn answer_to_a_cancelled_call_is_recorded_and_counted() {
    let mut harness = chat();
    harness.send_message("hi").run_command(OperatorCommand::Cancel { turn: None }).apply_input(answer(
        1,
        1,
        "never mind",
    ));
    let late = events(&harness, |event| match event {
        Event::CallAnsweredLate { call, .. } => Some(*call),
        _ => None,
    });
    assert_eq!(late, [CallId(1)]);
    assert_eq!(harness.session().ledger.current_turn.late_answers, 1, "on the account of the turn it was made in");
}

#[test]
fn late_failure_is_recorded_for_its_cost_and_hidden_from_the_flow() {
    let mut harness = chat();
    harness
        .send_message("hi")
        .fail_call("speaker", CallFailureKind::Overload)
        .run_command(OperatorCommand::Cancel { turn: None })
        .send_message("again");
    let spent = FailedCallAttemptCost { usage: None, cost_microusd: Some(7) };
    let took = |spent| CallFailure { cost: spent, ..CallFailure::new(CallFailureKind::Network, "cut off") };
    let late = |spent| SessionInput::CallFailure { call: CallId(1), attempt: 2, failure: took(spent) };
    assert!(harness.try_input(late(None)).is_err(), "a free failure of a call that was not in flight is ignored");
    harness.apply_input(late(Some(spent)));
    assert!(harness.session().current_turn.is_some(), "the turn that runs has nothing to do with it");
    let ledger = &harness.session().ledger;
    assert_eq!(
        (ledger.total.failed_attempts, ledger.total.cost_microusd, ledger.current_turn.failed_attempts),
        (2, 7, 0)
    );
    assert!(harness.try_input(late(Some(spent))).is_err(), "it comes once");
    harness.apply_input(answer(2, 1, "yes"));
    assert_eq!(harness.last_reply(), "yes");
}

#[test]
fn late_answer_is_awaited_unless_the_user_cancelled_the_turn() {
    let went_on = |harness: &mut SessionHarness| {
        harness.send_message("hi").apply_input(answer(1, 1, "enough"));
    };
    let mut harness = SessionHarness::open(first_of_two_calls_wins());
    went_on(&mut harness);
    assert!(harness.session().is_idle() && harness.session().awaits_late_answer(CallId(2)));
    assert!(!harness.session().awaits_late_answer(CallId(1)), "that one was answered");
    harness.send_message("next").run_command(OperatorCommand::Cancel { turn: None });
    assert!(!harness.session().awaits_late_answer(CallId(3)) && !harness.session().awaits_late_answer(CallId(4)));
    assert!(harness.session().awaits_late_answer(CallId(2)), "it was of another turn");
    harness.apply_input(answer(2, 1, "late"));
    assert!(!harness.session().awaits_late_answer(CallId(2)), "it came");

    let mut harness = SessionHarness::open(first_of_two_calls_wins());
    went_on(&mut harness);
    harness.run_command(OperatorCommand::Close);
    assert!(!harness.session().awaits_late_answer(CallId(2)), "nothing is waited for in a closed session");

    let mut harness = SessionHarness::open(first_of_two_calls_wins());
    harness.send_message("hi");
    let interrupts = SessionInput::Message {
        text: "no".into(),
        idempotency_key: None,
        mid_turn_policy: Some(MidTurnPolicy::Interrupt),
        images: Vec::new(),
    };
    harness.apply_input(interrupts);
    assert!(!harness.session().awaits_late_answer(CallId(1)) && !harness.session().awaits_late_answer(CallId(2)));
}

/// Each turn makes two calls, and the first answer ends it.
fn first_of_two_calls_wins() -> ClosureFlow {
    let speakers = |count| CallRequest { sample: count, ..CallRequest::new("speaker", "reply") };
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(speakers(0)), FlowStep::Call(speakers(1))],
        _ => ClosureFlow::react_as_chat(view, event),
    })
}
