//! Calls that are cancelled while they are in flight: they may be billed, and the ledger counts them as unknown until
//! their outcome arrives.

use segue_core::codec;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, MidTurnPolicy, TurnOutcome};
use segue_core::flow::{FlowStep, UnknownOutcomePolicy};
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind, FailedCallAttemptCost, ModelReply, TokenUsage};
use segue_core::scope::Scope;
use segue_core::session::{SessionState, UsageTotals};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, note};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

/// Returns the cancelled calls, and whether each was in flight.
fn cancelled(harness: &SessionHarness) -> Vec<(u32, bool)> {
    events(harness, |event| match event {
        Event::CallCancelled { call, in_flight, .. } => Some((call.0, *in_flight)),
        _ => None,
    })
}

fn answer(call: u32, text: &str) -> SessionInput {
    let usage = Some(TokenUsage { input_tokens: 100, output_tokens: 20, ..TokenUsage::default() });
    let reply = ModelReply { text: text.into(), usage, ..ModelReply::default() };
    SessionInput::Answer { call: CallId(call), attempt: 1, reply, cost_microusd: Some(7), duration_ms: 5 }
}

fn failure(call: u32, cost: Option<FailedCallAttemptCost>) -> SessionInput {
    let failure = CallFailure { cost, ..CallFailure::new(CallFailureKind::Network, "cut off") };
    SessionInput::CallFailure { call: CallId(call), attempt: 1, failure }
}

fn interrupts(text: &str) -> SessionInput {
    SessionInput::Message {
        text: text.to_owned(),
        idempotency_key: None,
        mid_turn_policy: Some(MidTurnPolicy::Interrupt),
        images: Vec::new(),
    }
}

#[test]
fn cancelling_a_call_in_flight_warns_that_it_may_be_billed() {
    let stops = [
        ("cancelled on request", SessionInput::Operator(OperatorCommand::Cancel { turn: None })),
        ("the session was closed", SessionInput::Operator(OperatorCommand::Close)),
        ("interrupted by another message", interrupts("no, wait")),
    ];
    for (why, stop) in stops {
        let mut harness = chat();
        harness.send_message("hi").take_new_event_lines();
        harness.apply_input(stop);
        let line = format!("c1 cancelled in flight, possibly billed: {why}\n");
        assert!(harness.take_new_event_lines().contains(&line), "{why}");
        let ledger = &harness.session().ledger;
        let one = UsageTotals { unknown_attempts: 1, ..UsageTotals::default() };
        assert_eq!((ledger.total, ledger.by_role["speaker"], ledger.by_model["plain"]), (one, one, one), "{why}");
    }
}

#[test]
fn call_abandoned_in_flight_has_an_unknown_outcome() {
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    let sample = |sample| FlowStep::Call(CallRequest { sample, ..CallRequest::new("speaker", "reply") });
    let mut harness = SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| {
        match &event.event {
            Event::TurnStarted { .. } => vec![sample(0), sample(1), sample(2)],
            Event::CallAnswered(_) => {
                let cancel = FlowStep::CancelCall { call: CallId(2), reason: "one is enough".into() };
                [vec![cancel], ClosureFlow::react_as_chat(view, event)].concat()
            }
            _ => Vec::new(),
        }
    }));
    harness.send_message("hi").apply_input(answer(1, "enough"));
    assert_eq!(cancelled(&harness), [(2, true), (3, true)], "one by a step, one with its turn");
    let turn = harness.session().ledger.current_turn;
    assert_eq!((turn.answered_calls, turn.unknown_attempts), (1, 2));
}

#[test]
fn unknown_outcome_is_counted_once_when_it_arrives() {
    let paid = FailedCallAttemptCost {
        usage: Some(TokenUsage { input_tokens: 100, output_tokens: 3, ..TokenUsage::default() }),
        cost_microusd: Some(5),
    };
    let late = UsageTotals {
        late_answers: 1,
        input_tokens: 100,
        output_tokens: 20,
        cost_microusd: 7,
        ..UsageTotals::default()
    };
    let lost = UsageTotals {
        failed_attempts: 1,
        input_tokens: 100,
        output_tokens: 3,
        cost_microusd: 5,
        ..UsageTotals::default()
    };
    let nothing = UsageTotals { failed_attempts: 1, ..UsageTotals::default() };
    for (news, known) in [(answer(1, "too late"), late), (failure(1, Some(paid)), lost), (failure(1, None), nothing)] {
        let mut harness = chat();
        harness.send_message("hi").run_command(OperatorCommand::Cancel { turn: None }).apply_input(news.clone());
        let ledger = &harness.session().ledger;
        assert_eq!((ledger.total, ledger.current_turn, ledger.by_role["speaker"]), (known, known, known));
        assert!(harness.try_input(news).is_err(), "its outcome is accepted once");
    }
}

#[test]
fn usage_of_another_turn_is_not_changed() {
    let mut harness = chat();
    harness
        .send_message("one")
        .run_command(OperatorCommand::Cancel { turn: None })
        .send_message("two")
        .run_command(OperatorCommand::Cancel { turn: None });
    harness.apply_input(answer(1, "to the first"));
    let ledger = &harness.session().ledger;
    assert_eq!((ledger.total.unknown_attempts, ledger.total.late_answers), (1, 1));
    assert_eq!(
        (ledger.current_turn.unknown_attempts, ledger.current_turn.late_answers),
        (1, 0),
        "the second may still be billed"
    );
}

#[test]
fn attempt_that_had_not_started_is_not_billed() {
    let mut harness = chat();
    harness
        .send_message("hi")
        .fail_call("speaker", CallFailureKind::Overload)
        .run_command(OperatorCommand::Cancel { turn: None });
    assert_eq!(cancelled(&harness), [(1, false)], "it waited for its next try");
    assert!(harness.try_input(failure(1, None)).is_err(), "so nothing is known of it that was not known before");
    harness
        .send_message("again")
        .fail_call("speaker", CallFailureKind::Overload)
        .advance_clock(60_000)
        .run_command(OperatorCommand::Cancel { turn: None });
    assert_eq!(cancelled(&harness), [(1, false), (2, true)], "its time had come");
    let total = harness.session().ledger.total;
    assert_eq!((total.failed_attempts, total.unknown_attempts), (2, 1));
}

#[test]
fn call_awaiting_an_operator_is_counted_once() {
    let mut speaker = ClosureFlow::speaker_role();
    speaker.unknown_outcome = UnknownOutcomePolicy::AskOperator;
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    harness.send_message("hi").crash_and_recover().run_command(OperatorCommand::Cancel { turn: None });
    assert_eq!((cancelled(&harness), harness.session().ledger.total.unknown_attempts), (vec![(1, false)], 1));
}

#[test]
fn call_opened_and_ended_in_one_decision_was_never_made() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "go"), FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    }));
    harness.send_message("hi");
    assert_eq!((cancelled(&harness), harness.session().ledger.total), (vec![(1, false)], UsageTotals::default()));
}

#[test]
fn turn_ended_over_a_call_lost_in_a_crash_counts_it_once() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::CallOutcomeUnknown { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("hi").crash_and_recover();
    assert_eq!((cancelled(&harness), harness.session().ledger.total.unknown_attempts), (vec![(1, false)], 1));
}

#[test]
fn fork_did_not_make_the_calls_of_the_original() {
    let mut harness = chat();
    harness.send_message("hi").fork();
    assert_eq!((cancelled(&harness), harness.session().ledger.total), (vec![(1, false)], UsageTotals::default()));
}

#[test]
fn old_journal_without_the_field_counts_nothing() {
    let mut harness = chat();
    harness.send_message("hi");
    let old = br#"{"type":"call_cancelled","call":1,"reason":"cancelled on request"}"#;
    let read = codec::decode_event(harness.session().last_seq.next(), harness.now(), old).expect("it can be read");
    let flow = ClosureFlow::single_speaker(ClosureFlow::speaker_role());
    let state = SessionState::fold(&flow, harness.journal().iter().chain([&read]));
    assert_eq!((state.session.open_calls.len(), state.session.ledger.total), (0, UsageTotals::default()));
}
