//! Finds the records that link to a record that will be deleted.

use rusqlite::Connection;
use segue_flows::assistant::domain::{DomainSchema, RecordField, RecordFieldKind, RecordType};

use super::schema::{link_table_name, quote_identifier, table_name};

/// Returns the ids of the records whose `field` links to `id`.
pub(super) fn find_ids_linking_to(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
    field: &RecordField,
    id: &str,
) -> rusqlite::Result<Vec<String>> {
    let sql = match field.kind {
        RecordFieldKind::Links => {
            format!(
                "SELECT from_id FROM {} WHERE to_id = ? ORDER BY rowid",
                quote_identifier(&link_table_name(domain, kind, field))
            )
        }
        _ => {
            format!(
                "SELECT id FROM {} WHERE {} = ? ORDER BY rowid",
                quote_identifier(&table_name(domain, kind)),
                quote_identifier(&field.name)
            )
        }
    };
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map([id], |row| row.get(0))?.collect()
}
