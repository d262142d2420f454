//! When a visit has lasted long enough, and where it leads then. Guards are not asked: the way out is declared so that a
//! conversation never sticks. Gates are: a way out that is barred leads to the phase the gate waits for.

use super::guard::Proposer;
use super::state::{ExpiredLimit, PhaseState, PhaseTransition, TransitionCause, TransitionNote};
use super::{PhaseGate, PhaseGraph, PhaseLimit, PhaseSpec};
use crate::ids::{PhaseName, UnixMillis};

/// The way out of a visit whose turns are used up or whose time is over; `None` while it may go on.
#[must_use]
pub fn expiry_transition(graph: &PhaseGraph, state: &PhaseState, now: UnixMillis) -> Option<PhaseTransition> {
    let limit = current_limit(graph, state)?;
    let turns_over = limit.turns_max.is_some_and(|max| state.turns_done >= max);
    let time_over = visit_deadline(graph, state).is_some_and(|deadline| now >= deadline);
    let over = match (turns_over, time_over) {
        (true, _) => ExpiredLimit::Turns,
        (false, true) => ExpiredLimit::Time,
        (false, false) => return None,
    };
    let ResolvedExit { to, blocking_gates: barred } =
        resolve_exit(graph, &limit.exit, |_, gate| state.open_gates.contains(&gate.name))?;
    if to.name == state.current {
        return None;
    }
    let barred = barred.into_iter().map(|gate| gate.name.clone()).collect();
    let ground =
        (Proposer::Engine, TransitionCause::Expired { limit: over, blocked_by: barred }, TransitionNote::default());
    Some(PhaseTransition::entering_phase(graph, state, to, ground, &[]))
}

/// When this visit's time is over, if it has a limit on time.
#[must_use]
pub fn visit_deadline(graph: &PhaseGraph, state: &PhaseState) -> Option<UnixMillis> {
    current_limit(graph, state)?.ms_max.map(|ms| state.since.plus_ms(ms))
}

fn current_limit<'g>(graph: &'g PhaseGraph, state: &PhaseState) -> Option<&'g PhaseLimit> {
    graph.find_phase(&state.current)?.limit.as_ref()
}

pub(super) struct ResolvedExit<'g> {
    pub(super) to: &'g PhaseSpec,
    pub(super) blocking_gates: Vec<&'g PhaseGate>,
}

/// Where the way out `exit` leads while these gates are open; `None` if they wait for each other. A gate is asked about
/// with its place in the graph.
pub(super) fn resolve_exit<'g>(
    graph: &'g PhaseGraph,
    exit: &PhaseName,
    is_open: impl Fn(usize, &PhaseGate) -> bool,
) -> Option<ResolvedExit<'g>> {
    let mut to = graph.find_phase(exit)?;
    let mut barred = Vec::new();
    for _ in 0..=graph.gates.len() {
        let mut gates = graph.gates.iter().enumerate();
        let Some((_, gate)) = gates.find(|(place, gate)| is_open(*place, gate) && gate.blocks_phase(to)) else {
            return Some(ResolvedExit { to, blocking_gates: barred });
        };
        barred.push(gate);
        to = graph.find_phase(&gate.satisfied_by)?;
    }
    None
}
