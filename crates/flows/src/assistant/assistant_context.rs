//! The arguments that every reaction of the flow needs (state, settings, domain), and helpers to request model calls.

use segue_core::event::{CallOpened, CallRequest};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::answer_schema::{self, NamesAllowedInAnswer, StepReadWriteProgress};
use super::domain::DomainSchema;
use super::facts::AssistantFact;
use super::settings::AssistantSettings;
use super::spec::{ACT_ROLE, ASK_REPAIR, ASK_RESULT, ASK_START, THINK_ROLE, UNDERSTAND_ROLE};
use super::state::{AssistantState, AssistantTurnProgress};
use crate::limits::NODE_REPAIRS_MAX;

/// The session's view, settings and domain.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssistantSessionContext<'a> {
    pub(super) view: &'a FlowContext<'a, AssistantState>,
    pub(super) settings: &'a AssistantSettings,
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
    pub(super) fn is_event_of_current_turn(&self) -> bool {
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
        let request = CallRequest {
            metadata: json!({"complaints": complaints}),
            output_schema: self.node_schema(node),
            ..CallRequest::new(node, ASK_REPAIR)
        };
        Some(vec![rejected.into_step(), FlowStep::Call(request)])
    }

    /// Returns how often a node had to correct its answer in this turn.
    pub(super) fn repair_count(&self, node: &str) -> u32 {
        self.current_turn().and_then(|running| running.repairs.get(node)).copied().unwrap_or(0)
    }

    /// Returns the step that calls a node.
    pub(super) fn call_node(&self, node: &str) -> FlowStep {
        FlowStep::Call(CallRequest { output_schema: self.node_schema(node), ..CallRequest::new(node, ASK_START) })
    }

    /// Returns the schema of a node's answer; null for plain text.
    fn node_schema(&self, node: &str) -> Value {
        match node {
            UNDERSTAND_ROLE => answer_schema::understand_schema(&NamesAllowedInAnswer::from_session(self)),
            THINK_ROLE => answer_schema::think_schema(&NamesAllowedInAnswer::from_session(self)),
            _ => Value::Null,
        }
    }

    /// Returns the first call of Act for a step. `received` are the references of records that arrived just now.
    pub(super) fn start_act_call(&self, step: u32, received: &[String]) -> FlowStep {
        self.call_act_node(step, ASK_START, json!({"step": step}), received)
    }

    /// Returns the call that gives Act the result it asked for. `received` are the references of the result's records.
    pub(super) fn continue_act_call(&self, step: u32, mut metadata: Value, received: &[String]) -> FlowStep {
        metadata["step"] = json!(step);
        self.call_act_node(step, ASK_RESULT, metadata, received)
    }

    /// Returns the call that asks Act to correct its answer.
    pub(super) fn repair_act_call(&self, step: u32, complaints: &[String]) -> FlowStep {
        self.call_act_node(step, ASK_REPAIR, json!({"step": step, "complaints": complaints}), &[])
    }

    fn call_act_node(&self, step: u32, ask: &str, metadata: Value, received: &[String]) -> FlowStep {
        let running = self.current_turn();
        let planned = running.and_then(|running| running.planned_step(step));
        let progress = running.and_then(|running| running.steps.get(&step));
        // The result that the call shows is not part of the state yet.
        let done = StepReadWriteProgress {
            is_read: progress.is_some_and(|state| state.reads > 0)
                || metadata.get("already_loaded").is_some()
                || metadata.get("run").is_some(),
            is_written: progress.is_some_and(|state| state.write_count > 0) || metadata.get("written").is_some(),
        };
        let schema = planned.map(|planned| answer_schema::act_schema(self, planned, received, done));
        FlowStep::Call(CallRequest {
            agent: Some(step_agent_name(step)),
            metadata,
            output_schema: schema.unwrap_or_default(),
            ..CallRequest::new(ACT_ROLE, ask)
        })
    }
}

/// Returns the agent name under which a step runs.
pub(super) fn step_agent_name(step: u32) -> AgentName {
    AgentName::from(format!("step-{step}"))
}
