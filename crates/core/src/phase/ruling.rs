//! Rules on proposals: a model proposes a phase, and the graph decides. A ruling changes nothing. A refusal tells the
//! proposer why, and which phases are allowed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::guard::{PhaseGuardInputs, PhaseTransitionProposer, UnmetGuardRequirement};
use super::state::{
    PhaseGraphState, PhaseProposal, PhaseTransition, PhaseTransitionCause, SkippedRequirement, SkippedRequirements,
};
use super::{PhaseEntryGate, PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::PhaseName;

/// The ruling on a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PhaseProposalRuling {
    /// The transition is allowed; the caller records and applies it.
    Enter(PhaseTransition),
    /// The transition is refused; the caller records the refusal and tells the proposer.
    Refuse(PhaseRefusal),
}

/// Why a proposal was refused, and what is allowed instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("`{to}` cannot be entered from `{from}`: {why}; {}", format_allowed_phases(.allowed))]
pub struct PhaseRefusal {
    /// The current phase.
    pub from: PhaseName,
    /// The proposed phase.
    pub to: PhaseName,
    pub by: PhaseTransitionProposer,
    pub(crate) why: PhaseRefusalReason,
    /// The phases that the same proposer may enter now.
    pub allowed: Vec<PhaseName>,
}

/// The reasons for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PhaseRefusalReason {
    /// The graph has no such phase.
    NoSuchPhase,
    /// No edge leads to the phase.
    NoEdge,
    /// The guard of the edge is not met.
    GuardFailed(UnmetGuardRequirement),
    /// Open gates block the phase.
    GatesOpen(Vec<UnmetGate>),
    /// The current phase is terminal.
    Terminal,
}

/// A gate that blocks a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnmetGate {
    pub(crate) gate: String,
    pub(crate) opened_by: PhaseName,
    /// The phase that must be completed first.
    pub(crate) needs: PhaseName,
    /// The evidence that is needed when that phase is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
    /// What is missing, if that phase is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unmet: Option<UnmetGuardRequirement>,
}

impl fmt::Display for UnmetGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, opened_by, needs, condition, unmet } = self;
        match (unmet, condition) {
            (Some(unmet), _) => write!(f, "gate `{gate}` is open, and leaving `{needs}` now lacks {unmet}"),
            (None, Some(condition)) => write!(
                f,
                "gate `{gate}` is open, so after `{opened_by}` `{needs}` must be completed first, with the condition \
                 `{condition}`"
            ),
            (None, None) => {
                write!(f, "gate `{gate}` is open, so after `{opened_by}` `{needs}` must be completed first")
            }
        }
    }
}

impl fmt::Display for PhaseRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPhase => f.write_str("there is no such phase"),
            Self::NoEdge => f.write_str("there is no edge to it"),
            Self::GuardFailed(unmet) => write!(f, "this needs {unmet}"),
            Self::GatesOpen(gates) => {
                for (index, gate) in gates.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", and " };
                    write!(f, "{comma}{gate}")?;
                }
                f.write_str(" (only the user can grant a skip)")
            }
            Self::Terminal => f.write_str("the current phase is terminal; only a rollback leaves it"),
        }
    }
}

/// Rules on a proposal. The caller records the ruling and applies the transition.
#[must_use]
pub(crate) fn rule_on_proposal(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    proposal: &PhaseProposal,
    conditions: &PhaseGuardInputs,
) -> PhaseProposalRuling {
    match check_phase_entry(graph, state, &proposal.to, &proposal.by, conditions) {
        Ok(AllowedPhaseEntry { to, cause, closes }) => {
            let basis = (proposal.by.clone(), cause, proposal.note.clone());
            PhaseProposalRuling::Enter(PhaseTransition::entering_phase(graph, state, to, basis, &closes))
        }
        Err(why) => PhaseProposalRuling::Refuse(PhaseRefusal {
            from: state.current.clone(),
            to: proposal.to.clone(),
            by: proposal.by.clone(),
            why,
            allowed: allowed_phases(graph, state, &proposal.by, conditions),
        }),
    }
}

/// Returns the phases that `by` may enter now, in the graph's order. The current phase is included only if it can be
/// entered again.
#[must_use]
pub(crate) fn allowed_phases(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    by: &PhaseTransitionProposer,
    conditions: &PhaseGuardInputs,
) -> Vec<PhaseName> {
    let may_enter = |phase: &&PhaseSpec| {
        check_phase_entry(graph, state, &phase.name, by, conditions)
            .is_ok_and(|entry| entry.cause != PhaseTransitionCause::SamePhase)
    };
    graph.phases.iter().filter(may_enter).map(|phase| phase.name.clone()).collect()
}

struct AllowedPhaseEntry<'g> {
    to: &'g PhaseSpec,
    cause: PhaseTransitionCause,
    /// The gates that leaving the current phase satisfies, and those that a grant skips.
    closes: Vec<&'g PhaseEntryGate>,
}

fn check_phase_entry<'g>(
    graph: &'g PhaseGraph,
    state: &PhaseGraphState,
    to: &PhaseName,
    by: &PhaseTransitionProposer,
    conditions: &PhaseGuardInputs,
) -> Result<AllowedPhaseEntry<'g>, PhaseRefusalReason> {
    let to = graph.find_phase(to).ok_or(PhaseRefusalReason::NoSuchPhase)?;
    if graph.find_phase(&state.current).is_some_and(PhaseSpec::is_terminal) {
        return Err(PhaseRefusalReason::Terminal);
    }
    let edge_check = check_edge(graph, state, &to.name, by, conditions);
    if to.name == state.current && edge_check == PhaseEdgeCheckResult::NoEdge {
        // Nothing would change, so gates do not apply.
        return Ok(AllowedPhaseEntry { to, cause: PhaseTransitionCause::SamePhase, closes: Vec::new() });
    }
    let satisfied = graph.gates_satisfied_on_leaving(state, conditions);
    let is_satisfied = |gate: &PhaseEntryGate| satisfied.iter().any(|satisfied| satisfied.name == gate.name);
    let is_blocking =
        |gate: &&PhaseEntryGate| state.open_gates.contains(&gate.name) && gate.blocks_phase(to) && !is_satisfied(gate);
    let blocking: Vec<&PhaseEntryGate> = graph.gates.iter().filter(is_blocking).collect();
    if edge_check == PhaseEdgeCheckResult::Clear && blocking.is_empty() {
        return Ok(AllowedPhaseEntry { to, cause: PhaseTransitionCause::Proposed, closes: satisfied });
    }
    if state.find_grant(&to.name).is_some() {
        let mut skips: Vec<SkippedRequirement> = blocking.iter().copied().map(SkippedRequirement::from_gate).collect();
        match edge_check {
            PhaseEdgeCheckResult::Clear => {}
            PhaseEdgeCheckResult::NoEdge => {
                skips.push(SkippedRequirement::Edge { from: state.current.clone(), to: to.name.clone() })
            }
            PhaseEdgeCheckResult::GuardUnmet(unmet) => skips.push(SkippedRequirement::Guard(unmet)),
        }
        let closes = satisfied.into_iter().chain(blocking).collect();
        return Ok(AllowedPhaseEntry {
            to,
            cause: PhaseTransitionCause::Granted { skips: SkippedRequirements(skips) },
            closes,
        });
    }
    Err(match edge_check {
        PhaseEdgeCheckResult::NoEdge => PhaseRefusalReason::NoEdge,
        PhaseEdgeCheckResult::GuardUnmet(unmet) if blocking.is_empty() => PhaseRefusalReason::GuardFailed(unmet),
        PhaseEdgeCheckResult::Clear | PhaseEdgeCheckResult::GuardUnmet(_) => {
            let describe = |gate| describe_blocking_gate(gate, state, conditions);
            PhaseRefusalReason::GatesOpen(blocking.into_iter().map(describe).collect())
        }
    })
}

#[derive(PartialEq)]
enum PhaseEdgeCheckResult {
    Clear,
    GuardUnmet(UnmetGuardRequirement),
    NoEdge,
}

fn check_edge(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    to: &PhaseName,
    by: &PhaseTransitionProposer,
    conditions: &PhaseGuardInputs,
) -> PhaseEdgeCheckResult {
    let mut edge_check = PhaseEdgeCheckResult::NoEdge;
    for edge in graph.edges_from(&state.current).filter(|edge| edge.to == *to) {
        match edge.guard.unmet_requirement(by, conditions) {
            None => return PhaseEdgeCheckResult::Clear,
            Some(unmet) => edge_check = PhaseEdgeCheckResult::GuardUnmet(unmet),
        }
    }
    edge_check
}

fn describe_blocking_gate(gate: &PhaseEntryGate, state: &PhaseGraphState, conditions: &PhaseGuardInputs) -> UnmetGate {
    let is_current = gate.satisfied_by == state.current;
    UnmetGate {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.clone(),
        needs: gate.satisfied_by.clone(),
        condition: gate.condition.clone(),
        unmet: is_current.then(|| gate.unmet_condition(conditions)).flatten(),
    }
}

fn format_allowed_phases(allowed: &[PhaseName]) -> String {
    if allowed.is_empty() {
        "no other phase can be entered now".to_owned()
    } else {
        format!("allowed now: {}", format_quoted_names(allowed))
    }
}
