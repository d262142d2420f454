//! What is wrong with a graph, found before anything runs on it. Guards are taken to be passable unless they never can be;
//! whether a flow ever makes them hold is not decided here.

use crate::limits::{GATES_PER_GRAPH_MAX, PHASES_PER_GRAPH_MAX};
use std::collections::BTreeSet;

use super::dead_end;
use super::{PhaseGate, PhaseGraph, PhaseKind, PhaseSpec, format_quoted_names};
use crate::ids::PhaseName;

/// One thing that is wrong with a graph, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhaseGraphError {
    /// More than the limit.
    #[error("the graph has {count} {what}; at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A phase or gate has no name.
    #[error("a {what} has an empty name; give it one")]
    EmptyName {
        /// Phase or gate.
        what: &'static str,
    },
    /// A name that is no phase.
    #[error("{location} names the phase `{phase}`, which the graph does not have; it has {}", format_quoted_names(.known))]
    UnknownPhase {
        /// Where it is named.
        location: String,
        /// The name.
        phase: PhaseName,
        /// What could have been named.
        known: Vec<PhaseName>,
    },
    /// Two phases of one name.
    #[error("the phase `{phase}` is declared more than once; keep one")]
    DuplicatePhase {
        /// The name.
        phase: PhaseName,
    },
    /// Two edges between the same phases.
    #[error("there is more than one edge from `{from}` to `{to}`; join their guards with `any`")]
    DuplicateEdge {
        /// Where they begin.
        from: PhaseName,
        /// Where they lead.
        to: PhaseName,
    },
    /// Two gates of one name.
    #[error("the gate `{gate}` is declared more than once; keep one")]
    DuplicateGate {
        /// The name.
        gate: String,
    },
    /// An edge nobody can ever go along.
    #[error("the guard from `{from}` to `{to}` can never hold; list at least one alternative, or remove the edge")]
    GuardImpossible {
        /// Where it begins.
        from: PhaseName,
        /// Where it leads.
        to: PhaseName,
    },
    /// A limit that limits nothing.
    #[error("the limit of `{phase}` sets no bound; give `turns_max` or `ms_max`")]
    LimitEmpty {
        /// The phase.
        phase: PhaseName,
    },
    /// A limit that is over before anything can happen.
    #[error("the limit of `{phase}` is zero, so nothing could happen in it; give at least 1")]
    LimitZero {
        /// The phase.
        phase: PhaseName,
    },
    /// A limit that leads nowhere.
    #[error("the limit of `{phase}` leads back into `{phase}`; name another phase as its exit")]
    ExitToSelf {
        /// The phase.
        phase: PhaseName,
    },
    /// A limit whose exit the phase itself bars.
    #[error(
        "the limit of `{phase}` leads to `{exit}`, which gate `{gate}` bars because `{phase}` opens it; \
         lead to `{needs}`, or unblock `{exit}`"
    )]
    ExitBlocked {
        /// The phase.
        phase: PhaseName,
        /// Its limit's exit.
        exit: PhaseName,
        /// The gate between them.
        gate: String,
        /// What the gate waits for.
        needs: PhaseName,
    },
    /// An end that is none.
    #[error("`{phase}` is an end and yet has a way out; remove its edges and its limit, or make it a phase of work")]
    TerminalWithExit {
        /// The phase.
        phase: PhaseName,
    },
    /// A phase in which everything would stick.
    #[error("no way leads out of `{phase}`; give it an edge or a limit, or make it an end")]
    NoExit {
        /// The phase.
        phase: PhaseName,
    },
    /// A phase nobody gets to.
    #[error("`{phase}` cannot be reached from `{start}`; add an edge that leads to it, or remove it")]
    Unreachable {
        /// The phase.
        phase: PhaseName,
        /// Where the graph begins.
        start: PhaseName,
    },
    /// A gate that is satisfied by what opens it.
    #[error("the gate `{gate}` is opened and satisfied by the same phase `{phase}`; name two")]
    GateOpensItself {
        /// The gate.
        gate: String,
        /// The phase.
        phase: PhaseName,
    },
    /// A gate that bars its own satisfaction.
    #[error("the gate `{gate}` blocks `{phase}`, which alone satisfies it; take `{phase}` out of `blocks`")]
    GateBlocksItself {
        /// The gate.
        gate: String,
        /// What satisfies it.
        phase: PhaseName,
    },
    /// A gate that bars nothing.
    #[error("the gate `{gate}` blocks nothing; name the phases that must wait for `{needs}`")]
    GateBlocksNothing {
        /// The gate.
        gate: String,
        /// What satisfies it.
        needs: PhaseName,
    },
    /// A gate that can be open with no way to satisfy it.
    #[error(
        "in `{phase}` with {} open, no way leads to `{needs}`, so gate `{gate}` can never be satisfied; \
         add an edge towards `{needs}`, or block less",
        format_quoted_names(.open)
    )]
    GateDeadEnd {
        /// The gate.
        gate: String,
        /// What would satisfy it.
        needs: PhaseName,
        /// A phase from which nothing does.
        phase: PhaseName,
        /// The gates open there.
        open: Vec<String>,
    },
}

impl PhaseGraph {
    /// Looks for everything that is wrong with this graph.
    ///
    /// # Errors
    /// All faults found. What follows from the way phases hang together is looked for only if each part is sound.
    pub fn validate(&self) -> Result<(), Vec<PhaseGraphError>> {
        let mut faults = Vec::new();
        self.check_names(&mut faults);
        self.check_edges(&mut faults);
        self.phases.iter().for_each(|phase| self.check_limit(phase, &mut faults));
        self.gates.iter().for_each(|gate| self.check_gate(gate, &mut faults));
        if faults.is_empty() {
            self.check_exits_and_reachability(&mut faults);
        }
        if faults.is_empty() {
            dead_end::find_gate_dead_ends(self, &mut faults);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn check_names(&self, faults: &mut Vec<PhaseGraphError>) {
        let mut too_many = |what, count, max| {
            if count > max {
                faults.push(PhaseGraphError::TooMany { what, count, max });
            }
        };
        too_many("phases", self.phases.len(), PHASES_PER_GRAPH_MAX);
        too_many("gates", self.gates.len(), GATES_PER_GRAPH_MAX);
        self.check_phase_exists("the start", &self.start, faults);
        for phase in find_duplicates(self.phases.iter().map(|phase| &phase.name)) {
            faults.push(PhaseGraphError::DuplicatePhase { phase: phase.clone() });
        }
        for gate in find_duplicates(self.gates.iter().map(|gate| &gate.name)) {
            faults.push(PhaseGraphError::DuplicateGate { gate: gate.clone() });
        }
        if self.phases.iter().any(|phase| phase.name.as_str().trim().is_empty()) {
            faults.push(PhaseGraphError::EmptyName { what: "phase" });
        }
        if self.gates.iter().any(|gate| gate.name.trim().is_empty()) {
            faults.push(PhaseGraphError::EmptyName { what: "gate" });
        }
    }

    fn check_phase_exists(&self, location: &str, phase: &PhaseName, faults: &mut Vec<PhaseGraphError>) {
        if self.find_phase(phase).is_none() {
            let known = self.phases.iter().map(|phase| phase.name.clone()).collect();
            faults.push(PhaseGraphError::UnknownPhase { location: location.to_owned(), phase: phase.clone(), known });
        }
    }

    fn check_edges(&self, faults: &mut Vec<PhaseGraphError>) {
        for edge in &self.edges {
            let place = format!("the edge from `{}` to `{}`", edge.from, edge.to);
            self.check_phase_exists(&place, &edge.from, faults);
            if edge.to != edge.from {
                self.check_phase_exists(&place, &edge.to, faults);
            }
            if edge.guard.is_impossible() {
                faults.push(PhaseGraphError::GuardImpossible { from: edge.from.clone(), to: edge.to.clone() });
            }
        }
        for (from, to) in find_duplicates(self.edges.iter().map(|edge| (&edge.from, &edge.to))) {
            faults.push(PhaseGraphError::DuplicateEdge { from: from.clone(), to: to.clone() });
        }
    }

    fn check_limit(&self, phase: &PhaseSpec, faults: &mut Vec<PhaseGraphError>) {
        let Some(limit) = &phase.limit else { return };
        let name = || phase.name.clone();
        self.check_phase_exists(&format!("the limit of `{}`", phase.name), &limit.exit, faults);
        if limit.exit == phase.name {
            faults.push(PhaseGraphError::ExitToSelf { phase: name() });
        }
        if limit.turns_max.is_none() && limit.ms_max.is_none() {
            faults.push(PhaseGraphError::LimitEmpty { phase: name() });
        }
        if limit.turns_max == Some(0) || limit.ms_max == Some(0) {
            faults.push(PhaseGraphError::LimitZero { phase: name() });
        }
        let Some(exit) = self.find_phase(&limit.exit) else { return };
        for gate in self.gates.iter().filter(|gate| gate.opened_by == phase.name && gate.blocks_phase(exit)) {
            let (gate, needs) = (gate.name.clone(), gate.satisfied_by.clone());
            faults.push(PhaseGraphError::ExitBlocked { phase: name(), exit: exit.name.clone(), gate, needs });
        }
    }

    fn check_gate(&self, gate: &PhaseGate, faults: &mut Vec<PhaseGraphError>) {
        let place = format!("the gate `{}`", gate.name);
        for phase in [&gate.opened_by, &gate.satisfied_by].into_iter().chain(&gate.blocks) {
            self.check_phase_exists(&place, phase, faults);
        }
        let name = || gate.name.clone();
        if gate.opened_by == gate.satisfied_by {
            faults.push(PhaseGraphError::GateOpensItself { gate: name(), phase: gate.opened_by.clone() });
        }
        if gate.blocks.contains(&gate.satisfied_by) {
            faults.push(PhaseGraphError::GateBlocksItself { gate: name(), phase: gate.satisfied_by.clone() });
        }
        if gate.blocks.is_empty() && !self.phases.iter().any(|phase| phase.kind == PhaseKind::End) {
            faults.push(PhaseGraphError::GateBlocksNothing { gate: name(), needs: gate.satisfied_by.clone() });
        }
    }

    fn check_exits_and_reachability(&self, faults: &mut Vec<PhaseGraphError>) {
        for phase in &self.phases {
            let leaves = phase.limit.is_some() || self.edges_from(&phase.name).any(|edge| edge.to != phase.name);
            let returns = self.edges_from(&phase.name).any(|edge| edge.to == phase.name);
            match (phase.is_terminal(), leaves) {
                (true, _) if leaves || returns => {
                    faults.push(PhaseGraphError::TerminalWithExit { phase: phase.name.clone() })
                }
                (false, false) => faults.push(PhaseGraphError::NoExit { phase: phase.name.clone() }),
                (true | false, _) => {}
            }
        }
        let mut reached = BTreeSet::from([&self.start]);
        let mut frontier = vec![&self.start];
        while let Some(phase) = frontier.pop() {
            let exit = self.find_phase(phase).and_then(|phase| phase.limit.as_ref()).map(|limit| &limit.exit);
            let next = self.edges_from(phase).map(|edge| &edge.to).chain(exit);
            frontier.extend(next.filter(|next| reached.insert(next)));
        }
        for phase in self.phases.iter().filter(|phase| !reached.contains(&phase.name)) {
            faults.push(PhaseGraphError::Unreachable { phase: phase.name.clone(), start: self.start.clone() });
        }
    }
}

fn find_duplicates<T: Ord + Clone>(names: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(name.clone())).collect()
}
