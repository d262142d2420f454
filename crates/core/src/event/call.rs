//! Events about model calls: requests, opened calls and their results.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{BodyId, TextRef};
use crate::context::PromptReceipt;
use crate::ids::{
    AgentName, AskName, CallId, FragmentName, ModelName, PhaseName, RoleName, ThreadId, TurnId, UnixMillis,
};
use crate::limits::WINDOW_RESERVE_TOKENS;
use crate::prompt::{ModelToolUseRules, StopReason, TokenUsage, ToolCall};
use crate::session::UnloadedPromptMessage;
use crate::signal::SignalForm;

/// A pending model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallOpened {
    pub call: CallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    pub role: RoleName,
    /// The ask of the role's recipe that this call uses.
    pub ask: AskName,
    /// The agent that plays the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The agent that it talks to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    pub model: ModelName,
    /// The sample number, if the same model is asked several times.
    #[serde(default, skip_serializing_if = "is_first_sample_index")]
    pub sample: u16,
    /// The phase of the role's phase graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
    /// The call whose tool results this call sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<CallId>,
    /// The thread for which this call writes a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacts_thread: Option<ThreadId>,
    /// The earlier call that this call repeats outside the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recomputation: Option<Box<CallRerunSpec>>,
    /// A value from the flow, returned to it with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// The offered tools, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_body: Option<BodyId>,
    /// How the model uses the offered tools.
    #[serde(default, skip_serializing_if = "ModelToolUseRules::is_default")]
    pub tool_use: ModelToolUseRules,
    /// The required output format, as JSON; `None` for plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<BodyId>,
    /// How signals are requested from the model.
    #[serde(default, skip_serializing_if = "SignalForm::is_inline")]
    pub signal_form: SignalForm,
    /// Whether the call reads its thread without adding to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_detached: bool,
    /// The maximum length of the reply.
    pub reply_tokens_max: u32,
    /// The content of the prompt, with reasons.
    pub receipt: PromptReceipt,
}

fn is_first_sample_index(sample: &u16) -> bool {
    *sample == 0
}

/// An earlier call that is repeated from its recorded prompt, with another model or other fragments. It belongs to no
/// thread, and the flow does not see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRerunSpec {
    /// The call that is repeated.
    pub call: CallId,
    /// The messages to send.
    pub(crate) messages: Vec<UnloadedPromptMessage>,
    /// The fragments that differ from the original prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_fragments: Vec<FragmentName>,
}

/// The value of [`CallQueuedOnThread::waits_for_call`] if the call waits for no other call.
pub(crate) const NO_CALL: CallId = CallId(0);

/// A call that waits for another call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallQueuedOnThread {
    /// The number of the deferred call.
    pub deferred_id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    pub request: CallRequest,
    /// The call it waits for. `NO_CALL` if it only waits to be started, as after a fork.
    pub waits_for_call: CallId,
    /// The call whose tool results it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<CallId>,
    /// How often its thread was compacted for this call.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub compactions: u32,
}

fn is_zero_count(count: &u32) -> bool {
    *count == 0
}

/// A call as requested by a flow. A request cannot name a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    pub role: RoleName,
    /// The ask of the role's recipe.
    pub ask: AskName,
    /// The agent that plays the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The agent that it talks to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    /// The model to use; `None` for the one configured for the role and phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The sample number, if the same model is asked several times.
    #[serde(default)]
    pub sample: u16,
    /// A value from the flow, returned to it with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// The JSON schema of the answer; null for the role's own format. Such a call is offered no tools.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output_schema: Value,
    #[serde(default, skip_serializing_if = "ToolOfferPolicy::is_default")]
    pub tool_offer: ToolOfferPolicy,
}

/// Whether a call is offered the tools that its role has and its phase allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOfferPolicy {
    /// They are offered, unless the request has an output schema.
    #[default]
    Offered,
    /// They are not offered.
    Withheld,
    /// They are offered if the model is known to support tool calls, and then the output schema of the request is not used.
    /// For other models it is used, and no tools are offered.
    IfSupported,
}

impl ToolOfferPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl CallOpened {
    /// Returns true if the prompt leaves enough space for a reply in the model's window. A call that does not fit is
    /// not sent.
    #[must_use]
    pub(crate) fn is_prompt_within_window(&self) -> bool {
        // An estimate that says "too long" is not enough; then the vendor decides.
        let needed = self.receipt.tokens.min(self.receipt.vendor_tokens());
        needed <= self.receipt.window_tokens.saturating_sub(self.reply_tokens_max.saturating_add(WINDOW_RESERVE_TOKENS))
    }
}

impl CallRequest {
    /// Creates a request for `role` to answer `ask`, with the role's configured model.
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
            output_schema: Value::Null,
            tool_offer: ToolOfferPolicy::Offered,
        }
    }
}

/// A model's answer to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallAnswered {
    pub call: CallId,
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub attempt: u32,
    pub text: TextRef,
    /// The reasoning text that the model returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<TextRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Opaque vendor data that must be sent back with the answer in later prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<BodyId>,
    pub stop_reason: StopReason,
    /// The tokens used, including rejected answers.
    pub usage: TokenUsage,
    /// The part of `usage` that was spent on an answer that was rejected before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_usage: Option<TokenUsage>,
    pub usage_source: UsageSource,
    /// The cost in millionths of a US dollar, if the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
    pub duration_ms: u64,
}

fn first_attempt() -> u32 {
    1
}

fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == 1
}

/// The source of a token count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The vendor reported the count.
    Vendor,
    /// Segue estimated the count.
    Estimated,
}

/// What happens to a call after an attempt without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryDecision {
    /// The call is attempted again, not before a given time.
    Retry {
        /// The earliest time of the next attempt.
        at: UnixMillis,
    },
    /// An operator decides.
    AwaitOperator,
    /// The call has failed.
    GiveUp,
}

/// Returns a request that would open the same call again.
pub(crate) fn to_call_request(opened: &CallOpened) -> CallRequest {
    CallRequest {
        role: opened.role.clone(),
        ask: opened.ask.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone(),
        model: Some(opened.model.clone()),
        sample: opened.sample,
        metadata: opened.metadata.clone(),
        output_schema: Value::Null,
        tool_offer: ToolOfferPolicy::Offered,
    }
}
