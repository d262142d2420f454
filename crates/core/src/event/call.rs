//! Calls in the journal: as a flow wishes them, as they are owed, as they end.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{BodyId, TextRef};
use crate::context::PromptReceipt;
use crate::ids::{
    AgentName, AskName, CallId, FragmentName, ModelName, PhaseName, RoleName, ThreadId, TurnId, UnixMillis,
};
use crate::limits::WINDOW_RESERVE_TOKENS;
use crate::prompt::{StopReason, TokenUsage, ToolCall};
use crate::session::PromptMessageRef;

/// A model call that is owed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallOpened {
    /// Its number.
    pub call: CallId,
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Who speaks.
    pub role: RoleName,
    /// What the role is asked.
    pub ask: AskName,
    /// Which individual speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// With whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    /// Which model answers.
    pub model: ModelName,
    /// Which sample of it.
    #[serde(default, skip_serializing_if = "is_first_sample")]
    pub sample: u16,
    /// The phase of the role's graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
    /// The call whose tool results this one brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<CallId>,
    /// The thread whose folding it writes the summary for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacts_thread: Option<ThreadId>,
    /// The past call that is made once more, beside the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recomputation: Option<Box<CallRecomputation>>,
    /// The flow's own note on the call, given back with its answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// The tools it may use, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_body: Option<BodyId>,
    /// The form its answer must have, as JSON; plain text if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<BodyId>,
    /// The longest answer it may give.
    pub reply_tokens_max: u32,
    /// What it is shown and why.
    pub receipt: PromptReceipt,
}

fn is_first_sample(sample: &u16) -> bool {
    *sample == 0
}

/// A past call that is made once more: from its own frozen prompt, on another model or with other fragments. It belongs
/// to no thread, and no flow hears of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecomputation {
    /// Which.
    pub call: CallId,
    /// What it is sent.
    pub messages: Vec<PromptMessageRef>,
    /// The fragments in which that differs from what was sent then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_fragments: Vec<FragmentName>,
}

/// What a call waits for that waits for none.
pub const NO_CALL: CallId = CallId(0);

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallDeferred {
    /// Its number among the deferred.
    pub deferred_id: u32,
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What is wanted.
    pub request: CallRequest,
    /// The call it waits for; none if only for somebody who makes it.
    pub waits_for_call: CallId,
    /// The call whose tool results it brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<CallId>,
    /// How often its thread was compacted for it.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub compactions: u32,
}

fn is_none_yet(times: &u32) -> bool {
    *times == 0
}

/// A call as a flow wishes it. There is no way to name a thread in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// Who speaks.
    pub role: RoleName,
    /// What the role is asked.
    pub ask: AskName,
    /// Which individual speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// With whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    /// On which model; nothing means the one configured for the role in its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// Which of several samples of that model.
    #[serde(default)]
    pub sample: u16,
    /// The flow's own note, given back with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
}

impl CallOpened {
    /// Whether its prompt leaves room for an answer in the window that was planned for. Without it, it is not sent.
    #[must_use]
    pub fn fits_window(&self) -> bool {
        // What is only reckoned to be too long is for the vendor to refuse.
        let needed = self.receipt.tokens.min(self.receipt.vendor_tokens());
        needed <= self.receipt.window_tokens.saturating_sub(self.reply_tokens_max.saturating_add(WINDOW_RESERVE_TOKENS))
    }
}

impl CallRequest {
    /// A call of `role` to answer `ask`, on the role's own model.
    #[must_use]
    pub fn new(role: &str, ask: &str) -> Self {
        Self {
            role: role.into(),
            ask: ask.into(),
            agent: None,
            peer: None,
            model: None,
            sample: 0,
            metadata: Value::Null,
        }
    }

    /// The same by this individual.
    #[must_use]
    pub fn with_agent(mut self, agent: &AgentName) -> Self {
        self.agent = Some(agent.clone());
        self
    }

    /// The same, talking with this one.
    #[must_use]
    pub fn with_peer(mut self, peer: &AgentName) -> Self {
        self.peer = Some(peer.clone());
        self
    }

    /// The same on this model.
    #[must_use]
    pub fn with_model(mut self, model: &ModelName) -> Self {
        self.model = Some(model.clone());
        self
    }

    /// The same with a note.
    #[must_use]
    pub fn with_metadata(mut self, note: Value) -> Self {
        self.metadata = note;
        self
    }
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallAnswered {
    /// Which call.
    pub call: CallId,
    /// Which try.
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub attempt: u32,
    /// What it said.
    pub text: TextRef,
    /// What it thought aloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<TextRef>,
    /// What it wants run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// What its vendor wants to see again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<BodyId>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// Tokens.
    pub usage: TokenUsage,
    /// How much of that an answer took which was sent back before this one came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_usage: Option<TokenUsage>,
    /// Whose figures those are.
    pub usage_source: UsageSource,
    /// What it cost in millionths of a dollar, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
    /// How long it took.
    pub duration_ms: u64,
}

fn first_attempt() -> u32 {
    1
}

fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == 1
}

/// Whose figures a usage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The vendor's.
    Vendor,
    /// Our own count.
    Estimated,
}

/// What follows a try that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryDecision {
    /// Another try, not before this moment.
    Retry {
        /// When.
        at: UnixMillis,
    },
    /// A person decides.
    AwaitOperator,
    /// The call has failed.
    GiveUp,
}
