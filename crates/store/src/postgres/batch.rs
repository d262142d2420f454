//! The loop that groups commits. While groups are being written, the next one collects.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use segue_core::ids::{Seq, SessionId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::PostgresStoreInner;
use super::append::{PostgresEncodedCommit, SessionAfterAppend, append_commits};
use super::postgres_error::PostgresError;
use crate::Error;
use crate::limits::{
    CONCURRENT_GROUPS_MAX, CONFLICT_ATTEMPTS_MAX, FURTHER_GROUP_COMMITS_MIN, GROUP_COMMIT_BYTES_MAX,
    GROUP_COMMIT_JOBS_MAX, UNGROUPED_COMMITS_MAX,
};

/// A commit that waits for the writer.
#[derive(Debug)]
pub(super) struct PostgresAppendJob {
    pub(super) commit: PostgresEncodedCommit,
    pub(super) reply: oneshot::Sender<Result<Seq, Error>>,
}

/// Writes commits until the store is closed. Returns when all are written.
pub(super) async fn run_writer(db: Arc<PostgresStoreInner>, mut jobs: mpsc::Receiver<PostgresAppendJob>) {
    let commits_in_flight = Arc::new(AtomicUsize::new(0));
    let mut groups = JoinSet::new();
    let mut waiting = VecDeque::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() || !groups.is_empty() {
        while let Ok(job) = jobs.try_recv() {
            waiting.push_back(job);
        }
        if may_start_group(groups.len(), commits_in_flight.load(Ordering::Relaxed), waiting.len()) {
            let (db, group) = (db.clone(), take_group(&mut waiting));
            let in_flight = CommitsInFlight::begin(&commits_in_flight, group.len());
            groups.spawn(async move {
                write_group(&db, group).await;
                drop(in_flight);
            });
            continue;
        }
        tokio::select! {
            job = jobs.recv(), if is_open => match job {
                Some(job) => waiting.push_back(job),
                None => is_open = false,
            },
            Some(_) = groups.join_next() => {}
        }
    }
}

/// Returns whether waiting commits are written now. While one group is being written, a second one begins only if
/// collecting would not pay: if there are few commits at all, so that each would only wait, or if so many wait that the
/// costs of a transaction do not matter.
fn may_start_group(groups: usize, commits_in_flight: usize, waiting: usize) -> bool {
    let is_worthwhile = commits_in_flight + waiting <= UNGROUPED_COMMITS_MAX || waiting >= FURTHER_GROUP_COMMITS_MIN;
    waiting > 0 && (groups == 0 || groups < CONCURRENT_GROUPS_MAX && is_worthwhile)
}

/// Counts the commits of a group while it is being written, also if that panics.
struct CommitsInFlight {
    total: Arc<AtomicUsize>,
    commits: usize,
}

impl CommitsInFlight {
    fn begin(total: &Arc<AtomicUsize>, commits: usize) -> Self {
        total.fetch_add(commits, Ordering::Relaxed);
        Self { total: total.clone(), commits }
    }
}

impl Drop for CommitsInFlight {
    fn drop(&mut self) {
        self.total.fetch_sub(self.commits, Ordering::Relaxed);
    }
}

/// Takes the oldest commits, at most one per session: a later one follows the head that the earlier one sets.
fn take_group(waiting: &mut VecDeque<PostgresAppendJob>) -> Vec<PostgresAppendJob> {
    let (mut group, mut left) = (Vec::new(), VecDeque::new());
    let mut sessions: BTreeSet<SessionId> = BTreeSet::new();
    let mut bytes = 0;
    while let Some(job) = waiting.pop_front() {
        let is_full = group.len() >= GROUP_COMMIT_JOBS_MAX || bytes >= GROUP_COMMIT_BYTES_MAX;
        if is_full || !sessions.insert(job.commit.session.clone()) {
            left.push_back(job);
            continue;
        }
        bytes += job.commit.byte_len();
        group.push(job);
    }
    *waiting = left;
    // Nodes that write the same sessions update them in the same order, and so do not wait for each other in a circle.
    group.sort_by(|a, b| a.commit.session.cmp(&b.commit.session));
    group
}

async fn write_group(db: &PostgresStoreInner, group: Vec<PostgresAppendJob>) {
    let started = Instant::now();
    let commits: Vec<&PostgresEncodedCommit> = group.iter().map(|job| &job.commit).collect();
    let results = match append_with_retry(db, &commits).await {
        Ok(results) => results,
        // The server refused the statement because of one of the commits: each is tried alone.
        Err(PostgresError::Sql(error)) if error.as_db_error().is_some() && commits.len() > 1 => {
            let mut results = Vec::with_capacity(commits.len());
            for commit in &commits {
                results.push(match append_with_retry(db, &[commit]).await {
                    Ok(mut results) => results.pop().unwrap_or(Err(Error::WriterStopped)),
                    Err(error) => Err(error.into_store_error(&describe_append(commit))),
                });
            }
            results
        }
        Err(error) => {
            let error = error.into_store_error("appending a group of commits");
            commits.iter().map(|_| Err(error.clone())).collect()
        }
    };
    db.counters.count_group(group.len(), started.elapsed());
    for (job, result) in group.into_iter().zip(results) {
        // The caller may be gone.
        let _ = job.reply.send(result.map(|_| job.commit.head));
    }
}

async fn append_with_retry(
    db: &PostgresStoreInner,
    commits: &[&PostgresEncodedCommit],
) -> Result<Vec<Result<SessionAfterAppend, Error>>, PostgresError> {
    let mut attempt = 1;
    loop {
        let client = db.writer_pool.get().await?;
        match append_commits(db, &client, commits).await {
            Err(error) if error.is_transaction_conflict() && attempt < CONFLICT_ATTEMPTS_MAX => attempt += 1,
            result => return result,
        }
    }
}

fn describe_append(commit: &PostgresEncodedCommit) -> String {
    format!("appending to session `{}`", commit.session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_group_begins_only_if_collecting_does_not_pay() {
        assert!(!may_start_group(0, 0, 0), "nothing waits");
        assert!(may_start_group(0, 0, 1));
        assert!(may_start_group(1, 1, 1), "few sessions do not wait for each other");
        assert!(!may_start_group(1, 20, 3), "the next group collects meanwhile");
        assert!(!may_start_group(1, 3, 20));
        assert!(may_start_group(1, 40, FURTHER_GROUP_COMMITS_MIN));
        assert!(!may_start_group(CONCURRENT_GROUPS_MAX, 40, 100), "there is no connection left");
    }
}
