//! Creates the tables of a domain. Missing tables and columns are added, existing ones are left alone: a table may be older than
//! its declaration, or made by the user. Names come only from declarations, which allow nothing but letters, digits and `_`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};
use segue_core::ids::UnixMillis;
use segue_flows::assistant::calendar;
use segue_flows::assistant::domain::{
    DomainSchema, RecordField, RecordFieldKind, RecordType, RecordValidationMode, SAMPLE_KEY_FIELD, check_record,
};
use serde_json::Value;

use super::run_log::uuid_from_text;
use super::{RecordsError, record_store};

/// Returns the name of the table of a type.
pub(super) fn table_name(domain: &DomainSchema, kind: &RecordType) -> String {
    format!("{}_{}", domain.name, kind.name)
}

/// Returns the name of the table of a field of several links.
pub(super) fn link_table_name(domain: &DomainSchema, kind: &RecordType, field: &RecordField) -> String {
    format!("{}_{}__{}", domain.name, kind.name, field.name)
}

/// Quotes a name for SQL.
pub(super) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn column_type(kind: RecordFieldKind) -> &'static str {
    match kind {
        RecordFieldKind::Text
        | RecordFieldKind::Date
        | RecordFieldKind::List
        | RecordFieldKind::Link
        | RecordFieldKind::Links => "TEXT",
        RecordFieldKind::Integer | RecordFieldKind::YesNo => "INTEGER",
        RecordFieldKind::Number => "REAL",
    }
}

/// Returns the fields that are columns. Fields of several links have a table of their own.
pub(super) fn column_fields(kind: &RecordType) -> impl Iterator<Item = &RecordField> {
    kind.fields.iter().filter(|field| field.kind != RecordFieldKind::Links)
}

/// Creates missing tables and columns, and inserts the samples if the domain is new.
pub(super) fn create_domain_tables(
    connection: &Connection,
    domain: &DomainSchema,
    now: UnixMillis,
) -> Result<(), RecordsError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS segue_domain (name TEXT PRIMARY KEY NOT NULL);
         CREATE TABLE IF NOT EXISTS segue_table (name TEXT PRIMARY KEY NOT NULL, domain TEXT NOT NULL)",
    )?;
    for kind in &domain.types {
        let name = table_name(domain, kind);
        reserve_table_name(connection, &name, domain)?;
        create_type_table(connection, &name, kind)?;
        for field in kind.fields.iter().filter(|field| field.kind == RecordFieldKind::Links) {
            let name = link_table_name(domain, kind, field);
            reserve_table_name(connection, &name, domain)?;
            connection.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {} (from_id TEXT NOT NULL, to_id TEXT NOT NULL, PRIMARY KEY (from_id, to_id))",
                quote_identifier(&name)
            ))?;
        }
    }
    let sql = "INSERT OR IGNORE INTO segue_domain (name) VALUES (?)";
    let is_new = connection.execute(sql, [&domain.name])? == 1;
    if is_new { insert_samples(connection, domain, now) } else { Ok(()) }
}

/// Reserves a table name, so that two domains never share a table.
fn reserve_table_name(connection: &Connection, name: &str, domain: &DomainSchema) -> Result<(), RecordsError> {
    let sql = "INSERT OR IGNORE INTO segue_table (name, domain) VALUES (?, ?)";
    connection.execute(sql, [name, &domain.name])?;
    let sql = "SELECT domain FROM segue_table WHERE name = ?";
    let owner: Option<String> = connection.query_row(sql, [name], |row| row.get(0)).optional()?;
    match owner {
        Some(owner) if owner != domain.name => Err(RecordsError::refused(format!(
            "the table `{name}` belongs to the domain `{owner}`; rename the domain `{}` or its type",
            domain.name
        ))),
        _ => Ok(()),
    }
}

fn create_type_table(connection: &Connection, name: &str, kind: &RecordType) -> Result<(), RecordsError> {
    let columns_sql: Vec<String> = column_fields(kind)
        .map(|field| format!(", {} {}", quote_identifier(&field.name), column_type(field.kind)))
        .collect();
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (id TEXT PRIMARY KEY NOT NULL{})",
        quote_identifier(name),
        columns_sql.concat()
    );
    connection.execute_batch(&sql)?;
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
    let present: Vec<String> = statement.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if !present.iter().any(|column| column == "id") {
        return Err(RecordsError::refused(format!("the existing table `{name}` has no column `id`")));
    }
    for field in column_fields(kind).filter(|field| !present.contains(&field.name)) {
        let (name, column) = (quote_identifier(name), quote_identifier(&field.name));
        connection.execute_batch(&format!("ALTER TABLE {name} ADD COLUMN {column} {}", column_type(field.kind)))?;
    }
    Ok(())
}

fn insert_samples(connection: &Connection, domain: &DomainSchema, now: UnixMillis) -> Result<(), RecordsError> {
    let id = |kind: &str, index: usize| uuid_from_text(&format!("sample|{}|{kind}|{index}", domain.name));
    let mut keys: BTreeMap<(String, String), String> = BTreeMap::new();
    for (kind, samples) in &domain.samples {
        for (index, sample) in samples.iter().enumerate() {
            if let Some(key) = sample.get(SAMPLE_KEY_FIELD).and_then(Value::as_str) {
                keys.insert((kind.clone(), key.to_owned()), id(kind, index));
            }
        }
    }
    let today = calendar::days_since_epoch(now, 0);
    for kind in &domain.types {
        for (index, sample) in domain.samples.get(&kind.name).into_iter().flatten().enumerate() {
            let values =
                kind.resolve_sample_values(sample, |days| calendar::date_from_epoch_days(today.saturating_add(days)));
            let link = |field: &RecordField, key: &str| {
                let to = (field.to.clone().unwrap_or_default(), key.to_owned());
                keys.get(&to).cloned().ok_or_else(|| format!("there is no sample `{key}`"))
            };
            let values = check_record(kind, &values, RecordValidationMode::AllRequired, &link)
                .map_err(|wrong| RecordsError::refused(format!("a sample of `{}`: {}", kind.name, wrong.join(", "))))?;
            record_store::upsert_record(connection, domain, kind, &id(&kind.name, index), &values)?;
        }
    }
    Ok(())
}
