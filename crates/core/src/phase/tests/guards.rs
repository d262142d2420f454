//! Guards: which proposals they allow, and what a refused proposer is told.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::UnixMillis;
use crate::phase::PhaseGraph;
use crate::phase::guard::{ConditionVerdict, Guard, GuardInputs, TransitionProposer, TransitionProposerKind};
use crate::phase::ruling::{PhaseProposalRuling, PhaseRefusalReason, rule_on_proposal};
use crate::phase::state::{PhaseGraphState, SkippedRequirement, TransitionCause};
use expect_test::{Expect, expect};

use super::{gate, graph, proposal};

fn guarded(guard: Guard) -> PhaseGraph {
    let mut graph = graph(&["a", "b", "end"], &["a>b", "b>end"]);
    graph.edges[0].guard = guard;
    graph
}

fn rule(graph: &PhaseGraph, by: TransitionProposer, conditions: &GuardInputs) -> PhaseProposalRuling {
    rule_on_proposal(graph, &PhaseGraphState::new(graph, UnixMillis(0)), &proposal("b", by), conditions)
}

fn passes(guard: &Guard, by: TransitionProposer, conditions: &GuardInputs) -> bool {
    matches!(rule(&guarded(guard.clone()), by, conditions), PhaseProposalRuling::Enter(_))
}

fn check_refusal(guard: Guard, expected: Expect) {
    match rule(&guarded(guard), TransitionProposer::Tool("mcp".into()), &GuardInputs::default()) {
        PhaseProposalRuling::Enter(transition) => panic!("accepted: {transition:?}"),
        PhaseProposalRuling::Refuse(refusal) => expected.assert_eq(&refusal.to_string()),
    }
}

fn by(kinds: &[TransitionProposerKind]) -> Guard {
    Guard::ProposedBy(kinds.iter().copied().collect())
}

fn holding(name: &str, verdict: ConditionVerdict) -> GuardInputs {
    GuardInputs { handovers: BTreeSet::new(), verdicts: BTreeMap::from([(name.to_owned(), verdict)]) }
}

#[test]
fn a_handover_of_this_visit_opens_the_edge() {
    let guard = Guard::Handover("brief".into());
    let with = GuardInputs { handovers: BTreeSet::from(["brief".into()]), verdicts: BTreeMap::new() };
    let other = GuardInputs { handovers: BTreeSet::from(["workflow".into()]), verdicts: BTreeMap::new() };
    assert!(passes(&guard, TransitionProposer::Engine, &with));
    assert!(!passes(&guard, TransitionProposer::Engine, &other));
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
    assert!(passes(&guard, TransitionProposer::User, &holding("clear", ConditionVerdict::Holds)));
    assert!(!passes(
        &guard,
        TransitionProposer::User,
        &holding("clear", ConditionVerdict::Fails("two questions are open".to_owned()))
    ));
    assert!(!passes(&guard, TransitionProposer::User, &holding("other", ConditionVerdict::Holds)));
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
        &by(&[TransitionProposerKind::Tool]),
        TransitionProposer::Tool("mcp".into()),
        &GuardInputs::default()
    ));
    assert!(!passes(
        &by(&[TransitionProposerKind::Tool]),
        TransitionProposer::Agent("mcp".into()),
        &GuardInputs::default()
    ));
    let user_only = by(&[TransitionProposerKind::User, TransitionProposerKind::Operator]);
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
    let yes = holding("clear", ConditionVerdict::Holds);
    assert!(!passes(&Guard::All(vec![clear(), brief()]), TransitionProposer::User, &yes));
    assert!(passes(&Guard::Any(vec![brief(), clear()]), TransitionProposer::User, &yes));
    assert!(passes(&Guard::All(Vec::new()), TransitionProposer::User, &yes));
    assert!(!passes(&Guard::Any(Vec::new()), TransitionProposer::User, &yes));
    let nested =
        Guard::All(vec![clear(), Guard::Any(vec![brief(), by(&[TransitionProposerKind::User])]), Guard::Always]);
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
    let ruling = rule(&graph, TransitionProposer::User, &GuardInputs::default());
    assert!(
        matches!(ruling, PhaseProposalRuling::Refuse(refusal) if matches!(refusal.why, PhaseRefusalReason::GatesOpen(_)))
    );
}

#[test]
fn grant_overrides_an_unmet_guard_and_records_it() {
    let graph = guarded(Guard::Condition("clear".to_owned()));
    let mut state = PhaseGraphState::new(&graph, UnixMillis(0));
    let given = crate::phase::user_override::issue_skip_grant(&graph, &state, &TransitionProposer::User, &"b".into());
    state.add_grant(given.expect("the user may"));
    let PhaseProposalRuling::Enter(transition) =
        rule_on_proposal(&graph, &state, &proposal("b", TransitionProposer::Engine), &GuardInputs::default())
    else {
        panic!("it was granted")
    };
    assert!(
        matches!(transition.cause, TransitionCause::Granted { skips } if matches!(skips.0[..], [SkippedRequirement::Guard(_)]))
    );
}

#[test]
fn edge_to_itself_begins_a_new_visit() {
    let mut graph = graph(&["plan", "work", "end"], &["plan>work", "work>work", "work>end"]);
    graph.edges[1].guard = Guard::Handover("workflow".into());
    graph.gates.push(gate("g", "plan", "work", &[]));
    assert_eq!(graph.validate(), Ok(()));
    let mut state = PhaseGraphState::new(&graph, UnixMillis(0));
    let again = proposal("work", TransitionProposer::Engine);
    let none = GuardInputs::default();
    let PhaseProposalRuling::Enter(first) = rule_on_proposal(&graph, &state, &again, &none) else {
        panic!("an edge leads there")
    };
    state.apply_transition(&first, UnixMillis(1));
    let PhaseProposalRuling::Refuse(refusal) = rule_on_proposal(&graph, &state, &again, &none) else {
        panic!("the guard is not met")
    };
    assert!(matches!(refusal.why, PhaseRefusalReason::GuardFailed(_)));
    let replanned = GuardInputs { handovers: BTreeSet::from(["workflow".into()]), ..none };
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
