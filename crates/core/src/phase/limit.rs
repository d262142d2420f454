//! Decides when a phase visit has reached its limit and which phase follows. Guards do not apply, so that a
//! conversation cannot get stuck. Gates do: a limit satisfies no gate, and if the exit is blocked, the phase that
//! satisfies the gate is entered instead.

use super::guard::PhaseTransitionProposer;
use super::state::{ExpiredPhaseLimit, PhaseGraphState, PhaseTransition, PhaseTransitionCause, PhaseTransitionNote};
use super::{PhaseEntryGate, PhaseGraph, PhaseLimit, PhaseSpec};
use crate::ids::{PhaseName, UnixMillis};

/// Returns the transition out of a visit whose turns, rounds or time are used up; `None` if its limit is not reached.
/// `waiting_since` is set while the session waits for a person or another session.
#[must_use]
pub(crate) fn expiry_transition(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    now: UnixMillis,
    waiting_since: Option<UnixMillis>,
) -> Option<PhaseTransition> {
    let limit = current_limit(graph, state)?;
    let turns_over = limit.turns_max.is_some_and(|max| state.turns_done >= max);
    let rounds_over = limit.rounds_max.is_some_and(|max| state.rounds >= max);
    let time_over = visit_deadline(graph, state, waiting_since).is_some_and(|deadline| now >= deadline);
    let expired = match (turns_over, rounds_over, time_over) {
        (true, _, _) => ExpiredPhaseLimit::Turns,
        (false, true, _) => ExpiredPhaseLimit::Rounds,
        (false, false, true) => ExpiredPhaseLimit::Time,
        (false, false, false) => return None,
    };
    let LimitExitAfterGateRedirects { to, blocking_gates } =
        resolve_exit(graph, &limit.exit, |_, gate| state.open_gates.contains(&gate.name))?;
    if to.name == state.current {
        return None;
    }
    let blocked_by = blocking_gates.into_iter().map(|gate| gate.name.clone()).collect();
    let basis = (
        PhaseTransitionProposer::Engine,
        PhaseTransitionCause::Expired { limit: expired, blocked_by },
        PhaseTransitionNote::default(),
    );
    Some(PhaseTransition::entering_phase(graph, state, to, basis, &[]))
}

/// Returns the time at which this visit ends, if it has a time limit and its clock runs. While the session waits, the
/// clock stands still, unless the limit includes waiting.
#[must_use]
pub(crate) fn visit_deadline(
    graph: &PhaseGraph,
    state: &PhaseGraphState,
    waiting_since: Option<UnixMillis>,
) -> Option<UnixMillis> {
    let limit = current_limit(graph, state)?;
    let total = state.since.plus_ms(limit.ms_max?);
    if limit.includes_waiting {
        return Some(total);
    }
    let deadline = total.plus_ms(state.waited_ms);
    waiting_since.is_none_or(|since| deadline <= since).then_some(deadline)
}

/// Returns true if time in which the session waits extends the current visit.
#[must_use]
pub(crate) fn waiting_extends_visit(graph: &PhaseGraph, state: &PhaseGraphState) -> bool {
    current_limit(graph, state).is_some_and(|limit| limit.ms_max.is_some() && !limit.includes_waiting)
}

fn current_limit<'g>(graph: &'g PhaseGraph, state: &PhaseGraphState) -> Option<&'g PhaseLimit> {
    graph.find_phase(&state.current)?.limit.as_ref()
}

pub(super) struct LimitExitAfterGateRedirects<'g> {
    pub(super) to: &'g PhaseSpec,
    pub(super) blocking_gates: Vec<&'g PhaseEntryGate>,
}

/// Returns the phase that the exit leads to while the given gates are open; `None` if the gates wait for each other.
/// `is_open` gets a gate and its index.
pub(super) fn resolve_exit<'g>(
    graph: &'g PhaseGraph,
    exit: &PhaseName,
    is_open: impl Fn(usize, &PhaseEntryGate) -> bool,
) -> Option<LimitExitAfterGateRedirects<'g>> {
    let mut to = graph.find_phase(exit)?;
    let mut blocking_gates = Vec::new();
    for _ in 0..=graph.gates.len() {
        let mut gates = graph.gates.iter().enumerate();
        let Some((_, gate)) = gates.find(|(index, gate)| is_open(*index, gate) && gate.blocks_phase(to)) else {
            return Some(LimitExitAfterGateRedirects { to, blocking_gates });
        };
        blocking_gates.push(gate);
        to = graph.find_phase(&gate.satisfied_by)?;
    }
    None
}
