//! The search for gates that cannot be satisfied: over all pairs of a phase and a set of open gates that can be met without a
//! grant. Expects a graph whose parts are sound; `fault` sees to that.

use super::PhaseGraph;
use super::limit::resolve_exit;
use super::validation::PhaseGraphError;
use crate::ids::PhaseName;

/// Adds a fault for every gate that can be open where no way leads to its satisfaction.
pub(super) fn find_gate_dead_ends(graph: &PhaseGraph, faults: &mut Vec<PhaseGraphError>) {
    let map = GateStateGraph::new(graph);
    let before = map.explore_reachable();
    for (place, gate) in graph.gates.iter().enumerate() {
        let Some(PhaseWithGates { phase, open }) = map.find_dead_end(&before, place) else { continue };
        let open = graph.gates.iter().enumerate().filter(|(place, _)| contains_gate(open, *place));
        faults.push(PhaseGraphError::GateDeadEnd {
            gate: gate.name.clone(),
            needs: gate.satisfied_by.clone(),
            phase: graph.phases[phase].name.clone(),
            open: open.map(|(_, gate)| gate.name.clone()).collect(),
        });
    }
}

/// A set of gates: a bit for each place in the graph.
type GateSet = usize;

fn contains_gate(set: GateSet, index: usize) -> bool {
    set >> index & 1 == 1
}

/// A phase, by its place in the graph, and the gates open in it.
#[derive(Clone, Copy)]
struct PhaseWithGates {
    phase: usize,
    open: GateSet,
}

/// The graph with places for names, so that looking at every pair is cheap.
struct GateStateGraph<'g> {
    graph: &'g PhaseGraph,
    nodes: Vec<PhaseNode>,
}

struct PhaseNode {
    next: Vec<usize>,
    blocked_by: GateSet,
    satisfies: GateSet,
    opens: GateSet,
}

/// For each pair that can be met: those it can be entered from.
type Predecessors = Vec<Option<Vec<usize>>>;

impl<'g> GateStateGraph<'g> {
    fn new(graph: &'g PhaseGraph) -> Self {
        let gates = |wanted: &dyn Fn(&super::PhaseGate) -> bool| {
            graph.gates.iter().enumerate().filter(|(_, gate)| wanted(gate)).fold(0, |set, (place, _)| set | 1 << place)
        };
        let nodes = graph.phases.iter().map(|phase| PhaseNode {
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
        while let Some(number) = frontier.pop() {
            for next in self.successors(self.state_at_index(number)) {
                let next = self.state_index(next);
                if before[next].is_none() {
                    frontier.push(next);
                }
                before[next].get_or_insert_default().push(number);
            }
        }
        before
    }

    /// A phase of work in which the gate is open and from which no way leads to its satisfaction.
    fn find_dead_end(&self, before: &Predecessors, gate: usize) -> Option<PhaseWithGates> {
        let met = || (0..before.len()).filter(|&number| before[number].is_some());
        let mut hopeful = vec![false; before.len()];
        let mut frontier: Vec<usize> = met()
            .filter(|&number| contains_gate(self.nodes[self.state_at_index(number).phase].satisfies, gate))
            .collect();
        while let Some(number) = frontier.pop() {
            if !std::mem::replace(&mut hopeful[number], true) {
                let unseen = before[number].iter().flatten().filter(|&&number| !hopeful[number]);
                frontier.extend(unseen);
            }
        }
        met()
            .filter(|&number| !hopeful[number])
            .map(|number| self.state_at_index(number))
            .find(|pair| contains_gate(pair.open, gate) && !self.graph.phases[pair.phase].is_terminal())
    }

    fn successors(&self, PhaseWithGates { phase, open }: PhaseWithGates) -> Vec<PhaseWithGates> {
        let free = self.nodes[phase].next.iter().copied().filter(|&to| self.nodes[to].blocked_by & open == 0);
        let limit = self.graph.phases[phase].limit.as_ref();
        let on_expiry =
            limit.and_then(|limit| resolve_exit(self.graph, &limit.exit, |place, _| contains_gate(open, place)));
        free.chain(on_expiry.and_then(|way| phase_index(self.graph, &way.to.name)))
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

    fn state_at_index(&self, number: usize) -> PhaseWithGates {
        let gates = self.graph.gates.len();
        PhaseWithGates { phase: number >> gates, open: number & ((1 << gates) - 1) }
    }
}

fn phase_index(graph: &PhaseGraph, name: &PhaseName) -> Option<usize> {
    graph.phases.iter().position(|phase| phase.name == *name)
}
