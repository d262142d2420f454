//! A session's journal retold as an account: its turns, calls, threads, moves through phases, handovers and tools, each with its
//! place. A fold of events like all state; what decides the next step is not here but in the session's own state, and texts are
//! held by reference.

mod cache;
mod fold;
mod note;

use std::collections::BTreeMap;

use segue_core::event::Recorded;
use segue_core::ids::{CallId, MessageId, Millis, Seq, SessionId, ThreadId, ToolRunId, TurnId};
use segue_core::scope::Slot;

pub use cache::Chronicles;
pub use note::{
    CallEnd, CallNote, Compacted, FactNote, HandoverNote, MessageNote, Move, Moved, Place, RefusalNote, SaidNote,
    ThreadNote, ToolNote, Try, TurnNote,
};

/// The account of a session up to an event.
#[derive(Debug, Clone, Default)]
pub struct Chronicle {
    /// The first event, by which a session is told from a later one of the same name.
    pub first: Option<Box<Recorded>>,
    /// The last event told.
    pub seq: Seq,
    /// When that was.
    pub at: Millis,
    /// Which session it is a copy of, and up to where.
    pub forked_from: Option<(SessionId, Seq)>,
    /// Messages of the user.
    pub messages: BTreeMap<MessageId, MessageNote>,
    /// Turns.
    pub turns: BTreeMap<TurnId, TurnNote>,
    /// The turn that runs.
    pub running: Option<TurnId>,
    /// Calls.
    pub calls: BTreeMap<CallId, CallNote>,
    /// Threads.
    pub threads: BTreeMap<ThreadId, ThreadNote>,
    /// The newest thread of each slot.
    slots: BTreeMap<Slot, ThreadId>,
    /// What happened to phases.
    pub moves: Vec<Move>,
    /// Documents handed over.
    pub handovers: Vec<HandoverNote>,
    /// Tool runs.
    pub tools: BTreeMap<ToolRunId, ToolNote>,
    /// The flow's own facts, without what they say.
    pub facts: Vec<FactNote>,
    /// Whether agents wrote to each other.
    pub has_mail: bool,
}

impl Chronicle {
    /// The turn that an event at this place belongs to.
    #[must_use]
    pub fn turn_at(&self, seq: Seq) -> Option<TurnId> {
        let (turn, note) = self.turns.iter().rev().find(|(_, note)| note.started_at.seq <= seq)?;
        note.ended.is_none_or(|ended| ended.seq > seq).then_some(*turn)
    }

    /// The calls of a role before this one, newest first.
    pub fn calls_before<'c>(&'c self, call: &'c CallNote) -> impl Iterator<Item = &'c CallNote> {
        self.calls.range(..call.call).rev().map(|(_, note)| note).filter(|note| note.role == call.role)
    }
}
