//! Schemas as vendors can follow them. What a vendor cannot express is left out where leaving it out only allows more: every answer is
//! checked against the whole schema afterwards.

use serde_json::{Map, Value, json};

use crate::limits::SCHEMA_DEPTH_MAX;

/// Words that a strict schema must not hold.
const NOT_STRICT: [&str; 12] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "contains",
    "unevaluatedProperties",
];

/// Words that only narrow a value, and that Anthropic does not take.
const NARROWING: [&str; 15] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "pattern",
];

/// Whether OpenAI can hold a model to the schema letter by letter: every object is closed and every property required.
pub(crate) fn is_strict(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object") && strict(schema, 0)
}

fn strict(schema: &Value, depth: usize) -> bool {
    let Value::Object(members) = schema else { return false };
    if depth > SCHEMA_DEPTH_MAX || NOT_STRICT.iter().any(|word| members.contains_key(*word)) {
        return false;
    }
    if allows(members, "object") && !is_closed(members) {
        return false;
    }
    inner(members).all(|inner| strict(inner, depth + 1))
}

fn is_closed(members: &Map<String, Value>) -> bool {
    let properties = members.get("properties").and_then(Value::as_object);
    let required = members.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.iter().any(|known| known == name.as_str()));
    members.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_some_and(|properties| properties.keys().all(is_required))
}

/// The schema with every object closed and without what Anthropic refuses; nothing if it cannot be said so.
pub(crate) fn for_anthropic(schema: &Value) -> Option<Value> {
    let Value::Object(members) = schema else { return None };
    if !allows(members, "object") {
        return None;
    }
    closed(schema, 0)
}

fn closed(schema: &Value, depth: usize) -> Option<Value> {
    let Value::Object(members) = schema else { return None };
    if depth > SCHEMA_DEPTH_MAX || NOT_STRICT[1..].iter().any(|word| members.contains_key(*word)) {
        return None;
    }
    // A map with keys of the model's choice cannot be closed.
    if allows(members, "object") && !members.contains_key("properties") {
        return None;
    }
    let mut out = Map::new();
    for (key, value) in members.iter().filter(|(key, _)| !NARROWING.contains(&key.as_str())) {
        let value = match key.as_str() {
            "properties" | "$defs" | "definitions" => {
                let named =
                    value.as_object()?.iter().map(|(name, value)| Some((name.clone(), closed(value, depth + 1)?)));
                Value::Object(named.collect::<Option<_>>()?)
            }
            "anyOf" | "allOf" | "prefixItems" => {
                let each = value.as_array()?.iter().map(|value| closed(value, depth + 1));
                Value::Array(each.collect::<Option<_>>()?)
            }
            "items" => closed(value, depth + 1)?,
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if out.contains_key("properties") {
        out.insert("additionalProperties".to_owned(), json!(false));
    }
    Some(Value::Object(out))
}

fn allows(members: &Map<String, Value>, kind: &str) -> bool {
    match members.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => members.contains_key("properties"),
    }
}

/// The schemas within a schema.
fn inner(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let named = ["properties", "$defs", "definitions"].into_iter();
    let named = named.filter_map(|key| members.get(key)?.as_object()).flat_map(Map::values);
    let listed = ["anyOf", "prefixItems"].into_iter();
    let listed = listed.filter_map(|key| members.get(key)?.as_array()).flatten();
    named.chain(listed).chain(members.get("items"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_strict_if_nothing_is_left_open() {
        let closed = json!({"type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"type": "array", "items": {"type": "string"}}}});
        assert!(is_strict(&closed));
        let mut open = closed.clone();
        open["additionalProperties"] = json!(true);
        assert!(!is_strict(&open));
        let mut optional = closed.clone();
        optional["required"] = json!([]);
        assert!(!is_strict(&optional));
        let mut deep = closed.clone();
        deep["properties"]["a"]["items"] = json!({"type": "object"});
        assert!(!is_strict(&deep));
        assert!(!is_strict(&json!({"type": "array"})));
        assert!(!is_strict(&json!(true)));
    }

    #[test]
    fn what_only_narrows_is_left_out_and_objects_are_closed() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "how many"},
            "list": {"type": "array", "minItems": 2, "items": {"type": "object", "properties": {}}}}});
        let expected = json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {
            "n": {"type": "integer", "description": "how many"},
            "list": {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": false}}}});
        assert_eq!(for_anthropic(&schema), Some(expected));
    }

    #[test]
    fn what_cannot_be_said_is_not_said() {
        for schema in [
            json!({"type": "array"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}}),
            json!({"type": "object", "properties": {"m": {"oneOf": []}}}),
            json!("any"),
        ] {
            assert_eq!(for_anthropic(&schema), None, "{schema}");
        }
        let deep = (0..1_000).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        assert_eq!(for_anthropic(&json!({"type": "object", "properties": {"deep": deep}})), None);
    }
}
