//! Searches for gates that cannot be satisfied, over all reachable pairs of a phase and a set of open gates. Expects a
//! graph that passed the other checks of `validation`.

use super::PhaseGraph;
use super::limit::resolve_exit;
use super::validation::PhaseGraphError;
use crate::ids::PhaseName;

/// Adds an error for every gate that can be open in a phase from which it can never be satisfied.
pub(super) fn find_gate_dead_ends(graph: &PhaseGraph, errors: &mut Vec<PhaseGraphError>) {
    let map = IndexedPhaseGraph::new(graph);
    let before = map.explore_reachable();
    for (index, gate) in graph.gates.iter().enumerate() {
        let Some(PhaseWithGates { phase, open }) = map.find_dead_end(&before, index) else { continue };
        let open = graph.gates.iter().enumerate().filter(|(index, _)| contains_gate(open, *index));
        errors.push(PhaseGraphError::GateDeadEnd {
            gate: gate.name.clone(),
            needs: gate.satisfied_by.clone(),
            phase: graph.phases[phase].name.clone(),
            open: open.map(|(_, gate)| gate.name.clone()).collect(),
        });
    }
}

/// A set of gates, with one bit per index in the graph.
type GateSet = usize;

fn contains_gate(set: GateSet, index: usize) -> bool {
    set >> index & 1 == 1
}

/// A phase, by its index in the graph, and the gates that are open in it.
#[derive(Clone, Copy)]
struct PhaseWithGates {
    phase: usize,
    open: GateSet,
}

/// The graph with indices instead of names, which makes the search cheap.
struct IndexedPhaseGraph<'g> {
    graph: &'g PhaseGraph,
    nodes: Vec<IndexedPhaseNode>,
}

struct IndexedPhaseNode {
    next: Vec<usize>,
    blocked_by: GateSet,
    satisfies: GateSet,
    opens: GateSet,
}

/// The predecessors of each reachable pair.
type Predecessors = Vec<Option<Vec<usize>>>;

impl<'g> IndexedPhaseGraph<'g> {
    fn new(graph: &'g PhaseGraph) -> Self {
        let gates = |is_selected: &dyn Fn(&super::PhaseGate) -> bool| {
            graph
                .gates
                .iter()
                .enumerate()
                .filter(|(_, gate)| is_selected(gate))
                .fold(0, |set, (index, _)| set | 1 << index)
        };
        let nodes = graph.phases.iter().map(|phase| IndexedPhaseNode {
            next: graph.edges_from(&phase.name).filter_map(|edge| phase_index(graph, &edge.to)).collect(),
            blocked_by: gates(&|gate| gate.blocks_phase(phase)),
            satisfies: gates(&|gate| gate.satisfied_by == phase.name),
            opens: gates(&|gate| gate.opened_by == phase.name),
        });
        Self { graph, nodes: nodes.collect() }
    }

    fn explore_reachable(&self) -> Predecessors {
        let mut before: Predecessors = vec![None; self.nodes.len() << self.graph.gates.len()];
        let Some(start) = phase_index(self.graph, &self.graph.start) else { return before };
        let start = self.state_index(self.enter_phase(start, 0));
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

    /// Returns a work phase in which the gate is open and from which it can never be satisfied.
    fn find_dead_end(&self, before: &Predecessors, gate: usize) -> Option<PhaseWithGates> {
        let reachable = || (0..before.len()).filter(|&index| before[index].is_some());
        let mut can_be_satisfied = vec![false; before.len()];
        let mut frontier: Vec<usize> = reachable()
            .filter(|&index| contains_gate(self.nodes[self.state_at_index(index).phase].satisfies, gate))
            .collect();
        while let Some(index) = frontier.pop() {
            if !std::mem::replace(&mut can_be_satisfied[index], true) {
                let unseen = before[index].iter().flatten().filter(|&&index| !can_be_satisfied[index]);
                frontier.extend(unseen);
            }
        }
        reachable()
            .filter(|&index| !can_be_satisfied[index])
            .map(|index| self.state_at_index(index))
            .find(|pair| contains_gate(pair.open, gate) && !self.graph.phases[pair.phase].is_terminal())
    }

    fn successors(&self, PhaseWithGates { phase, open }: PhaseWithGates) -> Vec<PhaseWithGates> {
        let unblocked = self.nodes[phase].next.iter().copied().filter(|&to| self.nodes[to].blocked_by & open == 0);
        let limit = self.graph.phases[phase].limit.as_ref();
        let on_expiry =
            limit.and_then(|limit| resolve_exit(self.graph, &limit.exit, |index, _| contains_gate(open, index)));
        unblocked
            .chain(on_expiry.and_then(|exit| phase_index(self.graph, &exit.to.name)))
            .map(|to| self.enter_phase(to, open))
            .collect()
    }

    fn enter_phase(&self, phase: usize, open: GateSet) -> PhaseWithGates {
        let node = &self.nodes[phase];
        PhaseWithGates { phase, open: open & !node.satisfies | node.opens }
    }

    fn state_index(&self, PhaseWithGates { phase, open }: PhaseWithGates) -> usize {
        phase << self.graph.gates.len() | open
    }

    fn state_at_index(&self, index: usize) -> PhaseWithGates {
        let gates = self.graph.gates.len();
        PhaseWithGates { phase: index >> gates, open: index & ((1 << gates) - 1) }
    }
}

fn phase_index(graph: &PhaseGraph, name: &PhaseName) -> Option<usize> {
    graph.phases.iter().position(|phase| phase.name == *name)
}
