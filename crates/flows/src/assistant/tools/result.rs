//! What a host returns, in references: the rows and what was written, with every id turned into the reference that stands
//! for it, minted where there was none.

use segue_core::body::Text;
use segue_core::ids::ToolRunId;
use segue_core::signal::json::canonical;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ITEM, Operation, Told};
use crate::assistant::domain::{Domain, Query, RecordType};
use crate::assistant::facts::Records;
use crate::assistant::registry::{Action, Detail, Known, Registry, shortened};
use crate::limits::MENTIONED_IDS_MAX;

/// What a host returns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reported {
    /// Records, whole or in part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// How many there are that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Records that are not there, or not any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Item>,
    /// What was written, so that it can be taken back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Why nothing was done, if the request could not be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Of a run that was asked about: that it never had its effect and never will.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// What a server's tool said in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The tools a server has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
}

/// A record as the host has it. A link is `{"id", "label"}`, several are a list of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What people call it.
    #[serde(default)]
    pub label: String,
    /// Its fields.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

/// A record by type and id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id.
    pub id: String,
}

/// A record before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What it is called.
    #[serde(default)]
    pub label: String,
    /// What was stored; nothing if it was not there. A link is an id.
    #[serde(default)]
    pub before: Option<Map<String, Value>>,
    /// What is stored; nothing if it is not there any more.
    #[serde(default)]
    pub after: Option<Map<String, Value>>,
}

impl Reported {
    /// Reads what a host returned.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// What a run brought, in references.
#[must_use]
pub fn taken(
    domain: &Domain,
    entities: &Registry,
    run: ToolRunId,
    told: &Told,
    reported: &Reported,
    text: Text,
) -> Records {
    let mut rows: Vec<Known> = Vec::new();
    let saved = told.rest.get("drafts").and_then(Value::as_array);
    for (place, row) in reported.rows.iter().enumerate() {
        let draft = saved.and_then(|drafts| drafts.get(place)?.as_str()).filter(|_| told.op == Operation::Create);
        let reference = match draft {
            Some(draft) => draft.to_owned(),
            None => entities.reference_for(&row.kind, &row.id, &rows),
        };
        let detail = detail(domain.find(&row.kind), told);
        rows.push(Known {
            reference,
            kind: row.kind.clone(),
            id: row.id.clone(),
            label: shortened(&row.label),
            detail,
            place: Some(place),
        });
    }
    for row in &reported.rows {
        let Some(kind) = domain.find(&row.kind) else { continue };
        for field in kind.fields.iter().filter(|field| field.kind.is_link()) {
            let to = field.to.clone().unwrap_or_default();
            let value = row.fields.get(&field.name).unwrap_or(&Value::Null);
            for (id, label) in leads_to(value) {
                if !rows.iter().any(|known| known.kind == to && known.id == id) {
                    let reference = entities.reference_for(&to, id, &rows);
                    let (kind, id, label) = (to.clone(), id.to_owned(), shortened(label));
                    rows.push(Known { reference, kind, id, label, detail: Detail::None, place: None });
                }
            }
        }
    }
    if told.op == Operation::Call {
        mention(entities, told, reported, &mut rows);
    }
    let deleted = deleted(reported);
    let gone = reported.gone.iter().chain(&deleted);
    let gone = gone.filter_map(|item| entities.reference_of(&item.kind, &item.id).map(str::to_owned));
    Records {
        run,
        turn: told.turn,
        step: told.step,
        did: action(told.op),
        tool: told.rest.get("tool").and_then(Value::as_str).unwrap_or(told.op.word()).to_owned(),
        gone: gone.collect(),
        total: reported.total,
        all_of: all_of(told, reported),
        empty: empty(told, reported),
        wrote: reported.changes.iter().map(|change| in_words(domain, change)).collect(),
        rows,
        text,
    }
}

/// Ids that a server names beside its records get references too: whoever is shown those may have to give them back.
fn mention(entities: &Registry, told: &Told, reported: &Reported, rows: &mut Vec<Known>) {
    let fields = reported.rows.iter().flat_map(|row| row.fields.values().map(canonical));
    let text: Vec<String> = reported.said.iter().cloned().chain(fields).collect();
    let tool = told.rest.get("tool").and_then(Value::as_str).unwrap_or_default();
    for id in entities.strange_ids(&text.join("\n")).into_iter().take(MENTIONED_IDS_MAX) {
        if rows.iter().any(|known| known.id == id) {
            continue;
        }
        let reference = entities.reference_for(ITEM, &id, rows);
        let label = shortened(&format!("named by {tool}"));
        rows.push(Known { reference, kind: ITEM.to_owned(), id, label, detail: Detail::None, place: None });
    }
}

/// A record as a model is shown it: one line of JSON, with references where the host has ids.
#[must_use]
pub fn shown_row(domain: &Domain, entities: &Registry, reference: &str, row: &Row) -> String {
    let mut shown = Map::new();
    let fields = domain.find(&row.kind).map(|kind| kind.fields.as_slice()).unwrap_or_default();
    for (name, value) in &row.fields {
        let field = fields.iter().find(|field| field.name == *name);
        let value = match field.filter(|field| field.kind.is_link()).and_then(|field| field.to.as_deref()) {
            Some(to) => as_references(entities, to, value),
            None => value.clone(),
        };
        if !value.is_null() {
            shown.insert(name.clone(), value);
        }
    }
    line(reference, shown)
}

/// A record's line: its reference, then its fields in a fixed order.
#[must_use]
pub fn line(reference: &str, fields: Map<String, Value>) -> String {
    let fields = canonical(&Value::Object(fields));
    let rest = fields.strip_prefix('{').unwrap_or(&fields);
    let comma = if rest == "}" { "" } else { "," };
    format!("{{\"ref\":{}{comma}{rest}", Value::from(reference))
}

fn as_references(entities: &Registry, to: &str, value: &Value) -> Value {
    let one = |id: &str| entities.reference_of(to, id).map_or(Value::Null, |reference| json!(reference));
    let found: Vec<Value> = leads_to(value).map(|(id, _)| one(id)).collect();
    match value {
        Value::Array(_) => Value::Array(found),
        _ => found.into_iter().next().unwrap_or(Value::Null),
    }
}

/// The ids and labels that a link's value holds.
fn leads_to(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items.iter().filter_map(|item| {
        let label = item.get("label").and_then(Value::as_str).unwrap_or_default();
        Some((item.get("id")?.as_str()?, label))
    })
}

fn detail(kind: Option<&RecordType>, told: &Told) -> Detail {
    let is_part = told.op == Operation::Read
        && kind.is_some_and(|kind| !kind.summary.is_empty())
        && !told.rest.get("full").and_then(Value::as_bool).unwrap_or(false);
    if is_part { Detail::Summary } else { Detail::Full }
}

fn action(op: Operation) -> Action {
    match op {
        Operation::Create => Action::Created,
        Operation::Update | Operation::Undo => Action::Updated,
        Operation::Delete => Action::Deleted,
        Operation::Link | Operation::Unlink => Action::Linked,
        Operation::Read | Operation::Get | Operation::Call | Operation::Settle | Operation::Describe => Action::Read,
    }
}

fn deleted(reported: &Reported) -> Vec<Item> {
    let gone = reported.changes.iter().filter(|change| change.after.is_none());
    gone.map(|change| Item { kind: change.kind.clone(), id: change.id.clone() }).collect()
}

/// The type of which everything is at hand after a read without conditions that was not cut off.
fn all_of(told: &Told, reported: &Reported) -> Option<String> {
    let query: Query = serde_json::from_value(Value::Object(told.rest.clone())).ok()?;
    let is_all = told.op == Operation::Read
        && query.filters.is_empty()
        && reported.total == u64::try_from(reported.rows.len()).ok();
    is_all.then_some(query.kind)
}

/// What tells an empty read from others.
fn empty(told: &Told, reported: &Reported) -> Option<String> {
    let is_empty = told.op == Operation::Read && reported.rows.is_empty() && reported.refused.is_none();
    is_empty.then(|| {
        let digest = segue_core::body::BodyId::of(&canonical(&Value::Object(told.rest.clone())));
        digest.to_string().chars().take(16).collect()
    })
}

/// What was written, for those who must say what was done: labels and values, no ids.
fn in_words(domain: &Domain, change: &Change) -> String {
    let label = shortened(&change.label);
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            let fields = plain(domain, &change.kind, after, Blank::Left);
            format!("created {} “{label}”{fields}", change.kind)
        }
        (Some(_), None) => format!("deleted {} “{label}”", change.kind),
        (Some(before), Some(after)) => {
            let changed: Map<String, Value> = after
                .iter()
                .filter(|(name, value)| before.get(*name) != Some(value))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            format!("changed {} “{label}”{}", change.kind, plain(domain, &change.kind, &changed, Blank::Told))
        }
        (None, None) => format!("left {} “{label}” as it was", change.kind),
    }
}

/// Whether it is told that a field is empty.
#[derive(Clone, Copy, PartialEq)]
enum Blank {
    Told,
    Left,
}

/// The fields that can be told without an id.
fn plain(domain: &Domain, kind: &str, values: &Map<String, Value>, blank: Blank) -> String {
    let Some(kind) = domain.find(kind) else { return String::new() };
    let told = kind.fields.iter().filter(|field| field.name != kind.label).filter_map(|field| {
        let value = values.get(&field.name)?;
        let words = match value {
            Value::Null => return (blank == Blank::Told).then(|| format!("{} emptied", field.name)),
            Value::Array(items) if items.is_empty() => {
                return (blank == Blank::Told).then(|| format!("{} emptied", field.name));
            }
            _ if field.kind.is_link() => return Some(format!("{} linked", field.name)),
            Value::String(text) => text.clone(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            other => other.to_string(),
        };
        Some(format!("{}: {}", field.name, shortened(&words)))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) }
}
