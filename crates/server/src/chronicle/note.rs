//! What an account says of each thing.

use std::collections::BTreeMap;

use segue_core::body::{Picture, Text};
use segue_core::context::{Layer, Prefix};
use segue_core::event::{Busy, CountedBy, Next, Outcome, PhaseKey, ToolOutcome};
use segue_core::handover::Handover;
use segue_core::ids::{
    AgentName, AskName, CallId, FragmentName, IdempotencyKey, MessageId, Millis, ModelName, PhaseName, RoleName, Seq,
    ThreadId, ToolName, ToolRunId, TurnId,
};
use segue_core::ledger::Tally;
use segue_core::phase::ruling::Refusal;
use segue_core::phase::state::{Grant, Transition};
use segue_core::prompt::{Stop, Usage};
use segue_core::scope::{Opening, Slot, Tag};
use serde_json::Value;

/// Where and when something was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Where.
    pub seq: Seq,
    /// When.
    pub at: Millis,
}

/// A message of the user.
#[derive(Debug, Clone)]
pub struct MessageNote {
    /// Which.
    pub message: MessageId,
    /// Where.
    pub place: Place,
    /// What it says.
    pub text: Text,
    /// What it shows.
    pub images: Vec<Picture>,
    /// What the client calls it.
    pub key: Option<IdempotencyKey>,
    /// What was to happen to it if a turn ran.
    pub busy: Busy,
    /// The turn that answers it, once there is one.
    pub turn: Option<TurnId>,
}

/// A turn.
#[derive(Debug, Clone)]
pub struct TurnNote {
    /// Which.
    pub turn: TurnId,
    /// Where it began.
    pub started_at: Place,
    /// Where it ended.
    pub ended: Option<Place>,
    /// How.
    pub outcome: Option<Outcome>,
    /// What it answers.
    pub messages: Vec<MessageId>,
    /// What was said in it.
    pub said: Vec<SaidNote>,
    /// Its calls.
    pub calls: Vec<CallId>,
    /// Its tool runs.
    pub tools: Vec<ToolRunId>,
    /// What happened to phases in it: places in the account's list.
    pub moves: Vec<usize>,
    /// Handovers made in it: places in the account's list.
    pub handovers: Vec<usize>,
    /// Facts noted in it: places in the account's list.
    pub facts: Vec<usize>,
    /// Steps of the flow that were not allowed.
    pub refusals: Vec<RefusalNote>,
    /// What it cost.
    pub spent: Tally,
}

/// Something said to the user.
#[derive(Debug, Clone)]
pub struct SaidNote {
    /// Where.
    pub place: Place,
    /// What.
    pub text: Text,
    /// By whom.
    pub by: Option<RoleName>,
    /// The call it came from.
    pub call: Option<CallId>,
}

/// A step that was not allowed.
#[derive(Debug, Clone)]
pub struct RefusalNote {
    /// Where.
    pub place: Place,
    /// What was tried.
    pub step: String,
    /// Why not.
    pub why: String,
}

/// A call, without its receipt.
#[derive(Debug, Clone)]
pub struct CallNote {
    /// Which.
    pub call: CallId,
    /// Where it was opened.
    pub place: Place,
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
    pub opened: Option<Opening>,
    /// Tokens of the prompt, by our count.
    pub tokens: u32,
    /// The same by kind of context.
    pub layers: BTreeMap<Layer, u32>,
    /// The model's window.
    pub window: u32,
    /// How the prompt relates to the one before.
    pub prefix: Prefix,
    /// The call whose tool results it brings.
    pub follows: Option<CallId>,
    /// The thread it writes a summary for.
    pub compacts: Option<ThreadId>,
    /// The past call it makes once more, and the fragments that differ.
    pub recomputes: Option<(CallId, Vec<FragmentName>)>,
    /// Tries that brought no answer.
    pub tries: Vec<Try>,
    /// Tries of unknown end: maybe billed.
    pub unknown: u32,
    /// How it ended, if it did.
    pub end: Option<CallEnd>,
}

/// A try that brought no answer, or a decision about one.
#[derive(Debug, Clone)]
pub struct Try {
    /// Where.
    pub place: Place,
    /// Which; nothing for a decision.
    pub attempt: Option<u32>,
    /// All of it in one line.
    pub line: String,
    /// What follows.
    pub next: Option<Next>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum CallEnd {
    /// It was answered.
    Answered {
        /// Where.
        place: Place,
        /// What it said.
        text: Text,
        /// Why it stopped; not known of a late answer.
        stop: Option<Stop>,
        /// Tokens.
        usage: Usage,
        /// Whose figures.
        counted_by: CountedBy,
        /// What it cost.
        cost_microusd: Option<u64>,
        /// How long it took; not known of a late answer.
        ms: Option<u64>,
        /// Whether it came too late to be used.
        late: bool,
    },
    /// It was given up.
    Failed {
        /// Where.
        place: Place,
        /// Why.
        why: String,
    },
    /// It was no longer wanted.
    Cancelled {
        /// Where.
        place: Place,
        /// Why.
        why: String,
        /// Whether it was under way then and was not heard of since: it may have been billed.
        in_flight: bool,
    },
}

/// A thread.
#[derive(Debug, Clone)]
pub struct ThreadNote {
    /// Which.
    pub thread: ThreadId,
    /// Where it stands.
    pub slot: Slot,
    /// What it is good for.
    pub tag: Tag,
    /// Why it was opened.
    pub why: Opening,
    /// The call that opened it, and where.
    pub opened: (Place, Option<TurnId>, CallId),
    /// The call that found another wanted in its place.
    pub ended: Option<(Place, Option<TurnId>, CallId)>,
    /// Tokens of its opening, by kind of context.
    pub opening: BTreeMap<Layer, u32>,
    /// The calls that used it.
    pub calls: Vec<CallId>,
    /// Messages it held when it was last used, with what that call added.
    pub messages: u32,
    /// Tokens it held when it was last used.
    pub tokens: u32,
    /// How it was shortened.
    pub compactions: Vec<Compacted>,
}

/// How a thread was shortened.
#[derive(Debug, Clone)]
pub struct Compacted {
    /// Where.
    pub place: Place,
    /// Messages folded.
    pub folded: u32,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub by: Option<CallId>,
}

/// Something that happened to a phase graph.
#[derive(Debug, Clone)]
pub struct Move {
    /// Where.
    pub place: Place,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Whose graph.
    pub key: PhaseKey,
    /// What.
    pub what: Moved,
}

/// What happened to a phase graph.
#[derive(Debug, Clone)]
pub enum Moved {
    /// A phase was entered.
    Entered(Transition),
    /// A proposal was refused.
    Refused(Refusal),
    /// A skip was granted.
    Granted(Grant),
}

/// A document handed over.
#[derive(Debug, Clone)]
pub struct HandoverNote {
    /// Where.
    pub place: Place,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// The document.
    pub handover: Handover,
    /// The calls whose prompt showed it.
    pub shown_to: Vec<CallId>,
}

/// A tool run.
#[derive(Debug, Clone)]
pub struct ToolNote {
    /// Which.
    pub run: ToolRunId,
    /// Where it was opened.
    pub place: Place,
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
    pub end: Option<(Place, ToolOutcome, Text)>,
}

/// A fact of the flow's own, without what it says.
#[derive(Debug, Clone)]
pub struct FactNote {
    /// Where.
    pub place: Place,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Its kind.
    pub kind: String,
}
