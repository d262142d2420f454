use segue_core::flow::RoleSpec;
use segue_core::ids::Millis;
use segue_core::phase::Phase as PhaseData;
use segue_core::phase::{Attached, Edge, guard::Guard};
use segue_core::scope::Scope;

use super::*;

fn graph(name: &str, attached: Attached) -> PhaseGraph {
    PhaseGraph {
        name: name.into(),
        attached,
        start: "plan".into(),
        phases: vec![PhaseData::named("plan"), PhaseData::named("build")],
        edges: vec![Edge { from: "plan".into(), to: "build".into(), guard: Guard::Always }],
        gates: Vec::new(),
    }
}

fn spec() -> FlowSpec {
    FlowSpec::new("mini", "a flow with graphs")
        .graph(graph("project", Attached::Session))
        .graph(graph("talk", Attached::Role))
        .role(RoleSpec::new("guide", Scope::phase()).lives_by("talk"))
}

fn choice(graph: Option<&str>, of: Option<&str>) -> GraphChoice {
    GraphChoice { graph: graph.map(Into::into), of: of.map(Into::into) }
}

#[test]
fn graphs_that_never_moved_stand_at_their_start() {
    let (spec, session) = (spec(), Session { opened: Millis(7), ..Session::default() });
    let keys = session.phase_keys(&spec);
    let shown: Vec<String> = keys.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["project", "talk of guide"]);
    let stand = session.stand(&spec.graphs[&keys[0].graph], &keys[0]);
    let may = allowed(&spec.graphs[&keys[0].graph], &stand.now, &Proposer::User, &Default::default());
    let page = page(&keys[0], &stand, &may, Paint::new(false));
    assert!(page.starts_with("project: plan (visit 1, 0 turns, since "), "{page}");
    assert!(page.contains("you may enter  build"), "{page}");
}

#[test]
fn with_several_graphs_one_must_be_named() {
    let (spec, session) = (spec(), Session::default());
    let choose = |graph, of| choose(&spec, &session, &choice(graph, of)).map_err(|error| error.to_string());
    assert_eq!(choose(Some("project"), None).map(|key| key.to_string()), Ok("project".to_owned()));
    assert_eq!(choose(None, Some("guide")).map(|key| key.to_string()), Ok("talk of guide".to_owned()));
    let unclear = choose(None, None).expect_err("two graphs");
    assert!(
        unclear.contains("several graphs are like that") && unclear.contains("`project`, `talk of guide`"),
        "{unclear}"
    );
    let unknown = choose(Some("projekt"), None).expect_err("no such graph");
    assert_eq!(unknown, "there is no graph `projekt`; did you mean `project`?");
    assert!(choose(None, Some("nobody")).is_err());
}
