//! Stores session journals: ordered, durable, and with one writer per session at a time.
//!
//! A store decides who may write to a session and whether an append is up to date. It does not interpret what it
//! stores: a record is bytes with a sequence number and a time, a body is a text with its hash as its id, and a summary
//! is one row for lists and for recovery. A store reads no clock; all times come from the caller.
//!
//! ```
//! use segue_core::ids::{Seq, SessionId, UnixMillis};
//! use segue_store::memory::MemoryStore;
//! use segue_store::{JournalCommit, JournalRecord, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), segue_store::Error> {
//! let store = MemoryStore::with_own_disk();
//! let session = SessionId::from("support-42");
//! let lease = store.create_session(&session).await?;
//! let record = JournalRecord { seq: Seq(1), at: UnixMillis(0), bytes: b"hello".to_vec() };
//! let commit = JournalCommit {
//!     session: session.clone(),
//!     epoch: lease.epoch,
//!     expected_head: lease.head,
//!     records: vec![record.clone()],
//!     bodies: Vec::new(),
//!     extract_body_ids: |_| Vec::new(),
//!     summary: None,
//! };
//! assert_eq!(store.append_commit(commit.clone()).await?, Seq(1));
//! assert!(store.append_commit(commit).await.is_err(), "the head is 1 by now");
//! assert_eq!(store.read_records(&session, Seq(0), 10).await?, [record]);
//! # Ok(())
//! # }
//! ```
//!
//! [`sqlite::SqliteStore`] keeps journals in a file, [`memory::MemoryStore`] in memory. Both pass the same conformance
//! suite.

use crate::limits::{SEQ_MAX, SESSION_ID_BYTES_MAX};
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::{BodyId, TextToStore};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, UnixMillis};
use serde::{Deserialize, Serialize};

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod limits;
pub mod memory;
mod search;
pub mod sqlite;

pub use error::Error;

/// A storage backend for journals. Every backend passes the same conformance suite.
///
/// If [`Store::append_commit`] fails with [`Error::Io`] or [`Error::StoreLocked`], the commit may or may not have been
/// written: the caller acquires the lease again and reads.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Creates an empty session and acquires its lease. A session without records that no live process holds counts as
    /// not existing.
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error>;

    /// Makes the caller the only writer of `session`: the epoch rises, and writers with older epochs are rejected. An
    /// earlier lease of the same process is no obstacle.
    async fn acquire_lease(&self, session: &SessionId, takeover: TakeoverPolicy) -> Result<Lease, Error>;

    /// Releases the lease of an idle session. Its epoch cannot be used afterwards.
    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<(), Error>;

    /// Appends records and the bodies they refer to, all or nothing. Durable when it returns. Returns the new head.
    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error>;

    /// Reads at most `limit` records after `after`, in order and without gaps. Needs no lease.
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error>;

    /// Returns the last sequence number of each session, in the order of `sessions`; none for a session that does not
    /// exist. One query, however many sessions there are. Needs no lease.
    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error>;

    /// Reads the texts of `ids`, in their order. Only bodies that the session stored or was forked with.
    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error>;

    /// Returns the newest snapshot, if there is an intact one.
    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error>;

    /// Saves a snapshot. One that is older than the saved one, or newer than the head, is ignored.
    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error>;

    /// Lists sessions that have a summary, newest first.
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error>;

    /// Returns the sessions with pending work, for recovery, ordered by name.
    async fn sessions_with_pending_work(&self) -> Result<Vec<(SessionId, PendingWorkStatus)>, Error>;

    /// Creates a session, without a holder, from the first records of another. Bodies are shared, not copied; each
    /// session can be deleted without affecting the other.
    async fn fork_session(&self, fork: ForkSpec) -> Result<(), Error>;

    /// Deletes a session: its records, its snapshot, and the bodies that no other session uses. The data is erased from
    /// the disk, at the latest when the last reader of an older state has finished. Refused while another live process
    /// holds the session.
    async fn delete_session(&self, session: &SessionId) -> Result<(), Error>;

    /// Checks that the store can be written, with a write that changes nothing. Durable when it returns.
    async fn probe_write(&self) -> Result<(), Error>;

    /// Reads everything and reports what is corrupted.
    async fn check_integrity(&self) -> Result<IntegrityReport, Error>;

    /// Finishes queued writes and releases all leases of this process. Later calls return [`Error::Closed`].
    async fn close(&self) -> Result<(), Error>;
}

/// One encoded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    pub seq: Seq,
    /// When it was recorded.
    pub at: UnixMillis,
    /// The event; opaque to the store.
    pub bytes: Vec<u8>,
}

/// Records that are appended together.
#[derive(Debug, Clone)]
pub struct JournalCommit {
    pub session: SessionId,
    /// The epoch of the writer's lease.
    pub epoch: LeaseEpoch,
    /// The last sequence number that the writer knows; the first record has the next one.
    pub expected_head: Seq,
    /// At least one record.
    pub records: Vec<JournalRecord>,
    /// Texts that the records refer to for the first time. One that is stored already is not stored again.
    pub bodies: Vec<TextToStore>,
    /// Returns the bodies that a record refers to. Used if the records are too many for one row: each text is then
    /// stored with the first record that refers to it.
    pub extract_body_ids: fn(&JournalRecord) -> Vec<BodyId>,
    /// Replaces the session's summary, if given.
    pub summary: Option<SessionSummary>,
}

/// The right to write to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Sent with every append. Epochs rise across the whole store and are never reused.
    pub epoch: LeaseEpoch,
    /// The sequence number of the last record.
    pub head: Seq,
}

/// When a lease may be taken from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverPolicy {
    /// Only if the process that holds the session is dead.
    IfHolderDead,
    Force,
}

/// A session's row for lists and for recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    pub flow: String,
    pub title: String,
    /// The current phase, as text.
    pub phase: String,
    pub turns: u32,
    pub calls: u32,
    /// The cost of all calls in millionths of a dollar, if known.
    pub cost_microusd: Option<u64>,
    pub created_at: UnixMillis,
    /// When the session last changed. Lists are sorted by it.
    pub updated_at: UnixMillis,
    pub pending_work: PendingWorkStatus,
}

/// Whether a session has pending effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingWorkStatus {
    None,
    /// There is work to do at once.
    Now,
    /// There is work to do at that time.
    At(UnixMillis),
}

/// A saved state, computed from the journal up to `seq`. Only a cache: it may be lost at any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that is included.
    pub seq: Seq,
    /// The encoding of `bytes`, numbered by the caller.
    pub format: u32,
    /// The state; opaque to the store.
    pub bytes: Vec<u8>,
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions whose title or visible texts contain this, ignoring case.
    pub text: Option<String>,
    /// Only sessions of these flows; of any flow if empty.
    pub flows: Vec<String>,
    pub name_prefix: Option<String>,
    /// Only sessions after this one in the list.
    pub after_cursor: Option<SessionListCursor>,
    pub limit: usize,
}

impl SessionQuery {
    /// Returns whether a session of this name and flow is selected.
    pub(crate) fn matches(&self, session: &SessionId, flow: &str) -> bool {
        (self.flows.is_empty() || self.flows.iter().any(|selected| selected == flow))
            && self.name_prefix.as_ref().is_none_or(|prefix| session.as_str().starts_with(prefix.as_str()))
    }

    /// Selects the newest `limit` sessions.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { text: None, flows: Vec::new(), name_prefix: None, after_cursor: None, limit }
    }
}

/// A position in a list: after this session, as it was then.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionListCursor {
    /// When the session had last changed.
    pub updated_at: UnixMillis,
    pub session: SessionId,
}

/// One page of a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListPage {
    /// Newest first.
    pub entries: Vec<StoredSessionEntry>,
    /// Where the next page begins, if there may be one.
    pub next_cursor: Option<SessionListCursor>,
}

impl SessionListPage {
    /// Creates a page that is followed by another.
    pub(crate) fn with_next_cursor(entries: Vec<StoredSessionEntry>) -> Self {
        let next = entries
            .last()
            .map(|entry| SessionListCursor { updated_at: entry.summary.updated_at, session: entry.session.clone() });
        Self { entries, next_cursor: next }
    }
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSessionEntry {
    pub session: SessionId,
    pub summary: SessionSummary,
    /// The sequence number of its last record.
    pub head: Seq,
    /// The text around the search result; only in a search.
    pub excerpt: Option<String>,
}

/// How to fork a session.
#[derive(Debug, Clone)]
pub struct ForkSpec {
    pub from: SessionId,
    /// The last record that is copied.
    pub at_seq: Seq,
    /// The name of the new session.
    pub to: SessionId,
    /// The new session's summary.
    pub summary: SessionSummary,
    /// Returns the bodies that a record refers to. Used if `at_seq` is in the middle of a commit: bodies that only the
    /// rest of the commit refers to are not shared.
    pub extract_body_ids: fn(&JournalRecord) -> Vec<BodyId>,
}

/// The result of an integrity check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntegrityReport {
    pub session_count: usize,
    /// The sessions that cannot be read completely, and why.
    pub damaged_sessions: Vec<(SessionId, String)>,
    /// Problems that belong to no session.
    pub store_problems: Vec<String>,
}

impl IntegrityReport {
    /// Returns whether no problem was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged_sessions.is_empty() && self.store_problems.is_empty()
    }
}

impl JournalCommit {
    /// Rejects commits that no store may accept: without records, with sequence numbers that do not follow the expected
    /// head, or with a body whose id is not the hash of its text.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let malformed = |detail: String| Err(Error::Malformed { session: self.session.clone(), detail });
        if self.records.is_empty() {
            return malformed("a commit without records".into());
        }
        if self.expected_head.0 > SEQ_MAX - self.records.len() as u64 {
            return malformed(format!("a sequence number above {SEQ_MAX}"));
        }
        let mut expected = self.expected_head;
        for record in &self.records {
            expected = expected.next();
            if record.seq != expected {
                return malformed(format!("record {} where record {expected} was expected", record.seq));
            }
        }
        for body in &self.bodies {
            if BodyId::hash_text(&body.text) != body.id {
                return malformed(format!("body id {} is not the hash of its text", body.id));
            }
        }
        Ok(())
    }

    /// Returns the head after this commit.
    pub(crate) fn new_head(&self) -> Seq {
        self.records.last().map_or(self.expected_head, |record| record.seq)
    }
}

/// Rejects names that no store may accept.
pub(crate) fn validate_session_id(session: &SessionId) -> Result<(), Error> {
    let name = session.as_str();
    if name.is_empty() || name.len() > SESSION_ID_BYTES_MAX || name.contains('\0') {
        let detail = format!("a session name must have 1 to {SESSION_ID_BYTES_MAX} bytes and no NUL");
        return Err(Error::Malformed { session: session.clone(), detail });
    }
    Ok(())
}
