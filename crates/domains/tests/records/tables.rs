//! Tables: created from the declaration, usable by other programs, and never recreated.

use rusqlite::Connection;
use segue_domains::SqliteRecordsTool;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use serde_json::json;

use super::support::{RecordsHarness, THINGS, domains};

#[test]
fn samples_are_inserted_only_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let kitchen = |path: &std::path::Path| RecordsHarness {
        settings: json!({}),
        ..RecordsHarness::with_tool(SqliteRecordsTool::in_file(path, domains()))
    };
    let mut harness = kitchen(&path);
    let arguments = json!({"domain": "kitchen", "operation": "read", "for": "step_tool_call", "type": "recipe", "limit": 100, "full": true});
    let rows = harness.run(&arguments).expect("served").rows;
    assert_eq!(rows.len(), 8);
    assert_eq!(rows[0].label, "Lemon Herb Chicken");
    let delete = json!({"domain": "kitchen", "operation": "delete", "for": "step_tool_call", "step_kind": "write",
        "items": [{"type": "recipe", "id": rows[0].id}]});
    assert_eq!(harness.run(&delete).expect("served").refusal, None);
    drop(harness);
    assert_eq!(kitchen(&path).run(&arguments).expect("served").rows.len(), 7);
    let read =
        json!({"domain": "kitchen", "operation": "read", "for": "step_tool_call", "type": "inventory", "limit": 100});
    let cod =
        kitchen(&path).run(&read).expect("served").rows.into_iter().find(|row| row.label == "cod").expect("in store");
    assert_eq!(cod.fields["expires"].as_str().map(str::len), Some(10), "a day of this year: {:?}", cod.fields);
}

#[test]
fn other_programs_may_read_and_write_the_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let mut harness = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()));
    harness.make(json!({"name": "ours", "tags": ["x"], "open": true}));
    let other = Connection::open(&path).expect("it is a database");
    let row = other.query_row("SELECT name, tags, open FROM things_box", [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    });
    assert_eq!(row.expect("it is there"), ("ours".to_owned(), "[\"x\"]".to_owned(), 1));
    other
        .execute("INSERT INTO things_box (id, name, tags, size) VALUES ('7', 'theirs', 'not json', 'big')", [])
        .expect("written");
    assert_eq!(harness.names(json!([{"field": "tags", "op": "contains", "value": "json"}])), ["theirs"]);
    let row = harness.ok("get", json!({"items": [{"type": "box", "id": "7"}]})).rows.remove(0);
    assert_eq!(row.fields["size"], json!("big"), "what does not fit is told as it is");
}

#[test]
fn added_field_becomes_a_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains())).make(json!({"name": "old"}));
    let longer = THINGS.replacen("fields = [", "fields = [\n  { name = \"colour\", kind = \"text\" },", 1);
    let domains = ConfiguredDomains::new([DomainSchema::parse(&longer).expect("sound")]);
    let mut harness = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains));
    harness.session = "later";
    harness.make(json!({"name": "new", "colour": "red"}));
    assert_eq!(harness.names(json!([{"field": "colour", "op": "=", "value": null}])), ["old"]);
}

#[test]
fn unusable_table_is_reported_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    Connection::open(&path).expect("made").execute_batch("CREATE TABLE things_box (name TEXT)").expect("made");
    let why = RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, domains()))
        .refused("read", json!({"type": "box", "limit": 1}));
    assert_eq!(why, "the existing table `things_box` has no column `id`");
    let named_alike =
        "name = \"things_box\"\n[[type]]\nname = \"lid\"\nlabel = \"n\"\nfields = [{ name = \"n\", kind = \"text\" }]";
    let path = folder.path().join("other.db");
    let alike = THINGS.replace("name = \"key\"", "name = \"box_lid\"");
    let both = ConfiguredDomains::new([
        DomainSchema::parse(&alike).expect("sound"),
        DomainSchema::parse(named_alike).expect("sound"),
    ]);
    RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, both.clone())).make(json!({"name": "x"}));
    let mut harness = RecordsHarness {
        settings: json!({"domain": "things_box"}),
        ..RecordsHarness::with_tool(SqliteRecordsTool::in_file(&path, both))
    };
    let refused = harness
        .run(&json!({"domain": "things_box", "operation": "read", "for": "step_tool_call", "type": "lid", "limit": 1}));
    let why = refused.expect("served").refusal.expect("refused");
    assert!(why.contains("belongs to the domain `things`"), "{why}");
}

#[test]
fn file_that_is_not_a_database_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    std::fs::write(&path, "not a database, and long enough to be looked at as one").expect("written");
    let host = SqliteRecordsTool::in_file(&path, domains());
    assert!(host.check_database().is_err_and(|why| why.to_string().contains("records.db")));
    assert!(SqliteRecordsTool::in_file(&folder.path().join("no/such/folder.db"), domains()).check_database().is_err());
    assert!(SqliteRecordsTool::in_memory(domains()).check_database().is_ok());
}
