//! Calls that nobody wants any more while a model is at work on them: they may be billed, and the ledger says so until it is
//! known what became of them.

use segue_core::codec;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, MidTurnPolicy, TurnResult};
use segue_core::flow::{FlowStep, UnknownOutcomePolicy};
use segue_core::ids::CallId;
use segue_core::ledger::UsageTotals;
use segue_core::prompt::{AttemptCost, CallFailure, FailureKind, ModelReply, TokenUsage};
use segue_core::scope::Scope;
use segue_core::session::SessionState;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, note};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

/// What was cancelled, and whether that was under way.
fn cancelled(stage: &SessionHarness) -> Vec<(u32, bool)> {
    events(stage, |event| match event {
        Event::CallCancelled { call, in_flight, .. } => Some((call.0, *in_flight)),
        _ => None,
    })
}

fn answer(call: u32, text: &str) -> SessionInput {
    let usage = Some(TokenUsage { input_tokens: 100, output_tokens: 20, ..TokenUsage::default() });
    let reply = ModelReply { text: text.into(), usage, ..ModelReply::default() };
    SessionInput::Answer { call: CallId(call), attempt: 1, reply, cost_microusd: Some(7), duration_ms: 5 }
}

fn failure(call: u32, spent: Option<AttemptCost>) -> SessionInput {
    let failure = CallFailure { cost: spent, ..CallFailure::new(FailureKind::Network, "cut off") };
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
fn whoever_stops_a_call_under_way_is_told_that_it_may_be_billed() {
    let stops = [
        ("stopped by hand", SessionInput::Operator(OperatorCommand::Cancel)),
        ("the session was closed", SessionInput::Operator(OperatorCommand::Close)),
        ("another message took its place", interrupts("no, wait")),
    ];
    for (why, stop) in stops {
        let mut stage = chat();
        stage.send_message("hi").take_log();
        stage.apply_input(stop);
        let line = format!("c1 cancelled in flight, maybe billed: {why}\n");
        assert!(stage.take_log().contains(&line), "{why}");
        let ledger = &stage.session().ledger;
        let one = UsageTotals { unknown_attempts: 1, ..UsageTotals::default() };
        assert_eq!((ledger.total, ledger.by_role["speaker"], ledger.by_model["plain"]), (one, one, one), "{why}");
    }
}

#[test]
fn a_flow_that_goes_on_without_a_call_leaves_it_as_one_of_unknown_end() {
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    let sample = |sample| FlowStep::Call(CallRequest { sample, ..CallRequest::new("speaker", "reply") });
    let mut stage = SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| {
        match &event.event {
            Event::TurnStarted { .. } => vec![sample(0), sample(1), sample(2)],
            Event::CallAnswered(_) => {
                let cancel = FlowStep::CancelCall { call: CallId(2), reason: "one is enough".into() };
                [vec![cancel], ClosureFlow::react_as_chat(view, event)].concat()
            }
            _ => Vec::new(),
        }
    }));
    stage.send_message("hi").apply_input(answer(1, "enough"));
    assert_eq!(cancelled(&stage), [(2, true), (3, true)], "one by a step, one with its turn");
    let turn = stage.session().ledger.current_turn;
    assert_eq!((turn.answered_calls, turn.unknown_attempts), (1, 2));
}

#[test]
fn what_was_of_unknown_end_is_counted_once_when_it_is_heard_of() {
    let paid = AttemptCost {
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
        let mut stage = chat();
        stage.send_message("hi").run_command(OperatorCommand::Cancel).apply_input(news.clone());
        let ledger = &stage.session().ledger;
        assert_eq!((ledger.total, ledger.current_turn, ledger.by_role["speaker"]), (known, known, known));
        assert!(stage.try_input(news).is_err(), "it is heard of once");
    }
}

#[test]
fn the_account_of_another_turn_is_left_alone() {
    let mut stage = chat();
    stage
        .send_message("one")
        .run_command(OperatorCommand::Cancel)
        .send_message("two")
        .run_command(OperatorCommand::Cancel);
    stage.apply_input(answer(1, "to the first"));
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.total.unknown_attempts, ledger.total.late_answers), (1, 1));
    assert_eq!(
        (ledger.current_turn.unknown_attempts, ledger.current_turn.late_answers),
        (1, 0),
        "the second may still be billed"
    );
}

#[test]
fn a_try_that_had_not_begun_is_not_billed() {
    let mut stage = chat();
    stage.send_message("hi").fail_call("speaker", FailureKind::Overload).run_command(OperatorCommand::Cancel);
    assert_eq!(cancelled(&stage), [(1, false)], "it waited for its next try");
    assert!(stage.try_input(failure(1, None)).is_err(), "so nothing is known of it that was not known before");
    stage
        .send_message("again")
        .fail_call("speaker", FailureKind::Overload)
        .advance_clock(60_000)
        .run_command(OperatorCommand::Cancel);
    assert_eq!(cancelled(&stage), [(1, false), (2, true)], "its time had come");
    let total = stage.session().ledger.total;
    assert_eq!((total.failed_attempts, total.unknown_attempts), (2, 1));
}

#[test]
fn a_call_that_a_person_must_decide_about_is_counted_once() {
    let mut speaker = ClosureFlow::speaker_role();
    speaker.unknown_outcome = UnknownOutcomePolicy::AskOperator;
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    stage.send_message("hi").crash_and_recover().run_command(OperatorCommand::Cancel);
    assert_eq!((cancelled(&stage), stage.session().ledger.total.unknown_attempts), (vec![(1, false)], 1));
}

#[test]
fn what_one_decision_opens_and_ends_was_never_made() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "go"), FlowStep::EndTurn(TurnResult::Done)],
        _ => Vec::new(),
    }));
    stage.send_message("hi");
    assert_eq!((cancelled(&stage), stage.session().ledger.total), (vec![(1, false)], UsageTotals::default()));
}

#[test]
fn a_flow_that_ends_its_turn_over_a_call_lost_in_a_crash_counts_it_once() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::CallOutcomeUnknown { .. } => vec![FlowStep::EndTurn(TurnResult::Done)],
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.send_message("hi").crash_and_recover();
    assert_eq!((cancelled(&stage), stage.session().ledger.total.unknown_attempts), (vec![(1, false)], 1));
}

#[test]
fn a_copy_did_not_make_what_it_was_copied_in_the_middle_of() {
    let mut stage = chat();
    stage.send_message("hi").fork();
    assert_eq!((cancelled(&stage), stage.session().ledger.total), (vec![(1, false)], UsageTotals::default()));
}

#[test]
fn an_old_journal_in_which_nothing_is_said_of_it_counts_nothing() {
    let mut stage = chat();
    stage.send_message("hi");
    let old = br#"{"type":"call_cancelled","call":1,"reason":"stopped by hand"}"#;
    let read = codec::decode_event(stage.session().last_seq.next(), stage.now(), old).expect("it can be read");
    let flow = ClosureFlow::single_speaker(ClosureFlow::speaker_role());
    let state = SessionState::fold(&flow, stage.journal().iter().chain([&read]));
    assert_eq!((state.session.open_calls.len(), state.session.ledger.total), (0, UsageTotals::default()));
}
