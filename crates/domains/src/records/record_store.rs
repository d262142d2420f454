//! A record as it is stored: every field of its type, links as ids. What a change says of before and after is this.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use segue_flows::assistant::domain::{DomainSchema, FieldKind, RecordField, RecordType};
use serde_json::{Map, Value};

use super::schema::{column_fields, link_table_name, quote_identifier, table_name};

/// A value on its way into a column.
pub(super) struct SqlValue<'v>(pub &'v Value);

impl ToSql for SqlValue<'_> {
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

/// A record's fields, if it is there.
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
                .map(|(place, field)| Ok((field.name.clone(), column_value(row, place, field)?)))
                .collect()
        })
        .optional()?;
    let Some(mut values): Option<Map<String, Value>> = found else { return Ok(None) };
    for field in kind.fields.iter().filter(|field| field.kind == FieldKind::Links) {
        let ids = load_linked_ids(connection, domain, kind, field, id)?;
        values.insert(field.name.clone(), Value::Array(ids.into_iter().map(Value::String).collect()));
    }
    Ok(Some(values))
}

/// The value of a column, as its field has it. What another program put there and does not fit is taken for what it says.
pub(super) fn column_value(row: &Row<'_>, column: usize, field: &RecordField) -> rusqlite::Result<Value> {
    Ok(match (field.kind, row.get_ref(column)?) {
        (_, ValueRef::Null) => Value::Null,
        (FieldKind::YesNo, ValueRef::Integer(number)) => Value::Bool(number != 0),
        (FieldKind::List, ValueRef::Text(text)) => parse_text_list(&String::from_utf8_lossy(text)),
        (_, ValueRef::Integer(number)) => Value::from(number),
        (_, ValueRef::Real(number)) => Value::from(number),
        (_, ValueRef::Text(text)) => Value::String(String::from_utf8_lossy(text).into_owned()),
        (_, ValueRef::Blob(_)) => Value::Null,
    })
}

/// The list that a text is: JSON, or the text itself as its only item.
pub(super) fn parse_text_list(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Array(items)) => Value::Array(items),
        _ if text.trim().is_empty() => Value::Array(Vec::new()),
        _ => Value::Array(vec![Value::String(text.to_owned())]),
    }
}

/// The ids that a field of several links holds, in the order they were put there.
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

/// Puts a record where there is none, or in the place of the one there is.
pub(super) fn upsert_record(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
    values: &Map<String, Value>,
) -> rusqlite::Result<()> {
    let fields: Vec<&RecordField> = column_fields(kind).collect();
    let names: String = fields.iter().map(|field| format!(", {}", quote_identifier(&field.name))).collect();
    let places = ", ?".repeat(fields.len());
    let sets: Vec<String> =
        fields.iter().map(|field| format!("{0} = excluded.{0}", quote_identifier(&field.name))).collect();
    let then = if sets.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", sets.join(", ")) };
    let sql = format!(
        "INSERT INTO {} (id{names}) VALUES (?{places}) ON CONFLICT (id) DO {then}",
        quote_identifier(&table_name(domain, kind))
    );
    let stored: Vec<SqlValue<'_>> =
        fields.iter().map(|field| SqlValue(values.get(&field.name).unwrap_or(&Value::Null))).collect();
    let mut bound: Vec<&dyn ToSql> = vec![&id];
    bound.extend(stored.iter().map(|value| value as &dyn ToSql));
    connection.prepare_cached(&sql)?.execute(bound.as_slice())?;
    for field in kind.fields.iter().filter(|field| field.kind == FieldKind::Links) {
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

/// Takes a record away.
pub(super) fn delete_record(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<()> {
    let sql = format!("DELETE FROM {} WHERE id = ?", quote_identifier(&table_name(domain, kind)));
    connection.prepare_cached(&sql)?.execute([id])?;
    for field in kind.fields.iter().filter(|field| field.kind == FieldKind::Links) {
        let sql = format!("DELETE FROM {} WHERE from_id = ?", quote_identifier(&link_table_name(domain, kind, field)));
        connection.prepare_cached(&sql)?.execute([id])?;
    }
    Ok(())
}

/// Whether a record is there.
pub(super) fn record_exists(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    id: &str,
) -> rusqlite::Result<bool> {
    let sql = format!("SELECT 1 FROM {} WHERE id = ?", quote_identifier(&table_name(domain, kind)));
    connection.prepare_cached(&sql)?.exists([id])
}
