//! What goes to a model and what comes back, in no vendor's dialect. Prompts are values: the same prompt has the
//! same bytes today and when it is rebuilt from the journal next year.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ModelName, ToolName};

/// Everything a model is sent for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Which model.
    pub model: ModelName,
    /// In order; system messages first. Shared, since the next prompt of the same thread begins with the same.
    pub messages: Arc<Vec<PromptMessage>>,
    /// What the model may call, in the role's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// What shape the answer must have.
    pub output_format: OutputFormat,
    /// The longest answer we will take.
    pub reply_tokens_max: u32,
}

impl Prompt {
    /// The messages, to be changed: whoever shares them sees nothing of it.
    pub fn messages_mut(&mut self) -> &mut Vec<PromptMessage> {
        Arc::make_mut(&mut self.messages)
    }

    /// The prompt as one text: every message under the name of its speaker, then the tools, then the form of the answer.
    #[must_use]
    pub fn to_plain_text(&self) -> String {
        let mut out = String::new();
        for message in &*self.messages {
            let answers = message.tool_call_id.as_ref().map(|id| format!(" answers {id}")).unwrap_or_default();
            let failed = if message.failed { ", failed" } else { "" };
            out.push_str(&format!("── {}{answers}{failed} ──\n{}\n", message.chat_role, message.text()));
            for wish in &message.tool_calls {
                out.push_str(&format!("── calls {} {} ──\n{}\n", wish.name, wish.id, wish.arguments));
            }
        }
        for tool in &self.tools {
            out.push_str(&format!("── tool {} ──\n{}\n{}\n", tool.name, tool.description, tool.parameters));
        }
        if let OutputFormat::Json(schema) = &self.output_format {
            out.push_str(&format!("── answer as JSON ──\n{schema:#}\n"));
        }
        out
    }
}

/// One message of a prompt. Its text is its parts, joined by blank lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Whose words these are.
    pub chat_role: ChatRole,
    /// The parts, shared with the store's cache.
    pub parts: Vec<Arc<str>>,
    /// What the user showed with these words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PromptImage>,
    /// What the assistant asked to run in this message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For a tool's message: which of the calls above it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For a tool's message: whether the tool did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// For an assistant's message: what its vendor wants to see again with it, unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<Arc<str>>,
}

impl PromptMessage {
    /// A message without words.
    #[must_use]
    pub fn empty(speaker: ChatRole) -> Self {
        let (parts, images, tool_calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { chat_role: speaker, parts, images, tool_calls, tool_call_id: None, failed: false, vendor_state: None }
    }

    /// A message of plain text.
    #[must_use]
    pub fn from_text(speaker: ChatRole, text: impl Into<Arc<str>>) -> Self {
        Self { parts: vec![text.into()], ..Self::empty(speaker) }
    }

    /// The text as a vendor is sent it.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.join(PART_SEPARATOR)
    }
}

/// What stands between the parts of one message.
pub const PART_SEPARATOR: &str = "\n\n";

/// Whose words a message holds, as chat models know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    /// Standing instructions.
    System,
    /// What is put to the model.
    User,
    /// What the model said.
    Assistant,
    /// What a tool returned.
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

/// An image, as vendors take it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptImage {
    /// In which form.
    pub media_type: ImageMediaType,
    /// Its bytes, in base64.
    pub data: Arc<str>,
}

/// The forms of image that every vendor can look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageMediaType {
    /// PNG.
    #[serde(rename = "image/png")]
    Png,
    /// JPEG.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// GIF.
    #[serde(rename = "image/gif")]
    Gif,
    /// WebP.
    #[serde(rename = "image/webp")]
    Webp,
}

impl ImageMediaType {
    /// Its name on the internet.
    #[must_use]
    pub fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// The form of these bytes, by how they begin; what they are called does not count.
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

/// The form an answer must have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// Prose, perhaps with blocks in it.
    Text,
    /// JSON that satisfies this schema.
    Json(Value),
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: ToolName,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
}

/// A model's wish to run a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's own id for it.
    pub id: String,
    /// Which tool.
    pub name: ToolName,
    /// With what.
    pub arguments: Value,
}

/// A model's whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelReply {
    /// What it said.
    pub text: String,
    /// What it thought aloud, where the vendor tells; never part of a thread.
    pub reasoning: String,
    /// What it wants run.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// The vendor's own figures, if it gave any.
    pub usage: Option<TokenUsage>,
    /// How much of that an answer took which was sent back before this one came: a request of its own, with a price of its own.
    pub rejected_usage: Option<TokenUsage>,
    /// What its vendor wants to see again when the conversation goes on, unread.
    pub vendor_state: Option<String>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    #[default]
    Done,
    /// It reached the longest answer we take.
    Length,
    /// It waits for tools.
    ToolCalls,
    /// The vendor's filter cut it.
    ContentFilter,
}

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of the prompt, cached ones included.
    pub input_tokens: u32,
    /// Tokens of the answer, reasoning included.
    pub output_tokens: u32,
    /// Tokens of the prompt that the vendor had cached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u32,
    /// Tokens of the prompt that the vendor put into its cache, where that has a price of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u32,
    /// Tokens of the answer that were reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u32,
}

impl TokenUsage {
    /// What both took together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }

    /// What is left of this without the other, which is a part of it.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
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

/// Why a call brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct CallFailure {
    /// What sort of failure; decides whether another try makes sense.
    pub kind: FailureKind,
    /// What was said about it, fit for the user's eyes.
    pub message: String,
    /// The earliest moment another try is welcome, in milliseconds from now, where the vendor said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What the try took all the same, if it took anything: a vendor bills for an answer that nobody can use, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<AttemptCost>,
}

/// What a try without an answer took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptCost {
    /// By the vendor's own figures; nothing if it gave none before the answer was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Its cost in millionths of a dollar, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
}

impl CallFailure {
    /// A failure without a vendor's wish for when to come back, that took nothing.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, cost: None }
    }

    /// The same after an answer had begun to come: it took something, beside what it is known to have taken.
    #[must_use]
    pub fn with_usage(mut self, usage: Option<TokenUsage>) -> Self {
        let known = self.cost.and_then(|spent| spent.usage);
        let usage = match (known, usage) {
            (Some(known), Some(more)) => Some(known.plus(more)),
            (known, more) => known.or(more),
        };
        self.cost = Some(AttemptCost { usage, cost_microusd: None });
        self
    }
}

/// The sorts of failure a call can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The vendor does not take our key.
    InvalidApiKey,
    /// There is no such model.
    ModelNotFound,
    /// The prompt is longer than the model's window.
    ContextTooLong,
    /// Too many requests.
    RateLimit,
    /// The vendor is overloaded or broken.
    Overload,
    /// The network failed.
    Network,
    /// No answer in time.
    Timeout,
    /// The answer could not be read.
    MalformedReply,
    /// The answer came, and is of no use: the same model would hardly do better.
    UnusableReply,
    /// The vendor refuses to answer this.
    Refused,
    /// The request itself is wrong.
    BadRequest,
}

impl FailureKind {
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
            | Self::BadRequest => false,
        }
    }
}

impl std::fmt::Display for FailureKind {
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
        })
    }
}
