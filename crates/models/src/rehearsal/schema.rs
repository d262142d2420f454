//! Makes a JSON value that satisfies a schema, with words from the conversation. Knows types, enums, required fields, bounds
//! on numbers, texts and lists, references and combinations; patterns are ignored. Bounded in depth and size, whatever the
//! schema says.

mod merge;
mod strings;

use serde_json::{Map, Number, Value};

use super::dice::Dice;
use super::reading::{Reading, alike, telling_words};
use crate::limits::{REHEARSAL_SCHEMA_DEPTH_MAX, REHEARSAL_SCHEMA_VALUES_MAX};

/// Deeper than this only what is required is made.
const GENEROUS_DEPTH: usize = 5;
/// Items of a list that may have any number.
const ITEMS_USUAL: u64 = 2;
/// How often another item is tried where all must differ.
const DISTINCT_TRIES: usize = 8;

/// A value that satisfies `schema`.
pub(super) fn value(schema: &Value, reading: &Reading, dice: &mut Dice) -> Value {
    let mut maker = Maker { root: schema, reading, dice, made: 0, ids: Vec::new() };
    maker.make(schema, Spot { key: "", parent: "", index: 0, depth: 0 })
}

/// Arguments for a tool: an object, whatever the schema says.
pub(super) fn arguments(schema: &Value, reading: &Reading, dice: &mut Dice) -> Value {
    match value(schema, reading, dice) {
        Value::Object(fields) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

/// Where in the value something is made.
#[derive(Debug, Clone, Copy)]
struct Spot<'k> {
    /// The field it is in; for a list's item, the list's field.
    key: &'k str,
    /// The field around that.
    parent: &'k str,
    /// The place in the list it is in.
    index: usize,
    depth: usize,
}

impl<'k> Spot<'k> {
    /// A field of the object here.
    fn field<'f>(self, key: &'f str) -> Spot<'f>
    where
        'k: 'f,
    {
        Spot { key, parent: self.key, index: self.index, depth: self.depth + 1 }
    }
}

#[derive(Debug)]
struct Maker<'a> {
    root: &'a Value,
    reading: &'a Reading,
    dice: &'a mut Dice,
    made: usize,
    /// Ids made so far, for fields that refer to something.
    ids: Vec<String>,
}

impl Maker<'_> {
    fn make(&mut self, schema: &Value, spot: Spot<'_>) -> Value {
        self.made += 1;
        if spot.depth > REHEARSAL_SCHEMA_DEPTH_MAX || self.made > REHEARSAL_SCHEMA_VALUES_MAX {
            return Value::Null;
        }
        let Some(fields) = self.settle(schema, spot.depth) else {
            return if schema == &Value::Bool(false) { Value::Null } else { self.string(&Map::new(), spot) };
        };
        if let Some(constant) = fields.get("const") {
            return constant.clone();
        }
        if let Some(options) = fields.get("enum").and_then(Value::as_array).filter(|options| !options.is_empty()) {
            return self.option(options, spot.index);
        }
        match kind(&fields) {
            "object" => self.object(&fields, spot),
            "array" => self.array(&fields, spot),
            "integer" => self.integer(&fields, spot),
            "number" => self.number(&fields, spot),
            "boolean" => Value::Bool(self.dice.roll(2) == 0),
            "null" => Value::Null,
            _ => self.string(&fields, spot),
        }
    }

    /// The schema with references followed, combinations merged and alternatives chosen; none if it is no object.
    fn settle(&mut self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let mut fields = merge::flatten(schema, self.root)?;
        // Each round settles one choice; a choice may bring others.
        for _ in 0..REHEARSAL_SCHEMA_DEPTH_MAX {
            let Some(choice) = ["oneOf", "anyOf"].iter().find_map(|key| fields.remove(*key)) else { break };
            let Some(choices) = choice.as_array() else { continue };
            let chosen = self.alternative(choices, depth);
            if let Some(chosen) = chosen.and_then(|chosen| merge::flatten(chosen, self.root)) {
                fields = merge::both(fields, chosen);
            }
        }
        Some(fields)
    }

    fn alternative<'c>(&mut self, choices: &'c [Value], depth: usize) -> Option<&'c Value> {
        let is_nothing = |choice: &&Value| choice["type"] == "null" || **choice == Value::Bool(false);
        let real: Vec<_> = choices.iter().filter(|choice| !is_nothing(choice)).collect();
        let is_simple = |choice: &&Value| {
            !["$ref", "allOf", "anyOf", "oneOf", "properties", "items"].iter().any(|key| choice.get(key).is_some())
        };
        if depth > GENEROUS_DEPTH {
            // Whatever ends soonest: nothing at all, or something without parts.
            let nothing = choices.iter().find(|choice| choice["type"] == "null");
            let simple = nothing.or_else(|| choices.iter().find(is_simple));
            if simple.is_some() {
                return simple;
            }
        }
        match real.len() {
            0 => choices.first(),
            count => Some(real[self.dice.roll(count)]),
        }
    }

    /// The option the user spoke of, else any; further ones down a list.
    fn option(&mut self, options: &[Value], index: usize) -> Value {
        let asked: Vec<_> = telling_words(self.reading.last()).collect();
        let is_asked = |option: &Value| {
            let name = option.as_str().unwrap_or_default();
            telling_words(name).any(|word| asked.iter().any(|asked| alike(asked, &word)))
        };
        let rolled = self.dice.roll(options.len());
        let start = if index == 0 { options.iter().position(is_asked).unwrap_or(rolled) } else { rolled };
        options[start].clone()
    }

    fn object(&mut self, fields: &Map<String, Value>, spot: Spot<'_>) -> Value {
        let required: Vec<_> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut object = Map::new();
        for (key, schema) in properties {
            let is_wanted = spot.depth < GENEROUS_DEPTH && schema != &Value::Bool(false);
            if is_wanted || required.contains(&key.as_str()) {
                object.insert(key.clone(), self.make(schema, spot.field(key)));
            }
        }
        let others = fields.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        for key in required {
            if !properties.contains_key(key) {
                object.insert(key.to_owned(), self.make(&others, spot.field(key)));
            }
        }
        let usual = u64::from(properties.is_empty() && others.is_object() && spot.depth < GENEROUS_DEPTH);
        let most = limit(fields, "maxProperties").unwrap_or(u64::MAX);
        let least = limit(fields, "minProperties").unwrap_or(0).max(usual).min(most);
        if others != Value::Bool(false) {
            let mut number = 0;
            while (object.len() as u64) < least && self.made < REHEARSAL_SCHEMA_VALUES_MAX {
                number += 1;
                let key = format!("entry_{number}");
                if !object.contains_key(&key) {
                    let made = self.make(&others, spot.field(&key));
                    object.insert(key, made);
                }
            }
        }
        Value::Object(object)
    }

    fn array(&mut self, fields: &Map<String, Value>, spot: Spot<'_>) -> Value {
        let first = fields.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let others = fields.get("items").cloned().unwrap_or(Value::Bool(true));
        let least = limit(fields, "minItems").unwrap_or(0);
        let most = limit(fields, "maxItems").unwrap_or(u64::MAX);
        let usual = if spot.depth > GENEROUS_DEPTH { 0 } else { ITEMS_USUAL.max(first.len() as u64) };
        let mut count = usual.max(least).min(most);
        if others == Value::Bool(false) {
            count = count.min(first.len() as u64);
        }
        let must_differ = fields.get("uniqueItems") == Some(&Value::Bool(true));
        let mut items: Vec<Value> = Vec::new();
        while (items.len() as u64) < count && self.made < REHEARSAL_SCHEMA_VALUES_MAX {
            let schema = first.get(items.len()).unwrap_or(&others);
            let mut spot = Spot { index: items.len(), depth: spot.depth + 1, ..spot };
            let mut item = self.make(schema, spot);
            for _ in 0..DISTINCT_TRIES {
                if !must_differ || !items.contains(&item) {
                    break;
                }
                spot.index += 1;
                item = self.make(schema, spot);
            }
            if must_differ && items.contains(&item) {
                let Some(other) = unused(schema, self.root, &items) else { break };
                item = other;
            }
            items.push(item);
        }
        Value::Array(items)
    }

    fn integer(&mut self, fields: &Map<String, Value>, spot: Spot<'_>) -> Value {
        let (least, most, step) = integer_bounds(fields);
        let number = i64::try_from(1 + self.dice.roll(3) + spot.index).unwrap_or(1);
        let number = number.min(most.unwrap_or(number)).max(least.unwrap_or(i64::MIN));
        Value::from(multiple(number, least, step))
    }

    fn number(&mut self, fields: &Map<String, Value>, spot: Spot<'_>) -> Value {
        let bound = |key: &str| fields.get(key).and_then(Value::as_f64);
        let least = bound("minimum").or(bound("exclusiveMinimum"));
        let most = bound("maximum").or(bound("exclusiveMaximum"));
        if bound("multipleOf").is_some() {
            return self.integer(fields, spot);
        }
        // Quarters are exact in binary, so they read well too.
        let part = 0.25 * (1 + self.dice.roll(3)) as f64;
        let number = match (least, most) {
            (Some(least), Some(most)) => least + (most - least) * part,
            (Some(least), None) => least + 1.0,
            (None, Some(most)) => most - 1.0,
            (None, None) => part,
        };
        Number::from_f64(number).map_or_else(|| Value::from(0), Value::Number)
    }
}

/// Something that is not in the list yet: the last resort where all must differ.
fn unused(schema: &Value, root: &Value, items: &[Value]) -> Option<Value> {
    let fields = merge::flatten(schema, root)?;
    let options = match fields.get("enum").and_then(Value::as_array) {
        Some(options) => options.clone(),
        None if kind(&fields) == "boolean" => vec![Value::Bool(true), Value::Bool(false)],
        None if kind(&fields) == "integer" => {
            let (least, most, step) = integer_bounds(&fields);
            let first = least.unwrap_or(1).min(most.unwrap_or(i64::MAX));
            let first = multiple(first, least, step);
            let candidates = (0..=items.len() as i64).map(|n| first.saturating_add(n.saturating_mul(step)));
            candidates.filter(|number| *number <= most.unwrap_or(i64::MAX)).map(Value::from).collect()
        }
        None => Vec::new(),
    };
    options.into_iter().find(|option| !items.contains(option))
}

/// The least, the most, and what it must be a multiple of.
fn integer_bounds(fields: &Map<String, Value>) -> (Option<i64>, Option<i64>, i64) {
    let bound = |key: &str| fields.get(key).and_then(Value::as_f64);
    let above = bound("exclusiveMinimum").map(|bound| (bound.floor() as i64).saturating_add(1));
    let below = bound("exclusiveMaximum").map(|bound| (bound.ceil() as i64).saturating_sub(1));
    let least = bound("minimum").map(|bound| bound.ceil() as i64).max(above);
    let most = bound("maximum").map(|bound| bound.floor() as i64).into_iter().chain(below).min();
    let step = bound("multipleOf").map_or(1, |step| step.ceil() as i64).max(1);
    (least, most, step)
}

/// The multiple of `step` at `number` or next below it, unless only the one above is large enough.
fn multiple(number: i64, least: Option<i64>, step: i64) -> i64 {
    let down = number.div_euclid(step).saturating_mul(step);
    if down >= least.unwrap_or(i64::MIN) { down } else { down.saturating_add(step) }
}

fn limit(fields: &Map<String, Value>, key: &str) -> Option<u64> {
    fields.get(key).and_then(Value::as_f64).filter(|limit| *limit >= 0.0).map(|limit| limit as u64)
}

/// What type is wanted, said or implied.
fn kind(fields: &Map<String, Value>) -> &str {
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
