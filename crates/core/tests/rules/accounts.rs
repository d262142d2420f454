//! The ledger: what was spent, by whom, on what, in which phase and turn.

use segue_core::decide::SessionInput;
use segue_core::event::{CallRequest, Event, TurnResult, UsageSource};
use segue_core::flow::FlowStep;
use segue_core::ledger::UsageTotals;
use segue_core::phase::guard::Guard;
use segue_core::phase::{PhaseEdge, PhaseGraph, PhaseOwnerKind, PhaseSpec};
use segue_core::prompt::{AttemptCost, CallFailure, FailureKind, ModelReply, TokenUsage};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::events;

fn two_phases() -> PhaseGraph {
    let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
    PhaseGraph {
        name: "talk".into(),
        owner_kind: PhaseOwnerKind::Session,
        start: "open".into(),
        phases: vec![PhaseSpec::new("open"), PhaseSpec::new("late")],
        edges: vec![edge("open", "late"), edge("late", "open")],
        gates: Vec::new(),
    }
}

/// Each turn the speaker and, on another model, the expert are asked.
fn stage() -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_role(ClosureFlow::test_role("expert", Scope::Fresh))
        .with_graph(two_phases());
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![
                FlowStep::Call(CallRequest::new("speaker", "reply")),
                FlowStep::Call(CallRequest::new("expert", "reply")),
            ]
        }
        Event::CallAnswered(_) | Event::CallFailed { .. } if view.session.open_calls.is_empty() => {
            vec![FlowStep::EndTurn(TurnResult::Done)]
        }
        _ => Vec::new(),
    }));
    stage.assign_model("expert", "wise");
    stage
}

fn reply(stage: &mut SessionHarness, role: &str, usage: Option<TokenUsage>, cost_microusd: Option<u64>) {
    let (call, attempt) = stage.oldest_open_call(role);
    let reply = ModelReply { text: "one two three".into(), reasoning: "hm hm".into(), usage, ..ModelReply::default() };
    stage.apply_input(SessionInput::Answer { call, attempt, reply, cost_microusd, duration_ms: 1 });
}

#[test]
fn sums_agree_by_role_model_phase_and_turn() {
    let mut stage = stage();
    let vendors = TokenUsage {
        input_tokens: 100,
        output_tokens: 20,
        cached_tokens: 60,
        reasoning_tokens: 5,
        ..TokenUsage::default()
    };
    stage.send_message("hello there");
    reply(&mut stage, "speaker", Some(vendors), Some(7));
    reply(&mut stage, "expert", None, Some(3));
    let phase =
        segue_core::event::PhaseGraphKey { graph: "talk".into(), owner: segue_core::event::PhaseGraphOwner::Session };
    stage.run_command(segue_core::decide::OperatorCommand::Propose { phase, to: "late".into(), reason: None });
    stage.send_message("again").fail_call("expert", FailureKind::Refused);
    reply(&mut stage, "speaker", Some(vendors), Some(5));

    let ledger = &stage.session().ledger;
    let tally = |answered, input, output, cached, cost_microusd| UsageTotals {
        answered_calls: answered,
        input_tokens: input,
        output_tokens: output,
        cached_tokens: cached,
        cost_microusd,
        ..UsageTotals::default()
    };
    // The expert's prompt has "be expert" and "hello there" with a frame each; its answer has five words.
    assert_eq!(ledger.by_role["expert"], UsageTotals { failed_attempts: 1, ..tally(1, 12, 5, 0, 3) });
    assert_eq!(ledger.by_role["speaker"], tally(2, 200, 40, 120, 12));
    assert_eq!(ledger.by_model["wise"], ledger.by_role["expert"]);
    assert_eq!(ledger.by_model["plain"], ledger.by_role["speaker"]);
    assert_eq!(ledger.by_phase["talk/open"], tally(1, 100, 20, 60, 7));
    assert_eq!(ledger.by_phase["talk/late"], tally(1, 100, 20, 60, 5));
    assert_eq!(ledger.current_turn, UsageTotals { failed_attempts: 1, ..tally(1, 100, 20, 60, 5) });
    assert_eq!(ledger.total, UsageTotals { failed_attempts: 1, ..tally(3, 212, 45, 120, 15) });
    assert_eq!(ledger.total.exact_cost_microusd(), Some(15));
    let counted = events(&stage, |event| match event {
        Event::CallAnswered(answered) => Some(answered.usage_source),
        _ => None,
    });
    assert_eq!(counted, [UsageSource::Vendor, UsageSource::Estimated, UsageSource::Vendor]);
}

#[test]
fn an_unknown_price_makes_the_sum_unknown_and_says_how_often() {
    let mut stage = stage();
    stage.send_message("hello");
    reply(&mut stage, "speaker", None, Some(7));
    reply(&mut stage, "expert", None, None);
    let ledger = &stage.session().ledger;
    assert_eq!(
        (ledger.total.exact_cost_microusd(), ledger.total.cost_microusd, ledger.total.unpriced_answers),
        (None, 7, 1)
    );
    assert_eq!(ledger.by_role["speaker"].exact_cost_microusd(), Some(7));
}

#[test]
fn an_answer_that_was_lost_is_paid_for_all_the_same() {
    let mut stage = stage();
    stage.send_message("hello");
    let usage = TokenUsage { input_tokens: 100, output_tokens: 20, cached_tokens: 60, ..TokenUsage::default() };
    let mut lose = |role: &str, spent: Option<AttemptCost>| {
        let (call, attempt) = stage.oldest_open_call(role);
        let failure = CallFailure { cost: spent, ..CallFailure::new(FailureKind::UnusableReply, "no") };
        stage.apply_input(SessionInput::CallFailure { call, attempt, failure });
    };
    lose("speaker", Some(AttemptCost { usage: Some(usage), cost_microusd: Some(7) }));
    lose("expert", Some(AttemptCost::default()));
    let ledger = &stage.session().ledger;
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
        "nobody knows how much"
    );
    assert_eq!(
        (ledger.total.exact_cost_microusd(), ledger.total.cost_microusd, ledger.total.failed_attempts),
        (None, 7, 2)
    );
}
