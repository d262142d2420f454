//! Servers that support only one version of the protocol.

use std::path::Path;

use segue_domains::DomainMcpServersTool;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use serde_json::json;

use super::requests::{run, tool_request};

/// A minimal server, written as a shell script.
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remote/server.sh");

fn notes(style: &str, log: &Path) -> ConfiguredDomains {
    let text = format!(
        r#"
        name = "notes"
        [[type]]
        name = "note"
        label = "title"
        fields = [{{ name = "title", kind = "text" }}, {{ name = "done", kind = "yes_no" }}]
        [server]
        command = ["sh", "{SERVER}", "{style}", "{}"]
        tools = [
          {{ name = "list_notes", writes = false, returns = "note", at = "/notes", id = "uid" }},
          {{ name = "finish_note", writes = true, references = {{ note = "note" }} }},
        ]
        "#,
        log.display()
    );
    ConfiguredDomains::new([DomainSchema::parse(&text).expect("sound")])
}

#[tokio::test]
async fn both_protocol_versions_work() {
    for style in ["initialize", "discover"] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let host = DomainMcpServersTool::new(notes(style, &log));
        let list_tools = run(&host, tool_request("list_tools", json!({}))).await.expect("it is described");
        let names: Vec<&str> = list_tools.tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["list_notes", "finish_note"], "{style}: what the domain does not name is not there");
        assert_eq!(list_tools.tools[0]["input_schema"]["type"], "object");
        let listed = run(&host, tool_request("call_tool", json!({"tool": "list_notes", "arguments": {}})))
            .await
            .expect("called");
        let labels: Vec<&str> = listed.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["Buy oak", "Call Noor"], "{style}");
        assert_eq!((listed.rows[1].kind.as_str(), &listed.rows[1].fields["done"]), ("note", &json!(true)));
        let heard = std::fs::read_to_string(&log).expect("it was told something");
        let says = |word: &str| heard.contains(&format!("\"method\":\"{word}\""));
        assert!(says("server/discover"), "{style}: the newer style is tried first");
        assert_eq!(says("initialize"), style == "initialize", "{style}: {heard}");
        assert!(heard.contains("\"name\":\"segue\""), "{style}: it says who it is");
    }
}
