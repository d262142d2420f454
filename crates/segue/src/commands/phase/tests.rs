use segue_core::flow::RoleSpec;
use segue_core::ids::UnixMillis;
use segue_core::phase::PhaseSpec as PhaseData;
use segue_core::phase::{PhaseEdge, PhaseOwnerKind, guard::Guard};
use segue_core::scope::Scope;
use segue_core::session::Session;

use super::*;

fn graph(name: &str, attached: PhaseOwnerKind) -> PhaseGraph {
    PhaseGraph {
        name: name.into(),
        owner_kind: attached,
        start: "plan".into(),
        phases: vec![PhaseData::new("plan"), PhaseData::new("build")],
        edges: vec![PhaseEdge { from: "plan".into(), to: "build".into(), guard: Guard::Always }],
        gates: Vec::new(),
    }
}

fn spec() -> FlowSpec {
    FlowSpec::new("mini", "a flow with graphs")
        .with_graph(graph("project", PhaseOwnerKind::Session))
        .with_graph(graph("talk", PhaseOwnerKind::Role))
        .with_role(RoleSpec::new("guide", Scope::per_phase()).with_phase_graph("talk"))
}

#[test]
fn graphs_that_never_moved_stand_at_their_start() {
    let (spec, session) = (spec(), Session { opened_at: UnixMillis(7), ..Session::default() });
    let keys = session.phase_graph_keys(&spec);
    let shown: Vec<String> = keys.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["project", "talk of guide"]);
    let stand = session.phase_graph_status(&spec.graphs[&keys[0].graph], &keys[0]);
    let may = allowed_phases(&spec.graphs[&keys[0].graph], &stand.state, &Proposer::User, &Default::default());
    let graph = &spec.graphs[&keys[0].graph];
    let page = render_phase_report(
        &PhaseGraphReport { key: keys[0].clone(), graph, status: stand, allowed_phases: may },
        Paint::new(false),
    );
    assert!(page.starts_with("project: plan (visit 1, 0 turns, since "), "{page}");
    assert!(page.contains("you may enter  build"), "{page}");
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
    let wrong = |to, names: &[&str]| key(to, names).expect_err("it is not clear");
    assert_eq!(wrong(None, &[]), "several could be meant; name one of `project`, `guide` at the end");
    assert_eq!(wrong(None, &["projekt"]), "nothing called `projekt` has phases; did you mean `project`?");
    assert_eq!(wrong(None, &["project", "guide"]), "no graph is called `project`, `guide` at once");
    assert_eq!(wrong(Some("buidl"), &["guide"]), "there is no phase `buidl`; did you mean `build`?");
}
