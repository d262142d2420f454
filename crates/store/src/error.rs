//! What a store refuses, and why. Each message says what to do next.

use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No session has this name.
    #[error("there is no session `{session}`; list the sessions to see their names")]
    NoSuchSession {
        /// The name asked for.
        session: SessionId,
    },
    /// The name is taken.
    #[error("session `{session}` exists already; choose another name or open that one")]
    SessionExists {
        /// The name asked for.
        session: SessionId,
    },
    /// A live process writes this session.
    #[error(
        "session `{session}` is held by the live process {by}; stop that process or take the session over by force"
    )]
    HeldByOtherProcess {
        /// The session asked for.
        session: SessionId,
        /// The holder's node name.
        by: String,
    },
    /// The writer's claim is over.
    #[error("session `{session}` was claimed by another writer (epoch {} after our {}); claim it again before writing", current.0, epoch.0)]
    Fenced {
        /// The session written to.
        session: SessionId,
        /// The writer's epoch.
        epoch: LeaseEpoch,
        /// The epoch that counts.
        current: LeaseEpoch,
    },
    /// The writer does not know the newest records.
    #[error("session `{session}` stands at record {head}, not at {expected}; read what is new and decide again")]
    Conflict {
        /// The session written to.
        session: SessionId,
        /// Where the writer believed it to be.
        expected: Seq,
        /// Where it is.
        head: Seq,
    },
    /// The caller asks for something that can never be stored.
    #[error("session `{session}` was handed something that cannot be stored: {detail}")]
    Malformed {
        /// The session meant.
        session: SessionId,
        /// What is wrong with it.
        detail: String,
    },
    /// A fork from outside the journal.
    #[error("session `{session}` has records 1 to {head}, so it cannot be forked at {at}; choose one of those")]
    ForkOutOfRange {
        /// The session to fork.
        session: SessionId,
        /// The record asked for.
        at: Seq,
        /// The last there is.
        head: Seq,
    },
    /// A text this session never brought.
    #[error("session `{session}` has no body {body}; a session reads only the texts it brought or was forked with")]
    NoSuchBody {
        /// The session reading.
        session: SessionId,
        /// The address asked for.
        body: BodyId,
    },
    /// One session's bytes are not what was written. Others are not affected.
    #[error(
        "session `{session}` is damaged ({detail}); restore it from an export or delete it, other sessions are not affected"
    )]
    SessionCorrupted {
        /// The damaged session.
        session: SessionId,
        /// What was found.
        detail: String,
    },
    /// The store as a whole cannot be trusted.
    #[error("the store {path} is damaged ({detail}); restore it from a backup")]
    StoreCorrupted {
        /// Where it is.
        path: String,
        /// What was found.
        detail: String,
    },
    /// No room; nothing was written.
    #[error("no room on disk for {what}; nothing of it was written, make room and try again")]
    DiskFull {
        /// What was to be written.
        what: String,
    },
    /// Another process keeps the store locked.
    #[error("another process kept the store locked for too long while {what}; try again")]
    StoreLocked {
        /// What was to be done.
        what: String,
    },
    /// The machine failed us; whether a write took effect is open: the session has to be claimed again.
    #[error("input or output failed while {what}: {detail}; look at the disk and at who may write there")]
    Io {
        /// What was to be done.
        what: String,
        /// What the system said.
        detail: String,
    },
    /// The file is something else.
    #[error("{path} is not a store of ours ({detail}); name another file")]
    NotAStore {
        /// Where it is.
        path: String,
        /// What was found.
        detail: String,
    },
    /// Written by a later program.
    #[error("{path} has format {found}, this program knows formats up to {known}; use a newer program")]
    NewerFormat {
        /// Where it is.
        path: String,
        /// Its format.
        found: u32,
        /// Our newest.
        known: u32,
    },
    /// The store was closed.
    #[error("the store is closed; open it again")]
    Closed,
}
