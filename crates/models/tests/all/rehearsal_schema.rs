//! The rehearsal model's JSON satisfies the requested schema, according to an independent checker.

use proptest::prelude::*;
use segue_models::RehearsalModel;
use serde_json::{Value, json};

use crate::support::ask;

fn generate(schema: &Value, message: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let reply =
        runtime.block_on(ask(message).json(schema.clone()).send_to(&RehearsalModel::instant())).expect("a reply");
    serde_json::from_str(&reply.text).expect("JSON")
}

/// Returns whether `value` satisfies `schema`, for the keywords these tests use.
fn satisfies(value: &Value, schema: &Value, root: &Value) -> bool {
    let Value::Object(rules) = schema else { return schema != &Value::Bool(false) };
    rules.iter().all(|(rule, expected)| {
        let each = |schemas: &Value| {
            schemas.as_array().expect("a list").iter().filter(|one| satisfies(value, one, root)).count()
        };
        let number = expected.as_f64().unwrap_or(f64::NAN);
        match rule.as_str() {
            "type" => match expected {
                Value::Array(kinds) => kinds.iter().any(|kind| has_type(value, kind)),
                kind => has_type(value, kind),
            },
            "const" => value == expected,
            "enum" => expected.as_array().expect("a list").contains(value),
            "$ref" => {
                let target = expected.as_str().expect("a text").trim_start_matches('#');
                satisfies(value, root.pointer(target).expect("a target"), root)
            }
            "allOf" => each(expected) == expected.as_array().expect("a list").len(),
            "anyOf" => each(expected) > 0,
            "oneOf" => each(expected) == 1,
            "minimum" => value.as_f64().is_none_or(|value| value >= number),
            "maximum" => value.as_f64().is_none_or(|value| value <= number),
            "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number),
            "exclusiveMaximum" => value.as_f64().is_none_or(|value| value < number),
            "multipleOf" => value.as_f64().is_none_or(|value| value % number == 0.0),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as f64 >= number),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as f64 <= number),
            "minItems" => value.as_array().is_none_or(|items| items.len() as f64 >= number),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as f64 <= number),
            "minProperties" => value.as_object().is_none_or(|fields| fields.len() as f64 >= number),
            "uniqueItems" => {
                value.as_array().is_none_or(|items| (1..items.len()).all(|at| !items[..at].contains(&items[at])))
            }
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| satisfies(item, expected, root))),
            "required" => {
                let keys = expected.as_array().expect("a list");
                value
                    .as_object()
                    .is_none_or(|fields| keys.iter().all(|key| fields.contains_key(key.as_str().expect("a key"))))
            }
            "properties" => value.as_object().is_none_or(|fields| {
                fields.iter().all(|(key, field)| expected.get(key).is_none_or(|schema| satisfies(field, schema, root)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|fields| {
                let known = |key: &String| rules.get("properties").is_some_and(|known| known.get(key).is_some());
                fields.iter().all(|(key, field)| known(key) || satisfies(field, expected, root))
            }),
            "$defs" | "description" | "title" => true,
            _ => panic!("the checker does not know `{rule}`"),
        }
    })
}

fn has_type(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("no such type: {other}"),
    }
}

fn check(schema: &Value) {
    for message in ["", "Shall we paint the fence before winter?", "plan the batch; ask the coder"] {
        let value = generate(schema, message);
        assert!(satisfies(&value, schema, schema), "{schema:#}\nis not satisfied by\n{value:#}");
    }
}

#[test]
fn schemas_of_many_kinds_are_satisfied() {
    for schema in [
        json!({"type": "object", "properties": {"agents": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"enum": ["architect", "coder", "user"]}}, "phase": {"type": ["string", "null"]}, "reason": {"type": "string", "maxLength": 20}}, "required": ["agents", "reason"], "additionalProperties": false}),
        json!({"type": "array", "minItems": 3, "maxItems": 3, "uniqueItems": true, "items": {"type": "integer", "minimum": 1, "maximum": 3}}),
        json!({"type": "array", "minItems": 2, "uniqueItems": true, "items": {"type": "boolean"}}),
        json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}], "$defs": {"leaf": {"type": "object", "required": ["n"], "properties": {"n": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}}}}}),
        json!({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}),
        json!({"allOf": [{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 5}}}, {"properties": {"a": {"maximum": 6}, "b": {"type": "string", "minLength": 300}}, "required": ["b"]}]}),
        json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["name", "children"], "additionalProperties": false}}}),
        json!({"$ref": "#/$defs/list", "$defs": {"list": {"type": "object", "required": ["next"], "properties": {"next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}}}}}),
        json!({"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 5, "minimum": 7}, "minProperties": 3}),
        json!({"type": "string", "minLength": 3, "maxLength": 3}),
        json!({"required": ["x"]}),
        json!({"type": ["null", "integer"], "maximum": -4}),
        json!(true),
        json!({}),
    ] {
        check(&schema);
    }
}

#[test]
fn words_come_from_the_conversation_and_references_from_generated_ids() {
    let claim = json!({"type": "object", "required": ["id", "label"], "properties": {"id": {"type": "string"}, "label": {"type": "string"}}});
    let edge = json!({"type": "object", "required": ["from", "to"], "properties": {"from": {"type": "string"}, "to": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"claims": {"type": "array", "items": claim}, "edges": {"type": "array", "items": edge}, "gaps": {"type": "array", "items": {"type": "string"}}}, "required": ["claims", "edges"]});
    let value = generate(&schema, "Shall we paint the fence before winter?");
    assert_eq!((&value["claims"][0]["id"], &value["claims"][1]["id"]), (&json!("claim_1"), &json!("claim_2")));
    assert_eq!((&value["edges"][0]["from"], &value["edges"][0]["to"]), (&json!("claim_1"), &json!("claim_2")));
    assert!(value["claims"][0]["label"].as_str().expect("a label").contains("paint"), "{value:#}");
    assert!(value["gaps"][0].as_str().expect("a gap").contains("fence"), "{value:#}");
}

#[test]
fn an_enum_option_named_by_the_user_is_chosen() {
    let schema = json!({"enum": ["chat", "brainstorm", "plan", "execute"]});
    for (message, expected) in
        [("Let us plan it", "plan"), ("brainstorming, please", "brainstorm"), ("now execute that", "execute")]
    {
        assert_eq!(generate(&schema, message), expected);
    }
}

#[test]
fn hostile_schemas_terminate() {
    let many: Vec<_> = (0..50).map(|_| json!({"$ref": "#"})).collect();
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"anyOf": many}),
        json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}),
        json!({"type": "array", "minItems": 1e18, "items": {"type": "array", "minItems": 1e18}}),
        json!({"type": "string", "minLength": 1e18}),
        json!({"type": "object", "minProperties": 1e18}),
        json!({"type": "integer", "minimum": 1e300, "maximum": -1e300, "multipleOf": 1e300}),
        json!({"type": "number", "minimum": -1.7e308, "maximum": 1.7e308}),
        json!({"type": "number", "minimum": "x", "multipleOf": -1}),
        json!({"enum": [], "type": 7, "required": "x", "properties": [], "items": 3, "anyOf": {}, "$ref": 5}),
        json!(false),
        json!([1, 2]),
        json!(null),
    ] {
        let length = generate(&schema, "x").to_string().len();
        assert!(length < 10_000_000, "{schema} made {length} bytes");
    }
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        (-9i64..9, 0i64..9)
            .prop_map(|(minimum, span)| json!({"type": "integer", "minimum": minimum, "maximum": minimum + span})),
        (-9i64..9, 1i64..9).prop_map(
            |(minimum, span)| json!({"type": "number", "exclusiveMinimum": minimum, "maximum": minimum + span})
        ),
        (0u32..40, 0u32..40)
            .prop_map(|(minimum, span)| json!({"type": "string", "minLength": minimum, "maxLength": minimum + span})),
        prop::collection::vec("[a-z]{1,6}", 1..4).prop_map(|options| json!({"enum": options})),
        any::<i32>().prop_map(|constant| json!({"const": constant})),
    ];
    leaf.prop_recursive(5, 60, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0u64..4, 0u64..4).prop_map(|(items, minimum, span)| json!({"type": "array", "items": items, "minItems": minimum, "maxItems": minimum + span})),
            (prop::collection::btree_map("[a-z]{1,3}", inner.clone(), 0..4), any::<bool>()).prop_map(|(properties, is_required)| {
                let required: Vec<_> = if is_required { properties.keys().cloned().collect() } else { Vec::new() };
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }),
            prop::collection::vec(inner, 1..4).prop_map(|choices| json!({"anyOf": choices})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_schema_is_satisfied(schema in schemas(), message in "[a-zA-Z ?]{0,40}") {
        let value = generate(&schema, &message);
        prop_assert!(satisfies(&value, &schema, &schema), "{:#}\nis not satisfied by\n{:#}", schema, value);
    }
}
