//! Calls that fail, are tried again, are given up, and answers that come when nobody waits any more.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, MidTurnPolicy, RetryDecision};
use segue_core::flow::{FlowStep, RetryPolicy};
use segue_core::ids::CallId;
use segue_core::limits::RETRY_AFTER_MS_MAX;
use segue_core::prompt::{AttemptCost, CallFailure, FailureKind, ModelReply};
use segue_core::scope::Scope;
use segue_core::session::{CallStatus, Effect};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

fn answer(call: u32, attempt: u32, text: &str) -> SessionInput {
    let reply = ModelReply { text: text.to_owned(), ..ModelReply::default() };
    SessionInput::Answer { call: CallId(call), attempt, reply, cost_microusd: Some(10), duration_ms: 5 }
}

fn failure(call: u32, attempt: u32, kind: FailureKind) -> SessionInput {
    SessionInput::CallFailure { call: CallId(call), attempt, failure: CallFailure::new(kind, "no") }
}

/// How long after its failure each further try was to be made.
fn waits(stage: &SessionHarness) -> Vec<u64> {
    stage
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallFailed { next: RetryDecision::Retry { at }, .. } => Some(at.ms_since(recorded.at)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_passing_failure_is_tried_again_ever_later_and_then_given_up() {
    let mut stage = chat();
    stage.set_random(0);
    stage.send_message("hi");
    for attempt in 1..=4 {
        stage.apply_input(failure(1, attempt, FailureKind::Overload));
    }
    assert_eq!(waits(&stage), [250, 500, 1000], "half the backoff, and no jitter");
    assert_eq!(outcomes(&stage), ["failed"]);
    assert!(stage.session().is_idle());
}

#[test]
fn jitter_spreads_retries_over_half_the_backoff() {
    let retries = RetryPolicy::default();
    for attempt in 2..40 {
        let waits: Vec<u64> = (0..2_000).map(|chance| retries.backoff_delay_ms(attempt, chance * 977)).collect();
        let whole = (retries.backoff_ms << (attempt - 2).min(20)).min(retries.backoff_ms_max);
        assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)), "try {attempt}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait > whole * 3 / 4) && waits.iter().any(|wait| *wait < whole * 3 / 4));
    }
}

#[test]
fn a_failure_that_will_not_pass_is_not_tried_again() {
    for kind in [FailureKind::InvalidApiKey, FailureKind::Refused, FailureKind::ContextTooLong, FailureKind::BadRequest]
    {
        let mut stage = chat();
        stage.send_message("hi").apply_input(failure(1, 1, kind));
        assert_eq!(outcomes(&stage), ["failed"], "{kind}");
    }
}

#[test]
fn a_vendor_that_says_when_to_come_back_is_heard() {
    let mut stage = chat();
    let limited = |attempt, ms| SessionInput::CallFailure {
        call: CallId(1),
        attempt,
        failure: CallFailure { retry_after_ms: Some(ms), ..CallFailure::new(FailureKind::RateLimit, "slow down") },
    };
    stage.send_message("hi").apply_input(limited(1, 45_000));
    assert_eq!(waits(&stage), [45_000]);
    let due = stage.journal().last().expect("it failed").at.plus_ms(45_000);
    let owed = stage.session().pending_effects(&segue_core::flow::FlowSpec::new("x", "x"));
    assert_eq!(owed, [Effect::CallModel { call: CallId(1), attempt: 2, not_before: due }]);
    stage.apply_input(limited(2, 1));
    assert!(waits(&stage)[1] >= 500, "but our own backoff is the least");
    stage.apply_input(limited(3, RETRY_AFTER_MS_MAX + 1));
    assert_eq!(outcomes(&stage), ["failed"], "nobody waits for hours in the middle of a turn");
}

#[test]
fn an_answer_to_a_try_that_was_given_up_is_refused_while_another_is_under_way() {
    let mut stage = chat();
    stage.send_message("hi").apply_input(failure(1, 1, FailureKind::Timeout));
    assert_eq!(stage.session().open_calls[&CallId(1)].status, CallStatus::WaitingUntil(stage.now().plus_ms(257)));
    assert_eq!(
        stage.try_input(answer(1, 1, "late")).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    stage.apply_input(answer(1, 2, "in time"));
    assert_eq!(stage.last_reply(), "in time");
}

#[test]
fn late_reply_is_refused() {
    let mut stage = chat();
    stage.send_message("hi").apply_input(answer(1, 1, "first"));
    let before = stage.journal().len();
    assert_eq!(
        stage.try_input(answer(1, 1, "first")).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    assert_eq!(
        stage.try_input(failure(1, 1, FailureKind::Network)).err(),
        Some(InputRefusal::CallNotPending { call: CallId(1), attempt: 1 })
    );
    assert!(stage.try_input(answer(9, 1, "never asked")).is_err());
    assert_eq!(stage.journal().len(), before);
}

#[test]
fn an_answer_after_giving_up_is_kept_and_paid_for_and_changes_nothing_else() {
    let mut stage = chat();
    stage.send_message("hi").apply_input(failure(1, 1, FailureKind::InvalidApiKey));
    let threads = stage.session().threads.clone();
    stage.take_log();
    stage.apply_input(answer(1, 1, "sorry for the delay"));
    assert_eq!(stage.take_log(), "c1 answered too late; kept and not used\n");
    assert_eq!(stage.session().threads, threads);
    assert_eq!(stage.last_reply(), "");
    let total = stage.session().ledger.total;
    assert_eq!((total.answered_calls, total.late_answers, total.cost_microusd, total.output_tokens), (0, 1, 10, 4));
    assert!(stage.try_input(answer(1, 1, "again")).is_err(), "it comes once");
    stage.send_message("again");
    assert!(!stage.prompt_lines("speaker").contains("delay"));
}

#[test]
fn the_answer_to_a_cancelled_call_is_kept_and_paid_for_too() {
    let mut stage = chat();
    stage.send_message("hi").run_command(OperatorCommand::Cancel).apply_input(answer(1, 1, "never mind"));
    let late = events(&stage, |event| match event {
        Event::CallAnsweredLate { call, .. } => Some(*call),
        _ => None,
    });
    assert_eq!(late, [CallId(1)]);
    assert_eq!(stage.session().ledger.current_turn.late_answers, 1, "on the account of the turn it was made in");
}

#[test]
fn a_failure_after_giving_up_is_recorded_for_what_it_took_and_the_flow_is_not_told() {
    let mut stage = chat();
    stage
        .send_message("hi")
        .fail_call("speaker", FailureKind::Overload)
        .run_command(OperatorCommand::Cancel)
        .send_message("again");
    let spent = AttemptCost { usage: None, cost_microusd: Some(7) };
    let took = |spent| CallFailure { cost: spent, ..CallFailure::new(FailureKind::Network, "cut off") };
    let late = |spent| SessionInput::CallFailure { call: CallId(1), attempt: 2, failure: took(spent) };
    assert!(
        stage.try_input(late(None)).is_err(),
        "of one that nobody thought was under way, that it took nothing is no news"
    );
    stage.apply_input(late(Some(spent)));
    assert!(stage.session().current_turn.is_some(), "the turn that runs has nothing to do with it");
    let ledger = &stage.session().ledger;
    assert_eq!(
        (ledger.total.failed_attempts, ledger.total.cost_microusd, ledger.current_turn.failed_attempts),
        (2, 7, 0)
    );
    assert!(stage.try_input(late(Some(spent))).is_err(), "it comes once");
    stage.apply_input(answer(2, 1, "yes"));
    assert_eq!(stage.last_reply(), "yes");
}

#[test]
fn a_late_answer_is_awaited_where_the_flow_went_on_and_not_where_the_user_stopped_it() {
    let went_on = |stage: &mut SessionHarness| {
        stage.send_message("hi").apply_input(answer(1, 1, "enough"));
    };
    let mut stage = SessionHarness::open(two_are_asked());
    went_on(&mut stage);
    assert!(stage.session().is_idle() && stage.session().awaits_late_answer(CallId(2)));
    assert!(!stage.session().awaits_late_answer(CallId(1)), "that one was answered");
    stage.send_message("next").run_command(OperatorCommand::Cancel);
    assert!(!stage.session().awaits_late_answer(CallId(3)) && !stage.session().awaits_late_answer(CallId(4)));
    assert!(stage.session().awaits_late_answer(CallId(2)), "it was of another turn");
    stage.apply_input(answer(2, 1, "late"));
    assert!(!stage.session().awaits_late_answer(CallId(2)), "it came");

    let mut stage = SessionHarness::open(two_are_asked());
    went_on(&mut stage);
    stage.run_command(OperatorCommand::Close);
    assert!(!stage.session().awaits_late_answer(CallId(2)), "nothing is waited for in a closed session");

    let mut stage = SessionHarness::open(two_are_asked());
    stage.send_message("hi");
    let interrupts = SessionInput::Message {
        text: "no".into(),
        idempotency_key: None,
        mid_turn_policy: Some(MidTurnPolicy::Interrupt),
        images: Vec::new(),
    };
    stage.apply_input(interrupts);
    assert!(!stage.session().awaits_late_answer(CallId(1)) && !stage.session().awaits_late_answer(CallId(2)));
}

/// Each turn asks two, and the first answer ends it.
fn two_are_asked() -> ClosureFlow {
    let speakers = |count| CallRequest { sample: count, ..CallRequest::new("speaker", "reply") };
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(speakers(0)), FlowStep::Call(speakers(1))],
        _ => ClosureFlow::react_as_chat(view, event),
    })
}
