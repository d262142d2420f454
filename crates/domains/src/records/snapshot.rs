//! Takes the snapshot of a domain: counts, the results of its queries, and the versions of types that a session has loaded.

use rusqlite::Connection;
use segue_core::body::BodyId;
use segue_flows::assistant::domain::{
    DomainSchema, DomainSnapshotParameters, RecordQuery, RecordType, TitledSnapshotQuery,
};
use segue_flows::assistant::tools::{
    DomainRecordsOverview, DomainSnapshotSection, DomainToolRequest, DomainToolResult,
};
use segue_flows::limits::READ_ROWS_MAX;
use serde_json::Value;

use super::RecordsError;
use super::query::execute_query;
use super::schema::{quote_identifier, table_name};

/// Executes a `snapshot`.
pub(super) fn take_snapshot(
    connection: &Connection,
    domain: &DomainSchema,
    request: &DomainToolRequest,
) -> Result<DomainToolResult, RecordsError> {
    let parameters: DomainSnapshotParameters = serde_json::from_value(Value::Object(request.parameters.clone()))
        .map_err(|why| RecordsError::refused(format!("invalid snapshot: {why}")))?;
    let mut snapshot = DomainRecordsOverview::default();
    for kind in &domain.types {
        let sql = format!("SELECT COUNT(*) FROM {}", quote_identifier(&table_name(domain, kind)));
        let count = connection.query_row(&sql, [], |row| row.get::<_, i64>(0))?;
        snapshot.counts.push((kind.name.clone(), count.cast_unsigned()));
    }
    for TitledSnapshotQuery { title, query } in parameters.queries {
        let found = execute_query(connection, domain, &query)?;
        snapshot.sections.push(DomainSnapshotSection {
            title,
            total: found.total.unwrap_or_default(),
            rows: found.rows,
        });
    }
    let mut result = DomainToolResult { snapshot: Some(snapshot), ..DomainToolResult::default() };
    for kind in parameters.versions_of.iter().filter_map(|name| domain.find_type(name)) {
        result.type_versions.extend(digest_type_records(connection, domain, kind)?);
    }
    Ok(result)
}

/// Returns the name of a type and a digest of all its records; `None` if they are too many to be read at once.
pub(super) fn digest_type_records(
    connection: &Connection,
    domain: &DomainSchema,
    kind: &RecordType,
) -> Result<Option<(String, String)>, RecordsError> {
    let (filters, sort, limit) = (Vec::new(), None, READ_ROWS_MAX);
    let query = RecordQuery { kind: kind.name.clone(), filters, sort, limit, full: true };
    let found = execute_query(connection, domain, &query)?;
    if found.total != u64::try_from(found.rows.len()).ok() {
        return Ok(None);
    }
    let rows = serde_json::to_string(&found.rows).unwrap_or_default();
    Ok(Some((kind.name.clone(), BodyId::hash_text(&rows).to_string())))
}
