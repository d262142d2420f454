//! Prompts and model replies, independent of any vendor. A prompt is a value: it has the same bytes when it is rebuilt
//! from the journal later.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ModelName, ToolName};

/// Everything that is sent to a model in one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub model: ModelName,
    /// In order, system messages first. Shared with the next prompt of the same thread.
    pub messages: Arc<Vec<PromptMessage>>,
    /// The tools that the model may call, in the role's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ModelToolSpec>,
    /// How the model uses the tools.
    #[serde(default, skip_serializing_if = "ModelToolUseRules::is_default")]
    pub tool_use: ModelToolUseRules,
    pub output_format: ModelOutputFormat,
    /// The maximum length of the answer.
    pub reply_tokens_max: u32,
}

/// Writes the prompt as one text: every message with its chat role, then the tools, then the output format.
impl std::fmt::Display for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for message in &*self.messages {
            let answers = message.tool_call_id.as_ref().map(|id| format!(" answers {id}")).unwrap_or_default();
            let failed = if message.failed { ", failed" } else { "" };
            writeln!(f, "── {}{answers}{failed} ──\n{}", message.chat_role, message.text())?;
            for tool_call in &message.tool_calls {
                writeln!(f, "── calls {} {} ──\n{}", tool_call.name, tool_call.id, tool_call.arguments)?;
            }
        }
        for tool in &self.tools {
            writeln!(f, "── tool {} ──\n{}\n{}", tool.name, tool.description, tool.parameters)?;
        }
        match &self.tool_use.choice {
            ToolChoice::Auto => {}
            ToolChoice::None => f.write_str("── call no tool ──\n")?,
            ToolChoice::Required => f.write_str("── call a tool ──\n")?,
            ToolChoice::Tool(name) => writeln!(f, "── call {name} ──")?,
        }
        match &self.output_format {
            ModelOutputFormat::Text => Ok(()),
            ModelOutputFormat::Json(schema) => writeln!(f, "── answer as JSON ──\n{schema:#}"),
        }
    }
}

/// A message of a prompt. Its text consists of its parts, separated by blank lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    pub chat_role: ChatRole,
    /// The parts, shared with the store's cache.
    pub parts: Vec<Arc<str>>,
    /// The images that belong to the user's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PromptImage>,
    /// The tools that the assistant called in this message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// In a tool's message, the id of the tool call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// In a tool's message, true if the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// In an assistant's message, opaque vendor data that must be sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<Arc<str>>,
}

impl PromptMessage {
    /// Creates a message without text.
    fn empty(chat_role: ChatRole) -> Self {
        let (parts, images, tool_calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { chat_role, parts, images, tool_calls, tool_call_id: None, failed: false, vendor_state: None }
    }

    /// Creates a message with one part.
    #[must_use]
    pub fn from_text(chat_role: ChatRole, text: impl Into<Arc<str>>) -> Self {
        Self { parts: vec![text.into()], ..Self::empty(chat_role) }
    }

    /// Returns the text as sent to a vendor.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.join(PART_SEPARATOR)
    }
}

/// The separator between the parts of a message.
const PART_SEPARATOR: &str = "\n\n";

/// The author of a message, as defined by chat APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    System,
    User,
    Assistant,
    Tool,
}

impl std::fmt::Display for ChatRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        })
    }
}

/// An image in a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptImage {
    pub media_type: ImageMediaType,
    /// The bytes in base64.
    pub data: Arc<str>,
}

/// The image formats that every vendor supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageMediaType {
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/gif")]
    Gif,
    #[serde(rename = "image/webp")]
    Webp,
}

impl ImageMediaType {
    /// Detects the format from the first bytes.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Some(Self::Png),
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }
}

/// Writes the MIME type.
impl std::fmt::Display for ImageMediaType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        })
    }
}

/// The required format of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOutputFormat {
    /// Text, which may contain blocks.
    Text,
    /// JSON that conforms to this schema.
    Json(Value),
}

/// The description of a tool for models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelToolSpec {
    pub name: ToolName,
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Value,
}

/// How a model uses the tools that it is offered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelToolUseRules {
    #[serde(default)]
    pub choice: ToolChoice,
    /// Whether an answer may call at most one tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_single_call: bool,
}

/// Whether a model calls a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It calls no tool.
    None,
    /// It calls at least one tool.
    Required,
    /// It calls this tool.
    Tool(ToolName),
}

impl ModelToolUseRules {
    /// Returns true if the model decides everything itself.
    #[must_use]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the model must call a tool, and which one if that is prescribed.
    #[must_use]
    pub(crate) fn required_tool(&self) -> Option<Option<&ToolName>> {
        match &self.choice {
            ToolChoice::Auto | ToolChoice::None => None,
            ToolChoice::Required => Some(None),
            ToolChoice::Tool(name) => Some(Some(name)),
        }
    }
}

/// The id of a tool call that a flow found in the text of an answer.
pub const TEXT_TOOL_CALL_ID: &str = "text";

/// A request by a model to run a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id given by the model.
    pub id: String,
    pub name: ToolName,
    pub arguments: Value,
}

/// A complete answer of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelReply {
    pub text: String,
    /// The reasoning text, if the vendor returns it; never part of a thread.
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    pub stop_reason: StopReason,
    /// The token counts reported by the vendor.
    pub usage: Option<TokenUsage>,
    /// The part of `usage` that was spent on an answer that was rejected before this one.
    pub rejected_usage: Option<TokenUsage>,
    /// Opaque vendor data that must be sent back in later prompts.
    pub vendor_state: Option<String>,
}

/// The reason why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    #[default]
    Done,
    /// The maximum length was reached.
    Length,
    /// The model called tools.
    ToolCalls,
    /// The vendor's content filter stopped the answer.
    ContentFilter,
    /// The answer repeated itself without end and was cut off.
    Repetition,
}

/// The token counts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenUsage {
    /// The prompt tokens, including cached ones.
    pub input_tokens: u32,
    /// The answer tokens, including reasoning.
    pub output_tokens: u32,
    /// The prompt tokens that were read from the vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u32,
    /// The prompt tokens that were written to the vendor's cache, if that has its own price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u32,
    /// The answer tokens that were reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u32,
}

/// Adds two counts; the sum is at most `u32::MAX`.
impl std::ops::Add for TokenUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

/// Removes a part of the counts.
impl std::ops::Sub for TokenUsage {
    type Output = Self;

    fn sub(self, part: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(part.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(part.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(part.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(part.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(part.reasoning_tokens),
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The reason why an attempt produced no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct CallFailure {
    /// The kind of failure, which decides whether a retry makes sense.
    pub kind: CallFailureKind,
    /// A message for the user.
    pub message: String,
    /// The wait before a retry in milliseconds, if the vendor asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The cost of the attempt. Vendors also bill for unusable answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<FailedCallAttemptCost>,
}

/// The cost of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FailedCallAttemptCost {
    /// The token counts reported by the vendor; `None` if the answer was lost before it reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// The cost in millionths of a US dollar, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
}

impl CallFailure {
    /// Creates a failure without a cost or a requested wait.
    #[must_use]
    pub fn new(kind: CallFailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, cost: None }
    }

    /// Returns the failure with the usage of an answer that had already started, added to any known usage.
    #[must_use]
    pub fn with_usage(mut self, usage: Option<TokenUsage>) -> Self {
        let known = self.cost.and_then(|cost| cost.usage);
        let usage = match (known, usage) {
            (Some(known), Some(more)) => Some(known + more),
            (known, more) => known.or(more),
        };
        self.cost = Some(FailedCallAttemptCost { usage, cost_microusd: None });
        self
    }
}

/// The kinds of call failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFailureKind {
    /// The vendor rejected the API key.
    InvalidApiKey,
    ModelNotFound,
    /// The prompt is longer than the model's window.
    ContextTooLong,
    /// Too many requests were sent.
    RateLimit,
    /// The vendor is overloaded or broken.
    Overload,
    Network,
    /// No answer arrived in time.
    Timeout,
    /// The answer could not be parsed.
    MalformedReply,
    /// The answer is complete but unusable, and a retry would probably not help.
    UnusableReply,
    /// The vendor refused to answer.
    Refused,
    /// The request is invalid.
    BadRequest,
    /// A limit of this installation forbids the call, so it was not made.
    NotAllowed,
}

impl CallFailureKind {
    /// Whether the same request may well succeed a little later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            Self::RateLimit | Self::Overload | Self::Network | Self::Timeout | Self::MalformedReply => true,
            Self::InvalidApiKey
            | Self::ModelNotFound
            | Self::ContextTooLong
            | Self::UnusableReply
            | Self::Refused
            | Self::BadRequest
            | Self::NotAllowed => false,
        }
    }
}

impl std::fmt::Display for CallFailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InvalidApiKey => "key not accepted",
            Self::ModelNotFound => "no such model",
            Self::ContextTooLong => "prompt too long",
            Self::RateLimit => "rate limit",
            Self::Overload => "overloaded",
            Self::Network => "network",
            Self::Timeout => "timed out",
            Self::MalformedReply => "unreadable answer",
            Self::UnusableReply => "unusable answer",
            Self::Refused => "refused",
            Self::BadRequest => "bad request",
            Self::NotAllowed => "not allowed",
        })
    }
}
