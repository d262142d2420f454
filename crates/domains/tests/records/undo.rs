//! Undoing writes from their results, and never over later changes.

use proptest::prelude::*;
use segue_flows::assistant::tools::DomainToolResult;
use serde_json::{Value, json};

use super::support::{RecordsHarness, tool_request};

fn undo(harness: &mut RecordsHarness, of: &DomainToolResult) -> DomainToolResult {
    let mut arguments = tool_request("undo", json!({"run": 1, "changes": of.changes}));
    arguments["for"] = json!("undo");
    arguments.as_object_mut().expect("an object").remove("step_kind");
    harness.run(&arguments).expect("served")
}

fn all_rows(harness: &RecordsHarness) -> Vec<String> {
    harness
        .host
        .with_connection(|connection| {
            let mut rows = Vec::new();
            for table in ["things_box", "things_key", "things_box__near"] {
                let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))?;
                let columns = statement.column_count();
                let found = statement.query_map([], |row| {
                    (0..columns)
                        .map(|place| Ok(format!("{:?}", row.get_ref(place)?)))
                        .collect::<rusqlite::Result<Vec<_>>>()
                })?;
                for row in found {
                    rows.push(format!("{table} {:?}", row?));
                }
            }
            Ok(rows)
        })
        .expect("it can be looked at")
}

#[test]
fn every_kind_of_write_can_be_undone() {
    let mut harness = RecordsHarness::new();
    let first = harness.make(json!({"name": "first", "tags": ["x"]}));
    let second = harness.make(json!({"name": "second", "inside": first, "near": [first]}));
    for (op, rest) in [
        ("create", json!({"type": "box", "records": [{"name": "a"}, {"name": "b"}]})),
        ("update", json!({"updates": [{"type": "box", "id": first, "set": {"name": "other", "tags": null}}]})),
        ("delete", json!({"items": [{"type": "box", "id": second}, {"type": "box", "id": first}]})),
        ("delete", json!({"items": [{"type": "box", "id": first}]})),
        ("link", json!({"type": "box", "id": first, "field": "near", "to": [second]})),
        ("unlink", json!({"type": "box", "id": second, "field": "near", "to": [first]})),
    ] {
        let before = all_rows(&harness);
        let written = harness.ok(op, rest.clone());
        assert_ne!(all_rows(&harness), before, "{op} {rest}");
        let undone = undo(&mut harness, &written);
        assert_eq!(undone.refusal, None, "{op} {rest}");
        assert_eq!(all_rows(&harness), before, "{op} {rest}");
        let redone = undo(&mut harness, &undone);
        assert_eq!(redone.refusal, None, "what was taken back can be brought back: {op} {rest}");
        undo(&mut harness, &redone);
        assert_eq!(all_rows(&harness), before);
    }
}

#[test]
fn undo_does_not_overwrite_later_changes() {
    let mut harness = RecordsHarness::new();
    let made = harness.ok("create", json!({"type": "box", "records": [{"name": "first"}]}));
    let id = made.rows[0].id.clone();
    harness.ok("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 9}}]}));
    let why = undo(&mut harness, &made).refusal.expect("refused");
    assert_eq!(why, "box “first” was changed since the write");
    assert_eq!(harness.names(json!([])), ["first"]);
    let key = harness.ok("create", json!({"type": "key", "records": [{"opens": id}]}));
    let deleted = harness.ok("delete", json!({"items": [{"type": "key", "id": key.rows[0].id}]}));
    harness.ok("delete", json!({"items": [{"type": "box", "id": id}]}));
    let why = undo(&mut harness, &deleted).refusal.expect("refused");
    assert_eq!(why, "`opens` links to a record that does not exist");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Undoing any sequence of writes in reverse order restores the tables.
    #[test]
    fn undoing_all_writes_restores_the_tables(
        writes in proptest::collection::vec((0_u8..6, 0_usize..6, 0_usize..6, "[a-z ]{0,3}"), 1..14)
    ) {
        let mut harness = RecordsHarness::new();
        let mut ids: Vec<String> = (0..3).map(|n| harness.make(json!({"name": format!("b{n}")}))).collect();
        let before = all_rows(&harness);
        let mut done: Vec<DomainToolResult> = Vec::new();
        for (write, one, other, word) in writes {
            let (one, other) = (ids[one % ids.len()].clone(), ids[other % ids.len()].clone());
            let (op, rest): (&str, Value) = match write {
                0 => ("create", json!({"type": "box", "records": [{"name": format!("n{word}"), "inside": one, "near": [other]}]})),
                1 => ("update", json!({"updates": [{"type": "box", "id": one, "set": {"name": format!("u{word}"), "inside": other}}]})),
                2 => ("delete", json!({"items": [{"type": "box", "id": one}]})),
                3 => ("link", json!({"type": "box", "id": one, "field": "near", "to": [other]})),
                4 => ("unlink", json!({"type": "box", "id": one, "field": "near", "to": [other]})),
                _ => ("create", json!({"type": "key", "records": [{"opens": one, "note": word}]})),
            };
            let reported = harness.run(&tool_request(op, rest)).expect("served");
            if reported.refusal.is_none() {
                ids.extend(reported.rows.iter().filter(|row| row.kind == "box").map(|row| row.id.clone()));
                done.push(reported);
            }
        }
        for written in done.iter().rev() {
            let undone = undo(&mut harness, written);
            prop_assert_eq!(undone.refusal, None);
        }
        prop_assert_eq!(all_rows(&harness), before);
    }
}
