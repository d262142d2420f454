//! What leads to a record: found before the record is deleted.

use rusqlite::Connection;
use segue_flows::assistant::domain::{Domain, Field, Kind, RecordType};

use super::schema::{link_table, quoted, table};

/// The records whose `field` leads to an id.
pub(super) fn leading_to(
    connection: &Connection,
    domain: &Domain,
    kind: &RecordType,
    field: &Field,
    id: &str,
) -> rusqlite::Result<Vec<String>> {
    let sql = match field.kind {
        Kind::Links => {
            format!("SELECT from_id FROM {} WHERE to_id = ? ORDER BY rowid", quoted(&link_table(domain, kind, field)))
        }
        _ => {
            format!("SELECT id FROM {} WHERE {} = ? ORDER BY rowid", quoted(&table(domain, kind)), quoted(&field.name))
        }
    };
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map([id], |row| row.get(0))?.collect()
}
