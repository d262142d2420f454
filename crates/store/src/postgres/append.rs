//! The statement that appends a group of commits, and the encoding of commits for it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use deadpool_postgres::GenericClient;
use segue_core::body::{BodyId, BodyVisibility};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SubmissionId};
use tokio_postgres::types::ToSql;

use super::PostgresStoreInner;
use super::postgres_error::PostgresError;
use super::schema::{NOW_MICROS, now_ms, query, to_bigint};
use super::session_row::{PostgresEncodedSessionSummary, RowLock, find_session_row};
use crate::{CommittedTextBody, Error, JournalCommit, JournalRecord, encoding};

/// A commit without deliveries to other sessions, encoded in the caller's thread.
#[derive(Debug)]
pub(super) struct PostgresEncodedCommit {
    pub(super) session: SessionId,
    epoch: LeaseEpoch,
    expected_head: Seq,
    pub(super) head: Seq,
    journal: PostgresEncodedJournalAndBodies,
    summary: Option<PostgresEncodedSessionSummary>,
    drained: Vec<(SubmissionId, Vec<u8>)>,
    shows_progress: bool,
}

/// Encoded records and the bodies that come with them.
#[derive(Debug)]
pub(super) struct PostgresEncodedJournalAndBodies {
    rows: Vec<(i64, Vec<u8>)>,
    bodies: Vec<PostgresEncodedTextBody>,
}

#[derive(Debug)]
struct PostgresEncodedTextBody {
    id: BodyId,
    text: Vec<u8>,
    first_used: i64,
    visible_from: Option<i64>,
    /// The order of bodies that become visible with the same record.
    position: i32,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionAfterAppend {
    pub(super) uid: i64,
    pub(super) is_being_deleted: bool,
}

/// The session under whose name journal rows are sealed. They carry no name, so that a fork can copy them.
pub(super) fn journal_scope() -> SessionId {
    SessionId::from("")
}

impl PostgresEncodedCommit {
    pub(super) fn new(commit: &JournalCommit) -> Self {
        let session = &commit.session;
        let drained = commit.drained.iter();
        Self {
            session: session.clone(),
            epoch: commit.epoch,
            expected_head: commit.expected_head,
            head: commit.new_head(),
            journal: PostgresEncodedJournalAndBodies::new(&commit.records, &commit.bodies),
            summary: commit.summary.as_ref().map(|summary| PostgresEncodedSessionSummary::new(session, summary)),
            drained: drained
                .map(|entry| (entry.id, encoding::seal_outcome(session, entry.id, &entry.outcome)))
                .collect(),
            shows_progress: commit.shows_progress,
        }
    }

    /// Returns about how many bytes the commit writes.
    pub(super) fn byte_len(&self) -> usize {
        self.journal.byte_len() + self.drained.iter().map(|(_, outcome)| outcome.len()).sum::<usize>()
    }
}

impl PostgresEncodedJournalAndBodies {
    pub(super) fn new(records: &[JournalRecord], bodies: &[CommittedTextBody]) -> Self {
        let scope = journal_scope();
        let encode_row = |records: &[JournalRecord]| {
            let first = records.first().map_or(Seq(1), |record| record.seq);
            (to_bigint(first.0), encoding::seal_records(&scope, first, records))
        };
        let rows = encoding::split_into_rows(records).into_iter().map(encode_row).collect();
        let mut encoded: Vec<PostgresEncodedTextBody> = Vec::new();
        let mut known = std::collections::BTreeMap::new();
        for (position, body) in bodies.iter().enumerate() {
            let first_used = to_bigint(body.first_used_by.0);
            let visible_from = (body.text.kind == BodyVisibility::Conversation).then_some(first_used);
            let position = i32::try_from(position).unwrap_or(i32::MAX);
            let index = *known.entry(body.text.id).or_insert_with(|| {
                let (id, text) = (body.text.id, encoding::compress_text(&body.text.text));
                encoded.push(PostgresEncodedTextBody { id, text, first_used, visible_from, position });
                encoded.len() - 1
            });
            let stored = &mut encoded[index];
            stored.first_used = stored.first_used.min(first_used);
            if stored.visible_from.is_none() && visible_from.is_some() {
                (stored.visible_from, stored.position) = (visible_from, position);
            }
        }
        Self { rows, bodies: encoded }
    }

    pub(super) fn byte_len(&self) -> usize {
        let records: usize = self.rows.iter().map(|(_, data)| data.len()).sum();
        records + self.bodies.iter().map(|body| body.text.len()).sum::<usize>()
    }
}

/// The journals of several sessions as columns. `owners` tells which session each row belongs to, counted from one.
#[derive(Default)]
pub(super) struct JournalInsertColumns<'a> {
    row_owners: Vec<i64>,
    firsts: Vec<i64>,
    rows: Vec<&'a [u8]>,
    body_owners: Vec<i64>,
    hashes: Vec<&'a [u8]>,
    texts: Vec<&'a [u8]>,
    first_used: Vec<i64>,
    visible_from: Vec<Option<i64>>,
    positions: Vec<i32>,
}

impl<'a> JournalInsertColumns<'a> {
    pub(super) fn add(&mut self, owner: i64, journal: &'a PostgresEncodedJournalAndBodies) {
        for (first, data) in &journal.rows {
            self.row_owners.push(owner);
            self.firsts.push(*first);
            self.rows.push(data);
        }
        for body in &journal.bodies {
            self.body_owners.push(owner);
            self.hashes.push(&body.id.0);
            self.texts.push(&body.text);
            self.first_used.push(body.first_used);
            self.visible_from.push(body.visible_from);
            self.positions.push(body.position);
        }
    }

    /// Returns the values of [`journal_ctes`], in its order.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 9] {
        [
            &self.row_owners,
            &self.firsts,
            &self.rows,
            &self.body_owners,
            &self.hashes,
            &self.texts,
            &self.first_used,
            &self.visible_from,
            &self.positions,
        ]
    }
}

/// Returns parts of a statement that insert the journals of the sessions in `written (n, uid)`. Their values begin with
/// parameter `first`. Texts are inserted in the order of their hashes, because nodes that insert the same texts wait for
/// each other. A text that is stored already is shared, unless the session owns it.
pub(super) fn journal_ctes(first: usize) -> String {
    let p = |index: usize| format!("${}", first + index);
    format!(
        "rows_inserted AS (
            INSERT INTO segue_journal (session, first, data) SELECT w.uid, r.first, r.data
            FROM unnest({}::bigint[], {}::bigint[], {}::bytea[]) AS r (n, first, data) JOIN written w ON w.n = r.n
        ), used AS (
            SELECT w.uid, b.hash, b.text, b.first_used, b.visible_from, b.position
            FROM unnest({}::bigint[], {}::bytea[], {}::bytea[], {}::bigint[], {}::bigint[], {}::int[])
                AS b (n, hash, text, first_used, visible_from, position) JOIN written w ON w.n = b.n
        ), bodies_inserted AS (
            INSERT INTO segue_bodies (hash, owner, first_used, visible_from, position, text)
            SELECT hash, uid, first_used, visible_from, position, text FROM used ORDER BY hash
            ON CONFLICT (hash) DO NOTHING RETURNING hash, owner
        ), known AS MATERIALIZED (
            SELECT u.uid, u.hash, u.first_used, u.visible_from, u.position,
                (SELECT b.owner FROM segue_bodies b WHERE b.hash = u.hash) IS NOT DISTINCT FROM u.uid AS is_own
            FROM used u WHERE (u.hash, u.uid) NOT IN (SELECT i.hash, i.owner FROM bodies_inserted i)
        ), own_shown AS (
            UPDATE segue_bodies b SET visible_from = k.visible_from, position = k.position FROM known k
            WHERE k.is_own AND k.visible_from IS NOT NULL AND b.hash = k.hash AND b.owner = k.uid
                AND b.visible_from IS NULL
        ), shares_inserted AS (
            INSERT INTO segue_shares AS s (session, hash, first_used, visible_from, position)
            SELECT uid, hash, first_used, visible_from, position FROM known WHERE NOT is_own ORDER BY uid, hash
            ON CONFLICT (session, hash) DO UPDATE SET visible_from = excluded.visible_from, position = excluded.position
            WHERE s.visible_from IS NULL AND excluded.visible_from IS NOT NULL
        )",
        p(0),
        p(1),
        p(2),
        p(3),
        p(4),
        p(5),
        p(6),
        p(7),
        p(8)
    )
}

/// Appends commits, at most one per session: updates the rows of the sessions whose epoch and head match, and inserts
/// everything else that belongs to these. A row that another transaction changes meanwhile is compared again when that one
/// has ended, so the rows need no lock before.
///
/// The statement is planned once per connection, perhaps while the tables are nearly empty. The `LIMIT`, whose value the
/// planner does not know, makes it expect one commit, and so look up each session with the index instead of reading all
/// of them.
fn append_statement(drains: bool) -> String {
    let keeps_catalog = "i.summary IS NULL OR s.is_being_deleted";
    let (entries, guard, drained) = if drains {
        (
            "entries AS MATERIALIZED (
                SELECT d.n, d.submission, d.outcome, (SELECT s.uid FROM segue_sessions s WHERE s.name = i.name) AS uid
                FROM unnest($19::bigint[], $20::bigint[], $21::bytea[]) AS d (n, submission, outcome)
                JOIN input i ON i.n = d.n
            ), missing AS MATERIALIZED (
                SELECT e.n FROM entries e WHERE NOT EXISTS
                    (SELECT 1 FROM segue_inbox b WHERE b.session = e.uid AND b.submission = e.submission)
            ), ",
            "AND NOT EXISTS (SELECT 1 FROM missing m WHERE m.n = i.n)",
            format!(
                ", drained AS (
                    DELETE FROM segue_inbox b USING entries e, written w
                    WHERE w.n = e.n AND b.session = e.uid AND b.submission = e.submission
                    RETURNING b.session, b.submission, b.digest, e.outcome
                ), outcomes_inserted AS (
                    INSERT INTO segue_outcomes (session, submission, at, digest, data)
                    SELECT session, submission, {now}, digest, outcome FROM drained
                    ON CONFLICT (session, submission) DO UPDATE
                    SET at = excluded.at, digest = excluded.digest, data = excluded.data
                )",
                now = now_ms("$22")
            ),
        )
    } else {
        ("", "", String::new())
    };
    format!(
        "WITH input AS MATERIALIZED (
            SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[],
                $7::bigint[], $8::boolean[]) WITH ORDINALITY
                AS i (name, epoch, expected, head, summary, updated_at, due_at, progress, n) LIMIT $9
        ), {entries}written AS (
            UPDATE segue_sessions s SET head = i.head, summary = coalesce(i.summary, s.summary),
                updated_at = CASE WHEN {keeps_catalog} THEN s.updated_at ELSE i.updated_at END,
                due_at = CASE WHEN {keeps_catalog} THEN s.due_at ELSE i.due_at END,
                change = CASE WHEN {keeps_catalog} THEN s.change END,
                changed_at = CASE WHEN {keeps_catalog} THEN s.changed_at ELSE {NOW_MICROS} END,
                takeovers = CASE WHEN i.progress THEN 0 ELSE s.takeovers END
            FROM input i WHERE s.name = i.name AND s.epoch = i.epoch AND s.head = i.expected {guard}
            RETURNING i.n, s.uid, s.is_being_deleted
        ), {journal}{drained}
        SELECT n, uid, is_being_deleted FROM written",
        journal = journal_ctes(10),
    )
}

static APPEND: LazyLock<String> = LazyLock::new(|| append_statement(false));
static APPEND_AND_DRAIN: LazyLock<String> = LazyLock::new(|| append_statement(true));

/// Appends commits of different sessions in one statement. Returns what became of each.
pub(super) async fn append_commits(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    commits: &[&PostgresEncodedCommit],
) -> Result<Vec<Result<SessionAfterAppend, Error>>, PostgresError> {
    let names: Vec<&str> = commits.iter().map(|commit| commit.session.as_str()).collect();
    let epochs: Vec<i64> = commits.iter().map(|commit| to_bigint(commit.epoch.0)).collect();
    let expected: Vec<i64> = commits.iter().map(|commit| to_bigint(commit.expected_head.0)).collect();
    let heads: Vec<i64> = commits.iter().map(|commit| to_bigint(commit.head.0)).collect();
    let summaries = || commits.iter().map(|commit| commit.summary.as_ref());
    let sealed: Vec<Option<&[u8]>> =
        summaries().map(|summary| summary.map(|summary| summary.sealed.as_slice())).collect();
    let updated_at: Vec<Option<i64>> = summaries().map(|summary| summary.map(|summary| summary.updated_at)).collect();
    let due_at: Vec<Option<i64>> = summaries().map(|summary| summary.and_then(|summary| summary.due_at)).collect();
    let progress: Vec<bool> = commits.iter().map(|commit| commit.shows_progress).collect();
    let count = to_bigint(commits.len() as u64);
    let mut journals = JournalInsertColumns::default();
    let (mut drain_owners, mut submissions, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    for (n, commit) in (1i64..).zip(commits) {
        journals.add(n, &commit.journal);
        for (submission, outcome) in &commit.drained {
            drain_owners.push(n);
            submissions.push(submission.0.cast_signed());
            outcomes.push(outcome.as_slice());
        }
    }
    let offset = db.clock_offset_ms();
    let mut values: Vec<&(dyn ToSql + Sync)> =
        vec![&names, &epochs, &expected, &heads, &sealed, &updated_at, &due_at, &progress, &count];
    values.extend(journals.values());
    let rows = if drain_owners.is_empty() {
        query(client, &APPEND, &values).await?
    } else {
        values.extend([&drain_owners as &(dyn ToSql + Sync), &submissions, &outcomes, &offset]);
        query(client, &APPEND_AND_DRAIN, &values).await?
    };
    let written: BTreeMap<i64, SessionAfterAppend> = rows
        .iter()
        .map(|row| (row.get(0), SessionAfterAppend { uid: row.get(1), is_being_deleted: row.get(2) }))
        .collect();
    let mut results = Vec::with_capacity(commits.len());
    for (n, commit) in (1i64..).zip(commits) {
        results.push(match written.get(&n) {
            Some(session) => Ok(*session),
            None => Err(explain_rejection(client, commit).await?),
        });
    }
    Ok(results)
}

/// Returns why a commit was not written. What stood in its way does not go away: epochs and heads only grow, and an entry
/// that was handled does not come back.
async fn explain_rejection(
    client: &impl GenericClient,
    commit: &PostgresEncodedCommit,
) -> Result<Error, PostgresError> {
    let session = commit.session.clone();
    let Some(found) = find_session_row(client, &session, RowLock::None).await? else {
        return Ok(Error::NoSuchSession { session });
    };
    if found.epoch != commit.epoch {
        tracing::warn!(%session, epoch = commit.epoch.0, current_epoch = found.epoch.0, "write fenced: the lease is lost");
        return Ok(Error::Fenced { session, epoch: commit.epoch, current: found.epoch });
    }
    if found.head != commit.expected_head {
        return Ok(Error::Conflict { session, expected: commit.expected_head, head: found.head });
    }
    let submissions: Vec<i64> = commit.drained.iter().map(|(submission, _)| submission.0.cast_signed()).collect();
    let sql = "SELECT submission FROM segue_inbox WHERE session = $1 AND submission = ANY ($2)";
    let rows = query(client, sql, &[&found.uid, &submissions]).await?;
    let waiting: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let gone = commit.drained.iter().find(|(submission, _)| !waiting.contains(&submission.0.cast_signed()));
    Ok(match gone {
        Some((submission, _)) => Error::EntryGone { session, submission: *submission },
        None => Error::Io {
            what: format!("appending to session `{session}`"),
            detail: "the database wrote nothing and did not say why".into(),
        },
    })
}
