//! The labels of records, and records as results contain them: with the labels of linked records.

use rusqlite::{Connection, OptionalExtension};
use segue_flows::assistant::domain::{DomainSchema, RecordField, RecordFieldKind, RecordType};
use segue_flows::assistant::tools::ReturnedDomainRecord;
use serde_json::{Map, Value, json};

use super::record_store;
use super::schema::{quote_identifier, table_name};
use crate::limits::LABEL_DEPTH_MAX;

/// Returns the label of a record; empty if it does not exist or has none.
pub(super) fn load_label(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<String> {
    load_label_within(connection, domain, kind, id, LABEL_DEPTH_MAX)
}

fn load_label_within(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
    depth: u32,
) -> rusqlite::Result<String> {
    let Some(field) = kind.field(&kind.label) else { return Ok(String::new()) };
    let sql = format!(
        "SELECT {} FROM {} WHERE id = ?",
        quote_identifier(&field.name),
        quote_identifier(&table_name(domain, kind))
    );
    let value =
        connection.prepare_cached(&sql)?.query_row([id], |row| record_store::column_value(row, 0, field)).optional()?;
    match (value, field.to.as_deref().and_then(|to| domain.find_type(to))) {
        (Some(Value::String(to)), Some(kind)) if depth > 0 => {
            load_label_within(connection, domain, kind, &to, depth - 1)
        }
        (Some(Value::String(text)), None) => Ok(text),
        (Some(value), None) if !value.is_null() => Ok(value.to_string()),
        _ => Ok(String::new()),
    }
}

/// Converts a stored record for a result, with the given fields.
pub(super) fn build_record_row(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
    values: &Map<String, Value>,
    fields: &[&RecordField],
) -> rusqlite::Result<ReturnedDomainRecord> {
    let mut shown = Map::new();
    for field in fields {
        let value = values.get(&field.name).cloned().unwrap_or(Value::Null);
        let to = field.to.as_deref().and_then(|to| domain.find_type(to));
        let value = match (field.kind, to, &value) {
            (RecordFieldKind::Link, Some(to), Value::String(id)) => link_with_label(connection, domain, to, id)?,
            (RecordFieldKind::Links, Some(to), Value::Array(ids)) => {
                let ids = ids.iter().filter_map(Value::as_str);
                Value::Array(ids.map(|id| link_with_label(connection, domain, to, id)).collect::<Result<_, _>>()?)
            }
            _ => value,
        };
        shown.insert(field.name.clone(), value);
    }
    Ok(ReturnedDomainRecord {
        kind: kind.name.clone(),
        id: id.to_owned(),
        label: load_label(connection, domain, kind, id)?,
        fields: shown,
    })
}

fn link_with_label(
    connection: &Connection,
    domain: &DomainSchema,
    to: &RecordType,
    id: &str,
) -> rusqlite::Result<Value> {
    Ok(json!({"id": id, "label": load_label(connection, domain, to, id)?}))
}
