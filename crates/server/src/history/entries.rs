//! The entries of a session's history.

use std::collections::BTreeMap;

use segue_core::body::{ImageRef, TextRef};
use segue_core::context::{FragmentContentKind, PreviousPromptComparison};
use segue_core::event::{
    MidTurnPolicy, PhaseGraphKey, RetryDecision, ToolRunHoldReason, ToolRunOutcome, TurnOutcome, UsageSource,
};
use segue_core::handover::Handover;
use segue_core::ids::{
    AgentName, AskName, CallId, FragmentName, IdempotencyKey, MessageId, ModelName, PhaseName, RoleName, Seq, ThreadId,
    ToolName, ToolRunId, TurnId, UnixMillis,
};
use segue_core::phase::{OneTimePhaseGrant, PhaseRefusal, PhaseTransition};
use segue_core::prompt::{StopReason, TokenUsage};
use segue_core::scope::{ThreadKey, ThreadOpenReason, ThreadReuseConditions};
use segue_core::session::UsageTotals;
use segue_core::tool::ToolArtifact;
use serde_json::Value;

/// The sequence number and time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EventSeqAndTime {
    pub seq: Seq,
    pub at: UnixMillis,
}

/// A message of the user.
#[derive(Debug, Clone)]
pub(crate) struct UserMessageHistoryEntry {
    pub message: MessageId,
    pub position: EventSeqAndTime,
    pub text: TextRef,
    pub images: Vec<ImageRef>,
    pub idempotency_key: Option<IdempotencyKey>,
    pub mid_turn_policy: MidTurnPolicy,
    /// The turn that answers the message, once it has started.
    pub turn: Option<TurnId>,
}

/// A turn.
#[derive(Debug, Clone)]
pub(crate) struct TurnHistoryEntry {
    pub turn: TurnId,
    pub started: EventSeqAndTime,
    pub ended: Option<EventSeqAndTime>,
    pub outcome: Option<TurnOutcome>,
    pub messages: Vec<MessageId>,
    pub replies: Vec<ReplyHistoryEntry>,
    pub calls: Vec<CallId>,
    pub tool_runs: Vec<ToolRunId>,
    /// Indices into the history's list.
    pub phase_events: Vec<usize>,
    /// Indices into the history's list.
    pub handovers: Vec<usize>,
    /// Indices into the history's list.
    pub facts: Vec<usize>,
    /// Steps of the flow that the engine refused.
    pub refused_steps: Vec<RefusedFlowStepHistoryEntry>,
    pub spent: UsageTotals,
}

/// A reply to the user.
#[derive(Debug, Clone)]
pub(crate) struct ReplyHistoryEntry {
    pub position: EventSeqAndTime,
    pub text: TextRef,
    pub role: Option<RoleName>,
    /// The call that produced the reply.
    pub call: Option<CallId>,
}

/// A step of the flow that the engine refused.
#[derive(Debug, Clone)]
pub(crate) struct RefusedFlowStepHistoryEntry {
    pub position: EventSeqAndTime,
    pub step: String,
    pub reason: String,
}

/// A call, without its receipt.
#[derive(Debug, Clone)]
pub(crate) struct CallHistoryEntry {
    pub call: CallId,
    /// The event that opened the call.
    pub position: EventSeqAndTime,
    pub turn: Option<TurnId>,
    pub role: RoleName,
    pub ask: AskName,
    pub agent: Option<AgentName>,
    /// The agent that the role talks to.
    pub peer: Option<AgentName>,
    pub model: ModelName,
    pub sample: u16,
    pub phase: Option<PhaseName>,
    pub thread: ThreadId,
    /// Why the thread was opened; `None` if it was continued.
    pub thread_opening: Option<ThreadOpenReason>,
    pub prompt_tokens: u32,
    pub tokens_by_layer: BTreeMap<FragmentContentKind, u32>,
    pub window_tokens: u32,
    /// How the prompt compares with the previous one.
    pub prefix: PreviousPromptComparison,
    /// The call whose tool results this call sends.
    pub follows: Option<CallId>,
    /// The thread that this call summarizes.
    pub compacts: Option<ThreadId>,
    /// The original call of a recomputation, and the fragments that differ.
    pub recomputes: Option<(CallId, Vec<FragmentName>)>,
    pub failed_attempts: Vec<FailedCallAttemptHistoryEntry>,
    /// Attempts whose outcome is unknown; they may have been billed.
    pub unknown_attempts: u32,
    /// `None` while the call is open.
    pub end: Option<CallEndHistoryEntry>,
}

/// An attempt without an answer, or a decision about one.
#[derive(Debug, Clone)]
pub(crate) struct FailedCallAttemptHistoryEntry {
    pub position: EventSeqAndTime,
    /// `None` for a decision.
    pub attempt: Option<u32>,
    /// The event in one line.
    pub summary: String,
    pub next: Option<RetryDecision>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(crate) enum CallEndHistoryEntry {
    Answered {
        position: EventSeqAndTime,
        text: TextRef,
        /// Unknown for a late answer.
        stop_reason: Option<StopReason>,
        usage: TokenUsage,
        counted_by: UsageSource,
        cost_microusd: Option<u64>,
        /// Unknown for a late answer.
        duration_ms: Option<u64>,
        /// Whether the answer arrived too late to be used.
        is_late: bool,
    },
    /// The call was given up.
    Failed { position: EventSeqAndTime, reason: String },
    /// The call was cancelled.
    Cancelled {
        position: EventSeqAndTime,
        reason: String,
        /// Whether an attempt was running and its outcome is still unknown; it may have been billed.
        in_flight: bool,
    },
}

/// A thread.
#[derive(Debug, Clone)]
pub(crate) struct ThreadHistoryEntry {
    pub thread: ThreadId,
    pub slot: ThreadKey,
    pub tag: ThreadReuseConditions,
    pub opening_reason: ThreadOpenReason,
    /// The call that opened the thread.
    pub opened: (EventSeqAndTime, Option<TurnId>, CallId),
    /// The call that opened the next thread in the slot.
    pub ended: Option<(EventSeqAndTime, Option<TurnId>, CallId)>,
    /// The tokens of the opening prompt by context layer.
    pub opening_tokens: BTreeMap<FragmentContentKind, u32>,
    pub calls: Vec<CallId>,
    /// The number of messages after the last call.
    pub messages: u32,
    /// The number of tokens after the last call.
    pub tokens: u32,
    pub compactions: Vec<ThreadCompactionHistoryEntry>,
}

/// A compaction of a thread.
#[derive(Debug, Clone)]
pub(crate) struct ThreadCompactionHistoryEntry {
    pub position: EventSeqAndTime,
    /// The number of messages that were replaced by a summary.
    pub messages_folded: u32,
    pub tokens_before: u32,
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub summary_call: Option<CallId>,
}

/// An entry, refusal or grant in a phase graph.
#[derive(Debug, Clone)]
pub(crate) struct PhaseEventHistoryEntry {
    pub position: EventSeqAndTime,
    pub turn: Option<TurnId>,
    pub phase_key: PhaseGraphKey,
    pub kind: PhaseEventKind,
}

/// What happened in a phase graph.
#[derive(Debug, Clone)]
pub(crate) enum PhaseEventKind {
    Entered(PhaseTransition),
    Refused(PhaseRefusal),
    Granted(OneTimePhaseGrant),
}

/// A handover.
#[derive(Debug, Clone)]
pub(crate) struct HandoverHistoryEntry {
    pub position: EventSeqAndTime,
    pub turn: Option<TurnId>,
    pub handover: Handover,
    /// The calls whose prompts contain the handover.
    pub shown_to: Vec<CallId>,
}

/// A tool run.
#[derive(Debug, Clone)]
pub(crate) struct ToolRunHistoryEntry {
    pub run: ToolRunId,
    /// The event that opened the run.
    pub position: EventSeqAndTime,
    pub tool: ToolName,
    pub arguments: Value,
    /// The call that requested the run.
    pub call: Option<CallId>,
    pub agent: Option<AgentName>,
    pub phase: Option<PhaseName>,
    /// Why the run waits for a person, if it does.
    pub hold_reason: Option<ToolRunHoldReason>,
    /// The event with which the run was passed to the client, if it was.
    pub client_held_seq: Option<Seq>,
    /// The arguments that were requested, if a person changed them.
    pub requested_arguments: Option<Value>,
    /// `None` while the tool is running.
    pub end: Option<ToolRunEndHistoryEntry>,
}

/// The end of a tool run.
#[derive(Debug, Clone)]
pub(crate) struct ToolRunEndHistoryEntry {
    pub position: EventSeqAndTime,
    pub outcome: ToolRunOutcome,
    pub text: TextRef,
    pub value: Option<Value>,
    pub artifacts: Vec<ToolArtifact<TextRef>>,
}

/// A fact of the flow, without its value.
#[derive(Debug, Clone)]
pub(crate) struct RecordedFactHistoryEntry {
    pub position: EventSeqAndTime,
    pub turn: Option<TurnId>,
    pub kind: String,
}
