//! What outlives a process: the disk, and the notes of an observer who sees everything and forgets nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, IdempotencyKey, MessageId, Seq, SessionId, ToolRunId, UnixMillis};
use segue_core::prompt::Prompt;
use segue_engine::TurnReport;
use segue_store::memory::MemoryDisk;

/// What outlives a process.
#[derive(Debug)]
pub struct SimWorld {
    pub disk: MemoryDisk,
    pub observations: Mutex<Observations>,
}

/// What the observer saw.
#[derive(Debug, Default)]
pub struct Observations {
    /// The time when the last process ended.
    pub now: UnixMillis,
    pub sessions: BTreeSet<SessionId>,
    /// Those that somebody wanted deleted.
    pub deleted: BTreeSet<SessionId>,
    /// Names given to copies.
    pub names: u64,
    /// What was sent, whatever came of it.
    pub sent: Vec<SentMessage>,
    pub streams: Vec<StartedCall>,
    /// Answers that models gave to their end.
    pub finished_answers: Vec<FinishedAnswer>,
    /// The life that is lived.
    pub process: u64,
    /// Lives in which nothing kept anything from being recorded, and until when.
    pub fault_free_until: BTreeMap<u64, UnixMillis>,
    pub runs: Vec<StartedToolRun>,
    pub listeners: Vec<ListenerLog>,
    /// Errors that should not have been.
    pub unexpected_errors: Vec<String>,
    /// Appends that the stores were asked for.
    pub appends: u64,
    /// Questions and listeners that have not come to an end.
    pub pending: BTreeSet<u64>,
}

/// A message on its way.
#[derive(Debug, Clone)]
pub struct SentMessage {
    pub session: SessionId,
    pub text: String,
    pub key: Option<IdempotencyKey>,
    /// How much was recorded when it was sent.
    pub head: Seq,
    pub outcome: SendOutcome,
}

/// What the sender was told.
#[derive(Debug, Clone, PartialEq)]
pub enum SendOutcome {
    /// Nothing; the process died first.
    Unknown,
    Accepted(MessageId),
    Answered(Box<TurnReport>),
    Refused(String),
}

/// A call that a model was made to answer.
#[derive(Debug, Clone)]
pub struct StartedCall {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    /// How much was recorded when it began.
    pub head: Seq,
    pub prompt: std::sync::Arc<Prompt>,
}

/// An answer that a model gave to its end.
#[derive(Debug, Clone)]
pub struct FinishedAnswer {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    pub at: UnixMillis,
    /// In which life.
    pub process: u64,
}

/// A tool that was run.
#[derive(Debug, Clone)]
pub struct StartedToolRun {
    pub session: SessionId,
    pub run: ToolRunId,
    pub head: Seq,
}

/// What one listener heard.
#[derive(Debug, Clone)]
pub struct ListenerLog {
    pub session: SessionId,
    /// Where it began, and what was recorded at that moment.
    pub after: Seq,
    pub joined: Seq,
    /// Whether it pauses after each update.
    pub is_slow: bool,
    pub events: Vec<RecordedEvent>,
    /// Whether it still listens.
    pub is_listening: bool,
    /// The words of a call's last try when its answer came.
    pub call_texts: Vec<(CallId, u32, String)>,
}

impl SimWorld {
    pub fn new() -> Self {
        let notes = Observations { now: UnixMillis(1_000_000), ..Observations::default() };
        Self { disk: MemoryDisk::new(), observations: Mutex::new(notes) }
    }

    pub fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListenerLog {
    /// The place of the last event heard.
    pub fn last_seq(&self) -> Seq {
        self.events.last().map_or(self.after, |event| event.seq)
    }
}
