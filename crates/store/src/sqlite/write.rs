//! What is done inside a write transaction to one session: begin, claim, release, append, keep a snapshot.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::{BodyId, BodyKind, TextBody};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use super::body_index::StoreConnection;
use super::encoding;
use super::process_lock::ProcessLock;
use super::sqlite_error::TransactionError;
use crate::limits::JOURNAL_ROW_BYTES_MAX;
use crate::{Commit, Error, JournalRecord, Lease, Snapshot, TakeoverPolicy};

/// A session's row as the writer sees it.
pub(super) struct SessionTableRow {
    pub(super) key: i64,
    pub(super) epoch: LeaseEpoch,
    pub(super) head: Seq,
    pub(super) holder: Option<String>,
}

/// A commit, encoded by whoever brings it.
pub(super) struct EncodedCommit {
    session: SessionId,
    epoch: LeaseEpoch,
    expected_head: Seq,
    head: Seq,
    rows: Vec<EncodedJournalRow>,
    bodies: Vec<EncodedBody>,
    summary: Option<Vec<u8>>,
}

/// Records that lie together.
struct EncodedJournalRow {
    first: Seq,
    data: Vec<u8>,
}

struct EncodedBody {
    id: BodyId,
    packed: Vec<u8>,
    is_visible: bool,
    /// The row it came with.
    row: usize,
}

impl EncodedCommit {
    pub(super) fn from_commit(commit: &Commit) -> Self {
        let rows = split_into_rows(&commit.records);
        let mut named: BTreeMap<BodyId, usize> = BTreeMap::new();
        // As a rule there is one, and nothing has to be looked up.
        for (place, records) in rows.iter().enumerate().filter(|_| rows.len() > 1) {
            records.iter().flat_map(commit.extract_body_ids).for_each(|body| {
                named.entry(body).or_insert(place);
            });
        }
        let last = rows.len().saturating_sub(1);
        let prepare = |body: &TextBody| EncodedBody {
            id: body.id,
            packed: encoding::compress_text(&body.text),
            is_visible: body.kind == BodyKind::Conversation,
            row: named.get(&body.id).copied().unwrap_or(last),
        };
        let seal = |records: &&[JournalRecord]| {
            let first = records.first().map_or(commit.expected_head.next(), |record| record.seq);
            EncodedJournalRow { first, data: encoding::seal_records(&commit.session, first, records) }
        };
        Self {
            session: commit.session.clone(),
            epoch: commit.epoch,
            expected_head: commit.expected_head,
            head: commit.new_head(),
            rows: rows.iter().map(seal).collect(),
            bodies: commit.bodies.iter().map(prepare).collect(),
            summary: commit.summary.as_ref().map(|summary| encoding::seal_summary(&commit.session, summary)),
        }
    }

    /// About how much it writes.
    pub(super) fn byte_len(&self) -> usize {
        let records: usize = self.rows.iter().map(|row| row.data.len()).sum();
        records + self.bodies.iter().map(|body| body.packed.len()).sum::<usize>()
    }
}

/// Records in stretches that lie together.
fn split_into_rows(records: &[JournalRecord]) -> Vec<&[JournalRecord]> {
    let mut rows = Vec::with_capacity(1);
    let (mut begun, mut bytes) = (0, 0);
    for (place, record) in records.iter().enumerate() {
        bytes += record.bytes.len();
        if bytes > JOURNAL_ROW_BYTES_MAX && place > begun {
            rows.push(&records[begun..place]);
            (begun, bytes) = (place, record.bytes.len());
        }
    }
    rows.push(&records[begun..]);
    rows
}

/// The row of a session that must be there.
pub(super) fn load_session_row(db: &Connection, session: &SessionId) -> Result<SessionTableRow, TransactionError> {
    find_session_row(db, session)?
        .ok_or_else(|| TransactionError::Rejected(Error::NoSuchSession { session: session.clone() }))
}

fn find_session_row(db: &Connection, session: &SessionId) -> Result<Option<SessionTableRow>, rusqlite::Error> {
    let mut query = db.prepare_cached("SELECT key, epoch, head, holder FROM sessions WHERE name = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        let (key, epoch, head, holder) = (row.get(0)?, LeaseEpoch(row.get(1)?), Seq(row.get(2)?), row.get(3)?);
        Ok(SessionTableRow { key, epoch, head, holder })
    };
    query.query_row([session.as_str()], read).optional()
}

/// Refuses if a live process other than ours holds the session.
pub(super) fn ensure_not_held(
    standing: &SessionTableRow,
    session: &SessionId,
    node: &ProcessLock,
) -> Result<(), TransactionError> {
    let Some(holder) = &standing.holder else { return Ok(()) };
    let what = || format!("asking whether the holder of session `{session}` lives");
    match node.is_held_by_live_other(holder) {
        Ok(false) => Ok(()),
        Ok(true) => {
            Err(TransactionError::Rejected(Error::HeldByOtherProcess { session: session.clone(), by: holder.clone() }))
        }
        Err(error) => Err(TransactionError::Rejected(Error::Io { what: what(), detail: error.to_string() })),
    }
}

/// Makes way for a new session: an empty one nobody holds is as good as none.
pub(super) fn remove_empty_session(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLock,
) -> Result<(), TransactionError> {
    let Some(old) = find_session_row(db, session)? else { return Ok(()) };
    if old.head > Seq(0) || ensure_not_held(&old, session, node).is_err() {
        return Err(TransactionError::Rejected(Error::SessionExists { session: session.clone() }));
    }
    // The key may be given again, and nothing of the old session may come with it.
    db.execute("DELETE FROM snapshots WHERE session = ?1", [old.key])?;
    db.execute("DELETE FROM sessions WHERE key = ?1", [old.key])?;
    Ok(())
}

pub(super) fn create_session(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLock,
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
    node: &ProcessLock,
) -> Result<Lease, TransactionError> {
    let standing = load_session_row(db, session)?;
    if takeover == TakeoverPolicy::IfHolderDead {
        ensure_not_held(&standing, session, node)?;
    }
    let epoch = set_holder(db, standing.key, Some(node.name()))?;
    Ok(Lease { epoch, head: standing.head })
}

pub(super) fn release_lease(db: &Connection, session: &SessionId, epoch: LeaseEpoch) -> Result<(), TransactionError> {
    let standing = load_session_row(db, session)?;
    ensure_not_fenced(&standing, session, epoch)?;
    set_holder(db, standing.key, None)?;
    Ok(())
}

pub(super) fn append_commit(db: &StoreConnection, commit: &EncodedCommit) -> Result<Seq, TransactionError> {
    let session = load_session_row(db, &commit.session)?;
    ensure_not_fenced(&session, &commit.session, commit.epoch)?;
    if session.head != commit.expected_head {
        let (session, expected, head) = (commit.session.clone(), commit.expected_head, session.head);
        return Err(TransactionError::Rejected(Error::Conflict { session, expected, head }));
    }
    let mut brought = vec![Vec::new(); commit.rows.len()];
    for body in &commit.bodies {
        let (place, is_new) = insert_or_share_body(db, session.key, body)?;
        // Said again counts again: it may have been a private text before.
        if is_new || body.is_visible {
            brought[body.row].push((place, body.is_visible));
        }
    }
    for (row, brought) in commit.rows.iter().zip(brought) {
        insert_journal_row(db, session.key, row.first, &brought, &row.data)?;
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

/// Adds a row to the journal, with the texts that came with it.
pub(super) fn insert_journal_row(
    db: &Connection,
    session: i64,
    first: Seq,
    brought: &[(i64, bool)],
    data: &[u8],
) -> Result<(), rusqlite::Error> {
    let brought = (!brought.is_empty()).then(|| encoding::encode_body_refs(brought));
    db.prepare_cached("INSERT INTO journal (session, first, bodies, data) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![session, first.0, brought, data])?;
    Ok(())
}

/// Keeps the newest only; `sealed` is the snapshot's bytes as they lie on disk.
pub(super) fn save_snapshot(
    db: &Connection,
    session: &SessionId,
    snapshot: &Snapshot,
    sealed: &[u8],
) -> Result<(), TransactionError> {
    let standing = load_session_row(db, session)?;
    if snapshot.seq <= standing.head {
        db.prepare_cached(
            "INSERT INTO snapshots VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
             SET seq = excluded.seq, format = excluded.format, data = excluded.data WHERE excluded.seq >= seq",
        )?
        .execute(params![standing.key, snapshot.seq.0, snapshot.format, sealed])?;
    }
    Ok(())
}

/// An epoch no claim ever had.
pub(super) fn next_epoch(db: &Connection) -> Result<LeaseEpoch, rusqlite::Error> {
    let next = db.prepare_cached("SELECT epoch + 1 FROM store")?.query_row([], |row| row.get(0))?;
    db.prepare_cached("UPDATE store SET epoch = ?1")?.execute([next])?;
    Ok(LeaseEpoch(next))
}

/// How the index finds a body.
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
    standing: &SessionTableRow,
    session: &SessionId,
    epoch: LeaseEpoch,
) -> Result<(), TransactionError> {
    if standing.epoch == epoch {
        return Ok(());
    }
    Err(TransactionError::Rejected(Error::Fenced { session: session.clone(), epoch, current: standing.epoch }))
}

/// Where the body lies, and whether the session has only now come to use it.
fn insert_or_share_body(
    db: &StoreConnection,
    session: i64,
    body: &EncodedBody,
) -> Result<(i64, bool), rusqlite::Error> {
    let hash = body_address_prefix(body.id);
    for place in db.find_body_rows(hash)? {
        let mut candidate = db.prepare_cached("SELECT owner, text FROM bodies WHERE id = ?1 AND address = ?2")?;
        let mut rows = candidate.query([place, hash])?;
        let Some(row) = rows.next()? else { continue };
        let packed = row.get_ref(1)?.as_blob().unwrap_or_default();
        let same = packed == body.packed
            || encoding::decompress(packed).is_ok_and(|text| BodyId::hash_bytes(&text) == body.id);
        // A damaged text is no reason not to keep a whole one beside it.
        if same {
            let owner: i64 = row.get(0)?;
            let is_new = owner != session
                && db
                    .prepare_cached("INSERT OR IGNORE INTO shares (session, body) VALUES (?1, ?2)")?
                    .execute(params![session, place])?
                    > 0;
            return Ok((place, is_new));
        }
    }
    db.prepare_cached("INSERT INTO bodies (owner, address, text) VALUES (?1, ?2, ?3)")?.execute(params![
        session,
        hash,
        body.packed
    ])?;
    let place = db.last_insert_rowid();
    db.add_address(hash, place);
    Ok((place, true))
}
