//! The log of executed runs. A run that is repeated after a crash is recognized and not executed again.

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::BodyId;
use segue_core::ids::{SessionId, ToolRunId};
use segue_core::signal::canonical_json;
use segue_engine::tools::ToolInvocation;
use serde_json::Value;

use crate::limits::RUNS_KEPT_MAX;

/// Identifies a run. The session's name is not enough: it may be reused, and a copy of a session has its own runs.
#[derive(Debug, Clone)]
pub(super) struct ToolRunKey {
    session: SessionId,
    session_opened_at: u64,
    run: ToolRunId,
    arguments_digest: String,
}

pub(super) fn create_run_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS segue_run (
            session TEXT NOT NULL, session_opened_at INTEGER NOT NULL, run INTEGER NOT NULL, arguments_digest TEXT NOT NULL,
            result TEXT NOT NULL, PRIMARY KEY (session, session_opened_at, run, arguments_digest))",
    )
}

impl ToolRunKey {
    pub(super) fn from_request(request: &ToolInvocation, arguments: &Value) -> Self {
        Self {
            session: request.session.clone(),
            session_opened_at: request.session_opened_at.0,
            run: request.opened.run,
            arguments_digest: digest_arguments(arguments),
        }
    }

    /// Returns the key of another run of the same session.
    pub(super) fn for_other_run(&self, run: ToolRunId, arguments: &Value) -> Self {
        Self { run, arguments_digest: digest_arguments(arguments), ..self.clone() }
    }

    /// Returns the result of the run, if it was executed.
    pub(super) fn load_result(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT result FROM segue_run WHERE session = ? AND session_opened_at = ? AND run = ? AND arguments_digest = ?";
        let key =
            params![self.session.as_str(), self.session_opened_at.cast_signed(), self.run.0, self.arguments_digest];
        connection.query_row(sql, key, |row| row.get(0)).optional()
    }

    /// Stores the result of the run, in the transaction that writes.
    pub(super) fn save_result(&self, connection: &Connection, result: &str) -> rusqlite::Result<()> {
        let sql =
            "INSERT INTO segue_run (session, session_opened_at, run, arguments_digest, result) VALUES (?, ?, ?, ?, ?)";
        let row = params![
            self.session.as_str(),
            self.session_opened_at.cast_signed(),
            self.run.0,
            self.arguments_digest,
            result
        ];
        connection.execute(sql, row)?;
        let sql = "DELETE FROM segue_run WHERE rowid <= (SELECT MAX(rowid) FROM segue_run) - ?";
        connection.execute(sql, [RUNS_KEPT_MAX]).map(|_| ())
    }

    /// Returns the id of the n-th record that this run creates. A repeated run gets the same ids.
    pub(super) fn record_id(&self, index: usize) -> String {
        uuid_from_text(&format!("{}|{}|{}|{index}", self.session, self.session_opened_at, self.run))
    }
}

fn digest_arguments(arguments: &Value) -> String {
    BodyId::hash_text(&canonical_json(arguments)).to_string()
}

/// Returns a UUID derived from a text.
pub(super) fn uuid_from_text(text: &str) -> String {
    let bytes = BodyId::hash_text(text).0;
    let hex: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // Version 8: a custom scheme.
    format!("{}-{}-8{}-9{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_id_is_a_uuid_and_depends_only_on_its_text() {
        let id = uuid_from_text("x");
        assert_eq!(id, uuid_from_text("x"));
        assert_ne!(id, uuid_from_text("y"));
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
    }
}
