//! Whole turns with a real server: what prompts show, what the server receives, and what the reply may claim.

use std::sync::Arc;

use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::{Seq, SessionId};
use segue_domains::DomainMcpServersTool;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::MCP_TOOL;
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::json;

use super::notes_server::{Notes, OAK};
use super::requests::{TOOLS, command_toml, domain};

const HEARD: &str = r#"
[[reply]]
role = "understand"
json = '{"expressed": "wants the oak done", "references": [], "retain": [], "demote": [], "drop": [], "clear": false, "pending": null}'
"#;

async fn open(domains: ConfiguredDomains, script: &str) -> (Engine, SessionId) {
    let model: ScriptedModel = format!("{HEARD}{script}").parse().expect("a sound script");
    let store = Arc::new(InMemoryStore::open(&InMemoryStoreDisk::new()));
    let setup = EngineConfig::new(
        store,
        segue_flows::flows_with_domains(domains.clone()),
        ModelRegistry::from_single_model(Arc::new(model)),
        "scripted",
    );
    let tools = ToolRegistry::default().with_tool(MCP_TOOL, Arc::new(DomainMcpServersTool::new(domains)));
    let engine = Engine::start(EngineConfig { tools, ..setup }).await.expect("it starts");
    let opening = SessionOptions { settings: json!({"domain": "notes"}), ..SessionOptions::default() };
    let session = engine.open_session(&"assistant".into(), opening).await.expect("opened");
    (engine, session)
}

/// Returns the prompts of a role, or of all roles.
async fn prompt_texts(engine: &Engine, session: &SessionId, role: Option<&str>) -> String {
    let mut prompt_texts = String::new();
    for recorded in engine.read_events(session, Seq(0), 500).await.expect("readable") {
        if let Event::CallOpened(opened) = &recorded.event
            && role.is_none_or(|role| opened.role == *role)
        {
            let prompt = engine.rebuild_prompt(session, opened.call).await.expect("it was made");
            prompt_texts.extend(prompt.messages.iter().map(|message| message.text()));
        }
    }
    prompt_texts
}

/// Lists notes and finishes one. `finish_script` replaces the words in capitals.
const FINISH: &str = r#"
[[reply]]
role = "think"
json = { decision = "plan_direct", goal = "finish the note", steps = [
  { description = "list the notes", type = "read", subdomain = "KIND", group = 1, refs = [] },
  { description = "finish the note about oak", type = "write", operation = "finish_note", subdomain = "KIND", group = 2, refs = [] },
] }

[[reply]]
role = "act"
agent = "step-1"
ask = "go"
json = { action = "tool_call", tool = "list_notes", arguments = {} }

[[reply]]
role = "act"
agent = "step-1"
json = { action = "step_complete", outcome = "two notes", refs = [LISTED] }

[[reply]]
role = "act"
agent = "step-2"
ask = "go"
json = { action = "tool_call", tool = "finish_note", arguments = { note = "ONE" } }

[[reply]]
role = "act"
agent = "step-2"
json = { action = "step_complete", outcome = "it is finished" }

[[reply]]
role = "reply"
text = "The oak is done."
"#;

/// Returns the scenario with the type of the notes, their references, and the one to finish.
fn finish_script(kind: &str, listed: &[&str], one: &str) -> String {
    let listed: Vec<String> = listed.iter().map(|reference| format!("{reference:?}")).collect();
    FINISH.replace("KIND", kind).replace("LISTED", &listed.join(", ")).replace("ONE", one)
}

#[tokio::test]
async fn conversation_with_server_tools_shows_references_and_no_ids() {
    let folder = tempfile::tempdir().expect("a folder");
    let (engine, session) =
        open(domain(&command_toml(folder.path()), TOOLS), &finish_script("note", &["note_1", "note_2"], "note_1"))
            .await;
    for said in ["finish the oak", "and again"] {
        let report = engine.send_and_wait(&session, UserMessage::from(said)).await.expect("answered");
        assert_eq!((report.outcome, report.replies), (TurnOutcome::Done, vec!["The oak is done.".to_owned()]));
    }
    assert_eq!(Notes::new(folder.path()).done(&format!("finish_note {{\"note\":\"{OAK}\"}}")), 2, "it is told the id");
    let all = prompt_texts(&engine, &session, None).await;
    assert!(!all.contains("5f0e8a12"), "no id reaches a model: {all}");
    let act = prompt_texts(&engine, &session, Some("act")).await;
    assert!(act.contains("finished note_1 and not item_1") && act.contains("\"by\":\"item_1\""), "{act}");
    assert!(act.contains("- finish_note: finishes a note (changes data: only in a write step)"), "{act}");
    assert!(act.contains("note takes a reference of type note"), "{act}");
    let think = prompt_texts(&engine, &session, Some("think")).await;
    assert!(think.contains("- list_notes: lists notes\n") && think.contains("- finish_note: finishes a note (changes"));
    let reply = prompt_texts(&engine, &session, Some("reply")).await;
    assert!(reply.contains("ran finish_note"), "{reply}");
    let events = engine.read_events(&session, Seq(0), 500).await.expect("readable");
    let list_tools = events
        .iter()
        .filter(|event| matches!(&event.event, Event::FlowFactRecorded { kind, .. } if kind == "server_tools_listed"));
    assert_eq!(list_tools.count(), 1, "what has not changed is not noted again");
}

const STAMP: &str = r#"
[[reply]]
role = "think"
json = { decision = "plan_direct", goal = "stamp it", steps = [
  { description = "stamp it", type = "write", operation = "stamp", subdomain = "note", group = 1, refs = [] },
  { description = "look at it", type = "read", subdomain = "note", group = 2, refs = [] },
] }

[[reply]]
role = "act"
json = { action = "tool_call", tool = "stamp", arguments = {} }

[[reply]]
role = "reply"
text = "I do not know whether it is stamped."
"#;

#[tokio::test]
async fn write_is_not_repeated_or_claimed_if_the_server_died() {
    let folder = tempfile::tempdir().expect("a folder");
    let (engine, session) = open(domain(&command_toml(folder.path()), TOOLS), STAMP).await;
    let report = engine.send_and_wait(&session, UserMessage::from("stamp it")).await.expect("answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    assert_eq!(Notes::new(folder.path()).done("stamp"), 1);
    let reply = prompt_texts(&engine, &session, Some("reply")).await;
    assert!(
        reply.contains(
            "stamp it: failed. it is unknown whether this was executed: the connection to the server was lost"
        ),
        "{reply}"
    );
    assert!(reply.contains("look at it: not started"), "{reply}");
}

#[tokio::test]
async fn server_without_declared_tools_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("name = \"notes\"\n[server]\n{}", command_toml(folder.path()));
    let domains = ConfiguredDomains::new([segue_flows::assistant::domain::DomainSchema::parse(&text).expect("sound")]);
    let (engine, session) = open(domains, &finish_script("notes", &["item_1"], "item_1")).await;
    let report = engine.send_and_wait(&session, UserMessage::from("finish the oak")).await.expect("answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    let all = prompt_texts(&engine, &session, None).await;
    assert!(!all.contains("5f0e8a12"), "{all}");
    assert!(all.contains("item_1") && all.contains("item_3"), "{all}");
    let server = Notes::new(folder.path());
    assert_eq!(server.done(&format!("finish_note {{\"note\":\"{OAK}\"}}")), 1, "it is told the id");
}
