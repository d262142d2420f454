//! What `validate` finds, and how it says it.

use expect_test::{Expect, expect};
use segue_core::phase::guard::Guard;
use segue_core::phase::{PhaseGraph, PhaseKind, PhaseLimit, PhaseSpec};

use crate::{gate, graph, turns_limit};

fn check(graph: &PhaseGraph, faults: Expect) {
    let found = graph.validate().expect_err("there is a fault");
    faults.assert_eq(&found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

fn sound() -> PhaseGraph {
    graph(&["a", "b", "c", "end"], &["a>b", "b>c", "c>a", "c>end"])
}

#[test]
fn a_sound_graph_has_no_faults() {
    assert_eq!(sound().validate(), Ok(()));
}

#[test]
fn names_must_be_known_wherever_they_stand() {
    let mut graph = sound();
    graph.start = "z".into();
    graph.edges[0].to = "y".into();
    graph.phases[1].limit = turns_limit(1, "x");
    graph.gates.push(gate("g", "w", "c", &["v"]));
    check(
        &graph,
        expect![[r#"
            the start names the phase `z`, which the graph does not have; it has `a`, `b`, `c`, `end`
            the edge from `a` to `y` names the phase `y`, which the graph does not have; it has `a`, `b`, `c`, `end`
            the limit of `b` names the phase `x`, which the graph does not have; it has `a`, `b`, `c`, `end`
            the gate `g` names the phase `w`, which the graph does not have; it has `a`, `b`, `c`, `end`
            the gate `g` names the phase `v`, which the graph does not have; it has `a`, `b`, `c`, `end`"#]],
    );
}

#[test]
fn nothing_is_declared_twice() {
    let mut graph = sound();
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
fn guards_must_be_able_to_hold() {
    let mut graph = sound();
    graph.edges[0].guard = Guard::All(vec![Guard::Always, Guard::Any(vec![Guard::ProposedBy([].into())])]);
    check(
        &graph,
        expect!["the guard from `a` to `b` can never hold; list at least one alternative, or remove the edge"],
    );
}

#[test]
fn limits_must_bound_something_and_lead_elsewhere() {
    let mut graph = sound();
    graph.phases[0].limit = Some(PhaseLimit { turns_max: None, ms_max: None, exit: "b".into() });
    graph.phases[1].limit = turns_limit(0, "c");
    graph.phases[2].limit = turns_limit(3, "c");
    check(
        &graph,
        expect![[r#"
        the limit of `a` sets no bound; give `turns_max` or `ms_max`
        the limit of `b` is zero, so nothing could happen in it; give at least 1
        the limit of `c` leads back into `c`; name another phase as its exit"#]],
    );
}

#[test]
fn a_phase_must_not_bar_its_own_way_out() {
    let mut graph = sound();
    graph.phases[0].limit = turns_limit(3, "end");
    graph.gates.push(gate("g", "a", "c", &[]));
    check(
        &graph,
        expect![
            "the limit of `a` leads to `end`, which gate `g` bars because `a` opens it; lead to `c`, or unblock `end`"
        ],
    );
    graph.phases[0].limit = turns_limit(3, "c");
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn every_phase_is_reached_and_left_unless_it_is_an_end() {
    check(
        &graph(&["a", "b", "c", "end"], &["a>b", "b>b", "c>a", "end>a"]),
        expect![[r#"
        no way leads out of `b`; give it an edge or a limit, or make it an end
        `end` is an end and yet has a way out; remove its edges and its limit, or make it a phase of work
        `c` cannot be reached from `a`; add an edge that leads to it, or remove it
        `end` cannot be reached from `a`; add an edge that leads to it, or remove it"#]],
    );
}

#[test]
fn a_limit_is_a_way_out_and_a_way_in() {
    let mut graph = graph(&["a", "b"], &[]);
    graph.phases[0].limit = turns_limit(1, "b");
    graph.phases[1].limit = turns_limit(1, "a");
    assert_eq!(graph.validate(), Ok(()));
}

#[test]
fn a_gate_must_make_sense_by_itself() {
    let mut graph = sound();
    graph.phases[3].kind = PhaseKind::Failure;
    graph.gates.extend([gate("one", "a", "a", &["c"]), gate("two", "a", "b", &["b"]), gate("three", "a", "b", &[])]);
    check(
        &graph,
        expect![[r#"
        the gate `one` is opened and satisfied by the same phase `a`; name two
        the gate `two` blocks `b`, which alone satisfies it; take `b` out of `blocks`
        the gate `three` blocks nothing; name the phases that must wait for `b`"#]],
    );
}

#[test]
fn a_gate_must_be_satisfiable_from_wherever_it_is_open() {
    // The only way to c leads through b, which the gate bars.
    let mut barred = sound();
    barred.gates.push(gate("g", "a", "c", &["b"]));
    check(
        &barred,
        expect![
            "in `a` with `g` open, no way leads to `c`, so gate `g` can never be satisfied; add an edge towards `c`, or block less"
        ],
    );

    // From d one can go on for ever, and never back to b.
    let mut endless = graph(&["a", "b", "c", "d", "end"], &["a>b", "b>c", "c>end", "a>d", "d>end", "d>d"]);
    endless.gates.push(gate("g", "a", "b", &["c"]));
    check(
        &endless,
        expect![
            "in `d` with `g` open, no way leads to `b`, so gate `g` can never be satisfied; add an edge towards `b`, or block less"
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
        in `a` with `one`, `two` open, no way leads to `b`, so gate `one` can never be satisfied; add an edge towards `b`, or block less
        in `a` with `one`, `two` open, no way leads to `c`, so gate `two` can never be satisfied; add an edge towards `c`, or block less"#]],
    );
}

#[test]
fn a_failure_may_be_met_with_a_gate_open() {
    let mut graph = graph(&["code", "review", "end", "error"], &["code>review", "code>error", "review>end"]);
    graph.phases[3].kind = PhaseKind::Failure;
    graph.gates.push(gate("review", "code", "review", &[]));
    assert_eq!(graph.validate(), Ok(()));
    let mut state = crate::walked(&graph, &[]);
    let failing = crate::accepted(&graph, &state, "error");
    state.apply_transition(&failing, segue_core::ids::UnixMillis(1));
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
