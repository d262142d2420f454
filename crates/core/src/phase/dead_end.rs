//! The search for gates that cannot be satisfied: over all pairs of a phase and a set of open gates that can be met without a
//! grant. Expects a graph whose parts are sound; `fault` sees to that.

use super::PhaseGraph;
use super::fault::GraphFault;
use super::limit::way_out;
use crate::ids::PhaseName;

/// Adds a fault for every gate that can be open where no way leads to its satisfaction.
pub(super) fn search(graph: &PhaseGraph, faults: &mut Vec<GraphFault>) {
    let map = Map::of(graph);
    let before = map.walk();
    for (place, gate) in graph.gates.iter().enumerate() {
        let Some(Pair { phase, open }) = map.dead_end(&before, place) else { continue };
        let open = graph.gates.iter().enumerate().filter(|(place, _)| has(open, *place));
        faults.push(GraphFault::GateDeadEnd {
            gate: gate.name.clone(),
            needs: gate.satisfied_by.clone(),
            phase: graph.phases[phase].name.clone(),
            open: open.map(|(_, gate)| gate.name.clone()).collect(),
        });
    }
}

/// A set of gates: a bit for each place in the graph.
type GateSet = usize;

fn has(set: GateSet, place: usize) -> bool {
    set >> place & 1 == 1
}

/// A phase, by its place in the graph, and the gates open in it.
#[derive(Clone, Copy)]
struct Pair {
    phase: usize,
    open: GateSet,
}

/// The graph with places for names, so that looking at every pair is cheap.
struct Map<'g> {
    graph: &'g PhaseGraph,
    nodes: Vec<Node>,
}

struct Node {
    next: Vec<usize>,
    barred_by: GateSet,
    satisfies: GateSet,
    opens: GateSet,
}

/// For each pair that can be met: those it can be entered from.
type Before = Vec<Option<Vec<usize>>>;

impl<'g> Map<'g> {
    fn of(graph: &'g PhaseGraph) -> Self {
        let gates = |wanted: &dyn Fn(&super::Gate) -> bool| {
            graph.gates.iter().enumerate().filter(|(_, gate)| wanted(gate)).fold(0, |set, (place, _)| set | 1 << place)
        };
        let nodes = graph.phases.iter().map(|phase| Node {
            next: graph.edges_from(&phase.name).filter_map(|edge| place(graph, &edge.to)).collect(),
            barred_by: gates(&|gate| gate.bars(phase)),
            satisfies: gates(&|gate| gate.satisfied_by == phase.name),
            opens: gates(&|gate| gate.opened_by == phase.name),
        });
        Self { graph, nodes: nodes.collect() }
    }

    fn walk(&self) -> Before {
        let mut before: Before = vec![None; self.nodes.len() << self.graph.gates.len()];
        let Some(start) = place(self.graph, &self.graph.start) else { return before };
        let start = self.number(self.entered(start, 0));
        before[start] = Some(Vec::new());
        let mut frontier = vec![start];
        while let Some(number) = frontier.pop() {
            for next in self.after(self.pair(number)) {
                let next = self.number(next);
                if before[next].is_none() {
                    frontier.push(next);
                }
                before[next].get_or_insert_default().push(number);
            }
        }
        before
    }

    /// A phase of work in which the gate is open and from which no way leads to its satisfaction.
    fn dead_end(&self, before: &Before, gate: usize) -> Option<Pair> {
        let met = || (0..before.len()).filter(|&number| before[number].is_some());
        let mut hopeful = vec![false; before.len()];
        let mut frontier: Vec<usize> =
            met().filter(|&number| has(self.nodes[self.pair(number).phase].satisfies, gate)).collect();
        while let Some(number) = frontier.pop() {
            if !std::mem::replace(&mut hopeful[number], true) {
                let unseen = before[number].iter().flatten().filter(|&&number| !hopeful[number]);
                frontier.extend(unseen);
            }
        }
        met()
            .filter(|&number| !hopeful[number])
            .map(|number| self.pair(number))
            .find(|pair| has(pair.open, gate) && !self.graph.phases[pair.phase].is_terminal())
    }

    fn after(&self, Pair { phase, open }: Pair) -> Vec<Pair> {
        let free = self.nodes[phase].next.iter().copied().filter(|&to| self.nodes[to].barred_by & open == 0);
        let limit = self.graph.phases[phase].limit.as_ref();
        let on_expiry = limit.and_then(|limit| way_out(self.graph, &limit.exit, |place, _| has(open, place)));
        free.chain(on_expiry.and_then(|way| place(self.graph, &way.to.name))).map(|to| self.entered(to, open)).collect()
    }

    fn entered(&self, phase: usize, open: GateSet) -> Pair {
        let node = &self.nodes[phase];
        Pair { phase, open: open & !node.satisfies | node.opens }
    }

    fn number(&self, Pair { phase, open }: Pair) -> usize {
        phase << self.graph.gates.len() | open
    }

    fn pair(&self, number: usize) -> Pair {
        let gates = self.graph.gates.len();
        Pair { phase: number >> gates, open: number & ((1 << gates) - 1) }
    }
}

fn place(graph: &PhaseGraph, name: &PhaseName) -> Option<usize> {
    graph.phases.iter().position(|phase| phase.name == *name)
}
