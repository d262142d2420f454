//! The result of a domain tool, and its translation for models: every id is replaced by a reference, and new records get new
//! references.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::body::TextRef;
use segue_core::ids::ToolRunId;
use segue_core::signal::canonical_json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{DEFAULT_RECORD_TYPE, DomainOperation, DomainToolRequest};
use crate::assistant::domain::{DomainSchema, RecordQuery, RecordType};
use crate::assistant::facts::DomainToolRunOutcome;
use crate::assistant::registry::{
    KnownEntities, LastEntityAction, RecordLoadLevel, RecordWithReferenceName, shorten_label,
};
use crate::limits::MENTIONED_IDS_MAX;

/// The result of a domain tool run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainToolResult {
    /// The records, with all fields or a summary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ReturnedDomainRecord>,
    /// The number of records that match, including those not returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Requested records that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_found: Vec<RecordKey>,
    /// The changes that were made; `undo` reverses them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<RecordChange>,
    /// Why nothing was done, if the request was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The answer to `resolve_run` for a run that was not executed and never will be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_executed: bool,
    /// The text that an MCP tool returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The answer to `list_tools`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// A digest of all records of a type, for types that were read completely. It changes if any of them changes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub type_versions: BTreeMap<String, String>,
    /// The answer to `snapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DomainRecordsOverview>,
}

/// What a domain shows of its records at the start of a turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainRecordsOverview {
    /// The number of records of each type, in the order of the declaration.
    pub counts: Vec<(String, u64)>,
    pub sections: Vec<DomainSnapshotSection>,
}

/// The records of one query of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainSnapshotSection {
    pub title: String,
    /// The number of records that match, including those not returned.
    #[serde(default)]
    pub total: u64,
    #[serde(default)]
    pub rows: Vec<ReturnedDomainRecord>,
}

/// A record as a tool returns it. A link is `{"id", "label"}`, several links are a list of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReturnedDomainRecord {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    #[serde(default)]
    pub label: String,
    #[serde(default)]
    pub fields: Map<String, Value>,
}

/// The type and id of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordKey {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
}

/// A record before and after a write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordChange {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    #[serde(default)]
    pub label: String,
    /// The stored fields before, with links as ids; `None` if the record did not exist.
    #[serde(default)]
    pub before: Option<Map<String, Value>>,
    /// The stored fields after; `None` if the record was deleted.
    #[serde(default)]
    pub after: Option<Map<String, Value>>,
}

impl DomainToolResult {
    /// Parses the output of a tool run.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Translates a tool result for models and gives new records a reference.
#[must_use]
pub fn translate_tool_result(
    domain: &DomainSchema,
    entities: &KnownEntities,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: &DomainToolResult,
    text: TextRef,
) -> DomainToolRunOutcome {
    let mut rows: Vec<RecordWithReferenceName> = Vec::new();
    let saved_drafts = request.parameters.get("drafts").and_then(Value::as_array);
    for (index, row) in result.rows.iter().enumerate() {
        let draft = saved_drafts
            .and_then(|drafts| drafts.get(index)?.as_str())
            .filter(|_| request.operation == DomainOperation::Create);
        let reference = match draft {
            Some(draft) => draft.to_owned(),
            None => entities.find_or_next_reference(&row.kind, &row.id, &rows),
        };
        let detail = requested_detail_level(domain.find_type(&row.kind), request);
        rows.push(RecordWithReferenceName {
            reference,
            kind: row.kind.clone(),
            id: row.id.clone(),
            label: shorten_label(&row.label),
            detail,
            row_index: Some(index),
        });
    }
    for row in &result.rows {
        let Some(kind) = domain.find_type(&row.kind) else { continue };
        for field in kind.fields.iter().filter(|field| field.kind.is_link()) {
            let to = field.to.clone().unwrap_or_default();
            let value = row.fields.get(&field.name).unwrap_or(&Value::Null);
            for (id, label) in linked_ids_and_labels(value) {
                if !rows.iter().any(|known| known.kind == to && known.id == id) {
                    let reference = entities.find_or_next_reference(&to, id, &rows);
                    let (kind, id, label) = (to.clone(), id.to_owned(), shorten_label(label));
                    rows.push(RecordWithReferenceName {
                        reference,
                        kind,
                        id,
                        label,
                        detail: RecordLoadLevel::None,
                        row_index: None,
                    });
                }
            }
        }
    }
    if request.operation == DomainOperation::CallTool {
        add_references_for_mentioned_ids(entities, request, result, &mut rows);
    }
    let deleted = deleted_record_keys(result);
    let removed = result.not_found.iter().chain(&deleted);
    let removed = removed.filter_map(|item| entities.find_reference(&item.kind, &item.id).map(str::to_owned));
    DomainToolRunOutcome {
        run,
        turn: request.turn,
        step: request.step,
        action: entity_action(request.operation),
        tool: request.parameters.get("tool").and_then(Value::as_str).unwrap_or(request.operation.as_str()).to_owned(),
        removed: removed.collect(),
        total: result.total,
        type_version: find_fully_loaded_type(request, result).and_then(|kind| result.type_versions.get(&kind).cloned()),
        fully_loaded_type: find_fully_loaded_type(request, result),
        changed_types: find_changed_types(domain, result),
        empty_read_digest: digest_empty_read(request, result),
        write_summaries: result.changes.iter().map(|change| describe_change(domain, change)).collect(),
        rows,
        text,
    }
}

/// Gives references to ids that a server mentions outside of its records, so that models can pass them back.
fn add_references_for_mentioned_ids(
    entities: &KnownEntities,
    request: &DomainToolRequest,
    result: &DomainToolResult,
    rows: &mut Vec<RecordWithReferenceName>,
) {
    let fields = result.rows.iter().flat_map(|row| row.fields.values().map(canonical_json));
    let text: Vec<String> = result.text.iter().cloned().chain(fields).collect();
    let tool = request.parameters.get("tool").and_then(Value::as_str).unwrap_or_default();
    for id in entities.find_unknown_ids(&text.join("\n")).into_iter().take(MENTIONED_IDS_MAX) {
        if rows.iter().any(|known| known.id == id) {
            continue;
        }
        let reference = entities.find_or_next_reference(DEFAULT_RECORD_TYPE, &id, rows);
        let label = shorten_label(&format!("mentioned by {tool}"));
        rows.push(RecordWithReferenceName {
            reference,
            kind: DEFAULT_RECORD_TYPE.to_owned(),
            id,
            label,
            detail: RecordLoadLevel::None,
            row_index: None,
        });
    }
}

/// Renders a record as one line of JSON, with references in place of ids.
#[must_use]
pub fn render_record_row(
    domain: &DomainSchema,
    entities: &KnownEntities,
    reference: &str,
    row: &ReturnedDomainRecord,
) -> String {
    let mut shown = Map::new();
    let fields = domain.find_type(&row.kind).map(|kind| kind.fields.as_slice()).unwrap_or_default();
    for (name, value) in &row.fields {
        let field = fields.iter().find(|field| field.name == *name);
        let value = match field.filter(|field| field.kind.is_link()).and_then(|field| field.to.as_deref()) {
            Some(to) => link_value_to_references(entities, to, value),
            None => value.clone(),
        };
        if !value.is_null() {
            shown.insert(name.clone(), value);
        }
    }
    render_record_line(reference, shown)
}

/// Renders a record as one line of plain text, with labels in place of links.
#[must_use]
pub fn render_plain_row(domain: &DomainSchema, row: &ReturnedDomainRecord) -> String {
    let declared = domain.find_type(&row.kind).map(|kind| kind.fields.as_slice()).unwrap_or_default();
    let names: Vec<&str> = match declared {
        [] => row.fields.keys().map(String::as_str).collect(),
        fields => fields.iter().map(|field| field.name.as_str()).collect(),
    };
    let parts = names.into_iter().filter_map(|name| {
        let text = plain_value(row.fields.get(name)?);
        (!text.is_empty()).then(|| format!("{name}: {text}"))
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn plain_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items.iter().map(plain_value).collect::<Vec<_>>().join(", "),
        Value::Object(link) => link.get("label").map(plain_value).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Renders a line of JSON: the reference first, then the fields in a fixed order.
#[must_use]
pub fn render_record_line(reference: &str, fields: Map<String, Value>) -> String {
    let fields = canonical_json(&Value::Object(fields));
    let rest = fields.strip_prefix('{').unwrap_or(&fields);
    let comma = if rest == "}" { "" } else { "," };
    format!("{{\"ref\":{}{comma}{rest}", Value::from(reference))
}

fn link_value_to_references(entities: &KnownEntities, to: &str, value: &Value) -> Value {
    let one = |id: &str| entities.find_reference(to, id).map_or(Value::Null, |reference| json!(reference));
    let found: Vec<Value> = linked_ids_and_labels(value).map(|(id, _)| one(id)).collect();
    match value {
        Value::Array(_) => Value::Array(found),
        _ => found.into_iter().next().unwrap_or(Value::Null),
    }
}

/// Returns the ids and labels in the value of a link field.
fn linked_ids_and_labels(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items.iter().filter_map(|item| {
        let label = item.get("label").and_then(Value::as_str).unwrap_or_default();
        Some((item.get("id")?.as_str()?, label))
    })
}

fn requested_detail_level(kind: Option<&RecordType>, request: &DomainToolRequest) -> RecordLoadLevel {
    let is_summary = request.operation == DomainOperation::Read
        && kind.is_some_and(|kind| !kind.summary.is_empty())
        && !request.parameters.get("full").and_then(Value::as_bool).unwrap_or(false);
    if is_summary { RecordLoadLevel::Summary } else { RecordLoadLevel::Full }
}

fn entity_action(operation: DomainOperation) -> LastEntityAction {
    match operation {
        DomainOperation::Create => LastEntityAction::Created,
        DomainOperation::Update | DomainOperation::Undo => LastEntityAction::Updated,
        DomainOperation::Delete => LastEntityAction::Deleted,
        DomainOperation::Link | DomainOperation::Unlink => LastEntityAction::Linked,
        DomainOperation::Read
        | DomainOperation::Get
        | DomainOperation::Snapshot
        | DomainOperation::CallTool
        | DomainOperation::ResolveRun
        | DomainOperation::ListTools => LastEntityAction::Read,
    }
}

fn deleted_record_keys(result: &DomainToolResult) -> Vec<RecordKey> {
    let deleted = result.changes.iter().filter(|change| change.after.is_none());
    deleted.map(|change| RecordKey { kind: change.kind.clone(), id: change.id.clone() }).collect()
}

/// Returns the type of which all records are loaded now: after a read without filters that returned every match.
fn find_fully_loaded_type(request: &DomainToolRequest, result: &DomainToolResult) -> Option<String> {
    let query: RecordQuery = serde_json::from_value(Value::Object(request.parameters.clone())).ok()?;
    let is_all = request.operation == DomainOperation::Read
        && query.filters.is_empty()
        && result.total == u64::try_from(result.rows.len()).ok();
    is_all.then_some(query.kind)
}

/// Returns the types that a write changed: those of the changed records, and those that link to a deleted record.
fn find_changed_types(domain: &DomainSchema, result: &DomainToolResult) -> Vec<String> {
    let mut changed: BTreeSet<String> = result.changes.iter().map(|change| change.kind.clone()).collect();
    for deleted in deleted_record_keys(result) {
        changed.extend(domain.fields_linking_to(&deleted.kind).map(|(kind, _)| kind.name.clone()));
    }
    changed.into_iter().collect()
}

/// Returns a digest of the query of a read that found nothing.
fn digest_empty_read(request: &DomainToolRequest, result: &DomainToolResult) -> Option<String> {
    let is_empty = request.operation == DomainOperation::Read && result.rows.is_empty() && result.refusal.is_none();
    is_empty.then(|| {
        let digest = segue_core::body::BodyId::hash_text(&canonical_json(&Value::Object(request.parameters.clone())));
        digest.to_string().chars().take(16).collect()
    })
}

/// Describes a change with labels and values, and without ids.
fn describe_change(domain: &DomainSchema, change: &RecordChange) -> String {
    let label = shorten_label(&change.label);
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            let fields = describe_fields(domain, &change.kind, after, EmptyFieldDisplay::Omit);
            format!("created {} “{label}”{fields}", change.kind)
        }
        (Some(_), None) => format!("deleted {} “{label}”", change.kind),
        (Some(before), Some(after)) => {
            let changed: Map<String, Value> = after
                .iter()
                .filter(|(name, value)| before.get(*name) != Some(value))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            format!(
                "changed {} “{label}”{}",
                change.kind,
                describe_fields(domain, &change.kind, &changed, EmptyFieldDisplay::Mention)
            )
        }
        (None, None) => format!("left {} “{label}” unchanged", change.kind),
    }
}

/// Whether a description mentions empty fields.
#[derive(Clone, Copy, PartialEq)]
enum EmptyFieldDisplay {
    Mention,
    Omit,
}

/// Describes field values without ids.
fn describe_fields(
    domain: &DomainSchema,
    kind: &str,
    values: &Map<String, Value>,
    empty_fields: EmptyFieldDisplay,
) -> String {
    let Some(kind) = domain.find_type(kind) else { return String::new() };
    let descriptions = kind.fields.iter().filter(|field| field.name != kind.label).filter_map(|field| {
        let value = values.get(&field.name)?;
        let text = match value {
            Value::Null => {
                return (empty_fields == EmptyFieldDisplay::Mention).then(|| format!("{} cleared", field.name));
            }
            Value::Array(items) if items.is_empty() => {
                return (empty_fields == EmptyFieldDisplay::Mention).then(|| format!("{} cleared", field.name));
            }
            _ if field.kind.is_link() => return Some(format!("{} linked", field.name)),
            Value::String(text) => text.clone(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            other => other.to_string(),
        };
        Some(format!("{}: {}", field.name, shorten_label(&text)))
    });
    let descriptions: Vec<String> = descriptions.collect();
    if descriptions.is_empty() { String::new() } else { format!(" ({})", descriptions.join("; ")) }
}
