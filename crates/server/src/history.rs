//! A session's journal retold as an account: its turns, calls, threads, moves through phases, handovers and tools, each with its
//! place. A fold of events like all state; what decides the next step is not here but in the session's own state, and texts are
//! held by reference.

mod cache;
mod entries;
mod fold;

use std::collections::BTreeMap;

use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, MessageId, Seq, SessionId, ThreadId, ToolRunId, TurnId, UnixMillis};
use segue_core::scope::ThreadSlot;

pub use cache::HistoryCache;
pub use entries::{
    CallEndEntry, CallEntry, CompactionEntry, FactEntry, FailedAttemptEntry, HandoverEntry, JournalPosition,
    MessageEntry, PhaseEventEntry, PhaseEventKind, RefusedStepEntry, ReplyEntry, ThreadHistoryEntry, ToolRunEntry,
    TurnEntry,
};

/// The account of a session up to an event.
#[derive(Debug, Clone, Default)]
pub struct SessionHistory {
    /// The first event, by which a session is told from a later one of the same name.
    pub first_event: Option<Box<RecordedEvent>>,
    /// The last event told.
    pub last_seq: Seq,
    /// When that was.
    pub last_at: UnixMillis,
    /// Which session it is a copy of, and up to where.
    pub forked_from: Option<(SessionId, Seq)>,
    /// Messages of the user.
    pub messages: BTreeMap<MessageId, MessageEntry>,
    /// Turns.
    pub turns: BTreeMap<TurnId, TurnEntry>,
    /// The turn that runs.
    pub running_turn: Option<TurnId>,
    /// Calls.
    pub calls: BTreeMap<CallId, CallEntry>,
    /// Threads.
    pub threads: BTreeMap<ThreadId, ThreadHistoryEntry>,
    /// The newest thread of each slot.
    thread_by_slot: BTreeMap<ThreadSlot, ThreadId>,
    /// What happened to phases.
    pub phase_events: Vec<PhaseEventEntry>,
    /// Documents handed over.
    pub handovers: Vec<HandoverEntry>,
    /// Tool runs.
    pub tool_runs: BTreeMap<ToolRunId, ToolRunEntry>,
    /// The flow's own facts, without what they say.
    pub facts: Vec<FactEntry>,
    /// Whether agents wrote to each other.
    pub has_agent_messages: bool,
}

impl SessionHistory {
    /// The turn that an event at this place belongs to.
    #[must_use]
    pub fn turn_at_seq(&self, seq: Seq) -> Option<TurnId> {
        let (turn, note) = self.turns.iter().rev().find(|(_, note)| note.started.seq <= seq)?;
        note.ended.is_none_or(|ended| ended.seq > seq).then_some(*turn)
    }

    /// The calls of a role before this one, newest first.
    pub fn previous_calls_of_role<'c>(&'c self, call: &'c CallEntry) -> impl Iterator<Item = &'c CallEntry> {
        self.calls.range(..call.call).rev().map(|(_, note)| note).filter(|note| note.role == call.role)
    }
}
