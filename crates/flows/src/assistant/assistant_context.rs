//! The arguments that every reaction of the flow needs (state, settings, domain), and helpers to request model calls.

use segue_core::event::{CallOpened, CallRequest};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::domain::DomainSchema;
use super::facts::AssistantFact;
use super::settings::Settings;
use super::spec::{ACT_ROLE, ASK_REPAIR, ASK_RESULT, ASK_START, REPLY_ROLE};
use super::state::{AssistantState, AssistantTurnProgress};
use crate::limits::NODE_REPAIRS_MAX;

/// The session's view, settings and domain.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssistantSessionContext<'a> {
    pub(super) view: &'a FlowContext<'a, AssistantState>,
    pub(super) settings: &'a Settings,
    pub(super) domain: &'a DomainSchema,
}

impl<'a> AssistantSessionContext<'a> {
    pub(super) fn state(&self) -> &'a AssistantState {
        self.view.state
    }

    /// Returns the progress of the current turn, or `None` if no turn is running.
    pub(super) fn current_turn(&self) -> Option<&'a AssistantTurnProgress> {
        let turn = self.view.session.current_turn.as_ref()?.id.0;
        self.state().current_turn.as_ref().filter(|running| running.turn == turn)
    }

    /// Returns whether the event being handled belongs to the current turn.
    pub(super) fn is_about_current_turn(&self) -> bool {
        let turn = self.view.session.current_turn.as_ref().map(|turn| turn.id);
        turn.is_some() && self.view.subject.turn == turn
    }

    /// Asks a node to correct its answer. Returns `None` if it was asked as often as allowed.
    pub(super) fn request_repair(&self, call: &CallOpened, complaints: &[String]) -> Option<Vec<FlowStep>> {
        let node = call.role.as_str();
        let repairs = self.current_turn()?.repairs.get(node).copied().unwrap_or(0);
        if repairs >= NODE_REPAIRS_MAX {
            return None;
        }
        let rejected = AssistantFact::AnswerRejected {
            node: node.to_owned(),
            call: call.call,
            step: None,
            complaints: complaints.to_vec(),
        };
        let request = CallRequest { metadata: json!({"complaints": complaints}), ..CallRequest::new(node, ASK_REPAIR) };
        Some(vec![rejected.into_step(), FlowStep::Call(request)])
    }

    /// Returns how often a node had to correct its answer in this turn.
    pub(super) fn repair_count(&self, node: &str) -> u32 {
        self.current_turn().and_then(|running| running.repairs.get(node)).copied().unwrap_or(0)
    }
}

/// Returns the step that calls a node.
pub(super) fn call_node(node: &str) -> FlowStep {
    FlowStep::Call(CallRequest::new(node, ASK_START))
}

/// Returns the step that calls Reply.
pub(super) fn call_reply_node() -> FlowStep {
    call_node(REPLY_ROLE)
}

/// Returns the agent name under which a step runs.
pub(super) fn step_agent_name(step: u32) -> AgentName {
    AgentName::from(format!("step-{step}"))
}

fn call_act_node(step: u32, ask: &str, metadata: Value) -> FlowStep {
    FlowStep::Call(CallRequest { agent: Some(step_agent_name(step)), metadata, ..CallRequest::new(ACT_ROLE, ask) })
}

/// Returns the first call of Act for a step.
pub(super) fn start_act_call(step: u32) -> FlowStep {
    call_act_node(step, ASK_START, json!({"step": step}))
}

/// Returns the call that gives Act the result it asked for.
pub(super) fn continue_act_call(step: u32, mut metadata: Value) -> FlowStep {
    metadata["step"] = json!(step);
    call_act_node(step, ASK_RESULT, metadata)
}

/// Returns the call that asks Act to correct its answer.
pub(super) fn repair_act_call(step: u32, complaints: &[String]) -> FlowStep {
    call_act_node(step, ASK_REPAIR, json!({"step": step, "complaints": complaints}))
}
