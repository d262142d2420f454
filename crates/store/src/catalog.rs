//! The catalog of sessions: summaries, lists, pending work and changes.

use segue_core::ids::{CHILD_SEPARATOR, Seq, SessionId, SessionUid, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::limits::LIST_SKIPPED_SESSIONS_MAX;

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

impl PendingWorkStatus {
    /// Returns when there is work to do; zero means at once.
    pub(crate) fn due_at(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Now => Some(0),
            Self::At(at) => Some(at.0.min(i64::MAX as u64)),
        }
    }

    /// The reverse of [`due_at`](Self::due_at).
    pub(crate) fn from_due_at(due_at: Option<u64>) -> Self {
        match due_at {
            None => Self::None,
            Some(0) => Self::Now,
            Some(at) => Self::At(UnixMillis(at)),
        }
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions whose title or visible texts contain this, ignoring case.
    pub text: Option<String>,
    /// Only sessions of these flows; of any flow if empty.
    pub flows: Vec<String>,
    pub name_prefix: Option<String>,
    /// Only sessions that neither another session started nor open on demand, such as workspaces.
    pub roots_only: bool,
    /// Only sessions after this one in the list.
    pub after_cursor: Option<SessionListCursor>,
    pub limit: usize,
}

impl SessionQuery {
    /// Returns whether a session of this name and flow is selected.
    pub(crate) fn matches(&self, session: &SessionId, flow: &str) -> bool {
        (self.flows.is_empty() || self.flows.iter().any(|selected| selected == flow))
            && self.name_prefix.as_ref().is_none_or(|prefix| session.as_str().starts_with(prefix.as_str()))
            && !(self.roots_only && session.as_str().contains(CHILD_SEPARATOR))
    }

    /// Selects the newest `limit` sessions.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { text: None, flows: Vec::new(), name_prefix: None, roots_only: false, after_cursor: None, limit }
    }
}

/// Returns the part of a name before its first dot. Sessions of one namespace have an index of their own.
pub(crate) fn name_namespace(name: &str) -> Option<&str> {
    name.split_once('.').map(|(namespace, _)| namespace)
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
    pub entries: Vec<StoredSessionListEntry>,
    /// Where the next page begins, if there may be one. A query skips a limited number of sessions that do not match, so
    /// a page with a cursor may have fewer entries than requested, or none.
    pub next_cursor: Option<SessionListCursor>,
}

/// Collects a page of a list, from sessions that are scanned newest first.
#[derive(Debug)]
pub(crate) struct SessionPageBuilder {
    limit: usize,
    skipped: usize,
    page: SessionListPage,
}

/// Whether the scan of a list goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionScanControl {
    Continue,
    PageComplete,
}

impl SessionPageBuilder {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, skipped: 0, page: SessionListPage { entries: Vec::new(), next_cursor: None } }
    }

    /// Adds the next session of the list if it matches the query; `entry` is missing if it does not.
    pub(crate) fn scan_next(
        &mut self,
        at: &SessionListCursor,
        entry: Option<StoredSessionListEntry>,
    ) -> SessionScanControl {
        match entry {
            Some(entry) => self.add_match(entry),
            None => self.skip(at),
        }
    }

    fn add_match(&mut self, entry: StoredSessionListEntry) -> SessionScanControl {
        if self.page.entries.len() < self.limit {
            self.page.entries.push(entry);
            return SessionScanControl::Continue;
        }
        let last = self.page.entries.last();
        self.page.next_cursor =
            last.map(|last| SessionListCursor { updated_at: last.summary.updated_at, session: last.session.clone() });
        SessionScanControl::PageComplete
    }

    fn skip(&mut self, at: &SessionListCursor) -> SessionScanControl {
        self.skipped += 1;
        if self.skipped < LIST_SKIPPED_SESSIONS_MAX {
            return SessionScanControl::Continue;
        }
        self.page.next_cursor = Some(at.clone());
        SessionScanControl::PageComplete
    }

    pub(crate) fn into_page(self) -> SessionListPage {
        self.page
    }
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSessionListEntry {
    pub session: SessionId,
    pub uid: SessionUid,
    /// The session that spawned it.
    pub parent: Option<SessionUid>,
    pub summary: SessionSummary,
    /// The sequence number of its last record.
    pub head: Seq,
    /// Whether recovery leaves the session alone, because its lease was taken over three times without progress. A
    /// submission of a client ends the quarantine.
    pub is_quarantined: bool,
    /// The text around the search result; only in a search.
    pub excerpt: Option<String>,
}

/// Which sessions with pending work to return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWorkQuery {
    /// Only sessions whose work is due at this time or earlier.
    pub due_until: UnixMillis,
    /// Only sessions after this one.
    pub after_cursor: Option<PendingWorkCursor>,
    pub limit: usize,
}

/// A position among the sessions with pending work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingWorkCursor {
    pub(crate) due_at: u64,
    pub(crate) uid: SessionUid,
}

/// A session with pending work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWithPendingWork {
    pub session: SessionId,
    pub uid: SessionUid,
    /// Never [`PendingWorkStatus::None`].
    pub pending_work: PendingWorkStatus,
}

/// Some of the sessions with pending work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWorkPage {
    /// The most urgent first.
    pub sessions: Vec<SessionWithPendingWork>,
    /// Where the next page begins, if there may be one.
    pub next_cursor: Option<PendingWorkCursor>,
}

/// A position in the changes of the session list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct SessionListChangeCursor(pub u64);

/// A change of the session list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredSessionListChange {
    /// A session was created, or its summary changed.
    Updated(StoredSessionListEntry),
    /// A session was deleted, or its deletion has begun.
    Deleted(SessionUid),
}

/// Changes of the session list, in the order of their commits. Only the last change of each session is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListChangePage {
    pub changes: Vec<StoredSessionListChange>,
    /// Where the next page begins.
    pub next_cursor: SessionListChangeCursor,
    /// Whether deletions before the first of these changes may be missing, because the cursor is too old. The reader
    /// should list the sessions again.
    pub misses_deletions: bool,
}

/// What a process has done with a store since it opened it, and how much waits in the store. A number is missing if the
/// backend does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMetrics {
    /// Leases that were taken from another process that is dead.
    pub takeovers: Option<u64>,
    /// Groups of commits that were written together.
    pub commit_groups: Option<u64>,
    /// Commits in these groups.
    pub grouped_commits: Option<u64>,
    /// How long writing these groups took altogether, in microseconds.
    pub commit_micros: Option<u64>,
    /// Entries in all inboxes of the store.
    pub inbox_entries: Option<u64>,
    /// Processes that share the store and are alive.
    pub live_nodes: Option<u64>,
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
