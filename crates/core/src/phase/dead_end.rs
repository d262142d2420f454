//! Searches for gates that cannot be satisfied and limits that lead nowhere, over all reachable pairs of a phase and a
//! set of open gates. The conditions of gates may hold or not. Expects a graph that passed the other checks of
//! `validation`.

use super::PhaseGraph;
use super::limit::resolve_exit;
use super::validation::PhaseGraphError;
use crate::ids::PhaseName;

/// Adds an error for every gate that can be open in a phase from which it can never be satisfied, and for every phase
/// whose limit can lead nowhere.
pub(super) fn find_gate_dead_ends(graph: &PhaseGraph, errors: &mut Vec<PhaseGraphError>) {
    let map = DeadEndSearchGraph::new(graph);
    let before = map.explore_reachable();
    let gate_names = |open: GateSet| -> Vec<String> {
        let open = graph.gates.iter().enumerate().filter(|(index, _)| contains_gate(open, *index));
        open.map(|(_, gate)| gate.name.clone()).collect()
    };
    for (index, gate) in graph.gates.iter().enumerate() {
        let Some(PhaseWithOpenGates { phase, open }) = map.find_dead_end(&before, index) else { continue };
        errors.push(PhaseGraphError::GateDeadEnd {
            gate: gate.name.clone(),
            needs: gate.satisfied_by.clone(),
            phase: graph.phases[phase].name.clone(),
            open: gate_names(open),
        });
    }
    for (index, phase) in graph.phases.iter().enumerate().filter(|(_, phase)| phase.limit.is_some()) {
        let mut reachable = map.reachable_states(&before).filter(|pair| pair.phase == index);
        if let Some(stuck) = reachable.find(|pair| map.phase_after_limit_reached(*pair).is_none()) {
            errors.push(PhaseGraphError::ExitNowhere { phase: phase.name.clone(), open: gate_names(stuck.open) });
        }
    }
}

/// A set of gates, with one bit per index in the graph.
type GateSet = usize;

fn contains_gate(set: GateSet, index: usize) -> bool {
    set >> index & 1 == 1
}

/// A phase, by its index in the graph, and the gates that are open in it.
#[derive(Clone, Copy)]
struct PhaseWithOpenGates {
    phase: usize,
    open: GateSet,
}

/// The graph with indices instead of names, which makes the search cheap.
struct DeadEndSearchGraph<'g> {
    graph: &'g PhaseGraph,
    nodes: Vec<DeadEndSearchPhase>,
}

struct DeadEndSearchPhase {
    next: Vec<usize>,
    blocked_by: GateSet,
    /// The gates that leaving the phase satisfies.
    satisfies: GateSet,
    /// The gates that leaving the phase satisfies if their condition holds.
    may_satisfy: GateSet,
    opens: GateSet,
}

/// The predecessors of each reachable pair.
type DeadEndSearchPredecessors = Vec<Option<Vec<usize>>>;

impl<'g> DeadEndSearchGraph<'g> {
    fn new(graph: &'g PhaseGraph) -> Self {
        let gates = |is_selected: &dyn Fn(&super::PhaseEntryGate) -> bool| {
            graph
                .gates
                .iter()
                .enumerate()
                .filter(|(_, gate)| is_selected(gate))
                .fold(0, |set, (index, _)| set | 1 << index)
        };
        let nodes = graph.phases.iter().map(|phase| DeadEndSearchPhase {
            next: graph.edges_from(&phase.name).filter_map(|edge| phase_index(graph, &edge.to)).collect(),
            blocked_by: gates(&|gate| gate.blocks_phase(phase)),
            satisfies: gates(&|gate| gate.satisfied_by == phase.name && gate.condition.is_none()),
            may_satisfy: gates(&|gate| gate.satisfied_by == phase.name && gate.condition.is_some()),
            opens: gates(&|gate| gate.opened_by == phase.name),
        });
        Self { graph, nodes: nodes.collect() }
    }

    fn explore_reachable(&self) -> DeadEndSearchPredecessors {
        let mut before: DeadEndSearchPredecessors = vec![None; self.nodes.len() << self.graph.gates.len()];
        let Some(start) = phase_index(self.graph, &self.graph.start) else { return before };
        let start = self.state_index(self.enter_and_open_gates(start, 0));
        before[start] = Some(Vec::new());
        let mut frontier = vec![start];
        while let Some(index) = frontier.pop() {
            for next in self.successors(self.state_at_index(index)) {
                let next = self.state_index(next);
                if before[next].is_none() {
                    frontier.push(next);
                }
                before[next].get_or_insert_default().push(index);
            }
        }
        before
    }

    fn reachable_states(&self, before: &DeadEndSearchPredecessors) -> impl Iterator<Item = PhaseWithOpenGates> {
        (0..before.len()).filter(|&index| before[index].is_some()).map(|index| self.state_at_index(index))
    }

    /// Returns a work phase in which the gate is open and from which it can never be satisfied.
    fn find_dead_end(&self, before: &DeadEndSearchPredecessors, gate: usize) -> Option<PhaseWithOpenGates> {
        let mut can_be_satisfied = vec![false; before.len()];
        let mut frontier: Vec<usize> = self
            .reachable_states(before)
            .filter(|pair| self.can_satisfy_gate_on_leaving(*pair, gate))
            .map(|pair| self.state_index(pair))
            .collect();
        while let Some(index) = frontier.pop() {
            if !std::mem::replace(&mut can_be_satisfied[index], true) {
                let unseen = before[index].iter().flatten().filter(|&&index| !can_be_satisfied[index]);
                frontier.extend(unseen);
            }
        }
        self.reachable_states(before)
            .filter(|pair| !can_be_satisfied[self.state_index(*pair)])
            .find(|pair| contains_gate(pair.open, gate) && !self.graph.phases[pair.phase].is_terminal())
    }

    /// Returns true if the phase can be left in a way that satisfies the gate. The fewest phases are blocked if all
    /// conditions hold.
    fn can_satisfy_gate_on_leaving(&self, PhaseWithOpenGates { phase, open }: PhaseWithOpenGates, gate: usize) -> bool {
        let node = &self.nodes[phase];
        let satisfied = open & (node.satisfies | node.may_satisfy);
        contains_gate(satisfied, gate) && node.next.iter().any(|&to| self.nodes[to].blocked_by & open & !satisfied == 0)
    }

    fn successors(&self, pair: PhaseWithOpenGates) -> Vec<PhaseWithOpenGates> {
        let PhaseWithOpenGates { phase, open } = pair;
        let node = &self.nodes[phase];
        let mut next = Vec::new();
        for satisfied in subsets(open & node.may_satisfy) {
            let still_open = open & !(node.satisfies | satisfied);
            let unblocked = node.next.iter().filter(|&&to| self.nodes[to].blocked_by & still_open == 0);
            next.extend(unblocked.map(|&to| self.enter_and_open_gates(to, still_open)));
        }
        next.extend(self.phase_after_limit_reached(pair).map(|to| self.enter_and_open_gates(to, open)));
        next
    }

    /// Returns the phase that follows when the limit is reached; `None` if there is no limit or no way out.
    fn phase_after_limit_reached(&self, PhaseWithOpenGates { phase, open }: PhaseWithOpenGates) -> Option<usize> {
        let limit = self.graph.phases[phase].limit.as_ref()?;
        let exit = resolve_exit(self.graph, &limit.exit, |index, _| contains_gate(open, index))?;
        phase_index(self.graph, &exit.to.name).filter(|to| *to != phase)
    }

    fn enter_and_open_gates(&self, phase: usize, open: GateSet) -> PhaseWithOpenGates {
        PhaseWithOpenGates { phase, open: open | self.nodes[phase].opens }
    }

    fn state_index(&self, PhaseWithOpenGates { phase, open }: PhaseWithOpenGates) -> usize {
        phase << self.graph.gates.len() | open
    }

    fn state_at_index(&self, index: usize) -> PhaseWithOpenGates {
        let gates = self.graph.gates.len();
        PhaseWithOpenGates { phase: index >> gates, open: index & ((1 << gates) - 1) }
    }
}

/// Returns all subsets of a set, the empty one included.
fn subsets(set: GateSet) -> impl Iterator<Item = GateSet> {
    // Subtracting one and masking enumerates the subsets in descending order.
    std::iter::successors(Some(set), move |&subset| (subset != 0).then(|| (subset - 1) & set))
}

fn phase_index(graph: &PhaseGraph, name: &PhaseName) -> Option<usize> {
    graph.phases.iter().position(|phase| phase.name == *name)
}
