//! Loads and stores single records: every field of the type, with links as ids. Changes record this form before and after.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use segue_flows::assistant::domain::{DomainSchema, RecordField, RecordFieldKind, RecordType};
use serde_json::{Map, Value};

use super::schema::{column_fields, link_table_name, quote_identifier, table_name};

/// A JSON value as an SQL parameter.
pub(super) struct JsonSqlParameter<'v>(pub(super) &'v Value);

impl ToSql for JsonSqlParameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Bool(yes) => ToSqlOutput::from(i64::from(*yes)),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => ToSqlOutput::from(integer),
                None => ToSqlOutput::from(number.as_f64().unwrap_or(0.0)),
            },
            Value::String(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Array(_) | Value::Object(_) => ToSqlOutput::from(self.0.to_string()),
        })
    }
}

/// Returns the fields of a record, or `None` if it does not exist.
pub(super) fn load_record(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<Option<Map<String, Value>>> {
    let names: Vec<String> = column_fields(kind).map(|field| quote_identifier(&field.name)).collect();
    let list = if names.is_empty() { "id".to_owned() } else { names.join(", ") };
    let sql = format!("SELECT {list} FROM {} WHERE id = ?", quote_identifier(&table_name(domain, kind)));
    let found = connection
        .prepare_cached(&sql)?
        .query_row([id], |row| {
            column_fields(kind)
                .enumerate()
                .map(|(column, field)| Ok((field.name.clone(), column_value(row, column, field)?)))
                .collect()
        })
        .optional()?;
    let Some(mut values): Option<Map<String, Value>> = found else { return Ok(None) };
    for field in kind.fields.iter().filter(|field| field.kind == RecordFieldKind::Links) {
        let ids = load_linked_ids(connection, domain, kind, field, id)?;
        values.insert(field.name.clone(), Value::Array(ids.into_iter().map(Value::String).collect()));
    }
    Ok(Some(values))
}

/// Returns the value of a column. A value of another type, written by another program, is returned as it is.
pub(super) fn column_value(row: &Row<'_>, column: usize, field: &RecordField) -> rusqlite::Result<Value> {
    Ok(match (field.kind, row.get_ref(column)?) {
        (_, ValueRef::Null) => Value::Null,
        (RecordFieldKind::YesNo, ValueRef::Integer(number)) => Value::Bool(number != 0),
        (RecordFieldKind::List, ValueRef::Text(text)) => parse_text_list(&String::from_utf8_lossy(text)),
        (_, ValueRef::Integer(number)) => Value::from(number),
        (_, ValueRef::Real(number)) => Value::from(number),
        (_, ValueRef::Text(text)) => Value::String(String::from_utf8_lossy(text).into_owned()),
        (_, ValueRef::Blob(_)) => Value::Null,
    })
}

/// Parses a list from a column: a JSON array, or the text itself as the only item.
pub(super) fn parse_text_list(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Array(items)) => Value::Array(items),
        _ if text.trim().is_empty() => Value::Array(Vec::new()),
        _ => Value::Array(vec![Value::String(text.to_owned())]),
    }
}

/// Returns the ids in a field of several links, in the order they were added.
pub(super) fn load_linked_ids(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    field: &RecordField,
    id: &str,
) -> rusqlite::Result<Vec<String>> {
    let sql = format!(
        "SELECT to_id FROM {} WHERE from_id = ? ORDER BY rowid",
        quote_identifier(&link_table_name(domain, kind, field))
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map([id], |row| row.get(0))?.collect()
}

/// Inserts or replaces a record.
pub(super) fn upsert_record(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
    values: &Map<String, Value>,
) -> rusqlite::Result<()> {
    let fields: Vec<&RecordField> = column_fields(kind).collect();
    let names: String = fields.iter().map(|field| format!(", {}", quote_identifier(&field.name))).collect();
    let placeholders = ", ?".repeat(fields.len());
    let sets: Vec<String> =
        fields.iter().map(|field| format!("{0} = excluded.{0}", quote_identifier(&field.name))).collect();
    let on_conflict = if sets.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", sets.join(", ")) };
    let sql = format!(
        "INSERT INTO {} (id{names}) VALUES (?{placeholders}) ON CONFLICT (id) DO {on_conflict}",
        quote_identifier(&table_name(domain, kind))
    );
    let stored: Vec<JsonSqlParameter<'_>> =
        fields.iter().map(|field| JsonSqlParameter(values.get(&field.name).unwrap_or(&Value::Null))).collect();
    let mut bound: Vec<&dyn ToSql> = vec![&id];
    bound.extend(stored.iter().map(|value| value as &dyn ToSql));
    connection.prepare_cached(&sql)?.execute(bound.as_slice())?;
    for field in kind.fields.iter().filter(|field| field.kind == RecordFieldKind::Links) {
        let name = quote_identifier(&link_table_name(domain, kind, field));
        connection.prepare_cached(&format!("DELETE FROM {name} WHERE from_id = ?"))?.execute([id])?;
        let sql = format!("INSERT OR IGNORE INTO {name} (from_id, to_id) VALUES (?, ?)");
        let to = values.get(&field.name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for to in to {
            connection.prepare_cached(&sql)?.execute(params![id, to])?;
        }
    }
    Ok(())
}

/// Deletes a record.
pub(super) fn delete_record(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<()> {
    let sql = format!("DELETE FROM {} WHERE id = ?", quote_identifier(&table_name(domain, kind)));
    connection.prepare_cached(&sql)?.execute([id])?;
    for field in kind.fields.iter().filter(|field| field.kind == RecordFieldKind::Links) {
        let sql = format!("DELETE FROM {} WHERE from_id = ?", quote_identifier(&link_table_name(domain, kind, field)));
        connection.prepare_cached(&sql)?.execute([id])?;
    }
    Ok(())
}

/// Returns whether a record exists.
pub(super) fn record_exists(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<bool> {
    let sql = format!("SELECT 1 FROM {} WHERE id = ?", quote_identifier(&table_name(domain, kind)));
    connection.prepare_cached(&sql)?.exists([id])
}
