//! A model proposes, the graph decides. `judge` rules on one proposal and changes nothing; a refusal says why and what
//! would be allowed, fit to be told to whoever proposed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::guard::{Conditions, Proposer, Unmet};
use super::state::{How, PhaseState, Proposal, Skip, Transition};
use super::{Gate, Phase, PhaseGraph, quoted};
use crate::ids::PhaseName;

/// What is ruled on a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It is legal: record this transition, then apply it.
    Enter(Transition),
    /// It is not: record this, stay, and tell the proposer.
    Refuse(Refusal),
}

/// Why a proposal was refused, and what would not have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("`{to}` cannot be entered from `{from}`: {why}; {}", next_steps(.allowed))]
pub struct Refusal {
    /// The phase that stays.
    pub from: PhaseName,
    /// The phase that was asked for.
    pub to: PhaseName,
    /// Who asked.
    pub by: Proposer,
    /// The reason.
    pub why: Reason,
    /// What the same proposer may enter now.
    pub allowed: Vec<PhaseName>,
}

/// The reasons for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The graph has no such phase.
    NoSuchPhase,
    /// No edge leads there.
    NoEdge,
    /// The edge's guard is not met.
    GuardFailed(Unmet),
    /// These gates are open and bar it.
    GatesOpen(Vec<OpenGate>),
    /// The current phase is an end.
    Terminal,
}

/// A gate that bars a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenGate {
    /// Its name.
    pub gate: String,
    /// The phase that opened it.
    pub opened_by: PhaseName,
    /// The phase that has to be entered first.
    pub needs: PhaseName,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPhase => f.write_str("there is no phase of that name"),
            Self::NoEdge => f.write_str("no edge leads there"),
            Self::GuardFailed(unmet) => write!(f, "this needs {unmet}"),
            Self::GatesOpen(gates) => {
                for (place, gate) in gates.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", and " };
                    let OpenGate { gate, opened_by, needs } = gate;
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
pub fn judge(graph: &PhaseGraph, state: &PhaseState, proposal: &Proposal, conditions: &Conditions) -> Ruling {
    match passage(graph, state, &proposal.to, &proposal.by, conditions) {
        Ok(Passage { to, how, skipped }) => {
            let ground = (proposal.by.clone(), how, proposal.note.clone());
            Ruling::Enter(Transition::into_phase(graph, state, to, ground, &skipped))
        }
        Err(why) => Ruling::Refuse(Refusal {
            from: state.current.clone(),
            to: proposal.to.clone(),
            by: proposal.by.clone(),
            why,
            allowed: allowed(graph, state, &proposal.by, conditions),
        }),
    }
}

/// The phases `by` may enter now, in the graph's order. The current one is among them only if it can be entered anew.
#[must_use]
pub fn allowed(graph: &PhaseGraph, state: &PhaseState, by: &Proposer, conditions: &Conditions) -> Vec<PhaseName> {
    let may_enter = |phase: &&Phase| {
        passage(graph, state, &phase.name, by, conditions).is_ok_and(|passage| passage.how != How::SamePhase)
    };
    graph.phases.iter().filter(may_enter).map(|phase| phase.name.clone()).collect()
}

struct Passage<'g> {
    to: &'g Phase,
    how: How,
    skipped: Vec<&'g Gate>,
}

fn passage<'g>(
    graph: &'g PhaseGraph,
    state: &PhaseState,
    to: &PhaseName,
    by: &Proposer,
    conditions: &Conditions,
) -> Result<Passage<'g>, Reason> {
    let to = graph.phase(to).ok_or(Reason::NoSuchPhase)?;
    if graph.phase(&state.current).is_some_and(Phase::is_terminal) {
        return Err(Reason::Terminal);
    }
    let way = way_along_edge(graph, state, &to.name, by, conditions);
    if to.name == state.current && way == Way::NoEdge {
        // Entering `to` would do nothing, so the gates have nothing to bar.
        return Ok(Passage { to, how: How::SamePhase, skipped: Vec::new() });
    }
    let barring = graph.gates_barring(to, &state.open_gates);
    if way == Way::Clear && barring.is_empty() {
        return Ok(Passage { to, how: How::Proposed, skipped: Vec::new() });
    }
    if state.grant_for(&to.name).is_some() {
        let mut skips: Vec<Skip> = barring.iter().copied().map(Skip::gate).collect();
        match way {
            Way::Clear => {}
            Way::NoEdge => skips.push(Skip::Edge { from: state.current.clone(), to: to.name.clone() }),
            Way::Guarded(unmet) => skips.push(Skip::Guard(unmet)),
        }
        return Ok(Passage { to, how: How::Granted { skips }, skipped: barring });
    }
    Err(match way {
        Way::NoEdge => Reason::NoEdge,
        Way::Guarded(unmet) if barring.is_empty() => Reason::GuardFailed(unmet),
        Way::Clear | Way::Guarded(_) => Reason::GatesOpen(barring.into_iter().map(open_gate).collect()),
    })
}

#[derive(PartialEq)]
enum Way {
    Clear,
    Guarded(Unmet),
    NoEdge,
}

fn way_along_edge(
    graph: &PhaseGraph,
    state: &PhaseState,
    to: &PhaseName,
    by: &Proposer,
    conditions: &Conditions,
) -> Way {
    let mut way = Way::NoEdge;
    for edge in graph.edges_from(&state.current).filter(|edge| edge.to == *to) {
        match edge.guard.unmet(by, conditions) {
            None => return Way::Clear,
            Some(unmet) => way = Way::Guarded(unmet),
        }
    }
    way
}

fn open_gate(gate: &Gate) -> OpenGate {
    OpenGate { gate: gate.name.clone(), opened_by: gate.opened_by.clone(), needs: gate.satisfied_by.clone() }
}

fn next_steps(allowed: &[PhaseName]) -> String {
    if allowed.is_empty() {
        "nothing else can be entered now".to_owned()
    } else {
        format!("allowed now: {}", quoted(allowed))
    }
}
