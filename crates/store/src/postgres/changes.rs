//! The changes of the session list, in an order that no reader can overtake.
//!
//! A commit leaves its change without a number. Who reads the changes numbers them first, in one statement that holds
//! the counter until it is durable. So a number becomes visible only after all smaller ones, and commits of several nodes
//! never wait for each other because of the numbers.

use deadpool_postgres::GenericClient;

use super::PostgresStoreInner;
use super::catalog::{LIST_COLUMNS, read_list_row};
use super::postgres_error::PostgresError;
use super::schema::{execute, from_bigint, query, query_opt, to_bigint};
use crate::limits::{CHANGES_NUMBERED_MAX, REMEMBERED_DELETIONS_MAX};
use crate::{SessionListChangeCursor, SessionListChangePage, StoredSessionListChange};
use segue_core::ids::SessionUid;

/// Rows that a commit has locked are skipped; the next reader numbers them.
const NUMBER_CHANGES: &str = "
    WITH counter AS MATERIALIZED (
        SELECT last_change FROM segue_counters WHERE id = 1 FOR UPDATE
    ), sessions AS MATERIALIZED (
        SELECT s.uid, s.changed_at FROM segue_sessions s, counter WHERE s.change IS NULL AND s.updated_at IS NOT NULL
        ORDER BY s.changed_at LIMIT $1 FOR NO KEY UPDATE OF s SKIP LOCKED
    ), deletions AS MATERIALIZED (
        SELECT d.uid, d.changed_at FROM segue_deletions d, counter WHERE d.change IS NULL
        ORDER BY d.changed_at LIMIT $1 FOR UPDATE OF d SKIP LOCKED
    ), numbered AS (
        SELECT uid, is_deletion, (SELECT last_change FROM counter) + row_number() OVER (ORDER BY changed_at) AS change
        FROM (SELECT uid, changed_at, false AS is_deletion FROM sessions
              UNION ALL SELECT uid, changed_at, true FROM deletions) c
    ), sessions_numbered AS (
        UPDATE segue_sessions s SET change = n.change FROM numbered n WHERE NOT n.is_deletion AND s.uid = n.uid
    ), deletions_numbered AS (
        UPDATE segue_deletions d SET change = n.change FROM numbered n WHERE n.is_deletion AND d.uid = n.uid
    )
    UPDATE segue_counters SET last_change = last_change + (SELECT count(*) FROM numbered) WHERE id = 1
    RETURNING (SELECT count(*) FROM numbered)";

/// Forgets the oldest deletions if there are too many.
const FORGET_DELETIONS: &str = "
    WITH forgotten AS (
        DELETE FROM segue_deletions WHERE change <=
            (SELECT change FROM segue_deletions WHERE change IS NOT NULL ORDER BY change DESC OFFSET $1 LIMIT 1)
        RETURNING change
    )
    UPDATE segue_counters SET forgotten_deletion = (SELECT max(change) FROM forgotten)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM forgotten)";

pub(super) async fn changes_after(
    db: &PostgresStoreInner,
    after: Option<SessionListChangeCursor>,
    limit: usize,
) -> Result<SessionListChangePage, PostgresError> {
    let client = db.client().await?;
    let batch = CHANGES_NUMBERED_MAX as u64;
    // A reader that begins now must not get what was changed before. One that continues gets the rest with its next page.
    while assign_change_numbers(&client, batch).await? >= batch && after.is_none() {}
    let counters =
        query_opt(&client, "SELECT last_change, forgotten_deletion FROM segue_counters WHERE id = 1", &[]).await?;
    let (last, forgotten) = counters.map_or((0, 0), |row| (from_bigint(row.get(0)), from_bigint(row.get(1))));
    let Some(after) = after else {
        return Ok(SessionListChangePage {
            changes: Vec::new(),
            next_cursor: SessionListChangeCursor(last),
            misses_deletions: false,
        });
    };
    let (bound, rows_max) = (to_bigint(after.0), to_bigint(limit as u64));
    let updated = query(
        &client,
        &format!(
            "SELECT {LIST_COLUMNS}, change FROM segue_sessions
             WHERE updated_at IS NOT NULL AND change IS NOT NULL AND change > $1 ORDER BY change LIMIT $2"
        ),
        &[&bound, &rows_max],
    )
    .await?;
    let deleted = query(
        &client,
        "SELECT change, uid FROM segue_deletions WHERE change > $1 ORDER BY change LIMIT $2",
        &[&bound, &rows_max],
    )
    .await?;
    let to_update = |row: &tokio_postgres::Row| {
        (from_bigint(row.get("change")), read_list_row(row).entry.map(StoredSessionListChange::Updated))
    };
    let to_deletion = |row: &tokio_postgres::Row| {
        (from_bigint(row.get(0)), Some(StoredSessionListChange::Deleted(SessionUid(from_bigint(row.get(1))))))
    };
    let mut changes: Vec<(u64, Option<StoredSessionListChange>)> =
        updated.iter().map(to_update).chain(deleted.iter().map(to_deletion)).collect();
    changes.sort_by_key(|(change, _)| *change);
    changes.truncate(limit);
    Ok(SessionListChangePage {
        next_cursor: changes.last().map_or(after, |(change, _)| SessionListChangeCursor(*change)),
        changes: changes.into_iter().filter_map(|(_, change)| change).collect(),
        misses_deletions: after.0 < forgotten,
    })
}

/// Numbers changes that have no number yet, at most `batch` of sessions and as many deletions. Returns how many.
async fn assign_change_numbers(client: &impl GenericClient, batch: u64) -> Result<u64, PostgresError> {
    let unnumbered = query_opt(
        client,
        "SELECT EXISTS (SELECT 1 FROM segue_sessions WHERE change IS NULL AND updated_at IS NOT NULL),
         EXISTS (SELECT 1 FROM segue_deletions WHERE change IS NULL)",
        &[],
    )
    .await?;
    let (sessions, deletions) = unnumbered.map_or((false, false), |row| (row.get(0), row.get(1)));
    let mut numbered = 0;
    if sessions || deletions {
        let row = query_opt(client, NUMBER_CHANGES, &[&to_bigint(batch)]).await?;
        numbered = row.map_or(0, |row| from_bigint(row.get(0)));
    }
    if deletions {
        execute(client, FORGET_DELETIONS, &[&to_bigint(REMEMBERED_DELETIONS_MAX as u64)]).await?;
    }
    Ok(numbered)
}
