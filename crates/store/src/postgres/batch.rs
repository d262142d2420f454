//! The loop that groups commits. While groups are being written, the next one collects.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use segue_core::ids::{Seq, SessionId};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::PostgresStoreInner;
use super::append::{PostgresCommit, SessionAfterAppend, append_commits};
use super::postgres_error::PostgresError;
use crate::Error;
use crate::limits::{CONCURRENT_GROUPS_MAX, CONFLICT_ATTEMPTS_MAX, GROUP_COMMIT_BYTES_MAX, GROUP_COMMIT_JOBS_MAX};

/// A commit that waits for the writer.
#[derive(Debug)]
pub(super) struct PostgresAppendJob {
    pub(super) commit: PostgresCommit,
    pub(super) reply: oneshot::Sender<Result<Seq, Error>>,
}

/// Writes commits until the store is closed. Returns when all are written.
pub(super) async fn run_writer(db: Arc<PostgresStoreInner>, mut jobs: mpsc::Receiver<PostgresAppendJob>) {
    let permits = Arc::new(Semaphore::new(CONCURRENT_GROUPS_MAX));
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let Some(job) = jobs.recv().await else { break };
            waiting.push_back(job);
        }
        // Closed never.
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        while let Ok(job) = jobs.try_recv() {
            waiting.push_back(job);
        }
        let (db, group) = (db.clone(), take_group(&mut waiting));
        tokio::spawn(async move {
            write_group(&db, group).await;
            drop(permit);
        });
    }
    // All groups have been written when all permits are back.
    let _ = permits.acquire_many(u32::try_from(CONCURRENT_GROUPS_MAX).unwrap_or(1)).await;
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
    let commits: Vec<&PostgresCommit> = group.iter().map(|job| &job.commit).collect();
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
    commits: &[&PostgresCommit],
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

fn describe_append(commit: &PostgresCommit) -> String {
    format!("appending to session `{}`", commit.session)
}
