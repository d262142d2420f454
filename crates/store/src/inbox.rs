//! What is put into inboxes, read from them, and delivered with commits.

use segue_core::body::BodyId;
use segue_core::ids::{SessionId, SessionUid, SubmissionId, UnixMillis};

use crate::commit::{CommittedTextBody, JournalRecord};
use crate::limits::{INBOX_BYTES_MAX, INBOX_ENTRIES_MAX, INBOX_EXEMPT_ENTRIES_MAX};
use crate::{Error, SessionSummary};

/// The name and the identity of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionNameAndUid {
    pub session: SessionId,
    pub uid: SessionUid,
}

/// An input for a session that is put into its inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInboxSubmission {
    /// Chosen at random by the submitter.
    pub id: SubmissionId,
    /// When it was submitted, by the submitter's clock.
    pub at: UnixMillis,
    /// The input; opaque to the store.
    pub bytes: Vec<u8>,
    /// Whether it is accepted although the inbox is full, because refusing it would leave a session waiting.
    pub exempt_from_limit: bool,
}

/// A submission that waits in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    pub id: SubmissionId,
    /// When it was submitted, by the submitter's clock.
    pub at: UnixMillis,
    /// The session whose commit submitted it; none if a client did. Set by the store.
    pub sender: Option<SessionNameAndUid>,
    /// The input; opaque to the store.
    pub bytes: Vec<u8>,
}

/// An inbox entry that a commit accounts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledInboxEntry {
    pub id: SubmissionId,
    /// What the submitter is told; opaque to the store.
    pub outcome: Vec<u8>,
}

/// A submission to another session that is part of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingInboxSubmission {
    pub to: SessionId,
    /// The receiver's uid, if the sender knows it.
    pub expected: Option<SessionUid>,
    pub submission: NewInboxSubmission,
    /// Put into the sender's own inbox if the submission cannot be delivered: the receiver does not exist, is being
    /// deleted, has another uid than expected, or has a full inbox. Always exempt from the limit.
    pub bounce: Option<NewInboxSubmission>,
}

/// A child session that a commit creates. It has no holder, and its parent is the committing session.
#[derive(Debug, Clone)]
pub struct SpawnedSession {
    pub session: SessionId,
    /// At least one record, from sequence number 1 on.
    pub records: Vec<JournalRecord>,
    pub bodies: Vec<CommittedTextBody>,
    pub summary: SessionSummary,
    /// The first entries of its inbox, with the parent as sender.
    pub entries: Vec<NewInboxSubmission>,
}

/// Whether an inbox has entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxEmptiness {
    Empty,
    HasEntries,
}

impl InboxEmptiness {
    pub(crate) fn from_entry_count(count: usize) -> Self {
        if count == 0 { Self::Empty } else { Self::HasEntries }
    }
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxSubmissionStatus {
    /// The session has no such submission, or its outcome is older than 24 hours.
    Unknown,
    /// It waits in the inbox.
    Waiting,
    /// The session handled it.
    Handled {
        /// What the session's writer stored; opaque to the store.
        outcome: Vec<u8>,
    },
}

/// Who submits, which decides how much an inbox accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxSubmitterKind {
    /// Its exempt submissions are limited too, because a client may submit any number of them.
    Client,
    Session,
}

/// How much an inbox contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InboxSize {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl InboxSize {
    /// Refuses a submission for which there is no room.
    pub(crate) fn ensure_room_for(
        self,
        session: &SessionId,
        submission: &NewInboxSubmission,
        submitter: InboxSubmitterKind,
    ) -> Result<(), Error> {
        let full = |limit: String| Err(Error::InboxFull { session: session.clone(), limit });
        let entries_max = match (submission.exempt_from_limit, submitter) {
            (true, InboxSubmitterKind::Session) => return Ok(()),
            (true, InboxSubmitterKind::Client) => INBOX_EXEMPT_ENTRIES_MAX,
            (false, _) => INBOX_ENTRIES_MAX,
        };
        if self.entries >= entries_max {
            return full(format!("{entries_max} entries"));
        }
        if self.bytes.saturating_add(submission.bytes.len()) > INBOX_BYTES_MAX {
            return full(format!("{INBOX_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

/// Identifies the content of a submission, also after the submission was handled.
pub(crate) fn submission_digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&BodyId::hash_bytes(bytes).0[..16]);
    digest
}
