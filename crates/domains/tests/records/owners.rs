//! Records belong to the owner of the session. Two owners use the same type and see nothing of each other.

use segue_domains::SqliteRecordsTool;
use serde_json::json;

use super::support::{RecordsHarness, domains};

/// Returns a harness for a session of the same tool.
fn harness_for(host: &SqliteRecordsTool, session: &'static str) -> RecordsHarness {
    RecordsHarness { session, ..RecordsHarness::with_tool(host.clone()) }
}

#[test]
fn owners_do_not_see_change_or_undo_each_others_records() {
    let folder = tempfile::tempdir().expect("a folder");
    for host in [
        SqliteRecordsTool::in_memory(domains()),
        SqliteRecordsTool::in_file(&folder.path().join("records.db"), domains()),
    ] {
        let mut ada = harness_for(&host, "ada.desk");
        let mut bob = harness_for(&host, "bob.desk");
        let mut operator = harness_for(&host, "desk");
        let created = ada.ok("create", json!({"type": "box", "records": [{"name": "ada's box"}]}));
        let id = created.rows[0].id.clone();
        assert_eq!(ada.names(json!([])), ["ada's box"]);
        for other in [&mut bob, &mut operator] {
            assert!(other.names(json!([])).is_empty());
            let item = json!({"type": "box", "id": id});
            assert_eq!(other.ok("get", json!({"items": [item]})).rows.len(), 0);
            let update = json!({"updates": [{"type": "box", "id": id, "set": {"name": "mine"}}]});
            assert!(other.refused("update", update).contains("does not exist"));
            assert!(other.refused("delete", json!({"items": [item]})).contains("does not exist"));
            let undo = json!({"for": "undo", "run": 1, "changes": created.changes});
            assert!(other.refused("undo", undo).contains("was changed since the write"));
        }
        // Another session of the same owner shares the records, and the owner can undo.
        assert_eq!(harness_for(&host, "ada.other").names(json!([])), ["ada's box"]);
        ada.ok("undo", json!({"for": "undo", "run": 1, "changes": created.changes}));
        assert!(ada.names(json!([])).is_empty());
    }
}
