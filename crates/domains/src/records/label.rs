//! What people call a record, and a record as it is reported: links with the names of what they lead to.

use rusqlite::{Connection, OptionalExtension};
use segue_flows::assistant::domain::{Domain, Field, Kind, RecordType};
use segue_flows::assistant::tools::Row;
use serde_json::{Map, Value, json};

use super::schema::{quoted, table};
use super::stored;
use crate::limits::LABEL_DEPTH_MAX;

/// What people call the record of an id; empty if it is not there or has no name.
pub(super) fn of(connection: &Connection, domain: &Domain, kind: &RecordType, id: &str) -> rusqlite::Result<String> {
    named(connection, domain, kind, id, LABEL_DEPTH_MAX)
}

fn named(
    connection: &Connection,
    domain: &Domain,
    kind: &RecordType,
    id: &str,
    depth: u32,
) -> rusqlite::Result<String> {
    let Some(field) = kind.field(&kind.label) else { return Ok(String::new()) };
    let sql = format!("SELECT {} FROM {} WHERE id = ?", quoted(&field.name), quoted(&table(domain, kind)));
    let value = connection.prepare_cached(&sql)?.query_row([id], |row| stored::value(row, 0, field)).optional()?;
    match (value, field.to.as_deref().and_then(|to| domain.find(to))) {
        (Some(Value::String(to)), Some(kind)) if depth > 0 => named(connection, domain, kind, &to, depth - 1),
        (Some(Value::String(text)), None) => Ok(text),
        (Some(value), None) if !value.is_null() => Ok(value.to_string()),
        _ => Ok(String::new()),
    }
}

/// A stored record as it is reported, with these of its fields.
pub(super) fn row(
    connection: &Connection,
    domain: &Domain,
    kind: &RecordType,
    id: &str,
    values: &Map<String, Value>,
    fields: &[&Field],
) -> rusqlite::Result<Row> {
    let mut shown = Map::new();
    for field in fields {
        let value = values.get(&field.name).cloned().unwrap_or(Value::Null);
        let to = field.to.as_deref().and_then(|to| domain.find(to));
        let value = match (field.kind, to, &value) {
            (Kind::Link, Some(to), Value::String(id)) => link(connection, domain, to, id)?,
            (Kind::Links, Some(to), Value::Array(ids)) => {
                let ids = ids.iter().filter_map(Value::as_str);
                Value::Array(ids.map(|id| link(connection, domain, to, id)).collect::<Result<_, _>>()?)
            }
            _ => value,
        };
        shown.insert(field.name.clone(), value);
    }
    Ok(Row { kind: kind.name.clone(), id: id.to_owned(), label: of(connection, domain, kind, id)?, fields: shown })
}

fn link(connection: &Connection, domain: &Domain, to: &RecordType, id: &str) -> rusqlite::Result<Value> {
    Ok(json!({"id": id, "label": of(connection, domain, to, id)?}))
}
