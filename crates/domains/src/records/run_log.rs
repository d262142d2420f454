//! Which runs were carried out: a run that comes again, because a process died before it could say so, is recognised.

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::BodyId;
use segue_core::ids::{SessionId, ToolRunId};
use segue_core::signal::json::canonical_json;
use segue_engine::tools::ToolRequest;
use serde_json::Value;

use crate::limits::RUNS_KEPT_MAX;

/// A run, told from all others: a session's name may be used again, and a copy of a session goes its own way.
#[derive(Debug, Clone)]
pub(super) struct RunKey {
    session: SessionId,
    session_opened_at: u64,
    run: ToolRunId,
    arguments_digest: String,
}

pub(super) fn create_run_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS segue_run (
            session TEXT NOT NULL, since INTEGER NOT NULL, run INTEGER NOT NULL, asked TEXT NOT NULL,
            result TEXT NOT NULL, PRIMARY KEY (session, since, run, asked))",
    )
}

impl RunKey {
    pub fn from_request(request: &ToolRequest, arguments: &Value) -> Self {
        Self {
            session: request.session.clone(),
            session_opened_at: request.session_opened_at.0,
            run: request.opened.run,
            arguments_digest: digest_arguments(arguments),
        }
    }

    /// Another run of the same session.
    pub fn for_other_run(&self, number: ToolRunId, arguments: &Value) -> Self {
        Self { run: number, arguments_digest: digest_arguments(arguments), ..self.clone() }
    }

    /// What it came to, if it was carried out.
    pub fn load_result(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT result FROM segue_run WHERE session = ? AND since = ? AND run = ? AND asked = ?";
        let key =
            params![self.session.as_str(), self.session_opened_at.cast_signed(), self.run.0, self.arguments_digest];
        connection.query_row(sql, key, |row| row.get(0)).optional()
    }

    /// Notes what it came to, in the same transaction.
    pub fn save_result(&self, connection: &Connection, result: &str) -> rusqlite::Result<()> {
        let sql = "INSERT INTO segue_run (session, since, run, asked, result) VALUES (?, ?, ?, ?, ?)";
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

    /// The id of the record that this run makes in a place: the same run makes the same one.
    pub fn record_id(&self, index: usize) -> String {
        uuid_from_text(&format!("{}|{}|{}|{index}", self.session, self.session_opened_at, self.run))
    }
}

fn digest_arguments(arguments: &Value) -> String {
    BodyId::hash_text(&canonical_json(arguments)).to_string()
}

/// An id in the form of a UUID, made from a text.
pub(super) fn uuid_from_text(text: &str) -> String {
    let bytes = BodyId::hash_text(text).0;
    let hex: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // Version 8: made in a way of one's own.
    format!("{}-{}-8{}-9{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_form_of_a_uuid_and_follows_from_its_text() {
        let id = uuid_from_text("x");
        assert_eq!(id, uuid_from_text("x"));
        assert_ne!(id, uuid_from_text("y"));
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
    }
}
