//! Writing: all or nothing, only where it was planned, and checked once more.

use serde_json::{Value, json};

use super::desk::{Desk, told};

#[test]
fn a_write_reports_what_stood_there_before_and_what_stands_there_now() {
    let mut desk = Desk::new();
    let id = desk.make(json!({"name": "first", "size": "3"}));
    let updated = desk.ok("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 4, "tags": ["x"]}}]}));
    let change = &updated.changes[0];
    let value = |side: &Option<serde_json::Map<String, Value>>, name: &str| side.as_ref().expect("there")[name].clone();
    assert_eq!((value(&change.before, "size"), value(&change.after, "size")), (json!(3), json!(4)));
    assert_eq!((value(&change.before, "name"), value(&change.after, "name")), (json!("first"), json!("first")));
    assert_eq!(updated.rows[0].fields["tags"], json!(["x"]));
    let deleted = desk.ok("delete", json!({"items": [{"type": "box", "id": id}]}));
    assert_eq!((deleted.changes[0].label.as_str(), &deleted.changes[0].after), ("first", &None));
    assert_eq!(desk.names(json!([])), [""; 0]);
}

#[test]
fn a_write_outside_a_step_that_was_planned_as_one_is_refused() {
    let mut desk = Desk::new();
    for kind in [json!("read"), json!("analyze"), json!("generate"), Value::Null] {
        let mut asked = told("create", json!({"type": "box", "records": [{"name": "first"}]}));
        asked["step_type"] = kind.clone();
        let refused = desk.run(&asked).expect("served").refusal;
        assert!(refused.is_some_and(|why| why.contains("planned as a write")), "{kind}");
    }
    assert_eq!(desk.names(json!([])), [""; 0]);
}

#[test]
fn all_of_a_request_is_done_or_nothing_of_it() {
    let mut desk = Desk::new();
    let why = desk.refused("create", json!({"type": "box", "records": [{"name": "first"}, {"size": -1}]}));
    assert!(why.contains("`size` must be at least 0") && why.contains("`name` is required"), "{why}");
    let id = desk.make(json!({"name": "second"}));
    let both = json!({"updates": [{"type": "box", "id": id, "set": {"size": 1}}, {"type": "box", "id": "gone", "set": {"size": 1}}]});
    assert!(desk.refused("update", both).contains("not there any more"));
    let items = json!({"items": [{"type": "box", "id": id}, {"type": "box", "id": "gone"}]});
    assert!(desk.refused("delete", items).contains("not there any more"));
    assert_eq!(desk.names(json!([{"field": "size", "op": "=", "value": null}])), ["second"]);
}

#[test]
fn what_is_led_to_is_not_deleted_or_its_links_are_emptied() {
    let mut desk = Desk::new();
    let first = desk.make(json!({"name": "first"}));
    let second = desk.make(json!({"name": "second", "inside": first, "near": [first]}));
    let key = desk.ok("create", json!({"type": "key", "records": [{"opens": first}]})).rows.remove(0).id;
    let why = desk.refused("delete", json!({"items": [{"type": "box", "id": first}]}));
    assert!(why.contains("“first” cannot be deleted while 1 of type `key` lead to it"), "{why}");
    assert!(!why.contains(&key) && !why.contains(&first), "models read it: {why}");
    let deleted = desk.ok("delete", json!({"items": [{"type": "key", "id": key}, {"type": "box", "id": first}]}));
    assert_eq!(deleted.changes.len(), 4, "two links were emptied and two records are gone");
    let row = desk.ok("get", json!({"items": [{"type": "box", "id": second}]})).rows.remove(0);
    assert_eq!((&row.fields["inside"], &row.fields["near"]), (&Value::Null, &json!([])));
}

#[test]
fn several_links_are_added_and_taken_away() {
    let mut desk = Desk::new();
    let ids: Vec<String> = ["a", "b", "c"].iter().map(|name| desk.make(json!({"name": name}))).collect();
    let link =
        |op: &str, to: &[&String]| (op.to_owned(), json!({"type": "box", "id": ids[0], "field": "near", "to": to}));
    let near = |desk: &mut Desk| {
        let row = desk.ok("get", json!({"items": [{"type": "box", "id": ids[0]}]})).rows.remove(0);
        row.fields["near"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|link| link["label"].as_str().expect("named").to_owned())
            .collect::<Vec<_>>()
    };
    for (step, left) in [
        (link("link", &[&ids[1], &ids[2]]), vec!["b", "c"]),
        (link("link", &[&ids[1]]), vec!["c", "b"]),
        (link("unlink", &[&ids[2], &ids[0]]), vec!["b"]),
    ] {
        desk.ok(&step.0, step.1);
        assert_eq!(near(&mut desk), left);
    }
    let gone = json!({"type": "box", "id": ids[0], "field": "near", "to": ["nowhere"]});
    assert!(desk.refused("link", gone).contains("not there any more"));
    assert!(
        desk.refused("link", json!({"type": "box", "id": ids[0], "field": "name", "to": []})).contains("several links")
    );
}

#[test]
fn a_link_must_lead_somewhere() {
    let mut desk = Desk::new();
    let why = desk.refused("create", json!({"type": "key", "records": [{"opens": "nowhere"}]}));
    assert_eq!(why, "`opens` leads to a record that is not there any more");
}

#[test]
fn a_request_that_is_not_understood_is_an_error_and_not_a_panic() {
    let mut desk = Desk::new();
    for asked in [json!(null), json!({"op": "read"}), json!({"domain": "things", "op": "explode", "for": "call"})] {
        assert!(desk.run(&asked).is_err(), "{asked}");
    }
    assert!(desk.run(&json!({"domain": "kitchen", "op": "read", "for": "call"})).is_err(), "of another domain");
    for op in ["read", "get", "create", "update", "delete", "link", "undo", "settle", "call"] {
        for rest in [
            json!({}),
            json!({"type": "box"}),
            json!({"type": "box", "records": 1, "items": {}, "changes": [1], "updates": [1]}),
        ] {
            assert!(desk.run(&told(op, rest.clone())).is_ok_and(|reported| reported.refusal.is_some()), "{op} {rest}");
        }
    }
}
