//! Write transactions on one session: create, acquire, release, append, and save a snapshot.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use super::body_index::StoreConnection;
use super::encoding;
use super::process_lock::ProcessLivenessLock;
use super::sqlite_error::TransactionError;
use crate::limits::JOURNAL_ROW_BYTES_MAX;
use crate::{Error, JournalCommit, JournalRecord, Lease, Snapshot, TakeoverPolicy};

/// Writes the file's format number again, which changes nothing but needs everything that a commit needs.
pub(super) fn rewrite_format_number(db: &Connection) -> Result<(), TransactionError> {
    let format: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(db.pragma_update(None, "user_version", format)?)
}

/// A session's row.
pub(super) struct SqliteSessionRow {
    pub(super) key: i64,
    pub(super) epoch: LeaseEpoch,
    pub(super) head: Seq,
    pub(super) holder: Option<String>,
}

/// A commit, encoded in the caller's thread.
pub(super) struct EncodedCommit {
    session: SessionId,
    epoch: LeaseEpoch,
    expected_head: Seq,
    head: Seq,
    rows: Vec<EncodedJournalRow>,
    bodies: Vec<EncodedBody>,
    summary: Option<Vec<u8>>,
}

/// The encoded records of one row.
struct EncodedJournalRow {
    first: Seq,
    data: Vec<u8>,
}

struct EncodedBody {
    id: BodyId,
    packed: Vec<u8>,
    is_visible: bool,
    /// The index of the journal row it is stored with.
    row: usize,
}

impl EncodedCommit {
    pub(super) fn from_commit(commit: &JournalCommit) -> Self {
        let rows = split_into_rows(&commit.records);
        let mut first_row_of_body: BTreeMap<BodyId, usize> = BTreeMap::new();
        // Usually there is only one row, and nothing has to be looked up.
        for (index, records) in rows.iter().enumerate().filter(|_| rows.len() > 1) {
            records.iter().flat_map(commit.extract_body_ids).for_each(|body| {
                first_row_of_body.entry(body).or_insert(index);
            });
        }
        let last_row = rows.len().saturating_sub(1);
        let encode_body = |body: &TextToStore| EncodedBody {
            id: body.id,
            packed: encoding::compress_text(&body.text),
            is_visible: body.kind == BodyVisibility::Conversation,
            row: first_row_of_body.get(&body.id).copied().unwrap_or(last_row),
        };
        let encode_row = |records: &&[JournalRecord]| {
            let first = records.first().map_or(commit.expected_head.next(), |record| record.seq);
            EncodedJournalRow { first, data: encoding::seal_records(&commit.session, first, records) }
        };
        Self {
            session: commit.session.clone(),
            epoch: commit.epoch,
            expected_head: commit.expected_head,
            head: commit.new_head(),
            rows: rows.iter().map(encode_row).collect(),
            bodies: commit.bodies.iter().map(encode_body).collect(),
            summary: commit.summary.as_ref().map(|summary| encoding::seal_summary(&commit.session, summary)),
        }
    }

    /// Returns about how many bytes the commit writes.
    pub(super) fn byte_len(&self) -> usize {
        let records: usize = self.rows.iter().map(|row| row.data.len()).sum();
        records + self.bodies.iter().map(|body| body.packed.len()).sum::<usize>()
    }
}

/// Splits the records of a commit into rows.
fn split_into_rows(records: &[JournalRecord]) -> Vec<&[JournalRecord]> {
    let mut rows = Vec::with_capacity(1);
    let (mut row_start, mut bytes) = (0, 0);
    for (index, record) in records.iter().enumerate() {
        bytes += record.bytes.len();
        if bytes > JOURNAL_ROW_BYTES_MAX && index > row_start {
            rows.push(&records[row_start..index]);
            (row_start, bytes) = (index, record.bytes.len());
        }
    }
    rows.push(&records[row_start..]);
    rows
}

/// Returns the row of a session that must exist.
pub(super) fn load_session_row(db: &Connection, session: &SessionId) -> Result<SqliteSessionRow, TransactionError> {
    find_session_row(db, session)?
        .ok_or_else(|| TransactionError::Rejected(Error::NoSuchSession { session: session.clone() }))
}

fn find_session_row(db: &Connection, session: &SessionId) -> Result<Option<SqliteSessionRow>, rusqlite::Error> {
    let mut query = db.prepare_cached("SELECT key, epoch, head, holder FROM sessions WHERE name = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        let (key, epoch, head, holder) = (row.get(0)?, LeaseEpoch(row.get(1)?), Seq(row.get(2)?), row.get(3)?);
        Ok(SqliteSessionRow { key, epoch, head, holder })
    };
    query.query_row([session.as_str()], read).optional()
}

/// Refuses if a live process other than this one holds the session.
pub(super) fn ensure_not_held(
    session_row: &SqliteSessionRow,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<(), TransactionError> {
    let Some(holder) = &session_row.holder else { return Ok(()) };
    let what = || format!("checking whether the holder of session `{session}` is alive");
    match node.is_held_by_live_other(holder) {
        Ok(false) => Ok(()),
        Ok(true) => {
            Err(TransactionError::Rejected(Error::HeldByOtherProcess { session: session.clone(), by: holder.clone() }))
        }
        Err(error) => Err(TransactionError::Rejected(Error::Io { what: what(), detail: error.to_string() })),
    }
}

/// Removes a session without records that no process holds, so that its name can be used.
pub(super) fn remove_empty_session(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<(), TransactionError> {
    let Some(old_row) = find_session_row(db, session)? else { return Ok(()) };
    if old_row.head > Seq(0) || ensure_not_held(&old_row, session, node).is_err() {
        return Err(TransactionError::Rejected(Error::SessionExists { session: session.clone() }));
    }
    // The key may be reused, and nothing of the old session may remain.
    db.execute("DELETE FROM snapshots WHERE session = ?1", [old_row.key])?;
    db.execute("DELETE FROM sessions WHERE key = ?1", [old_row.key])?;
    Ok(())
}

pub(super) fn create_session(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<Lease, TransactionError> {
    remove_empty_session(db, session, node)?;
    let epoch = next_epoch(db)?;
    db.prepare_cached("INSERT INTO sessions (name, epoch, head, holder) VALUES (?1, ?2, 0, ?3)")?.execute(params![
        session.as_str(),
        epoch.0,
        node.name()
    ])?;
    Ok(Lease { epoch, head: Seq(0) })
}

pub(super) fn acquire_lease(
    db: &Connection,
    session: &SessionId,
    takeover: TakeoverPolicy,
    node: &ProcessLivenessLock,
) -> Result<Lease, TransactionError> {
    let session_row = load_session_row(db, session)?;
    if takeover == TakeoverPolicy::IfHolderDead {
        ensure_not_held(&session_row, session, node)?;
    }
    let epoch = set_holder(db, session_row.key, Some(node.name()))?;
    if let Some(holder) = session_row.holder.as_deref().filter(|holder| *holder != node.name()) {
        // The transaction may still fail; then the caller gets its error.
        tracing::info!(%session, epoch = epoch.0, holder, ?takeover, "taking over the lease of another process");
    }
    Ok(Lease { epoch, head: session_row.head })
}

pub(super) fn release_lease(db: &Connection, session: &SessionId, epoch: LeaseEpoch) -> Result<(), TransactionError> {
    let session_row = load_session_row(db, session)?;
    ensure_not_fenced(&session_row, session, epoch)?;
    set_holder(db, session_row.key, None)?;
    Ok(())
}

pub(super) fn append_commit(db: &StoreConnection, commit: &EncodedCommit) -> Result<Seq, TransactionError> {
    let session = load_session_row(db, &commit.session)?;
    ensure_not_fenced(&session, &commit.session, commit.epoch)?;
    if session.head != commit.expected_head {
        let (session, expected, head) = (commit.session.clone(), commit.expected_head, session.head);
        return Err(TransactionError::Rejected(Error::Conflict { session, expected, head }));
    }
    let mut body_refs = vec![Vec::new(); commit.rows.len()];
    for body in &commit.bodies {
        let (body_row, is_new) = insert_or_share_body(db, session.key, body)?;
        // A body that becomes visible is listed again: it may have been internal before.
        if is_new || body.is_visible {
            body_refs[body.row].push((body_row, body.is_visible));
        }
    }
    for (row, body_refs) in commit.rows.iter().zip(body_refs) {
        insert_journal_row(db, session.key, row.first, &body_refs, &row.data)?;
    }
    match &commit.summary {
        Some(summary) => db
            .prepare_cached("UPDATE sessions SET head = ?2, summary = ?3 WHERE key = ?1")?
            .execute(params![session.key, commit.head.0, summary])?,
        None => db
            .prepare_cached("UPDATE sessions SET head = ?2 WHERE key = ?1")?
            .execute(params![session.key, commit.head.0])?,
    };
    Ok(commit.head)
}

/// Inserts a row into the journal, with references to the bodies that came with it.
pub(super) fn insert_journal_row(
    db: &Connection,
    session: i64,
    first: Seq,
    body_refs: &[(i64, bool)],
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
) -> Result<(), TransactionError> {
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

/// Returns an epoch that no lease ever had.
pub(super) fn next_epoch(db: &Connection) -> Result<LeaseEpoch, rusqlite::Error> {
    let next = db.prepare_cached("SELECT epoch + 1 FROM store")?.query_row([], |row| row.get(0))?;
    db.prepare_cached("UPDATE store SET epoch = ?1")?.execute([next])?;
    Ok(LeaseEpoch(next))
}

/// Returns the address of a body: the first eight bytes of its id.
pub(super) fn body_address_prefix(id: BodyId) -> i64 {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&id.0[..8]);
    i64::from_be_bytes(prefix)
}

fn set_holder(db: &Connection, key: i64, holder: Option<&str>) -> Result<LeaseEpoch, rusqlite::Error> {
    let epoch = next_epoch(db)?;
    db.prepare_cached("UPDATE sessions SET epoch = ?2, holder = ?3 WHERE key = ?1")?
        .execute(params![key, epoch.0, holder])?;
    Ok(epoch)
}

fn ensure_not_fenced(
    session_row: &SqliteSessionRow,
    session: &SessionId,
    epoch: LeaseEpoch,
) -> Result<(), TransactionError> {
    if session_row.epoch == epoch {
        return Ok(());
    }
    tracing::warn!(%session, epoch = epoch.0, current_epoch = session_row.epoch.0, "write fenced: the lease is lost");
    Err(TransactionError::Rejected(Error::Fenced { session: session.clone(), epoch, current: session_row.epoch }))
}

/// Inserts a body, or shares it if it is stored already. Returns its row, and whether the session did not use it
/// before.
fn insert_or_share_body(
    db: &StoreConnection,
    session: i64,
    body: &EncodedBody,
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
    db.add_address(address, body_row);
    Ok((body_row, true))
}
