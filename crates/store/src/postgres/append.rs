//! The statement that appends a group of commits, and the encoding of commits for it.

use std::sync::LazyLock;

use deadpool_postgres::GenericClient;
use segue_core::body::{BodyId, BodyVisibility};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SubmissionId};
use tokio_postgres::types::ToSql;

use super::PostgresStoreInner;
use super::postgres_error::PostgresError;
use super::schema::{NOW_MICROS, from_bigint, now_ms, query, to_bigint};
use super::session_row::SessionSummaryColumns;
use crate::{CommitBody, Error, JournalCommit, JournalRecord, encoding};

/// A commit without deliveries to other sessions, encoded in the caller's thread.
#[derive(Debug)]
pub(super) struct PostgresCommit {
    pub(super) session: SessionId,
    epoch: LeaseEpoch,
    expected_head: Seq,
    pub(super) head: Seq,
    journal: EncodedRecordsAndBodies,
    summary: Option<SessionSummaryColumns>,
    drained: Vec<(SubmissionId, Vec<u8>)>,
    shows_progress: bool,
}

/// Encoded records and the bodies that come with them.
#[derive(Debug)]
pub(super) struct EncodedRecordsAndBodies {
    rows: Vec<(i64, Vec<u8>)>,
    bodies: Vec<EncodedBody>,
}

#[derive(Debug)]
struct EncodedBody {
    id: BodyId,
    text: Vec<u8>,
    first_used: i64,
    visible_from: Option<i64>,
    /// The order of bodies that become visible with the same record.
    position: i32,
}

/// What became of a commit.
pub(super) struct SessionAfterAppend {
    pub(super) uid: i64,
    pub(super) is_being_deleted: bool,
}

/// The session under whose name journal rows are sealed. They carry no name, so that a fork can copy them.
pub(super) fn journal_scope() -> SessionId {
    SessionId::from("")
}

impl PostgresCommit {
    pub(super) fn new(commit: &JournalCommit) -> Self {
        let session = &commit.session;
        let drained = commit.drained.iter();
        Self {
            session: session.clone(),
            epoch: commit.epoch,
            expected_head: commit.expected_head,
            head: commit.new_head(),
            journal: EncodedRecordsAndBodies::new(&commit.records, &commit.bodies),
            summary: commit.summary.as_ref().map(|summary| SessionSummaryColumns::new(session, summary)),
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

impl EncodedRecordsAndBodies {
    pub(super) fn new(records: &[JournalRecord], bodies: &[CommitBody]) -> Self {
        let scope = journal_scope();
        let encode_row = |records: &[JournalRecord]| {
            let first = records.first().map_or(Seq(1), |record| record.seq);
            (to_bigint(first.0), encoding::seal_records(&scope, first, records))
        };
        let rows = encoding::split_into_rows(records).into_iter().map(encode_row).collect();
        let mut encoded: Vec<EncodedBody> = Vec::new();
        let mut known = std::collections::BTreeMap::new();
        for (position, body) in bodies.iter().enumerate() {
            let first_used = to_bigint(body.first_used_by.0);
            let visible_from = (body.text.kind == BodyVisibility::Conversation).then_some(first_used);
            let position = i32::try_from(position).unwrap_or(i32::MAX);
            let index = *known.entry(body.text.id).or_insert_with(|| {
                let (id, text) = (body.text.id, encoding::compress_text(&body.text.text));
                encoded.push(EncodedBody { id, text, first_used, visible_from, position });
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
    pub(super) fn add(&mut self, owner: i64, journal: &'a EncodedRecordsAndBodies) {
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
            FROM used u WHERE NOT EXISTS (SELECT 1 FROM bodies_inserted i WHERE i.hash = u.hash AND i.owner = u.uid)
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

/// Appends commits, at most one per session. The rows of the sessions are locked in the order of their uids; a commit
/// whose epoch, head or inbox entries do not match drops out, and everything else is joined to the rest.
static APPEND: LazyLock<String> = LazyLock::new(|| {
    let keeps_catalog = "a.summary IS NULL OR s.is_being_deleted";
    format!(
        "WITH input AS (
            SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[],
                $7::bigint[], $8::boolean[]) WITH ORDINALITY
                AS i (name, epoch, expected, head, summary, updated_at, due_at, progress, n)
        ), locked AS MATERIALIZED (
            SELECT i.n, s.uid, s.epoch, s.head, s.is_being_deleted
            FROM input i JOIN segue_sessions s ON s.name = i.name ORDER BY s.uid FOR NO KEY UPDATE OF s
        ), entries AS (
            SELECT d.n, l.uid, d.submission, d.outcome
            FROM unnest($18::bigint[], $19::bigint[], $20::bytea[]) AS d (n, submission, outcome)
            JOIN locked l ON l.n = d.n
        ), missing AS (
            SELECT e.n, array_agg(e.submission) AS submissions FROM entries e WHERE NOT EXISTS
                (SELECT 1 FROM segue_inbox b WHERE b.session = e.uid AND b.submission = e.submission) GROUP BY e.n
        ), written AS (
            UPDATE segue_sessions s SET head = a.head, summary = coalesce(a.summary, s.summary),
                updated_at = CASE WHEN {keeps_catalog} THEN s.updated_at ELSE a.updated_at END,
                due_at = CASE WHEN {keeps_catalog} THEN s.due_at ELSE a.due_at END,
                change = CASE WHEN {keeps_catalog} THEN s.change END,
                changed_at = CASE WHEN {keeps_catalog} THEN s.changed_at ELSE {NOW_MICROS} END,
                takeovers = CASE WHEN a.progress THEN 0 ELSE s.takeovers END
            FROM (SELECT i.*, l.uid FROM input i JOIN locked l ON l.n = i.n
                  WHERE l.epoch = i.epoch AND l.head = i.expected AND NOT EXISTS
                      (SELECT 1 FROM missing m WHERE m.n = i.n)) a
            WHERE s.uid = a.uid RETURNING a.n, s.uid
        ), {journal}, drained AS (
            DELETE FROM segue_inbox b USING entries e, written w
            WHERE w.n = e.n AND b.session = e.uid AND b.submission = e.submission
            RETURNING b.session, b.submission, b.digest, e.outcome
        ), outcomes_inserted AS (
            INSERT INTO segue_outcomes (session, submission, at, digest, data)
            SELECT session, submission, {now}, digest, outcome FROM drained
            ON CONFLICT (session, submission) DO UPDATE
            SET at = excluded.at, digest = excluded.digest, data = excluded.data
        )
        SELECT l.uid, l.epoch, l.head, l.is_being_deleted, w.uid IS NOT NULL, m.submissions
        FROM input i LEFT JOIN locked l ON l.n = i.n LEFT JOIN written w ON w.n = i.n LEFT JOIN missing m ON m.n = i.n
        ORDER BY i.n",
        journal = journal_ctes(9),
        now = now_ms("$21"),
    )
});

/// Appends commits of different sessions in one statement. Returns what became of each.
pub(super) async fn append_commits(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    commits: &[&PostgresCommit],
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
        vec![&names, &epochs, &expected, &heads, &sealed, &updated_at, &due_at, &progress];
    values.extend(journals.values());
    values.extend([&drain_owners as &(dyn ToSql + Sync), &submissions, &outcomes, &offset]);
    let rows = query(client, &APPEND, &values).await?;
    let results = commits.iter().zip(rows).map(|(commit, row)| {
        let session = commit.session.clone();
        let Some(uid) = row.get::<_, Option<i64>>(0) else { return Err(Error::NoSuchSession { session }) };
        let (current, head) = (LeaseEpoch(from_bigint(row.get(1))), Seq(from_bigint(row.get(2))));
        let missing: Vec<i64> = row.get::<_, Option<Vec<i64>>>(5).unwrap_or_default();
        let missing = commit.drained.iter().find(|(submission, _)| missing.contains(&submission.0.cast_signed()));
        match (row.get::<_, bool>(4), missing) {
            (true, _) => Ok(SessionAfterAppend { uid, is_being_deleted: row.get(3) }),
            (false, _) if current != commit.epoch => {
                tracing::warn!(%session, epoch = commit.epoch.0, current_epoch = current.0, "write fenced: the lease is lost");
                Err(Error::Fenced { session, epoch: commit.epoch, current })
            }
            (false, _) if head != commit.expected_head => {
                Err(Error::Conflict { session, expected: commit.expected_head, head })
            }
            (false, Some((submission, _))) => Err(Error::EntryGone { session, submission: *submission }),
            (false, None) => Err(Error::Io {
                what: format!("appending to session `{session}`"),
                detail: "the database wrote nothing and did not say why".into(),
            }),
        }
    });
    Ok(results.collect())
}
