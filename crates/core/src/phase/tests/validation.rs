//! The errors that `validate` finds, and their messages.

use crate::phase::guard::Guard;
use crate::phase::{PhaseEntryGate, PhaseGraph, PhaseKind, PhaseLimit, PhaseSpec};
use expect_test::{Expect, expect};

use super::{gate, graph, turns_limit};

fn check(graph: &PhaseGraph, errors: Expect) {
    let found = graph.validate().expect_err("there is an error");
    errors.assert_eq(&found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

fn valid_graph() -> PhaseGraph {
    graph(&["a", "b", "c", "end"], &["a>b", "b>c", "c>a", "c>end"])
}

#[test]
fn valid_graph_has_no_errors() {
    assert_eq!(valid_graph().validate(), Ok(()));
}

#[test]
fn phase_names_must_be_known_everywhere() {
    let mut graph = valid_graph();
    graph.start = "z".into();
    graph.edges[0].to = "y".into();
    graph.phases[1].limit = turns_limit(1, "x");
    graph.gates.push(gate("g", "w", "c", &["v"]));
    check(
        &graph,
        expect![[r#"
            the start names phase `z`, which does not exist; phases are `a`, `b`, `c`, `end`
            the edge from `a` to `y` names phase `y`, which does not exist; phases are `a`, `b`, `c`, `end`
            the limit of `b` names phase `x`, which does not exist; phases are `a`, `b`, `c`, `end`
            the gate `g` names phase `w`, which does not exist; phases are `a`, `b`, `c`, `end`
            the gate `g` names phase `v`, which does not exist; phases are `a`, `b`, `c`, `end`"#]],
    );
}

#[test]
fn nothing_is_declared_twice() {
    let mut graph = valid_graph();
    graph.phases.push(PhaseSpec::new("b"));
    graph.edges.push(graph.edges[0].clone());
    graph.gates.extend([gate("g", "a", "b", &["c"]), gate("g", "b", "c", &["a"])]);
    check(
        &graph,
        expect![[r#"
        the phase `b` is declared more than once; keep one
        the gate `g` is declared more than once; keep one
        there is more than one edge from `a` to `b`; join their guards with `any`"#]],
    );
}

#[test]
fn guards_must_be_satisfiable() {
    let mut graph = valid_graph();
    graph.edges[0].guard = Guard::All(vec![Guard::Always, Guard::Any(vec![Guard::ProposedBy([].into())])]);
    check(
        &graph,
        expect!["the guard from `a` to `b` can never be met; list at least one alternative, or remove the edge"],
    );
}

#[test]
fn limits_must_not_be_empty_and_must_lead_elsewhere() {
    let mut graph = valid_graph();
    graph.phases[0].limit = Some(PhaseLimit::new("b"));
    graph.phases[1].limit = turns_limit(0, "c");
    graph.phases[2].limit = turns_limit(3, "c");
    check(
        &graph,
        expect![[r#"
            the limit of `a` is empty; set `turns_max`, `rounds_max` or `ms_max`
            the limit of `b` is zero; set it to at least 1
            the limit of `c` leads back to `c`; name another phase as its exit"#]],
    );
}

#[test]
fn phase_must_not_block_its_own_exit() {
    let mut graph = valid_graph();
    graph.phases[0].limit = turns_limit(3, "end");
    graph.gates.push(gate("g", "a", "c", &[]));
    check(
        &graph,
        expect![
            "the limit of `a` leads to `end`, which gate `g` blocks because `a` opens it; use `c` as exit, or unblock `end`"
        ],
    );
    graph.phases[0].limit = turns_limit(3, "c");
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn t9_limit_must_not_lead_forward_through_a_gate() {
    let mut graph = valid_graph();
    graph.phases[2].limit = turns_limit(3, "end");
    graph.gates.push(PhaseEntryGate { condition: Some("checked".to_owned()), ..gate("g", "a", "c", &[]) });
    check(
        &graph,
        expect![
            "the limit of `c` leads to `end`, which gate `g` blocks until `c` is completed, and a limit completes nothing; use an exit that the gate does not block"
        ],
    );
    graph.phases[2].limit = turns_limit(3, "a");
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn limit_must_lead_somewhere_whatever_gates_are_open() {
    // The exit of b is blocked by `one`, whose phase d is blocked by `two`, whose phase is b itself.
    let mut graph = graph(&["a", "b", "c", "d", "end"], &["a>b", "b>a", "b>c", "b>d", "c>d", "d>end", "d>a"]);
    graph.phases[1].limit = turns_limit(3, "c");
    graph.gates.extend([gate("one", "a", "d", &["c"]), gate("two", "a", "b", &["d"])]);
    check(
        &graph,
        expect![
            "in `b` with `one`, `two` open, the limit leads nowhere, because the gates lead back to `b` or to each other; use an exit that they do not block"
        ],
    );
}

#[test]
fn every_phase_is_reachable_and_has_an_exit_unless_terminal() {
    check(
        &graph(&["a", "b", "c", "end"], &["a>b", "b>b", "c>a", "end>a"]),
        expect![[r#"
            `b` has no exit; add an edge or a limit, or make it terminal
            `end` is terminal but has an exit; remove its edges and its limit, or make it a work phase
            `c` cannot be reached from `a`; add an edge that leads to it, or remove it
            `end` cannot be reached from `a`; add an edge that leads to it, or remove it"#]],
    );
}

#[test]
fn limit_counts_as_an_exit_and_as_a_way_in() {
    let mut graph = graph(&["a", "b"], &[]);
    graph.phases[0].limit = turns_limit(1, "b");
    graph.phases[1].limit = turns_limit(1, "a");
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn gate_must_be_consistent() {
    let mut graph = valid_graph();
    graph.phases[3].kind = PhaseKind::Failure;
    graph.gates.extend([gate("one", "a", "a", &["c"]), gate("two", "a", "b", &["b"]), gate("three", "a", "b", &[])]);
    graph.gates.push(PhaseEntryGate { condition: Some(" ".to_owned()), ..gate("four", "a", "end", &["b"]) });
    check(
        &graph,
        expect![[r#"
            a condition has an empty name; give it one
            the gate `one` is opened and satisfied by the same phase `a`; name two different phases, or a condition
            the gate `two` blocks `b`, which satisfies it; remove `b` from `blocks`
            the gate `three` blocks nothing; name the phases that must wait for `b`
            the gate `four` is satisfied by leaving `end`, which is terminal; name a work phase"#]],
    );
}

#[test]
fn gate_must_be_satisfiable_from_every_phase_in_which_it_is_open() {
    // The only way to c leads through b, which the gate blocks.
    let mut blocked = valid_graph();
    blocked.gates.push(gate("g", "a", "c", &["b"]));
    check(
        &blocked,
        expect![
            "in `a` with `g` open, `c` cannot be completed, so gate `g` can never be satisfied; add an edge towards `c` or out of it, or block fewer phases"
        ],
    );

    // From d one can continue forever, but never return to b.
    let mut endless = graph(&["a", "b", "c", "d", "end"], &["a>b", "b>c", "c>end", "a>d", "d>end", "d>d"]);
    endless.gates.push(gate("g", "a", "b", &["c"]));
    check(
        &endless,
        expect![
            "in `d` with `g` open, `b` cannot be completed, so gate `g` can never be satisfied; add an edge towards `b` or out of it, or block fewer phases"
        ],
    );
}

#[test]
fn gates_must_not_wait_for_each_other() {
    let mut graph = graph(&["a", "b", "c", "end"], &["a>b", "a>c", "b>c", "c>b", "b>end", "c>end"]);
    graph.gates.extend([gate("one", "a", "b", &["c"]), gate("two", "a", "c", &["b"])]);
    check(
        &graph,
        expect![[r#"
            in `a` with `one`, `two` open, `b` cannot be completed, so gate `one` can never be satisfied; add an edge towards `b` or out of it, or block fewer phases
            in `a` with `one`, `two` open, `c` cannot be completed, so gate `two` can never be satisfied; add an edge towards `c` or out of it, or block fewer phases"#]],
    );
}

#[test]
fn failure_phase_may_be_entered_with_an_open_gate() {
    let mut graph = graph(&["code", "review", "end", "error"], &["code>review", "code>error", "review>end"]);
    graph.phases[3].kind = PhaseKind::Failure;
    graph.gates.push(gate("review", "code", "review", &[]));
    assert_eq!(graph.validate(), Ok(()));
    let mut state = super::walked(&graph, &[]);
    let failing = super::accepted(&graph, &state, "error");
    state.apply_transition(&failing, crate::ids::UnixMillis(1));
    assert!(state.open_gates.contains("review"));
}

#[test]
fn size_is_bounded() {
    let names: Vec<String> = (0..65).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut graph = graph(&names, &[]);
    graph.gates.extend((0..9).map(|number| gate(&format!("g{number}"), "p0", "p1", &["p2"])));
    check(
        &graph,
        expect![[r#"
        the graph has 65 phases; at most 64 are allowed
        the graph has 9 gates; at most 8 are allowed"#]],
    );
}

#[test]
fn the_largest_graph_allowed_can_be_searched() {
    let names: Vec<String> = (0..64).map(|number| format!("p{number}")).collect();
    let edges: Vec<String> = names.iter().flat_map(|from| names.iter().map(move |to| format!("{from}>{to}"))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    let mut graph = graph(&names, &edges);
    graph.gates.extend((0..8).map(|number| {
        gate(&format!("g{number}"), &format!("p{}", number * 2), &format!("p{}", number * 2 + 1), &["p63"])
    }));
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn unknown_keys_in_a_graph_are_refused() {
    let text = include_str!("seven.json").replacen("\"purpose\"", "\"purpos\"", 1);
    let error = serde_json::from_str::<PhaseGraph>(&text).expect_err("there is no such key");
    assert!(error.to_string().contains("unknown field `purpos`"), "{error}");
}
