//! Follows `$ref` and merges `allOf`, so that the generator sees one flat schema.

use crate::limits::SCHEMA_REF_HOPS_MAX;
use serde_json::{Map, Value, json};

/// Resolves `$ref` and `allOf` at the top level; `None` if the schema is not an object.
pub(super) fn flatten_schema(schema: &Value, root: &Value) -> Option<Map<String, Value>> {
    let mut hops = SCHEMA_REF_HOPS_MAX;
    flatten_schema_within(schema, root, &mut hops)
}

fn flatten_schema_within(schema: &Value, root: &Value, hops: &mut usize) -> Option<Map<String, Value>> {
    let mut fields = schema.as_object()?.clone();
    let target = fields.remove("$ref").filter(|_| consume_ref_hop(hops).is_some());
    let found = target
        .and_then(|target| resolve_schema_ref(&target, root))
        .and_then(|found| flatten_schema_within(found, root, hops));
    if let Some(found) = found {
        fields = merge_schemas(found, fields);
    }
    if let Some(Value::Array(all)) = fields.remove("allOf") {
        for one in &all {
            if let Some(found) = consume_ref_hop(hops).and_then(|()| flatten_schema_within(one, root, hops)) {
                fields = merge_schemas(fields, found);
            }
        }
    }
    Some(fields)
}

fn consume_ref_hop(hops: &mut usize) -> Option<()> {
    *hops = hops.checked_sub(1)?;
    Some(())
}

fn resolve_schema_ref<'r>(target: &Value, root: &'r Value) -> Option<&'r Value> {
    root.pointer(target.as_str()?.strip_prefix('#')?)
}

/// Merges two schemas, so that a value that satisfies the result satisfies both, for the supported keywords.
pub(super) fn merge_schemas(one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    let mut merged = one;
    for (key, value) in other {
        let Some(present) = merged.remove(&key) else {
            merged.insert(key, value);
            continue;
        };
        let value = merge_keyword(&key, present, value);
        merged.insert(key, value);
    }
    merged
}

fn merge_keyword(key: &str, one: Value, other: Value) -> Value {
    let is_larger = one.as_f64() > other.as_f64();
    match (key, one, other) {
        ("properties", Value::Object(one), Value::Object(other)) => {
            let mut merged = one;
            for (name, schema) in other {
                let schema = match merged.remove(&name) {
                    Some(present) => json!({ "allOf": [present, schema] }),
                    None => schema,
                };
                merged.insert(name, schema);
            }
            Value::Object(merged)
        }
        ("required", Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            Value::Array(one)
        }
        ("enum", Value::Array(one), Value::Array(other)) => {
            one.into_iter().filter(|option| other.contains(option)).collect()
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", one, other) => {
            if is_larger {
                one
            } else {
                other
            }
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", one, other) => {
            if is_larger {
                other
            } else {
                one
            }
        }
        (_, _, other) => other,
    }
}
