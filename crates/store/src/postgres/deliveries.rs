//! Commits that concern other sessions: spawned children and outgoing submissions. Each is a transaction of its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use deadpool_postgres::Transaction;
use segue_core::ids::{Seq, SessionId, SessionUid};
use tokio_postgres::types::ToSql;

use super::PostgresStoreInner;
use super::append::{
    JournalInsertColumns, PostgresEncodedCommit, PostgresEncodedJournalAndBodies, SessionAfterAppend, append_commits,
    journal_ctes,
};
use super::inbox::{NewPostgresInboxRow, deliver, insert_entries};
use super::leases::begin;
use super::postgres_error::PostgresError;
use super::schema::{NOW_MICROS, from_bigint, query, to_bigint};
use super::session_row::{PostgresEncodedSessionSummary, namespace_of, reclaim_unused_name};
use crate::{Error, JournalCommit, NewInboxSubmission, OutgoingInboxSubmission, SessionNameAndUid, SpawnedSession};

/// A commit with deliveries, encoded in the caller's thread.
#[derive(Debug)]
pub(super) struct PostgresCommitWithDeliveries {
    commit: PostgresEncodedCommit,
    spawned: Vec<PostgresEncodedChildSession>,
    outgoing: Vec<OutgoingInboxSubmission>,
}

#[derive(Debug)]
struct PostgresEncodedChildSession {
    session: SessionId,
    head: i64,
    journal: PostgresEncodedJournalAndBodies,
    summary: PostgresEncodedSessionSummary,
    entries: Vec<NewInboxSubmission>,
}

impl PostgresCommitWithDeliveries {
    pub(super) fn new(commit: JournalCommit) -> Self {
        Self {
            commit: PostgresEncodedCommit::new(&commit),
            spawned: commit.spawned.into_iter().map(PostgresEncodedChildSession::new).collect(),
            outgoing: commit.outgoing,
        }
    }
}

impl PostgresEncodedChildSession {
    fn new(spawned: SpawnedSession) -> Self {
        Self {
            head: to_bigint(spawned.records.len() as u64),
            journal: PostgresEncodedJournalAndBodies::new(&spawned.records, &spawned.bodies),
            summary: PostgresEncodedSessionSummary::new(&spawned.session, &spawned.summary),
            entries: spawned.entries,
            session: spawned.session,
        }
    }
}

/// Writes a commit and everything that it delivers. A submission that cannot be delivered is bounced.
pub(super) async fn append_with_deliveries(
    db: &PostgresStoreInner,
    deliveries: &PostgresCommitWithDeliveries,
) -> Result<Seq, PostgresError> {
    let PostgresCommitWithDeliveries { commit, spawned, outgoing } = deliveries;
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let appended = append_commits(db, &transaction, &[commit]).await?.pop().unwrap_or(Err(Error::WriterStopped));
    let SessionAfterAppend { uid, is_being_deleted } = appended?;
    let sender = SessionNameAndUid { session: commit.session.clone(), uid: SessionUid(from_bigint(uid)) };
    if !spawned.is_empty() {
        if is_being_deleted {
            return Err(Error::BeingDeleted { session: commit.session.clone() }.into());
        }
        spawn_sessions(db, &transaction, spawned, &sender).await?;
    }
    for OutgoingInboxSubmission { to, expected, submission, bounce } in outgoing {
        let delivered = deliver(db, &transaction, to, *expected, submission, Some(&sender)).await?;
        if let (Err(_), Some(bounce)) = (delivered, bounce) {
            let bounce = NewInboxSubmission { exempt_from_limit: true, ..bounce.clone() };
            // An exempt submission of a session is never refused, and a session that is being deleted needs none.
            let _ = deliver(db, &transaction, &sender.session, Some(sender.uid), &bounce, Some(&sender)).await?;
        }
    }
    transaction.commit().await?;
    Ok(commit.head)
}

/// Inserts sessions in their order, with their journals.
static SPAWN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH input AS (
            SELECT nextval('segue_epochs') AS uid, i.* FROM (
                SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[])
                    WITH ORDINALITY AS t (name, namespace, head, summary, updated_at, due_at, n) ORDER BY n
            ) i
        ), inserted AS (
            INSERT INTO segue_sessions (uid, epoch, name, namespace, head, parent, summary, updated_at, due_at, changed_at)
            SELECT uid, uid, name, namespace, head, $7, summary, updated_at, due_at, {NOW_MICROS} FROM input
            RETURNING uid
        ), written AS (
            SELECT i.n, i.uid FROM input i JOIN inserted s ON s.uid = i.uid
        ), {journal}
        SELECT n, uid FROM written ORDER BY n",
        journal = journal_ctes(8)
    )
});

async fn spawn_sessions(
    db: &PostgresStoreInner,
    transaction: &Transaction<'_>,
    spawned: &[PostgresEncodedChildSession],
    parent: &SessionNameAndUid,
) -> Result<(), PostgresError> {
    let names: Vec<&str> = spawned.iter().map(|child| child.session.as_str()).collect();
    for row in query(transaction, "SELECT name FROM segue_sessions WHERE name = ANY ($1)", &[&names]).await? {
        reclaim_unused_name(db, transaction, &row.get::<_, String>(0).into()).await?;
    }
    let namespaces: Vec<Option<&str>> = spawned.iter().map(|child| namespace_of(&child.session)).collect();
    let heads: Vec<i64> = spawned.iter().map(|child| child.head).collect();
    let summaries: Vec<&[u8]> = spawned.iter().map(|child| child.summary.sealed.as_slice()).collect();
    let updated_at: Vec<i64> = spawned.iter().map(|child| child.summary.updated_at).collect();
    let due_at: Vec<Option<i64>> = spawned.iter().map(|child| child.summary.due_at).collect();
    let mut journals = JournalInsertColumns::default();
    for (n, child) in (1i64..).zip(spawned) {
        journals.add(n, &child.journal);
    }
    let parent_uid = to_bigint(parent.uid.0);
    let mut values: Vec<&(dyn ToSql + Sync)> =
        vec![&names, &namespaces, &heads, &summaries, &updated_at, &due_at, &parent_uid];
    values.extend(journals.values());
    let uids: BTreeMap<i64, i64> =
        query(transaction, &SPAWN, &values).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut entries = Vec::new();
    for (n, child) in (1i64..).zip(spawned) {
        let Some(uid) = uids.get(&n) else { continue };
        let new =
            |submission| NewPostgresInboxRow { receiver: &child.session, uid: *uid, submission, sender: Some(parent) };
        entries.extend(child.entries.iter().map(new));
    }
    insert_entries(transaction, &entries).await
}
