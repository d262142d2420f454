//! A read model of a session, folded from its journal: turns, calls, threads, phase events, handovers and tool runs with
//! their positions. It serves the views. Decisions use the session's state instead. Texts are kept by reference.

mod cache;
mod entries;
mod fold;

use std::collections::BTreeMap;

use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, MessageId, Seq, SessionId, ThreadId, ToolRunId, TurnId, UnixMillis};
use segue_core::scope::ThreadKey;

pub(crate) use cache::SessionHistoryCache;
pub(crate) use entries::{
    CallEndHistoryEntry, CallHistoryEntry, EventSeqAndTime, FailedCallAttemptHistoryEntry, HandoverHistoryEntry,
    PhaseEventHistoryEntry, PhaseEventKind, RecordedFactHistoryEntry, RefusedFlowStepHistoryEntry, ReplyHistoryEntry,
    ThreadCompactionHistoryEntry, ThreadHistoryEntry, ToolRunEndHistoryEntry, ToolRunHistoryEntry, TurnHistoryEntry,
    UserMessageHistoryEntry,
};

/// The history of a session up to an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionHistory {
    /// The first event. It distinguishes the session from a later one with the same name.
    pub first_event: Option<Box<RecordedEvent>>,
    pub last_seq: Seq,
    pub last_at: UnixMillis,
    /// The original session, and the last event that both share.
    pub forked_from: Option<(SessionId, Seq)>,
    pub messages: BTreeMap<MessageId, UserMessageHistoryEntry>,
    pub turns: BTreeMap<TurnId, TurnHistoryEntry>,
    pub running_turn: Option<TurnId>,
    pub calls: BTreeMap<CallId, CallHistoryEntry>,
    pub threads: BTreeMap<ThreadId, ThreadHistoryEntry>,
    /// The newest thread of each slot.
    thread_by_slot: BTreeMap<ThreadKey, ThreadId>,
    pub phase_events: Vec<PhaseEventHistoryEntry>,
    pub handovers: Vec<HandoverHistoryEntry>,
    pub tool_runs: BTreeMap<ToolRunId, ToolRunHistoryEntry>,
    /// Facts without their values.
    pub facts: Vec<RecordedFactHistoryEntry>,
    /// Whether agents have sent messages to each other.
    pub has_agent_messages: bool,
}

impl SessionHistory {
    /// Returns the turn that was running at a sequence number.
    #[must_use]
    pub(crate) fn turn_at_seq(&self, seq: Seq) -> Option<TurnId> {
        let (turn, entry) = self.turns.iter().rev().find(|(_, entry)| entry.started.seq <= seq)?;
        entry.ended.is_none_or(|ended| ended.seq > seq).then_some(*turn)
    }

    /// Returns the earlier calls of the same role, newest first.
    pub(crate) fn previous_calls_of_role<'c>(
        &'c self,
        call: &'c CallHistoryEntry,
    ) -> impl Iterator<Item = &'c CallHistoryEntry> {
        self.calls.range(..call.call).rev().map(|(_, entry)| entry).filter(|entry| entry.role == call.role)
    }
}
