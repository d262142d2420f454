//! The engine's errors. Each message says what was refused, why, and what to do about it.

use segue_core::codec;
use segue_core::decide::InputRefusal;
use segue_core::ids::{CallId, FlowName, SessionId, SubmissionId};

/// An error returned by the engine.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("there is no session `{0}`; `segue sessions` lists them")]
    NoSuchSession(SessionId),
    #[error("the session `{0}` already exists; choose another name")]
    SessionExists(SessionId),
    #[error("`{name}` is not a valid session name: {why}")]
    BadSessionName { name: String, why: String },
    /// No flow of this engine has that name.
    #[error("there is no flow `{name}`; there are {known}")]
    NoSuchFlow {
        name: FlowName,
        /// The flows that exist, as a list for the message.
        known: String,
    },
    #[error("invalid settings for the flow `{flow}`: {}", why.join("; "))]
    BadSettings {
        flow: FlowName,
        /// One message for each setting that is wrong.
        why: Vec<String>,
    },
    /// No model of this engine has that name.
    #[error("{0}")]
    NoSuchModel(String),
    /// The flow's declaration contradicts itself.
    #[error("the flow `{flow}` is invalid: {}", faults.join("; "))]
    InvalidFlow { flow: FlowName, faults: Vec<String> },
    /// The flow panicked while deciding about an input.
    #[error("the flow `{0}` panicked on this input; this is a bug in the flow")]
    FlowPanicked(FlowName),
    /// The session refused the input.
    #[error(transparent)]
    Refused(#[from] InputRefusal),
    /// Another live process holds the session.
    #[error("the session `{session}` is in use by another process ({by}); stop that process, or try again in a moment")]
    InUse {
        session: SessionId,
        /// The process that holds it.
        by: String,
    },
    /// Another process took the session over while this one was writing to it.
    #[error("the session `{0}` was taken over by another process; everything accepted here is recorded")]
    TakenOver(SessionId),
    /// A stored event cannot be decoded.
    #[error("the session `{session}` cannot be read: {source}")]
    Unreadable { session: SessionId, source: codec::Error },
    #[error("the session `{session}` has no call {call}; `segue show {session}` lists its calls")]
    NoSuchCall { session: SessionId, call: CallId },
    /// Running a call again with these settings would send the same prompt.
    #[error(
        "the prompt of {call} does not depend on these settings{}",
        opened_by.filter(|opened_by| opened_by != call).map(|by| format!("; try {by}, which opened its thread")).unwrap_or_default()
    )]
    NothingChanges {
        call: CallId,
        /// The call that opened its thread.
        opened_by: Option<CallId>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(std::sync::Arc<segue_store::Error>),
    /// The lines to import are not a valid export.
    #[error("line {line} of the import: {why}")]
    BadImport {
        /// The number of the line, from 1.
        line: usize,
        why: String,
    },
    /// Another process holds the session and has not handled the input yet. It will.
    #[error(
        "the process that holds the session `{session}` has not handled the input yet, but will (submission {submission})"
    )]
    StillWaiting { session: SessionId, submission: SubmissionId },
    #[error("the session `{session}` has no submission {submission}, or it was handled more than a day ago")]
    NoSuchSubmission { session: SessionId, submission: SubmissionId },
    /// An inbox entry was already handled.
    #[error("the inbox entry of session `{0}` was already handled")]
    EntryGone(SessionId),
    /// The session was deleted while the caller waited.
    #[error("the session `{0}` was deleted before this was done")]
    SessionDeleted(SessionId),
    /// The session's task ended before it handled the input.
    #[error(
        "work on the session `{0}` ended before this was done; accepted input is recorded, so check the session and try again"
    )]
    Stopped(SessionId),
    #[error("the engine is shutting down; accepted work continues at the next start")]
    ShuttingDown,
}

impl Error {
    /// Returns whether the same request may succeed a little later, as with a full or failing disk, or a database that is
    /// down.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use segue_store::Error as Store;
        matches!(self, Self::Store(error) if error.is_outcome_unknown() || matches!(**error, Store::DiskFull { .. }))
    }

    /// Returns whether the error is that the database cannot be reached.
    #[must_use]
    pub fn is_database_unavailable(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, segue_store::Error::DatabaseUnavailable { .. }))
    }

    /// Returns whether the error is that the session has no such text.
    #[must_use]
    pub fn is_missing_text(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, segue_store::Error::NoSuchBody { .. }))
    }

    /// Returns whether the session's task must stop: another process has the session, or it is deleted or unreadable.
    pub(crate) fn is_fatal_to_session(&self) -> bool {
        match self {
            Self::TakenOver(_) | Self::InUse { .. } | Self::NoSuchSession(_) | Self::Unreadable { .. } => true,
            Self::Store(_) => !self.is_transient(),
            Self::SessionExists(_)
            | Self::BadSessionName { .. }
            | Self::NoSuchFlow { .. }
            | Self::BadSettings { .. }
            | Self::NoSuchModel(_)
            | Self::InvalidFlow { .. }
            | Self::FlowPanicked(_)
            | Self::Refused(_)
            | Self::NoSuchCall { .. }
            | Self::NothingChanges { .. }
            | Self::BadImport { .. }
            | Self::StillWaiting { .. }
            | Self::NoSuchSubmission { .. }
            | Self::EntryGone(_)
            | Self::SessionDeleted(_)
            | Self::Stopped(_)
            | Self::ShuttingDown => false,
        }
    }

    /// Converts an error of the store.
    pub(crate) fn from_store_error(session: &SessionId, error: segue_store::Error) -> Self {
        use segue_store::Error as Store;
        match error {
            Store::NoSuchSession { session } | Store::BeingDeleted { session } => Self::NoSuchSession(session),
            Store::EntryGone { session, .. } => Self::EntryGone(session),
            Store::SessionExists { session } => Self::SessionExists(session),
            Store::HeldByOtherProcess { session, by } => Self::InUse { session, by },
            Store::Fenced { .. } | Store::Conflict { .. } => Self::TakenOver(session.clone()),
            other => Self::Store(std::sync::Arc::new(other)),
        }
    }
}

impl Error {
    /// Returns the error's code: short, stable, and a heading of `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchSession(_) => "no-such-session",
            Self::SessionExists(_) => "session-exists",
            Self::BadSessionName { .. } => "bad-session-name",
            Self::NoSuchFlow { .. } => "no-such-flow",
            Self::BadSettings { .. } => "bad-settings",
            Self::NoSuchModel(_) => "no-such-model",
            Self::InvalidFlow { .. } => "invalid-flow",
            Self::FlowPanicked(_) => "flow-panicked",
            Self::Refused(refusal) => refusal_code(refusal),
            Self::InUse { .. } => "in-use",
            Self::TakenOver(_) => "taken-over",
            Self::Unreadable { source: codec::Error::NewerFormat { .. }, .. } => "newer-format",
            Self::Unreadable { .. } => "unreadable",
            Self::NoSuchCall { .. } => "no-such-call",
            Self::NothingChanges { .. } => "nothing-changes",
            Self::Store(error) => store_error_code(error),
            Self::BadImport { .. } => "bad-import",
            Self::StillWaiting { .. } => "still-waiting",
            Self::NoSuchSubmission { .. } | Self::EntryGone(_) => "no-such-submission",
            Self::SessionDeleted(_) => "session-deleted",
            Self::Stopped(_) => "stopped",
            Self::ShuttingDown => "shutting-down",
        }
    }
}

fn refusal_code(refusal: &InputRefusal) -> &'static str {
    match refusal {
        InputRefusal::AlreadyOpen | InputRefusal::NotOpen => "not-open",
        InputRefusal::Closed { .. } => "closed",
        InputRefusal::Busy => "busy",
        InputRefusal::QueueFull { .. } => "queue-full",
        InputRefusal::EmptyMessage => "empty-message",
        InputRefusal::MessageTooLong { .. } => "message-too-long",
        InputRefusal::ControlCharacter { .. } => "control-character",
        InputRefusal::TooManyImages { .. } => "too-many-images",
        InputRefusal::ImageTooBig { .. } => "image-too-big",
        InputRefusal::InvalidImage { .. } => "invalid-image",
        InputRefusal::IdempotencyKeyTooLong { .. } => "key-too-long",
        InputRefusal::CallNotPending { .. } | InputRefusal::ToolRunNotPending { .. } => "not-pending",
        InputRefusal::NoResolutionNeeded { .. } | InputRefusal::ToolRunNotHeld { .. } => "not-held",
        InputRefusal::BadToolArguments { .. } => "bad-arguments",
        InputRefusal::InvalidTurnOptions { .. } => "bad-request",
        InputRefusal::TooManyCalls { .. } => "too-many-calls",
        InputRefusal::NoTurnRunning => "nothing-runs",
        InputRefusal::LastTurnNotFailed => "nothing-failed",
        InputRefusal::StaleTurn { .. } => "stale-turn",
        InputRefusal::PhaseCommandRefused(_) => "phase",
        InputRefusal::NoSuchRole { .. } => "no-such-role",
        InputRefusal::NoSuchCommand { .. } => "no-such-command",
        InputRefusal::FlowCommandRefused(_) => "command",
        InputRefusal::NotWaiting(_) | InputRefusal::UnusableSubmission(_) => "submission",
        InputRefusal::UnknownTopic { .. } => "submission",
        InputRefusal::TooManySteps { .. } => "too-many-steps",
    }
}

fn store_error_code(error: &segue_store::Error) -> &'static str {
    use segue_store::Error as Store;
    match error {
        Store::DiskFull { .. } => "disk-full",
        Store::SessionCorrupted { .. } => "session-corrupted",
        Store::StoreCorrupted { .. } => "store-corrupted",
        Store::NewerFormat { .. } => "newer-format",
        Store::NotAStore { .. } => "not-a-store",
        Store::DatabaseUnavailable { .. } => "database-unavailable",
        _ => "store",
    }
}

#[cfg(test)]
mod tests {
    /// Every code in this file is a heading of the page. The server has more codes; its tests check that the page has
    /// no other headings.
    #[test]
    fn every_code_is_a_heading_of_the_errors_page() {
        let page = include_str!("../../../docs/errors.md");
        let headings: std::collections::BTreeSet<&str> =
            page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let source = include_str!("error.rs");
        let (code, _) = source.split_once("#[cfg(test)]").expect("these tests");
        let (_, code) = code.split_once("pub fn code").expect("the codes begin there");
        let codes: std::collections::BTreeSet<&str> =
            code.lines().filter_map(|line| line.split_once("=> \"")?.1.split('"').next()).collect();
        let missing: Vec<_> = codes.difference(&headings).collect();
        assert!(codes.len() > 20 && missing.is_empty(), "{missing:?}");
    }
}
