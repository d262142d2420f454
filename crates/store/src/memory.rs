//! A store in memory: for tests, for the simulator, and the plainest statement of what every store does.
//!
//! Everything happens inside the call, in order, without tasks or threads, so a run is reproducible. A [`MemoryDisk`]
//! outlives the [`MemoryStore`]s opened on it: dropping a store is the death of its process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use segue_core::body::{Body, BodyId, BodyKind};
use segue_core::ids::{Epoch, Seq, SessionId};

use crate::search::Needle;
use crate::{
    Claim, Commit, Cursor, Error, Fork, Owes, Page, Query, Record, Report, Row, Snapshot, Store, Summary, Takeover,
    validate_name,
};

/// What survives the stores opened on it. Clones share.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

/// How the next append goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    BeforeCommit,
    /// It takes effect and fails nevertheless.
    AfterCommit,
    /// There is no room.
    Full,
}

/// One process' view of a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    node: u64,
}

impl MemoryDisk {
    /// A new, empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the next append that no earlier fault is waiting for go wrong, whichever store it comes through.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// How many bodies it holds.
    #[must_use]
    pub fn body_count(&self) -> usize {
        self.lock().bodies.len()
    }

    /// Whether `text` is in any body, record, snapshot or summary.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        let disk = self.lock();
        let has = |bytes: &[u8]| text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes());
        disk.bodies.values().any(|body| has(body.as_bytes()))
            || disk.sessions.values().any(|session| {
                session.records.iter().any(|record| has(&record.bytes))
                    || session.snapshot.as_ref().is_some_and(|snapshot| has(&snapshot.bytes))
                    || session.summary.as_ref().is_some_and(|summary| has(summary.title.as_bytes()))
            })
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// A new process on `disk`.
    #[must_use]
    pub fn open(disk: &MemoryDisk) -> Self {
        let mut inside = disk.lock();
        inside.last_node += 1;
        let node = inside.last_node;
        inside.live.insert(node);
        drop(inside);
        Self { disk: disk.clone(), node }
    }

    /// A process on a disk of its own.
    #[must_use]
    pub fn alone() -> Self {
        Self::open(&MemoryDisk::new())
    }

    /// Ends the process although handles to it remain: its claims are free, every later call fails.
    pub fn kill(&self) {
        self.disk.lock().live.remove(&self.node);
    }

    fn lock(&self) -> Result<MutexGuard<'_, Disk>, Error> {
        let disk = self.disk.lock();
        if disk.live.contains(&self.node) { Ok(disk) } else { Err(Error::Closed) }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Debug, Default)]
struct Disk {
    sessions: BTreeMap<SessionId, Session>,
    bodies: BTreeMap<BodyId, Arc<str>>,
    faults: VecDeque<Fault>,
    live: BTreeSet<u64>,
    last_node: u64,
    last_epoch: u64,
}

#[derive(Debug, Default)]
struct Session {
    epoch: Epoch,
    holder: Option<u64>,
    records: Vec<Record>,
    /// The last record of each commit.
    ends: BTreeSet<Seq>,
    /// Which bodies it may read, and since which record.
    uses: BTreeMap<BodyId, Seq>,
    /// Which bodies were said with which record, in order.
    said: Vec<(Seq, BodyId)>,
    snapshot: Option<Snapshot>,
    summary: Option<Summary>,
}

impl Session {
    fn head(&self) -> Seq {
        Seq(self.records.len() as u64)
    }

    fn note(&mut self, body: &Body, since: Seq) {
        self.uses.entry(body.id).or_insert(since);
        if body.kind == BodyKind::Said {
            self.said.push((since, body.id));
        }
    }
}

impl Disk {
    fn session(&self, session: &SessionId) -> Result<&Session, Error> {
        self.sessions.get(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    fn session_mut(&mut self, session: &SessionId) -> Result<&mut Session, Error> {
        self.sessions.get_mut(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    /// The live process other than `node` that holds `session`.
    fn other_holder(&self, session: &SessionId, node: u64) -> Option<u64> {
        let holder = self.sessions.get(session)?.holder?;
        (holder != node && self.live.contains(&holder)).then_some(holder)
    }

    fn refuse_if_held(&self, session: &SessionId, node: u64) -> Result<(), Error> {
        match self.other_holder(session, node) {
            Some(holder) => Err(Error::Held { session: session.clone(), by: format!("node-{holder}") }),
            None => Ok(()),
        }
    }

    fn refuse_if_taken(&self, session: &SessionId, node: u64) -> Result<(), Error> {
        let begun = self.sessions.get(session).is_some_and(|old| !old.records.is_empty());
        if begun || self.other_holder(session, node).is_some() {
            return Err(Error::Exists { session: session.clone() });
        }
        Ok(())
    }

    fn reign(&mut self, session: &SessionId, holder: Option<u64>) -> Result<Claim, Error> {
        let epoch = Epoch(self.last_epoch + 1);
        let held = self.session_mut(session)?;
        held.epoch = epoch;
        held.holder = holder;
        let head = held.head();
        self.last_epoch = epoch.0;
        Ok(Claim { epoch, head })
    }

    fn append(&mut self, commit: Commit) -> Result<Seq, Error> {
        let Self { sessions, bodies, .. } = self;
        let Some(session) = sessions.get_mut(&commit.session) else {
            return Err(Error::NoSuchSession { session: commit.session });
        };
        if session.epoch != commit.epoch {
            return Err(Error::Fenced { session: commit.session, epoch: commit.epoch, current: session.epoch });
        }
        if session.head() != commit.expected {
            return Err(Error::Conflict { session: commit.session, expected: commit.expected, head: session.head() });
        }
        let first = commit.expected.next();
        for body in &commit.bodies {
            bodies.entry(body.id).or_insert_with(|| body.text.clone());
            session.note(body, first);
        }
        session.records.extend(commit.records);
        session.ends.insert(session.head());
        if commit.summary.is_some() {
            session.summary = commit.summary;
        }
        Ok(session.head())
    }

    fn erase_unused_bodies(&mut self) {
        let used: BTreeSet<BodyId> = self.sessions.values().flat_map(|session| session.uses.keys().copied()).collect();
        self.bodies.retain(|id, _| used.contains(id));
    }

    fn excerpt(&self, session: &Session, title: &str, needle: &Needle) -> Option<String> {
        let in_texts = || session.said.iter().find_map(|(_, id)| needle.excerpt(self.bodies.get(id)?));
        needle.excerpt(title).or_else(in_texts)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, session: &SessionId) -> Result<Claim, Error> {
        validate_name(session)?;
        let mut disk = self.lock()?;
        disk.refuse_if_taken(session, self.node)?;
        disk.sessions.insert(session.clone(), Session::default());
        disk.reign(session, Some(self.node))
    }

    async fn claim(&self, session: &SessionId, takeover: Takeover) -> Result<Claim, Error> {
        let mut disk = self.lock()?;
        disk.session(session)?;
        if takeover == Takeover::IfDead {
            disk.refuse_if_held(session, self.node)?;
        }
        disk.reign(session, Some(self.node))
    }

    async fn release(&self, session: &SessionId, epoch: Epoch) -> Result<(), Error> {
        let mut disk = self.lock()?;
        let current = disk.session(session)?.epoch;
        if current != epoch {
            return Err(Error::Fenced { session: session.clone(), epoch, current });
        }
        disk.reign(session, None).map(|_| ())
    }

    async fn append(&self, commit: Commit) -> Result<Seq, Error> {
        commit.validate()?;
        let mut disk = self.lock()?;
        let what = format!("appending to session `{}`", commit.session);
        match disk.faults.pop_front() {
            None => disk.append(commit),
            Some(Fault::Full) => Err(Error::Full { what: format!("session `{}`", commit.session) }),
            Some(Fault::BeforeCommit) => Err(Error::Io { what, detail: "a fault before the commit".into() }),
            Some(Fault::AfterCommit) => {
                disk.append(commit)?;
                Err(Error::Io { what, detail: "a fault after the commit".into() })
            }
        }
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        let disk = self.lock()?;
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(disk.session(session)?.records.iter().skip(skip).take(limit).cloned().collect())
    }

    async fn heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let disk = self.lock()?;
        Ok(sessions.iter().map(|session| disk.sessions.get(session).map(Session::head)).collect())
    }

    async fn bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let disk = self.lock()?;
        let uses = &disk.session(session)?.uses;
        ids.iter()
            .map(|id| {
                let text = uses.contains_key(id).then(|| disk.bodies.get(id)).flatten();
                text.cloned().ok_or_else(|| Error::NoSuchBody { session: session.clone(), body: *id })
            })
            .collect()
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        Ok(self.lock()?.session(session)?.snapshot.clone())
    }

    async fn keep_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let mut disk = self.lock()?;
        let kept = disk.session_mut(session)?;
        if snapshot.seq <= kept.head() && kept.snapshot.as_ref().is_none_or(|old| old.seq <= snapshot.seq) {
            kept.snapshot = Some(snapshot);
        }
        Ok(())
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let disk = self.lock()?;
        let needle = query.text.as_deref().map(Needle::new);
        let mut found: Vec<(Cursor, &Session, &Summary)> = disk
            .sessions
            .iter()
            .filter_map(|(id, session)| {
                let summary = session.summary.as_ref()?;
                Some((Cursor { updated: summary.updated, session: id.clone() }, session, summary))
            })
            .filter(|(place, _, summary)| query.picks(&place.session, &summary.flow))
            .filter(|(place, _, _)| query.before.as_ref().is_none_or(|before| place < before))
            .collect();
        found.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        let mut rows = Vec::new();
        for (place, session, summary) in found {
            let excerpt = needle.as_ref().map(|needle| disk.excerpt(session, &summary.title, needle));
            if excerpt == Some(None) {
                continue;
            }
            if rows.len() == query.limit {
                return Ok(Page::cut(rows));
            }
            rows.push(Row {
                session: place.session,
                summary: summary.clone(),
                head: session.head(),
                excerpt: excerpt.flatten(),
            });
        }
        Ok(Page { rows, next: None })
    }

    async fn owing(&self) -> Result<Vec<(SessionId, Owes)>, Error> {
        let disk = self.lock()?;
        let owes = |session: &Session| session.summary.as_ref().map_or(Owes::Nothing, |summary| summary.owes);
        let all = disk.sessions.iter().map(|(id, session)| (id.clone(), owes(session)));
        Ok(all.filter(|(_, owes)| *owes != Owes::Nothing).collect())
    }

    async fn fork(&self, fork: Fork) -> Result<(), Error> {
        validate_name(&fork.to)?;
        let mut disk = self.lock()?;
        let parent = disk.session(&fork.from)?;
        let head = parent.head();
        if fork.at > head || fork.at == Seq(0) {
            return Err(Error::PastHead { session: fork.from, at: fork.at, head });
        }
        disk.refuse_if_taken(&fork.to, self.node)?;
        let records: Vec<Record> = parent.records.iter().take_while(|record| record.seq <= fork.at).cloned().collect();
        // Where the commit begins that is cut, if one is.
        let cut = (!parent.ends.contains(&fork.at))
            .then(|| parent.ends.range(..fork.at).next_back().map_or(Seq(1), |end| end.next()));
        let named: BTreeSet<BodyId> =
            records.iter().filter(|record| cut.is_some_and(|cut| record.seq >= cut)).flat_map(fork.names).collect();
        let stays =
            |id: &BodyId, since: Seq| since <= fork.at && (cut.is_none_or(|cut| since < cut) || named.contains(id));
        let uses = parent.uses.iter().filter(|(id, since)| stays(id, **since)).map(|(id, since)| (*id, *since));
        let said = parent.said.iter().filter(|(since, id)| stays(id, *since)).copied();
        let ends = parent.ends.range(..fork.at).copied().chain([fork.at]).collect();
        let (uses, said, summary) = (uses.collect(), said.collect(), Some(fork.summary));
        let child = Session { records, ends, uses, said, summary, ..Session::default() };
        disk.sessions.insert(fork.to.clone(), child);
        disk.reign(&fork.to, None).map(|_| ())
    }

    async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        let mut disk = self.lock()?;
        disk.session(session)?;
        disk.refuse_if_held(session, self.node)?;
        disk.sessions.remove(session);
        disk.erase_unused_bodies();
        Ok(())
    }

    async fn check(&self) -> Result<Report, Error> {
        Ok(Report { sessions: self.lock()?.sessions.len(), ..Report::default() })
    }

    async fn close(&self) -> Result<(), Error> {
        self.kill();
        Ok(())
    }
}
