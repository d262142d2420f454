//! Queries with filters; no value becomes part of an SQL statement.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::support::RecordsHarness;

fn boxes() -> RecordsHarness {
    let mut harness = RecordsHarness::new();
    for values in [
        json!({"name": "Ash", "size": 1, "weight": 1.5, "open": true, "made": "2026-01-01", "tags": ["wood", "Old"]}),
        json!({"name": "birch", "size": 5, "weight": 2.0, "open": false, "made": "2026-02-01", "tags": ["wood"]}),
        json!({"name": "Äpfel", "size": 9, "tags": []}),
        json!({"name": "Tin", "made": "2025-12-31"}),
    ] {
        harness.make(values);
    }
    harness
}

#[test]
fn each_operator_finds_the_right_records() {
    let mut harness = boxes();
    for (field, op, value, found) in [
        ("name", "=", json!("ASH"), vec!["Ash"]),
        ("name", "!=", json!("ash"), vec!["birch", "Äpfel", "Tin"]),
        ("name", "contains", json!("äPF"), vec!["Äpfel"]),
        ("name", "in", json!(["tin", "BIRCH"]), vec!["birch", "Tin"]),
        ("size", "<", json!(5), vec!["Ash"]),
        ("size", "<=", json!(5), vec!["Ash", "birch"]),
        ("size", ">", json!(5), vec!["Äpfel"]),
        ("size", ">=", json!(5), vec!["birch", "Äpfel"]),
        ("size", "=", Value::Null, vec!["Tin"]),
        ("size", "!=", Value::Null, vec!["Ash", "birch", "Äpfel"]),
        ("weight", "=", json!(2), vec!["birch"]),
        ("open", "=", json!(true), vec!["Ash"]),
        ("made", ">=", json!("2026-01-01"), vec!["Ash", "birch"]),
        ("tags", "contains", json!("oo"), vec!["Ash", "birch"]),
        ("tags", "in", json!(["old", "new"]), vec!["Ash"]),
        ("name", "in", json!([]), vec![]),
    ] {
        assert_eq!(harness.names(json!([{"field": field, "op": op, "value": value}])), found, "{field} {op} {value}");
    }
}

#[test]
fn a20_not_in_excludes_all_its_values_and_keeps_empty_fields() {
    let mut harness = boxes();
    let not_in = |field: &str, values: Value| json!([{"field": field, "op": "not_in", "value": values}]);
    assert_eq!(harness.names(not_in("name", json!(["ash", "tin", "nobody"]))), ["birch", "Äpfel"]);
    assert_eq!(harness.names(not_in("tags", json!(["old"]))), ["birch", "Äpfel", "Tin"]);
    assert_eq!(harness.names(not_in("tags", json!(["old", "wood"]))), ["Äpfel", "Tin"]);
    assert_eq!(harness.names(not_in("size", json!([1, 5]))), ["Äpfel", "Tin"], "what has no size is not of that size");
    assert_eq!(harness.names(not_in("size", json!([]))), ["Ash", "birch", "Äpfel", "Tin"]);
}

#[test]
fn links_are_filtered_by_linked_record() {
    let mut harness = RecordsHarness::new();
    let first = harness.make(json!({"name": "first"}));
    let second = harness.make(json!({"name": "second", "inside": first}));
    let third = harness.make(json!({"name": "third", "near": [first, second]}));
    let by = |field: &str, op: &str, value: Value| json!([{"field": field, "op": op, "value": value}]);
    assert_eq!(harness.names(by("inside", "=", json!(first))), ["second"]);
    assert_eq!(harness.names(by("near", "contains", json!(second))), ["third"]);
    assert_eq!(harness.names(by("near", "not_in", json!([second, third]))), ["first", "second"]);
    assert_eq!(harness.names(by("id", "in", json!([first, third]))), ["first", "third"]);
    assert_eq!(harness.names(by("id", "not_in", json!([first]))), ["second", "third"]);
    let rows = harness.ok("get", json!({"items": [{"type": "box", "id": third}, {"type": "box", "id": "nowhere"}]}));
    assert_eq!(rows.rows[0].fields["near"][1], json!({"id": second, "label": "second"}));
    assert_eq!(rows.not_found.len(), 1);
}

#[test]
fn read_is_sorted_limited_and_counted() {
    let mut harness = boxes();
    let sorted = |harness: &mut RecordsHarness, field: &str, descending: bool| {
        let sort = json!({"field": field, "descending": descending});
        let read = harness.ok("read", json!({"type": "box", "sort": sort, "limit": 2}));
        assert_eq!(read.total, Some(4));
        read.rows.into_iter().map(|row| row.label).collect::<Vec<_>>()
    };
    assert_eq!(sorted(&mut harness, "size", true), ["Äpfel", "birch"]);
    assert_eq!(sorted(&mut harness, "name", false), ["Ash", "birch"]);
    assert_eq!(sorted(&mut harness, "made", false), ["Tin", "Ash"], "what has none comes last");
}

#[test]
fn summary_has_its_fields_and_a_label_may_come_from_a_link() {
    let mut harness = RecordsHarness::new();
    let first = harness.make(json!({"name": "first"}));
    harness
        .ok("create", json!({"type": "key", "records": [{"opens": first, "note": "brass", "long": "x".repeat(5000)}]}));
    let read = |harness: &mut RecordsHarness, full: bool| {
        harness.ok("read", json!({"type": "key", "limit": 9, "full": full})).rows.remove(0)
    };
    let row = read(&mut harness, false);
    assert_eq!((row.label.as_str(), row.fields.keys().map(String::as_str).collect::<Vec<_>>().len()), ("first", 2));
    assert!(row.fields.contains_key("note") && !row.fields.contains_key("long"));
    assert!(read(&mut harness, true).fields.contains_key("long"));
}

#[test]
fn results_stay_within_the_size_limit() {
    let mut harness = RecordsHarness::new();
    let first = harness.make(json!({"name": "first"}));
    let long = json!({"opens": first, "long": "ä".repeat(20_000)});
    for _ in 0..3 {
        harness.ok("create", json!({"type": "key", "records": vec![long.clone(); 4]}));
    }
    let why = harness.refused("create", json!({"type": "key", "records": vec![long; 50]}));
    assert!(why.contains("the request is too large"), "{why}");
    let read = harness.ok("read", json!({"type": "key", "limit": 100, "full": true}));
    assert_eq!(read.total, Some(12), "and nothing of it was stored");
    assert!(read.rows.len() < 12 && !read.rows.is_empty(), "{}", read.rows.len());
}

#[test]
fn undeclared_names_are_refused() {
    let mut harness = boxes();
    for name in ["name\" = '' OR 1=1 --", "rowid", "id; DROP TABLE things_box"] {
        let why = harness
            .refused("read", json!({"type": "box", "limit": 9, "where": [{"field": name, "op": "=", "value": 1}]}));
        assert!(why.contains("has no field"), "{why}");
        let why = harness.refused("read", json!({"type": name, "limit": 9}));
        assert!(why.contains("there is no type"), "{why}");
        let why = harness.refused("read", json!({"type": "box", "limit": 9, "sort": {"field": name}}));
        assert!(why.contains("has no field"), "{why}");
    }
    assert_eq!(harness.names(json!([])).len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// For any stored values and any filter, the result equals that of a plain implementation.
    #[test]
    fn filters_agree_with_a_plain_model(
        names in proptest::collection::vec("[a-cA-CäÄ][a-cA-CäÄ'\";% _\\\\-]{0,3}", 1..8),
        wanted in proptest::collection::vec("[a-cA-CäÄ'\";% _\\\\-]{0,4}", 0..4),
        op in proptest::sample::select(vec!["=", "!=", "in", "not_in", "contains"]),
    ) {
        let mut harness = RecordsHarness::new();
        for name in &names {
            harness.make(json!({"name": name, "tags": [name]}));
        }
        let fold = |text: &str| text.to_lowercase();
        let first = wanted.first().cloned().unwrap_or_default();
        let fits = |name: &String| match op {
            "=" => fold(name) == fold(&first),
            "!=" => fold(name) != fold(&first),
            "in" => wanted.iter().any(|one| fold(one) == fold(name)),
            "not_in" => wanted.iter().all(|one| fold(one) != fold(name)),
            _ => fold(name).contains(&fold(&first)),
        };
        let expected: Vec<String> = names.iter().filter(|name| fits(name)).cloned().collect();
        let value = if op == "in" || op == "not_in" { json!(wanted) } else { json!(first) };
        prop_assert_eq!(harness.names(json!([{"field": "name", "op": op, "value": value}])), expected.clone());
        if op != "=" && op != "!=" {
            prop_assert_eq!(harness.names(json!([{"field": "tags", "op": op, "value": value}])), expected);
        }
    }
}
