//! Guards: which proposals they allow, and what a refused proposer is told.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::UnixMillis;
use crate::phase::PhaseGraph;
use crate::phase::guard::{
    Guard, PhaseConditionVerdict, PhaseGuardInputs, PhaseTransitionProposer, PhaseTransitionProposerKind,
};
use crate::phase::ruling::{PhaseProposalRuling, PhaseRefusalReason, rule_on_proposal};
use crate::phase::state::{PhaseGraphState, PhaseTransitionCause, SkippedRequirement};
use expect_test::{Expect, expect};

use super::{gate, graph, proposal};

fn guarded(guard: Guard) -> PhaseGraph {
    let mut graph = graph(&["a", "b", "end"], &["a>b", "b>end"]);
    graph.edges[0].guard = guard;
    graph
}

fn rule(graph: &PhaseGraph, by: PhaseTransitionProposer, conditions: &PhaseGuardInputs) -> PhaseProposalRuling {
    rule_on_proposal(graph, &PhaseGraphState::new(graph, UnixMillis(0)), &proposal("b", by), conditions)
}

fn passes(guard: &Guard, by: PhaseTransitionProposer, conditions: &PhaseGuardInputs) -> bool {
    matches!(rule(&guarded(guard.clone()), by, conditions), PhaseProposalRuling::Enter(_))
}

fn check_refusal(guard: Guard, expected: Expect) {
    match rule(&guarded(guard), PhaseTransitionProposer::Tool("mcp".into()), &PhaseGuardInputs::default()) {
        PhaseProposalRuling::Enter(transition) => panic!("accepted: {transition:?}"),
        PhaseProposalRuling::Refuse(refusal) => expected.assert_eq(&refusal.to_string()),
    }
}

fn by(kinds: &[PhaseTransitionProposerKind]) -> Guard {
    Guard::ProposedBy(kinds.iter().copied().collect())
}

fn holding(name: &str, verdict: PhaseConditionVerdict) -> PhaseGuardInputs {
    PhaseGuardInputs { handovers: BTreeSet::new(), verdicts: BTreeMap::from([(name.to_owned(), verdict)]) }
}

#[test]
fn a_handover_of_this_visit_opens_the_edge() {
    let guard = Guard::Handover("brief".into());
    let with = PhaseGuardInputs { handovers: BTreeSet::from(["brief".into()]), verdicts: BTreeMap::new() };
    let other = PhaseGuardInputs { handovers: BTreeSet::from(["workflow".into()]), verdicts: BTreeMap::new() };
    assert!(passes(&guard, PhaseTransitionProposer::Engine, &with));
    assert!(!passes(&guard, PhaseTransitionProposer::Engine, &other));
    check_refusal(
        guard,
        expect![
            "`b` cannot be entered from `a`: this needs a handover `brief` from this phase visit; no other phase can be entered now"
        ],
    );
}

#[test]
fn condition_without_a_verdict_does_not_hold() {
    let guard = Guard::Condition("clear".to_owned());
    assert!(passes(&guard, PhaseTransitionProposer::User, &holding("clear", PhaseConditionVerdict::Holds)));
    assert!(!passes(
        &guard,
        PhaseTransitionProposer::User,
        &holding("clear", PhaseConditionVerdict::Fails("two questions are open".to_owned()))
    ));
    assert!(!passes(&guard, PhaseTransitionProposer::User, &holding("other", PhaseConditionVerdict::Holds)));
    check_refusal(
        guard,
        expect![
            "`b` cannot be entered from `a`: this needs the condition `clear` (it was not evaluated); no other phase can be entered now"
        ],
    );
}

#[test]
fn a_tool_proposes_like_anyone_and_the_guard_decides() {
    assert!(passes(
        &by(&[PhaseTransitionProposerKind::Tool]),
        PhaseTransitionProposer::Tool("mcp".into()),
        &PhaseGuardInputs::default()
    ));
    assert!(!passes(
        &by(&[PhaseTransitionProposerKind::Tool]),
        PhaseTransitionProposer::Agent("mcp".into()),
        &PhaseGuardInputs::default()
    ));
    let user_only = by(&[PhaseTransitionProposerKind::User, PhaseTransitionProposerKind::Operator]);
    check_refusal(
        user_only,
        expect![
            "`b` cannot be entered from `a`: this needs a proposal by user or operator; no other phase can be entered now"
        ],
    );
}

#[test]
fn all_and_any_name_exactly_what_is_missing() {
    let clear = || Guard::Condition("clear".to_owned());
    let brief = || Guard::Handover("brief".into());
    let yes = holding("clear", PhaseConditionVerdict::Holds);
    assert!(!passes(&Guard::All(vec![clear(), brief()]), PhaseTransitionProposer::User, &yes));
    assert!(passes(&Guard::Any(vec![brief(), clear()]), PhaseTransitionProposer::User, &yes));
    assert!(passes(&Guard::All(Vec::new()), PhaseTransitionProposer::User, &yes));
    assert!(!passes(&Guard::Any(Vec::new()), PhaseTransitionProposer::User, &yes));
    let nested =
        Guard::All(vec![clear(), Guard::Any(vec![brief(), by(&[PhaseTransitionProposerKind::User])]), Guard::Always]);
    check_refusal(
        nested,
        expect![
            "`b` cannot be entered from `a`: this needs the condition `clear` (it was not evaluated) and (either a handover `brief` from this phase visit or a proposal by user); no other phase can be entered now"
        ],
    );
}

#[test]
fn open_gate_is_reported_before_an_unmet_guard() {
    let mut graph = guarded(Guard::Condition("clear".to_owned()));
    graph.gates.push(gate("g", "a", "end", &["b"]));
    let ruling = rule(&graph, PhaseTransitionProposer::User, &PhaseGuardInputs::default());
    assert!(
        matches!(ruling, PhaseProposalRuling::Refuse(refusal) if matches!(refusal.why, PhaseRefusalReason::GatesOpen(_)))
    );
}

#[test]
fn grant_overrides_an_unmet_guard_and_records_it() {
    let graph = guarded(Guard::Condition("clear".to_owned()));
    let mut state = PhaseGraphState::new(&graph, UnixMillis(0));
    let given =
        crate::phase::user_override::issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"b".into());
    state.add_grant(given.expect("the user may"));
    let PhaseProposalRuling::Enter(transition) =
        rule_on_proposal(&graph, &state, &proposal("b", PhaseTransitionProposer::Engine), &PhaseGuardInputs::default())
    else {
        panic!("it was granted")
    };
    assert!(
        matches!(transition.cause, PhaseTransitionCause::Granted { skips } if matches!(skips.0[..], [SkippedRequirement::Guard(_)]))
    );
}

#[test]
fn edge_to_itself_begins_a_new_visit() {
    let mut graph = graph(&["plan", "work", "end"], &["plan>work", "work>work", "work>end"]);
    graph.edges[1].guard = Guard::Handover("workflow".into());
    graph.gates.push(gate("g", "plan", "work", &[]));
    assert_eq!(graph.validate(), Ok(()));
    let mut state = PhaseGraphState::new(&graph, UnixMillis(0));
    let again = proposal("work", PhaseTransitionProposer::Engine);
    let none = PhaseGuardInputs::default();
    let PhaseProposalRuling::Enter(first) = rule_on_proposal(&graph, &state, &again, &none) else {
        panic!("an edge leads there")
    };
    state.apply_transition(&first, UnixMillis(1));
    let PhaseProposalRuling::Refuse(refusal) = rule_on_proposal(&graph, &state, &again, &none) else {
        panic!("the guard is not met")
    };
    assert!(matches!(refusal.why, PhaseRefusalReason::GuardFailed(_)));
    let replanned = PhaseGuardInputs { handovers: BTreeSet::from(["workflow".into()]), ..none };
    let PhaseProposalRuling::Enter(second) = rule_on_proposal(&graph, &state, &again, &replanned) else {
        panic!("the guard is met")
    };
    assert!(second.is_visit_start());
    assert_eq!(second.closes_gates, ["g"], "the phase was left");
    state.apply_transition(&second, UnixMillis(2));
    assert_eq!((state.visit, state.since, state.current.as_str()), (3, UnixMillis(2), "work"));
}

#[test]
fn graph_lists_the_conditions_that_the_flow_must_evaluate() {
    let holds = |name: &str| Guard::Condition(name.to_owned());
    let graph = guarded(Guard::Any(vec![holds("x"), Guard::All(vec![holds("y"), Guard::Always]), holds("x")]));
    assert_eq!(graph.condition_names_from(&"a".into()).into_iter().collect::<Vec<_>>(), ["x", "y"]);
    assert!(graph.condition_names_from(&"b".into()).is_empty());
}
