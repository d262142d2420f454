//! The ledger: usage by role, model, phase and turn.

use segue_core::decide::SessionInput;
use segue_core::event::{CallRequest, Event, TurnOutcome, UsageSource};
use segue_core::flow::FlowStep;
use segue_core::phase::{Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseSpec};
use segue_core::prompt::{CallFailure, CallFailureKind, FailedCallAttemptCost, ModelReply, TokenUsage};
use segue_core::scope::Scope;
use segue_core::session::UsageTotals;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::events;

fn two_phases() -> PhaseGraph {
    let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
    PhaseGraph {
        name: "talk".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "open".into(),
        phases: vec![PhaseSpec::new("open"), PhaseSpec::new("late")],
        edges: vec![edge("open", "late"), edge("late", "open")],
        gates: Vec::new(),
    }
}

/// Each turn calls the speaker and, with another model, the expert.
fn harness() -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_role(ClosureFlow::test_role("expert", Scope::Fresh))
        .with_graph(two_phases());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![
                FlowStep::Call(CallRequest::new("speaker", "reply")),
                FlowStep::Call(CallRequest::new("expert", "reply")),
            ]
        }
        Event::CallAnswered(_) | Event::CallFailed { .. } if view.session.open_calls.is_empty() => {
            vec![FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }));
    harness.assign_model("expert", "wise");
    harness
}

fn reply(harness: &mut SessionHarness, role: &str, usage: Option<TokenUsage>, cost_microusd: Option<u64>) {
    let (call, attempt) = harness.oldest_open_call(role);
    let reply = ModelReply { text: "one two three".into(), reasoning: "hm hm".into(), usage, ..ModelReply::default() };
    harness.apply_input(SessionInput::Answer { call, attempt, reply, cost_microusd, duration_ms: 1 });
}

#[test]
fn sums_agree_by_role_model_phase_and_turn() {
    let mut harness = harness();
    let vendors = TokenUsage {
        input_tokens: 100,
        output_tokens: 20,
        cached_tokens: 60,
        reasoning_tokens: 5,
        ..TokenUsage::default()
    };
    harness.send_message("hello there");
    reply(&mut harness, "speaker", Some(vendors), Some(7));
    reply(&mut harness, "expert", None, Some(3));
    let phase =
        segue_core::event::PhaseGraphKey { graph: "talk".into(), owner: segue_core::event::PhaseStateOwner::Session };
    harness.run_command(segue_core::decide::OperatorCommand::Propose { phase, to: "late".into(), reason: None });
    harness.send_message("again").fail_call("expert", CallFailureKind::Refused);
    reply(&mut harness, "speaker", Some(vendors), Some(5));

    let ledger = &harness.session().ledger;
    let tally = |answered, input, output, cached, cost_microusd| UsageTotals {
        answered_calls: answered,
        input_tokens: input,
        output_tokens: output,
        cached_tokens: cached,
        cost_microusd,
        ..UsageTotals::default()
    };
    // The expert's prompt has "be expert" and "hello there" with overhead; its answer has five words.
    assert_eq!(ledger.by_role["expert"], UsageTotals { failed_attempts: 1, ..tally(1, 12, 5, 0, 3) });
    assert_eq!(ledger.by_role["speaker"], tally(2, 200, 40, 120, 12));
    assert_eq!(ledger.by_model["wise"], ledger.by_role["expert"]);
    assert_eq!(ledger.by_model["plain"], ledger.by_role["speaker"]);
    assert_eq!(ledger.by_phase["talk/open"], tally(1, 100, 20, 60, 7));
    assert_eq!(ledger.by_phase["talk/late"], tally(1, 100, 20, 60, 5));
    assert_eq!(ledger.current_turn, UsageTotals { failed_attempts: 1, ..tally(1, 100, 20, 60, 5) });
    assert_eq!(ledger.total, UsageTotals { failed_attempts: 1, ..tally(3, 212, 45, 120, 15) });
    assert_eq!(ledger.total.exact_cost_microusd(), Some(15));
    let counted = events(&harness, |event| match event {
        Event::CallAnswered(answered) => Some(answered.usage_source),
        _ => None,
    });
    assert_eq!(counted, [UsageSource::Vendor, UsageSource::Estimated, UsageSource::Vendor]);
}

#[test]
fn unknown_price_makes_the_sum_unknown_and_is_counted() {
    let mut harness = harness();
    harness.send_message("hello");
    reply(&mut harness, "speaker", None, Some(7));
    reply(&mut harness, "expert", None, None);
    let ledger = &harness.session().ledger;
    assert_eq!(
        (ledger.total.exact_cost_microusd(), ledger.total.cost_microusd, ledger.total.unpriced_answers),
        (None, 7, 1)
    );
    assert_eq!(ledger.by_role["speaker"].exact_cost_microusd(), Some(7));
}

#[test]
fn cost_of_a_lost_answer_is_counted() {
    let mut harness = harness();
    harness.send_message("hello");
    let usage = TokenUsage { input_tokens: 100, output_tokens: 20, cached_tokens: 60, ..TokenUsage::default() };
    let mut lose = |role: &str, spent: Option<FailedCallAttemptCost>| {
        let (call, attempt) = harness.oldest_open_call(role);
        let failure = CallFailure { cost: spent, ..CallFailure::new(CallFailureKind::UnusableReply, "no") };
        harness.apply_input(SessionInput::CallFailure { call, attempt, failure });
    };
    lose("speaker", Some(FailedCallAttemptCost { usage: Some(usage), cost_microusd: Some(7) }));
    lose("expert", Some(FailedCallAttemptCost::default()));
    let ledger = &harness.session().ledger;
    let speaker = UsageTotals {
        failed_attempts: 1,
        input_tokens: 100,
        output_tokens: 20,
        cached_tokens: 60,
        cost_microusd: 7,
        ..UsageTotals::default()
    };
    assert_eq!(ledger.by_role["speaker"], speaker);
    assert_eq!(
        ledger.by_role["expert"],
        UsageTotals { failed_attempts: 1, unpriced_answers: 1, ..UsageTotals::default() },
        "the cost is unknown"
    );
    assert_eq!(
        (ledger.total.exact_cost_microusd(), ledger.total.cost_microusd, ledger.total.failed_attempts),
        (None, 7, 2)
    );
}
