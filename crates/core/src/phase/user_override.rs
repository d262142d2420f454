//! Actions that only the user, or an operator for the user, may perform: granting a skip and rolling back to an earlier
//! visit.

use super::guard::PhaseTransitionProposer;
use super::state::{
    OneTimePhaseGrant, PhaseGraphState, PhaseTransition, PhaseTransitionCause, PhaseTransitionNote, SkippedRequirement,
    SkippedRequirements,
};
use super::{PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::PhaseName;

/// Grants permission to enter `to` once, despite gates, unmet guards or a missing edge. A grant may be given in
/// advance. It lasts until `to` is entered, the grant is revoked, or the state is rolled back.
///
/// # Errors
/// Fails if `by` is not the user or an operator, or if the grant would have no effect.
pub(crate) fn issue_skip_grant(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    by: &PhaseTransitionProposer,
    to: &PhaseName,
) -> Result<OneTimePhaseGrant, OneTimePhaseGrantRefusal> {
    if !by.has_user_authority() {
        return Err(OneTimePhaseGrantRefusal::NotAuthorized { by: by.clone(), to: to.clone() });
    }
    let Some(phase) = graph.find_phase(to) else {
        let known = graph.phases.iter().map(|phase| phase.name.clone()).collect();
        return Err(OneTimePhaseGrantRefusal::NoSuchPhase { to: to.clone(), known });
    };
    if graph.find_phase(&state.current).is_some_and(PhaseSpec::is_terminal) {
        return Err(OneTimePhaseGrantRefusal::Terminal { current: state.current.clone() });
    }
    let has_edge = graph.edges_from(&state.current).any(|edge| edge.to == *to);
    if *to == state.current && !has_edge {
        return Err(OneTimePhaseGrantRefusal::AlreadyCurrent { to: to.clone() });
    }
    let mut skips: Vec<SkippedRequirement> =
        graph.gates.iter().filter(|gate| gate.blocks_phase(phase)).map(SkippedRequirement::from_gate).collect();
    if !has_edge {
        skips.push(SkippedRequirement::Edge { from: state.current.clone(), to: to.clone() });
    }
    Ok(OneTimePhaseGrant { to: to.clone(), by: by.clone(), skips: SkippedRequirements(skips) })
}

/// Why a grant was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OneTimePhaseGrantRefusal {
    /// The proposer is neither the user nor an operator.
    #[error("{by} cannot grant a skip to `{to}`: only the user can; ask them")]
    NotAuthorized { by: PhaseTransitionProposer, to: PhaseName },
    #[error("there is no phase `{to}`; there are {}", format_quoted_names(.known))]
    NoSuchPhase { to: PhaseName, known: Vec<PhaseName> },
    /// The current phase is terminal.
    #[error("`{current}` is terminal, so a grant cannot leave it; roll back to an earlier visit")]
    Terminal { current: PhaseName },
    #[error("`{to}` is the current phase, so there is nothing to skip")]
    AlreadyCurrent { to: PhaseName },
}

/// Plans a rollback to an earlier visit, with its phase and open gates but a new visit number. Unused grants end.
/// `past` is the state just after the transition into that visit.
///
/// # Errors
/// Fails if `by` is not the user or an operator, `past` is not in the past, or its phase is no longer in the graph.
pub(crate) fn plan_rollback(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    past: &PhaseGraphState,
    by: &PhaseTransitionProposer,
    note: PhaseTransitionNote,
) -> Result<PhaseTransition, PhaseRollbackRefusal> {
    if !by.has_user_authority() {
        return Err(PhaseRollbackRefusal::NotAuthorized { by: by.clone() });
    }
    if past.visit > state.visit {
        return Err(PhaseRollbackRefusal::NotPast { to: past.visit, current: state.visit });
    }
    if graph.find_phase(&past.current).is_none() {
        return Err(PhaseRollbackRefusal::PhaseGone { phase: past.current.clone() });
    }
    Ok(PhaseTransition {
        from: state.current.clone(),
        to: past.current.clone(),
        by: by.clone(),
        cause: PhaseTransitionCause::RolledBack { to_visit: past.visit },
        note,
        closes_gates: state.open_gates.difference(&past.open_gates).cloned().collect(),
        opens_gates: past.open_gates.difference(&state.open_gates).cloned().collect(),
    })
}

/// Why a rollback was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PhaseRollbackRefusal {
    /// The proposer is neither the user nor an operator. A rollback can close a gate, so it needs the same authority as
    /// a grant.
    #[error("{by} cannot roll back: only the user can; ask them")]
    NotAuthorized { by: PhaseTransitionProposer },
    #[error("visit {to} is not in the past; the current one is {current}")]
    NotPast { to: u32, current: u32 },
    /// The graph was changed since.
    #[error("the graph no longer has the phase `{phase}`; roll back to another visit")]
    PhaseGone { phase: PhaseName },
}
