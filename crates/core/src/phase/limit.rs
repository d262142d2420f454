//! When a visit has lasted long enough, and where it leads then. Guards are not asked: the way out is declared so that a
//! conversation never sticks. Gates are: a way out that is barred leads to the phase the gate waits for.

use super::guard::Proposer;
use super::state::{Expiry, How, Note, PhaseState, Transition};
use super::{Gate, Phase, PhaseGraph, PhaseLimit};
use crate::ids::{Millis, PhaseName};

/// The way out of a visit whose turns are used up or whose time is over; `None` while it may go on.
#[must_use]
pub fn expiry(graph: &PhaseGraph, state: &PhaseState, now: Millis) -> Option<Transition> {
    let limit = current_limit(graph, state)?;
    let turns_over = limit.turns_max.is_some_and(|max| state.turns_done >= max);
    let time_over = deadline(graph, state).is_some_and(|deadline| now >= deadline);
    let over = match (turns_over, time_over) {
        (true, _) => Expiry::Turns,
        (false, true) => Expiry::Time,
        (false, false) => return None,
    };
    let WayOut { to, barred } = way_out(graph, &limit.exit, |_, gate| state.open_gates.contains(&gate.name))?;
    if to.name == state.current {
        return None;
    }
    let barred = barred.into_iter().map(|gate| gate.name.clone()).collect();
    let ground = (Proposer::Engine, How::Expired { limit: over, barred }, Note::default());
    Some(Transition::into_phase(graph, state, to, ground, &[]))
}

/// When this visit's time is over, if it has a limit on time.
#[must_use]
pub fn deadline(graph: &PhaseGraph, state: &PhaseState) -> Option<Millis> {
    current_limit(graph, state)?.ms_max.map(|ms| state.since.after(ms))
}

fn current_limit<'g>(graph: &'g PhaseGraph, state: &PhaseState) -> Option<&'g PhaseLimit> {
    graph.phase(&state.current)?.limit.as_ref()
}

pub(super) struct WayOut<'g> {
    pub(super) to: &'g Phase,
    pub(super) barred: Vec<&'g Gate>,
}

/// Where the way out `exit` leads while these gates are open; `None` if they wait for each other. A gate is asked about
/// with its place in the graph.
pub(super) fn way_out<'g>(
    graph: &'g PhaseGraph,
    exit: &PhaseName,
    is_open: impl Fn(usize, &Gate) -> bool,
) -> Option<WayOut<'g>> {
    let mut to = graph.phase(exit)?;
    let mut barred = Vec::new();
    for _ in 0..=graph.gates.len() {
        let mut gates = graph.gates.iter().enumerate();
        let Some((_, gate)) = gates.find(|(place, gate)| is_open(*place, gate) && gate.bars(to)) else {
            return Some(WayOut { to, barred });
        };
        barred.push(gate);
        to = graph.phase(&gate.satisfied_by)?;
    }
    None
}
