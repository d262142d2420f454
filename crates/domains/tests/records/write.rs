//! Writes: complete or not at all, only in write steps, and checked against the declaration.

use serde_json::{Value, json};

use super::support::{RecordsHarness, tool_request};

#[test]
fn write_returns_previous_and_new_values() {
    let mut harness = RecordsHarness::new();
    let id = harness.make(json!({"name": "first", "size": "3"}));
    let updated =
        harness.ok("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 4, "tags": ["x"]}}]}));
    let change = &updated.changes[0];
    let value = |side: &Option<serde_json::Map<String, Value>>, name: &str| side.as_ref().expect("there")[name].clone();
    assert_eq!((value(&change.before, "size"), value(&change.after, "size")), (json!(3), json!(4)));
    assert_eq!((value(&change.before, "name"), value(&change.after, "name")), (json!("first"), json!("first")));
    assert_eq!(updated.rows[0].fields["tags"], json!(["x"]));
    let deleted = harness.ok("delete", json!({"items": [{"type": "box", "id": id}]}));
    assert_eq!((deleted.changes[0].label.as_str(), &deleted.changes[0].after), ("first", &None));
    assert_eq!(harness.names(json!([])), [""; 0]);
}

#[test]
fn write_is_refused_outside_of_write_steps() {
    let mut harness = RecordsHarness::new();
    for kind in [json!("read"), json!("analyze"), json!("generate"), Value::Null] {
        let mut arguments = tool_request("create", json!({"type": "box", "records": [{"name": "first"}]}));
        arguments["step_kind"] = kind.clone();
        let refused = harness.run(&arguments).expect("served").refusal;
        assert!(refused.is_some_and(|why| why.contains("planned as a write")), "{kind}");
    }
    assert_eq!(harness.names(json!([])), [""; 0]);
}

#[test]
fn write_is_executed_completely_or_not_at_all() {
    let mut harness = RecordsHarness::new();
    let why = harness.refused("create", json!({"type": "box", "records": [{"name": "first"}, {"size": -1}]}));
    assert!(why.contains("`size` must be at least 0") && why.contains("`name` is required"), "{why}");
    let id = harness.make(json!({"name": "second"}));
    let both = json!({"updates": [{"type": "box", "id": id, "set": {"size": 1}}, {"type": "box", "id": "gone", "set": {"size": 1}}]});
    assert!(harness.refused("update", both).contains("does not exist"));
    let items = json!({"items": [{"type": "box", "id": id}, {"type": "box", "id": "gone"}]});
    assert!(harness.refused("delete", items).contains("does not exist"));
    assert_eq!(harness.names(json!([{"field": "size", "op": "=", "value": null}])), ["second"]);
}

#[test]
fn delete_refuses_or_clears_links_to_the_record() {
    let mut harness = RecordsHarness::new();
    let first = harness.make(json!({"name": "first"}));
    let second = harness.make(json!({"name": "second", "inside": first, "near": [first]}));
    let key = harness.ok("create", json!({"type": "key", "records": [{"opens": first}]})).rows.remove(0).id;
    let why = harness.refused("delete", json!({"items": [{"type": "box", "id": first}]}));
    assert!(why.contains("“first” cannot be deleted while 1 of type `key` link to it"), "{why}");
    assert!(!why.contains(&key) && !why.contains(&first), "models read it: {why}");
    let deleted = harness.ok("delete", json!({"items": [{"type": "key", "id": key}, {"type": "box", "id": first}]}));
    assert_eq!(deleted.changes.len(), 4, "two links were emptied and two records are gone");
    let row = harness.ok("get", json!({"items": [{"type": "box", "id": second}]})).rows.remove(0);
    assert_eq!((&row.fields["inside"], &row.fields["near"]), (&Value::Null, &json!([])));
}

#[test]
fn links_can_be_added_and_removed() {
    let mut harness = RecordsHarness::new();
    let ids: Vec<String> = ["a", "b", "c"].iter().map(|name| harness.make(json!({"name": name}))).collect();
    let link =
        |op: &str, to: &[&String]| (op.to_owned(), json!({"type": "box", "id": ids[0], "field": "near", "to": to}));
    let near = |harness: &mut RecordsHarness| {
        let row = harness.ok("get", json!({"items": [{"type": "box", "id": ids[0]}]})).rows.remove(0);
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
        harness.ok(&step.0, step.1);
        assert_eq!(near(&mut harness), left);
    }
    let gone = json!({"type": "box", "id": ids[0], "field": "near", "to": ["nowhere"]});
    assert!(harness.refused("link", gone).contains("does not exist"));
    assert!(
        harness
            .refused("link", json!({"type": "box", "id": ids[0], "field": "name", "to": []}))
            .contains("several links")
    );
}

#[test]
fn linked_record_must_exist() {
    let mut harness = RecordsHarness::new();
    let why = harness.refused("create", json!({"type": "key", "records": [{"opens": "nowhere"}]}));
    assert_eq!(why, "`opens` links to a record that does not exist");
}

#[test]
fn invalid_request_is_an_error_and_not_a_panic() {
    let mut harness = RecordsHarness::new();
    for arguments in [
        json!(null),
        json!({"operation": "read"}),
        json!({"domain": "things", "operation": "explode", "for": "step_tool_call"}),
    ] {
        assert!(harness.run(&arguments).is_err(), "{arguments}");
    }
    assert!(
        harness.run(&json!({"domain": "kitchen", "operation": "read", "for": "step_tool_call"})).is_err(),
        "of another domain"
    );
    for op in ["read", "get", "create", "update", "delete", "link", "undo", "resolve_run", "call_tool"] {
        for rest in [
            json!({}),
            json!({"type": "box"}),
            json!({"type": "box", "records": 1, "items": {}, "changes": [1], "updates": [1]}),
        ] {
            assert!(
                harness.run(&tool_request(op, rest.clone())).is_ok_and(|reported| reported.refusal.is_some()),
                "{op} {rest}"
            );
        }
    }
}
