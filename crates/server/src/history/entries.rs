//! What an account says of each thing.

use std::collections::BTreeMap;

use segue_core::body::{ImageRef, TextRef};
use segue_core::context::{ContextLayer, PrefixMatch};
use segue_core::event::{MidTurnPolicy, PhaseGraphKey, RetryDecision, ToolOutcome, TurnResult, UsageSource};
use segue_core::handover::Handover;
use segue_core::ids::{
    AgentName, AskName, CallId, FragmentName, IdempotencyKey, MessageId, ModelName, PhaseName, RoleName, Seq, ThreadId,
    ToolName, ToolRunId, TurnId, UnixMillis,
};
use segue_core::ledger::UsageTotals;
use segue_core::phase::ruling::PhaseRefusal;
use segue_core::phase::state::{PhaseTransition, SkipGrant};
use segue_core::prompt::{StopReason, TokenUsage};
use segue_core::scope::{ScopeTag, ThreadOpenReason, ThreadSlot};
use serde_json::Value;

/// Where and when something was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalPosition {
    /// Where.
    pub seq: Seq,
    /// When.
    pub at: UnixMillis,
}

/// A message of the user.
#[derive(Debug, Clone)]
pub struct MessageEntry {
    /// Which.
    pub message: MessageId,
    /// Where.
    pub position: JournalPosition,
    /// What it says.
    pub text: TextRef,
    /// What it shows.
    pub images: Vec<ImageRef>,
    /// What the client calls it.
    pub idempotency_key: Option<IdempotencyKey>,
    /// What was to happen to it if a turn ran.
    pub mid_turn_policy: MidTurnPolicy,
    /// The turn that answers it, once there is one.
    pub turn: Option<TurnId>,
}

/// A turn.
#[derive(Debug, Clone)]
pub struct TurnEntry {
    /// Which.
    pub turn: TurnId,
    /// Where it began.
    pub started: JournalPosition,
    /// Where it ended.
    pub ended: Option<JournalPosition>,
    /// How.
    pub outcome: Option<TurnResult>,
    /// What it answers.
    pub messages: Vec<MessageId>,
    /// What was said in it.
    pub replies: Vec<ReplyEntry>,
    /// Its calls.
    pub calls: Vec<CallId>,
    /// Its tool runs.
    pub tool_runs: Vec<ToolRunId>,
    /// What happened to phases in it: places in the account's list.
    pub phase_events: Vec<usize>,
    /// Handovers made in it: places in the account's list.
    pub handovers: Vec<usize>,
    /// Facts noted in it: places in the account's list.
    pub facts: Vec<usize>,
    /// Steps of the flow that were not allowed.
    pub refused_steps: Vec<RefusedStepEntry>,
    /// What it cost.
    pub spent: UsageTotals,
}

/// Something said to the user.
#[derive(Debug, Clone)]
pub struct ReplyEntry {
    /// Where.
    pub position: JournalPosition,
    /// What.
    pub text: TextRef,
    /// By whom.
    pub role: Option<RoleName>,
    /// The call it came from.
    pub call: Option<CallId>,
}

/// A step that was not allowed.
#[derive(Debug, Clone)]
pub struct RefusedStepEntry {
    /// Where.
    pub position: JournalPosition,
    /// What was tried.
    pub step: String,
    /// Why not.
    pub reason: String,
}

/// A call, without its receipt.
#[derive(Debug, Clone)]
pub struct CallEntry {
    /// Which.
    pub call: CallId,
    /// Where it was opened.
    pub position: JournalPosition,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Who speaks.
    pub role: RoleName,
    /// What the role is asked.
    pub ask: AskName,
    /// Which individual.
    pub agent: Option<AgentName>,
    /// With whom.
    pub peer: Option<AgentName>,
    /// Which model.
    pub model: ModelName,
    /// Which sample of it.
    pub sample: u16,
    /// In which phase.
    pub phase: Option<PhaseName>,
    /// In which thread.
    pub thread: ThreadId,
    /// Why a new one; nothing if it was continued.
    pub thread_opening: Option<ThreadOpenReason>,
    /// Tokens of the prompt, by our count.
    pub prompt_tokens: u32,
    /// The same by kind of context.
    pub tokens_by_layer: BTreeMap<ContextLayer, u32>,
    /// The model's window.
    pub window_tokens: u32,
    /// How the prompt relates to the one before.
    pub prefix: PrefixMatch,
    /// The call whose tool results it brings.
    pub follows: Option<CallId>,
    /// The thread it writes a summary for.
    pub compacts: Option<ThreadId>,
    /// The past call it makes once more, and the fragments that differ.
    pub recomputes: Option<(CallId, Vec<FragmentName>)>,
    /// Tries that brought no answer.
    pub failed_attempts: Vec<FailedAttemptEntry>,
    /// Tries of unknown end: maybe billed.
    pub unknown_attempts: u32,
    /// How it ended, if it did.
    pub end: Option<CallEndEntry>,
}

/// A try that brought no answer, or a decision about one.
#[derive(Debug, Clone)]
pub struct FailedAttemptEntry {
    /// Where.
    pub position: JournalPosition,
    /// Which; nothing for a decision.
    pub attempt: Option<u32>,
    /// All of it in one line.
    pub summary: String,
    /// What follows.
    pub next: Option<RetryDecision>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum CallEndEntry {
    /// It was answered.
    Answered {
        /// Where.
        position: JournalPosition,
        /// What it said.
        text: TextRef,
        /// Why it stopped; not known of a late answer.
        stop_reason: Option<StopReason>,
        /// Tokens.
        usage: TokenUsage,
        /// Whose figures.
        counted_by: UsageSource,
        /// What it cost.
        cost_microusd: Option<u64>,
        /// How long it took; not known of a late answer.
        duration_ms: Option<u64>,
        /// Whether it came too late to be used.
        is_late: bool,
    },
    /// It was given up.
    Failed {
        /// Where.
        position: JournalPosition,
        /// Why.
        reason: String,
    },
    /// It was no longer wanted.
    Cancelled {
        /// Where.
        position: JournalPosition,
        /// Why.
        reason: String,
        /// Whether it was under way then and was not heard of since: it may have been billed.
        in_flight: bool,
    },
}

/// A thread.
#[derive(Debug, Clone)]
pub struct ThreadHistoryEntry {
    /// Which.
    pub thread: ThreadId,
    /// Where it stands.
    pub slot: ThreadSlot,
    /// What it is good for.
    pub tag: ScopeTag,
    /// Why it was opened.
    pub opening_reason: ThreadOpenReason,
    /// The call that opened it, and where.
    pub opened: (JournalPosition, Option<TurnId>, CallId),
    /// The call that found another wanted in its place.
    pub ended: Option<(JournalPosition, Option<TurnId>, CallId)>,
    /// Tokens of its opening, by kind of context.
    pub opening_tokens: BTreeMap<ContextLayer, u32>,
    /// The calls that used it.
    pub calls: Vec<CallId>,
    /// Messages it held when it was last used, with what that call added.
    pub messages: u32,
    /// Tokens it held when it was last used.
    pub tokens: u32,
    /// How it was shortened.
    pub compactions: Vec<CompactionEntry>,
}

/// How a thread was shortened.
#[derive(Debug, Clone)]
pub struct CompactionEntry {
    /// Where.
    pub position: JournalPosition,
    /// Messages folded.
    pub messages_folded: u32,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub summary_call: Option<CallId>,
}

/// Something that happened to a phase graph.
#[derive(Debug, Clone)]
pub struct PhaseEventEntry {
    /// Where.
    pub position: JournalPosition,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Whose graph.
    pub phase_key: PhaseGraphKey,
    /// What.
    pub kind: PhaseEventKind,
}

/// What happened to a phase graph.
#[derive(Debug, Clone)]
pub enum PhaseEventKind {
    /// A phase was entered.
    Entered(PhaseTransition),
    /// A proposal was refused.
    Refused(PhaseRefusal),
    /// A skip was granted.
    Granted(SkipGrant),
}

/// A document handed over.
#[derive(Debug, Clone)]
pub struct HandoverEntry {
    /// Where.
    pub position: JournalPosition,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// The document.
    pub handover: Handover,
    /// The calls whose prompt showed it.
    pub shown_to: Vec<CallId>,
}

/// A tool run.
#[derive(Debug, Clone)]
pub struct ToolRunEntry {
    /// Which.
    pub run: ToolRunId,
    /// Where it was opened.
    pub position: JournalPosition,
    /// Which tool.
    pub tool: ToolName,
    /// With what.
    pub arguments: Value,
    /// The call that asked for it.
    pub call: Option<CallId>,
    /// On whose behalf.
    pub agent: Option<AgentName>,
    /// In which phase.
    pub phase: Option<PhaseName>,
    /// How it ended, if it did: where, how, with what text.
    pub end: Option<(JournalPosition, ToolOutcome, TextRef)>,
}

/// A fact of the flow's own, without what it says.
#[derive(Debug, Clone)]
pub struct FactEntry {
    /// Where.
    pub position: JournalPosition,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Its kind.
    pub kind: String,
}
