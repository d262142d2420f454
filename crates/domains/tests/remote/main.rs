//! The tools of a server as a domain: both styles of the protocol, references for ids, and writes only where they were planned.

use std::path::Path;
use std::sync::Arc;

use segue_core::event::{Event, Outcome, ToolOpened};
use segue_core::ids::{Millis, Seq, ToolRunId};
use segue_domains::Remote;
use segue_engine::tools::{Tool, ToolRequest, Tools};
use segue_engine::{Engine, Message, Opening, Setup};
use segue_flows::assistant::domain::Domain;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::{REMOTE, Reported};
use segue_models::{Models, Scripted};
use segue_store::memory::{MemoryDisk, MemoryStore};
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remote/server.sh");

fn notes(style: &str, log: &Path) -> Domains {
    let text = format!(
        r#"
        name = "notes"
        about = "Notes that are kept elsewhere."

        [[type]]
        name = "note"
        label = "title"
        fields = [{{ name = "title", kind = "text" }}, {{ name = "done", kind = "yes_no" }}]

        [server]
        command = ["sh", "{SERVER}", "{style}", "{}"]
        tools = [
          {{ name = "list_notes", returns = "note", at = "/notes", id = "uid" }},
          {{ name = "finish_note", writes = true, references = {{ note = "note" }} }},
        ]
        "#,
        log.display()
    );
    Domains::new([Domain::parse(&text).expect("sound")])
}

fn request(arguments: Value) -> ToolRequest {
    let opened = ToolOpened {
        run: ToolRunId(1),
        turn: None,
        tool: REMOTE.into(),
        arguments,
        wish: None,
        agent: None,
        phase: None,
    };
    ToolRequest { session: "s".into(), since: Millis(1), settings: json!({"domain": "notes"}), opened }
}

fn told(op: &str, rest: Value) -> Value {
    let mut told = json!({"domain": "notes", "op": op, "for": "call", "turn": 1, "step": 1, "step_type": "read"});
    for (name, value) in rest.as_object().expect("an object") {
        told[name] = value.clone();
    }
    told
}

async fn run(host: &Remote, arguments: Value) -> Result<Reported, String> {
    host.run(request(arguments)).await.map(|text| Reported::read(&text).expect("a result"))
}

#[tokio::test]
async fn a_server_is_understood_in_both_styles_of_the_protocol() {
    for style in ["initialize", "discover"] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let host = Remote::new(notes(style, &log));
        let described = run(&host, told("describe", json!({}))).await.expect("it is described");
        let names: Vec<&str> = described.tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["list_notes", "finish_note"], "{style}: what the domain does not name is not there");
        assert_eq!(described.tools[0]["arguments"]["type"], "object");
        let listed = run(&host, told("call", json!({"tool": "list_notes", "arguments": {}}))).await.expect("called");
        let labels: Vec<&str> = listed.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["Buy oak", "Call Noor"], "{style}");
        assert_eq!((listed.rows[1].kind.as_str(), &listed.rows[1].fields["done"]), ("note", &json!(true)));
        let heard = std::fs::read_to_string(&log).expect("it was told something");
        let says = |word: &str| heard.contains(&format!("\"method\":\"{word}\""));
        assert!(says("server/discover"), "{style}: the newer style is tried first");
        assert_eq!(says("initialize"), style == "initialize", "{style}: {heard}");
    }
}

#[tokio::test]
async fn only_what_was_planned_is_written_and_a_refusal_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Remote::new(notes("discover", &folder.path().join("log")));
    let finish = |note: &str| json!({"tool": "finish_note", "arguments": {"note": note}});
    let first = "5f0e8a12-0001-4000-8000-000000000001";
    let refused = run(&host, told("call", finish(first))).await.expect("served").refused;
    assert!(refused.is_some_and(|why| why.contains("not planned as a write")));
    let mut planned = told("call", finish(first));
    planned["step_type"] = json!("write");
    let said = run(&host, planned.clone()).await.expect("served").said.expect("words");
    assert!(said.starts_with("finished"), "{said}");
    planned["arguments"] = json!({"note": "5f0e8a12-0002-4000-8000-000000000002"});
    let refused = run(&host, planned).await.expect("served").refused;
    assert_eq!(refused.as_deref(), Some("that one is done already"));
    let refused = run(&host, told("call", json!({"tool": "drop_all"}))).await.expect("served").refused;
    assert_eq!(refused.as_deref(), Some("the domain names no tool `drop_all`"));
    assert!(run(&host, told("read", json!({}))).await.expect("served").refused.is_some());
}

#[tokio::test]
async fn a_server_that_cannot_be_had_is_an_error_that_names_it() {
    let text = "name = \"notes\"\n[server]\ncommand = [\"/no/such/program\"]\ntools = [{ name = \"x\" }]";
    let host = Remote::new(Domains::new([Domain::parse(text).expect("sound")]));
    let why = run(&host, told("describe", json!({}))).await.expect_err("it is not there");
    assert!(why.contains("the server `/no/such/program` cannot be started"), "{why}");
}

const SCRIPT: &str = r#"
[[reply]]
role = "understand"
json = '{"expressed": "wants the oak done", "references": [], "retain": [], "demote": [], "drop": [], "clear": false, "pending": null}'

[[reply]]
role = "think"
json = { decision = "plan_direct", goal = "finish the note", steps = [
  { description = "list the notes", type = "read", subdomain = "note", group = 1, refs = [] },
  { description = "finish the note about oak", type = "write", subdomain = "note", group = 2, refs = [] },
] }

[[reply]]
role = "act"
agent = "step-1"
ask = "go"
json = { action = "tool_call", tool = "list_notes", arguments = {} }

[[reply]]
role = "act"
agent = "step-1"
json = { action = "step_complete", outcome = "two notes", refs = ["note_1", "note_2"] }

[[reply]]
role = "act"
agent = "step-2"
ask = "go"
json = { action = "tool_call", tool = "finish_note", arguments = { note = "note_1" } }

[[reply]]
role = "act"
agent = "step-2"
json = { action = "step_complete", outcome = "it is finished" }

[[reply]]
role = "reply"
text = "The oak is done."
"#;

#[tokio::test]
async fn a_conversation_over_a_servers_tools_shows_references_and_no_ids() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let domains = notes("discover", &log);
    let model: Scripted = SCRIPT.parse().expect("a sound script");
    let store = Arc::new(MemoryStore::open(&MemoryDisk::new()));
    let setup = Setup::new(store, segue_flows::with(domains.clone()), Models::only(Arc::new(model)), "scripted");
    let tools = Tools::default().with(REMOTE, Arc::new(Remote::new(domains)));
    let engine = Engine::start(Setup { tools, ..setup }).await.expect("it starts");
    let settings = json!({"domain": "notes"});
    let session = engine.open(&"assistant".into(), Opening { settings, ..Opening::default() }).await.expect("opened");
    let report = engine.ask(&session, Message::from("finish the oak")).await.expect("answered");
    assert_eq!((report.outcome, report.said), (Outcome::Done, vec!["The oak is done.".to_owned()]));
    let heard = std::fs::read_to_string(&log).expect("it was told something");
    let finished = heard.lines().find(|line| line.contains("finish_note")).expect("it was called");
    assert!(finished.contains("5f0e8a12-0001-4000-8000-000000000001"), "the server is told the id: {finished}");
    let events = engine.events(&session, Seq(0), 500).await.expect("readable");
    let mut shown = String::new();
    for recorded in &events {
        if let Event::CallOpened(opened) = &recorded.event {
            let prompt = engine.prompt(&session, opened.call).await.expect("it was made");
            shown.extend(prompt.messages.iter().map(|message| message.text()));
        }
    }
    assert!(!shown.contains("5f0e8a12"), "no id reaches a model: {shown}");
    assert!(shown.contains("finished note_1 and not –"), "{shown}");
    assert!(shown.contains("- finish_note: finishes a note (changes something: only in a write step)"), "{shown}");
    assert!(shown.contains("note takes a reference of type note"), "{shown}");
}
