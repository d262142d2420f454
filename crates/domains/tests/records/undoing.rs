//! Taking writes back: from what was reported, and never over what was changed since.

use proptest::prelude::*;
use segue_flows::assistant::tools::DomainToolResult;
use serde_json::{Value, json};

use super::desk::{Desk, told};

fn undo(desk: &mut Desk, of: &DomainToolResult) -> DomainToolResult {
    let mut asked = told("undo", json!({"of": 1, "changes": of.changes}));
    asked["for"] = json!("undo");
    asked.as_object_mut().expect("an object").remove("step_type");
    desk.run(&asked).expect("served")
}

fn everything(desk: &Desk) -> Vec<String> {
    desk.host
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
fn every_kind_of_write_can_be_taken_back() {
    let mut desk = Desk::new();
    let first = desk.make(json!({"name": "first", "tags": ["x"]}));
    let second = desk.make(json!({"name": "second", "inside": first, "near": [first]}));
    for (op, rest) in [
        ("create", json!({"type": "box", "records": [{"name": "a"}, {"name": "b"}]})),
        ("update", json!({"updates": [{"type": "box", "id": first, "set": {"name": "other", "tags": null}}]})),
        ("delete", json!({"items": [{"type": "box", "id": second}, {"type": "box", "id": first}]})),
        ("delete", json!({"items": [{"type": "box", "id": first}]})),
        ("link", json!({"type": "box", "id": first, "field": "near", "to": [second]})),
        ("unlink", json!({"type": "box", "id": second, "field": "near", "to": [first]})),
    ] {
        let before = everything(&desk);
        let written = desk.ok(op, rest.clone());
        assert_ne!(everything(&desk), before, "{op} {rest}");
        let undone = undo(&mut desk, &written);
        assert_eq!(undone.refusal, None, "{op} {rest}");
        assert_eq!(everything(&desk), before, "{op} {rest}");
        let redone = undo(&mut desk, &undone);
        assert_eq!(redone.refusal, None, "what was taken back can be brought back: {op} {rest}");
        undo(&mut desk, &redone);
        assert_eq!(everything(&desk), before);
    }
}

#[test]
fn what_was_changed_since_is_not_overwritten() {
    let mut desk = Desk::new();
    let made = desk.ok("create", json!({"type": "box", "records": [{"name": "first"}]}));
    let id = made.rows[0].id.clone();
    desk.ok("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 9}}]}));
    let why = undo(&mut desk, &made).refusal.expect("refused");
    assert_eq!(why, "box “first” was changed since");
    assert_eq!(desk.names(json!([])), ["first"]);
    let key = desk.ok("create", json!({"type": "key", "records": [{"opens": id}]}));
    let deleted = desk.ok("delete", json!({"items": [{"type": "key", "id": key.rows[0].id}]}));
    desk.ok("delete", json!({"items": [{"type": "box", "id": id}]}));
    let why = undo(&mut desk, &deleted).refusal.expect("refused");
    assert_eq!(why, "`opens` leads to a record that is not there any more");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever was written, taking it back from the last to the first leads to where it began.
    #[test]
    fn a_row_of_writes_taken_back_leaves_no_trace(
        deeds in proptest::collection::vec((0_u8..6, 0_usize..6, 0_usize..6, "[a-z ]{0,3}"), 1..14)
    ) {
        let mut desk = Desk::new();
        let mut ids: Vec<String> = (0..3).map(|n| desk.make(json!({"name": format!("b{n}")}))).collect();
        let before = everything(&desk);
        let mut done: Vec<DomainToolResult> = Vec::new();
        for (deed, one, other, word) in deeds {
            let (one, other) = (ids[one % ids.len()].clone(), ids[other % ids.len()].clone());
            let (op, rest): (&str, Value) = match deed {
                0 => ("create", json!({"type": "box", "records": [{"name": format!("n{word}"), "inside": one, "near": [other]}]})),
                1 => ("update", json!({"updates": [{"type": "box", "id": one, "set": {"name": format!("u{word}"), "inside": other}}]})),
                2 => ("delete", json!({"items": [{"type": "box", "id": one}]})),
                3 => ("link", json!({"type": "box", "id": one, "field": "near", "to": [other]})),
                4 => ("unlink", json!({"type": "box", "id": one, "field": "near", "to": [other]})),
                _ => ("create", json!({"type": "key", "records": [{"opens": one, "note": word}]})),
            };
            let reported = desk.run(&told(op, rest)).expect("served");
            if reported.refusal.is_none() {
                ids.extend(reported.rows.iter().filter(|row| row.kind == "box").map(|row| row.id.clone()));
                done.push(reported);
            }
        }
        for written in done.iter().rev() {
            let undone = undo(&mut desk, written);
            prop_assert_eq!(undone.refusal, None);
        }
        prop_assert_eq!(everything(&desk), before);
    }
}
