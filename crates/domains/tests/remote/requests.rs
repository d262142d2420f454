//! Single requests to a real server: which are allowed, and what happens if the server is slow, dies, returns too much or changes
//! its tools.

use std::path::Path;

use segue_core::event::ToolRunOpened;
use segue_core::ids::{ToolRunId, UnixMillis};
use segue_domains::DomainMcpServersTool;
use segue_domains::limits::RESULT_BYTES_MAX;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::{DomainToolResult, MCP_TOOL};
use segue_mcp::limits::MCP_TEXT_BYTES_MAX;
use serde_json::{Value, json};

use super::notes_server::{self, NOOR, Notes, OAK};

/// The key of the HTTP server: the value of a variable that every test process has.
const KEY: &str = env!("CARGO_PKG_NAME");
const KEY_ENV: &str = "CARGO_PKG_NAME";

/// A domain of notes with this server declaration.
pub(crate) fn domain(reached: &str, tools: &str) -> ConfiguredDomains {
    let text = format!(
        r#"
        name = "notes"
        about = "Notes that are kept elsewhere."
        [[type]]
        name = "note"
        label = "title"
        fields = [{{ name = "title", kind = "text" }}, {{ name = "done", kind = "yes_no" }}, {{ name = "by", kind = "text" }}]
        [server]
        {reached}
        {tools}
        "#
    );
    ConfiguredDomains::new([DomainSchema::parse(&text).expect("sound")])
}

pub(crate) const TOOLS: &str = r#"tools = [
  { name = "list_notes", returns = "note", at = "/notes", id = "uid" },
  { name = "finish_note", references = { note = "note" } },
  { name = "pick", references = { note = "note" } },
  { name = "peek" }, { name = "stamp" }, { name = "ponder" }, { name = "recite" }, { name = "swap" }, { name = "wipe" },
]"#;

pub(crate) fn command_toml(folder: &Path) -> String {
    format!("command = {:?}", notes_server::command(folder))
}

pub(crate) fn request(arguments: Value) -> ToolInvocation {
    let opened = ToolRunOpened {
        run: ToolRunId(1),
        turn: None,
        tool: MCP_TOOL.into(),
        arguments,
        requested_by: None,
        agent: None,
        phase: None,
    };
    ToolInvocation {
        session: "s".into(),
        session_opened_at: UnixMillis(1),
        settings: json!({"domain": "notes"}),
        opened,
    }
}

pub(crate) fn tool_request(op: &str, rest: Value) -> Value {
    let mut tool_request =
        json!({"domain": "notes", "operation": op, "for": "step_tool_call", "turn": 1, "step": 1, "step_kind": "read"});
    for (name, value) in rest.as_object().expect("an object") {
        tool_request[name] = value.clone();
    }
    tool_request
}

pub(crate) async fn run(host: &DomainMcpServersTool, arguments: Value) -> Result<DomainToolResult, String> {
    let result = host.run(request(arguments), ToolRunContext::for_tests()).await;
    if result.failed {
        return Err(result.text);
    }
    assert!(result.text.len() < RESULT_BYTES_MAX, "the engine would cut it");
    Ok(DomainToolResult::parse(&result.text).expect("a result"))
}

/// Calls a tool in a step of this kind.
async fn call(
    host: &DomainMcpServersTool,
    step: &str,
    tool: &str,
    arguments: Value,
) -> Result<DomainToolResult, String> {
    run(host, tool_request("call_tool", json!({"step_kind": step, "tool": tool, "arguments": arguments}))).await
}

async fn list_tools(host: &DomainMcpServersTool) -> Vec<(String, Option<bool>)> {
    let tools = run(host, tool_request("list_tools", json!({}))).await.expect("described").tools;
    tools.iter().map(|tool| (tool["name"].as_str().unwrap_or_default().to_owned(), tool["writes"].as_bool())).collect()
}

#[tokio::test]
async fn server_works_as_a_process_and_over_http() {
    for way in ["process", "http"] {
        let folder = tempfile::tempdir().expect("a folder");
        let reached = match way {
            "process" => command_toml(folder.path()),
            _ => format!("url = {:?}\nkey_env = {KEY_ENV:?}", notes_server::serve_http(folder.path(), KEY).await),
        };
        let host = DomainMcpServersTool::new(domain(&reached, TOOLS));
        let known = list_tools(&host).await;
        assert_eq!(known.len(), 9, "{way}: from both pages");
        assert_eq!(
            known[..3],
            [("list_notes".to_owned(), Some(false)), ("finish_note".to_owned(), Some(true)), ("wipe".to_owned(), None)]
        );
        let listed = call(&host, "read", "list_notes", json!({})).await.expect("called");
        let labels: Vec<&str> = listed.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!((labels, listed.rows[0].id.as_str()), (vec!["Buy oak", "Call Noor"], OAK), "{way}");
        let finished = call(&host, "write", "finish_note", json!({"note": OAK})).await.expect("called");
        assert!(finished.text.is_some_and(|said| said.starts_with("finished")), "{way}");
        let refused = call(&host, "write", "finish_note", json!({"note": NOOR})).await.expect("called").refusal;
        assert_eq!(refused.as_deref(), Some("that one is done already"), "{way}");
    }
}

#[tokio::test]
async fn each_owner_has_its_own_server_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("owners");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remote/server.sh");
    let requests = folder.path().join("requests");
    let start =
        format!("echo \"owner=$SEGUE_OWNER\" >> {}; exec sh {script} initialize {}", log.display(), requests.display());
    let host = DomainMcpServersTool::new(domain(&format!("command = {:?}", ["sh", "-c", &start]), ""));
    for session in ["ada.notes", "bob.notes", "ada.other", "notes"] {
        let list = json!({"domain": "notes", "operation": "list_tools", "for": "list_tools"});
        let request = ToolInvocation { session: session.into(), ..request(list) };
        let result = host.run(request, ToolRunContext::for_tests()).await;
        assert_eq!(DomainToolResult::parse(&result.text).expect("a result").tools.len(), 3);
    }
    let started = std::fs::read_to_string(log).expect("logged");
    assert_eq!(started.lines().collect::<Vec<_>>(), ["owner=ada", "owner=bob", "owner="]);
}

#[tokio::test]
async fn writing_tool_is_called_only_in_write_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, server) =
        (DomainMcpServersTool::new(domain(&command_toml(folder.path()), TOOLS)), Notes::new(folder.path()));
    for step in ["read", "analyze", "generate"] {
        // One is marked as a write, the other is not marked at all.
        for tool in ["finish_note", "wipe"] {
            let refused = call(&host, step, tool, json!({"note": OAK})).await.expect("served").refusal;
            assert!(refused.is_some_and(|why| why.contains("not planned as a write")), "{step} {tool}");
        }
    }
    assert_eq!((server.done("finish_note"), server.done("wipe")), (0, 0));
    assert!(call(&host, "write", "wipe", json!({})).await.expect("served").refusal.is_none());
    let refused = call(&host, "write", "drop_all", json!({})).await.expect("served").refusal;
    assert_eq!(refused.as_deref(), Some("the domain declares no tool `drop_all`"));
    assert!(run(&host, tool_request("read", json!({}))).await.expect("served").refusal.is_some());
    // The declaration takes precedence over the server's hint.
    let said = "tools = [{ name = \"wipe\", writes = false }, { name = \"list_notes\", writes = true }]";
    let host = DomainMcpServersTool::new(domain(&command_toml(folder.path()), said));
    assert!(call(&host, "read", "wipe", json!({})).await.expect("served").refusal.is_none());
    assert!(call(&host, "read", "list_notes", json!({})).await.expect("served").refusal.is_some());
}

#[tokio::test]
async fn all_tools_are_allowed_if_none_are_declared() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = DomainMcpServersTool::new(domain(&command_toml(folder.path()), ""));
    assert_eq!(list_tools(&host).await.len(), 9);
    let listed = call(&host, "read", "list_notes", json!({})).await.expect("called");
    assert!(
        listed.rows.is_empty() && listed.text.is_some_and(|said| said.contains("Buy oak")),
        "nobody said what they are"
    );
    assert!(call(&host, "read", "wipe", json!({})).await.expect("served").refusal.is_some());
    let refused = call(&host, "read", "drop_all", json!({})).await.expect("served").refusal;
    assert_eq!(refused.as_deref(), Some("the server has no tool `drop_all`"));
}

#[tokio::test]
async fn request_times_out_as_configured() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = DomainMcpServersTool::new(domain(&format!("{}\ntimeout_s = 1", command_toml(folder.path())), TOOLS));
    let why = call(&host, "read", "ponder", json!({})).await.expect_err("it never answers");
    assert_eq!(why, "the server did not answer within 1 s");
    assert!(call(&host, "read", "list_notes", json!({})).await.is_ok(), "it can still be asked for other things");
}

#[tokio::test]
async fn dead_server_is_restarted_and_only_reads_are_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, server) =
        (DomainMcpServersTool::new(domain(&command_toml(folder.path()), TOOLS)), Notes::new(folder.path()));
    let peeked = call(&host, "read", "peek", json!({})).await.expect("the second time it lives");
    assert_eq!((peeked.text.as_deref(), server.done("peek")), (Some("there it is"), 2));
    let why = call(&host, "write", "stamp", json!({})).await.expect_err("it died");
    assert!(why.starts_with("the connection to the server was lost"), "{why}");
    assert_eq!(server.done("stamp"), 1, "a write is not repeated");
    assert_eq!(list_tools(&host).await.len(), 9, "it was started again");
}

#[tokio::test]
async fn long_text_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = DomainMcpServersTool::new(domain(&command_toml(folder.path()), TOOLS));
    let said = call(&host, "read", "recite", json!({})).await.expect("called").text.expect("words");
    assert!(said.len() <= MCP_TEXT_BYTES_MAX + 3 && said.ends_with('…'), "{}", said.len());
}

#[tokio::test]
async fn changed_tool_list_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, server) =
        (DomainMcpServersTool::new(domain(&command_toml(folder.path()), "")), Notes::new(folder.path()));
    list_tools(&host).await;
    let lists = server.done("tools asked");
    call(&host, "read", "list_notes", json!({})).await.expect("called");
    assert_eq!(server.done("tools asked"), lists, "what is known is not asked again");
    call(&host, "read", "swap", json!({})).await.expect("called");
    let refused = call(&host, "write", "wipe", json!({})).await.expect("served").refusal;
    assert!(refused.is_some_and(|why| why.contains("no tool")), "either side may notice first");
    let names: Vec<String> = list_tools(&host).await.into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"tidy".to_owned()) && !names.contains(&"wipe".to_owned()), "{names:?}");
}

#[tokio::test]
async fn ids_become_numbers_if_the_schema_asks_for_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = DomainMcpServersTool::new(domain(&command_toml(folder.path()), TOOLS));
    let said = call(&host, "read", "pick", json!({"note": "7"})).await.expect("called").text;
    assert_eq!(said.as_deref(), Some("picked 7"));
}

#[tokio::test]
async fn unreachable_server_is_reported_without_its_key() {
    let host = DomainMcpServersTool::new(domain("command = [\"/no/such/program\"]", ""));
    let why = run(&host, tool_request("list_tools", json!({}))).await.expect_err("it is not there");
    assert!(why.contains("the server `/no/such/program` cannot be started"), "{why}");
    let host = DomainMcpServersTool::new(domain("command = [\"false\"]", ""));
    let why = run(&host, tool_request("list_tools", json!({}))).await.expect_err("it says nothing");
    assert!(why.contains("the server `false` cannot be started"), "{why}");
    let folder = tempfile::tempdir().expect("a folder");
    let url = notes_server::serve_http(folder.path(), "another key").await;
    let host = DomainMcpServersTool::new(domain(&format!("url = {url:?}\nkey_env = {KEY_ENV:?}"), ""));
    let why = run(&host, tool_request("list_tools", json!({}))).await.expect_err("it is not let in");
    assert!(why.starts_with(&format!("the server {url} cannot be reached: ")) && !why.contains(KEY), "{why}");
    let host =
        DomainMcpServersTool::new(domain(&format!("url = {url:?}\nkey_env = \"NO_SUCH_VARIABLE_OF_NOTES\""), ""));
    let why = run(&host, tool_request("list_tools", json!({}))).await.expect_err("there is no key");
    assert!(why.ends_with("the environment variable `NO_SUCH_VARIABLE_OF_NOTES` for its key is not set"), "{why}");
    let host = DomainMcpServersTool::new(domain("url = \"http://127.0.0.1:9/mcp\"", ""));
    let why = run(&host, tool_request("list_tools", json!({}))).await.expect_err("nobody is there");
    assert!(why.starts_with("the server http://127.0.0.1:9/mcp cannot be reached"), "{why}");
}
