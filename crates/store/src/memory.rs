//! A store in memory, for tests and for the simulator. It is also the simplest implementation of what every store does.
//!
//! Everything happens inside the call, in order and without tasks or threads, so a run is reproducible. A
//! [`MemoryDisk`] outlives the [`MemoryStore`]s opened on it; dropping a store simulates the death of its process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use crate::search::SearchTerm;
use crate::{
    Error, ForkSpec, IntegrityReport, JournalCommit, JournalRecord, Lease, PendingWorkStatus, SessionListCursor,
    SessionListPage, SessionQuery, SessionSummary, Snapshot, Store, StoredSessionEntry, TakeoverPolicy,
    validate_session_id,
};

/// The data that survives the stores opened on it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<MemoryDiskState>>);

/// How the next append fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFault {
    /// It fails and writes nothing.
    BeforeCommit,
    /// It writes the commit, but returns an error.
    AfterCommit,
    DiskFull,
}

/// One process's view of a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    node: u64,
}

impl MemoryDisk {
    /// Creates an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next append fail, of any store on this disk. Several faults apply to consecutive appends.
    pub fn inject_fault(&self, fault: AppendFault) {
        self.lock().faults.push_back(fault);
    }

    /// Returns the number of bodies on the disk.
    #[must_use]
    pub fn body_count(&self) -> usize {
        self.lock().bodies.len()
    }

    /// Returns whether `text` is part of any body, record, snapshot or summary.
    #[must_use]
    pub fn contains_text(&self, text: &str) -> bool {
        let disk = self.lock();
        let has = |bytes: &[u8]| text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes());
        disk.bodies.values().any(|body| has(body.as_bytes()))
            || disk.sessions.values().any(|session| {
                session.records.iter().any(|record| has(&record.bytes))
                    || session.snapshot.as_ref().is_some_and(|snapshot| has(&snapshot.bytes))
                    || session.summary.as_ref().is_some_and(|summary| has(summary.title.as_bytes()))
            })
    }

    fn lock(&self) -> MutexGuard<'_, MemoryDiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// Opens a store on `disk`, as a new process.
    #[must_use]
    pub fn open(disk: &MemoryDisk) -> Self {
        let mut disk_state = disk.lock();
        disk_state.last_node += 1;
        let node = disk_state.last_node;
        disk_state.live_nodes.insert(node);
        drop(disk_state);
        Self { disk: disk.clone(), node }
    }

    /// Opens a store on a new disk.
    #[must_use]
    pub fn with_own_disk() -> Self {
        Self::open(&MemoryDisk::new())
    }

    /// Ends the process although handles to it remain: its leases are free, and every later call fails.
    pub fn kill(&self) {
        self.disk.lock().live_nodes.remove(&self.node);
    }

    fn lock(&self) -> Result<MutexGuard<'_, MemoryDiskState>, Error> {
        let disk = self.disk.lock();
        if disk.live_nodes.contains(&self.node) { Ok(disk) } else { Err(Error::Closed) }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Debug, Default)]
struct MemoryDiskState {
    sessions: BTreeMap<SessionId, MemorySession>,
    bodies: BTreeMap<BodyId, Arc<str>>,
    faults: VecDeque<AppendFault>,
    live_nodes: BTreeSet<u64>,
    last_node: u64,
    last_epoch: u64,
}

#[derive(Debug, Default)]
struct MemorySession {
    epoch: LeaseEpoch,
    holder: Option<u64>,
    records: Vec<JournalRecord>,
    /// The last record of each commit.
    commit_ends: BTreeSet<Seq>,
    /// The bodies that the session may read, and the first record that referred to each.
    body_first_used: BTreeMap<BodyId, Seq>,
    /// The visible bodies with the record that made each visible, in order.
    visible_bodies: Vec<(Seq, BodyId)>,
    snapshot: Option<Snapshot>,
    summary: Option<SessionSummary>,
}

impl MemorySession {
    fn head(&self) -> Seq {
        Seq(self.records.len() as u64)
    }

    fn add_body(&mut self, body: &TextToStore, since: Seq) {
        self.body_first_used.entry(body.id).or_insert(since);
        if body.kind == BodyVisibility::Conversation {
            self.visible_bodies.push((since, body.id));
        }
    }
}

impl MemoryDiskState {
    fn session(&self, session: &SessionId) -> Result<&MemorySession, Error> {
        self.sessions.get(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    fn session_mut(&mut self, session: &SessionId) -> Result<&mut MemorySession, Error> {
        self.sessions.get_mut(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    /// Returns the live process other than `node` that holds `session`.
    fn live_holder_except(&self, session: &SessionId, node: u64) -> Option<u64> {
        let holder = self.sessions.get(session)?.holder?;
        (holder != node && self.live_nodes.contains(&holder)).then_some(holder)
    }

    fn ensure_not_held(&self, session: &SessionId, node: u64) -> Result<(), Error> {
        match self.live_holder_except(session, node) {
            Some(holder) => Err(Error::HeldByOtherProcess { session: session.clone(), by: format!("node-{holder}") }),
            None => Ok(()),
        }
    }

    fn ensure_name_is_free(&self, session: &SessionId, node: u64) -> Result<(), Error> {
        let has_records = self.sessions.get(session).is_some_and(|old| !old.records.is_empty());
        if has_records || self.live_holder_except(session, node).is_some() {
            return Err(Error::SessionExists { session: session.clone() });
        }
        Ok(())
    }

    fn set_holder(&mut self, session: &SessionId, holder: Option<u64>) -> Result<Lease, Error> {
        let epoch = LeaseEpoch(self.last_epoch + 1);
        let leased = self.session_mut(session)?;
        leased.epoch = epoch;
        leased.holder = holder;
        let head = leased.head();
        self.last_epoch = epoch.0;
        Ok(Lease { epoch, head })
    }

    fn append_commit(&mut self, commit: JournalCommit) -> Result<Seq, Error> {
        let Self { sessions, bodies, .. } = self;
        let Some(session) = sessions.get_mut(&commit.session) else {
            return Err(Error::NoSuchSession { session: commit.session });
        };
        if session.epoch != commit.epoch {
            return Err(Error::Fenced { session: commit.session, epoch: commit.epoch, current: session.epoch });
        }
        if session.head() != commit.expected_head {
            return Err(Error::Conflict {
                session: commit.session,
                expected: commit.expected_head,
                head: session.head(),
            });
        }
        let first = commit.expected_head.next();
        for body in &commit.bodies {
            bodies.entry(body.id).or_insert_with(|| body.text.clone());
            session.add_body(body, first);
        }
        session.records.extend(commit.records);
        session.commit_ends.insert(session.head());
        if commit.summary.is_some() {
            session.summary = commit.summary;
        }
        Ok(session.head())
    }

    fn erase_unused_bodies(&mut self) {
        let used: BTreeSet<BodyId> =
            self.sessions.values().flat_map(|session| session.body_first_used.keys().copied()).collect();
        self.bodies.retain(|id, _| used.contains(id));
    }

    fn find_excerpt(&self, session: &MemorySession, title: &str, term: &SearchTerm) -> Option<String> {
        let find_in_texts =
            || session.visible_bodies.iter().find_map(|(_, id)| term.find_excerpt(self.bodies.get(id)?));
        term.find_excerpt(title).or_else(find_in_texts)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        validate_session_id(session)?;
        let mut disk = self.lock()?;
        disk.ensure_name_is_free(session, self.node)?;
        disk.sessions.insert(session.clone(), MemorySession::default());
        disk.set_holder(session, Some(self.node))
    }

    async fn acquire_lease(&self, session: &SessionId, takeover: TakeoverPolicy) -> Result<Lease, Error> {
        let mut disk = self.lock()?;
        disk.session(session)?;
        if takeover == TakeoverPolicy::IfHolderDead {
            disk.ensure_not_held(session, self.node)?;
        }
        disk.set_holder(session, Some(self.node))
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<(), Error> {
        let mut disk = self.lock()?;
        let current = disk.session(session)?.epoch;
        if current != epoch {
            return Err(Error::Fenced { session: session.clone(), epoch, current });
        }
        disk.set_holder(session, None).map(|_| ())
    }

    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        commit.validate()?;
        let mut disk = self.lock()?;
        let what = format!("appending to session `{}`", commit.session);
        match disk.faults.pop_front() {
            None => disk.append_commit(commit),
            Some(AppendFault::DiskFull) => Err(Error::DiskFull { what: format!("session `{}`", commit.session) }),
            Some(AppendFault::BeforeCommit) => Err(Error::Io { what, detail: "a fault before the commit".into() }),
            Some(AppendFault::AfterCommit) => {
                disk.append_commit(commit)?;
                Err(Error::Io { what, detail: "a fault after the commit".into() })
            }
        }
    }

    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        let disk = self.lock()?;
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(disk.session(session)?.records.iter().skip(skip).take(limit).cloned().collect())
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let disk = self.lock()?;
        Ok(sessions.iter().map(|session| disk.sessions.get(session).map(MemorySession::head)).collect())
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let disk = self.lock()?;
        let readable = &disk.session(session)?.body_first_used;
        ids.iter()
            .map(|id| {
                let text = readable.contains_key(id).then(|| disk.bodies.get(id)).flatten();
                text.cloned().ok_or_else(|| Error::NoSuchBody { session: session.clone(), body: *id })
            })
            .collect()
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        Ok(self.lock()?.session(session)?.snapshot.clone())
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let mut disk = self.lock()?;
        let stored = disk.session_mut(session)?;
        if snapshot.seq <= stored.head() && stored.snapshot.as_ref().is_none_or(|old| old.seq <= snapshot.seq) {
            stored.snapshot = Some(snapshot);
        }
        Ok(())
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        let disk = self.lock()?;
        let term = query.text.as_deref().map(SearchTerm::new);
        let mut found: Vec<(SessionListCursor, &MemorySession, &SessionSummary)> = disk
            .sessions
            .iter()
            .filter_map(|(id, session)| {
                let summary = session.summary.as_ref()?;
                Some((SessionListCursor { updated_at: summary.updated_at, session: id.clone() }, session, summary))
            })
            .filter(|(cursor, _, summary)| query.matches(&cursor.session, &summary.flow))
            .filter(|(cursor, _, _)| query.after_cursor.as_ref().is_none_or(|before| cursor < before))
            .collect();
        found.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        let mut rows = Vec::new();
        for (cursor, session, summary) in found {
            let excerpt = term.as_ref().map(|term| disk.find_excerpt(session, &summary.title, term));
            if excerpt == Some(None) {
                continue;
            }
            if rows.len() == query.limit {
                return Ok(SessionListPage::with_next_cursor(rows));
            }
            rows.push(StoredSessionEntry {
                session: cursor.session,
                summary: summary.clone(),
                head: session.head(),
                excerpt: excerpt.flatten(),
            });
        }
        Ok(SessionListPage { entries: rows, next_cursor: None })
    }

    async fn sessions_with_pending_work(&self) -> Result<Vec<(SessionId, PendingWorkStatus)>, Error> {
        let disk = self.lock()?;
        let pending_work_of = |session: &MemorySession| {
            session.summary.as_ref().map_or(PendingWorkStatus::None, |summary| summary.pending_work)
        };
        let all = disk.sessions.iter().map(|(id, session)| (id.clone(), pending_work_of(session)));
        Ok(all.filter(|(_, pending_work)| *pending_work != PendingWorkStatus::None).collect())
    }

    async fn fork_session(&self, fork: ForkSpec) -> Result<(), Error> {
        validate_session_id(&fork.to)?;
        let mut disk = self.lock()?;
        let parent = disk.session(&fork.from)?;
        let head = parent.head();
        if fork.at_seq > head || fork.at_seq == Seq(0) {
            return Err(Error::ForkOutOfRange { session: fork.from, at: fork.at_seq, head });
        }
        disk.ensure_name_is_free(&fork.to, self.node)?;
        let records: Vec<JournalRecord> =
            parent.records.iter().take_while(|record| record.seq <= fork.at_seq).cloned().collect();
        // The first record of the commit that is cut, if one is.
        let cut_commit_start = (!parent.commit_ends.contains(&fork.at_seq))
            .then(|| parent.commit_ends.range(..fork.at_seq).next_back().map_or(Seq(1), |end| end.next()));
        let referenced: BTreeSet<BodyId> = records
            .iter()
            .filter(|record| cut_commit_start.is_some_and(|cut_commit_start| record.seq >= cut_commit_start))
            .flat_map(fork.extract_body_ids)
            .collect();
        let is_kept = |id: &BodyId, since: Seq| {
            since <= fork.at_seq
                && (cut_commit_start.is_none_or(|cut_commit_start| since < cut_commit_start) || referenced.contains(id))
        };
        let body_first_used =
            parent.body_first_used.iter().filter(|(id, since)| is_kept(id, **since)).map(|(id, since)| (*id, *since));
        let visible_bodies = parent.visible_bodies.iter().filter(|(since, id)| is_kept(id, *since)).copied();
        let commit_ends = parent.commit_ends.range(..fork.at_seq).copied().chain([fork.at_seq]).collect();
        let (body_first_used, visible_bodies, summary) =
            (body_first_used.collect(), visible_bodies.collect(), Some(fork.summary));
        let child = MemorySession {
            records,
            commit_ends,
            body_first_used,
            visible_bodies,
            summary,
            ..MemorySession::default()
        };
        disk.sessions.insert(fork.to.clone(), child);
        disk.set_holder(&fork.to, None).map(|_| ())
    }

    async fn delete_session(&self, session: &SessionId) -> Result<(), Error> {
        let mut disk = self.lock()?;
        disk.session(session)?;
        disk.ensure_not_held(session, self.node)?;
        disk.sessions.remove(session);
        disk.erase_unused_bodies();
        Ok(())
    }

    async fn probe_write(&self) -> Result<(), Error> {
        let what = "writing".to_owned();
        match self.lock()?.faults.pop_front() {
            None => Ok(()),
            Some(AppendFault::DiskFull) => Err(Error::DiskFull { what: "the store".to_owned() }),
            Some(AppendFault::BeforeCommit | AppendFault::AfterCommit) => {
                Err(Error::Io { what, detail: "an injected fault".into() })
            }
        }
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        Ok(IntegrityReport { session_count: self.lock()?.sessions.len(), ..IntegrityReport::default() })
    }

    async fn close(&self) -> Result<(), Error> {
        self.kill();
        Ok(())
    }
}
