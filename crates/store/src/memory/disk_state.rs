//! The data of a memory disk, and the operations on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use segue_core::body::{BodyId, BodyVisibility};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId, UnixMillis};

use super::{InjectedAppendFault, shared_tables::InMemorySharedState};
use crate::catalog::{SessionPageBuilder, SessionScanControl, name_namespace};
use crate::clock::StoreClock;
use crate::commit::CommittedTextBody;
use crate::inbox::{InboxSize, InboxSubmitterKind, submission_digest};
use crate::limits::{OUTCOME_RETENTION_MS, REMEMBERED_DELETIONS_MAX, TAKEOVERS_WITHOUT_PROGRESS_MAX};
use crate::search::PreparedSearchTerm;
use crate::{
    Error, InboxEmptiness, InboxEntry, InboxSubmissionStatus, JournalCommit, JournalRecord, Lease, LeaseRenewalResult,
    LeaseTakeoverPolicy, LostLease, NewInboxSubmission, OutgoingInboxSubmission, PendingWorkCursor, PendingWorkPage,
    PendingWorkQuery, PendingWorkStatus, SessionForkSpec, SessionListChangeCursor, SessionListChangePage,
    SessionListCursor, SessionListPage, SessionNameAndUid, SessionQuery, SessionSummary, SessionWithPendingWork,
    Snapshot, SpawnedSession, StoredSessionListChange, StoredSessionListEntry,
};

#[derive(Debug)]
pub(super) struct InMemoryStoreDiskState {
    pub(super) sessions: BTreeMap<SessionId, InMemorySession>,
    pub(super) bodies: BTreeMap<BodyId, Arc<str>>,
    pub(super) faults: VecDeque<InjectedAppendFault>,
    pub(super) live_nodes: BTreeSet<u64>,
    pub(super) last_node: u64,
    pub(super) clock: StoreClock,
    pub(super) lease_ms: Option<u64>,
    pub(super) shared: InMemorySharedState,
    last_epoch: u64,
    last_change: u64,
    /// The newest deletions, for the change feed.
    deletions: VecDeque<(u64, SessionUid)>,
    /// The newest deletion that was forgotten.
    forgotten_deletion: u64,
}

#[derive(Debug, Default)]
pub(super) struct InMemorySession {
    uid: SessionUid,
    parent: Option<SessionUid>,
    epoch: LeaseEpoch,
    holder: Option<u64>,
    lease_expires_at: Option<UnixMillis>,
    takeovers: u32,
    pub(super) records: Vec<JournalRecord>,
    /// The bodies that the session may read, and the first record that referred to each.
    pub(super) body_first_used: BTreeMap<BodyId, Seq>,
    /// The visible bodies with the record that made each visible, in order.
    visible_bodies: Vec<(Seq, BodyId)>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) summary: Option<SessionSummary>,
    pub(super) inbox: Vec<InboxEntry>,
    pub(super) outcomes: BTreeMap<SubmissionId, InMemorySubmissionOutcome>,
    /// The number of the last change of its summary.
    change: u64,
    is_being_deleted: bool,
}

#[derive(Debug)]
pub(super) struct InMemorySubmissionOutcome {
    at: UnixMillis,
    digest: [u8; 16],
    pub(super) outcome: Vec<u8>,
}

impl InMemorySession {
    pub(super) fn head(&self) -> Seq {
        Seq(self.records.len() as u64)
    }

    fn name_and_uid(&self, session: &SessionId) -> SessionNameAndUid {
        SessionNameAndUid { session: session.clone(), uid: self.uid }
    }

    fn inbox_size(&self) -> InboxSize {
        InboxSize { entries: self.inbox.len(), bytes: self.inbox.iter().map(|entry| entry.bytes.len()).sum() }
    }

    fn add_body(&mut self, body: &CommittedTextBody) {
        self.body_first_used.entry(body.text.id).or_insert(body.first_used_by);
        if body.text.kind == BodyVisibility::Conversation {
            self.visible_bodies.push((body.first_used_by, body.text.id));
        }
    }

    fn is_quarantined(&self) -> bool {
        self.takeovers >= TAKEOVERS_WITHOUT_PROGRESS_MAX
    }

    /// Returns the summary, if the session is listed.
    fn summary_if_listed(&self) -> Option<&SessionSummary> {
        self.summary.as_ref().filter(|_| !self.is_being_deleted)
    }

    fn list_entry(&self, session: &SessionId, excerpt: Option<String>) -> Option<StoredSessionListEntry> {
        Some(StoredSessionListEntry {
            session: session.clone(),
            uid: self.uid,
            parent: self.parent,
            summary: self.summary_if_listed()?.clone(),
            head: self.head(),
            is_quarantined: self.is_quarantined(),
            excerpt,
        })
    }

    /// Returns when there is work to do, unless the session is quarantined or being deleted.
    fn due_at(&self) -> Option<u64> {
        if self.is_being_deleted || self.is_quarantined() {
            return None;
        }
        if !self.inbox.is_empty() {
            return Some(0);
        }
        self.summary.as_ref()?.pending_work.due_at()
    }
}

impl InMemoryStoreDiskState {
    pub(super) fn new(clock: StoreClock) -> Self {
        Self {
            sessions: BTreeMap::new(),
            bodies: BTreeMap::new(),
            faults: VecDeque::new(),
            live_nodes: BTreeSet::new(),
            last_node: 0,
            clock,
            lease_ms: None,
            shared: InMemorySharedState::default(),
            last_epoch: 0,
            last_change: 0,
            deletions: VecDeque::new(),
            forgotten_deletion: 0,
        }
    }

    pub(super) fn session(&self, session: &SessionId) -> Result<&InMemorySession, Error> {
        self.sessions.get(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    pub(super) fn session_mut(&mut self, session: &SessionId) -> Result<&mut InMemorySession, Error> {
        self.sessions.get_mut(session).ok_or_else(|| Error::NoSuchSession { session: session.clone() })
    }

    fn name_of(&self, uid: SessionUid) -> Option<SessionId> {
        self.sessions.iter().find(|(_, session)| session.uid == uid).map(|(name, _)| name.clone())
    }

    /// Returns the live process other than `node` that holds `session`.
    fn live_holder_except(&self, session: &SessionId, node: u64) -> Option<u64> {
        let held = self.sessions.get(session)?;
        let is_expired = held.lease_expires_at.is_some_and(|expires_at| expires_at <= self.clock.now());
        self.running_holder_except(session, node).filter(|_| !is_expired)
    }

    /// Returns the process other than `node` that holds `session` and has not ended, even if its lease has expired.
    fn running_holder_except(&self, session: &SessionId, node: u64) -> Option<u64> {
        let holder = self.sessions.get(session)?.holder?;
        (holder != node && self.live_nodes.contains(&holder)).then_some(holder)
    }

    fn ensure_not_held(&self, session: &SessionId, node: u64, takeover: LeaseTakeoverPolicy) -> Result<(), Error> {
        let holder = match takeover {
            LeaseTakeoverPolicy::IfHolderEnded => self.running_holder_except(session, node),
            LeaseTakeoverPolicy::IfHolderDead => self.live_holder_except(session, node),
            LeaseTakeoverPolicy::Force => None,
        };
        match holder {
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

    fn ensure_not_fenced(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<(), Error> {
        let current = self.session(session)?.epoch;
        if current == epoch { Ok(()) } else { Err(Error::Fenced { session: session.clone(), epoch, current }) }
    }

    fn ensure_not_being_deleted(&self, session: &SessionId) -> Result<(), Error> {
        if self.session(session)?.is_being_deleted {
            return Err(Error::BeingDeleted { session: session.clone() });
        }
        Ok(())
    }

    fn next_epoch(&mut self) -> LeaseEpoch {
        self.last_epoch += 1;
        LeaseEpoch(self.last_epoch)
    }

    fn lease_expiry(&self) -> Option<UnixMillis> {
        self.lease_ms.map(|ms| self.clock.now().plus_ms(ms))
    }

    /// Inserts a session without a holder. Its first epoch is its uid.
    fn insert_session(&mut self, session: &SessionId, new: InMemorySession) -> SessionUid {
        let epoch = self.next_epoch();
        let uid = SessionUid(epoch.0);
        self.sessions.insert(session.clone(), InMemorySession { uid, epoch, ..new });
        uid
    }

    fn current_lease(&self, session: &SessionId) -> Result<Lease, Error> {
        let leased = self.session(session)?;
        Ok(Lease {
            epoch: leased.epoch,
            head: leased.head(),
            uid: leased.uid,
            parent: leased.parent,
            expires_at: leased.lease_expires_at,
            inbox: InboxEmptiness::from_entry_count(leased.inbox.len()),
        })
    }

    /// Makes `node` the holder, with a new epoch.
    fn set_holder(&mut self, session: &SessionId, node: u64) -> Result<Lease, Error> {
        let (epoch, expires_at) = (self.next_epoch(), self.lease_expiry());
        let leased = self.session_mut(session)?;
        if leased.holder.is_some() {
            leased.takeovers = leased.takeovers.saturating_add(1);
        }
        (leased.epoch, leased.holder, leased.lease_expires_at) = (epoch, Some(node), expires_at);
        self.current_lease(session)
    }

    pub(super) fn create_session(&mut self, session: &SessionId, node: u64) -> Result<Lease, Error> {
        self.ensure_name_is_free(session, node)?;
        let lease_expires_at = self.lease_expiry();
        self.insert_session(
            session,
            InMemorySession { holder: Some(node), lease_expires_at, ..InMemorySession::default() },
        );
        self.current_lease(session)
    }

    pub(super) fn acquire_lease(
        &mut self,
        session: &SessionId,
        takeover: LeaseTakeoverPolicy,
        node: u64,
    ) -> Result<Lease, Error> {
        self.ensure_not_being_deleted(session)?;
        self.ensure_not_held(session, node, takeover)?;
        self.set_holder(session, node)
    }

    pub(super) fn renew_leases(&mut self, held: &[(SessionId, LeaseEpoch)]) -> LeaseRenewalResult {
        let expires_at = self.lease_expiry();
        let mut renewal = LeaseRenewalResult { expires_at, lost: Vec::new() };
        for (session, epoch) in held {
            match self.sessions.get_mut(session) {
                Some(leased) if leased.epoch == *epoch => leased.lease_expires_at = expires_at,
                found => {
                    let current = found.map(|leased| leased.epoch);
                    renewal.lost.push(LostLease { session: session.clone(), epoch: *epoch, current });
                }
            }
        }
        renewal
    }

    pub(super) fn release_lease(&mut self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        self.ensure_not_fenced(session, epoch)?;
        let epoch = self.next_epoch();
        let released = self.session_mut(session)?;
        (released.epoch, released.holder, released.lease_expires_at, released.takeovers) = (epoch, None, None, 0);
        Ok(InboxEmptiness::from_entry_count(released.inbox.len()))
    }

    pub(super) fn append_commit(&mut self, commit: JournalCommit, node: u64) -> Result<Seq, Error> {
        self.ensure_not_fenced(&commit.session, commit.epoch)?;
        let session = self.session(&commit.session)?;
        if session.head() != commit.expected_head {
            let (expected, head) = (commit.expected_head, session.head());
            return Err(Error::Conflict { session: commit.session, expected, head });
        }
        for drained in &commit.drained {
            if !session.inbox.iter().any(|entry| entry.id == drained.id) {
                return Err(Error::EntryGone { session: commit.session, submission: drained.id });
            }
        }
        if !commit.spawned.is_empty() {
            self.ensure_not_being_deleted(&commit.session)?;
        }
        for spawned in &commit.spawned {
            self.ensure_name_is_free(&spawned.session, node)?;
        }
        self.write_checked_commit(commit)
    }

    /// Writes a commit that was checked.
    fn write_checked_commit(&mut self, commit: JournalCommit) -> Result<Seq, Error> {
        let now = self.clock.now();
        self.store_bodies(&commit.bodies);
        if commit.summary.is_some() {
            self.last_change += 1;
        }
        let change = self.last_change;
        let session = self.session_mut(&commit.session)?;
        commit.bodies.iter().for_each(|body| session.add_body(body));
        session.records.extend(commit.records);
        if commit.summary.is_some() {
            (session.summary, session.change) = (commit.summary, change);
        }
        if commit.shows_progress {
            session.takeovers = 0;
        }
        if !commit.drained.is_empty() {
            session.outcomes.retain(|_, outcome| !is_outdated(outcome.at, now));
        }
        for drained in commit.drained {
            let Some(index) = session.inbox.iter().position(|entry| entry.id == drained.id) else { continue };
            let digest = submission_digest(&session.inbox.remove(index).bytes);
            let outcome = InMemorySubmissionOutcome { at: now, digest, outcome: drained.outcome };
            session.outcomes.insert(drained.id, outcome);
        }
        let head = session.head();
        let sender = session.name_and_uid(&commit.session);
        for spawned in commit.spawned {
            self.spawn(spawned, &sender);
        }
        for outgoing in commit.outgoing {
            self.deliver_or_bounce(outgoing, &sender);
        }
        Ok(head)
    }

    fn store_bodies(&mut self, bodies: &[CommittedTextBody]) {
        for body in bodies {
            self.bodies.entry(body.text.id).or_insert_with(|| body.text.text.clone());
        }
    }

    fn spawn(&mut self, spawned: SpawnedSession, parent: &SessionNameAndUid) {
        self.store_bodies(&spawned.bodies);
        self.last_change += 1;
        let entry = |new: NewInboxSubmission| to_entry(new, Some(parent.clone()));
        let mut child = InMemorySession {
            parent: Some(parent.uid),
            records: spawned.records,
            summary: Some(spawned.summary),
            inbox: spawned.entries.into_iter().map(entry).collect(),
            change: self.last_change,
            ..InMemorySession::default()
        };
        spawned.bodies.iter().for_each(|body| child.add_body(body));
        self.insert_session(&spawned.session, child);
    }

    fn deliver_or_bounce(&mut self, outgoing: OutgoingInboxSubmission, sender: &SessionNameAndUid) {
        let delivered = self.deliver(&outgoing.to, outgoing.expected, outgoing.submission, Some(sender.clone()));
        if let (Err(_), Some(bounce)) = (delivered, outgoing.bounce) {
            let bounce = NewInboxSubmission { exempt_from_limit: true, ..bounce };
            // The sender exists, and an exempt submission of a session is never refused. A session that is being deleted
            // needs no bounce.
            let _ = self.deliver(&sender.session, Some(sender.uid), bounce, Some(sender.clone()));
        }
    }

    /// Puts a submission into an inbox, unless it is known already.
    pub(super) fn deliver(
        &mut self,
        session: &SessionId,
        expected: Option<SessionUid>,
        new: NewInboxSubmission,
        sender: Option<SessionNameAndUid>,
    ) -> Result<SessionUid, Error> {
        let now = self.clock.now();
        if self.session(session)?.records.is_empty() {
            return Err(Error::NoSuchSession { session: session.clone() });
        }
        self.ensure_not_being_deleted(session)?;
        let receiver = self.session_mut(session)?;
        let current = receiver.uid;
        if let Some(expected) = expected.filter(|expected| *expected != current) {
            return Err(Error::SessionReplaced { session: session.clone(), expected, current });
        }
        let waiting = receiver.inbox.iter().find(|entry| entry.id == new.id);
        let handled = receiver.outcomes.get(&new.id).filter(|outcome| !is_outdated(outcome.at, now));
        let known = waiting.map(|entry| submission_digest(&entry.bytes)).or(handled.map(|outcome| outcome.digest));
        match known {
            Some(digest) if digest == submission_digest(&new.bytes) => return Ok(current),
            Some(_) => return Err(Error::SubmissionIdReused { session: session.clone(), submission: new.id }),
            None => {}
        }
        let submitter = if sender.is_some() { InboxSubmitterKind::Session } else { InboxSubmitterKind::Client };
        receiver.inbox_size().ensure_room_for(session, &new, submitter)?;
        if submitter == InboxSubmitterKind::Client {
            receiver.takeovers = 0;
        }
        receiver.inbox.push(to_entry(new, sender));
        Ok(current)
    }

    pub(super) fn submission_status(
        &self,
        session: &SessionId,
        submission: SubmissionId,
    ) -> Result<InboxSubmissionStatus, Error> {
        let stored = self.session(session)?;
        if stored.inbox.iter().any(|entry| entry.id == submission) {
            return Ok(InboxSubmissionStatus::Waiting);
        }
        let outcome = stored.outcomes.get(&submission).filter(|outcome| !is_outdated(outcome.at, self.clock.now()));
        Ok(outcome.map_or(InboxSubmissionStatus::Unknown, |outcome| InboxSubmissionStatus::Handled {
            outcome: outcome.outcome.clone(),
        }))
    }

    pub(super) fn held_sessions_with_entries(&self, node: u64, limit: usize) -> Vec<SessionNameAndUid> {
        let has_entries = |session: &InMemorySession| session.holder == Some(node) && !session.inbox.is_empty();
        let found = self.sessions.iter().filter(|(_, session)| has_entries(session));
        let mut found: Vec<_> = found.map(|(name, session)| session.name_and_uid(name)).collect();
        found.sort_by_key(|address| address.uid);
        found.truncate(limit);
        found
    }

    pub(super) fn fork_session(&mut self, fork: SessionForkSpec, node: u64) -> Result<SessionUid, Error> {
        self.ensure_not_being_deleted(&fork.from)?;
        let origin = self.session(&fork.from)?;
        let head = origin.head();
        if fork.at_seq > head || fork.at_seq == Seq(0) {
            return Err(Error::ForkOutOfRange { session: fork.from, at: fork.at_seq, head });
        }
        self.ensure_name_is_free(&fork.to, node)?;
        let body_first_used = origin.body_first_used.iter().filter(|(_, first)| **first <= fork.at_seq);
        let copy = InMemorySession {
            records: origin.records.iter().take_while(|record| record.seq <= fork.at_seq).cloned().collect(),
            body_first_used: body_first_used.map(|(id, first)| (*id, *first)).collect(),
            visible_bodies: origin.visible_bodies.iter().filter(|(first, _)| *first <= fork.at_seq).copied().collect(),
            summary: Some(fork.summary),
            change: self.last_change + 1,
            ..InMemorySession::default()
        };
        self.last_change += 1;
        Ok(self.insert_session(&fork.to, copy))
    }

    pub(super) fn begin_delete(&mut self, session: &SessionId, node: u64) -> Result<Lease, Error> {
        self.session(session)?;
        self.ensure_not_held(session, node, LeaseTakeoverPolicy::IfHolderDead)?;
        let marked = self.session_mut(session)?;
        if !marked.is_being_deleted {
            marked.is_being_deleted = true;
            let uid = marked.uid;
            self.remember_deletion(uid);
        }
        self.set_holder(session, node)
    }

    pub(super) fn delete_session(
        &mut self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
        node: u64,
    ) -> Result<(), Error> {
        let deleted = self.session(session)?;
        let (sender, parent) = (deleted.name_and_uid(session), deleted.parent);
        let is_remembered = deleted.is_being_deleted;
        self.ensure_not_held(session, node, LeaseTakeoverPolicy::IfHolderDead)?;
        if self.sessions.values().any(|other| other.parent == Some(sender.uid)) {
            return Err(Error::HasChildren { session: session.clone() });
        }
        self.sessions.remove(session);
        let used: BTreeSet<BodyId> =
            self.sessions.values().flat_map(|session| session.body_first_used.keys().copied()).collect();
        self.bodies.retain(|id, _| used.contains(id));
        if !is_remembered {
            self.remember_deletion(sender.uid);
        }
        if let (Some(parent), Some(notice)) = (parent.and_then(|parent| self.name_of(parent)), notice_to_parent) {
            let notice = NewInboxSubmission { exempt_from_limit: true, ..notice };
            // A parent that is being deleted needs no notice.
            let _ = self.deliver(&parent, None, notice, Some(sender));
        }
        Ok(())
    }

    fn remember_deletion(&mut self, uid: SessionUid) {
        self.last_change += 1;
        self.deletions.push_back((self.last_change, uid));
        if self.deletions.len() > REMEMBERED_DELETIONS_MAX {
            self.forgotten_deletion = self.deletions.pop_front().map_or(0, |(change, _)| change);
        }
    }

    pub(super) fn list_sessions(&self, query: &SessionQuery) -> SessionListPage {
        let term = query.text.as_deref().map(PreparedSearchTerm::new);
        let namespace = query.name_prefix.as_deref().and_then(name_namespace);
        let mut scanned: Vec<(SessionListCursor, &InMemorySession, &SessionSummary)> = self
            .sessions
            .iter()
            .filter_map(|(id, session)| {
                let summary = session.summary_if_listed()?;
                Some((SessionListCursor { updated_at: summary.updated_at, session: id.clone() }, session, summary))
            })
            .filter(|(at, ..)| namespace.is_none() || name_namespace(at.session.as_str()) == namespace)
            .filter(|(at, ..)| query.after_cursor.as_ref().is_none_or(|before| at < before))
            .collect();
        scanned.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        let mut page = SessionPageBuilder::new(query.limit);
        for (at, session, summary) in scanned {
            let excerpt = match (&term, query.matches(&at.session, &summary.flow)) {
                (_, false) => None,
                (None, true) => Some(None),
                (Some(term), true) => self.find_excerpt(session, &summary.title, term).map(Some),
            };
            let entry = excerpt.and_then(|excerpt| session.list_entry(&at.session, excerpt));
            if page.scan_next(&at, entry) == SessionScanControl::PageComplete {
                break;
            }
        }
        page.into_page()
    }

    fn find_excerpt(&self, session: &InMemorySession, title: &str, term: &PreparedSearchTerm) -> Option<String> {
        let find_in_texts =
            || session.visible_bodies.iter().find_map(|(_, id)| term.find_excerpt(self.bodies.get(id)?));
        term.find_excerpt(title).or_else(find_in_texts)
    }

    pub(super) fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        let parent = self.session(session)?.parent;
        Ok(parent.and_then(|uid| Some(SessionNameAndUid { session: self.name_of(uid)?, uid })))
    }

    pub(super) fn children_of(&self, parent: SessionUid, limit: usize) -> Vec<SessionNameAndUid> {
        self.find_sessions_where(limit, |session| session.parent == Some(parent))
    }

    pub(super) fn sessions_to_delete(&self, limit: usize) -> Vec<SessionNameAndUid> {
        self.find_sessions_where(limit, |session| session.is_being_deleted)
    }

    fn find_sessions_where(&self, limit: usize, fits: impl Fn(&InMemorySession) -> bool) -> Vec<SessionNameAndUid> {
        let found = self.sessions.iter().filter(|(_, session)| fits(session));
        let mut found: Vec<_> = found.map(|(name, session)| session.name_and_uid(name)).collect();
        found.sort_by_key(|address| address.uid);
        found.truncate(limit);
        found
    }

    pub(super) fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> PendingWorkPage {
        let pending = self.sessions.iter().filter_map(|(name, session)| {
            let due_at = session.due_at().filter(|due_at| *due_at <= query.due_until.0)?;
            Some((PendingWorkCursor { due_at, uid: session.uid }, name))
        });
        let mut pending: Vec<_> =
            pending.filter(|(at, _)| query.after_cursor.is_none_or(|after| *at > after)).collect();
        pending.sort_by_key(|(at, _)| *at);
        pending.truncate(query.limit);
        let next_cursor = pending.last().map(|(at, _)| *at).filter(|_| pending.len() == query.limit);
        let to_session = |(at, name): (PendingWorkCursor, &SessionId)| SessionWithPendingWork {
            session: name.clone(),
            uid: at.uid,
            pending_work: PendingWorkStatus::from_due_at(Some(at.due_at)),
        };
        PendingWorkPage { sessions: pending.into_iter().map(to_session).collect(), next_cursor }
    }

    pub(super) fn changes_after(&self, after: Option<SessionListChangeCursor>, limit: usize) -> SessionListChangePage {
        let Some(after) = after else {
            let now = SessionListChangeCursor(self.last_change);
            return SessionListChangePage { changes: vec![], next_cursor: now, misses_deletions: false };
        };
        let updated = self.sessions.iter().filter_map(|(name, session)| {
            Some((session.change, StoredSessionListChange::Updated(session.list_entry(name, None)?)))
        });
        let deleted = self.deletions.iter().map(|(change, uid)| (*change, StoredSessionListChange::Deleted(*uid)));
        let sorted: BTreeMap<_, _> = updated.chain(deleted).filter(|(change, _)| *change > after.0).collect();
        let changes: Vec<_> = sorted.into_iter().take(limit).collect();
        SessionListChangePage {
            next_cursor: changes.last().map_or(after, |(change, _)| SessionListChangeCursor(*change)),
            changes: changes.into_iter().map(|(_, change)| change).collect(),
            misses_deletions: after.0 < self.forgotten_deletion,
        }
    }
}

fn to_entry(new: NewInboxSubmission, sender: Option<SessionNameAndUid>) -> InboxEntry {
    InboxEntry { id: new.id, at: new.at, sender, bytes: new.bytes }
}

fn is_outdated(outcome_at: UnixMillis, now: UnixMillis) -> bool {
    now.ms_since(outcome_at) > OUTCOME_RETENTION_MS
}
