//! What can go wrong when the engine is asked for something. Each says what was refused, why, and what to do.

use segue_core::codec;
use segue_core::decide::InputRefusal;
use segue_core::ids::{CallId, FlowName, SessionId};

/// Why the engine did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The session does not exist.
    #[error("there is no session `{0}`; `segue sessions` lists those there are")]
    NoSuchSession(SessionId),
    /// The name is taken.
    #[error("there is a session `{0}` already; choose another name")]
    SessionExists(SessionId),
    /// The name cannot be used.
    #[error("`{name}` cannot name a session: {why}")]
    BadSessionName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The flow is not there.
    #[error("there is no flow `{name}`; there are {known}")]
    NoSuchFlow {
        /// What was named.
        name: FlowName,
        /// What could have been.
        known: String,
    },
    /// What a session is to be set to does not fit its flow.
    #[error("the flow `{flow}` cannot be set like that: {}", why.join("; "))]
    BadSettings {
        /// Which flow.
        flow: FlowName,
        /// What does not fit, one by one.
        why: Vec<String>,
    },
    /// A model is not there.
    #[error("{0}")]
    NoSuchModel(String),
    /// The flow's own data is broken.
    #[error("the flow `{flow}` has faults: {}", faults.join("; "))]
    InvalidFlow {
        /// Which.
        flow: FlowName,
        /// What is wrong.
        faults: Vec<String>,
    },
    /// The flow panicked.
    #[error("the flow `{0}` broke down over this, and nothing of it was recorded; this is a fault of the flow")]
    FlowPanicked(FlowName),
    /// The session did not accept the input.
    #[error(transparent)]
    Refused(#[from] InputRefusal),
    /// Another process works on the session.
    #[error("the session `{session}` is in use by another process ({by}); end it there, or try again in a moment")]
    InUse {
        /// Which.
        session: SessionId,
        /// By whom.
        by: String,
    },
    /// Another process took the session over.
    #[error("the session `{0}` was taken over by another process; what was accepted here is safe there")]
    TakenOver(SessionId),
    /// What is stored cannot be read.
    #[error("the session `{session}` cannot be read: {source}")]
    Unreadable {
        /// Which.
        session: SessionId,
        /// Why.
        source: codec::Error,
    },
    /// There is no such call.
    #[error("the session `{session}` has no call {call}; `segue show {session}` lists its calls")]
    NoSuchCall {
        /// In which session.
        session: SessionId,
        /// Which.
        call: CallId,
    },
    /// A call made once more would be the same call.
    #[error(
        "nothing in the prompt of {call} depends on these settings{}",
        opened_by.filter(|opened_by| opened_by != call).map(|by| format!("; its thread began with {by}, so try that one")).unwrap_or_default()
    )]
    NothingChanges {
        /// Which call.
        call: CallId,
        /// The call that opened its thread.
        opened_by: Option<CallId>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(std::sync::Arc<segue_store::Error>),
    /// A file to import is not what it should be.
    #[error("line {line} of the import: {why}")]
    BadImport {
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The session's task ended first.
    #[error(
        "work on the session `{0}` ended before this was done; what was accepted is recorded, so look at it and try again"
    )]
    Stopped(SessionId),
    /// The engine is shutting down.
    #[error("the engine is shutting down; what was accepted goes on at the next start")]
    ShuttingDown,
}

impl Error {
    /// Whether the same may well succeed a little later: a full or failing disk.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use segue_store::Error as Store;
        matches!(self, Self::Store(error) if matches!(**error, Store::DiskFull { .. } | Store::Io { .. } | Store::StoreLocked { .. }))
    }

    /// Whether a text was asked for that the session does not have.
    #[must_use]
    pub fn is_missing_text(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, segue_store::Error::NoSuchBody { .. }))
    }

    /// Whether a session cannot go on here after this: it is another's, it is gone, or its store is.
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
            | Self::Stopped(_)
            | Self::ShuttingDown => false,
        }
    }

    /// What a store's error means to whoever asked the engine.
    pub(crate) fn from_store_error(session: &SessionId, error: segue_store::Error) -> Self {
        use segue_store::Error as Store;
        match error {
            Store::NoSuchSession { session } => Self::NoSuchSession(session),
            Store::SessionExists { session } => Self::SessionExists(session),
            Store::HeldByOtherProcess { session, by } => Self::InUse { session, by },
            Store::Fenced { .. } | Store::Conflict { .. } => Self::TakenOver(session.clone()),
            other => Self::Store(std::sync::Arc::new(other)),
        }
    }
}

impl Error {
    /// The error's code: short, stable, and the heading of its place in `docs/errors.md`.
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
        InputRefusal::NoResolutionNeeded { .. } => "not-held",
        InputRefusal::TooManyCalls { .. } => "too-many-calls",
        InputRefusal::NoTurnRunning => "nothing-runs",
        InputRefusal::LastTurnNotFailed => "nothing-failed",
        InputRefusal::PhaseCommandRefused(_) => "phase",
        InputRefusal::NoSuchRole { .. } => "no-such-role",
        InputRefusal::NoSuchCommand { .. } => "no-such-command",
        InputRefusal::FlowCommandRefused(_) => "command",
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
        _ => "store",
    }
}

#[cfg(test)]
mod tests {
    /// Every code in this file is a heading of the page. The server has further ones, and its tests see to it that there are no
    /// others.
    #[test]
    fn every_code_has_its_place_on_the_page() {
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
