//! Properties that hold on every path through every graph, valid or not.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{PhaseName, UnixMillis};
use crate::phase::diagram::render_mermaid;
use crate::phase::guard::{
    Guard, PhaseConditionVerdict, PhaseGuardInputs, PhaseTransitionProposer, PhaseTransitionProposerKind,
};
use crate::phase::limit::{expiry_transition, visit_deadline};
use crate::phase::ruling::{PhaseProposalRuling, PhaseRefusal, allowed_phases, rule_on_proposal};
use crate::phase::state::{
    PhaseGraphState, PhaseTransition, PhaseTransitionCause, PhaseTransitionNote, SkippedRequirement,
};
use crate::phase::user_override::{issue_skip_grant, plan_rollback};
use crate::phase::validation::PhaseGraphError;
use crate::phase::{PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseLimit, PhaseSpec};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{all_conditions_hold, proposal, seven};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The next step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Propose(usize, PhaseTransitionProposer, PhaseGuardInputs),
    Grant(usize, PhaseTransitionProposer),
    Revoke(usize),
    Turn,
    Round,
    Wait(u64),
    /// The session waits for a person or another session.
    WaitForOthers(u64),
    Rollback(usize, PhaseTransitionProposer),
}

/// A phase that was entered.
#[derive(Clone)]
struct Entry {
    phase: PhaseName,
    /// The gates whose phase was left with evidence.
    evidence: BTreeSet<String>,
    /// The gates that a grant skipped.
    waived: BTreeSet<String>,
}

type Path = Vec<Entry>;

/// A history and an independent computation of the open gates from the path alone.
struct History<'g> {
    graph: &'g PhaseGraph,
    state: PhaseGraphState,
    now: UnixMillis,
    /// Restored by a rollback.
    path: Path,
    past: Vec<(PhaseGraphState, Path)>,
}

impl<'g> History<'g> {
    fn begin(graph: &'g PhaseGraph) -> Self {
        let state = PhaseGraphState::new(graph, UnixMillis(0));
        let path = vec![Entry { phase: graph.start.clone(), evidence: BTreeSet::new(), waived: BTreeSet::new() }];
        Self { graph, past: vec![(state.clone(), path.clone())], state, now: UnixMillis(0), path }
    }

    fn open_by_path(&self) -> BTreeSet<String> {
        let is_open = |gate: &&PhaseEntryGate| {
            let mut open = false;
            for Entry { phase, evidence, waived } in &self.path {
                open &= !evidence.contains(&gate.name) && !waived.contains(&gate.name);
                open |= *phase == gate.opened_by;
            }
            open
        };
        self.graph.gates.iter().filter(is_open).map(|gate| gate.name.clone()).collect()
    }

    fn step(&mut self, step: &Step) {
        let phases = &self.graph.phases;
        let phase = |number: usize| phases[number % phases.len()].name.clone();
        match step {
            Step::Propose(to, by, conditions) => {
                let proposal = proposal(phase(*to), by.clone());
                let may = allowed_phases(self.graph, &self.state, by, conditions);
                match rule_on_proposal(self.graph, &self.state, &proposal, conditions) {
                    PhaseProposalRuling::Enter(transition) => {
                        assert_eq!(may.contains(&proposal.to), transition.is_visit_start());
                        let evidence = self.evidence_on_leaving(conditions);
                        self.enter(&transition, evidence);
                    }
                    PhaseProposalRuling::Refuse(refusal) => {
                        assert!(!may.contains(&proposal.to));
                        assert_eq!(refusal.allowed, may);
                        assert_survives::<PhaseRefusal>(&refusal);
                    }
                }
            }
            Step::Grant(to, by) => {
                if let Ok(given) = issue_skip_grant(self.graph, &self.state, by, &phase(*to)) {
                    assert!(by.has_user_authority());
                    self.state.add_grant(given);
                }
            }
            Step::Revoke(to) => self.state.revoke_grant(&phase(*to)),
            Step::Turn => {
                self.state.count_turn_started_in_visit();
                self.state.count_turn_ended_in_visit();
                self.expire();
            }
            Step::Round => {
                self.state.count_round_in_visit();
                self.expire();
            }
            Step::Wait(ms) => {
                self.now = self.now.plus_ms(*ms);
                self.expire();
            }
            Step::WaitForOthers(ms) => {
                let (since, before) = (self.now, self.state.clone());
                self.now = self.now.plus_ms(*ms);
                let expired = expiry_transition(self.graph, &self.state, self.now, Some(since));
                let limit = self.graph.find_phase(&before.current).and_then(|phase| phase.limit.as_ref());
                if limit.is_some_and(|limit| !limit.includes_waiting) {
                    let already = expiry_transition(self.graph, &before, since, None);
                    assert_eq!(expired.is_some(), already.is_some(), "waiting used up the visit");
                }
                self.state.waited_ms += ms;
            }
            Step::Rollback(number, by) => {
                let (past, path) = self.past[number % self.past.len()].clone();
                if let Ok(transition) =
                    plan_rollback(self.graph, &self.state, &past, by, PhaseTransitionNote::default())
                {
                    assert!(by.has_user_authority());
                    self.enter(&transition, BTreeSet::new());
                    assert_eq!(self.state.open_gates, past.open_gates);
                    self.path.clone_from(&path);
                    self.past.push((self.state.clone(), path));
                }
            }
        }
        assert_eq!(self.state.open_gates, self.open_by_path());
        assert!(self.state.grants.len() <= phases.len());
        assert_survives::<PhaseGraphState>(&self.state);
    }

    fn expire(&mut self) {
        if let Some(transition) = expiry_transition(self.graph, &self.state, self.now, None) {
            let time = visit_deadline(self.graph, &self.state, None).is_some_and(|deadline| self.now >= deadline);
            let counted = self.state.turns_done + self.state.rounds > 0;
            assert!(time || counted || self.graph.validate().is_err());
            assert!(transition.closes_gates.is_empty(), "a limit satisfied a gate");
            self.enter(&transition, BTreeSet::new());
        }
    }

    /// The gates whose phase is the current one, if their condition holds.
    fn evidence_on_leaving(&self, conditions: &PhaseGuardInputs) -> BTreeSet<String> {
        let holds = |name: &String| conditions.verdicts.get(name) == Some(&PhaseConditionVerdict::Holds);
        let is_met = |gate: &&PhaseEntryGate| gate.condition.as_ref().is_none_or(holds);
        let gates = self.graph.gates.iter().filter(|gate| gate.satisfied_by == self.state.current);
        gates.filter(is_met).map(|gate| gate.name.clone()).collect()
    }

    fn enter(&mut self, transition: &PhaseTransition, evidence: BTreeSet<String>) {
        let before = self.state.clone();
        let blocking = self.blocking_gates(&transition.to, &evidence);
        assert_survives::<PhaseTransition>(transition);
        self.state.apply_transition(transition, self.now);
        let mut waived = BTreeSet::new();
        match &transition.cause {
            PhaseTransitionCause::SamePhase => {
                assert_eq!(self.state, before);
                return;
            }
            PhaseTransitionCause::Granted { skips } => {
                assert!(before.find_grant(&transition.to).is_some(), "a skip without a grant");
                for skip in &skips.0 {
                    if let SkippedRequirement::Gate { gate, .. } = skip {
                        waived.insert(gate.clone());
                    }
                }
                assert_eq!(waived, blocking);
            }
            PhaseTransitionCause::Proposed | PhaseTransitionCause::Expired { .. } => {
                assert_eq!(blocking, BTreeSet::new(), "a blocked phase was entered")
            }
            PhaseTransitionCause::RolledBack { .. } => {}
        }
        assert_eq!(self.state.visit, before.visit + 1);
        assert_eq!(self.state.since, self.now);
        assert_eq!((self.state.turns_started, self.state.turns_done), (0, 0));
        assert_eq!((self.state.rounds, self.state.waited_ms), (0, 0));
        assert!(self.state.find_grant(&transition.to).is_none(), "a grant outlived its use");
        assert_eq!(self.state.visit_counts.values().sum::<u32>(), self.state.visit);
        if !matches!(transition.cause, PhaseTransitionCause::RolledBack { .. }) {
            self.path.push(Entry { phase: transition.to.clone(), evidence, waived });
            self.past.push((self.state.clone(), self.path.clone()));
        }
    }

    fn blocking_gates(&self, to: &PhaseName, evidence: &BTreeSet<String>) -> BTreeSet<String> {
        let open: BTreeSet<String> = self.open_by_path().difference(evidence).cloned().collect();
        let is_end = self.graph.phases.iter().any(|phase| phase.name == *to && phase.kind == PhaseKind::End);
        let blocks = |gate: &&PhaseEntryGate| {
            open.contains(&gate.name) && gate.satisfied_by != *to && (is_end || gate.blocks.contains(to))
        };
        self.graph.gates.iter().filter(blocks).map(|gate| gate.name.clone()).collect()
    }
}

fn assert_survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let written = serde_json::to_string(value).expect("it can be written");
    assert_eq!(serde_json::from_str::<T>(&written).expect("it can be read"), *value, "{written}");
}

fn any_proposer() -> impl Strategy<Value = PhaseTransitionProposer> {
    prop_oneof![
        Just(PhaseTransitionProposer::User),
        Just(PhaseTransitionProposer::Operator),
        Just(PhaseTransitionProposer::Role("router".into())),
        Just(PhaseTransitionProposer::Agent("coder-1".into())),
        Just(PhaseTransitionProposer::Tool("shell".into())),
        Just(PhaseTransitionProposer::Engine),
    ]
}

fn any_conditions() -> impl Strategy<Value = PhaseGuardInputs> {
    let verdict =
        prop_oneof![Just(PhaseConditionVerdict::Holds), Just(PhaseConditionVerdict::Fails("not yet".to_owned()))];
    let name = prop::sample::select(vec!["x", "c0", "c1", "c2", "c3", "verified", "everyone reflected"]);
    let verdicts = prop::collection::btree_map(name.prop_map(str::to_owned), verdict, 0..6);
    (prop::collection::btree_set("[xy]".prop_map(|kind| kind.as_str().into()), 0..2), verdicts)
        .prop_map(|(handovers, verdicts)| PhaseGuardInputs { handovers, verdicts })
}

fn any_guard() -> impl Strategy<Value = Guard> {
    let kinds = prop::sample::subsequence(
        vec![PhaseTransitionProposerKind::User, PhaseTransitionProposerKind::Role, PhaseTransitionProposerKind::Engine],
        0..3,
    );
    let leaf = prop_oneof![
        6 => Just(Guard::Always),
        1 => Just(Guard::Handover("x".into())),
        1 => Just(Guard::Condition("x".to_owned())),
        1 => kinds.prop_map(|kinds| Guard::ProposedBy(kinds.into_iter().collect())),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        let guards = prop::collection::vec(inner, 0..3);
        prop_oneof![guards.clone().prop_map(Guard::All), guards.prop_map(Guard::Any)]
    })
}

fn any_name() -> impl Strategy<Value = PhaseName> {
    prop::sample::select(&NAMES[..]).prop_map(PhaseName::from)
}

fn any_phase(name: &'static str) -> impl Strategy<Value = PhaseSpec> {
    let kind = prop_oneof![8 => Just(PhaseKind::Work), 1 => Just(PhaseKind::End), 1 => Just(PhaseKind::Failure)];
    let maximum = || prop::option::of(0..4u32);
    let limit = (maximum(), maximum(), prop::option::of(0..50u64), any::<bool>(), any_name()).prop_map(
        |(turns_max, rounds_max, ms_max, includes_waiting, exit)| PhaseLimit {
            turns_max,
            rounds_max,
            ms_max,
            includes_waiting,
            exit,
        },
    );
    (kind, prop::option::weighted(0.3, limit)).prop_map(move |(kind, limit)| PhaseSpec {
        kind,
        limit,
        ..PhaseSpec::new(name)
    })
}

fn any_graph(guards: BoxedStrategy<Guard>) -> impl Strategy<Value = PhaseGraph> {
    let phases: Vec<_> = NAMES.iter().map(|name| any_phase(name)).collect();
    let edge = (any_name(), any_name(), guards).prop_map(|(from, to, guard)| PhaseEdge { from, to, guard });
    let gate = (any_name(), any_name(), any::<bool>(), prop::collection::btree_set(any_name(), 0..3));
    (phases, 2..=NAMES.len(), prop::collection::vec(edge, 4..16), prop::collection::vec(gate, 0..4)).prop_map(
        |(mut phases, count, edges, gates)| {
            phases.truncate(count);
            let gate = |(number, (opened_by, satisfied_by, has_condition, blocks))| PhaseEntryGate {
                name: format!("g{number}"),
                opened_by,
                satisfied_by,
                condition: bool::then(has_condition, || format!("c{number}")),
                blocks,
            };
            let gates = gates.into_iter().enumerate().map(gate);
            PhaseGraph {
                name: "random".into(),
                owner_kind: PhaseGraphOwnerKind::Agent,
                start: "a".into(),
                phases,
                edges,
                gates: gates.collect(),
            }
        },
    )
}

/// Removes obvious errors from a graph, so that only dead ends are left: a ring through all work phases makes them
/// reachable, and each terminal phase has an edge from the start.
fn without_obvious_errors(mut graph: PhaseGraph) -> PhaseGraph {
    graph.phases[0].kind = PhaseKind::Work;
    let (work, ends): (Vec<&PhaseSpec>, Vec<&PhaseSpec>) = graph.phases.iter().partition(|phase| !phase.is_terminal());
    let work: Vec<PhaseName> = work.into_iter().map(|phase| phase.name.clone()).collect();
    let ends: Vec<PhaseName> = ends.into_iter().map(|phase| phase.name.clone()).collect();
    let is_known = |name: &PhaseName| work.contains(name) || ends.contains(name);
    let edge =
        |from: &PhaseName, to: &PhaseName| PhaseEdge { from: from.clone(), to: to.clone(), guard: Guard::Always };
    graph.edges.extend(work.iter().zip(work.iter().cycle().skip(1)).map(|(from, to)| edge(from, to)));
    graph.edges.extend(ends.iter().map(|end| edge(&work[0], end)));
    let mut seen = BTreeSet::new();
    graph.edges.retain(|edge| {
        work.contains(&edge.from) && is_known(&edge.to) && seen.insert((edge.from.clone(), edge.to.clone()))
    });
    for phase in &mut graph.phases {
        let is_sound = |limit: &PhaseLimit| {
            work.contains(&phase.name)
                && is_known(&limit.exit)
                && limit.exit != phase.name
                && limit.turns_max.is_some_and(|turns| turns > 0)
                && limit.rounds_max != Some(0)
                && limit.ms_max != Some(0)
        };
        phase.limit = phase.limit.take().filter(is_sound);
    }
    for gate in &mut graph.gates {
        gate.blocks.retain(|phase| is_known(phase) && *phase != gate.satisfied_by);
    }
    graph.gates.retain(|gate| {
        is_known(&gate.opened_by)
            && work.contains(&gate.satisfied_by)
            && (gate.opened_by != gate.satisfied_by || gate.condition.is_some())
            && !gate.blocks.is_empty()
    });
    graph
}

/// What the machine runs into, whatever conditions hold.
#[derive(Debug, Default, PartialEq)]
struct DeadEnds {
    /// The gates that are open in some work phase from which the machine never satisfies them.
    gates: BTreeSet<String>,
    /// The phases whose limit is reached without a way out.
    limits: BTreeSet<PhaseName>,
}

fn dead_ends(graph: &PhaseGraph) -> DeadEnds {
    let key = |state: &PhaseGraphState| (state.current.clone(), state.open_gates.clone());
    let reachable = |from: &PhaseGraphState| {
        let mut seen = BTreeMap::from([(key(from), from.clone())]);
        let mut frontier = vec![from.clone()];
        while let Some(state) = frontier.pop() {
            for next in successors(graph, &state) {
                if seen.insert(key(&next), next.clone()).is_none() {
                    frontier.push(next);
                }
            }
        }
        seen.into_values().collect::<Vec<_>>()
    };
    let mut found = DeadEnds::default();
    for state in reachable(&PhaseGraphState::new(graph, UnixMillis(0))) {
        let phase = graph.find_phase(&state.current).expect("it is of the graph");
        if phase.is_terminal() {
            continue;
        }
        if phase.limit.is_some() && expiry_transition(graph, &spent(&state), UnixMillis(0), None).is_none() {
            found.limits.insert(phase.name.clone());
        }
        let ahead = reachable(&state);
        let closed = |gate: &PhaseEntryGate| {
            let mut transitions = ahead.iter().flat_map(|state| transitions(graph, state));
            transitions.any(|transition| transition.closes_gates.contains(&gate.name))
        };
        let open = graph.gates.iter().filter(|gate| state.open_gates.contains(&gate.name));
        found.gates.extend(open.filter(|gate| !closed(gate)).map(|gate| gate.name.clone()));
    }
    found
}

fn spent(state: &PhaseGraphState) -> PhaseGraphState {
    PhaseGraphState { turns_done: u32::MAX, ..state.clone() }
}

fn transitions(graph: &PhaseGraph, state: &PhaseGraphState) -> Vec<PhaseTransition> {
    let mut found = Vec::new();
    for holding in 0..1 << graph.gates.len() {
        let held = graph.gates.iter().enumerate().filter(|(number, _)| holding >> number & 1 == 1);
        let verdicts = held.filter_map(|(_, gate)| Some((gate.condition.clone()?, PhaseConditionVerdict::Holds)));
        let conditions = PhaseGuardInputs { verdicts: verdicts.collect(), ..PhaseGuardInputs::default() };
        for phase in &graph.phases {
            let proposal = proposal(phase.name.clone(), PhaseTransitionProposer::Engine);
            match rule_on_proposal(graph, state, &proposal, &conditions) {
                PhaseProposalRuling::Enter(transition) => found.push(transition),
                PhaseProposalRuling::Refuse(_) => {}
            }
        }
    }
    found.extend(expiry_transition(graph, &spent(state), UnixMillis(0), None));
    found
}

fn successors(graph: &PhaseGraph, state: &PhaseGraphState) -> Vec<PhaseGraphState> {
    transitions(graph, state)
        .into_iter()
        .map(|transition| {
            let mut next = state.clone();
            next.apply_transition(&transition, UnixMillis(0));
            next
        })
        .collect()
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..8usize, any_proposer(), any_conditions()).prop_map(|(to, by, given)| Step::Propose(to, by, given)),
        1 => (0..8usize, any_proposer()).prop_map(|(to, by)| Step::Grant(to, by)),
        1 => (0..8usize).prop_map(Step::Revoke),
        2 => Just(Step::Turn),
        2 => Just(Step::Round),
        1 => (0..4_000_000u64).prop_map(Step::WaitForOthers),
        2 => (0..4_000_000u64).prop_map(Step::Wait),
        1 => (0..64usize, any_proposer()).prop_map(|(number, by)| Step::Rollback(number, by)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_of_the_seven_enters_a_blocked_phase_without_a_grant(steps in any_steps()) {
        let graph = seven();
        let mut history = History::begin(&graph);
        steps.iter().for_each(|step| history.step(step));
    }

    #[test]
    fn no_history_of_any_graph_enters_a_blocked_phase_without_a_grant(
        graph in any_graph(any_guard().boxed()),
        steps in any_steps(),
    ) {
        let mut history = History::begin(&graph);
        steps.iter().for_each(|step| history.step(step));
    }

    #[test]
    fn any_graph_can_be_validated_drawn_and_written(graph in any_graph(any_guard().boxed())) {
        if let Err(errors) = graph.validate() {
            prop_assert!(!errors.is_empty());
            prop_assert!(errors.iter().all(|error| !error.to_string().is_empty()));
        }
        let drawn = render_mermaid(&graph, None);
        prop_assert_eq!(&drawn, &render_mermaid(&graph, None));
        prop_assert!(!drawn.contains('"') || drawn.lines().all(|line| line.matches('"').count() % 2 == 0));
        assert_survives::<PhaseGraph>(&graph);
    }

    #[test]
    fn validate_finds_the_dead_ends_that_the_machine_runs_into(
        graph in any_graph(Just(Guard::Always).boxed()).prop_map(without_obvious_errors),
    ) {
        let errors = graph.validate().err().unwrap_or_default();
        let mut found = DeadEnds::default();
        for error in &errors {
            match error {
                PhaseGraphError::GateDeadEnd { gate, .. } => drop(found.gates.insert(gate.clone())),
                PhaseGraphError::ExitNowhere { phase, .. } => drop(found.limits.insert(phase.clone())),
                _ => {}
            }
        }
        prop_assume!(found.gates.len() + found.limits.len() == errors.len());
        prop_assert_eq!(found, dead_ends(&graph));
    }

    #[test]
    fn valid_graph_never_gets_stuck(
        graph in any_graph(Just(Guard::Always).boxed()).prop_map(without_obvious_errors),
        steps in prop::collection::vec(0..8usize, 1..40),
    ) {
        prop_assume!(graph.validate().is_ok());
        let mut state = PhaseGraphState::new(&graph, UnixMillis(0));
        for step in steps {
            if graph.find_phase(&state.current).expect("it is of the graph").is_terminal() {
                break;
            }
            let holds = all_conditions_hold(&graph);
            let may = allowed_phases(&graph, &state, &PhaseTransitionProposer::Engine, &holds);
            let transition = if may.is_empty() {
                state.turns_done = u32::MAX;
                expiry_transition(&graph, &state, UnixMillis(u64::MAX), None).expect("a sound graph has a way out of every phase of work")
            } else {
                let proposal = proposal(may[step % may.len()].clone(), PhaseTransitionProposer::Engine);
                match rule_on_proposal(&graph, &state, &proposal, &holds) {
                    PhaseProposalRuling::Enter(transition) => transition,
                    PhaseProposalRuling::Refuse(refusal) => panic!("it was said to be allowed: {refusal}"),
                }
            };
            state.apply_transition(&transition, UnixMillis(0));
        }
    }
}
