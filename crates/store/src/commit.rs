//! What is written to journals: commits, snapshots and forks.

use segue_core::body::{BodyId, TextToStore};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SubmissionId, UnixMillis};

use crate::inbox::{HandledInboxEntry, OutgoingInboxSubmission, SpawnedSession};
use crate::limits::SEQ_MAX;
use crate::{Error, SessionSummary, validate_session_id};

/// One encoded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    pub seq: Seq,
    /// When it was recorded.
    pub at: UnixMillis,
    /// The event; opaque to the store.
    pub bytes: Vec<u8>,
}

/// A text that is stored with a commit. One that is stored already is not stored again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedTextBody {
    pub text: TextToStore,
    /// The first record of the commit that refers to the text. A fork that ends before this record does not share it.
    pub first_used_by: Seq,
}

/// Everything that one decision writes. It is written completely or not at all.
#[derive(Debug, Clone)]
pub struct JournalCommit {
    pub session: SessionId,
    /// The epoch of the writer's lease.
    pub epoch: LeaseEpoch,
    /// The last sequence number that the writer knows; the first record has the next one.
    pub expected_head: Seq,
    /// At least one record.
    pub records: Vec<JournalRecord>,
    /// Texts that the records refer to for the first time.
    pub bodies: Vec<CommittedTextBody>,
    /// Replaces the session's summary, if given.
    pub summary: Option<SessionSummary>,
    /// Inbox entries that the records account for. They are deleted, and their outcomes are kept. If one of them is not
    /// in the inbox any more, the whole commit is rejected ([`Error::EntryGone`]).
    pub drained: Vec<HandledInboxEntry>,
    /// Sessions that are created as children of this one, before `outgoing` is delivered.
    pub spawned: Vec<SpawnedSession>,
    /// Submissions to other sessions, in this order.
    pub outgoing: Vec<OutgoingInboxSubmission>,
    /// Whether the commit ends a series of takeovers without progress; see
    /// [`StoredSessionListEntry::is_quarantined`](crate::StoredSessionListEntry::is_quarantined).
    pub shows_progress: bool,
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

/// How to fork a session.
#[derive(Debug, Clone)]
pub struct SessionForkSpec {
    pub from: SessionId,
    /// The last record that is copied.
    pub at_seq: Seq,
    /// The name of the new session.
    pub to: SessionId,
    /// The new session's summary.
    pub summary: SessionSummary,
}

impl JournalCommit {
    /// Creates a commit of records alone, to which the other fields can be added.
    #[must_use]
    pub fn of_records(session: SessionId, epoch: LeaseEpoch, expected_head: Seq, records: Vec<JournalRecord>) -> Self {
        Self {
            session,
            epoch,
            expected_head,
            records,
            bodies: Vec::new(),
            summary: None,
            drained: Vec::new(),
            spawned: Vec::new(),
            outgoing: Vec::new(),
            shows_progress: false,
        }
    }

    /// Rejects commits that no store may accept.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        validate_records(&self.session, self.expected_head, &self.records, &self.bodies)?;
        ensure_distinct_ids(&self.session, self.drained.iter().map(|entry| entry.id))?;
        for (index, spawned) in self.spawned.iter().enumerate() {
            validate_session_id(&spawned.session)?;
            validate_records(&spawned.session, Seq(0), &spawned.records, &spawned.bodies)?;
            ensure_distinct_ids(&spawned.session, spawned.entries.iter().map(|entry| entry.id))?;
            let is_repeated = self.spawned[..index].iter().any(|earlier| earlier.session == spawned.session);
            if is_repeated || spawned.session == self.session {
                return Err(Error::SessionExists { session: spawned.session.clone() });
            }
        }
        Ok(())
    }

    /// Returns the head after this commit.
    pub(crate) fn new_head(&self) -> Seq {
        self.records.last().map_or(self.expected_head, |record| record.seq)
    }
}

/// Rejects records that do not follow the head, and bodies whose id is not the hash of their text or that no record of
/// the commit refers to.
fn validate_records(
    session: &SessionId,
    head: Seq,
    records: &[JournalRecord],
    bodies: &[CommittedTextBody],
) -> Result<(), Error> {
    let malformed = |detail: String| Err(Error::Malformed { session: session.clone(), detail });
    if records.is_empty() {
        return malformed("a commit without records".into());
    }
    if head.0 > SEQ_MAX - records.len() as u64 {
        return malformed(format!("a sequence number above {SEQ_MAX}"));
    }
    let mut last = head;
    for record in records {
        last = last.next();
        if record.seq != last {
            return malformed(format!("record {} where record {last} was expected", record.seq));
        }
    }
    for CommittedTextBody { text, first_used_by } in bodies {
        if BodyId::hash_text(&text.text) != text.id {
            return malformed(format!("body id {} is not the hash of its text", text.id));
        }
        if *first_used_by <= head || *first_used_by > last {
            return malformed(format!("body {} is used by record {first_used_by} of another commit", text.id));
        }
    }
    Ok(())
}

fn ensure_distinct_ids(session: &SessionId, ids: impl Iterator<Item = SubmissionId>) -> Result<(), Error> {
    let mut seen = std::collections::BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            let detail = format!("submission {id} twice in one commit");
            return Err(Error::Malformed { session: session.clone(), detail });
        }
    }
    Ok(())
}
