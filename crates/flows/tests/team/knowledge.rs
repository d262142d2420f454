//! The knowledge graph: validation, merging, the file format and the pack of a story.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use segue_flows::team::knowledge::{
    ExistingKnowledgeNodePolicy, KnowledgeGraph, KnowledgeKind, KnowledgeLevel, KnowledgeNode, KnowledgePriority,
    KnowledgeRelation, KnowledgeRelationKind, KnowledgeStatus, build_knowledge_pack, knowledge_add_schema,
    parse_knowledge_dot, parse_knowledge_entry, write_knowledge_dot,
};
use serde_json::json;

pub(crate) fn node(id: &str, description: &str) -> KnowledgeNode {
    KnowledgeNode {
        id: id.to_owned(),
        kind: KnowledgeKind::Component,
        level: KnowledgeLevel::Architecture,
        status: KnowledgeStatus::Current,
        description: description.to_owned(),
        priority: None,
        relations: BTreeSet::new(),
        other_attributes: BTreeMap::new(),
    }
}

fn relation(relation: KnowledgeRelationKind, to: &str) -> KnowledgeRelation {
    KnowledgeRelation { relation, to: to.to_owned() }
}

fn graph(nodes: impl IntoIterator<Item = KnowledgeNode>) -> KnowledgeGraph {
    let mut graph = KnowledgeGraph::default();
    let nodes: Vec<KnowledgeNode> = nodes.into_iter().collect();
    let refused = graph.merge_nodes(&nodes, ExistingKnowledgeNodePolicy::Append);
    assert!(refused.is_empty(), "{refused:?}");
    graph
}

#[test]
fn m23_invalid_entry_is_refused_with_every_reason() {
    let refusal = |entry: serde_json::Value| {
        let mut graph = graph([node("a", "A.")]);
        let added = parse_knowledge_entry(&json!({"knowledge": entry}))
            .and_then(|node| graph.add_node(node, ExistingKnowledgeNodePolicy::Append));
        added.expect_err("it is invalid").join("\n")
    };
    let kind = refusal(json!({"id": "x", "type": "thing", "level": "code", "description": "d"}));
    assert!(kind.contains("`type` is `thing`") && kind.contains("component, interface"), "{kind}");
    assert!(kind.contains("`level` is `code`") && kind.contains("architecture, implementation"), "{kind}");
    let rule = refusal(json!({"id": "r", "type": "rule", "level": "architecture", "description": "No SQL in views."}));
    assert!(rule.contains("`priority` is required for a rule"), "{rule}");
    let empty = refusal(json!({"id": "x y", "type": "pattern", "level": "implementation", "description": " "}));
    assert!(empty.contains("`id` must have") && empty.contains("`description` is required"), "{empty}");
    let dangling = refusal(json!({"id": "x", "type": "pattern", "level": "implementation", "description": "d",
        "relations": [{"relation": "uses", "to": "nowhere"}]}));
    assert!(dangling.contains("`nowhere`, which is not in the graph"), "{dangling}");
    let unknown = refusal(json!({"id": "x", "type": "pattern", "level": "implementation", "description": "d",
        "relations": [{"relation": "likes", "to": "a"}]}));
    assert!(unknown.contains("`relation` is `likes`") && unknown.contains("must_follow"), "{unknown}");
    assert!(refusal(json!(["a"])).contains("must be an object"));
}

#[test]
fn m33_knowledge_add_takes_one_parameter_and_lists_every_value() {
    let schema = knowledge_add_schema();
    assert_eq!(schema["required"], json!(["knowledge"]));
    assert_eq!(schema["properties"].as_object().map(|properties| properties.len()), Some(1));
    let fields = &schema["properties"]["knowledge"]["properties"];
    let listed = |values: &serde_json::Value| values["enum"].as_array().map_or(0, Vec::len);
    assert_eq!(listed(&fields["type"]), 7);
    assert_eq!(listed(&fields["level"]), 2);
    assert_eq!(listed(&fields["status"]), 4);
    assert_eq!(listed(&fields["relations"]["items"]["properties"]["relation"]), 9);
}

#[test]
fn m24_appending_loses_nothing_and_replacing_changes_only_named_nodes() {
    let mut merged = graph([node("a", "First."), node("b", "B.")]);
    let mut more = node("a", "Second.");
    more.relations.insert(relation(KnowledgeRelationKind::Uses, "b"));
    assert!(merged.merge_nodes(std::slice::from_ref(&more), ExistingKnowledgeNodePolicy::Append).is_empty());
    assert_eq!(merged.nodes["a"].description, "First.\nSecond.");
    assert_eq!(merged.nodes["a"].relations.len(), 1);
    // Appending the same entry again changes nothing.
    let before = merged.clone();
    merged.merge_nodes(std::slice::from_ref(&more), ExistingKnowledgeNodePolicy::Append);
    assert_eq!(merged, before);
    merged.merge_nodes(&[node("a", "Third.")], ExistingKnowledgeNodePolicy::Replace);
    assert_eq!(merged.nodes["a"].description, "Third.");
    assert!(merged.nodes["a"].relations.is_empty());
    assert_eq!(merged.nodes["b"].description, "B.");
}

#[test]
fn entries_may_refer_to_each_other_in_one_update() {
    let mut first = node("a", "A.");
    first.relations.insert(relation(KnowledgeRelationKind::Calls, "b"));
    let mut second = node("b", "B.");
    second.relations.insert(relation(KnowledgeRelationKind::Uses, "a"));
    assert_eq!(graph([first, second]).nodes["a"].relations.len(), 1);
}

#[test]
fn file_of_a_person_is_read() {
    let text = r#"
        /* our knowledge */
        strict digraph "my knowledge" {
            rankdir=LR
            node [type=component, level=architecture, shape=box]
            api [description="The HTTP " + "API.", color=red];
            subgraph cluster_data { db [type=datastore, description="Holds \"all\" records."] }
            edge [label=uses]
            api:port -> db
# a comment
            "must-log" [type=rule, level=implementation, priority=high, description="Log every refusal."]
            api -> "must-log" [label="must_follow"]; // another
        }"#;
    let graph = parse_knowledge_dot(text).expect("it is valid");
    assert_eq!(graph.nodes.len(), 3);
    assert_eq!(graph.nodes["api"].description, "The HTTP API.");
    assert_eq!(graph.nodes["api"].other_attributes["color"], "red");
    assert_eq!(graph.nodes["db"].description, "Holds \"all\" records.");
    let relations: Vec<&str> = graph.nodes["api"].relations.iter().map(|relation| relation.relation.as_str()).collect();
    assert_eq!(relations, ["uses", "must_follow"]);
    assert_eq!(parse_knowledge_dot(&write_knowledge_dot(&graph)).expect("it was written here"), graph);
}

#[test]
fn broken_file_is_refused_with_the_line() {
    let error = |text: &str| parse_knowledge_dot(text).expect_err("it is broken").to_string();
    assert_eq!(error("graph { a -- b }"), "line 1: `--` is an undirected edge; write `->`");
    assert_eq!(error("digraph {\n a ["), "line 2: a name is missing");
    assert_eq!(error("digraph {\n a [label=<b>]\n}"), "line 2: HTML labels are not supported; use a quoted text");
    assert!(error("digraph { a }").contains("`a`: `type` is missing"));
    assert!(error("digraph { } }").contains("after the end"));
    assert!(error(&"digraph {".repeat(3)).starts_with("line 1"));
    assert!(error(&format!("digraph {}", "{".repeat(1000))).contains("nested subgraphs"));
    assert!(error("").contains("must begin with `digraph`"));
}

#[test]
fn m25_pack_is_matches_and_their_neighbours() {
    let mut login = node("login-form", "The form in which people log in.");
    login.relations.insert(relation(KnowledgeRelationKind::Calls, "session-store"));
    let graph = graph([node("session-store", "Keeps who is known."), login, node("billing", "Sends invoices.")]);
    let pack = build_knowledge_pack(&graph, "Show an error in the login form");
    let ids = |nodes: &[KnowledgeNode]| nodes.iter().map(|node| node.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&pack.matches), ["login-form"]);
    assert_eq!(ids(&pack.neighbours), ["session-store"]);
    assert!(build_knowledge_pack(&graph, "Paint the fence").is_empty());
}

#[test]
fn m25_pack_is_bounded() {
    let nodes = (0..200).map(|index| node(&format!("n{index}"), &format!("parser number{index}")));
    let graph = graph(nodes);
    let story: String = (0..200).map(|index| format!("parser number{index} ")).collect();
    let pack = build_knowledge_pack(&graph, &story);
    assert_eq!((pack.terms.len(), pack.matches.len()), (20, 20));
}

fn any_text() -> impl Strategy<Value = String> {
    // Quotes, backslashes, line breaks, brackets and letters beyond ASCII.
    proptest::string::string_regex("[a-z\"\\\\\n\t{}\\[\\];#/*<>=äßΩ 0-9]{1,30}")
        .expect("the pattern is valid")
        .prop_filter("a description says something", |text| !text.trim().is_empty())
}

fn any_graph() -> impl Strategy<Value = KnowledgeGraph> {
    let any_node = (any_text(), 0..7usize, 0..4usize, any_text());
    let nodes = proptest::collection::vec(any_node, 1..8);
    (nodes, proptest::collection::vec((0..8usize, 0..8usize, 0..9usize), 0..12)).prop_map(|(nodes, relations)| {
        let kind = |index: usize| KnowledgeKind::from_name(KnowledgeKind::NAMES[index]).expect("it is listed");
        let status = |index: usize| KnowledgeStatus::from_name(KnowledgeStatus::NAMES[index]).expect("it is listed");
        let count = nodes.len();
        let mut nodes: Vec<KnowledgeNode> = nodes
            .into_iter()
            .enumerate()
            .map(|(index, (description, kind_index, status_index, value))| KnowledgeNode {
                kind: kind(kind_index),
                status: status(status_index),
                priority: Some(KnowledgePriority::High),
                other_attributes: [("note".to_owned(), value)].into(),
                // Names that Graphviz would read as keywords or numbers.
                ..node(["node", "7", "a-b", "edge", "x/y", "Strict", "ü", "plain"][index], &description)
            })
            .collect();
        for (from, to, name) in relations.into_iter().filter(|(from, to, _)| from != to && *from < count && *to < count)
        {
            let name = KnowledgeRelationKind::NAMES[name];
            let (relation, to) = (KnowledgeRelationKind::from_name(name).expect("it is listed"), nodes[to].id.clone());
            nodes[from].relations.insert(KnowledgeRelation { relation, to });
        }
        graph(nodes)
    })
}

proptest! {
    #[test]
    fn every_graph_survives_the_file(graph in any_graph()) {
        let file = write_knowledge_dot(&graph);
        prop_assert_eq!(parse_knowledge_dot(&file).expect("it was written here"), graph);
    }

    #[test]
    fn no_text_panics_the_reader(text in "[a-z\"\\\\\n{}\\[\\];#/*<>=:+,. -]{0,60}") {
        // Any result is fine.
        let _ = parse_knowledge_dot(&format!("digraph {{{text}"));
    }
}

/// Graphviz itself reads what is written here, where it is installed.
#[test]
fn graphviz_accepts_the_file() {
    let mut odd = node("edge", "He said: \"no\\\" {}\n<b>");
    odd.other_attributes.insert("note".to_owned(), "ends with \\".to_owned());
    let mut second = node("a-b", "Second.");
    second.relations.insert(relation(KnowledgeRelationKind::MustNotUse, "edge"));
    let file = write_knowledge_dot(&graph([odd, second]));
    let started = Command::new("dot").arg("-Tcanon").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut dot) = started else {
        assert!(parse_knowledge_dot(&file).is_ok(), "without Graphviz, our own reader decides");
        return;
    };
    std::io::Write::write_all(dot.stdin.as_mut().expect("it is piped"), file.as_bytes()).expect("dot reads its input");
    let output = dot.wait_with_output().expect("dot ends");
    assert!(output.status.success(), "{file}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("must_not_use"));
}
