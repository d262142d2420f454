//! How sessions come from others and how they end: fork and delete, and who owns a shared text.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use segue_core::ids::{Seq, SessionId};

use super::addresses::Db;
use super::fault::Trouble;
use super::node::Node;
use super::pack;
use super::write::{clear_name, hash_of, keep_row, next_epoch, refuse_if_held, standing};
use crate::{Error, Fork};

/// Copies the rows of the journal up to `fork.at`; the last one is cut where needed.
pub(super) fn fork(db: &Connection, fork: &Fork, node: &Node) -> Result<(), Trouble> {
    let parent = standing(db, &fork.from)?;
    if fork.at > parent.head || fork.at == Seq(0) {
        return Err(Trouble::Refused(Error::PastHead { session: fork.from.clone(), at: fork.at, head: parent.head }));
    }
    clear_name(db, &fork.to, node)?;
    db.execute(
        "INSERT INTO sessions (name, epoch, head, summary) VALUES (?1, ?2, ?3, ?4)",
        params![fork.to.as_str(), next_epoch(db)?.0, fork.at.0, pack::seal_summary(&fork.to, &fork.summary)],
    )?;
    let child = db.last_insert_rowid();
    let damaged = |detail: String| Trouble::Failed(Error::Damaged { session: fork.from.clone(), detail });
    let mut last = Seq(0);
    // Rows are read one by one by place: the table is being added to.
    while last < fork.at {
        let first = last.next();
        let (bodies, data) =
            commit_at(db, parent.key, first)?.ok_or_else(|| damaged(format!("record {first} is missing")))?;
        let mut records = pack::unseal_records(&fork.from, first, &data).map_err(damaged)?;
        last = records.last().map(|record| record.seq).ok_or_else(|| damaged(format!("an empty commit at {first}")))?;
        let mut brought = pack::take_bodies(bodies.as_deref().unwrap_or_default()).map_err(damaged)?;
        let data = if last > fork.at {
            records.retain(|record| record.seq <= fork.at);
            let named: BTreeSet<i64> = records.iter().flat_map(fork.names).map(hash_of).collect();
            brought = only_named(db, brought, &named)?;
            pack::seal_records(&fork.to, first, &records)
        } else {
            pack::reseal_records(&fork.from, &fork.to, first, &data).map_err(damaged)?
        };
        keep_row(db, child, first, &brought, &data)?;
        for (body, _) in brought {
            db.prepare_cached("INSERT OR IGNORE INTO shares (session, body) VALUES (?1, ?2)")?
                .execute([child, body])?;
        }
    }
    Ok(())
}

/// Those of the texts that a commit brought which the records left of it name.
fn only_named(db: &Connection, brought: Vec<(i64, bool)>, named: &BTreeSet<i64>) -> Result<Vec<(i64, bool)>, Trouble> {
    let mut hash = db.prepare_cached("SELECT address FROM bodies WHERE id = ?1")?;
    let mut kept = Vec::new();
    for (body, said) in brought {
        if named.contains(&hash.query_row([body], |row| row.get(0))?) {
            kept.push((body, said));
        }
    }
    Ok(kept)
}

/// Removes every row of a session. A text others use passes to one of them.
pub(super) fn delete(db: &Db, session: &SessionId, node: &Node) -> Result<(), Trouble> {
    let standing = standing(db, session)?;
    refuse_if_held(&standing, session, node)?;
    db.empty_news()?;
    for body in bodies_of(db, standing.key, standing.head, session)? {
        leave_body(db, standing.key, body)?;
    }
    for removal in [
        "DELETE FROM shares WHERE session = ?1",
        "DELETE FROM journal WHERE session = ?1",
        "DELETE FROM snapshots WHERE session = ?1",
        "DELETE FROM sessions WHERE key = ?1",
    ] {
        db.prepare_cached(removal)?.execute([standing.key])?;
    }
    Ok(())
}

type CommitRow = (Option<Vec<u8>>, Vec<u8>);

fn commit_at(db: &Connection, session: i64, first: Seq) -> Result<Option<CommitRow>, rusqlite::Error> {
    use rusqlite::OptionalExtension;
    db.prepare_cached("SELECT bodies, data FROM journal WHERE session = ?1 AND first = ?2")?
        .query_row(params![session, first.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// The texts a session brought or was forked with. If its journal cannot be trusted, all texts are looked through.
fn bodies_of(db: &Connection, key: i64, head: Seq, session: &SessionId) -> Result<BTreeSet<i64>, rusqlite::Error> {
    let mut bodies = BTreeSet::new();
    let mut due = Seq(1);
    let mut rows = db.prepare_cached("SELECT first, bodies, data FROM journal WHERE session = ?1 ORDER BY first")?;
    let mut rows = rows.query([key])?;
    while let Some(row) = rows.next()? {
        let (first, brought, data) = (Seq(row.get(0)?), row.get_ref(1)?, row.get_ref(2)?);
        let records = pack::unseal_records(session, first, data.as_blob().unwrap_or_default()).unwrap_or_default();
        let brought = pack::take_bodies(brought.as_blob_or_null()?.unwrap_or_default());
        match brought {
            Ok(brought) if first == due && !records.is_empty() => bodies.extend(brought.iter().map(|(body, _)| body)),
            _ => break,
        }
        due = Seq(due.0 + records.len() as u64);
    }
    if due != head.next() {
        let mut owned =
            db.prepare("SELECT id FROM bodies WHERE owner = ?1 UNION SELECT body FROM shares WHERE session = ?1")?;
        for body in owned.query_map([key], |row| row.get(0))? {
            bodies.insert(body?);
        }
    }
    Ok(bodies)
}

/// Ends a session's use of a text, and the text itself if no other session uses it.
fn leave_body(db: &Db, session: i64, body: i64) -> Result<(), rusqlite::Error> {
    use rusqlite::OptionalExtension;
    let owned: Option<i64> = db
        .prepare_cached("SELECT address FROM bodies WHERE id = ?1 AND owner = ?2")?
        .query_row([body, session], |row| row.get(0))
        .optional()?;
    let Some(hash) = owned else { return Ok(()) };
    let heir: Option<i64> = db
        .prepare_cached("SELECT session FROM shares WHERE body = ?1 LIMIT 1")?
        .query_row([body], |row| row.get(0))
        .optional()?;
    match heir {
        Some(heir) => {
            db.prepare_cached("UPDATE bodies SET owner = ?2 WHERE id = ?1")?.execute([body, heir])?;
            db.prepare_cached("DELETE FROM shares WHERE session = ?2 AND body = ?1")?.execute([body, heir])?;
        }
        None => {
            db.prepare_cached("DELETE FROM bodies WHERE id = ?1")?.execute([body])?;
            db.strike(hash, body)?;
        }
    }
    Ok(())
}
