//! What is done inside a write transaction to one session: begin, claim, release, append, keep a snapshot.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::{Body, BodyId, BodyKind};
use segue_core::ids::{Epoch, Seq, SessionId};

use super::addresses::Db;
use super::fault::Trouble;
use super::node::Node;
use super::pack;
use crate::limits::ROW_BYTES_MAX;
use crate::{Claim, Commit, Error, Record, Snapshot, Takeover};

/// A session's row as the writer sees it.
pub(super) struct Standing {
    pub(super) key: i64,
    pub(super) epoch: Epoch,
    pub(super) head: Seq,
    pub(super) holder: Option<String>,
}

/// A commit, encoded by whoever brings it.
pub(super) struct Prepared {
    session: SessionId,
    epoch: Epoch,
    expected: Seq,
    head: Seq,
    rows: Vec<PreparedRow>,
    bodies: Vec<PreparedBody>,
    summary: Option<Vec<u8>>,
}

/// Records that lie together.
struct PreparedRow {
    first: Seq,
    data: Vec<u8>,
}

struct PreparedBody {
    id: BodyId,
    packed: Vec<u8>,
    said: bool,
    /// The row it came with.
    row: usize,
}

impl Prepared {
    pub(super) fn new(commit: &Commit) -> Self {
        let rows = rows(&commit.records);
        let mut named: BTreeMap<BodyId, usize> = BTreeMap::new();
        // As a rule there is one, and nothing has to be looked up.
        for (place, records) in rows.iter().enumerate().filter(|_| rows.len() > 1) {
            records.iter().flat_map(commit.names).for_each(|body| {
                named.entry(body).or_insert(place);
            });
        }
        let last = rows.len().saturating_sub(1);
        let prepare = |body: &Body| PreparedBody {
            id: body.id,
            packed: pack::pack_text(&body.text),
            said: body.kind == BodyKind::Said,
            row: named.get(&body.id).copied().unwrap_or(last),
        };
        let seal = |records: &&[Record]| {
            let first = records.first().map_or(commit.expected.next(), |record| record.seq);
            PreparedRow { first, data: pack::seal_records(&commit.session, first, records) }
        };
        Self {
            session: commit.session.clone(),
            epoch: commit.epoch,
            expected: commit.expected,
            head: commit.head_after(),
            rows: rows.iter().map(seal).collect(),
            bodies: commit.bodies.iter().map(prepare).collect(),
            summary: commit.summary.as_ref().map(|summary| pack::seal_summary(&commit.session, summary)),
        }
    }

    /// About how much it writes.
    pub(super) fn bytes(&self) -> usize {
        let records: usize = self.rows.iter().map(|row| row.data.len()).sum();
        records + self.bodies.iter().map(|body| body.packed.len()).sum::<usize>()
    }
}

/// Records in stretches that lie together.
fn rows(records: &[Record]) -> Vec<&[Record]> {
    let mut rows = Vec::with_capacity(1);
    let (mut begun, mut bytes) = (0, 0);
    for (place, record) in records.iter().enumerate() {
        bytes += record.bytes.len();
        if bytes > ROW_BYTES_MAX && place > begun {
            rows.push(&records[begun..place]);
            (begun, bytes) = (place, record.bytes.len());
        }
    }
    rows.push(&records[begun..]);
    rows
}

/// The row of a session that must be there.
pub(super) fn standing(db: &Connection, session: &SessionId) -> Result<Standing, Trouble> {
    find(db, session)?.ok_or_else(|| Trouble::Refused(Error::NoSuchSession { session: session.clone() }))
}

fn find(db: &Connection, session: &SessionId) -> Result<Option<Standing>, rusqlite::Error> {
    let mut query = db.prepare_cached("SELECT key, epoch, head, holder FROM sessions WHERE name = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        let (key, epoch, head, holder) = (row.get(0)?, Epoch(row.get(1)?), Seq(row.get(2)?), row.get(3)?);
        Ok(Standing { key, epoch, head, holder })
    };
    query.query_row([session.as_str()], read).optional()
}

/// Refuses if a live process other than ours holds the session.
pub(super) fn refuse_if_held(standing: &Standing, session: &SessionId, node: &Node) -> Result<(), Trouble> {
    let Some(holder) = &standing.holder else { return Ok(()) };
    let what = || format!("asking whether the holder of session `{session}` lives");
    match node.is_live_other(holder) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Trouble::Refused(Error::Held { session: session.clone(), by: holder.clone() })),
        Err(error) => Err(Trouble::Refused(Error::Io { what: what(), detail: error.to_string() })),
    }
}

/// Makes way for a new session: an empty one nobody holds is as good as none.
pub(super) fn clear_name(db: &Connection, session: &SessionId, node: &Node) -> Result<(), Trouble> {
    let Some(old) = find(db, session)? else { return Ok(()) };
    if old.head > Seq(0) || refuse_if_held(&old, session, node).is_err() {
        return Err(Trouble::Refused(Error::Exists { session: session.clone() }));
    }
    // The key may be given again, and nothing of the old session may come with it.
    db.execute("DELETE FROM snapshots WHERE session = ?1", [old.key])?;
    db.execute("DELETE FROM sessions WHERE key = ?1", [old.key])?;
    Ok(())
}

pub(super) fn create(db: &Connection, session: &SessionId, node: &Node) -> Result<Claim, Trouble> {
    clear_name(db, session, node)?;
    let epoch = next_epoch(db)?;
    db.prepare_cached("INSERT INTO sessions (name, epoch, head, holder) VALUES (?1, ?2, 0, ?3)")?.execute(params![
        session.as_str(),
        epoch.0,
        node.name()
    ])?;
    Ok(Claim { epoch, head: Seq(0) })
}

pub(super) fn claim(db: &Connection, session: &SessionId, takeover: Takeover, node: &Node) -> Result<Claim, Trouble> {
    let standing = standing(db, session)?;
    if takeover == Takeover::IfDead {
        refuse_if_held(&standing, session, node)?;
    }
    let epoch = reign(db, standing.key, Some(node.name()))?;
    Ok(Claim { epoch, head: standing.head })
}

pub(super) fn release(db: &Connection, session: &SessionId, epoch: Epoch) -> Result<(), Trouble> {
    let standing = standing(db, session)?;
    refuse_if_fenced(&standing, session, epoch)?;
    reign(db, standing.key, None)?;
    Ok(())
}

pub(super) fn append(db: &Db, commit: &Prepared) -> Result<Seq, Trouble> {
    let session = standing(db, &commit.session)?;
    refuse_if_fenced(&session, &commit.session, commit.epoch)?;
    if session.head != commit.expected {
        let (session, expected, head) = (commit.session.clone(), commit.expected, session.head);
        return Err(Trouble::Refused(Error::Conflict { session, expected, head }));
    }
    let mut brought = vec![Vec::new(); commit.rows.len()];
    for body in &commit.bodies {
        let (place, is_new) = keep_body(db, session.key, body)?;
        // Said again counts again: it may have been a private text before.
        if is_new || body.said {
            brought[body.row].push((place, body.said));
        }
    }
    for (row, brought) in commit.rows.iter().zip(brought) {
        keep_row(db, session.key, row.first, &brought, &row.data)?;
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
pub(super) fn keep_row(
    db: &Connection,
    session: i64,
    first: Seq,
    brought: &[(i64, bool)],
    data: &[u8],
) -> Result<(), rusqlite::Error> {
    let brought = (!brought.is_empty()).then(|| pack::put_bodies(brought));
    db.prepare_cached("INSERT INTO journal (session, first, bodies, data) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![session, first.0, brought, data])?;
    Ok(())
}

/// Keeps the newest only; `sealed` is the snapshot's bytes as they lie on disk.
pub(super) fn keep_snapshot(
    db: &Connection,
    session: &SessionId,
    snapshot: &Snapshot,
    sealed: &[u8],
) -> Result<(), Trouble> {
    let standing = standing(db, session)?;
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
pub(super) fn next_epoch(db: &Connection) -> Result<Epoch, rusqlite::Error> {
    let next = db.prepare_cached("SELECT epoch + 1 FROM store")?.query_row([], |row| row.get(0))?;
    db.prepare_cached("UPDATE store SET epoch = ?1")?.execute([next])?;
    Ok(Epoch(next))
}

/// How the index finds a body.
pub(super) fn hash_of(id: BodyId) -> i64 {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&id.0[..8]);
    i64::from_be_bytes(prefix)
}

fn reign(db: &Connection, key: i64, holder: Option<&str>) -> Result<Epoch, rusqlite::Error> {
    let epoch = next_epoch(db)?;
    db.prepare_cached("UPDATE sessions SET epoch = ?2, holder = ?3 WHERE key = ?1")?
        .execute(params![key, epoch.0, holder])?;
    Ok(epoch)
}

fn refuse_if_fenced(standing: &Standing, session: &SessionId, epoch: Epoch) -> Result<(), Trouble> {
    if standing.epoch == epoch {
        return Ok(());
    }
    Err(Trouble::Refused(Error::Fenced { session: session.clone(), epoch, current: standing.epoch }))
}

/// Where the body lies, and whether the session has only now come to use it.
fn keep_body(db: &Db, session: i64, body: &PreparedBody) -> Result<(i64, bool), rusqlite::Error> {
    let hash = hash_of(body.id);
    for place in db.places(hash)? {
        let mut candidate = db.prepare_cached("SELECT owner, text FROM bodies WHERE id = ?1 AND address = ?2")?;
        let mut rows = candidate.query([place, hash])?;
        let Some(row) = rows.next()? else { continue };
        let packed = row.get_ref(1)?.as_blob().unwrap_or_default();
        let same = packed == body.packed || pack::unpack(packed).is_ok_and(|text| BodyId::of_bytes(&text) == body.id);
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
    db.note(hash, place);
    Ok((place, true))
}
