//! Counters of one node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::PostgresStoreInner;
use super::postgres_error::PostgresError;
use super::schema::{from_bigint, now_ms, query_opt};
use crate::StoreMetrics;

/// What a node has done since it was started.
#[derive(Debug, Default)]
pub(super) struct PostgresCounters {
    takeovers: AtomicU64,
    commit_groups: AtomicU64,
    grouped_commits: AtomicU64,
    commit_micros: AtomicU64,
}

impl PostgresCounters {
    pub(super) fn count_takeover(&self) {
        self.takeovers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_group(&self, commits: usize, took: Duration) {
        self.commit_groups.fetch_add(1, Ordering::Relaxed);
        self.grouped_commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.commit_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

pub(super) async fn read_metrics(db: &PostgresStoreInner) -> Result<StoreMetrics, PostgresError> {
    let row = query_opt(
        &db.client().await?,
        &format!(
            "SELECT (SELECT count(*) FROM segue_inbox), (SELECT count(*) FROM segue_nodes WHERE expires_at > {})",
            now_ms("$1")
        ),
        &[&db.clock_offset_ms()],
    )
    .await?;
    let counters = &db.counters;
    Ok(StoreMetrics {
        takeovers: Some(counters.takeovers.load(Ordering::Relaxed)),
        commit_groups: Some(counters.commit_groups.load(Ordering::Relaxed)),
        grouped_commits: Some(counters.grouped_commits.load(Ordering::Relaxed)),
        commit_micros: Some(counters.commit_micros.load(Ordering::Relaxed)),
        inbox_entries: row.as_ref().map(|row| from_bigint(row.get(0))),
        live_nodes: row.as_ref().map(|row| from_bigint(row.get(1))),
    })
}
