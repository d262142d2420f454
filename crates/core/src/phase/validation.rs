//! Finds errors in a graph before it is used. Guards are assumed to be passable unless they never can be.

use crate::limits::{GATES_PER_GRAPH_MAX, PHASES_PER_GRAPH_MAX};
use std::collections::BTreeSet;

use super::{PhaseEntryGate, PhaseGraph, PhaseKind, PhaseSpec, dead_end, format_quoted_names};
use crate::ids::PhaseName;

/// An error in a graph, with a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PhaseGraphError {
    /// There are more phases or gates than allowed.
    #[error("the graph has {count} {what}; at most {max} are allowed")]
    TooMany { what: &'static str, count: usize, max: usize },
    /// A phase, gate or condition has no name.
    #[error("a {what} has an empty name; give it one")]
    EmptyName {
        /// `phase`, `gate` or `condition`.
        what: &'static str,
    },
    /// The graph refers to a phase that does not exist.
    #[error("{location} names phase `{phase}`, which does not exist; phases are {}", format_quoted_names(.known))]
    UnknownPhase { location: String, phase: PhaseName, known: Vec<PhaseName> },
    #[error("the phase `{phase}` is declared more than once; keep one")]
    DuplicatePhase { phase: PhaseName },
    #[error("there is more than one edge from `{from}` to `{to}`; join their guards with `any`")]
    DuplicateEdge { from: PhaseName, to: PhaseName },
    #[error("the gate `{gate}` is declared more than once; keep one")]
    DuplicateGate { gate: String },
    /// The guard of an edge can never be met.
    #[error("the guard from `{from}` to `{to}` can never be met; list at least one alternative, or remove the edge")]
    GuardImpossible { from: PhaseName, to: PhaseName },
    /// A limit has no maximum.
    #[error("the limit of `{phase}` is empty; set `turns_max`, `rounds_max` or `ms_max`")]
    LimitEmpty { phase: PhaseName },
    /// A limit is zero.
    #[error("the limit of `{phase}` is zero; set it to at least 1")]
    LimitZero { phase: PhaseName },
    /// The exit of a limit is the phase itself.
    #[error("the limit of `{phase}` leads back to `{phase}`; name another phase as its exit")]
    ExitToSelf { phase: PhaseName },
    /// The phase opens a gate that blocks the exit of its limit.
    #[error(
        "the limit of `{phase}` leads to `{exit}`, which gate `{gate}` blocks because `{phase}` opens it; \
         use `{needs}` as exit, or unblock `{exit}`"
    )]
    ExitBlocked {
        phase: PhaseName,
        exit: PhaseName,
        gate: String,
        /// The phase that satisfies the gate.
        needs: PhaseName,
    },
    /// The exit of a limit is blocked by a gate that the phase itself satisfies.
    #[error(
        "the limit of `{phase}` leads to `{exit}`, which gate `{gate}` blocks until `{phase}` is completed, and a limit \
         completes nothing; use an exit that the gate does not block"
    )]
    ExitThroughGate { phase: PhaseName, exit: PhaseName, gate: String },
    /// A limit leads nowhere, because gates block its exit and each other.
    #[error(
        "in `{phase}` with {} open, the limit leads nowhere, because the gates lead back to `{phase}` or to each other; \
         use an exit that they do not block",
        format_quoted_names(.open)
    )]
    ExitNowhere {
        phase: PhaseName,
        /// The gates that are open there.
        open: Vec<String>,
    },
    /// A terminal phase has edges or a limit.
    #[error("`{phase}` is terminal but has an exit; remove its edges and its limit, or make it a work phase")]
    TerminalWithExit { phase: PhaseName },
    /// A work phase has no exit.
    #[error("`{phase}` has no exit; add an edge or a limit, or make it terminal")]
    NoExit { phase: PhaseName },
    /// A phase cannot be reached.
    #[error("`{phase}` cannot be reached from `{start}`; add an edge that leads to it, or remove it")]
    Unreachable { phase: PhaseName, start: PhaseName },
    /// The same phase opens and satisfies a gate that needs no evidence.
    #[error(
        "the gate `{gate}` is opened and satisfied by the same phase `{phase}`; name two different phases, or a condition"
    )]
    GateOpensItself { gate: String, phase: PhaseName },
    /// The phase that satisfies a gate cannot be left.
    #[error("the gate `{gate}` is satisfied by leaving `{phase}`, which is terminal; name a work phase")]
    GateNeverSatisfied { gate: String, phase: PhaseName },
    /// A gate blocks the phase that satisfies it.
    #[error("the gate `{gate}` blocks `{phase}`, which satisfies it; remove `{phase}` from `blocks`")]
    GateBlocksItself { gate: String, phase: PhaseName },
    /// A gate blocks no phase.
    #[error("the gate `{gate}` blocks nothing; name the phases that must wait for `{needs}`")]
    GateBlocksNothing {
        gate: String,
        /// The phase that satisfies the gate.
        needs: PhaseName,
    },
    /// A gate can be open in a phase from which it can never be satisfied.
    #[error(
        "in `{phase}` with {} open, `{needs}` cannot be completed, so gate `{gate}` can never be satisfied; \
         add an edge towards `{needs}` or out of it, or block fewer phases",
        format_quoted_names(.open)
    )]
    GateDeadEnd {
        gate: String,
        /// The phase that satisfies the gate.
        needs: PhaseName,
        phase: PhaseName,
        /// The gates that are open there.
        open: Vec<String>,
    },
}

impl PhaseGraph {
    /// Checks the graph.
    ///
    /// # Errors
    /// Returns all errors. Reachability is checked only if there are no other errors.
    pub(crate) fn validate(&self) -> Result<(), Vec<PhaseGraphError>> {
        let mut errors = Vec::new();
        self.check_sizes_and_names(&mut errors);
        self.check_edges(&mut errors);
        self.phases.iter().for_each(|phase| self.check_limit(phase, &mut errors));
        self.gates.iter().for_each(|gate| self.check_gate(gate, &mut errors));
        if errors.is_empty() {
            self.check_exits_and_reachability(&mut errors);
        }
        if errors.is_empty() {
            dead_end::find_gate_dead_ends(self, &mut errors);
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn check_sizes_and_names(&self, errors: &mut Vec<PhaseGraphError>) {
        let mut too_many = |what, count, max| {
            if count > max {
                errors.push(PhaseGraphError::TooMany { what, count, max });
            }
        };
        too_many("phases", self.phases.len(), PHASES_PER_GRAPH_MAX);
        too_many("gates", self.gates.len(), GATES_PER_GRAPH_MAX);
        self.check_phase_exists("the start", &self.start, errors);
        for phase in find_duplicates(self.phases.iter().map(|phase| &phase.name)) {
            errors.push(PhaseGraphError::DuplicatePhase { phase: phase.clone() });
        }
        for gate in find_duplicates(self.gates.iter().map(|gate| &gate.name)) {
            errors.push(PhaseGraphError::DuplicateGate { gate: gate.clone() });
        }
        if self.phases.iter().any(|phase| phase.name.as_str().trim().is_empty()) {
            errors.push(PhaseGraphError::EmptyName { what: "phase" });
        }
        if self.gates.iter().any(|gate| gate.name.trim().is_empty()) {
            errors.push(PhaseGraphError::EmptyName { what: "gate" });
        }
        if self.gates.iter().filter_map(|gate| gate.condition.as_ref()).any(|name| name.trim().is_empty()) {
            errors.push(PhaseGraphError::EmptyName { what: "condition" });
        }
    }

    fn check_phase_exists(&self, location: &str, phase: &PhaseName, errors: &mut Vec<PhaseGraphError>) {
        if self.find_phase(phase).is_none() {
            let known = self.phases.iter().map(|phase| phase.name.clone()).collect();
            errors.push(PhaseGraphError::UnknownPhase { location: location.to_owned(), phase: phase.clone(), known });
        }
    }

    fn check_edges(&self, errors: &mut Vec<PhaseGraphError>) {
        for edge in &self.edges {
            let location = format!("the edge from `{}` to `{}`", edge.from, edge.to);
            self.check_phase_exists(&location, &edge.from, errors);
            if edge.to != edge.from {
                self.check_phase_exists(&location, &edge.to, errors);
            }
            if edge.guard.can_never_be_met() {
                errors.push(PhaseGraphError::GuardImpossible { from: edge.from.clone(), to: edge.to.clone() });
            }
        }
        for (from, to) in find_duplicates(self.edges.iter().map(|edge| (&edge.from, &edge.to))) {
            errors.push(PhaseGraphError::DuplicateEdge { from: from.clone(), to: to.clone() });
        }
    }

    fn check_limit(&self, phase: &PhaseSpec, errors: &mut Vec<PhaseGraphError>) {
        let Some(limit) = &phase.limit else { return };
        let name = || phase.name.clone();
        self.check_phase_exists(&format!("the limit of `{}`", phase.name), &limit.exit, errors);
        if limit.exit == phase.name {
            errors.push(PhaseGraphError::ExitToSelf { phase: name() });
        }
        if limit.turns_max.is_none() && limit.rounds_max.is_none() && limit.ms_max.is_none() {
            errors.push(PhaseGraphError::LimitEmpty { phase: name() });
        }
        if limit.turns_max == Some(0) || limit.rounds_max == Some(0) || limit.ms_max == Some(0) {
            errors.push(PhaseGraphError::LimitZero { phase: name() });
        }
        let Some(exit) = self.find_phase(&limit.exit) else { return };
        for gate in self.gates.iter().filter(|gate| gate.blocks_phase(exit)) {
            let (exit, needs) = (exit.name.clone(), gate.satisfied_by.clone());
            let gate_name = gate.name.clone();
            if gate.satisfied_by == phase.name {
                errors.push(PhaseGraphError::ExitThroughGate { phase: name(), exit, gate: gate_name });
            } else if gate.opened_by == phase.name {
                errors.push(PhaseGraphError::ExitBlocked { phase: name(), exit, gate: gate_name, needs });
            }
        }
    }

    fn check_gate(&self, gate: &PhaseEntryGate, errors: &mut Vec<PhaseGraphError>) {
        let location = format!("the gate `{}`", gate.name);
        for phase in [&gate.opened_by, &gate.satisfied_by].into_iter().chain(&gate.blocks) {
            self.check_phase_exists(&location, phase, errors);
        }
        let name = || gate.name.clone();
        if gate.opened_by == gate.satisfied_by && gate.condition.is_none() {
            errors.push(PhaseGraphError::GateOpensItself { gate: name(), phase: gate.opened_by.clone() });
        }
        if self.find_phase(&gate.satisfied_by).is_some_and(PhaseSpec::is_terminal) {
            errors.push(PhaseGraphError::GateNeverSatisfied { gate: name(), phase: gate.satisfied_by.clone() });
        }
        if gate.blocks.contains(&gate.satisfied_by) {
            errors.push(PhaseGraphError::GateBlocksItself { gate: name(), phase: gate.satisfied_by.clone() });
        }
        if gate.blocks.is_empty() && !self.phases.iter().any(|phase| phase.kind == PhaseKind::End) {
            errors.push(PhaseGraphError::GateBlocksNothing { gate: name(), needs: gate.satisfied_by.clone() });
        }
    }

    fn check_exits_and_reachability(&self, errors: &mut Vec<PhaseGraphError>) {
        for phase in &self.phases {
            let leaves = phase.limit.is_some() || self.edges_from(&phase.name).any(|edge| edge.to != phase.name);
            let returns = self.edges_from(&phase.name).any(|edge| edge.to == phase.name);
            match (phase.is_terminal(), leaves) {
                (true, _) if leaves || returns => {
                    errors.push(PhaseGraphError::TerminalWithExit { phase: phase.name.clone() })
                }
                (false, false) => errors.push(PhaseGraphError::NoExit { phase: phase.name.clone() }),
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
            errors.push(PhaseGraphError::Unreachable { phase: phase.name.clone(), start: self.start.clone() });
        }
    }
}

fn find_duplicates<T: Ord + Clone>(names: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(name.clone())).collect()
}
