//! A model proposes, the graph decides. `judge` rules on one proposal and changes nothing; a refusal says why and what
//! would be allowed, fit to be told to whoever proposed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::guard::{GuardConditions, Proposer, UnmetRequirement};
use super::state::{PhaseProposal, PhaseState, PhaseTransition, SkippedRequirement, TransitionCause};
use super::{PhaseGate, PhaseGraph, PhaseSpec, format_quoted_names};
use crate::ids::PhaseName;

/// What is ruled on a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalRuling {
    /// It is legal: record this transition, then apply it.
    Enter(PhaseTransition),
    /// It is not: record this, stay, and tell the proposer.
    Refuse(PhaseRefusal),
}

/// Why a proposal was refused, and what would not have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("`{to}` cannot be entered from `{from}`: {why}; {}", format_allowed_phases(.allowed))]
pub struct PhaseRefusal {
    /// The phase that stays.
    pub from: PhaseName,
    /// The phase that was asked for.
    pub to: PhaseName,
    /// Who asked.
    pub by: Proposer,
    /// The reason.
    pub why: PhaseRefusalReason,
    /// What the same proposer may enter now.
    pub allowed: Vec<PhaseName>,
}

/// The reasons for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseRefusalReason {
    /// The graph has no such phase.
    NoSuchPhase,
    /// No edge leads there.
    NoEdge,
    /// The edge's guard is not met.
    GuardFailed(UnmetRequirement),
    /// These gates are open and bar it.
    GatesOpen(Vec<BlockingGate>),
    /// The current phase is an end.
    Terminal,
}

/// A gate that bars a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingGate {
    /// Its name.
    pub gate: String,
    /// The phase that opened it.
    pub opened_by: PhaseName,
    /// The phase that has to be entered first.
    pub needs: PhaseName,
}

impl fmt::Display for PhaseRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPhase => f.write_str("there is no phase of that name"),
            Self::NoEdge => f.write_str("no edge leads there"),
            Self::GuardFailed(unmet) => write!(f, "this needs {unmet}"),
            Self::GatesOpen(gates) => {
                for (place, gate) in gates.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", and " };
                    let BlockingGate { gate, opened_by, needs } = gate;
                    write!(f, "{comma}gate `{gate}` is open: after `{opened_by}`, `{needs}` comes first")?;
                }
                f.write_str(" (only the user can grant a skip)")
            }
            Self::Terminal => f.write_str("it is an end; only a rollback leads out of it"),
        }
    }
}

/// Rules on a proposal. Nothing is changed: the caller records the ruling and applies the transition.
#[must_use]
pub fn rule_on_proposal(
    graph: &PhaseGraph,
    state: &PhaseState,
    proposal: &PhaseProposal,
    conditions: &GuardConditions,
) -> ProposalRuling {
    match check_phase_entry(graph, state, &proposal.to, &proposal.by, conditions) {
        Ok(AllowedEntry { to, how, skipped }) => {
            let ground = (proposal.by.clone(), how, proposal.note.clone());
            ProposalRuling::Enter(PhaseTransition::entering_phase(graph, state, to, ground, &skipped))
        }
        Err(why) => ProposalRuling::Refuse(PhaseRefusal {
            from: state.current.clone(),
            to: proposal.to.clone(),
            by: proposal.by.clone(),
            why,
            allowed: allowed_phases(graph, state, &proposal.by, conditions),
        }),
    }
}

/// The phases `by` may enter now, in the graph's order. The current one is among them only if it can be entered anew.
#[must_use]
pub fn allowed_phases(
    graph: &PhaseGraph,
    state: &PhaseState,
    by: &Proposer,
    conditions: &GuardConditions,
) -> Vec<PhaseName> {
    let may_enter = |phase: &&PhaseSpec| {
        check_phase_entry(graph, state, &phase.name, by, conditions)
            .is_ok_and(|passage| passage.how != TransitionCause::SamePhase)
    };
    graph.phases.iter().filter(may_enter).map(|phase| phase.name.clone()).collect()
}

struct AllowedEntry<'g> {
    to: &'g PhaseSpec,
    how: TransitionCause,
    skipped: Vec<&'g PhaseGate>,
}

fn check_phase_entry<'g>(
    graph: &'g PhaseGraph,
    state: &PhaseState,
    to: &PhaseName,
    by: &Proposer,
    conditions: &GuardConditions,
) -> Result<AllowedEntry<'g>, PhaseRefusalReason> {
    let to = graph.find_phase(to).ok_or(PhaseRefusalReason::NoSuchPhase)?;
    if graph.find_phase(&state.current).is_some_and(PhaseSpec::is_terminal) {
        return Err(PhaseRefusalReason::Terminal);
    }
    let way = check_edge(graph, state, &to.name, by, conditions);
    if to.name == state.current && way == EdgeCheck::NoEdge {
        // Entering `to` would do nothing, so the gates have nothing to bar.
        return Ok(AllowedEntry { to, how: TransitionCause::SamePhase, skipped: Vec::new() });
    }
    let barring = graph.gates_blocking(to, &state.open_gates);
    if way == EdgeCheck::Clear && barring.is_empty() {
        return Ok(AllowedEntry { to, how: TransitionCause::Proposed, skipped: Vec::new() });
    }
    if state.find_grant(&to.name).is_some() {
        let mut skips: Vec<SkippedRequirement> = barring.iter().copied().map(SkippedRequirement::from_gate).collect();
        match way {
            EdgeCheck::Clear => {}
            EdgeCheck::NoEdge => {
                skips.push(SkippedRequirement::Edge { from: state.current.clone(), to: to.name.clone() })
            }
            EdgeCheck::GuardUnmet(unmet) => skips.push(SkippedRequirement::Guard(unmet)),
        }
        return Ok(AllowedEntry { to, how: TransitionCause::Granted { skips }, skipped: barring });
    }
    Err(match way {
        EdgeCheck::NoEdge => PhaseRefusalReason::NoEdge,
        EdgeCheck::GuardUnmet(unmet) if barring.is_empty() => PhaseRefusalReason::GuardFailed(unmet),
        EdgeCheck::Clear | EdgeCheck::GuardUnmet(_) => {
            PhaseRefusalReason::GatesOpen(barring.into_iter().map(describe_blocking_gate).collect())
        }
    })
}

#[derive(PartialEq)]
enum EdgeCheck {
    Clear,
    GuardUnmet(UnmetRequirement),
    NoEdge,
}

fn check_edge(
    graph: &PhaseGraph,
    state: &PhaseState,
    to: &PhaseName,
    by: &Proposer,
    conditions: &GuardConditions,
) -> EdgeCheck {
    let mut way = EdgeCheck::NoEdge;
    for edge in graph.edges_from(&state.current).filter(|edge| edge.to == *to) {
        match edge.guard.unmet_requirement(by, conditions) {
            None => return EdgeCheck::Clear,
            Some(unmet) => way = EdgeCheck::GuardUnmet(unmet),
        }
    }
    way
}

fn describe_blocking_gate(gate: &PhaseGate) -> BlockingGate {
    BlockingGate { gate: gate.name.clone(), opened_by: gate.opened_by.clone(), needs: gate.satisfied_by.clone() }
}

fn format_allowed_phases(allowed: &[PhaseName]) -> String {
    if allowed.is_empty() {
        "nothing else can be entered now".to_owned()
    } else {
        format!("allowed now: {}", format_quoted_names(allowed))
    }
}
