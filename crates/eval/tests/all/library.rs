use std::collections::BTreeSet;
use std::path::Path;

use segue_eval::library::built_in_conversations;
use segue_flows::built_in_flows;

#[test]
fn every_file_is_in_the_library() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conversations");
    let mut files = BTreeSet::new();
    for flow in std::fs::read_dir(folder).expect("the folder exists") {
        let flow = flow.expect("readable").path();
        for file in std::fs::read_dir(&flow).expect("readable") {
            let file = file.expect("readable").path();
            let text = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
            files.insert((text(&flow), text(&file)));
        }
    }
    let listed: BTreeSet<(String, String)> =
        built_in_conversations().into_iter().map(|one| (one.flow.to_string(), one.name)).collect();
    assert_eq!(files, listed, "a file is named after its conversation and lies in the folder of its flow");
}

#[test]
fn flows_have_as_many_conversations_as_documented() {
    let all = built_in_conversations();
    let of = |flow: &str| all.iter().filter(|one| one.flow == *flow).map(|one| one.turns).collect::<Vec<_>>();
    assert_eq!(of("concierge"), [4; 12]);
    assert_eq!(of("assistant").len(), 12);
    assert_eq!((of("project").len(), of("team").len()), (10, 6));
}

#[test]
fn settings_roles_and_phases_of_the_library_exist() {
    let flows = built_in_flows();
    for conversation in built_in_conversations() {
        let flow = flows.iter().find(|flow| flow.spec().name == conversation.flow).expect("the flow exists");
        let spec = flow.spec();
        assert_eq!(spec.invalid_settings(&conversation.settings).len(), 0, "{}", conversation.name);
        assert!(!conversation.expectations.is_empty(), "{} expects something", conversation.name);
        let phases: Vec<&str> =
            spec.graphs.values().flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
        for expectation in &conversation.expectations {
            assert!(expectation.role.as_ref().is_none_or(|role| spec.roles.contains_key(role)), "{expectation:?}");
            assert!(expectation.phase.iter().all(|phase| phases.contains(&phase.as_str())), "{expectation:?}");
        }
    }
}
