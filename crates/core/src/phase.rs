//! Phase graphs as data: phases, edges with guards, gates and limits. The submodules implement the state machine over a
//! graph. Everything is pure.
//!
//! This module decides whether a transition is allowed. It knows no session, call or event: the caller records rulings,
//! passes the time, and evaluates the named conditions.

mod dead_end;
pub(crate) mod diagram;
pub(crate) mod guard;
pub(crate) mod limit;
pub(crate) mod ruling;
pub(crate) mod state;
pub(crate) mod user_override;
pub(crate) mod validation;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use self::guard::{PhaseGuardInputs, UnmetGuardRequirement};
use crate::ids::{AgentName, ModelName, PhaseGraphName, PhaseName, RoleName, ToolName};

pub use self::{
    diagram::render_mermaid,
    guard::{Guard, PhaseConditionVerdict, PhaseTransitionProposer, PhaseTransitionProposerKind},
    ruling::PhaseRefusal,
    state::{
        ExpiredPhaseLimit, OneTimePhaseGrant, PhaseGraphState, PhaseTransition, PhaseTransitionCause,
        PhaseTransitionNote, SkippedRequirements,
    },
};

/// The phases of a conversation and the allowed transitions between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseGraph {
    /// The name within the flow.
    pub name: PhaseGraphName,
    pub owner_kind: PhaseGraphOwnerKind,
    pub start: PhaseName,
    /// The phases, in the order in which they are shown.
    pub phases: Vec<PhaseSpec>,
    /// The allowed transitions. An edge from a phase to itself allows the phase to be entered again.
    pub edges: Vec<PhaseEdge>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<PhaseEntryGate>,
}

/// What has its own state in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseGraphOwnerKind {
    /// The whole session.
    Session,
    /// Each role.
    Role,
    /// Each agent of a role.
    Agent,
}

/// A phase and the rules that apply in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// The name within the graph.
    pub name: PhaseName,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// When to enter the phase. For models; not enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entry: Vec<String>,
    /// What is done in the phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities: Vec<String>,
    /// When the phase is finished. For models; not enforced. Enforced conditions are guards of edges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    /// What must not be done in the phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// The agents that work in the phase; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentName>,
    #[serde(default, skip_serializing_if = "PhaseAllowedTools::is_all_tools_allowed")]
    pub tools: PhaseAllowedTools,
    /// The model for all roles that are not in `models`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The models of single roles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<RoleName, ModelName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PhaseLimit>,
    #[serde(default, skip_serializing_if = "PhaseKind::is_work_phase")]
    pub kind: PhaseKind,
}

impl PhaseSpec {
    /// Creates a work phase with only a name.
    #[must_use]
    pub fn new(name: impl Into<PhaseName>) -> Self {
        Self {
            name: name.into(),
            purpose: String::new(),
            entry: Vec::new(),
            activities: Vec::new(),
            criteria: Vec::new(),
            constraints: Vec::new(),
            agents: Vec::new(),
            tools: PhaseAllowedTools::All,
            model: None,
            models: BTreeMap::new(),
            limit: None,
            kind: PhaseKind::Work,
        }
    }

    /// Returns true if no phase can follow.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        self.kind != PhaseKind::Work
    }

    /// Returns the model that the phase prescribes for `role`.
    #[must_use]
    pub(crate) fn model_for_role(&self, role: &RoleName) -> Option<&ModelName> {
        self.models.get(role).or(self.model.as_ref())
    }
}

/// Whether a phase is terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// An ordinary phase.
    #[default]
    Work,
    /// The end after success. Every open gate blocks it.
    End,
    /// The end after failure. Only gates that list it block it.
    Failure,
}

impl PhaseKind {
    fn is_work_phase(&self) -> bool {
        *self == Self::Work
    }
}

/// The tools that may be used in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseAllowedTools {
    /// All tools of the role.
    #[default]
    All,
    /// Only these tools of the role.
    Only(BTreeSet<ToolName>),
}

impl PhaseAllowedTools {
    #[must_use]
    pub(crate) fn allows(&self, tool: &ToolName) -> bool {
        match self {
            Self::All => true,
            Self::Only(tools) => tools.contains(tool),
        }
    }

    fn is_all_tools_allowed(&self) -> bool {
        *self == Self::All
    }
}

/// The maximum length of a visit and the phase that follows. The exit needs no edge. An exit by a limit satisfies no
/// gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseLimit {
    /// The maximum number of finished turns of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u32>,
    /// The maximum number of rounds. The flow decides what a round is and counts it with
    /// [`FlowStep::CountRound`](crate::flow::FlowStep::CountRound), also during a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_max: Option<u32>,
    /// The maximum number of milliseconds, also during a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms_max: Option<u64>,
    /// True if `ms_max` includes the time in which the session waits for a person or another session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub includes_waiting: bool,
    /// The phase to enter when the limit is reached.
    pub exit: PhaseName,
}

impl PhaseLimit {
    /// Creates a limit that leads to `exit`. It is not valid before one of its maximums is set.
    #[must_use]
    pub fn new(exit: impl Into<PhaseName>) -> Self {
        Self { turns_max: None, rounds_max: None, ms_max: None, includes_waiting: false, exit: exit.into() }
    }
}

/// An allowed transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEdge {
    pub from: PhaseName,
    pub to: PhaseName,
    #[serde(default, skip_serializing_if = "Guard::is_always_met")]
    pub guard: Guard,
}

/// An obligation: after `opened_by` was entered, the blocked phases cannot be entered before `satisfied_by` was left
/// with evidence, by any detour, unless the user grants a skip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEntryGate {
    /// The name within the graph.
    pub name: String,
    /// Entering this phase opens the gate.
    pub opened_by: PhaseName,
    /// Leaving this phase closes the gate, if the condition holds then. An exit by a limit does not.
    pub satisfied_by: PhaseName,
    /// The evidence: a named condition, which the flow evaluates when `satisfied_by` is left. Without a condition,
    /// leaving the phase is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The blocked phases, in addition to every phase of kind [`PhaseKind::End`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blocks: BTreeSet<PhaseName>,
}

impl PhaseEntryGate {
    /// Returns what is missing for leaving `satisfied_by` with evidence; `None` if nothing is.
    #[must_use]
    pub(crate) fn unmet_condition(&self, inputs: &PhaseGuardInputs) -> Option<UnmetGuardRequirement> {
        self.condition.as_ref().and_then(|name| inputs.unmet_condition(name))
    }

    /// Returns true if the gate blocks `to` while it is open. It never blocks the phase that satisfies it.
    #[must_use]
    pub(crate) fn blocks_phase(&self, to: &PhaseSpec) -> bool {
        to.name != self.satisfied_by && (to.kind == PhaseKind::End || self.blocks.contains(&to.name))
    }
}

impl PhaseGraph {
    /// Returns the phase with this name.
    #[must_use]
    pub(crate) fn find_phase(&self, name: &PhaseName) -> Option<&PhaseSpec> {
        self.phases.iter().find(|phase| phase.name == *name)
    }

    /// Returns the edges from a phase, in the graph's order.
    pub(crate) fn edges_from<'g>(&'g self, from: &PhaseName) -> impl Iterator<Item = &'g PhaseEdge> {
        self.edges.iter().filter(move |edge| edge.from == *from)
    }

    /// Returns the names of the conditions that the flow must evaluate to leave a phase: those in the guards of its
    /// edges, and those of the gates that it satisfies.
    #[must_use]
    pub(crate) fn condition_names_from(&self, from: &PhaseName) -> BTreeSet<&str> {
        let gates = self.gates.iter().filter(|gate| gate.satisfied_by == *from);
        let mut names: BTreeSet<&str> = gates.filter_map(|gate| gate.condition.as_deref()).collect();
        for edge in self.edges_from(from) {
            edge.guard.collect_condition_names(&mut names);
        }
        names
    }

    /// Returns the open gates that are satisfied if the current phase is left now by a proposal.
    #[must_use]
    pub(crate) fn gates_satisfied_on_leaving(
        &self,
        state: &PhaseGraphState,
        inputs: &PhaseGuardInputs,
    ) -> Vec<&PhaseEntryGate> {
        let is_left =
            |gate: &&PhaseEntryGate| state.open_gates.contains(&gate.name) && gate.satisfied_by == state.current;
        self.gates.iter().filter(is_left).filter(|gate| gate.unmet_condition(inputs).is_none()).collect()
    }
}

/// Formats names as `` `a`, `b` ``.
fn format_quoted_names<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
