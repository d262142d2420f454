//! Reads records, bodies and snapshots, and checks the whole store.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadpool_postgres::GenericClient;
use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId};

use super::PostgresStoreInner;
use super::append::journal_scope;
use super::inbox::read_inbox;
use super::postgres_error::{PostgresError, corrupted};
use super::schema::{execute, from_bigint, query, query_opt, to_bigint};
use super::session_row::{PostgresSessionRow, RowLock, load_session_row};
use crate::limits::JOURNAL_ROWS_READ_MAX;
use crate::{Error, IntegrityReport, JournalRecord, Snapshot, encoding};

pub(super) async fn read_records(
    db: &PostgresStoreInner,
    session: &SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<JournalRecord>, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    read_records_of(&client, session, &session_row, after, limit).await
}

async fn read_records_of(
    client: &impl GenericClient,
    session: &SessionId,
    session_row: &PostgresSessionRow,
    after: Seq,
    limit: usize,
) -> Result<Vec<JournalRecord>, PostgresError> {
    let mut found: Vec<JournalRecord> = Vec::new();
    let scope = journal_scope();
    let mut last = after;
    while last < session_row.head && found.len() < limit {
        let rows_max = JOURNAL_ROWS_READ_MAX.min(limit - found.len());
        let rows = query(
            client,
            "SELECT first, data FROM segue_journal WHERE session = $1 AND first >=
             (SELECT max(first) FROM segue_journal WHERE session = $1 AND first <= $2) ORDER BY first LIMIT $3",
            &[&session_row.uid, &to_bigint(last.0.saturating_add(1)), &to_bigint(rows_max as u64)],
        )
        .await?;
        let seq_before = last;
        for row in rows {
            let first = Seq(from_bigint(row.get(0)));
            if first > last.next() {
                return Err(corrupted(session, format!("record {} is missing", last.next())));
            }
            let commit = encoding::unseal_records(&scope, first, row.get(1))
                .map_err(|detail| corrupted(session, format!("records from {first} on: {detail}")))?;
            found.extend(commit.into_iter().filter(|record| record.seq > last));
            last = found.last().map_or(last, |record| record.seq);
        }
        if last == seq_before {
            return Err(corrupted(session, format!("record {} is missing", last.next())));
        }
    }
    found.truncate(limit);
    Ok(found)
}

pub(super) async fn read_heads(
    db: &PostgresStoreInner,
    sessions: &[SessionId],
) -> Result<Vec<Option<Seq>>, PostgresError> {
    let names: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
    let sql = "SELECT name, head FROM segue_sessions WHERE name = ANY ($1)";
    let rows = query(&db.client().await?, sql, &[&names]).await?;
    let heads: BTreeMap<String, Seq> = rows.iter().map(|row| (row.get(0), Seq(from_bigint(row.get(1))))).collect();
    Ok(names.iter().map(|name| heads.get(*name).copied()).collect())
}

pub(super) async fn read_bodies(
    db: &PostgresStoreInner,
    session: &SessionId,
    ids: &[BodyId],
) -> Result<Vec<Arc<str>>, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    let hashes: Vec<&[u8]> = ids.iter().map(|id| id.0.as_slice()).collect();
    let rows = query(
        &client,
        // `OFFSET 0` makes the planner look up each text, however few there were when it planned the statement.
        "SELECT h.hash, b.text FROM unnest($2::bytea[]) AS h (hash) CROSS JOIN LATERAL
             (SELECT owner, text FROM segue_bodies WHERE hash = h.hash OFFSET 0) b
         WHERE b.owner = $1 OR EXISTS (SELECT 1 FROM segue_shares s WHERE s.session = $1 AND s.hash = h.hash)",
        &[&session_row.uid, &hashes],
    )
    .await?;
    let mut texts: BTreeMap<&[u8], Arc<str>> = BTreeMap::new();
    for row in &rows {
        let (hash, packed): (&[u8], &[u8]) = (row.get(0), row.get(1));
        let text = decode_body(hash, packed).map_err(|detail| corrupted(session, format!("a body: {detail}")))?;
        texts.insert(hash, text);
    }
    let find = |id: &BodyId| texts.get(id.0.as_slice()).cloned();
    ids.iter()
        .map(|id| find(id).ok_or_else(|| Error::NoSuchBody { session: session.clone(), body: *id }.into()))
        .collect()
}

fn decode_body(hash: &[u8], packed: &[u8]) -> Result<Arc<str>, String> {
    let bytes = encoding::decompress(packed)?;
    if BodyId::hash_bytes(&bytes).0.as_slice() != hash {
        return Err("the text does not match its hash".into());
    }
    String::from_utf8(bytes).map(Arc::from).map_err(|_| "the text is not UTF-8".into())
}

pub(super) async fn load_snapshot(
    db: &PostgresStoreInner,
    session: &SessionId,
) -> Result<Option<Snapshot>, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    let sql = "SELECT seq, format, data FROM segue_snapshots WHERE session = $1";
    let Some(row) = query_opt(&client, sql, &[&session_row.uid]).await? else { return Ok(None) };
    let seq = Seq(from_bigint(row.get(0)));
    let format = u32::try_from(row.get::<_, i64>(1)).unwrap_or_default();
    // A snapshot that cannot be read counts as missing. One beyond the head was saved after the head was read.
    let bytes = encoding::unseal_snapshot(session, seq, format, row.get(2)).ok();
    Ok(bytes.map(|bytes| Snapshot { seq, format, bytes }))
}

/// Saves the snapshot, unless a newer one is stored. `sealed` is its encoded form.
pub(super) async fn save_snapshot(
    db: &PostgresStoreInner,
    session: &SessionId,
    seq: Seq,
    format: u32,
    sealed: &[u8],
) -> Result<(), PostgresError> {
    let client = db.client().await?;
    let saved = execute(
        &client,
        "INSERT INTO segue_snapshots AS s (session, seq, format, data)
         SELECT uid, $2, $3, $4 FROM segue_sessions WHERE name = $1 AND head >= $2
         ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, format = excluded.format, data = excluded.data
         WHERE excluded.seq >= s.seq",
        &[&session.as_str(), &to_bigint(seq.0), &i64::from(format), &sealed],
    )
    .await?;
    if saved == 0 {
        load_session_row(&client, session, RowLock::None).await?;
    }
    Ok(())
}

/// Checks that the database can be written, with a write that changes nothing.
pub(super) async fn probe_write(db: &PostgresStoreInner) -> Result<(), PostgresError> {
    let sql = "UPDATE segue_nodes SET name = name WHERE node = $1";
    execute(&db.writer_pool.get().await?, sql, &[&db.node]).await?;
    Ok(())
}

/// Checks each session with separate small reads, so that damage to one does not hide damage to another.
pub(super) async fn check_integrity(db: &PostgresStoreInner) -> Result<IntegrityReport, PostgresError> {
    let mut report = IntegrityReport::default();
    let client = db.client().await?;
    let mut last = String::new();
    loop {
        let names = query(
            &client,
            "SELECT name, summary FROM segue_sessions WHERE name > $1 ORDER BY name LIMIT $2",
            &[&last, &to_bigint(JOURNAL_ROWS_READ_MAX as u64)],
        )
        .await?;
        let Some(newest) = names.last() else { break };
        last = newest.get(0);
        for row in &names {
            let session = SessionId::from(row.get::<_, String>(0));
            report.session_count += 1;
            let detail = match check_session_integrity(db, &client, &session).await {
                Ok(()) => {
                    row.get::<_, Option<&[u8]>>(1).and_then(|sealed| encoding::unseal_summary(&session, sealed).err())
                }
                // Deleted meanwhile.
                Err(PostgresError::Refused(Error::NoSuchSession { .. })) => None,
                Err(PostgresError::Refused(Error::SessionCorrupted { detail, .. })) => Some(detail),
                Err(PostgresError::Refused(error)) => Some(error.to_string()),
                Err(error) => return Err(error),
            };
            report.damaged_sessions.extend(detail.map(|detail| (session, detail)));
        }
    }
    let unused = query_opt(
        &client,
        "SELECT count(*) FROM segue_bodies b WHERE NOT EXISTS (SELECT 1 FROM segue_sessions s WHERE s.uid = b.owner)",
        &[],
    )
    .await?;
    let unused = unused.map_or(0, |row| row.get::<_, i64>(0));
    if unused > 0 {
        report.store_problems.push(format!("{unused} texts belong to no session"));
    }
    Ok(report)
}

async fn check_session_integrity(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    session: &SessionId,
) -> Result<(), PostgresError> {
    let session_row = load_session_row(client, session, RowLock::None).await?;
    read_records_of(client, session, &session_row, Seq(0), usize::MAX).await?;
    read_inbox(db, session, usize::MAX).await?;
    let sql = "SELECT hash, text FROM segue_bodies WHERE owner = $1
               UNION ALL SELECT b.hash, b.text FROM segue_shares s JOIN segue_bodies b ON b.hash = s.hash
               WHERE s.session = $1";
    for row in query(client, sql, &[&session_row.uid]).await? {
        decode_body(row.get(0), row.get(1)).map_err(|detail| corrupted(session, format!("a body: {detail}")))?;
    }
    Ok(())
}
