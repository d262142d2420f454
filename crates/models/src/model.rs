//! The interface of every language model. A model turns a request into a stream of chunks; dropping the stream cancels the
//! call. Retries, timeouts, concurrency and cost are up to the caller.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use segue_core::ids::{AgentName, AskName, CallId, FlowName, PhaseName, RoleName, SessionId, TurnId};
use segue_core::prompt::{CallFailure, Prompt, StopReason, TokenUsage, ToolCall};
use serde::{Deserialize, Serialize};

/// A reply as it arrives. It ends with [`ReplyChunk::Finish`] or with a failure; any other end is a broken stream.
pub type ReplyChunkStream = BoxStream<'static, Result<ReplyChunk, CallFailure>>;

/// A model that answers prompts.
pub trait LanguageModel: Send + Sync + fmt::Debug {
    /// Starts a call. It may begin lazily, when the stream is first polled; dropping the stream cancels it.
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream;

    fn describe(&self) -> ModelDescription;

    /// Returns who serves the model and where, if it is remote. Models with the same value fail together.
    fn failure_domain(&self) -> Option<&str> {
        None
    }
}

/// One call to a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub prompt: Arc<Prompt>,
    /// Estimated size of the prompt; the output budget depends on it.
    pub prompt_tokens: u32,
    pub caching: CacheablePromptPart,
    /// Describes the call to simulated models. Vendor models ignore it.
    pub metadata: ModelCallOrigin,
}

/// How much of the prompt later prompts will begin with, and is therefore worth caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheablePromptPart {
    /// The thread continues.
    #[default]
    WholePrompt,
    /// The call keeps no memory; only its instructions are repeated.
    SystemOnly,
}

/// The position of a call in a conversation, for simulated models to match on.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCallOrigin {
    pub session: SessionId,
    pub flow: FlowName,
    pub role: RoleName,
    /// The kind of request the role is asked to answer.
    pub ask: AskName,
    /// The member of the role, if the role has several.
    pub agent: Option<AgentName>,
    /// The conversation partner, if the role's memory is scoped by it.
    pub peer: Option<AgentName>,
    pub phase: Option<PhaseName>,
    /// `None` if the call happens outside turns.
    pub turn: Option<TurnId>,
    pub call: CallId,
    /// Counted from 1.
    pub attempt: u32,
    pub hints: RehearsalHints,
}

impl ModelCallOrigin {
    /// Creates metadata for a first attempt, with the optional fields empty.
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

/// A flow's hints to the rehearsal model. They are never sent to a vendor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RehearsalHints {
    /// The reply of the rehearsal model, with placeholders such as `{{last}}` and `{{topic}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_template: Option<String>,
    /// The tools that the rehearsal model calls in its reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyChunk {
    Text(String),
    Reasoning(String),
    /// A complete tool call; fragments are assembled by the vendor adapter.
    ToolCall(ToolCall),
    /// Opaque data that the vendor expects back with this reply in later requests.
    VendorState(String),
    /// No content, but the stream is alive.
    KeepAlive,
    /// The end of the reply.
    Finish(ReplyFinish),
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyFinish {
    pub stop: StopReason,
    /// As reported by the vendor, if at all.
    pub usage: Option<TokenUsage>,
    /// The part of `usage` spent on an earlier reply that was rejected.
    pub rejected_usage: Option<TokenUsage>,
}

/// A short description of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDescription {
    pub kind: ModelBackendKind,
    /// For display.
    pub label: String,
    /// Tokens that prompt and reply may use together.
    pub window_tokens: u32,
}

/// Where a model's replies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelBackendKind {
    /// A real model, local or remote.
    Vendor,
    /// A scenario file.
    Scripted,
    /// The built-in demo model.
    Rehearsal,
}

impl fmt::Display for ModelBackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vendor => "vendor",
            Self::Scripted => "scripted",
            Self::Rehearsal => "rehearsal",
        })
    }
}
