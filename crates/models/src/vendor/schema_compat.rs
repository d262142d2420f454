//! Adapts JSON schemas to vendors. Constraints that a vendor does not support are dropped, which only allows more: every reply
//! is validated against the full schema afterwards.

use serde_json::{Map, Value, json};

use crate::limits::SCHEMA_DEPTH_MAX;

/// Keywords that a strict schema must not contain.
const NON_STRICT_KEYWORDS: [&str; 12] = [
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

/// Keywords that only narrow a value and that Anthropic does not accept.
const CONSTRAINT_KEYWORDS: [&str; 15] = [
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

/// Returns whether OpenAI can enforce the schema strictly: every object is closed and every property required.
pub(crate) fn is_strict_schema(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object") && is_strict_at_depth(schema, 0)
}

fn is_strict_at_depth(schema: &Value, depth: usize) -> bool {
    let Value::Object(members) = schema else { return false };
    if depth > SCHEMA_DEPTH_MAX || NON_STRICT_KEYWORDS.iter().any(|keyword| members.contains_key(*keyword)) {
        return false;
    }
    if allows_json_type(members, "object") && !is_closed_object(members) {
        return false;
    }
    subschemas(members).all(|inner| is_strict_at_depth(inner, depth + 1))
}

fn is_closed_object(members: &Map<String, Value>) -> bool {
    let properties = members.get("properties").and_then(Value::as_object);
    let required = members.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.iter().any(|known| known == name.as_str()));
    members.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_some_and(|properties| properties.keys().all(is_required))
}

/// Closes every object and drops what Anthropic refuses; `None` if the schema cannot be expressed.
pub(crate) fn to_anthropic_schema(schema: &Value) -> Option<Value> {
    let Value::Object(members) = schema else { return None };
    if !allows_json_type(members, "object") {
        return None;
    }
    close_schema_objects(schema, 0)
}

fn close_schema_objects(schema: &Value, depth: usize) -> Option<Value> {
    let Value::Object(members) = schema else { return None };
    if depth > SCHEMA_DEPTH_MAX || NON_STRICT_KEYWORDS[1..].iter().any(|keyword| members.contains_key(*keyword)) {
        return None;
    }
    // An object with arbitrary keys cannot be closed.
    if allows_json_type(members, "object") && !members.contains_key("properties") {
        return None;
    }
    let mut out = Map::new();
    for (key, value) in members.iter().filter(|(key, _)| !CONSTRAINT_KEYWORDS.contains(&key.as_str())) {
        let value = match key.as_str() {
            "properties" | "$defs" | "definitions" => {
                let named = value
                    .as_object()?
                    .iter()
                    .map(|(name, value)| Some((name.clone(), close_schema_objects(value, depth + 1)?)));
                Value::Object(named.collect::<Option<_>>()?)
            }
            "anyOf" | "allOf" | "prefixItems" => {
                let each = value.as_array()?.iter().map(|value| close_schema_objects(value, depth + 1));
                Value::Array(each.collect::<Option<_>>()?)
            }
            "items" => close_schema_objects(value, depth + 1)?,
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if out.contains_key("properties") {
        out.insert("additionalProperties".to_owned(), json!(false));
    }
    Some(Value::Object(out))
}

fn allows_json_type(members: &Map<String, Value>, kind: &str) -> bool {
    match members.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => members.contains_key("properties"),
    }
}

/// Returns the direct subschemas of a schema.
fn subschemas(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
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
    fn a_schema_is_strict_if_it_is_fully_closed() {
        let closed = json!({"type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"type": "array", "items": {"type": "string"}}}});
        assert!(is_strict_schema(&closed));
        let mut open = closed.clone();
        open["additionalProperties"] = json!(true);
        assert!(!is_strict_schema(&open));
        let mut optional = closed.clone();
        optional["required"] = json!([]);
        assert!(!is_strict_schema(&optional));
        let mut deep = closed.clone();
        deep["properties"]["a"]["items"] = json!({"type": "object"});
        assert!(!is_strict_schema(&deep));
        assert!(!is_strict_schema(&json!({"type": "array"})));
        assert!(!is_strict_schema(&json!(true)));
    }

    #[test]
    fn constraints_are_dropped_and_objects_are_closed() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "how many"},
            "list": {"type": "array", "minItems": 2, "items": {"type": "object", "properties": {}}}}});
        let expected = json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {
            "n": {"type": "integer", "description": "how many"},
            "list": {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": false}}}});
        assert_eq!(to_anthropic_schema(&schema), Some(expected));
    }

    #[test]
    fn schemas_that_cannot_be_expressed_are_refused() {
        for schema in [
            json!({"type": "array"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}}),
            json!({"type": "object", "properties": {"m": {"oneOf": []}}}),
            json!("any"),
        ] {
            assert_eq!(to_anthropic_schema(&schema), None, "{schema}");
        }
        let deep = (0..1_000).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        assert_eq!(to_anthropic_schema(&json!({"type": "object", "properties": {"deep": deep}})), None);
    }
}
