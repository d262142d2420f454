//! Tables from a declaration. What is missing is made, what is there is left alone: a table may be older than its
//! declaration, and a person may have made it. Names come from declarations only, which admit nothing but letters, digits
//! and `_`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};
use segue_core::ids::Millis;
use segue_flows::assistant::calendar;
use segue_flows::assistant::domain::{Domain, Field, KEY, Kind, Need, RecordType, check_record};
use serde_json::Value;

use super::runs::id_of;
use super::{Refusal, stored};

/// The table of a type.
pub(super) fn table(domain: &Domain, kind: &RecordType) -> String {
    format!("{}_{}", domain.name, kind.name)
}

/// The table of a field of several links.
pub(super) fn link_table(domain: &Domain, kind: &RecordType, field: &Field) -> String {
    format!("{}_{}__{}", domain.name, kind.name, field.name)
}

/// A name as SQL takes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn column_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::Date | Kind::List | Kind::Link | Kind::Links => "TEXT",
        Kind::Integer | Kind::YesNo => "INTEGER",
        Kind::Number => "REAL",
    }
}

/// The fields that are columns; several links are a table of their own.
pub(super) fn columns(kind: &RecordType) -> impl Iterator<Item = &Field> {
    kind.fields.iter().filter(|field| field.kind != Kind::Links)
}

/// Makes what is missing, and puts the samples in if the domain is new.
pub(super) fn make(connection: &Connection, domain: &Domain, now: Millis) -> Result<(), Refusal> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS segue_domain (name TEXT PRIMARY KEY NOT NULL);
         CREATE TABLE IF NOT EXISTS segue_table (name TEXT PRIMARY KEY NOT NULL, domain TEXT NOT NULL)",
    )?;
    for kind in &domain.types {
        let name = table(domain, kind);
        claim(connection, &name, domain)?;
        make_table(connection, &name, kind)?;
        for field in kind.fields.iter().filter(|field| field.kind == Kind::Links) {
            let name = link_table(domain, kind, field);
            claim(connection, &name, domain)?;
            connection.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {} (from_id TEXT NOT NULL, to_id TEXT NOT NULL, PRIMARY KEY (from_id, to_id))",
                quoted(&name)
            ))?;
        }
    }
    let sql = "INSERT OR IGNORE INTO segue_domain (name) VALUES (?)";
    let is_new = connection.execute(sql, [&domain.name])? == 1;
    if is_new { put_samples(connection, domain, now) } else { Ok(()) }
}

/// Two domains whose tables would have the same name are not mixed up.
fn claim(connection: &Connection, name: &str, domain: &Domain) -> Result<(), Refusal> {
    let sql = "INSERT OR IGNORE INTO segue_table (name, domain) VALUES (?, ?)";
    connection.execute(sql, [name, &domain.name])?;
    let sql = "SELECT domain FROM segue_table WHERE name = ?";
    let owner: Option<String> = connection.query_row(sql, [name], |row| row.get(0)).optional()?;
    match owner {
        Some(owner) if owner != domain.name => Err(Refusal::because(format!(
            "the table `{name}` belongs to the domain `{owner}`; rename the domain `{}` or its type",
            domain.name
        ))),
        _ => Ok(()),
    }
}

fn make_table(connection: &Connection, name: &str, kind: &RecordType) -> Result<(), Refusal> {
    let columns_sql: Vec<String> =
        columns(kind).map(|field| format!(", {} {}", quoted(&field.name), column_type(field.kind))).collect();
    let sql =
        format!("CREATE TABLE IF NOT EXISTS {} (id TEXT PRIMARY KEY NOT NULL{})", quoted(name), columns_sql.concat());
    connection.execute_batch(&sql)?;
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
    let present: Vec<String> = statement.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if !present.iter().any(|column| column == "id") {
        return Err(Refusal::because(format!("the table `{name}` is there and has no column `id`")));
    }
    for field in columns(kind).filter(|field| !present.contains(&field.name)) {
        let (name, column) = (quoted(name), quoted(&field.name));
        connection.execute_batch(&format!("ALTER TABLE {name} ADD COLUMN {column} {}", column_type(field.kind)))?;
    }
    Ok(())
}

fn put_samples(connection: &Connection, domain: &Domain, now: Millis) -> Result<(), Refusal> {
    let id = |kind: &str, place: usize| id_of(&format!("sample|{}|{kind}|{place}", domain.name));
    let mut keys: BTreeMap<(String, String), String> = BTreeMap::new();
    for (kind, samples) in &domain.samples {
        for (place, sample) in samples.iter().enumerate() {
            if let Some(key) = sample.get(KEY).and_then(Value::as_str) {
                keys.insert((kind.clone(), key.to_owned()), id(kind, place));
            }
        }
    }
    let today = calendar::days(now, 0);
    for kind in &domain.types {
        for (place, sample) in domain.samples.get(&kind.name).into_iter().flatten().enumerate() {
            let values = kind.sample_values(sample, |days| calendar::date(today.saturating_add(days)));
            let link = |field: &Field, key: &str| {
                let to = (field.to.clone().unwrap_or_default(), key.to_owned());
                keys.get(&to).cloned().ok_or_else(|| format!("there is no sample `{key}`"))
            };
            let values = check_record(kind, &values, Need::All, &link)
                .map_err(|wrong| Refusal::because(format!("a sample of `{}`: {}", kind.name, wrong.join(", "))))?;
            stored::put(connection, domain, kind, &id(&kind.name, place), &values)?;
        }
    }
    Ok(())
}
