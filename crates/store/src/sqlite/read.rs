//! What is read in one transaction: records, texts, snapshots, lists, and the check of everything.

use crate::limits::COMPLAINTS_MAX;
use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId};

use super::addresses::Db;
use super::fault::Trouble;
use super::pack;
use super::write::{Standing, hash_of, standing};
use crate::search::Needle;
use crate::{Cursor, Error, Owes, Page, Query, Record, Report, Row, Snapshot, Summary};

pub(super) fn records(db: &Connection, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Record>, Trouble> {
    let standing = standing(db, session)?;
    let mut found = Vec::new();
    if after >= standing.head || limit == 0 {
        return Ok(found);
    }
    let damaged = |detail: String| Trouble::Failed(Error::Damaged { session: session.clone(), detail });
    let mut commits = db.prepare_cached(
        "SELECT first, data FROM journal WHERE session = ?1 AND first >=
         (SELECT max(first) FROM journal WHERE session = ?1 AND first <= ?2) ORDER BY first",
    )?;
    let mut rows = commits.query(params![standing.key, after.next().0])?;
    let mut due = None;
    while let Some(row) = rows.next()? {
        let first = Seq(row.get(0)?);
        if due.is_some_and(|due| due != first) {
            break;
        }
        let sealed = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let commit = pack::unseal_records(session, first, sealed)
            .map_err(|detail| damaged(format!("records from {first} on: {detail}")))?;
        due = Some(Seq(first.0 + commit.len() as u64));
        found.extend(commit.into_iter().filter(|record| record.seq > after));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
    match due {
        Some(due) if due == standing.head.next() && found.first().is_some_and(|record| record.seq == after.next()) => {
            Ok(found)
        }
        due => Err(damaged(format!("record {} is missing", due.unwrap_or(after.next())))),
    }
}

pub(super) fn heads(db: &Connection, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Trouble> {
    let head = |session: &SessionId| match standing(db, session) {
        Ok(standing) => Ok(Some(standing.head)),
        Err(Trouble::Refused(Error::NoSuchSession { .. })) => Ok(None),
        Err(trouble) => Err(trouble),
    };
    sessions.iter().map(head).collect()
}

pub(super) fn bodies(db: &Db, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Trouble> {
    let standing = standing(db, session)?;
    // Where the list cannot be read, texts are found without it.
    let _ = db.catch_up();
    ids.iter().map(|id| body(db, session, &standing, *id)).collect()
}

fn body(db: &Db, session: &SessionId, standing: &Standing, id: BodyId) -> Result<Arc<str>, Trouble> {
    let mut broken = None;
    let mut look = |places: Vec<i64>| {
        for place in places {
            match text_at(db, standing, place, id)? {
                Some(Ok(text)) => return Ok(Some(text)),
                Some(Err(detail)) => broken = Some(detail),
                None => {}
            }
        }
        Ok::<_, rusqlite::Error>(None)
    };
    if let Some(text) = look(db.places(hash_of(id)).unwrap_or_default())? {
        return Ok(text);
    }
    // Where the index is damaged, the journal still tells which texts it brought.
    if let Ok(brought) = brought(db, standing.key)?
        && let Some(text) = look(brought.into_iter().map(|(place, _)| place).collect())?
    {
        return Ok(text);
    }
    let session = session.clone();
    Err(match broken {
        Some(detail) => Trouble::Failed(Error::Damaged { session, detail: format!("body {id}: {detail}") }),
        None => Trouble::Refused(Error::NoSuchBody { session, body: id }),
    })
}

/// The text in a row, if the session uses it and this may be its address.
fn text_at(
    db: &Connection,
    standing: &Standing,
    place: i64,
    id: BodyId,
) -> Result<Option<Result<Arc<str>, String>>, rusqlite::Error> {
    let mut candidate = db.prepare_cached("SELECT owner, text FROM bodies WHERE id = ?1 AND address = ?2")?;
    let mut rows = candidate.query([place, hash_of(id)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if row.get::<_, i64>(0)? != standing.key && !shares(db, standing.key, place)? {
        return Ok(None);
    }
    Ok(Some(text_of(row.get_ref(1)?.as_blob()?, id)))
}

pub(super) fn snapshot(db: &Connection, session: &SessionId) -> Result<Option<Snapshot>, Trouble> {
    let standing = standing(db, session)?;
    let read = |row: &rusqlite::Row<'_>| Ok((Seq(row.get(0)?), row.get::<_, u32>(1)?, row.get::<_, Vec<u8>>(2)?));
    let kept = db
        .prepare_cached("SELECT seq, format, data FROM snapshots WHERE session = ?1")?
        .query_row([standing.key], read)
        .optional();
    // A snapshot that cannot be read is a snapshot that was lost.
    let Ok(Some((seq, format, sealed))) = kept else { return Ok(None) };
    let bytes = pack::unseal_snapshot(session, seq, format, &sealed).ok().filter(|_| seq <= standing.head);
    Ok(bytes.map(|bytes| Snapshot { seq, format, bytes }))
}

pub(super) fn list(db: &Connection, query: &Query) -> Result<Page, Trouble> {
    let needle = query.text.as_deref().map(Needle::new);
    let mut found = Vec::new();
    for (key, session, head, summary) in summaries(db)? {
        // One that cannot be read is named by the check, not here.
        let Ok(summary) = summary else { continue };
        let place = Cursor { updated: summary.updated, session };
        let wanted =
            query.picks(&place.session, &summary.flow) && query.before.as_ref().is_none_or(|before| place < *before);
        if wanted {
            found.push((place, key, head, summary));
        }
    }
    found.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let mut rows = Vec::new();
    for (place, key, head, summary) in found {
        let excerpt = match &needle {
            Some(needle) => match excerpt(db, key, &summary.title, needle)? {
                None => continue,
                hit => hit,
            },
            None => None,
        };
        if rows.len() == query.limit {
            return Ok(Page::cut(rows));
        }
        rows.push(Row { session: place.session, summary, head, excerpt });
    }
    Ok(Page { rows, next: None })
}

pub(super) fn owing(db: &Connection) -> Result<Vec<(SessionId, Owes)>, Trouble> {
    let mut owing = Vec::new();
    for (_, session, _, summary) in summaries(db)? {
        // What cannot be read may owe something; whoever opens it finds out.
        match summary.map_or(Owes::Now, |summary| summary.owes) {
            Owes::Nothing => {}
            owes => owing.push((session, owes)),
        }
    }
    owing.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(owing)
}

/// Every session in turn, each in its own small reads, so that one's damage does not hide another's.
pub(super) fn check(db: &Db) -> Result<Report, Trouble> {
    let mut report = Report::default();
    match complaints(db) {
        Ok(complaints) => report.complaints = complaints,
        Err(error) => report.complaints.push(error.to_string()),
    }
    report.complaints.extend(db.catch_up().err().map(|error| format!("the list of new addresses: {error}")));
    let mut query = db.prepare("SELECT key, name, summary FROM sessions ORDER BY name")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (key, name, summary): (i64, String, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let session = SessionId::from(name);
        report.sessions += 1;
        let found = check_session(db, key, &session).map_err(|trouble| trouble.about(&session));
        let detail = match found {
            Err(Error::Damaged { detail, .. }) => Some(detail),
            Err(error) => Some(error.to_string()),
            Ok(()) => summary.and_then(|sealed| pack::unseal_summary(&session, &sealed).err()),
        };
        report.damaged.extend(detail.map(|detail| (session, detail)));
    }
    Ok(report)
}

fn check_session(db: &Db, key: i64, session: &SessionId) -> Result<(), Trouble> {
    records(db, session, Seq(0), usize::MAX)?;
    let damaged = |detail: String| Trouble::Failed(Error::Damaged { session: session.clone(), detail });
    for (place, _) in brought(db, key)?.map_err(damaged)? {
        let found = db
            .prepare_cached("SELECT owner, address, text FROM bodies WHERE id = ?1")?
            .query_row([place], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?)))
            .optional()?;
        let (owner, hash, packed): (i64, i64, _) = found.ok_or_else(|| damaged(format!("text {place} is missing")))?;
        let text = pack::unpack(&packed).map_err(|detail| damaged(format!("text {place}: {detail}")))?;
        if hash_of(BodyId::of_bytes(&text)) != hash {
            return Err(damaged(format!("text {place} does not match its address")));
        }
        if !db.places(hash)?.contains(&place) {
            return Err(damaged(format!("text {place} is not found by its address")));
        }
        if owner != key && !shares(db, key, place)? {
            return Err(damaged(format!("text {place} is not marked as its own")));
        }
    }
    Ok(())
}

fn complaints(db: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut query = db.prepare(&format!("PRAGMA quick_check({COMPLAINTS_MAX})"))?;
    let lines = query.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

fn shares(db: &Connection, session: i64, body: i64) -> Result<bool, rusqlite::Error> {
    db.prepare_cached("SELECT 1 FROM shares WHERE session = ?1 AND body = ?2")?.exists([session, body])
}

fn text_of(packed: &[u8], id: BodyId) -> Result<Arc<str>, String> {
    let bytes = pack::unpack(packed)?;
    if BodyId::of_bytes(&bytes) != id {
        return Err("the text does not match its address".into());
    }
    String::from_utf8(bytes).map(Arc::from).map_err(|_| "the text is no UTF-8".into())
}

type Listed = (i64, SessionId, Seq, Result<Summary, String>);

fn summaries(db: &Connection) -> Result<Vec<Listed>, rusqlite::Error> {
    let mut query = db.prepare_cached("SELECT key, name, head, summary FROM sessions WHERE summary IS NOT NULL")?;
    let mut rows = query.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        // A name or a head that is none belongs to no session one could ask for.
        let (Ok(name), Ok(head)) = (row.get::<_, String>(1), row.get::<_, u64>(2)) else { continue };
        let session = SessionId::from(name);
        let summary = pack::unseal_summary(&session, row.get_ref(3)?.as_blob().unwrap_or_default());
        all.push((row.get(0)?, session, Seq(head), summary));
    }
    Ok(all)
}

/// The words around the first hit in a session's title or said texts. What is damaged is not searched.
fn excerpt(db: &Connection, key: i64, title: &str, needle: &Needle) -> Result<Option<String>, rusqlite::Error> {
    if let Some(hit) = needle.excerpt(title) {
        return Ok(Some(hit));
    }
    let Ok(Ok(brought)) = brought(db, key) else { return Ok(None) };
    let mut texts = db.prepare_cached("SELECT text FROM bodies WHERE id = ?1")?;
    let mut seen = HashSet::new();
    for (place, said) in brought {
        if !said || !seen.insert(place) {
            continue;
        }
        let packed = texts.query_row([place], |row| row.get::<_, Vec<u8>>(0)).unwrap_or_default();
        let text = pack::unpack(&packed).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(hit) = text.and_then(|text| needle.excerpt(&text)) {
            return Ok(Some(hit));
        }
    }
    Ok(None)
}

/// Every text a session brought or was forked with, oldest first.
fn brought(db: &Connection, key: i64) -> Result<Result<Vec<(i64, bool)>, String>, rusqlite::Error> {
    let mut query =
        db.prepare_cached("SELECT bodies FROM journal WHERE session = ?1 AND bodies IS NOT NULL ORDER BY first")?;
    let lists = query.query_map([key], |row| row.get::<_, Vec<u8>>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(pack::take_bodies(&lists.concat()))
}
