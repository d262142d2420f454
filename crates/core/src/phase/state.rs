//! The state of a phase graph and the transitions that change it. A transition contains all of its effects, so a
//! journal gives the same state even if the graph is changed later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::guard::{PhaseTransitionProposer, UnmetGuardRequirement};
use super::{PhaseEntryGate, PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::{PhaseName, UnixMillis};

/// The state of a phase graph, as far as the next ruling needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseGraphState {
    pub current: PhaseName,
    pub came_from: Option<PhaseName>,
    /// The number of the visit over all phases, from 1.
    pub visit: u32,
    pub since: UnixMillis,
    /// The number of turns started in this visit.
    pub turns_started: u32,
    /// The number of turns finished in this visit.
    pub turns_done: u32,
    /// The number of rounds that the flow counted in this visit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// How long the session waited for a person or another session in this visit, if a limit depends on it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_ms: u64,
    pub open_gates: BTreeSet<String>,
    /// Unused grants of the user; at most one for each phase.
    pub grants: Vec<OneTimePhaseGrant>,
    pub visit_counts: BTreeMap<PhaseName, u32>,
}

impl PhaseGraphState {
    /// Returns the state at the graph's start.
    #[must_use]
    pub(crate) fn new(graph: &PhaseGraph, at: UnixMillis) -> Self {
        let opened = graph.gates.iter().filter(|gate| gate.opened_by == graph.start);
        Self {
            current: graph.start.clone(),
            came_from: None,
            visit: 1,
            since: at,
            turns_started: 0,
            turns_done: 0,
            rounds: 0,
            waited_ms: 0,
            open_gates: opened.map(|gate| gate.name.clone()).collect(),
            grants: Vec::new(),
            visit_counts: BTreeMap::from([(graph.start.clone(), 1)]),
        }
    }

    /// Applies a transition. Any transition can be applied to any state.
    pub(crate) fn apply_transition(&mut self, transition: &PhaseTransition, at: UnixMillis) {
        match &transition.cause {
            PhaseTransitionCause::SamePhase => return,
            // Grants were given on a path that is abandoned now.
            PhaseTransitionCause::RolledBack { .. } => self.grants.clear(),
            PhaseTransitionCause::Proposed
            | PhaseTransitionCause::Granted { .. }
            | PhaseTransitionCause::Expired { .. } => {
                self.grants.retain(|grant| grant.to != transition.to);
            }
        }
        self.came_from = Some(std::mem::replace(&mut self.current, transition.to.clone()));
        self.visit = self.visit.saturating_add(1);
        self.since = at;
        self.turns_started = 0;
        self.turns_done = 0;
        self.rounds = 0;
        self.waited_ms = 0;
        for gate in &transition.closes_gates {
            self.open_gates.remove(gate);
        }
        self.open_gates.extend(transition.opens_gates.iter().cloned());
        let entered = self.visit_counts.entry(transition.to.clone()).or_default();
        *entered = entered.saturating_add(1);
    }

    /// Counts a turn that started in this phase, or that continues in it after a transition.
    pub(crate) fn count_turn_started_in_visit(&mut self) {
        self.turns_started = self.turns_started.saturating_add(1);
    }

    /// Marks the turn as finished. A turn that did not start here does not count.
    pub(crate) fn count_turn_ended_in_visit(&mut self) {
        self.turns_done = self.turns_started;
    }

    /// Counts a round in this visit.
    pub(crate) fn count_round_in_visit(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Adds a grant and replaces an earlier one for the same phase.
    pub(crate) fn add_grant(&mut self, grant: OneTimePhaseGrant) {
        self.revoke_grant(&grant.to);
        self.grants.push(grant);
    }

    /// Removes the grant for a phase.
    pub(crate) fn revoke_grant(&mut self, to: &PhaseName) {
        self.grants.retain(|grant| grant.to != *to);
    }

    /// Returns the unused grant for entering `to`.
    #[must_use]
    pub(crate) fn find_grant(&self, to: &PhaseName) -> Option<&OneTimePhaseGrant> {
        self.grants.iter().find(|grant| grant.to == *to)
    }
}

/// A proposed phase transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhaseProposal {
    pub(crate) to: PhaseName,
    pub(crate) by: PhaseTransitionProposer,
    pub(crate) note: PhaseTransitionNote,
}

/// Texts that accompany a transition. They have no effect on the ruling.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseTransitionNote {
    /// The proposer's display name, if it differs from its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer_label: Option<String>,
    /// A short reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The full explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The state of the work, for the next phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl PhaseTransitionNote {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An allowed transition, with all of its effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTransition {
    pub from: PhaseName,
    pub to: PhaseName,
    pub by: PhaseTransitionProposer,
    pub cause: PhaseTransitionCause,
    #[serde(default, skip_serializing_if = "PhaseTransitionNote::is_empty")]
    pub note: PhaseTransitionNote,
    /// The gates to close, because they are satisfied, skipped, or were not open in the restored visit. Applied before
    /// `opens_gates`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closes_gates: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opens_gates: Vec<String>,
}

impl PhaseTransition {
    /// Creates the transition into `to`, with its effect on the gates: those in `closing` are satisfied or skipped.
    pub(super) fn entering_phase(
        graph: &PhaseGraph,
        state: &PhaseGraphState,
        to: &PhaseSpec,
        (by, cause, note): (PhaseTransitionProposer, PhaseTransitionCause, PhaseTransitionNote),
        closing: &[&PhaseEntryGate],
    ) -> Self {
        let is_open = |gate: &PhaseEntryGate| state.open_gates.contains(&gate.name);
        let closes = |gate: &PhaseEntryGate| closing.iter().any(|closing| closing.name == gate.name);
        let opens = |gate: &PhaseEntryGate| gate.opened_by == to.name && (!is_open(gate) || closes(gate));
        let names = |is_selected: &dyn Fn(&PhaseEntryGate) -> bool| {
            graph.gates.iter().filter(|gate| is_selected(gate)).map(|gate| gate.name.clone()).collect()
        };
        Self {
            from: state.current.clone(),
            to: to.name.clone(),
            by,
            cause,
            note,
            closes_gates: names(&closes),
            opens_gates: names(&opens),
        }
    }

    /// Returns true if the transition begins a new visit. A hand-off within a phase does not.
    #[must_use]
    pub fn is_visit_start(&self) -> bool {
        self.cause != PhaseTransitionCause::SamePhase
    }

    /// Returns a warning if a grant skipped requirements or the exit of a limit was blocked.
    #[must_use]
    pub fn describe_skips_or_blocked_exit(&self) -> Option<String> {
        match &self.cause {
            PhaseTransitionCause::Granted { skips } => {
                Some(format!("`{}` was entered with a grant, which skipped {skips}", self.to))
            }
            PhaseTransitionCause::Expired { blocked_by, .. } if !blocked_by.is_empty() => Some(format!(
                "the limit of `{}` was reached and its exit was blocked by {}, so `{}` was entered",
                self.from,
                format_quoted_names(blocked_by),
                self.to
            )),
            PhaseTransitionCause::Proposed
            | PhaseTransitionCause::Expired { .. }
            | PhaseTransitionCause::RolledBack { .. }
            | PhaseTransitionCause::SamePhase => None,
        }
    }
}

/// The reason why a transition was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransitionCause {
    /// An edge exists and its guard was met.
    Proposed,
    /// A grant of the user was used.
    Granted {
        /// The requirements that were skipped.
        skips: SkippedRequirements,
    },
    /// A limit was reached.
    Expired {
        limit: ExpiredPhaseLimit,
        /// The gates that blocked the declared exit. The phase that satisfies them was entered instead.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocked_by: Vec<String>,
    },
    /// The state was rolled back.
    RolledBack { to_visit: u32 },
    /// A hand-off within the phase, which is recorded but changes nothing.
    SamePhase,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiredPhaseLimit {
    Turns,
    Rounds,
    Time,
}

/// The user's permission to enter a phase once, despite unmet requirements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneTimePhaseGrant {
    pub to: PhaseName,
    pub by: PhaseTransitionProposer,
    /// The requirements that may be skipped: all gates that can block `to`, and the edge if there is none.
    pub skips: SkippedRequirements,
}

/// Writes for the user what the grant may skip.
impl fmt::Display for OneTimePhaseGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skips.0.is_empty() {
            return write!(f, "`{}` may be entered once, even if the guard of its edge is not met", self.to);
        }
        write!(f, "`{}` may be entered once; this may skip {}", self.to, self.skips)
    }
}

/// The requirements that a grant skips. Displayed as text for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SkippedRequirements(pub(crate) Vec<SkippedRequirement>);

impl fmt::Display for SkippedRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

/// A requirement that a grant skips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SkippedRequirement {
    /// A gate.
    Gate {
        gate: String,
        /// The phase that would satisfy the gate.
        phase: PhaseName,
    },
    /// A missing edge.
    Edge { from: PhaseName, to: PhaseName },
    /// The guard of an edge.
    Guard(UnmetGuardRequirement),
}

impl SkippedRequirement {
    pub(super) fn from_gate(gate: &PhaseEntryGate) -> Self {
        Self::Gate { gate: gate.name.clone(), phase: gate.satisfied_by.clone() }
    }
}

impl fmt::Display for SkippedRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate { gate, phase } => write!(f, "phase `{phase}` (gate `{gate}`)"),
            Self::Edge { from, to } => {
                write!(f, "the missing edge from `{from}` to `{to}`")
            }
            Self::Guard(unmet) => write!(f, "a requirement: {unmet}"),
        }
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}
