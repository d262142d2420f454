//! Finding JSON in a reply.

use crate::signal::{JsonComplaint, JsonSearchResult, canonical_json, find_json_where};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

fn find_json(text: &str) -> JsonSearchResult {
    find_json_where(text, |_| true)
}

fn check(text: &str, expected: Expect) {
    let reading = find_json(text);
    let mut shown = reading.value.map_or_else(|| "nothing".to_owned(), |value| canonical_json(&value));
    for complaint in reading.complaints {
        shown += &format!(" ! {complaint}");
    }
    expected.assert_eq(&shown);
}

#[test]
fn plain_json_is_found() {
    check(r#" {"a": [1, 2.5, "x"]} "#, expect![[r#"{"a":[1,2.5,"x"]}"#]]);
    check("[1, 2]", expect!["[1,2]"]);
    check("[]", expect!["[]"]);
}

#[test]
fn values_other_than_objects_and_arrays_do_not_count() {
    for text in [
        "",
        "no json here",
        "\"text\"",
        "42",
        "null",
        "```json\n\"text\"\n```",
        "{maybe}",
        "[see below]",
        "}{",
        "[1] and [2, 3]",
        "f() {x}",
        "{",
        "[",
        "[#1] b",
    ] {
        let reading = find_json(text);
        assert_eq!((reading.value, reading.complaints), (None, vec![JsonComplaint::Missing]), "{text}");
    }
}

#[test]
fn fenced_value_is_preferred_to_a_bare_one() {
    check("As in {\"b\": 22222222}:\n```json\n{\"a\": 1}\n```\n", expect![[r#"{"a":1}"#]]);
    check("~~~\n[{\"a\": 1}]\n~~~", expect![[r#"[{"a":1}]"#]]);
    check("```python\nx = {\"b\": 1}\n```\n```JSON\n{\"a\": 1}\n```", expect![[r#"{"a":1}"#]]);
    check("```json\n{\"a\": 1}\n```\n```json\n{\"b\": 2}\n```", expect![[r#"{"a":1}"#]]);
    check("```json\n{\"a\": 1,}\n```\n```json\n{\"b\": 2}\n```", expect![[r#"{"b":2}"#]]);
    check("```json\n{\"a\": 1", expect![[r#"{"a":1} ! the JSON was cut off and its end is missing"#]]);
    check("```json {\"a\": 1}```", expect![[r#"{"a":1}"#]]);
    check("```json\n{\"a\": \"x\\n```\\n\"}\n```", expect![[r#"{"a":"x\n```\n"}"#]]);
}

#[test]
fn longest_bare_value_is_used() {
    check("See [1] and {x}: {\"a\": {\"b\": [1]}} or {\"c\": 1}.", expect![[r#"{"a":{"b":[1]}}"#]]);
    check("[{\"a\": 1}, {\"b\": 2}] is it", expect![[r#"[{"a":1},{"b":2}]"#]]);
}

#[test]
fn reasoning_is_ignored() {
    check("<think>{\"a\": 1, \"long\": true}</think>\n{\"b\": 2}", expect![[r#"{"b":2}"#]]);
    check("maybe {\"a\": 1}\n</THINK>{\"b\": 2}", expect![[r#"{"b":2}"#]]);
    check("<thinking>\n<think>\n</thinking>{\"b\": 2}", expect![[r#"{"b":2}"#]]);
    check("<think>never closed {\"b\": 2}", expect![[r#"{"b":2}"#]]);
    check("{\"a\": \"<think>x</think>\"}", expect![[r#"{"a":"<think>x</think>"}"#]]);
    check("It is {\"a\": \"x </think> y\"}", expect![[r#"{"a":"x </think> y"}"#]]);
}

#[test]
fn caller_decides_which_value_is_accepted() {
    let wanted = |value: &Value| value.get("claims").is_some();
    let reading = find_json_where("{\"x\": [1, 2, 3, 4]} {\"claims\": []}", wanted);
    assert_eq!(reading.value, Some(json!({"claims": []})));
    let reading = find_json_where("{\"x\": 1}", wanted);
    assert_eq!((reading.value, reading.complaints), (None, vec![JsonComplaint::NoneAccepted]));
}

#[test]
fn common_mistakes_of_models_are_repaired() {
    check(
        "{'a': 'don\\'t, no', b: True, \"c\": None,}",
        expect![[r#"{"a":"don't, no","b":true,"c":null} ! the JSON was invalid and was repaired"#]],
    );
    check("{\"a\": \"hello, world\",}", expect![[r#"{"a":"hello, world"} ! the JSON was invalid and was repaired"#]]);
    check("{\"a\": 1 \"b\": 2\n\"c\": 3}", expect![[r#"{"a":1,"b":2,"c":3} ! the JSON was invalid and was repaired"#]]);
    check(
        "{\"a\": \"x\"\n \"b\": [1 2, \"y\"\n\"z\"]}",
        expect![[r#"{"a":"x","b":[1,2,"y","z"]} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\"a\": \"say \"hi\" to, you\", \"b\": 1}",
        expect![[r#"{"a":"say \"hi\" to, you","b":1} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\"a\": [\"the \"big\" one\", \"two, \"three\" four\"]}",
        expect![[r#"{"a":["the \"big\" one","two, \"three\" four"]} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\"a\": \"line\nbreak\ttab\", \"b\": \"C:\\dir \\u00e9\\ud83d\\ude00 \\ud83d \\u12\"}",
        expect![[r#"{"a":"line\nbreak\ttab","b":"C:\\dir é😀 � \\u12"} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\n// one\n\"a\": 1, /* two */ \"b\": 2 # three\n}",
        expect![[r#"{"a":1,"b":2} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\"a\": [1, 2, ...], \"b\": +1, \"c\": .5, \"d\": 007, \"e\": 2024-01-05, \"f\": NaN}",
        expect![[
            r#"{"a":[1,2],"b":1,"c":0.5,"d":7,"e":"2024-01-05","f":null} ! the JSON was invalid and was repaired"#
        ]],
    );
    check(
        "{“a”: “b”, \"c\": bare words, \"d\": , \"e\" \"f\"}",
        expect![[r#"{"a":"b","c":"bare words","d":null,"e":"f"} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "{\"a\": {\"b\": [1, 2}, \"c\": 3}",
        expect![[r#"{"a":{"b":[1,2]},"c":3} ! the JSON was invalid and was repaired"#]],
    );
    check(
        "Result: {\"claims\": [{\"id\": 1}, {\"id\": 2},],} as asked",
        expect![[r#"{"claims":[{"id":1},{"id":2}]} ! the JSON was invalid and was repaired"#]],
    );
}

#[test]
fn truncated_value_is_kept_as_far_as_it_goes() {
    check(
        "{\"a\": [1, {\"b\": \"half a sen",
        expect![[r#"{"a":[1,{"b":"half a sen"}]} ! the JSON was cut off and its end is missing"#]],
    );
    check("{\"a\": 1, \"b", expect![[r#"{"a":1} ! the JSON was cut off and its end is missing"#]]);
    check("{\"a\": 1, \"b\":", expect![[r#"{"a":1} ! the JSON was cut off and its end is missing"#]]);
    check("[{\"a\": 1}, {", expect![[r#"[{"a":1}] ! the JSON was cut off and its end is missing"#]]);
    check("{\"a\": \"x\\", expect![[r#"{"a":"x"} ! the JSON was cut off and its end is missing"#]]);
    check("{\"a\": tr", expect!["nothing ! no JSON object or array found"]);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("see {}{{\"a\":1}}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(find_json(&nested(90)).complaints.is_empty());
    // Too deep as a whole; the innermost levels are still parsed.
    assert!(find_json(&nested(200)).value.is_some());
    assert_eq!(find_json(&"[".repeat(100_000)).value, None);
    assert_eq!(find_json(&"{\"a\":".repeat(100_000)).value, None);
}

#[test]
fn canonical_text_does_not_depend_on_the_order_of_keys() {
    let a: Value = serde_json::from_str(r#"{"b": [{"y": 1, "x": "é\n\""}], "a": null, "": 1.0}"#).expect("valid JSON");
    let b: Value = serde_json::from_str(r#"{"": 1.0, "a": null, "b": [{"x": "é\n\"", "y": 1}]}"#).expect("valid JSON");
    expect![[r#"{"":1.0,"a":null,"b":[{"x":"é\n\"","y":1}]}"#]].assert_eq(&canonical_json(&a));
    assert_eq!(canonical_json(&a), canonical_json(&b));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 64.0)),
        "[ -~é\n\t“”'\"\\\\{}\\[\\],:#/😀]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"\\\\, :é]{0,6}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_text_is_the_value(value in any_json()) {
        let back: Value = serde_json::from_str(&canonical_json(&value)).expect("valid JSON");
        prop_assert_eq!(canonical_json(&back), canonical_json(&value));
    }

    #[test]
    fn valid_json_is_found_unchanged_amid_prose(value in any_json(), pretty in any::<bool>()) {
        let value = json!({ "value": value });
        let written = if pretty { serde_json::to_string_pretty(&value).expect("a value") } else { value.to_string() };
        let value: Value = serde_json::from_str(&written).expect("valid JSON");
        for text in [format!("Here: {written}. Bye."), format!("So:\n```json\n{written}\n```"), written.clone()] {
            let reading = find_json(&text);
            prop_assert_eq!(reading.value.as_ref(), Some(&value), "{}", text);
            prop_assert_eq!(&reading.complaints, &vec![]);
        }
    }

    #[test]
    fn any_prefix_of_valid_json_is_parsed_without_inventing_keys(value in any_json(), cut in any::<prop::sample::Index>()) {
        let written = json!({ "value": value }).to_string();
        let ends: Vec<usize> = written.char_indices().map(|(at, _)| at).skip(1).collect();
        let reading = find_json(&written[..ends[cut.index(ends.len())]]);
        if let Some(Value::Object(members)) = reading.value {
            prop_assert!(members.keys().all(|key| key == "value") || members.is_empty());
        }
    }

    #[test]
    fn value_with_a_lost_or_doubled_character_does_not_panic(value in any_json(), place in any::<prop::sample::Index>()) {
        let written = json!({ "first": "a, b", "value": value }).to_string();
        let places: Vec<(usize, char)> = written.char_indices().collect();
        let (at, c) = places[place.index(places.len())];
        let (before, after) = written.split_at(at);
        for text in [format!("{before}{}", &after[c.len_utf8()..]), format!("{before}{c}{after}")] {
            let reading = find_json(&text);
            prop_assert!(reading.value.is_none_or(|value| value.is_object() || value.is_array()));
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic(parts in prop::collection::vec(soup(), 0..60)) {
        let reading = find_json(&parts.concat());
        prop_assert!(reading.value.is_none_or(|value| value.is_object() || value.is_array()));
    }
}

fn soup() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"",
            "'",
            ":",
            ",",
            "\\",
            "\\u",
            "\\ud83d",
            "12e",
            "-",
            ".",
            "...",
            "null",
            "True",
            "//",
            "/*",
            "*/",
            "#",
            "\n",
            " ",
            "```",
            "```json\n",
            "<think>",
            "</think>",
            "“",
            "”",
            "é",
            "😀",
            "a",
            "\"a\":",
            "{\"b\":",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ]
}
