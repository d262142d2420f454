//! What only the user, or an operator for them, may do: grant a skip, and go back to an earlier visit. Others may ask, and are
//! told no.

use super::guard::Proposer;
use super::state::{PhaseState, PhaseTransition, SkipGrant, SkippedRequirement, TransitionCause, TransitionNote};
use super::{PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::PhaseName;

/// Allows entering `to` once, past gates, unmet guards and a missing edge. It may be given in advance: it lasts until `to`
/// is entered by whatever way, it is revoked, or the state is rolled back.
///
/// # Errors
/// Says why there is no such grant: who asks is not the user, or there is nothing it could be good for.
pub fn issue_skip_grant(
    graph: &PhaseGraph,
    state: &PhaseState,
    by: &Proposer,
    to: &PhaseName,
) -> Result<SkipGrant, GrantRefusal> {
    if !by.has_user_authority() {
        return Err(GrantRefusal::NotAuthorized { by: by.clone(), to: to.clone() });
    }
    let Some(phase) = graph.find_phase(to) else {
        let known = graph.phases.iter().map(|phase| phase.name.clone()).collect();
        return Err(GrantRefusal::NoSuchPhase { to: to.clone(), known });
    };
    if graph.find_phase(&state.current).is_some_and(PhaseSpec::is_terminal) {
        return Err(GrantRefusal::Terminal { current: state.current.clone() });
    }
    let has_edge = graph.edges_from(&state.current).any(|edge| edge.to == *to);
    if *to == state.current && !has_edge {
        return Err(GrantRefusal::AlreadyCurrent { to: to.clone() });
    }
    let mut skips: Vec<SkippedRequirement> =
        graph.gates.iter().filter(|gate| gate.blocks_phase(phase)).map(SkippedRequirement::from_gate).collect();
    if !has_edge {
        skips.push(SkippedRequirement::Edge { from: state.current.clone(), to: to.clone() });
    }
    Ok(SkipGrant { to: to.clone(), by: by.clone(), skips })
}

/// Why a grant was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    /// Who asks has no authority.
    #[error("{by} cannot grant a skip to `{to}`: only the user can; ask them")]
    NotAuthorized {
        /// Who asked.
        by: Proposer,
        /// For what.
        to: PhaseName,
    },
    /// The graph has no such phase.
    #[error("there is no phase `{to}`; there are {}", format_quoted_names(.known))]
    NoSuchPhase {
        /// What was named.
        to: PhaseName,
        /// What could have been.
        known: Vec<PhaseName>,
    },
    /// Nothing follows the current phase.
    #[error("`{current}` is an end, so no grant leads out of it; roll back to an earlier visit")]
    Terminal {
        /// The phase.
        current: PhaseName,
    },
    /// It is the current phase.
    #[error("`{to}` is the current phase, so there is nothing to skip")]
    AlreadyCurrent {
        /// The phase.
        to: PhaseName,
    },
}

/// Goes back to how things stood in an earlier visit: the phase and the open gates of `past`, under a new visit number.
/// Unused grants end. `past` is the state as it was after the transition gone back to.
///
/// # Errors
/// Says why it cannot be done: who asks is not the user, `past` does not lie behind, or its phase is gone from the graph.
pub fn plan_rollback(
    graph: &PhaseGraph,
    state: &PhaseState,
    past: &PhaseState,
    by: &Proposer,
    note: TransitionNote,
) -> Result<PhaseTransition, RollbackRefusal> {
    if !by.has_user_authority() {
        return Err(RollbackRefusal::NotAuthorized { by: by.clone() });
    }
    if past.visit > state.visit {
        return Err(RollbackRefusal::NotPast { to: past.visit, current: state.visit });
    }
    if graph.find_phase(&past.current).is_none() {
        return Err(RollbackRefusal::PhaseGone { phase: past.current.clone() });
    }
    Ok(PhaseTransition {
        from: state.current.clone(),
        to: past.current.clone(),
        by: by.clone(),
        cause: TransitionCause::RolledBack { to_visit: past.visit },
        note,
        closes_gates: state.open_gates.difference(&past.open_gates).cloned().collect(),
        opens_gates: past.open_gates.difference(&state.open_gates).cloned().collect(),
    })
}

/// Why a rollback was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackRefusal {
    /// Who asks has no authority. A rollback can undo an open gate, so it is the user's as a grant is.
    #[error("{by} cannot roll back: only the user can; ask them")]
    NotAuthorized {
        /// Who asked.
        by: Proposer,
    },
    /// It has not happened yet.
    #[error("visit {to} is not in the past; the current one is {current}")]
    NotPast {
        /// What was named.
        to: u32,
        /// Where things stand.
        current: u32,
    },
    /// The graph was changed since.
    #[error("the graph no longer has the phase `{phase}`; roll back to another visit")]
    PhaseGone {
        /// The phase of that visit.
        phase: PhaseName,
    },
}
