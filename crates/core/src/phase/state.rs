//! Where a graph's owner stands, and the transitions that move it. A transition carries everything it does to the state,
//! so a journal folds to the same state even after the graph was changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::guard::{Proposer, UnmetRequirement};
use super::{PhaseGate, PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::{PhaseName, UnixMillis};

/// Where the owner of a graph stands. History is not kept here; only what the next ruling needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseState {
    /// The phase it is in.
    pub current: PhaseName,
    /// The phase it came from, if it was ever in another.
    pub came_from: Option<PhaseName>,
    /// Counts visits over all phases; the first is 1. Names this stay: no other has the same number.
    pub visit: u32,
    /// When this visit began.
    pub since: UnixMillis,
    /// Turns begun in this visit: 0 on entry, 1 during the phase's first turn.
    pub turns_started: u32,
    /// Turns of this visit that are over.
    pub turns_done: u32,
    /// The gates that were opened and not yet satisfied.
    pub open_gates: BTreeSet<String>,
    /// Skips the user allowed and nobody used yet; at most one for each phase.
    pub grants: Vec<SkipGrant>,
    /// How often each phase was entered.
    pub visit_counts: BTreeMap<PhaseName, u32>,
}

impl PhaseState {
    /// The first visit: the graph's start, entered `at`.
    #[must_use]
    pub fn new(graph: &PhaseGraph, at: UnixMillis) -> Self {
        let opened = graph.gates.iter().filter(|gate| gate.opened_by == graph.start);
        Self {
            current: graph.start.clone(),
            came_from: None,
            visit: 1,
            since: at,
            turns_started: 0,
            turns_done: 0,
            open_gates: opened.map(|gate| gate.name.clone()).collect(),
            grants: Vec::new(),
            visit_counts: BTreeMap::from([(graph.start.clone(), 1)]),
        }
    }

    /// What follows from a transition made `at`. Total: any transition can be applied to any state.
    pub fn apply_transition(&mut self, transition: &PhaseTransition, at: UnixMillis) {
        match &transition.cause {
            TransitionCause::SamePhase => return,
            // What the user allowed, they allowed on a path that is now left.
            TransitionCause::RolledBack { .. } => self.grants.clear(),
            TransitionCause::Proposed | TransitionCause::Granted { .. } | TransitionCause::Expired { .. } => {
                self.grants.retain(|grant| grant.to != transition.to);
            }
        }
        self.came_from = Some(std::mem::replace(&mut self.current, transition.to.clone()));
        self.visit = self.visit.saturating_add(1);
        self.since = at;
        self.turns_started = 0;
        self.turns_done = 0;
        for gate in &transition.closes_gates {
            self.open_gates.remove(gate);
        }
        self.open_gates.extend(transition.opens_gates.iter().cloned());
        let entered = self.visit_counts.entry(transition.to.clone()).or_default();
        *entered = entered.saturating_add(1);
    }

    /// A turn began while in this phase, or goes on in it after a transition and somebody still speaks.
    pub fn count_turn_started(&mut self) {
        self.turns_started = self.turns_started.saturating_add(1);
    }

    /// The turn is over. A turn that never began here does not count.
    pub fn count_turn_ended(&mut self) {
        self.turns_done = self.turns_started;
    }

    /// The user allowed a skip. A newer grant for the same phase takes the place of the older.
    pub fn add_grant(&mut self, grant: SkipGrant) {
        self.revoke_grant(&grant.to);
        self.grants.push(grant);
    }

    /// The user took a grant back.
    pub fn revoke_grant(&mut self, to: &PhaseName) {
        self.grants.retain(|grant| grant.to != *to);
    }

    /// The unused grant for entering `to`.
    #[must_use]
    pub fn find_grant(&self, to: &PhaseName) -> Option<&SkipGrant> {
        self.grants.iter().find(|grant| grant.to == *to)
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseProposal {
    /// The phase to enter.
    pub to: PhaseName,
    /// Who asks.
    pub by: Proposer,
    /// What they say about it.
    #[serde(default, skip_serializing_if = "TransitionNote::is_empty")]
    pub note: TransitionNote,
}

impl PhaseProposal {
    /// A proposal without words.
    #[must_use]
    pub fn new(to: impl Into<PhaseName>, by: Proposer) -> Self {
        Self { to: to.into(), by, note: TransitionNote::default() }
    }
}

/// The words that go with a transition. They are carried along and decide nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TransitionNote {
    /// What people call the proposer, where that is not its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer_label: Option<String>,
    /// In brief, why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The whole context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How things stand, for whoever goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl TransitionNote {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A move that was ruled legal. With the time it was recorded at it is the whole record of a hand-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTransition {
    /// The phase left.
    pub from: PhaseName,
    /// The phase entered.
    pub to: PhaseName,
    /// Who asked for it.
    pub by: Proposer,
    /// On what ground.
    pub cause: TransitionCause,
    /// What was said about it.
    #[serde(default, skip_serializing_if = "TransitionNote::is_empty")]
    pub note: TransitionNote,
    /// Gates it closes: satisfied, skipped, or not open at the place rolled back to. Closed before others are opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closes_gates: Vec<String>,
    /// Gates it opens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opens_gates: Vec<String>,
}

impl PhaseTransition {
    /// The transition into `to`, with what entering it does to the gates; `skipped` ones are lifted.
    pub(super) fn entering_phase(
        graph: &PhaseGraph,
        state: &PhaseState,
        to: &PhaseSpec,
        (by, how, note): (Proposer, TransitionCause, TransitionNote),
        skipped: &[&PhaseGate],
    ) -> Self {
        let is_skipped = |gate: &PhaseGate| skipped.iter().any(|skipped| skipped.name == gate.name);
        let is_open = |gate: &PhaseGate| state.open_gates.contains(&gate.name);
        let closes = |gate: &PhaseGate| is_open(gate) && (gate.satisfied_by == to.name || is_skipped(gate));
        let opens = |gate: &PhaseGate| gate.opened_by == to.name && (!is_open(gate) || closes(gate));
        let names = |wanted: &dyn Fn(&PhaseGate) -> bool| {
            graph.gates.iter().filter(|gate| wanted(gate)).map(|gate| gate.name.clone()).collect()
        };
        Self {
            from: state.current.clone(),
            to: to.name.clone(),
            by,
            cause: how,
            note,
            closes_gates: names(&closes),
            opens_gates: names(&opens),
        }
    }

    /// Whether it begins a new visit. A hand-off within a phase does not.
    #[must_use]
    pub fn begins_visit(&self) -> bool {
        self.cause != TransitionCause::SamePhase
    }

    /// What people should be warned of: what a grant left out, or that a limit's way out was barred.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.cause {
            TransitionCause::Granted { skips } => {
                Some(format!("`{}` was entered on the user's word, which left out {}", self.to, join_skips(skips)))
            }
            TransitionCause::Expired { blocked_by: barred, .. } if !barred.is_empty() => Some(format!(
                "the limit of `{}` ran out and its way out was barred by {}, so `{}` was entered",
                self.from,
                format_quoted_names(barred),
                self.to
            )),
            TransitionCause::Proposed
            | TransitionCause::Expired { .. }
            | TransitionCause::RolledBack { .. }
            | TransitionCause::SamePhase => None,
        }
    }
}

/// On what ground a transition was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionCause {
    /// Along an edge whose guard held.
    Proposed,
    /// On the user's grant, which it used up.
    Granted {
        /// What it left out.
        skips: Vec<SkippedRequirement>,
    },
    /// A limit ran out.
    Expired {
        /// Which.
        limit: ExpiredLimit,
        /// The gates that barred the declared way out. The phase they wait for was entered in its place.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocked_by: Vec<String>,
    },
    /// Back to how things stood in an earlier visit.
    RolledBack {
        /// That visit's number.
        to_visit: u32,
    },
    /// A hand-off within the phase: recorded, and nothing changes.
    SamePhase,
}

/// Which limit ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiredLimit {
    /// The number of turns.
    Turns,
    /// The time.
    Time,
}

/// The user's leave to enter a phase once, whatever stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipGrant {
    /// The phase that may be entered.
    pub to: PhaseName,
    /// Who gave it.
    pub by: Proposer,
    /// What may be left out by it: all gates that could bar `to`, and the edge if there is none.
    pub skips: Vec<SkippedRequirement>,
}

impl SkipGrant {
    /// What the user should be told they are giving up.
    #[must_use]
    pub fn warning(&self) -> String {
        match self.skips.as_slice() {
            [] => format!("`{}` may be entered once even if its edge's guard is not met", self.to),
            skips => format!("`{}` may be entered once; this can leave out {}", self.to, join_skips(skips)),
        }
    }
}

/// Something a grant leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkippedRequirement {
    /// An obligatory phase.
    Gate {
        /// The gate that asks for it.
        gate: String,
        /// The phase left out.
        phase: PhaseName,
    },
    /// There is no edge.
    Edge {
        /// From here.
        from: PhaseName,
        /// To there.
        to: PhaseName,
    },
    /// There is an edge, and its guard is not met.
    Guard(UnmetRequirement),
}

impl SkippedRequirement {
    pub(super) fn from_gate(gate: &PhaseGate) -> Self {
        Self::Gate { gate: gate.name.clone(), phase: gate.satisfied_by.clone() }
    }
}

impl fmt::Display for SkippedRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate { gate, phase } => write!(f, "the phase `{phase}` (gate `{gate}`)"),
            Self::Edge { from, to } => {
                write!(f, "the way the graph prescribes (it has no edge from `{from}` to `{to}`)")
            }
            Self::Guard(unmet) => write!(f, "a condition: {unmet}"),
        }
    }
}

fn join_skips(skips: &[SkippedRequirement]) -> String {
    skips.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
