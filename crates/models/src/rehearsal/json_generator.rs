//! Generates a JSON value that satisfies a schema, with words from the conversation. Supports types, enums, required fields,
//! bounds on numbers, strings and lists, references and combinations; ignores patterns. Depth and size are limited.

mod merge;
mod strings;

use serde_json::{Map, Number, Value};

use super::parsed_prompt::{RehearsalPromptParts, content_words, have_same_stem};
use super::rng::SeededRng;
use crate::limits::{REHEARSAL_SCHEMA_DEPTH_MAX, REHEARSAL_SCHEMA_VALUES_MAX};

/// Optional fields are generated only up to this depth.
const OPTIONAL_FIELDS_DEPTH: usize = 5;
/// Items of a list without bounds.
const USUAL_ARRAY_ITEMS: u64 = 2;
/// Attempts to generate a different item where all must be unique.
const UNIQUE_ITEM_TRIES: usize = 8;

/// Generates a value that satisfies `schema`.
pub(super) fn generate_json(schema: &Value, prompt: &RehearsalPromptParts, rng: &mut SeededRng) -> Value {
    let mut generator =
        RehearsalJsonGenerator { root: schema, prompt, rng, generated_count: 0, generated_ids: Vec::new() };
    generator.generate_value(schema, RehearsalJsonValuePosition { key: "", parent: "", index: 0, depth: 0 })
}

/// Generates tool arguments: always an object.
pub(super) fn generate_tool_arguments(schema: &Value, prompt: &RehearsalPromptParts, rng: &mut SeededRng) -> Value {
    match generate_json(schema, prompt, rng) {
        Value::Object(fields) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

/// The position of a generated value.
#[derive(Debug, Clone, Copy)]
struct RehearsalJsonValuePosition<'k> {
    /// The field name; for a list item, that of the list.
    key: &'k str,
    /// The name of the enclosing field.
    parent: &'k str,
    /// The index in the enclosing list.
    index: usize,
    depth: usize,
}

impl<'k> RehearsalJsonValuePosition<'k> {
    /// Returns the position of a field of this object.
    fn child_field<'f>(self, key: &'f str) -> RehearsalJsonValuePosition<'f>
    where
        'k: 'f,
    {
        RehearsalJsonValuePosition { key, parent: self.key, index: self.index, depth: self.depth + 1 }
    }
}

#[derive(Debug)]
struct RehearsalJsonGenerator<'a> {
    root: &'a Value,
    prompt: &'a RehearsalPromptParts,
    rng: &'a mut SeededRng,
    generated_count: usize,
    /// Ids generated so far, for fields that refer to one.
    generated_ids: Vec<String>,
}

impl RehearsalJsonGenerator<'_> {
    fn generate_value(&mut self, schema: &Value, position: RehearsalJsonValuePosition<'_>) -> Value {
        self.generated_count += 1;
        if position.depth > REHEARSAL_SCHEMA_DEPTH_MAX || self.generated_count > REHEARSAL_SCHEMA_VALUES_MAX {
            return Value::Null;
        }
        let Some(fields) = self.resolve_schema(schema, position.depth) else {
            return if schema == &Value::Bool(false) {
                Value::Null
            } else {
                self.generate_string(&Map::new(), position)
            };
        };
        if let Some(constant) = fields.get("const") {
            return constant.clone();
        }
        if let Some(options) = fields.get("enum").and_then(Value::as_array).filter(|options| !options.is_empty()) {
            return self.choose_enum_value(options, position.index);
        }
        match schema_type(&fields) {
            "object" => self.generate_object(&fields, position),
            "array" => self.generate_array(&fields, position),
            "integer" => self.generate_integer(&fields, position),
            "number" => self.generate_number(&fields, position),
            "boolean" => Value::Bool(self.rng.next_below(2) == 0),
            "null" => Value::Null,
            _ => self.generate_string(&fields, position),
        }
    }

    /// Follows references, merges combinations and chooses alternatives; `None` if the schema is not an object.
    fn resolve_schema(&mut self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let mut fields = merge::flatten_schema(schema, self.root)?;
        // Each round resolves one choice, which may contain others.
        for _ in 0..REHEARSAL_SCHEMA_DEPTH_MAX {
            let Some(choice) = ["oneOf", "anyOf"].iter().find_map(|key| fields.remove(*key)) else { break };
            let Some(choices) = choice.as_array() else { continue };
            let chosen = self.choose_alternative(choices, depth);
            if let Some(chosen) = chosen.and_then(|chosen| merge::flatten_schema(chosen, self.root)) {
                fields = merge::merge_schemas(fields, chosen);
            }
        }
        Some(fields)
    }

    fn choose_alternative<'c>(&mut self, choices: &'c [Value], depth: usize) -> Option<&'c Value> {
        let is_nothing = |choice: &&Value| choice["type"] == "null" || **choice == Value::Bool(false);
        let non_null: Vec<_> = choices.iter().filter(|choice| !is_nothing(choice)).collect();
        let is_simple = |choice: &&Value| {
            !["$ref", "allOf", "anyOf", "oneOf", "properties", "items"].iter().any(|key| choice.get(key).is_some())
        };
        if depth > OPTIONAL_FIELDS_DEPTH {
            // Prefer what ends soonest: null, or a value without parts.
            let nothing = choices.iter().find(|choice| choice["type"] == "null");
            let simple = nothing.or_else(|| choices.iter().find(is_simple));
            if simple.is_some() {
                return simple;
            }
        }
        match non_null.len() {
            0 => choices.first(),
            count => Some(non_null[self.rng.next_below(count)]),
        }
    }

    /// Returns the option that the user mentioned; else, and for later list items, any.
    fn choose_enum_value(&mut self, options: &[Value], index: usize) -> Value {
        let message_words: Vec<_> = content_words(self.prompt.last_user_text()).collect();
        let is_mentioned = |option: &Value| {
            let name = option.as_str().unwrap_or_default();
            content_words(name).any(|word| message_words.iter().any(|message_word| have_same_stem(message_word, &word)))
        };
        let random_index = self.rng.next_below(options.len());
        let start =
            if index == 0 { options.iter().position(is_mentioned).unwrap_or(random_index) } else { random_index };
        options[start].clone()
    }

    fn generate_object(&mut self, fields: &Map<String, Value>, position: RehearsalJsonValuePosition<'_>) -> Value {
        let required: Vec<_> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut object = Map::new();
        for (key, schema) in properties {
            let is_included = position.depth < OPTIONAL_FIELDS_DEPTH && schema != &Value::Bool(false);
            if is_included || required.contains(&key.as_str()) {
                object.insert(key.clone(), self.generate_value(schema, position.child_field(key)));
            }
        }
        let others = fields.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        for key in required {
            if !properties.contains_key(key) {
                object.insert(key.to_owned(), self.generate_value(&others, position.child_field(key)));
            }
        }
        let usual_count =
            u64::from(properties.is_empty() && others.is_object() && position.depth < OPTIONAL_FIELDS_DEPTH);
        let maximum = size_bound(fields, "maxProperties").unwrap_or(u64::MAX);
        let minimum = size_bound(fields, "minProperties").unwrap_or(0).max(usual_count).min(maximum);
        if others != Value::Bool(false) {
            let mut number = 0;
            while (object.len() as u64) < minimum && self.generated_count < REHEARSAL_SCHEMA_VALUES_MAX {
                number += 1;
                let key = format!("entry_{number}");
                if !object.contains_key(&key) {
                    let value = self.generate_value(&others, position.child_field(&key));
                    object.insert(key, value);
                }
            }
        }
        Value::Object(object)
    }

    fn generate_array(&mut self, fields: &Map<String, Value>, position: RehearsalJsonValuePosition<'_>) -> Value {
        let first = fields.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let others = fields.get("items").cloned().unwrap_or(Value::Bool(true));
        let minimum = size_bound(fields, "minItems").unwrap_or(0);
        let maximum = size_bound(fields, "maxItems").unwrap_or(u64::MAX);
        let usual_count =
            if position.depth > OPTIONAL_FIELDS_DEPTH { 0 } else { USUAL_ARRAY_ITEMS.max(first.len() as u64) };
        let mut count = usual_count.max(minimum).min(maximum);
        if others == Value::Bool(false) {
            count = count.min(first.len() as u64);
        }
        let must_be_unique = fields.get("uniqueItems") == Some(&Value::Bool(true));
        let mut items: Vec<Value> = Vec::new();
        while (items.len() as u64) < count && self.generated_count < REHEARSAL_SCHEMA_VALUES_MAX {
            let schema = first.get(items.len()).unwrap_or(&others);
            let mut item_position =
                RehearsalJsonValuePosition { index: items.len(), depth: position.depth + 1, ..position };
            let mut item = self.generate_value(schema, item_position);
            for _ in 0..UNIQUE_ITEM_TRIES {
                if !must_be_unique || !items.contains(&item) {
                    break;
                }
                item_position.index += 1;
                item = self.generate_value(schema, item_position);
            }
            if must_be_unique && items.contains(&item) {
                let Some(other) = find_unused_value(schema, self.root, &items) else { break };
                item = other;
            }
            items.push(item);
        }
        Value::Array(items)
    }

    fn generate_integer(&mut self, fields: &Map<String, Value>, position: RehearsalJsonValuePosition<'_>) -> Value {
        let (minimum, maximum, step) = integer_bounds(fields);
        let number = i64::try_from(1 + self.rng.next_below(3) + position.index).unwrap_or(1);
        let number = number.min(maximum.unwrap_or(number)).max(minimum.unwrap_or(i64::MIN));
        Value::from(round_to_multiple(number, minimum, step))
    }

    fn generate_number(&mut self, fields: &Map<String, Value>, position: RehearsalJsonValuePosition<'_>) -> Value {
        let bound = |key: &str| fields.get(key).and_then(Value::as_f64);
        let minimum = bound("minimum").or(bound("exclusiveMinimum"));
        let maximum = bound("maximum").or(bound("exclusiveMaximum"));
        if bound("multipleOf").is_some() {
            return self.generate_integer(fields, position);
        }
        // Quarters are exact in binary, so they print well.
        let part = 0.25 * (1 + self.rng.next_below(3)) as f64;
        let number = match (minimum, maximum) {
            (Some(minimum), Some(maximum)) => minimum + (maximum - minimum) * part,
            (Some(minimum), None) => minimum + 1.0,
            (None, Some(maximum)) => maximum - 1.0,
            (None, None) => part,
        };
        Number::from_f64(number).map_or_else(|| Value::from(0), Value::Number)
    }
}

/// Returns a value that is not in the list yet: the last resort where all must be unique.
fn find_unused_value(schema: &Value, root: &Value, items: &[Value]) -> Option<Value> {
    let fields = merge::flatten_schema(schema, root)?;
    let options = match fields.get("enum").and_then(Value::as_array) {
        Some(options) => options.clone(),
        None if schema_type(&fields) == "boolean" => vec![Value::Bool(true), Value::Bool(false)],
        None if schema_type(&fields) == "integer" => {
            let (minimum, maximum, step) = integer_bounds(&fields);
            let first = minimum.unwrap_or(1).min(maximum.unwrap_or(i64::MAX));
            let first = round_to_multiple(first, minimum, step);
            let candidates = (0..=items.len() as i64).map(|n| first.saturating_add(n.saturating_mul(step)));
            candidates.filter(|number| *number <= maximum.unwrap_or(i64::MAX)).map(Value::from).collect()
        }
        None => Vec::new(),
    };
    options.into_iter().find(|option| !items.contains(option))
}

/// Returns the minimum, the maximum and the step of an integer.
fn integer_bounds(fields: &Map<String, Value>) -> (Option<i64>, Option<i64>, i64) {
    let bound = |key: &str| fields.get(key).and_then(Value::as_f64);
    let above = bound("exclusiveMinimum").map(|bound| (bound.floor() as i64).saturating_add(1));
    let below = bound("exclusiveMaximum").map(|bound| (bound.ceil() as i64).saturating_sub(1));
    let minimum = bound("minimum").map(|bound| bound.ceil() as i64).max(above);
    let maximum = bound("maximum").map(|bound| bound.floor() as i64).into_iter().chain(below).min();
    let step = bound("multipleOf").map_or(1, |step| step.ceil() as i64).max(1);
    (minimum, maximum, step)
}

/// Rounds down to a multiple of `step`, or up if the result would be below the minimum.
fn round_to_multiple(number: i64, minimum: Option<i64>, step: i64) -> i64 {
    let down = number.div_euclid(step).saturating_mul(step);
    if down >= minimum.unwrap_or(i64::MIN) { down } else { down.saturating_add(step) }
}

fn size_bound(fields: &Map<String, Value>, key: &str) -> Option<u64> {
    fields.get(key).and_then(Value::as_f64).filter(|limit| *limit >= 0.0).map(|limit| limit as u64)
}

/// Returns the explicit or implied type of a schema.
fn schema_type(fields: &Map<String, Value>) -> &str {
    match fields.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            let named: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
            named.iter().find(|kind| **kind != "null").or(named.first()).copied().unwrap_or("string")
        }
        _ if fields.contains_key("properties") || fields.contains_key("required") => "object",
        _ if fields.contains_key("items") || fields.contains_key("prefixItems") => "array",
        _ if fields.contains_key("minimum") || fields.contains_key("maximum") => "number",
        _ => "string",
    }
}
