//! A flow with a fan-out to three experts, a fresh mapper, a speaker whose thread ends with its phase, and a handover
//! between two phases.

use std::collections::BTreeMap;

use segue_core::body::TextRef;
use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{
    CallRequest, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent, RetryDecision, TurnOutcome,
};
use segue_core::flow::{Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, RoleSpec};
use segue_core::handover::{
    HandoverAcceptanceDecision, HandoverDocument, HandoverFieldPresence, HandoverFieldSpec, HandoverFieldType,
    HandoverFieldValue, HandoverSpec, decide_handover,
};
use segue_core::ids::{CallId, FragmentName, ModelName};
use segue_core::phase::{
    Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseSpec, PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::signal::{BlockFieldKind, BlockFieldSchema, BlockSet, parse_reply};
use serde::{Deserialize, Serialize};

use super::{instruction_fragment, latest_user_message, message_fragment, reply_step, template_text};

/// A flow in which several experts answer and one role replies.
#[derive(Debug)]
pub struct MiniConciergeFlow {
    spec: FlowSpec,
    blocks: BlockSet,
}

/// The experts' answers of this turn, and the map made from them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MiniConciergeState {
    answers: BTreeMap<ModelName, TextRef>,
    map: Option<TextRef>,
}

const EXPERT_MODELS: [&str; 3] = ["ant", "bee", "cat"];

impl MiniConciergeFlow {
    #[must_use]
    pub fn new() -> Self {
        let graph = PhaseGraph {
            name: "talk".into(),
            owner_kind: PhaseGraphOwnerKind::Role,
            start: "starter".into(),
            phases: vec![PhaseSpec::new("starter"), PhaseSpec::new("explorer")],
            edges: vec![
                PhaseEdge { from: "starter".into(), to: "explorer".into(), guard: Guard::Handover("intent".into()) },
                PhaseEdge { from: "explorer".into(), to: "starter".into(), guard: Guard::Always },
            ],
            gates: Vec::new(),
        };
        let goal = HandoverFieldSpec {
            name: "goal".into(),
            field_type: HandoverFieldType::Text,
            presence: HandoverFieldPresence::Required,
        };
        let intent = HandoverSpec { kind: "intent".into(), fields: vec![goal], repairs_max: 1 };
        let blocks = BlockSet::default()
            .with_block("HANDOVER", BlockFieldSchema::default().with_key("goal", BlockFieldKind::Text));
        let expert = RoleSpec::new("expert", Scope::per_model())
            .with_opening_fragment(instruction_fragment())
            .with_ask("question", [message_fragment()]);
        let sources = FragmentSpec::changing("sources", FragmentContentKind::Conversation);
        let mapper = RoleSpec::new("mapper", Scope::Fresh)
            .with_opening_fragment(instruction_fragment())
            .with_ask("map", [sources]);
        let speaker = RoleSpec::new("speaker", Scope::per_phase().ended_by(ThreadEndTrigger::Model))
            .with_phase_graph("talk")
            .with_opening_fragment(instruction_fragment())
            .with_opening_fragment(FragmentSpec::changing("brief", FragmentContentKind::Handover))
            .with_ask("reply", [message_fragment()])
            .with_ask("repair", [FragmentSpec::changing("repair", FragmentContentKind::Task)])
            .visible_to_user(blocks.clone());
        let spec = FlowSpec::new("mini-concierge", "many answer, one speaks");
        Self {
            spec: spec.with_graph(graph).with_handover(intent).with_role(expert).with_role(mapper).with_role(speaker),
            blocks,
        }
    }

    fn handle_speaker_answer(
        &self,
        view: &FlowContext<'_, MiniConciergeState>,
        call: CallId,
        text: TextRef,
    ) -> Vec<FlowStep> {
        let parsed = parse_reply(&view.read_text(text), &self.blocks, &[""; 0]);
        let found = parsed.blocks.first().map(|block| {
            let goal = block.fields.text("goal").unwrap_or_default().to_owned();
            HandoverDocument::from([("goal".to_owned(), HandoverFieldValue::Text(goal))])
        });
        let mut steps = Vec::new();
        let repairs_requested = view.session.handover_repairs.get("intent").copied().unwrap_or_default();
        if repairs_requested == 0 {
            steps.push(reply_step(parsed.visible_text.trim_end(), &"speaker".into()));
        }
        let phase = PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Role("speaker".into()) };
        let in_starter = view.session.phase_graphs.get(&phase).is_some_and(|status| status.state.current == "starter");
        if !in_starter || (found.is_none() && view.session.last_ids.turn.0 < 2) {
            steps.push(FlowStep::EndTurn(TurnOutcome::Done));
            return steps;
        }
        let (document, provenance) = match decide_handover(&self.spec.handovers["intent"], found, repairs_requested) {
            HandoverAcceptanceDecision::RequestRepair { .. } => {
                steps.push(FlowStep::RequestHandover("intent".into()));
                steps.push(FlowStep::Call(CallRequest::new("speaker", "repair")));
                return steps;
            }
            HandoverAcceptanceDecision::Accept(document, provenance) => (document, provenance),
            HandoverAcceptanceDecision::Synthesize(_) => {
                let goal = HandoverFieldValue::Text("as discussed".into());
                (HandoverDocument::from([("goal".to_owned(), goal)]), segue_core::handover::HandoverProvenance::Built)
            }
        };
        steps.push(FlowStep::MakeHandover { kind: "intent".into(), document, calls: vec![call], provenance });
        steps.push(FlowStep::ProposePhase {
            phase,
            to: "explorer".into(),
            by: PhaseTransitionProposer::Role("speaker".into()),
            note: PhaseTransitionNote::default(),
        });
        steps.push(FlowStep::EndTurn(TurnOutcome::Done));
        steps
    }
}

impl Default for MiniConciergeFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for MiniConciergeFlow {
    type State = MiniConciergeState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut MiniConciergeState, event: &RecordedEvent) {
        match &event.event {
            Event::TurnStarted { .. } => *state = MiniConciergeState::default(),
            Event::FlowFactRecorded { kind, value } if kind == "answer" => {
                let (model, text) = serde_json::from_value(value.clone()).expect("written by this flow");
                state.answers.insert(model, text);
            }
            Event::FlowFactRecorded { kind, value } if kind == "map" => {
                state.map = serde_json::from_value(value.clone()).ok()
            }
            _ => {}
        }
    }

    fn react(&self, view: &FlowContext<'_, MiniConciergeState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let experts_open = view.session.open_calls.values().any(|open| open.opened.role == "expert");
        let map_or_speak = || match (experts_open, view.state.answers.len()) {
            (true, _) => Vec::new(),
            (false, 0) => vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: "no expert answered".into() })],
            (false, _) => vec![FlowStep::Call(CallRequest::new("mapper", "map"))],
        };
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { turn, .. }, _) if turn.0 == 1 => EXPERT_MODELS
                .map(|model| {
                    FlowStep::Call(CallRequest { model: Some(model.into()), ..CallRequest::new("expert", "question") })
                })
                .into(),
            (Event::TurnStarted { .. }, _) => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                "expert" => {
                    vec![FlowStep::RecordFact {
                        kind: "answer".into(),
                        value: serde_json::json!([call.model, answered.text]),
                    }]
                }
                "mapper" => vec![
                    FlowStep::RecordFact { kind: "map".into(), value: serde_json::json!(answered.text) },
                    FlowStep::Call(CallRequest::new("speaker", "reply")),
                ],
                _ => self.handle_speaker_answer(view, call.call, answered.text),
            },
            (Event::FlowFactRecorded { kind, .. }, _) if kind == "answer" => map_or_speak(),
            (Event::CallFailed { next: RetryDecision::GiveUp, .. }, Some(call)) if call.role == "expert" => {
                map_or_speak()
            }
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, _) => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, MiniConciergeState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        match name.as_str() {
            "instruction" => template_text(format!("be the {}", request.call_request.role)),
            "sources" => template_text(
                view.state
                    .answers
                    .values()
                    .map(|text| view.read_text(*text).to_string())
                    .collect::<Vec<_>>()
                    .join(" | "),
            ),
            "brief" => match (view.session.latest_handover("intent"), view.state.map) {
                (Some(handover), _) => {
                    template_text(format!("goal: {}", handover.text_field("goal").unwrap_or("none")))
                }
                (None, Some(map)) => {
                    RenderedFragment::Stored { text: map, source: FragmentSource::State, why: "the map".into() }
                }
                (None, None) => RenderedFragment::Omitted("nothing was mapped".into()),
            },
            "repair" => template_text("write the handover"),
            _ => latest_user_message(view),
        }
    }
}
