//! What outlives a process: the disk, and the notes of an observer who sees everything and forgets nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use segue_core::event::Recorded;
use segue_core::ids::{CallId, IdempotencyKey, MessageId, Millis, Seq, SessionId, ToolRunId};
use segue_core::prompt::Prompt;
use segue_engine::TurnReport;
use segue_store::memory::MemoryDisk;

/// What outlives a process.
#[derive(Debug)]
pub struct World {
    pub disk: MemoryDisk,
    pub notes: Mutex<Notes>,
}

/// What the observer saw.
#[derive(Debug, Default)]
pub struct Notes {
    /// The time when the last process ended.
    pub now: Millis,
    pub sessions: BTreeSet<SessionId>,
    /// Those that somebody wanted deleted.
    pub deleted: BTreeSet<SessionId>,
    /// Names given to copies.
    pub names: u64,
    /// What was sent, whatever came of it.
    pub sent: Vec<Sent>,
    pub streams: Vec<Streamed>,
    /// Answers that models gave to their end.
    pub answers: Vec<Given>,
    /// The life that is lived.
    pub life: u64,
    /// Lives in which nothing kept anything from being recorded, and until when.
    pub untroubled: BTreeMap<u64, Millis>,
    pub runs: Vec<Ran>,
    pub heard: Vec<Heard>,
    /// Errors that should not have been.
    pub wrong: Vec<String>,
    /// Appends that the stores were asked for.
    pub appends: u64,
    /// Questions and listeners that have not come to an end.
    pub pending: BTreeSet<u64>,
}

/// A message on its way.
#[derive(Debug, Clone)]
pub struct Sent {
    pub session: SessionId,
    pub text: String,
    pub key: Option<IdempotencyKey>,
    /// How much was recorded when it was sent.
    pub head: Seq,
    pub came_of_it: Fate,
}

/// What the sender was told.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// Nothing; the process died first.
    Untold,
    Accepted(MessageId),
    Answered(Box<TurnReport>),
    Refused(String),
}

/// A call that a model was made to answer.
#[derive(Debug, Clone)]
pub struct Streamed {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    /// How much was recorded when it began.
    pub head: Seq,
    pub prompt: std::sync::Arc<Prompt>,
}

/// An answer that a model gave to its end.
#[derive(Debug, Clone)]
pub struct Given {
    pub session: SessionId,
    pub call: CallId,
    pub attempt: u32,
    pub at: Millis,
    /// In which life.
    pub life: u64,
}

/// A tool that was run.
#[derive(Debug, Clone)]
pub struct Ran {
    pub session: SessionId,
    pub run: ToolRunId,
    pub head: Seq,
}

/// What one listener heard.
#[derive(Debug, Clone)]
pub struct Heard {
    pub session: SessionId,
    /// Where it began, and what was recorded at that moment.
    pub after: Seq,
    pub joined: Seq,
    pub events: Vec<Recorded>,
    /// Whether it still listens.
    pub listens: bool,
    /// The words of a call's last try when its answer came.
    pub words: Vec<(CallId, u32, String)>,
}

impl World {
    pub fn new() -> Self {
        let notes = Notes { now: Millis(1_000_000), ..Notes::default() };
        Self { disk: MemoryDisk::new(), notes: Mutex::new(notes) }
    }

    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// The place of the last event heard.
    pub fn reached(&self) -> Seq {
        self.events.last().map_or(self.after, |event| event.seq)
    }
}
