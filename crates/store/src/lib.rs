//! Keeps journals: what a session recorded, in order, durably, for one writer at a time.
//!
//! Decides who may write a session and whether an append is in time. It does not know what a record means: a record is
//! bytes with a place and a time, a body is a text with an address, a summary is one row for lists and for recovery.
//! It reads no clock; every time comes from the caller.

use crate::limits::{SEQ_MAX, SESSION_ID_BYTES_MAX};
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::{BodyId, TextBody};
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

/// Where journals are kept. Every backend passes the same conformance suite.
///
/// An error that is not a refusal ([`Error::Io`], [`Error::Busy`]) from [`Store::append`] leaves open whether the commit
/// took effect: the caller claims the session again and reads.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Begins an empty session and claims it. A session nobody ever appended to and no live process holds counts as
    /// not there.
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error>;

    /// Makes the caller the one writer of `session`: its epoch rises and every older writer is fenced from now on.
    /// The own process' earlier claim never stands in the way.
    async fn acquire_lease(&self, session: &SessionId, takeover: TakeoverPolicy) -> Result<Lease, Error>;

    /// Gives an idle session back. The epoch it was held with is worth nothing afterwards.
    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<(), Error>;

    /// Adds records and the bodies they name, all or nothing, durable when it returns. Returns the new head.
    async fn append_commit(&self, commit: Commit) -> Result<Seq, Error>;

    /// At most `limit` records after `after`, gapless and in order. Needs no claim.
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error>;

    /// The last record's place of each of `sessions`, in their order; none for one that is not there. One look at the store,
    /// however many there are. Needs no claim.
    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error>;

    /// The texts of `ids`, in their order. Only bodies this session brought or was forked with.
    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error>;

    /// The newest snapshot, if there is one that can be trusted.
    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error>;

    /// Keeps a snapshot for later. One older than the kept one, or past the head, is let go without a word.
    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error>;

    /// Sessions that have a summary, newest first.
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error>;

    /// Sessions with open acts, for recovery at start, ordered by name.
    async fn sessions_with_pending_work(&self) -> Result<Vec<(SessionId, PendingWork)>, Error>;

    /// Begins a session nobody holds with the first records of another. Bodies are shared, not copied; either may be
    /// deleted without harm to the other.
    async fn fork_session(&self, fork: ForkSpec) -> Result<(), Error>;

    /// Erases a session: its records, its snapshot, and the bodies no other session uses; not only out of sight but off
    /// the disk, at the latest when the last reader of an older state is done. Refused while another live process
    /// holds it.
    async fn delete_session(&self, session: &SessionId) -> Result<(), Error>;

    /// Reads everything and tells what is damaged.
    async fn check_integrity(&self) -> Result<IntegrityReport, Error>;

    /// Finishes what is queued and gives up every claim of this process. Later calls return [`Error::Closed`].
    async fn close(&self) -> Result<(), Error>;
}

/// One event, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    /// Its place in the session.
    pub seq: Seq,
    /// When it was recorded.
    pub at: UnixMillis,
    /// The event; opaque here.
    pub bytes: Vec<u8>,
}

/// What is appended in one piece.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Which session.
    pub session: SessionId,
    /// The claim it is written under.
    pub epoch: LeaseEpoch,
    /// The head the writer believes in; its first record has the next place.
    pub expected_head: Seq,
    /// At least one.
    pub records: Vec<JournalRecord>,
    /// Texts the records name for the first time. One that is already there is not stored again.
    pub bodies: Vec<TextBody>,
    /// The bodies a record names. Asked where there are too many records to be kept together: a text is kept with the first of
    /// them that names it.
    pub extract_body_ids: fn(&JournalRecord) -> Vec<BodyId>,
    /// Replaces the session's summary, if given.
    pub summary: Option<SessionSummary>,
}

/// The right to write a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Goes with every append. Rises over the whole store and is never given twice.
    pub epoch: LeaseEpoch,
    /// The last record's place.
    pub head: Seq,
}

/// When a claim may end another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverPolicy {
    /// Only if the process that holds the session is no more.
    IfHolderDead,
    /// Always.
    Force,
}

/// One row about a session: for lists and for recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Which kind of conversation.
    pub flow: String,
    /// What a list calls it.
    pub title: String,
    /// Where it stands.
    pub phase: String,
    /// Turns so far.
    pub turns: u32,
    /// Model calls so far.
    pub calls: u32,
    /// What they cost, in millionths of a dollar, where known.
    pub cost_microusd: Option<u64>,
    /// When it began.
    pub created_at: UnixMillis,
    /// When it last changed; lists are sorted by it.
    pub updated_at: UnixMillis,
    /// Whether recovery must look at it.
    pub pending_work: PendingWork,
}

/// Whether a session has open acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingWork {
    /// Nothing is open.
    None,
    /// Something is to be done at once.
    Now,
    /// Something is to be done at that time, not before.
    At(UnixMillis),
}

/// A fold of the journal up to `seq`. A cache: may be lost at any time, never wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record folded in.
    pub seq: Seq,
    /// Which encoding `bytes` has; the caller's to number.
    pub format: u32,
    /// The state; opaque here.
    pub bytes: Vec<u8>,
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only those whose title or said texts contain this, whatever the case of letters.
    pub text: Option<String>,
    /// Only those of these flows; of any flow if there are none.
    pub flows: Vec<String>,
    /// Only those whose name begins with this.
    pub name_prefix: Option<String>,
    /// Only those after this place of the list.
    pub after_cursor: Option<SessionListCursor>,
    /// How many at most.
    pub limit: usize,
}

impl SessionQuery {
    /// Whether a session of this name and flow is among those meant.
    pub(crate) fn matches(&self, session: &SessionId, flow: &str) -> bool {
        (self.flows.is_empty() || self.flows.iter().any(|wanted| wanted == flow))
            && self.name_prefix.as_ref().is_none_or(|within| session.as_str().starts_with(within.as_str()))
    }

    /// The newest `limit` sessions of any kind.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { text: None, flows: Vec::new(), name_prefix: None, after_cursor: None, limit }
    }
}

/// A place in a list: after this session as it was then.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionListCursor {
    /// When the last listed session had changed.
    pub updated_at: UnixMillis,
    /// Its name.
    pub session: SessionId,
}

/// A stretch of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListPage {
    /// Newest first.
    pub entries: Vec<SessionListEntry>,
    /// Where the next stretch begins, if there may be one.
    pub next_cursor: Option<SessionListCursor>,
}

impl SessionListPage {
    /// A page with more to come after its last row.
    pub(crate) fn with_next_cursor(rows: Vec<SessionListEntry>) -> Self {
        let next = rows
            .last()
            .map(|row| SessionListCursor { updated_at: row.summary.updated_at, session: row.session.clone() });
        Self { entries: rows, next_cursor: next }
    }
}

/// One listed session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListEntry {
    /// Its name.
    pub session: SessionId,
    /// What is known without folding it.
    pub summary: SessionSummary,
    /// Its last record's place.
    pub head: Seq,
    /// The words around what was searched for; only in a search.
    pub excerpt: Option<String>,
}

/// Where to branch off, and what the branch is called.
#[derive(Debug, Clone)]
pub struct ForkSpec {
    /// The session to branch from.
    pub from: SessionId,
    /// The last record taken along.
    pub at_seq: Seq,
    /// The new session.
    pub to: SessionId,
    /// The new session's row: what it owes at `at` is the caller's to know.
    pub summary: SessionSummary,
    /// The bodies a record names. Asked where `at` is in the middle of a commit: what only the rest of it names stays behind.
    pub extract_body_ids: fn(&JournalRecord) -> Vec<BodyId>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntegrityReport {
    /// How many sessions were read.
    pub session_count: usize,
    /// Those that cannot be read whole, and why.
    pub damaged_sessions: Vec<(SessionId, String)>,
    /// Complaints that belong to no session.
    pub store_problems: Vec<String>,
}

impl IntegrityReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged_sessions.is_empty() && self.store_problems.is_empty()
    }
}

impl Commit {
    /// Refuses what no store may take: no records, places that do not follow the expected head, or a body under a
    /// foreign address.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let malformed = |detail: String| Err(Error::Malformed { session: self.session.clone(), detail });
        if self.records.is_empty() {
            return malformed("a commit without records".into());
        }
        if self.expected_head.0 > SEQ_MAX - self.records.len() as u64 {
            return malformed(format!("a place past {SEQ_MAX}"));
        }
        let mut due = self.expected_head;
        for record in &self.records {
            due = due.next();
            if record.seq != due {
                return malformed(format!("record {} where {due} was due", record.seq));
            }
        }
        for body in &self.bodies {
            if BodyId::hash_text(&body.text) != body.id {
                return malformed(format!("body {} is not the address of its text", body.id));
            }
        }
        Ok(())
    }

    /// The head once this is in.
    pub(crate) fn new_head(&self) -> Seq {
        self.records.last().map_or(self.expected_head, |record| record.seq)
    }
}

/// Refuses names no store may take.
pub(crate) fn validate_session_id(session: &SessionId) -> Result<(), Error> {
    let name = session.as_str();
    if name.is_empty() || name.len() > SESSION_ID_BYTES_MAX || name.contains('\0') {
        let detail = format!("a session's name has 1 to {SESSION_ID_BYTES_MAX} bytes and no NUL");
        return Err(Error::Malformed { session: session.clone(), detail });
    }
    Ok(())
}
