use segue_core::flow::RoleSpec;
use segue_core::phase::{Guard, PhaseConditionVerdict, PhaseEdge, PhaseGraphOwnerKind, PhaseSpec};
use segue_core::scope::Scope;
use segue_core::session::Session;

use super::*;

fn graph(name: &str, owner_kind: PhaseGraphOwnerKind) -> PhaseGraph {
    PhaseGraph {
        name: name.into(),
        owner_kind,
        start: "plan".into(),
        phases: vec![PhaseSpec::new("plan"), PhaseSpec::new("build")],
        edges: vec![PhaseEdge { from: "plan".into(), to: "build".into(), guard: Guard::Always }],
        gates: Vec::new(),
    }
}

fn spec() -> FlowSpec {
    FlowSpec::new("mini", "a flow with graphs")
        .with_graph(graph("project", PhaseGraphOwnerKind::Session))
        .with_graph(graph("talk", PhaseGraphOwnerKind::Role))
        .with_role(RoleSpec::new("guide", Scope::per_phase()).with_phase_graph("talk"))
}

#[test]
fn a_graph_without_transitions_is_in_its_start_phase() {
    let (spec, session) = (spec(), Session::default());
    let keys = session.phase_graph_keys(&spec);
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["project", "talk of guide"]);
    let graph = &spec.graphs[&keys[0].graph];
    let status = session.phase_graph_status(graph, &keys[0]);
    let no_condition = |name: &str| PhaseConditionVerdict::Fails(format!("there is no condition `{name}`"));
    let allowed_phases = session.allowed_phases(&spec, &keys[0], &PhaseTransitionProposer::User, no_condition);
    let report = PhaseGraphWithStatus { key: keys[0].clone(), graph, status, allowed_phases };
    let page = render_phase_report(&report, Paint::new(false));
    assert!(page.starts_with("project: plan (visit 1, 0 turns, since "), "{page}");
    assert!(page.contains("allowed         build"), "{page}");
}

#[test]
fn with_several_graphs_one_must_be_named() {
    let (spec, session) = (spec(), Session::default());
    let key = |to: Option<&str>, names: &[&str]| {
        let to = to.map(PhaseName::from);
        resolve_phase_key(&spec, &session, to.as_ref(), names, "at the end").map(|key| key.to_string())
    };
    assert_eq!(key(None, &["project"]), Ok("project".to_owned()));
    assert_eq!(key(Some("build"), &["guide"]), Ok("talk of guide".to_owned()));
    assert_eq!(key(Some("build"), &["talk", "guide"]), Ok("talk of guide".to_owned()));
    let error = |to, names: &[&str]| key(to, names).expect_err("no single graph matches");
    assert_eq!(error(None, &[]), "several phase graphs match; choose one of `project`, `guide` at the end");
    assert_eq!(error(None, &["projekt"]), "no phase graph is named or owned by `projekt`; did you mean `project`?");
    assert_eq!(error(None, &["project", "guide"]), "no phase graph matches all of `project`, `guide`");
    assert_eq!(error(Some("buidl"), &["guide"]), "there is no phase `buidl`; did you mean `build`?");
}
