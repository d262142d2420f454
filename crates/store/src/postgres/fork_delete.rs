//! Forking and deleting sessions.

use deadpool_postgres::GenericClient;
use segue_core::ids::{Seq, SessionId, SessionUid};

use super::PostgresStoreInner;
use super::append::journal_scope;
use super::inbox::deliver;
use super::leases::{begin, set_holder};
use super::nodes::send_heartbeat_if_due;
use super::postgres_error::{PostgresError, corrupted};
use super::schema::{NOW_MICROS, execute, from_bigint, query, query_opt, to_bigint};
use super::session_row::{
    PostgresEncodedSessionSummary, RowLock, find_session_name, load_session_row, namespace_of, reclaim_unused_name,
};
use crate::{Error, Lease, LeaseTakeoverPolicy, NewInboxSubmission, SessionForkSpec, encoding};

/// Copies the rows of the journal up to `fork.at_seq`; the last row is cut if necessary.
pub(super) async fn fork_session(db: &PostgresStoreInner, fork: &SessionForkSpec) -> Result<SessionUid, PostgresError> {
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let origin = load_session_row(&transaction, &fork.from, RowLock::Share).await?;
    origin.ensure_not_being_deleted(&fork.from)?;
    if fork.at_seq > origin.head || fork.at_seq == Seq(0) {
        let (session, at, head) = (fork.from.clone(), fork.at_seq, origin.head);
        return Err(Error::ForkOutOfRange { session, at, head }.into());
    }
    reclaim_unused_name(db, &transaction, &fork.to).await?;
    let (summary, at) = (PostgresEncodedSessionSummary::new(&fork.to, &fork.summary), to_bigint(fork.at_seq.0));
    let row = query_opt(
        &transaction,
        &format!(
            "INSERT INTO segue_sessions (uid, epoch, name, namespace, head, summary, updated_at, due_at, changed_at)
             SELECT u.id, u.id, $1, $2, $3, $4, $5, $6, {NOW_MICROS}
             FROM (SELECT nextval('segue_epochs') AS id OFFSET 0) u RETURNING uid"
        ),
        &[&fork.to.as_str(), &namespace_of(&fork.to), &at, &summary.sealed, &summary.updated_at, &summary.due_at],
    )
    .await?;
    let uid: i64 = row.map_or(0, |row| row.get(0));
    let last = query_opt(
        &transaction,
        "SELECT first, data FROM segue_journal WHERE session = $1 AND first <= $2 ORDER BY first DESC LIMIT 1",
        &[&origin.uid, &at],
    )
    .await?;
    let Some(last) = last else { return Err(corrupted(&fork.from, "its first record is missing".into())) };
    let (first, data): (i64, Vec<u8>) = (last.get(0), last.get(1));
    let (scope, first_seq) = (journal_scope(), Seq(from_bigint(first)));
    let mut records =
        encoding::unseal_records(&scope, first_seq, &data).map_err(|detail| corrupted(&fork.from, detail))?;
    records.retain(|record| record.seq <= fork.at_seq);
    execute(
        &transaction,
        "INSERT INTO segue_journal (session, first, data)
         SELECT $2, first, data FROM segue_journal WHERE session = $1 AND first < $3",
        &[&origin.uid, &uid, &first],
    )
    .await?;
    execute(
        &transaction,
        "INSERT INTO segue_journal (session, first, data) VALUES ($1, $2, $3)",
        &[&uid, &first, &encoding::seal_records(&scope, first_seq, &records)],
    )
    .await?;
    execute(
        &transaction,
        // A session that owns a text may share it, too, if the text became its own while it was about to share it.
        "INSERT INTO segue_shares (session, hash, first_used, visible_from, position)
         SELECT $2, hash, min(first_used), min(visible_from) FILTER (WHERE visible_from <= $3),
             (array_agg(position ORDER BY visible_from))[1]
         FROM (
             SELECT hash, first_used, visible_from, position FROM segue_bodies WHERE owner = $1
             UNION ALL SELECT hash, first_used, visible_from, position FROM segue_shares WHERE session = $1
         ) used WHERE first_used <= $3 GROUP BY hash ORDER BY hash",
        &[&origin.uid, &uid, &at],
    )
    .await?;
    transaction.commit().await?;
    Ok(SessionUid(from_bigint(uid)))
}

/// Marks a session for deletion. It disappears from all lists.
pub(super) async fn begin_delete(db: &PostgresStoreInner, session: &SessionId) -> Result<Lease, PostgresError> {
    send_heartbeat_if_due(db).await?;
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let session_row = load_session_row(&transaction, session, RowLock::Update).await?;
    session_row.ensure_not_held(db, &transaction, session, LeaseTakeoverPolicy::IfHolderDead).await?;
    if !session_row.is_being_deleted {
        remember_deletion(&transaction, session_row.uid).await?;
        execute(
            &transaction,
            "UPDATE segue_sessions SET is_being_deleted = true, updated_at = NULL, due_at = NULL WHERE uid = $1",
            &[&session_row.uid],
        )
        .await?;
    }
    let lease = set_holder(db, &transaction, &session_row).await?;
    transaction.commit().await?;
    Ok(lease)
}

/// Deletes a session and the bodies that no other session uses. If another node begins to use one of them meanwhile, the
/// foreign key of `segue_shares` makes one of the two transactions fail, and it is tried again.
pub(super) async fn delete_session(
    db: &PostgresStoreInner,
    session: &SessionId,
    notice_to_parent: Option<&NewInboxSubmission>,
) -> Result<(), PostgresError> {
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let session_row = load_session_row(&transaction, session, RowLock::Delete).await?;
    session_row.ensure_not_held(db, &transaction, session, LeaseTakeoverPolicy::IfHolderDead).await?;
    let uid = session_row.uid;
    let child = query(&transaction, "SELECT 1 FROM segue_sessions WHERE parent = $1 LIMIT 1", &[&uid]).await?;
    if !child.is_empty() {
        return Err(Error::HasChildren { session: session.clone() }.into());
    }
    release_bodies(&transaction, uid).await?;
    for statement in [
        "DELETE FROM segue_journal WHERE session = $1",
        "DELETE FROM segue_snapshots WHERE session = $1",
        "DELETE FROM segue_inbox WHERE session = $1",
        "DELETE FROM segue_outcomes WHERE session = $1",
        "DELETE FROM segue_sessions WHERE uid = $1",
    ] {
        execute(&transaction, statement, &[&uid]).await?;
    }
    if !session_row.is_being_deleted {
        remember_deletion(&transaction, uid).await?;
    }
    let parent = match session_row.parent {
        Some(parent) => find_session_name(&transaction, parent).await?,
        None => None,
    };
    if let Some((parent, notice)) = parent.zip(notice_to_parent) {
        let notice = NewInboxSubmission { exempt_from_limit: true, ..notice.clone() };
        let sender = session_row.name_and_uid(session);
        // A parent that is being deleted needs no notice.
        let _ = deliver(db, &transaction, &parent, session_row.parent_uid(), &notice, Some(&sender)).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Ends a session's use of all bodies. One that other sessions use gets one of them as its new owner; the others are
/// deleted.
///
/// Rows are locked in the order of their hashes, because two sessions that share bodies may be deleted at once. The order
/// of the statements matters, too: if the owner of a body is deleted meanwhile, the first one waits until it is known
/// whether this session is the new owner.
async fn release_bodies(client: &impl GenericClient, uid: i64) -> Result<(), PostgresError> {
    for statement in [
        "WITH own AS MATERIALIZED (SELECT hash FROM segue_shares WHERE session = $1 ORDER BY hash FOR UPDATE)
         DELETE FROM segue_shares s USING own WHERE s.session = $1 AND s.hash = own.hash",
        // A share that its session deletes meanwhile is not among the heirs when its lock is free.
        "WITH heirs AS MATERIALIZED (
             SELECT s.* FROM segue_shares s JOIN (
                 SELECT s.hash, min(s.session) AS session FROM segue_bodies b JOIN segue_shares s ON s.hash = b.hash
                 WHERE b.owner = $1 GROUP BY s.hash
             ) h ON s.session = h.session AND s.hash = h.hash ORDER BY s.hash FOR UPDATE OF s
         ), deleted AS (
             DELETE FROM segue_shares s USING heirs h WHERE s.session = h.session AND s.hash = h.hash
         )
         UPDATE segue_bodies b SET owner = h.session, first_used = h.first_used, visible_from = h.visible_from,
             position = h.position
         FROM heirs h WHERE b.hash = h.hash",
        "WITH own AS MATERIALIZED (SELECT hash FROM segue_bodies WHERE owner = $1 ORDER BY hash FOR UPDATE)
         DELETE FROM segue_bodies b USING own WHERE b.hash = own.hash",
    ] {
        execute(client, statement, &[&uid]).await?;
    }
    Ok(())
}

/// Adds a deletion to the changes of the session list. It gets its number when somebody reads the changes.
async fn remember_deletion(client: &impl GenericClient, uid: i64) -> Result<(), PostgresError> {
    let sql = format!("INSERT INTO segue_deletions (uid, changed_at) VALUES ($1, {NOW_MICROS})");
    execute(client, &sql, &[&uid]).await?;
    Ok(())
}
