//! A flow with five nodes per turn, no lasting threads, and three layers of context.

use segue_core::context::{
    FragmentContentKind, FragmentOverflowPolicy, FragmentSource, FragmentSpec, RenderedFragment,
};
use segue_core::event::{CallRequest, Event, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, RoleSpec};
use segue_core::ids::FragmentName;
use segue_core::prompt::ModelOutputFormat;
use segue_core::scope::Scope;
use segue_core::signal::find_json_where;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction_fragment, latest_user_message, message_fragment, reply_step, template_text};

/// A flow with five nodes per turn.
#[derive(Debug)]
pub struct MiniFiveNodeFlow {
    spec: FlowSpec,
}

/// The three layers: known entities, the conversation, and decisions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MiniFiveNodeState {
    entities: Vec<String>,
    conversation: Vec<String>,
    reasoning: Vec<String>,
    steps_left: u32,
}

impl MiniFiveNodeFlow {
    #[must_use]
    pub fn new() -> Self {
        let entities = || {
            FragmentSpec::changing("entities", FragmentContentKind::Entities)
                .with_budget(4, FragmentOverflowPolicy::KeepEnd)
        };
        let conversation = || FragmentSpec::changing("conversation", FragmentContentKind::Conversation);
        let reasoning = || {
            FragmentSpec::changing("reasoning", FragmentContentKind::Reasoning)
                .with_budget(8, FragmentOverflowPolicy::LeaveOut)
        };
        let node = |name: &str| RoleSpec::new(name, Scope::Fresh).with_opening_fragment(instruction_fragment());
        let mut think = node("think").with_ask("go", [entities(), reasoning(), message_fragment()]);
        think.output = ModelOutputFormat::Json(json!({"type": "object", "required": ["steps"]}));
        let spec = FlowSpec::new("mini-nodes", "five nodes a turn")
            .with_role(node("understand").with_ask("go", [entities(), conversation(), message_fragment()]))
            .with_role(think)
            .with_role(node("act").with_ask("go", [entities()]))
            .with_role(node("reply").with_ask("go", [conversation(), message_fragment()]))
            .with_role(node("summarize").with_ask("go", [conversation(), reasoning()]));
        Self { spec }
    }
}

fn record_fact(kind: &str, value: impl Serialize) -> FlowStep {
    FlowStep::RecordFact { kind: kind.into(), value: json!(value) }
}

fn call_node(role: &str) -> FlowStep {
    FlowStep::Call(CallRequest::new(role, "go"))
}

impl Default for MiniFiveNodeFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for MiniFiveNodeFlow {
    type State = MiniFiveNodeState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut MiniFiveNodeState, event: &RecordedEvent) {
        let Event::FlowFactRecorded { kind, value } = &event.event else { return };
        let text = value.as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "entity" => state.entities.push(text),
            "said" => state.conversation.push(text),
            "decided" => state.reasoning.push(text),
            "steps" => state.steps_left = value.as_u64().unwrap_or_default() as u32,
            _ => state.steps_left = state.steps_left.saturating_sub(1),
        }
    }

    fn react(&self, view: &FlowContext<'_, MiniFiveNodeState>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![call_node("understand")],
            (Event::CallAnswered(answered), Some(call)) => {
                let text = view.read_text(answered.text);
                match call.role.as_str() {
                    "understand" => vec![call_node("think")],
                    "think" => {
                        let plan = find_json_where(&text, |_| true).value.unwrap_or_default();
                        let steps = plan["steps"].as_u64().unwrap_or(0);
                        vec![record_fact("steps", steps), call_node(if steps == 0 { "reply" } else { "act" })]
                    }
                    "act" => {
                        let next = if view.state.steps_left > 1 { "act" } else { "reply" };
                        vec![record_fact("entity", &*text), record_fact("done", 1), call_node(next)]
                    }
                    "reply" => {
                        vec![record_fact("said", &*text), reply_step(&*text, &call.role), call_node("summarize")]
                    }
                    _ => vec![record_fact("decided", &*text), FlowStep::EndTurn(TurnOutcome::Done)],
                }
            }
            // The user does not see the summary, so its failure does not fail the turn.
            (Event::CallFailed { next: RetryDecision::GiveUp, .. }, Some(call)) if call.role == "summarize" => {
                vec![FlowStep::EndTurn(TurnOutcome::Done)]
            }
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, _) => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, MiniFiveNodeState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let layer = |items: &[String]| match items {
            [] => RenderedFragment::Omitted("nothing yet".into()),
            items => {
                RenderedFragment::New { text: items.join(" "), source: FragmentSource::State, why: "its layer".into() }
            }
        };
        match name.as_str() {
            "instruction" => template_text(format!("be {}", request.call_request.role)),
            "entities" => layer(&view.state.entities),
            "conversation" => layer(&view.state.conversation),
            "reasoning" => layer(&view.state.reasoning),
            _ => latest_user_message(view),
        }
    }
}
