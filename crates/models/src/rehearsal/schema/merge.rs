//! Follows references and merges what `allOf` puts together, so that the maker sees one plain schema.

use crate::limits::HOPS_MAX;
use serde_json::{Map, Value, json};

/// The schema without `$ref` and `allOf` at its top; none if it is no object.
pub(super) fn flatten(schema: &Value, root: &Value) -> Option<Map<String, Value>> {
    let mut hops = HOPS_MAX;
    flatten_within(schema, root, &mut hops)
}

fn flatten_within(schema: &Value, root: &Value, hops: &mut usize) -> Option<Map<String, Value>> {
    let mut fields = schema.as_object()?.clone();
    let target = fields.remove("$ref").filter(|_| next(hops).is_some());
    let found = target.and_then(|target| find(&target, root)).and_then(|found| flatten_within(found, root, hops));
    if let Some(found) = found {
        fields = both(found, fields);
    }
    if let Some(Value::Array(all)) = fields.remove("allOf") {
        for one in &all {
            if let Some(found) = next(hops).and_then(|()| flatten_within(one, root, hops)) {
                fields = both(fields, found);
            }
        }
    }
    Some(fields)
}

fn next(hops: &mut usize) -> Option<()> {
    *hops = hops.checked_sub(1)?;
    Some(())
}

fn find<'r>(target: &Value, root: &'r Value) -> Option<&'r Value> {
    root.pointer(target.as_str()?.strip_prefix('#')?)
}

/// What satisfies the result satisfies both, for the keywords the maker knows.
pub(super) fn both(one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    let mut merged = one;
    for (key, value) in other {
        let Some(present) = merged.remove(&key) else {
            merged.insert(key, value);
            continue;
        };
        let value = combine(&key, present, value);
        merged.insert(key, value);
    }
    merged
}

fn combine(key: &str, one: Value, other: Value) -> Value {
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
