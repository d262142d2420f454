//! The one door to every model. A model turns a request into a stream of chunks; dropping the stream cancels the call.
//! Retries, timeouts, concurrency and cost are the caller's business.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use segue_core::ids::{AgentName, AskName, CallId, FlowName, PhaseName, RoleName, SessionId, TurnId};
use segue_core::prompt::{CallFailure, Prompt, StopReason, TokenUsage, ToolCall};
use serde::{Deserialize, Serialize};

/// An answer on its way. It ends with [`Chunk::Finish`] or with a failure; anything else is a broken stream.
pub type ReplyChunkStream = BoxStream<'static, Result<ReplyChunk, CallFailure>>;

/// Something that answers prompts.
pub trait LanguageModel: Send + Sync + fmt::Debug {
    /// Starts a call. Nothing need happen before the stream is polled; dropping the stream cancels the call.
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream;

    /// What this is, for people and for budgets.
    fn describe(&self) -> ModelDescription;

    /// Who serves it and where, if somebody does: when one model cannot be reached there, the others cannot either.
    fn provider(&self) -> Option<&str> {
        None
    }
}

/// One call to a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// What the model is sent.
    pub prompt: Arc<Prompt>,
    /// Its tokens, as far as we can count them; what an answer may take beside them depends on it.
    pub prompt_tokens: u32,
    /// Whether more will follow this prompt.
    pub caching: PromptCaching,
    /// What the call is to the engine. A vendor's model never looks at it.
    pub metadata: CallMetadata,
}

/// Whether a later prompt begins with this one: what a vendor's cache is worth filling for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptCaching {
    /// The thread goes on.
    #[default]
    WholePrompt,
    /// The call remembers nothing; at most its instructions come again.
    SystemOnly,
}

/// Where in a conversation a call stands: what a stand-in for a model may match on.
#[derive(Debug, Clone, PartialEq)]
pub struct CallMetadata {
    /// The session.
    pub session: SessionId,
    /// Its flow.
    pub flow: FlowName,
    /// Who speaks.
    pub role: RoleName,
    /// What the role is asked.
    pub ask: AskName,
    /// Which individual of the role, if the role has several.
    pub agent: Option<AgentName>,
    /// Whom it talks to, if its memory is kept apart by that.
    pub peer: Option<AgentName>,
    /// The phase the call belongs to, if any.
    pub phase: Option<PhaseName>,
    /// The turn, unless the call happens outside turns.
    pub turn: Option<TurnId>,
    /// The call within the session.
    pub call: CallId,
    /// Which try this is; the first is 1.
    pub attempt: u32,
    /// What the flow tells a stand-in about this call.
    pub hints: RehearsalHints,
}

impl CallMetadata {
    /// The facts every call has; the rest absent, first attempt.
    #[must_use]
    pub fn new(session: SessionId, flow: FlowName, role: RoleName, ask: AskName, call: CallId) -> Self {
        Self {
            session,
            flow,
            role,
            ask,
            agent: None,
            peer: None,
            phase: None,
            turn: None,
            call,
            attempt: 1,
            hints: RehearsalHints::default(),
        }
    }
}

/// A flow's advice to a stand-in. It never reaches a vendor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RehearsalHints {
    /// What the rehearsal model shall answer, with placeholders such as `{{last}}` and `{{topic}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_template: Option<String>,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyChunk {
    /// More of what it says.
    Text(String),
    /// More of what it thinks aloud.
    Reasoning(String),
    /// A whole tool call; a vendor's fragments are put together before they get here.
    ToolCall(ToolCall),
    /// What the vendor wants to see again with this answer when the conversation goes on.
    VendorState(String),
    /// Nothing to tell, but the answer is on its way.
    KeepAlive,
    /// The end.
    Finish(ReplyFinish),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyFinish {
    /// Why.
    pub stop: StopReason,
    /// The vendor's own figures, if it gave any.
    pub usage: Option<TokenUsage>,
    /// How much of that an answer took that was sent back before this one.
    pub rejected_usage: Option<TokenUsage>,
}

/// What a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDescription {
    /// Of what kind.
    pub kind: ModelSource,
    /// For people's eyes.
    pub label: String,
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
}

/// The kinds of model there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSource {
    /// A real model, here or over the network.
    Vendor,
    /// Answers from a scenario file.
    Scripted,
    /// A stand-in that answers without any model.
    Rehearsal,
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vendor => "vendor",
            Self::Scripted => "scripted",
            Self::Rehearsal => "rehearsal",
        })
    }
}
