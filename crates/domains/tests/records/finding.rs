//! Filters, and that nothing in them becomes part of a statement.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::desk::Desk;

fn boxes() -> Desk {
    let mut desk = Desk::new();
    for values in [
        json!({"name": "Ash", "size": 1, "weight": 1.5, "open": true, "made": "2026-01-01", "tags": ["wood", "Old"]}),
        json!({"name": "birch", "size": 5, "weight": 2.0, "open": false, "made": "2026-02-01", "tags": ["wood"]}),
        json!({"name": "Äpfel", "size": 9, "tags": []}),
        json!({"name": "Tin", "made": "2025-12-31"}),
    ] {
        desk.make(values);
    }
    desk
}

#[test]
fn each_operator_finds_what_it_says() {
    let mut desk = boxes();
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
        assert_eq!(desk.names(json!([{"field": field, "op": op, "value": value}])), found, "{field} {op} {value}");
    }
}

#[test]
fn a20_not_in_excludes_every_one_of_its_values_and_nothing_that_has_none() {
    let mut desk = boxes();
    let not_in = |field: &str, values: Value| json!([{"field": field, "op": "not_in", "value": values}]);
    assert_eq!(desk.names(not_in("name", json!(["ash", "tin", "nobody"]))), ["birch", "Äpfel"]);
    assert_eq!(desk.names(not_in("tags", json!(["old"]))), ["birch", "Äpfel", "Tin"]);
    assert_eq!(desk.names(not_in("tags", json!(["old", "wood"]))), ["Äpfel", "Tin"]);
    assert_eq!(desk.names(not_in("size", json!([1, 5]))), ["Äpfel", "Tin"], "what has no size is not of that size");
    assert_eq!(desk.names(not_in("size", json!([]))), ["Ash", "birch", "Äpfel", "Tin"]);
}

#[test]
fn links_are_found_by_what_they_lead_to() {
    let mut desk = Desk::new();
    let first = desk.make(json!({"name": "first"}));
    let second = desk.make(json!({"name": "second", "inside": first}));
    let third = desk.make(json!({"name": "third", "near": [first, second]}));
    let by = |field: &str, op: &str, value: Value| json!([{"field": field, "op": op, "value": value}]);
    assert_eq!(desk.names(by("inside", "=", json!(first))), ["second"]);
    assert_eq!(desk.names(by("near", "contains", json!(second))), ["third"]);
    assert_eq!(desk.names(by("near", "not_in", json!([second, third]))), ["first", "second"]);
    assert_eq!(desk.names(by("id", "in", json!([first, third]))), ["first", "third"]);
    assert_eq!(desk.names(by("id", "not_in", json!([first]))), ["second", "third"]);
    let rows = desk.ok("get", json!({"items": [{"type": "box", "id": third}, {"type": "box", "id": "nowhere"}]}));
    assert_eq!(rows.rows[0].fields["near"][1], json!({"id": second, "label": "second"}));
    assert_eq!(rows.not_found.len(), 1);
}

#[test]
fn a_read_is_sorted_limited_and_counted() {
    let mut desk = boxes();
    let sorted = |desk: &mut Desk, field: &str, descending: bool| {
        let sort = json!({"field": field, "descending": descending});
        let read = desk.ok("read", json!({"type": "box", "sort": sort, "limit": 2}));
        assert_eq!(read.total, Some(4));
        read.rows.into_iter().map(|row| row.label).collect::<Vec<_>>()
    };
    assert_eq!(sorted(&mut desk, "size", true), ["Äpfel", "birch"]);
    assert_eq!(sorted(&mut desk, "name", false), ["Ash", "birch"]);
    assert_eq!(sorted(&mut desk, "made", false), ["Tin", "Ash"], "what has none comes last");
}

#[test]
fn a_summary_holds_its_fields_and_the_label_of_a_record_may_be_that_of_another() {
    let mut desk = Desk::new();
    let first = desk.make(json!({"name": "first"}));
    desk.ok("create", json!({"type": "key", "records": [{"opens": first, "note": "brass", "long": "x".repeat(5000)}]}));
    let read =
        |desk: &mut Desk, full: bool| desk.ok("read", json!({"type": "key", "limit": 9, "full": full})).rows.remove(0);
    let row = read(&mut desk, false);
    assert_eq!((row.label.as_str(), row.fields.keys().map(String::as_str).collect::<Vec<_>>().len()), ("first", 2));
    assert!(row.fields.contains_key("note") && !row.fields.contains_key("long"));
    assert!(read(&mut desk, true).fields.contains_key("long"));
}

#[test]
fn a_result_stays_within_what_the_engine_keeps() {
    let mut desk = Desk::new();
    let first = desk.make(json!({"name": "first"}));
    let long = json!({"opens": first, "long": "ä".repeat(20_000)});
    for _ in 0..3 {
        desk.ok("create", json!({"type": "key", "records": vec![long.clone(); 4]}));
    }
    let why = desk.refused("create", json!({"type": "key", "records": vec![long; 50]}));
    assert!(why.contains("too much at once"), "{why}");
    let read = desk.ok("read", json!({"type": "key", "limit": 100, "full": true}));
    assert_eq!(read.total, Some(12), "and nothing of it was stored");
    assert!(read.rows.len() < 12 && !read.rows.is_empty(), "{}", read.rows.len());
}

#[test]
fn names_that_are_not_declared_never_reach_the_database() {
    let mut desk = boxes();
    for name in ["name\" = '' OR 1=1 --", "rowid", "id; DROP TABLE things_box"] {
        let why =
            desk.refused("read", json!({"type": "box", "limit": 9, "where": [{"field": name, "op": "=", "value": 1}]}));
        assert!(why.contains("has no field"), "{why}");
        let why = desk.refused("read", json!({"type": name, "limit": 9}));
        assert!(why.contains("there is no type"), "{why}");
        let why = desk.refused("read", json!({"type": "box", "limit": 9, "sort": {"field": name}}));
        assert!(why.contains("has no field"), "{why}");
    }
    assert_eq!(desk.names(json!([])).len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is stored and asked for, what is found is what the words of the operators say.
    #[test]
    fn filters_mean_what_they_say(
        names in proptest::collection::vec("[a-cA-CäÄ][a-cA-CäÄ'\";% _\\\\-]{0,3}", 1..8),
        wanted in proptest::collection::vec("[a-cA-CäÄ'\";% _\\\\-]{0,4}", 0..4),
        op in proptest::sample::select(vec!["=", "!=", "in", "not_in", "contains"]),
    ) {
        let mut desk = Desk::new();
        for name in &names {
            desk.make(json!({"name": name, "tags": [name]}));
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
        prop_assert_eq!(desk.names(json!([{"field": "name", "op": op, "value": value}])), expected.clone());
        if op != "=" && op != "!=" {
            prop_assert_eq!(desk.names(json!([{"field": "tags", "op": op, "value": value}])), expected);
        }
    }
}
