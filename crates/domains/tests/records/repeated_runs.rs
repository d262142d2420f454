//! Repeated runs are recognized, and interrupted runs are resolved.

use segue_domains::SqliteRecordsTool;
use serde_json::{Value, json};

use super::support::{RecordsHarness, domains, tool_request};

fn create() -> Value {
    tool_request("create", json!({"type": "box", "records": [{"name": "first"}]}))
}

fn resolve_run(of: u32, was: &Value) -> Value {
    let mut arguments = tool_request("resolve_run", json!({"run": of, "request": was}));
    arguments["for"] = json!("resolve_run");
    arguments
}

#[test]
fn repeated_run_writes_once_and_returns_the_same_result() {
    let mut harness = RecordsHarness::new();
    let first = harness.run(&create()).expect("served");
    for _ in 0..3 {
        assert_eq!(harness.repeat(harness.last_run(), &create()).expect("served"), first);
    }
    assert_eq!(harness.names(json!([])), ["first"]);
    let id = first.rows[0].id.clone();
    let update = tool_request("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 2}}]}));
    let once = harness.run(&update).expect("served");
    assert_eq!(
        harness.repeat(harness.last_run(), &update).expect("served"),
        once,
        "with what stood there before the first time"
    );
}

#[test]
fn repeated_run_is_recognized_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let mut one = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()));
    let first = one.run(&create()).expect("served");
    drop(one);
    let mut two = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()));
    assert_eq!(two.repeat(1, &create()).expect("served"), first);
    assert_eq!(two.names(json!([])), ["first"]);
}

#[test]
fn reused_session_name_is_another_session() {
    let mut harness = RecordsHarness::new();
    let first = harness.run(&create()).expect("served");
    harness.since = 2;
    let second = harness.repeat(1, &create()).expect("served");
    assert_ne!(first.rows[0].id, second.rows[0].id);
    harness.session = "t";
    harness.repeat(1, &create()).expect("served");
    assert_eq!(harness.names(json!([])), ["first", "first", "first"]);
}

#[test]
fn resolved_run_has_a_result_or_is_never_executed() {
    let mut harness = RecordsHarness::new();
    let done = harness.run(&create()).expect("served");
    assert_eq!(harness.run(&resolve_run(1, &create())).expect("served"), done, "it had happened");
    let never = harness.run(&resolve_run(40, &create())).expect("served");
    assert!(never.never_executed);
    let late = harness.repeat(40, &create()).expect("served");
    assert!(late.never_executed && late.rows.is_empty(), "and it comes too late now");
    assert_eq!(harness.names(json!([])), ["first"]);
}

#[test]
fn two_programs_can_share_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let threads: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|session| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut harness = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()));
                harness.session = session;
                for _ in 0..20 {
                    harness.make(json!({"name": session}));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it wrote"));
    let mut harness = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()));
    assert_eq!(harness.names(json!([])).len(), 40);
}
