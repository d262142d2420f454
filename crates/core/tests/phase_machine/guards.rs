//! Guards: what they let pass, and what a proposer is told when they do not.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use segue_core::ids::Millis;
use segue_core::phase::PhaseGraph;
use segue_core::phase::guard::{Conditions, Guard, Proposer, ProposerKind, Verdict};
use segue_core::phase::ruling::{Reason, Ruling, judge};
use segue_core::phase::state::{How, PhaseState, Proposal, Skip};

use crate::{gate, graph};

fn guarded(guard: Guard) -> PhaseGraph {
    let mut graph = graph(&["a", "b", "end"], &["a>b", "b>end"]);
    graph.edges[0].guard = guard;
    graph
}

fn rule(graph: &PhaseGraph, by: Proposer, conditions: &Conditions) -> Ruling {
    judge(graph, &PhaseState::begin(graph, Millis(0)), &Proposal::new("b", by), conditions)
}

fn passes(guard: &Guard, by: Proposer, conditions: &Conditions) -> bool {
    matches!(rule(&guarded(guard.clone()), by, conditions), Ruling::Enter(_))
}

fn check_told(guard: Guard, told: Expect) {
    match rule(&guarded(guard), Proposer::Tool("mcp".into()), &Conditions::default()) {
        Ruling::Enter(transition) => panic!("accepted: {transition:?}"),
        Ruling::Refuse(refusal) => told.assert_eq(&refusal.to_string()),
    }
}

fn by(kinds: &[ProposerKind]) -> Guard {
    Guard::By(kinds.iter().copied().collect())
}

fn holding(name: &str, verdict: Verdict) -> Conditions {
    Conditions { handovers: BTreeSet::new(), holds: BTreeMap::from([(name.to_owned(), verdict)]) }
}

#[test]
fn a_handover_of_this_visit_opens_the_edge() {
    let guard = Guard::Handover("brief".into());
    let with = Conditions { handovers: BTreeSet::from(["brief".into()]), holds: BTreeMap::new() };
    let other = Conditions { handovers: BTreeSet::from(["workflow".into()]), holds: BTreeMap::new() };
    assert!(passes(&guard, Proposer::Engine, &with));
    assert!(!passes(&guard, Proposer::Engine, &other));
    check_told(
        guard,
        expect![
            "`b` cannot be entered from `a`: this needs a handover `brief` made in this phase; nothing else can be entered now"
        ],
    );
}

#[test]
fn a_condition_nobody_judged_does_not_hold() {
    let guard = Guard::Holds("clear".to_owned());
    assert!(passes(&guard, Proposer::User, &holding("clear", Verdict::Yes)));
    assert!(!passes(&guard, Proposer::User, &holding("clear", Verdict::No("two questions are open".to_owned()))));
    assert!(!passes(&guard, Proposer::User, &holding("other", Verdict::Yes)));
    check_told(
        guard,
        expect![
            "`b` cannot be entered from `a`: this needs that `clear` holds (it was not judged); nothing else can be entered now"
        ],
    );
}

#[test]
fn a_tool_proposes_like_anyone_and_the_guard_decides() {
    assert!(passes(&by(&[ProposerKind::Tool]), Proposer::Tool("mcp".into()), &Conditions::default()));
    assert!(!passes(&by(&[ProposerKind::Tool]), Proposer::Agent("mcp".into()), &Conditions::default()));
    let user_only = by(&[ProposerKind::User, ProposerKind::Operator]);
    check_told(
        user_only,
        expect![
            "`b` cannot be entered from `a`: this needs a proposal by user or operator; nothing else can be entered now"
        ],
    );
}

#[test]
fn all_and_any_name_exactly_what_is_missing() {
    let clear = || Guard::Holds("clear".to_owned());
    let brief = || Guard::Handover("brief".into());
    let yes = holding("clear", Verdict::Yes);
    assert!(!passes(&Guard::All(vec![clear(), brief()]), Proposer::User, &yes));
    assert!(passes(&Guard::Any(vec![brief(), clear()]), Proposer::User, &yes));
    assert!(passes(&Guard::All(Vec::new()), Proposer::User, &yes));
    assert!(!passes(&Guard::Any(Vec::new()), Proposer::User, &yes));
    let nested = Guard::All(vec![clear(), Guard::Any(vec![brief(), by(&[ProposerKind::User])]), Guard::Always]);
    check_told(
        nested,
        expect![
            "`b` cannot be entered from `a`: this needs that `clear` holds (it was not judged) and (either a handover `brief` made in this phase or a proposal by user); nothing else can be entered now"
        ],
    );
}

#[test]
fn an_open_gate_is_told_before_an_unmet_guard() {
    let mut graph = guarded(Guard::Holds("clear".to_owned()));
    graph.gates.push(gate("g", "a", "end", &["b"]));
    let ruling = rule(&graph, Proposer::User, &Conditions::default());
    assert!(matches!(ruling, Ruling::Refuse(refusal) if matches!(refusal.why, Reason::GatesOpen(_))));
}

#[test]
fn a_grant_passes_an_unmet_guard_and_says_so() {
    let graph = guarded(Guard::Holds("clear".to_owned()));
    let mut state = PhaseState::begin(&graph, Millis(0));
    let given = segue_core::phase::authority::grant(&graph, &state, &Proposer::User, &"b".into());
    state.granted(given.expect("the user may"));
    let Ruling::Enter(transition) =
        judge(&graph, &state, &Proposal::new("b", Proposer::Engine), &Conditions::default())
    else {
        panic!("it was granted")
    };
    assert!(matches!(transition.how, How::Granted { skips } if matches!(skips[..], [Skip::Guard(_)])));
}

#[test]
fn an_edge_to_itself_enters_a_phase_anew() {
    let mut graph = graph(&["plan", "work", "end"], &["plan>work", "work>work", "work>end"]);
    graph.edges[1].guard = Guard::Handover("workflow".into());
    graph.gates.push(gate("g", "work", "end", &["plan"]));
    assert_eq!(graph.validate(), Ok(()));
    let mut state = PhaseState::begin(&graph, Millis(0));
    let again = Proposal::new("work", Proposer::Engine);
    let none = Conditions::default();
    let Ruling::Enter(first) = judge(&graph, &state, &again, &none) else { panic!("an edge leads there") };
    state.enter(&first, Millis(1));
    let Ruling::Refuse(refusal) = judge(&graph, &state, &again, &none) else { panic!("the guard is not met") };
    assert!(matches!(refusal.why, Reason::GuardFailed(_)));
    let replanned = Conditions { handovers: BTreeSet::from(["workflow".into()]), ..none };
    let Ruling::Enter(second) = judge(&graph, &state, &again, &replanned) else { panic!("the guard is met") };
    assert!(second.begins_visit());
    state.enter(&second, Millis(2));
    assert_eq!((state.visit, state.since, state.current.as_str()), (3, Millis(2), "work"));
}

#[test]
fn a_flow_learns_which_conditions_it_has_to_judge() {
    let holds = |name: &str| Guard::Holds(name.to_owned());
    let graph = guarded(Guard::Any(vec![holds("x"), Guard::All(vec![holds("y"), Guard::Always]), holds("x")]));
    assert_eq!(graph.conditions_at(&"a".into()).into_iter().collect::<Vec<_>>(), ["x", "y"]);
    assert!(graph.conditions_at(&"b".into()).is_empty());
}
