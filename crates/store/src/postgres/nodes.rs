//! The rows of nodes: heartbeats by the database's clock, and whether the holder of a session is alive.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use deadpool_postgres::GenericClient;
use segue_core::ids::{LeaseEpoch, SessionId, UnixMillis};

use super::PostgresStoreInner;
use super::postgres_error::PostgresError;
use super::schema::{execute, from_bigint, now_ms, query, query_opt, to_bigint};
use super::shared_tables::prune_shared_rows;
use crate::limits::{
    DEAD_NODE_RETENTION_MS, HEARTBEATS_PER_PRUNING, HOST_NAME_BYTES_MAX, OUTCOME_RETENTION_MS, OUTCOMES_PRUNED_MAX,
    SHUTDOWN_MS_MAX,
};
use crate::{LeaseRenewalResult, LostLease};

/// The holder of a session, as another node sees it.
pub(super) struct LeaseHolderStatus {
    pub(super) name: String,
    /// Whether its leases have expired.
    pub(super) is_expired: bool,
}

/// Returns a name made of the host's name and the process id.
pub(super) fn default_node_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut host = host.trim().to_owned();
    host.truncate(HOST_NAME_BYTES_MAX);
    let host = if host.is_empty() { "node".to_owned() } else { host };
    format!("{host}-{}", std::process::id())
}

/// Returns a number that no node ever had.
pub(super) async fn next_node_number(db: &PostgresStoreInner) -> Result<i64, PostgresError> {
    Ok(db.client().await?.query_one("SELECT nextval('segue_epochs')", &[]).await?.get(0))
}

/// Extends the leases of this node.
pub(super) async fn send_heartbeat(db: &PostgresStoreInner) -> Result<(), PostgresError> {
    let client = db.client().await?;
    let (sent_at, offset) = (Instant::now(), db.clock_offset_ms());
    let row = query_opt(
        &client,
        &format!(
            "INSERT INTO segue_nodes (node, name, address, expires_at) VALUES ($1, $2, $3, {now} + $4)
             ON CONFLICT (node) DO UPDATE SET expires_at = excluded.expires_at RETURNING expires_at",
            now = now_ms("$5")
        ),
        &[&db.node, &db.node_name, &db.node_address, &to_bigint(db.lease_ms), &offset],
    )
    .await?;
    if let Some(row) = row {
        db.expires_at.store(row.get(0), Ordering::Release);
    }
    *db.last_heartbeat.lock().unwrap_or_else(PoisonError::into_inner) = Some((sent_at, offset));
    if db.heartbeats.fetch_add(1, Ordering::Relaxed).is_multiple_of(HEARTBEATS_PER_PRUNING) {
        prune_outdated_rows(db, &client).await?;
    }
    Ok(())
}

/// Sends a heartbeat if half of the lease has passed since the last one, so that a new lease does not begin expired.
pub(super) async fn send_heartbeat_if_due(db: &PostgresStoreInner) -> Result<(), PostgresError> {
    let last = *db.last_heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
    let is_recent = last.is_some_and(|(at, offset)| {
        let advanced = Duration::from_millis(from_bigint(db.clock_offset_ms() - offset));
        at.elapsed() + advanced < Duration::from_millis(db.lease_ms / 2)
    });
    if is_recent { Ok(()) } else { send_heartbeat(db).await }
}

/// Returns when the leases of this node expire.
pub(super) fn lease_expiry(db: &PostgresStoreInner) -> UnixMillis {
    UnixMillis(from_bigint(db.expires_at.load(Ordering::Acquire)))
}

/// Sends a heartbeat and finds out which leases are lost. A lease that this node has acquired again meanwhile is not.
pub(super) async fn renew_leases(
    db: &PostgresStoreInner,
    held: &[(SessionId, LeaseEpoch)],
) -> Result<LeaseRenewalResult, PostgresError> {
    send_heartbeat(db).await?;
    let mut renewal = LeaseRenewalResult { expires_at: Some(lease_expiry(db)), lost: Vec::new() };
    if held.is_empty() {
        return Ok(renewal);
    }
    let names: Vec<&str> = held.iter().map(|(session, _)| session.as_str()).collect();
    let epochs: Vec<i64> = held.iter().map(|(_, epoch)| to_bigint(epoch.0)).collect();
    let lost = query(
        &db.client().await?,
        "SELECT h.name, h.epoch, s.epoch FROM unnest($1::text[], $2::bigint[]) AS h (name, epoch)
         LEFT JOIN segue_sessions s ON s.name = h.name
         WHERE s.epoch IS DISTINCT FROM h.epoch AND s.holder IS DISTINCT FROM $3",
        &[&names, &epochs, &db.node],
    )
    .await?;
    renewal.lost.extend(lost.iter().map(|row| LostLease {
        session: row.get::<_, String>(0).into(),
        epoch: LeaseEpoch(from_bigint(row.get(1))),
        current: row.get::<_, Option<i64>>(2).map(|epoch| LeaseEpoch(from_bigint(epoch))),
    }));
    Ok(renewal)
}

/// Returns the status of another node that holds a session; none if it has ended.
pub(super) async fn find_other_holder(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    holder: Option<i64>,
) -> Result<Option<LeaseHolderStatus>, PostgresError> {
    let Some(holder) = holder.filter(|holder| *holder != db.node) else { return Ok(None) };
    let row = query_opt(
        client,
        &format!("SELECT name, expires_at <= {} FROM segue_nodes WHERE node = $1", now_ms("$2")),
        &[&holder, &db.clock_offset_ms()],
    )
    .await?;
    Ok(row.map(|row| LeaseHolderStatus { name: row.get(0), is_expired: row.get(1) }))
}

/// Returns where to reach the live nodes, other than this one, that hold sessions.
pub(super) async fn find_holder_addresses(
    db: &PostgresStoreInner,
    sessions: &[SessionId],
) -> Result<Vec<Option<String>>, PostgresError> {
    let names: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
    let rows = query(
        &db.client().await?,
        &format!(
            "SELECT s.name, n.address FROM segue_sessions s JOIN segue_nodes n ON n.node = s.holder
             WHERE s.name = ANY ($1) AND n.node <> $2 AND n.address IS NOT NULL AND n.expires_at > {}",
            now_ms("$3")
        ),
        &[&names, &db.node, &db.clock_offset_ms()],
    )
    .await?;
    let addresses: BTreeMap<String, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(names.iter().map(|name| addresses.get(*name).cloned()).collect())
}

/// Removes the row of this node, which ends its leases. If the database is gone, they expire.
pub(super) async fn remove_node(db: &PostgresStoreInner) {
    let removal = async {
        let client = db.client().await?;
        execute(&client, "DELETE FROM segue_nodes WHERE node = $1", &[&db.node]).await
    };
    let removed = tokio::time::timeout(Duration::from_millis(SHUTDOWN_MS_MAX), removal).await;
    if !matches!(removed, Ok(Ok(_))) {
        tracing::warn!(node = db.node_name, "cannot remove the row of this node; its leases end when they expire");
    }
}

/// Deletes some outcomes that are too old to be read, and nodes that have been dead for long.
async fn prune_outdated_rows(db: &PostgresStoreInner, client: &impl GenericClient) -> Result<(), PostgresError> {
    let offset = db.clock_offset_ms();
    execute(
        client,
        &format!(
            "DELETE FROM segue_outcomes WHERE (session, submission) IN (SELECT session, submission FROM segue_outcomes
             WHERE at < {} - $2 ORDER BY at LIMIT $3)",
            now_ms("$1")
        ),
        &[&offset, &to_bigint(OUTCOME_RETENTION_MS), &OUTCOMES_PRUNED_MAX],
    )
    .await?;
    execute(
        client,
        &format!("DELETE FROM segue_nodes WHERE node <> $3 AND expires_at < {} - $2", now_ms("$1")),
        &[&offset, &to_bigint(DEAD_NODE_RETENTION_MS), &db.node],
    )
    .await?;
    prune_shared_rows(db, client).await
}
