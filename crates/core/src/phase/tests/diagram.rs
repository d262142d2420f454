//! The Mermaid diagram of a phase graph, including escaping.

use crate::ids::PhaseName;
use crate::phase::diagram::render_mermaid;
use crate::phase::guard::{Guard, PhaseTransitionProposerKind};
use crate::phase::{PhaseLimit, PhaseSpec};
use expect_test::expect;

use super::{gate, graph, seven, walked};

#[test]
fn the_seven_phases_are_drawn_with_gates_limits_and_the_current_phase() {
    let graph = seven();
    expect![[r#"
        stateDiagram-v2
            state "chat" as p0
            state "brainstorm" as p1
            state "plan" as p2
            state "execute" as p3
            state "verification" as p4
            state "chores" as p5
            state "reflection" as p6
            state "end" as p7
            [*] --> p0
            p0 --> p3
            p0 --> p2
            p0 --> p1
            p0 --> p7
            p1 --> p0
            p1 --> p2
            p1 --> p3
            p2 --> p3
            p3 --> p4
            p3 --> p0
            p4 --> p5
            p4 --> p3
            p4 --> p0
            p5 --> p6
            p6 --> p0
            p6 --> p7
            p2 --> p0 : ┄ after 6 turns ┄
            p3 --> p0 : ┄ after 20 rounds or 60 min ┄
            p4 --> p0 : ┄ after 20 rounds ┄
            p5 --> p6 : ┄ after 20 rounds ┄
            p6 --> p0 : ┄ after 10 min ┄
            p7 --> [*]
            note right of p3 : gate verify (open), verification with verified before chores, end<br/>gate tidy (open), chores before end<br/>gate learn (open), reflection with everyone reflected before end
            classDef current fill:gold,stroke:black,stroke-width:3px
            class p0 current
    "#]]
    .assert_eq(&render_mermaid(&graph, Some(&walked(&graph, &["execute", "chat"]))));
}

#[test]
fn guards_and_limits_are_labels() {
    let mut graph = graph(&["a", "b", "end"], &["a>b", "b>b", "b>end"]);
    let user = Guard::ProposedBy([PhaseTransitionProposerKind::User, PhaseTransitionProposerKind::Operator].into());
    graph.edges[0].guard = Guard::Handover("brief".into());
    graph.edges[1].guard = Guard::Condition("more to do".to_owned());
    graph.edges[2].guard = Guard::All(vec![Guard::Condition("all done".to_owned()), user]);
    graph.phases[0].limit =
        Some(PhaseLimit { turns_max: Some(1), rounds_max: Some(3), ms_max: Some(90_000), ..PhaseLimit::new("end") });
    graph.phases[1].limit = Some(PhaseLimit { ms_max: Some(1500), ..PhaseLimit::new("a") });
    expect![[r#"
        stateDiagram-v2
            state "a" as p0
            state "b" as p1
            state "end" as p2
            [*] --> p0
            p0 --> p1 : handover brief
            p1 --> p1 : more to do
            p1 --> p2 : all done and (by user or operator)
            p0 --> p2 : ┄ after 1 turn or 3 rounds or 90 s ┄
            p1 --> p0 : ┄ after 1500 ms ┄
            p2 --> [*]
    "#]]
    .assert_eq(&render_mermaid(&graph, None));
}

#[test]
fn odd_names_stay_text() {
    let odd = PhaseName::from("say \"hi\"; a:b %%{x}\n#1 <żółć> [*] --> end note");
    let mut graph = graph(&["a", "end"], &["a>end"]);
    graph.phases.push(PhaseSpec::new(odd.clone()));
    graph.edges[0].guard = Guard::Condition("direction LR".to_owned());
    graph.gates.extend([gate("one: 1", "a", "end", &[odd.as_str()]), gate("two; 2", "a", "end", &["a"])]);
    expect![[r#"
        stateDiagram-v2
            state "a" as p0
            state "end" as p1
            state "say #34;hi#34;#59; a#58;b #37;#37;#123;x#125; #35;1 #60;żółć#62; #91;#42;#93; --#62; end note" as p2
            [*] --> p0
            p0 --> p1 : direction#32;LR
            p1 --> [*]
            note right of p0 : gate one#58; 1, end before say #34;hi#34;#59; a#58;b #37;#37;#123;x#125; #35;1 #60;żółć#62; #91;#42;#93; --#62; end note<br/>gate two#59; 2, end before a
    "#]].assert_eq(&render_mermaid(&graph, None));
}

#[test]
fn what_is_not_in_the_graph_is_not_drawn() {
    let mut graph = graph(&["a", "end"], &["a>end", "a>gone", "gone>a"]);
    let state = walked(&graph, &[]);
    graph.start = "gone".into();
    graph.phases[0].name = "renamed".into();
    let drawn = render_mermaid(&graph, Some(&state));
    assert!(!drawn.contains("gone") && !drawn.contains("classDef"), "{drawn}");
}
