//! What every reaction of the flow looks at: the state, how the session is set, and the domain.

use segue_core::event::{CallOpened, CallWish};
use segue_core::flow::{Step, View};
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::domain::Domain;
use super::facts::Fact;
use super::settings::Settings;
use super::spec::{ACT, ASK_GO, ASK_REPAIR, ASK_RESULT, REPLY};
use super::state::{Memory, Running};
use crate::limits::NODE_REPAIRS_MAX;

/// What a reaction looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Desk<'a> {
    pub view: &'a View<'a, Memory>,
    pub settings: &'a Settings,
    pub domain: &'a Domain,
}

impl<'a> Desk<'a> {
    pub fn memory(&self) -> &'a Memory {
        self.view.state
    }

    /// The flow's own account of the turn that runs, as long as that turn does run.
    pub fn running(&self) -> Option<&'a Running> {
        let turn = self.view.session.turn.as_ref()?.id.0;
        self.memory().running.as_ref().filter(|running| running.turn == turn)
    }

    /// Whether what an event is about belongs to the turn that runs.
    pub fn is_current(&self) -> bool {
        let turn = self.view.session.turn.as_ref().map(|turn| turn.id);
        turn.is_some() && self.view.about.turn == turn
    }

    /// Asks a node again for what could not be used; nothing if it was asked again already.
    pub fn ask_again(&self, call: &CallOpened, complaints: &[String]) -> Option<Vec<Step>> {
        let node = call.role.as_str();
        let asked = self.running()?.repairs.get(node).copied().unwrap_or(0);
        if asked >= NODE_REPAIRS_MAX {
            return None;
        }
        let broken =
            Fact::Broken { node: node.to_owned(), call: call.call, step: None, complaints: complaints.to_vec() };
        let wish = CallWish::new(node, ASK_REPAIR).note(json!({"complaints": complaints}));
        Some(vec![broken.note(), Step::Call(wish)])
    }

    /// How often a node was asked again.
    pub fn repairs(&self, node: &str) -> u32 {
        self.running().and_then(|running| running.repairs.get(node)).copied().unwrap_or(0)
    }
}

/// A node is asked.
pub(super) fn go(node: &str) -> Step {
    Step::Call(CallWish::new(node, ASK_GO))
}

/// The user is spoken to.
pub(super) fn reply() -> Step {
    go(REPLY)
}

/// Whoever does this step.
pub(super) fn agent(step: u32) -> AgentName {
    AgentName::from(format!("step-{step}"))
}

fn act(step: u32, ask: &str, note: Value) -> Step {
    Step::Call(CallWish::new(ACT, ask).by(&agent(step)).note(note))
}

/// A step is begun.
pub(super) fn act_go(step: u32) -> Step {
    act(step, ASK_GO, json!({"step": step}))
}

/// A step goes on with what it asked for.
pub(super) fn act_result(step: u32, mut note: Value) -> Step {
    note["step"] = json!(step);
    act(step, ASK_RESULT, note)
}

/// A step is asked again for what could not be used.
pub(super) fn act_repair(step: u32, complaints: &[String]) -> Step {
    act(step, ASK_REPAIR, json!({"step": step, "complaints": complaints}))
}
