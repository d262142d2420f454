//! Decisions depend only on their arguments and change nothing.

use segue_core::body::BodyId;
use segue_core::decide::{DecideError, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::ModelReply;
use segue_core::scope::Scope;
use segue_core::tool::ToolResult;
use segue_testkit::{ClosureFlow, InMemoryTexts, SessionHarness};
use serde_json::json;

use super::{message, outcomes};

/// A flow that decides by the text of an answer: it calls the role that the answer names.
fn flow_by_answer_text() -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role())
        .with_role(ClosureFlow::test_role("worker", Scope::Fresh));
    SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let turn = view.session.current_turn.as_ref().expect("it has begun");
            vec![FlowStep::Call(CallRequest {
                metadata: json!("go"),
                ..CallRequest::new(&view.read_text(turn.messages[0].text), "note")
            })]
        }
        Event::CallAnswered(_) => {
            let turn = view.session.current_turn.as_ref().expect("it runs");
            let said = view.read_text(turn.messages[0].text);
            // If a missing text misled this flow, it would never stop.
            match &*said {
                "" => vec![FlowStep::RecordFact { kind: "lost".into(), value: json!(null) }],
                _ => vec![FlowStep::EndTurn(TurnOutcome::Done)],
            }
        }
        Event::FlowFactRecorded { .. } => vec![FlowStep::RecordFact { kind: "lost".into(), value: json!(null) }],
        _ => Vec::new(),
    }))
}

fn answer(harness: &SessionHarness, role: &str) -> SessionInput {
    let (call, attempt) = harness.oldest_open_call(role);
    SessionInput::Answer { call, attempt, reply: ModelReply::default(), cost_microusd: None, duration_ms: 1 }
}

#[test]
fn the_same_arguments_give_the_same_decision() {
    let harness = flow_by_answer_text();
    let shelf = InMemoryTexts::default();
    let decide = || harness.decide(message("worker"), &shelf).expect("its own text is enough");
    let (one, other) = (decide(), decide());
    assert_eq!((one.events, one.bodies), (other.events, other.bodies));
    assert_eq!(one.state.session, other.state.session);
}

#[test]
fn missing_texts_are_requested_by_id_and_then_suffice() {
    let mut harness = flow_by_answer_text();
    harness.send_message("worker");
    let input = answer(&harness, "worker");
    let mut shelf = InMemoryTexts::default();
    let asked = harness.decide(input.clone(), &shelf).expect_err("the flow reads the message again");
    assert_eq!(
        asked,
        DecideError::MissingTexts(vec![BodyId::hash_text("worker")]),
        "even where the flow went astray without it"
    );
    shelf.copy_texts(&[BodyId::hash_text("worker")], harness.texts());
    let decision = harness.decide(input, &shelf).expect("now it is there");
    assert!(matches!(decision.events.last().map(|last| &last.event), Some(Event::TurnEnded { .. })));
    assert!(decision.events.len() < SESSION_LIMITS.steps_per_input_max);
}

#[test]
fn a_refused_input_changes_nothing() {
    let mut harness = flow_by_answer_text();
    harness.send_message("worker");
    let before = harness.session().clone();
    for input in [
        message(""),
        SessionInput::Operator(OperatorCommand::Resolve {
            call: segue_core::ids::CallId(1),
            resolution: segue_core::decide::UnknownCallOutcomeResolution::Fail,
        }),
        SessionInput::Operator(OperatorCommand::Forget { role: "nobody".into(), agent: None, peer: None }),
        SessionInput::ToolResult { run: segue_core::ids::ToolRunId(1), result: ToolResult::default() },
    ] {
        assert!(harness.try_input(input).is_err());
        assert_eq!(harness.session(), &before);
    }
    let given = answer(&harness, "worker");
    harness.apply_input(given);
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn bodies_are_returned_once_and_only_if_new() {
    let harness = flow_by_answer_text();
    let decision = harness.decide(message("worker"), &InMemoryTexts::default()).expect("its own text is enough");
    let mut ids: Vec<BodyId> = decision.bodies.iter().map(|body| body.id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
    assert!(decision.bodies.iter().any(|body| &*body.text == "worker"));
}

#[test]
fn input_without_effect_records_no_event() {
    let mut harness = flow_by_answer_text();
    let before = harness.journal().len();
    harness.apply_input(SessionInput::Tick).apply_input(SessionInput::Recovered);
    harness.run_command(OperatorCommand::Forget { role: "speaker".into(), agent: None, peer: None });
    assert_eq!(harness.journal().len(), before);
}
