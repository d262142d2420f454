//! What every reaction of the flow looks at: the state, how the session is set, and the domain.

use segue_core::event::{CallOpened, CallRequest};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::domain::DomainSchema;
use super::facts::Fact;
use super::settings::Settings;
use super::spec::{ACT_ROLE, ASK_REPAIR, ASK_RESULT, ASK_START, REPLY_ROLE};
use super::state::{AssistantState, TurnProgress};
use crate::limits::NODE_REPAIRS_MAX;

/// What a reaction looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssistantContext<'a> {
    pub view: &'a FlowContext<'a, AssistantState>,
    pub settings: &'a Settings,
    pub domain: &'a DomainSchema,
}

impl<'a> AssistantContext<'a> {
    pub fn state(&self) -> &'a AssistantState {
        self.view.state
    }

    /// The flow's own account of the turn that runs, as long as that turn does run.
    pub fn current_turn(&self) -> Option<&'a TurnProgress> {
        let turn = self.view.session.current_turn.as_ref()?.id.0;
        self.state().current_turn.as_ref().filter(|running| running.turn == turn)
    }

    /// Whether what an event is about belongs to the turn that runs.
    pub fn is_about_current_turn(&self) -> bool {
        let turn = self.view.session.current_turn.as_ref().map(|turn| turn.id);
        turn.is_some() && self.view.subject.turn == turn
    }

    /// Asks a node again for what could not be used; nothing if it was asked again already.
    pub fn request_repair(&self, call: &CallOpened, complaints: &[String]) -> Option<Vec<FlowStep>> {
        let node = call.role.as_str();
        let asked = self.current_turn()?.repairs.get(node).copied().unwrap_or(0);
        if asked >= NODE_REPAIRS_MAX {
            return None;
        }
        let broken = Fact::AnswerRejected {
            node: node.to_owned(),
            call: call.call,
            step: None,
            complaints: complaints.to_vec(),
        };
        let wish = CallRequest::new(node, ASK_REPAIR).with_metadata(json!({"complaints": complaints}));
        Some(vec![broken.into_step(), FlowStep::Call(wish)])
    }

    /// How often a node was asked again.
    pub fn repair_count(&self, node: &str) -> u32 {
        self.current_turn().and_then(|running| running.repairs.get(node)).copied().unwrap_or(0)
    }
}

/// A node is asked.
pub(super) fn call_node(node: &str) -> FlowStep {
    FlowStep::Call(CallRequest::new(node, ASK_START))
}

/// The user is spoken to.
pub(super) fn call_reply_node() -> FlowStep {
    call_node(REPLY_ROLE)
}

/// Whoever does this step.
pub(super) fn step_agent_name(step: u32) -> AgentName {
    AgentName::from(format!("step-{step}"))
}

fn call_act_node(step: u32, ask: &str, note: Value) -> FlowStep {
    FlowStep::Call(CallRequest::new(ACT_ROLE, ask).with_agent(&step_agent_name(step)).with_metadata(note))
}

/// A step is begun.
pub(super) fn start_act_call(step: u32) -> FlowStep {
    call_act_node(step, ASK_START, json!({"step": step}))
}

/// A step goes on with what it asked for.
pub(super) fn continue_act_call(step: u32, mut note: Value) -> FlowStep {
    note["step"] = json!(step);
    call_act_node(step, ASK_RESULT, note)
}

/// A step is asked again for what could not be used.
pub(super) fn repair_act_call(step: u32, complaints: &[String]) -> FlowStep {
    call_act_node(step, ASK_REPAIR, json!({"step": step, "complaints": complaints}))
}
