//! Write transactions on journals: appending commits, and saving snapshots.

use rusqlite::{Connection, params};
use segue_core::body::{BodyId, BodyVisibility};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use super::body_index::SqliteStoreConnection;
use super::deliveries::EncodedInboxAndChildWrites;
use super::process_lock::ProcessLivenessLock;
use super::session_row::{NEWEST_CHANGE, SqliteEncodedSessionSummary, SqliteSessionRow, load_session_row};
use super::sqlite_error::SqliteTransactionError;
use crate::encoding::{self, JournalRowBodyRef};
use crate::{CommittedTextBody, Error, JournalCommit, JournalRecord, Snapshot, StoreClock};

/// Writes the file's format number again, which changes nothing but needs everything that a commit needs.
pub(super) fn rewrite_format_number(db: &Connection) -> Result<(), SqliteTransactionError> {
    let format: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(db.pragma_update(None, "user_version", format)?)
}

/// A commit, encoded in the caller's thread.
pub(super) struct SqliteEncodedCommit {
    session: SessionId,
    epoch: LeaseEpoch,
    expected_head: Seq,
    head: Seq,
    journal: SqliteEncodedJournalAndBodies,
    summary: Option<SqliteEncodedSessionSummary>,
    /// Most commits have none.
    deliveries: Option<Box<EncodedInboxAndChildWrites>>,
    shows_progress: bool,
}

/// Encoded records and the bodies that come with them.
pub(super) struct SqliteEncodedJournalAndBodies {
    rows: Vec<SqliteEncodedJournalRow>,
    bodies: Vec<SqliteEncodedTextBody>,
}

/// The encoded records of one row.
struct SqliteEncodedJournalRow {
    first: Seq,
    data: Vec<u8>,
}

struct SqliteEncodedTextBody {
    id: BodyId,
    packed: Vec<u8>,
    is_visible: bool,
    /// The index of the journal row it is stored with.
    row: usize,
    record_offset: u64,
}

impl SqliteEncodedCommit {
    pub(super) fn from_commit(commit: &JournalCommit) -> Self {
        Self {
            session: commit.session.clone(),
            epoch: commit.epoch,
            expected_head: commit.expected_head,
            head: commit.new_head(),
            journal: SqliteEncodedJournalAndBodies::new(&commit.session, &commit.records, &commit.bodies),
            summary: commit.summary.as_ref().map(|summary| SqliteEncodedSessionSummary::new(&commit.session, summary)),
            deliveries: EncodedInboxAndChildWrites::from_commit(commit).map(Box::new),
            shows_progress: commit.shows_progress,
        }
    }

    /// Returns about how many bytes the commit writes.
    pub(super) fn byte_len(&self) -> usize {
        self.journal.byte_len() + self.deliveries.as_ref().map_or(0, |deliveries| deliveries.byte_len())
    }
}

impl SqliteEncodedJournalAndBodies {
    pub(super) fn new(session: &SessionId, records: &[JournalRecord], bodies: &[CommittedTextBody]) -> Self {
        let encode_row = |records: &[JournalRecord]| {
            let first = records.first().map_or(Seq(1), |record| record.seq);
            SqliteEncodedJournalRow { first, data: encoding::seal_records(session, first, records) }
        };
        let rows: Vec<SqliteEncodedJournalRow> =
            encoding::split_into_rows(records).into_iter().map(encode_row).collect();
        let encode_body = |body: &CommittedTextBody| {
            let row = rows.partition_point(|row| row.first <= body.first_used_by).saturating_sub(1);
            SqliteEncodedTextBody {
                id: body.text.id,
                packed: encoding::compress_text(&body.text.text),
                is_visible: body.text.kind == BodyVisibility::Conversation,
                row,
                record_offset: body.first_used_by.0 - rows[row].first.0,
            }
        };
        let bodies = bodies.iter().map(encode_body).collect();
        Self { rows, bodies }
    }

    pub(super) fn byte_len(&self) -> usize {
        let records: usize = self.rows.iter().map(|row| row.data.len()).sum();
        records + self.bodies.iter().map(|body| body.packed.len()).sum::<usize>()
    }

    /// Writes the rows and bodies of a session.
    pub(super) fn insert(&self, db: &SqliteStoreConnection, session: i64) -> Result<(), rusqlite::Error> {
        let mut body_refs = vec![Vec::new(); self.rows.len()];
        for body in &self.bodies {
            let (body_row, is_new) = insert_or_share_body(db, session, body)?;
            // A body that becomes visible is listed again: it may have been internal before.
            if is_new || body.is_visible {
                let (is_visible, record_offset) = (body.is_visible, body.record_offset);
                body_refs[body.row].push(JournalRowBodyRef { body: body_row, is_visible, record_offset });
            }
        }
        for (row, body_refs) in self.rows.iter().zip(body_refs) {
            insert_journal_row(db, session, row.first, &body_refs, &row.data)?;
        }
        Ok(())
    }
}

/// Writes a commit. Everything that can be rejected is checked before the first write, because commits of other sessions
/// share the transaction.
pub(super) fn append_commit(
    db: &SqliteStoreConnection,
    commit: &SqliteEncodedCommit,
    node: &ProcessLivenessLock,
    clock: &StoreClock,
) -> Result<Seq, SqliteTransactionError> {
    let session = load_session_row(db, &commit.session)?;
    session.ensure_not_fenced(&commit.session, commit.epoch)?;
    if session.head != commit.expected_head {
        let (session, expected, head) = (commit.session.clone(), commit.expected_head, session.head);
        return Err(SqliteTransactionError::Rejected(Error::Conflict { session, expected, head }));
    }
    let checked_deliveries = match &commit.deliveries {
        Some(deliveries) => Some(deliveries.check(db, &commit.session, &session, node)?),
        None => None,
    };
    commit.journal.insert(db, session.key)?;
    update_head_and_summary(db, &session, commit)?;
    if commit.shows_progress && session.takeovers > 0 {
        db.prepare_cached("UPDATE sessions SET takeovers = 0 WHERE key = ?1")?.execute([session.key])?;
    }
    if let Some(checked) = checked_deliveries {
        checked.write(db, &commit.session, &session, clock.now())?;
    }
    Ok(commit.head)
}

/// Changes no indexed column that keeps its value.
fn update_head_and_summary(
    db: &Connection,
    session: &SqliteSessionRow,
    commit: &SqliteEncodedCommit,
) -> Result<(), rusqlite::Error> {
    let head = commit.head.0;
    match &commit.summary {
        None => db.prepare_cached("UPDATE sessions SET head = ?2 WHERE key = ?1")?.execute(params![session.key, head])?,
        Some(summary) if session.is_being_deleted => db
            .prepare_cached("UPDATE sessions SET head = ?2, summary = ?3 WHERE key = ?1")?
            .execute(params![session.key, head, summary.sealed])?,
        Some(summary) if summary.due_at == session.due_at => db
            .prepare_cached(&format!(
                "UPDATE sessions SET head = ?2, summary = ?3, updated_at = ?4, change = {NEWEST_CHANGE} + 1
                 WHERE key = ?1"
            ))?
            .execute(params![session.key, head, summary.sealed, summary.updated_at])?,
        Some(summary) => db
            .prepare_cached(&format!(
                "UPDATE sessions SET head = ?2, summary = ?3, updated_at = ?4, change = {NEWEST_CHANGE} + 1, due_at = ?5,
                 wake_at = CASE WHEN inbox_entries > 0 THEN 0 ELSE ?5 END WHERE key = ?1"
            ))?
            .execute(params![session.key, head, summary.sealed, summary.updated_at, summary.due_at])?,
    };
    Ok(())
}

/// Inserts a row into the journal, with references to the bodies that came with it.
pub(super) fn insert_journal_row(
    db: &Connection,
    session: i64,
    first: Seq,
    body_refs: &[JournalRowBodyRef],
    data: &[u8],
) -> Result<(), rusqlite::Error> {
    let body_refs = (!body_refs.is_empty()).then(|| encoding::encode_body_refs(body_refs));
    db.prepare_cached("INSERT INTO journal (session, first, bodies, data) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![session, first.0, body_refs, data])?;
    Ok(())
}

/// Saves the snapshot, unless a newer one is stored. `sealed` is its encoded form.
pub(super) fn save_snapshot(
    db: &Connection,
    session: &SessionId,
    snapshot: &Snapshot,
    sealed: &[u8],
) -> Result<(), SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    if snapshot.seq <= session_row.head {
        db.prepare_cached(
            "INSERT INTO snapshots VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
             SET seq = excluded.seq, format = excluded.format, data = excluded.data WHERE excluded.seq >= seq",
        )?
        .execute(params![session_row.key, snapshot.seq.0, snapshot.format, sealed])?;
    }
    Ok(())
}

/// Returns the address of a body: the first eight bytes of its id.
pub(super) fn body_address_prefix(id: BodyId) -> i64 {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&id.0[..8]);
    i64::from_be_bytes(prefix)
}

/// Inserts a body, or shares it if it is stored already. Returns its row, and whether the session did not use it
/// before.
fn insert_or_share_body(
    db: &SqliteStoreConnection,
    session: i64,
    body: &SqliteEncodedTextBody,
) -> Result<(i64, bool), rusqlite::Error> {
    let address = body_address_prefix(body.id);
    for body_row in db.find_body_rows(address)? {
        let mut candidate = db.prepare_cached("SELECT owner, text FROM bodies WHERE id = ?1 AND address = ?2")?;
        let mut rows = candidate.query([body_row, address])?;
        let Some(row) = rows.next()? else { continue };
        let packed = row.get_ref(1)?.as_blob().unwrap_or_default();
        let is_same = packed == body.packed
            || encoding::decompress(packed).is_ok_and(|text| BodyId::hash_bytes(&text) == body.id);
        // If the stored text is corrupted, a second, intact copy is stored.
        if is_same {
            let owner: i64 = row.get(0)?;
            let is_new = owner != session
                && db
                    .prepare_cached("INSERT OR IGNORE INTO shares (session, body) VALUES (?1, ?2)")?
                    .execute(params![session, body_row])?
                    > 0;
            return Ok((body_row, is_new));
        }
    }
    db.prepare_cached("INSERT INTO bodies (owner, address, text) VALUES (?1, ?2, ?3)")?.execute(params![
        session,
        address,
        body.packed
    ])?;
    let body_row = db.last_insert_rowid();
    db.add_body_address(address, body_row);
    Ok((body_row, true))
}
