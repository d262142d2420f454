//! The phase machine, tested on the seven phases of a project and on random graphs.

mod diagram;
mod guards;
mod properties;
mod seven;
mod validation;

use crate::ids::{PhaseName, UnixMillis};
use crate::phase::guard::{Guard, PhaseConditionVerdict, PhaseGuardInputs, PhaseTransitionProposer};
use crate::phase::ruling::{PhaseProposalRuling, PhaseRefusal, rule_on_proposal};
use crate::phase::state::{PhaseGraphState, PhaseProposal, PhaseTransition, PhaseTransitionNote};
use crate::phase::{PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseLimit, PhaseSpec};

/// The seven phases and an end, as in a project's configuration.
fn seven() -> PhaseGraph {
    serde_json::from_str(include_str!("tests/seven.json")).expect("the seven are well-formed")
}

fn router() -> PhaseTransitionProposer {
    PhaseTransitionProposer::Role("router".into())
}

/// The state after `path`, with every transition proposed by the router, one second apart.
fn walked(graph: &PhaseGraph, path: &[&str]) -> PhaseGraphState {
    let mut state = PhaseGraphState::new(graph, UnixMillis(0));
    for (step, to) in path.iter().enumerate() {
        let at = UnixMillis(1000 * (step as u64 + 1));
        state.apply_transition(&accepted(graph, &state, to), at);
    }
    state
}

fn proposal(to: impl Into<PhaseName>, by: PhaseTransitionProposer) -> PhaseProposal {
    PhaseProposal { to: to.into(), by, note: PhaseTransitionNote::default() }
}

/// The ruling if every condition holds.
fn ruled(graph: &PhaseGraph, state: &PhaseGraphState, to: &str) -> PhaseProposalRuling {
    rule_on_proposal(graph, state, &proposal(to, router()), &all_conditions_hold(graph))
}

fn all_conditions_hold(graph: &PhaseGraph) -> PhaseGuardInputs {
    let names = graph.phases.iter().flat_map(|phase| graph.condition_names_from(&phase.name));
    PhaseGuardInputs {
        verdicts: names.map(|name| (name.to_owned(), PhaseConditionVerdict::Holds)).collect(),
        ..PhaseGuardInputs::default()
    }
}

fn accepted(graph: &PhaseGraph, state: &PhaseGraphState, to: &str) -> PhaseTransition {
    match ruled(graph, state, to) {
        PhaseProposalRuling::Enter(transition) => transition,
        PhaseProposalRuling::Refuse(refusal) => panic!("refused: {refusal}"),
    }
}

fn refused(graph: &PhaseGraph, state: &PhaseGraphState, to: &str) -> PhaseRefusal {
    match ruled(graph, state, to) {
        PhaseProposalRuling::Enter(transition) => panic!("accepted: {transition:?}"),
        PhaseProposalRuling::Refuse(refusal) => refusal,
    }
}

/// A graph of the named phases and `"from>to"` edges. It starts at the first phase, and `end` is terminal.
fn graph(phases: &[&str], edges: &[&str]) -> PhaseGraph {
    let phase = |name: &&str| {
        let kind = if *name == "end" { PhaseKind::End } else { PhaseKind::Work };
        PhaseSpec { kind, ..PhaseSpec::new(*name) }
    };
    let edge = |text: &&str| {
        let (from, to) = text.split_once('>').expect("an edge is written from>to");
        PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always }
    };
    PhaseGraph {
        name: "test".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: phases[0].into(),
        phases: phases.iter().map(phase).collect(),
        edges: edges.iter().map(edge).collect(),
        gates: Vec::new(),
    }
}

fn gate(name: &str, opened_by: &str, satisfied_by: &str, blocks: &[&str]) -> PhaseEntryGate {
    PhaseEntryGate {
        name: name.to_owned(),
        opened_by: opened_by.into(),
        satisfied_by: satisfied_by.into(),
        condition: None,
        blocks: names(blocks).into_iter().collect(),
    }
}

fn names(names: &[&str]) -> Vec<PhaseName> {
    names.iter().map(|name| PhaseName::from(*name)).collect()
}

fn turns_limit(turns_max: u32, exit: &str) -> Option<PhaseLimit> {
    Some(PhaseLimit { turns_max: Some(turns_max), ..PhaseLimit::new(exit) })
}
