//! What survives a process: the disk, and the observations from which the run is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, IdempotencyKey, MessageId, Seq, SessionId, ToolRunId, UnixMillis};
use segue_core::prompt::Prompt;
use segue_engine::TurnReport;
use segue_store::memory::InMemoryStoreDisk;

use crate::records::SimRecords;

/// The state that survives a process.
#[derive(Debug)]
pub(crate) struct SimWorld {
    pub disk: InMemoryStoreDisk,
    /// The records of the assistant.
    records: Mutex<SimRecords>,
    pub observations: Mutex<Observations>,
}

/// Everything that happened in a run.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    /// The time when the last process ended.
    pub now: UnixMillis,
    pub sessions: BTreeSet<SessionId>,
    /// Sessions for which a deletion was requested.
    pub deleted: BTreeSet<SessionId>,
    /// Number of names given to copies.
    pub names: u64,
    /// Messages that were sent, whatever the result.
    pub sent: Vec<SentMessage>,
    pub streams: Vec<StartedCall>,
    /// Answers that models finished.
    pub finished_answers: Vec<FinishedAnswer>,
    /// The number of the running process.
    pub process: u64,
    /// Processes in which no fault kept results from being recorded, and until when.
    pub fault_free_until: BTreeMap<u64, UnixMillis>,
    pub runs: Vec<StartedToolRun>,
    pub listeners: Vec<ListenerLog>,
    /// Commands that were accepted.
    pub accepted_commands: Vec<(SessionId, OperatorCommand)>,
    /// Inputs that sessions refused.
    pub refused: Vec<RefusedInput>,
    /// Errors that nothing in the plan explains.
    pub unexpected_errors: Vec<String>,
    /// Number of appends that the stores received.
    pub appends: u64,
    /// Actions that have not ended.
    pub pending: BTreeSet<u64>,
    /// Number of leases that were taken from a process that was alive.
    pub lost_leases: u64,
}

/// A message that was sent.
#[derive(Debug, Clone)]
pub(crate) struct SentMessage {
    pub session: SessionId,
    pub text: String,
    pub key: Option<IdempotencyKey>,
    /// The last event of the session when the message was sent.
    pub head: Seq,
    pub outcome: SendOutcome,
}

/// What the sender learned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SendOutcome {
    /// Nothing; the process crashed first.
    Unknown,
    Accepted(MessageId),
    Answered(Box<TurnReport>),
    Refused(String),
}

/// An input that was sent to a session.
#[derive(Debug, Clone)]
pub(crate) struct SentInput {
    pub session: SessionId,
    /// The last event of the session when the input was sent.
    pub sent_at: Seq,
    /// The write that it was to undo, if it named one.
    pub run_to_undo: Option<ToolRunId>,
}

/// An input that a session refused.
#[derive(Debug, Clone)]
pub(crate) struct RefusedInput {
    pub sent: SentInput,
    /// The last event of the session when the refusal arrived.
    pub refused_at: Seq,
    pub refusal: InputRefusal,
}

/// A call that reached a model.
#[derive(Debug, Clone)]
pub(crate) struct StartedCall {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    /// The last event of the session when the call started.
    pub head: Seq,
    pub prompt: std::sync::Arc<Prompt>,
}

/// An answer that a model finished.
#[derive(Debug, Clone)]
pub(crate) struct FinishedAnswer {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    pub at: UnixMillis,
    pub process: u64,
}

/// A tool run that was started.
#[derive(Debug, Clone)]
pub(crate) struct StartedToolRun {
    pub session: SessionId,
    pub run: ToolRunId,
    pub head: Seq,
}

/// What one subscriber received.
#[derive(Debug, Clone)]
pub(crate) struct ListenerLog {
    pub session: SessionId,
    /// The event after which it began, and the last event at that moment.
    pub after: Seq,
    pub joined: Seq,
    /// Whether it pauses after each update.
    pub is_slow: bool,
    pub events: Vec<RecordedEvent>,
    pub is_listening: bool,
    /// The streamed text of a call's last attempt when its answer arrived.
    pub call_texts: Vec<(CallId, u32, String)>,
}

impl SimWorld {
    pub(crate) fn new() -> Self {
        Self::with_disk(InMemoryStoreDisk::new())
    }

    pub(crate) fn with_disk(disk: InMemoryStoreDisk) -> Self {
        let observations = Observations { now: UnixMillis(1_000_000), ..Observations::default() };
        Self { disk, records: Mutex::default(), observations: Mutex::new(observations) }
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, SimRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListenerLog {
    /// Returns the last event that was received.
    pub(crate) fn last_seq(&self) -> Seq {
        self.events.last().map_or(self.after, |event| event.seq)
    }
}
