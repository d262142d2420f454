//! Phase graphs as data: which phases there are, which edges lead from one to the next and under which guard, which gates
//! oblige, which limits run out. The machine over a graph is in the modules below; all of it is pure.
//!
//! This module decides whether a move is legal. It knows no session, call or event: whoever asks records what was ruled,
//! says what time it is, and says which named conditions hold.

mod dead_end;
pub mod diagram;
pub mod duration;
pub mod guard;
pub mod limit;
pub mod ruling;
pub mod state;
pub mod user_override;
pub mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ModelName, PhaseGraphName, PhaseName, RoleName, ToolName};
use guard::Guard;

/// The phases of one kind of conversation, and how they follow one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseGraph {
    /// Its name within the flow.
    pub name: PhaseGraphName,
    /// What has a phase of its own in this graph.
    pub owner_kind: PhaseOwnerKind,
    /// Where every state begins.
    pub start: PhaseName,
    /// In the order people should read them.
    pub phases: Vec<PhaseSpec>,
    /// The ways from phase to phase. An edge from a phase to itself means that it can be entered anew.
    pub edges: Vec<PhaseEdge>,
    /// What may not be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<PhaseGate>,
}

/// What a graph is attached to: each of these keeps a state of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseOwnerKind {
    /// The whole session.
    Session,
    /// One role.
    Role,
    /// Every agent of a role.
    Agent,
}

/// One phase: what it is for and what holds while it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Its name within the graph.
    pub name: PhaseName,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// When to enter it, in words; told, not enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entry: Vec<String>,
    /// What is done in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities: Vec<String>,
    /// When it is finished, in words; told, not enforced. What is enforced stands on the edges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    /// What must not be done in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Who works in it; empty means no one in particular.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentName>,
    /// Which tools are at hand.
    #[serde(default, skip_serializing_if = "AllowedTools::is_all")]
    pub tools: AllowedTools,
    /// The model of this phase, for every role not listed in `models`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The models of single roles in this phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<RoleName, ModelName>,
    /// How long it may last, and where it leads when that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PhaseLimit>,
    /// Whether work goes on in it or it is an end.
    #[serde(default, skip_serializing_if = "PhaseKind::is_work")]
    pub kind: PhaseKind,
}

impl PhaseSpec {
    /// A phase of which nothing is known but its name.
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
            tools: AllowedTools::All,
            model: None,
            models: BTreeMap::new(),
            limit: None,
            kind: PhaseKind::Work,
        }
    }

    /// Whether nothing follows it.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.kind != PhaseKind::Work
    }

    /// The model this phase prescribes for `role`, if it prescribes one.
    #[must_use]
    pub fn model_for_role(&self, role: &RoleName) -> Option<&ModelName> {
        self.models.get(role).or(self.model.as_ref())
    }
}

/// Whether a phase is an end, and of which sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// Work goes on.
    #[default]
    Work,
    /// The end of what was to be done: every open gate bars it, listed or not.
    End,
    /// The end of what could not be done: a gate bars it only if it lists it.
    Failure,
}

impl PhaseKind {
    fn is_work(&self) -> bool {
        *self == Self::Work
    }
}

/// Which tools may be used in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedTools {
    /// All that the role has.
    #[default]
    All,
    /// Of those the role has, only these.
    Only(BTreeSet<ToolName>),
}

impl AllowedTools {
    /// Whether `tool` may be used.
    #[must_use]
    pub fn allows(&self, tool: &ToolName) -> bool {
        match self {
            Self::All => true,
            Self::Only(tools) => tools.contains(tool),
        }
    }

    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// How long one visit may last, and the way out when that is over. The way out is declared here and needs no edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseLimit {
    /// After this many finished turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u32>,
    /// After this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms_max: Option<u64>,
    /// The phase entered then.
    pub exit: PhaseName,
}

/// A way from one phase to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEdge {
    /// Where it begins.
    pub from: PhaseName,
    /// Where it leads.
    pub to: PhaseName,
    /// What must hold to go along it.
    #[serde(default, skip_serializing_if = "Guard::is_always")]
    pub guard: Guard,
}

/// An obligatory successor: once `opened_by` was entered, nothing that the gate bars may be entered before
/// `satisfied_by` was, by whatever detour, unless the user grants a skip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseGate {
    /// Its name within the graph.
    pub name: String,
    /// Entering this phase opens the obligation.
    pub opened_by: PhaseName,
    /// Entering this phase meets it.
    pub satisfied_by: PhaseName,
    /// What it bars, besides every phase of kind [`PhaseKind::End`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blocks: BTreeSet<PhaseName>,
}

impl PhaseGate {
    /// Whether this gate, while open, keeps `to` from being entered. It never bars what satisfies it.
    #[must_use]
    pub fn blocks_phase(&self, to: &PhaseSpec) -> bool {
        to.name != self.satisfied_by && (to.kind == PhaseKind::End || self.blocks.contains(&to.name))
    }
}

impl PhaseGraph {
    /// The phase of that name.
    #[must_use]
    pub fn find_phase(&self, name: &PhaseName) -> Option<&PhaseSpec> {
        self.phases.iter().find(|phase| phase.name == *name)
    }

    /// The edges that begin at `from`, in the graph's order.
    pub fn edges_from<'g>(&'g self, from: &PhaseName) -> impl Iterator<Item = &'g PhaseEdge> {
        self.edges.iter().filter(move |edge| edge.from == *from)
    }

    /// The names of the conditions that guards on the edges from `from` ask about: what a flow has to judge there.
    #[must_use]
    pub fn condition_names_from(&self, from: &PhaseName) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for edge in self.edges_from(from) {
            edge.guard.collect_conditions(&mut names);
        }
        names
    }

    /// Those of the `open` gates that bar `to`.
    #[must_use]
    pub fn gates_blocking(&self, to: &PhaseSpec, open: &BTreeSet<String>) -> Vec<&PhaseGate> {
        self.gates.iter().filter(|gate| open.contains(&gate.name) && gate.blocks_phase(to)).collect()
    }
}

/// Names as an enumeration for people: `` `a`, `b` ``.
fn format_quoted_names<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
