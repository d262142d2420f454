//! The errors of a store. Each message says what to do next.

use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId};

/// An error returned by a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no session `{session}`; list the sessions to see their names")]
    NoSuchSession { session: SessionId },
    #[error("session `{session}` already exists; choose another name, or open that session")]
    SessionExists { session: SessionId },
    /// A live process holds the session's lease.
    #[error(
        "session `{session}` is held by the running process {by}; stop that process, or take the session over by force"
    )]
    HeldByOtherProcess {
        session: SessionId,
        /// The name of the process that holds it.
        by: String,
    },
    /// The writer's lease has ended.
    #[error("session `{session}` was taken over by another writer (epoch {} after {}); acquire its lease again before writing", current.0, epoch.0)]
    Fenced {
        session: SessionId,
        /// The writer's epoch.
        epoch: LeaseEpoch,
        /// The current epoch.
        current: LeaseEpoch,
    },
    /// The writer does not know the newest records.
    #[error("session `{session}` is at record {head}, not at {expected}; read the new records and decide again")]
    Conflict {
        session: SessionId,
        /// The last record that the writer knows.
        expected: Seq,
        /// The last record in the store.
        head: Seq,
    },
    /// Another session has this name now.
    #[error("session `{session}` was deleted and created again (uid {current}, not {expected}); list the sessions")]
    SessionReplaced { session: SessionId, expected: SessionUid, current: SessionUid },
    #[error("session `{session}` is being deleted; it accepts nothing any more")]
    BeingDeleted { session: SessionId },
    /// Only a session without children can be deleted.
    #[error("session `{session}` has child sessions; delete them first")]
    HasChildren { session: SessionId },
    /// The submission was not accepted.
    #[error("the inbox of session `{session}` is full ({limit}); try again when the session has handled some entries")]
    InboxFull {
        session: SessionId,
        /// The limit that was reached.
        limit: String,
    },
    /// The session has a submission with this id and another content.
    #[error("session `{session}` has another submission with the id {submission}; choose a new random id")]
    SubmissionIdReused { session: SessionId, submission: SubmissionId },
    /// A commit handles an inbox entry that is not in the inbox. Nothing was written.
    #[error("submission {submission} is not in the inbox of session `{session}`; read the inbox again")]
    EntryGone { session: SessionId, submission: SubmissionId },
    /// The data is invalid and can never be stored.
    #[error("invalid data for session `{session}`: {detail}")]
    Malformed { session: SessionId, detail: String },
    #[error("session `{session}` has records 1 to {head}, so it cannot be forked at {at}; choose one of these")]
    ForkOutOfRange {
        session: SessionId,
        at: Seq,
        /// The last record.
        head: Seq,
    },
    /// The session never stored this body.
    #[error("session `{session}` has no body {body}; a session can read only bodies that it stored or was forked with")]
    NoSuchBody { session: SessionId, body: BodyId },
    /// The stored data of one session is not what was written. Other sessions are not affected.
    #[error(
        "session `{session}` is corrupted ({detail}); restore it from an export or delete it; other sessions are not affected"
    )]
    SessionCorrupted {
        session: SessionId,
        /// What was found.
        detail: String,
    },
    /// The store as a whole is corrupted.
    #[error("the store {path} is corrupted ({detail}); restore it from a backup")]
    StoreCorrupted {
        path: String,
        /// What was found.
        detail: String,
    },
    /// The disk is full; nothing was written.
    #[error("the disk is full ({what}); nothing was written; free some space and try again")]
    DiskFull {
        /// What was being written.
        what: String,
    },
    /// Another process keeps the store locked.
    #[error("another process kept the store locked for too long while {what}; try again")]
    StoreLocked {
        /// What was being done.
        what: String,
    },
    /// I/O failed. A write may or may not have happened: acquire the lease again and read.
    #[error("I/O failed while {what}: {detail}; check the disk and the file permissions")]
    Io {
        /// What was being done.
        what: String,
        /// The system's message.
        detail: String,
    },
    /// The database cannot be reached, or accepts no work. As with [`Io`](Self::Io), a write may or may not have
    /// happened.
    #[error("the database cannot be reached while {what}: {detail}; try again when it answers")]
    DatabaseUnavailable {
        /// What was being done.
        what: String,
        /// The message of the system or the database.
        detail: String,
    },
    /// The file is not a Segue store.
    #[error("{path} is not a Segue store ({detail}); choose another file")]
    NotAStore { path: String, detail: String },
    /// The file was written by a newer version.
    #[error("{path} has format {found}, but this version supports formats up to {known}; use a newer version")]
    NewerFormat {
        path: String,
        found: u32,
        /// The newest format that this version supports.
        known: u32,
    },
    /// A write panicked. It was rolled back.
    #[error("a write panicked and was rolled back, so nothing was written; this is a bug, please report it")]
    WritePanicked,
    /// The thread that writes has ended, although the store is open.
    #[error("the store can be read but not written, because its writer thread has ended; restart the process")]
    WriterStopped,
    #[error("the store is closed; open it again")]
    Closed,
}

impl Error {
    /// Returns whether a write that failed with this error may have happened nevertheless.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::StoreLocked { .. } | Self::DatabaseUnavailable { .. })
    }
}
