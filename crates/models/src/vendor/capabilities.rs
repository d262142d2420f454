//! Model capabilities and generation parameters. Computes the output token budget, including thinking. Sends nothing.

use segue_core::limits::SESSION_LIMITS;
use serde::{Deserialize, Serialize};

use super::{ModelEndpoint, WireFormat};
use crate::limits::{ANSWER_TOKENS_MIN, PROMPT_MARGIN_PERCENT, THINKING_TOKENS_MIN};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCapabilities {
    /// Tokens that prompt and reply may use together.
    pub window_tokens: u32,
    /// The longest reply, if known.
    pub output_tokens_max: Option<u32>,
    /// How the model can be made to return JSON that matches a schema.
    pub json: JsonMode,
    /// Whether it accepts images.
    pub images: FeatureSupport,
    /// Whether it supports tool calls.
    pub tools: FeatureSupport,
    /// How it thinks before it answers; thinking uses output tokens too.
    pub thinking: ThinkingSupport,
    /// The smallest thinking budget it accepts, if thinking cannot be turned off.
    #[serde(default)]
    pub thinking_tokens_min: u32,
    /// Whether it accepts explicit cache breakpoints where the vendor would otherwise choose them.
    pub cache_breakpoints: bool,
    /// Deviations of the server from standard chat completions.
    #[serde(default)]
    pub dialect: ChatCompletionsDialect,
}

/// Differences between servers that implement OpenAI's chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatCompletionsDialect {
    /// The request field for the output token limit.
    pub max_tokens_field: MaxTokensField,
    /// Whether token usage is sent without being requested, and requesting it is refused.
    pub usage_always_sent: bool,
    /// Which reasoning the server expects back with tool calls.
    pub reasoning_echo: ReasoningEcho,
    /// Whether the prompt template ends with `<think>`, so that a reply contains only the closing tag.
    pub starts_in_thinking: bool,
}

/// The request field for the output token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`, the usual name.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, as at OpenAI, whose thinking models accept no temperature either.
    MaxCompletionTokens,
}

/// Which reasoning a server expects back with the tool calls that followed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEcho {
    /// The server expects no reasoning back.
    #[default]
    None,
    /// The reasoning text, as `reasoning_content`.
    ReasoningContent,
    /// The structured `reasoning_details`.
    ReasoningDetails,
}

impl ModelCapabilities {
    /// Creates capabilities in which only the window is known.
    #[must_use]
    pub fn with_unknown_support(window_tokens: u32) -> Self {
        Self {
            window_tokens,
            output_tokens_max: None,
            json: JsonMode::Schema,
            images: FeatureSupport::Unknown,
            tools: FeatureSupport::Unknown,
            thinking: ThinkingSupport::Unknown,
            thinking_tokens_min: 0,
            cache_breakpoints: false,
            dialect: ChatCompletionsDialect::default(),
        }
    }
}

/// Whether a model supports a feature. Features of unknown support are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSupport {
    Yes,
    No,
    Unknown,
}

/// How a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingSupport {
    /// It does not think.
    None,
    /// Not known, so tokens are reserved for thinking.
    Unknown,
    /// It thinks only if it is given a number of tokens for it.
    Budget,
    /// It decides by itself how much to think and accepts an effort level.
    Levels,
}

/// How a model is made to return JSON that matches a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonMode {
    /// The vendor enforces the schema.
    Schema,
    /// The vendor enforces JSON; the schema is written into the prompt.
    Object,
    /// The schema is written into the prompt.
    Prompt,
}

/// Generation parameters. Absent ones are left to the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GenerationParams {
    pub temperature: Option<f32>,
    pub effort: Option<ReasoningEffort>,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Not at all, or as little as possible.
    None,
    Low,
    Medium,
    High,
}

impl ReasoningEffort {
    /// Returns the name used by vendors and configuration files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Returns the name for OpenAI, whose older models cannot turn thinking off.
    pub(super) fn as_openai_str(self, thinking: ThinkingSupport) -> &'static str {
        match (self, thinking) {
            (Self::None, ThinkingSupport::Budget) => Self::Low.as_str(),
            (effort, _) => effort.as_str(),
        }
    }

    /// Returns the thinking budget, for vendors that expect a number.
    pub(super) fn thinking_budget_tokens(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Low => 1_024,
            Self::Medium => 8_192,
            Self::High => 16_384,
        }
    }
}

impl ModelEndpoint {
    /// Returns the output token budget of a call, including thinking. Prompt and output fit into the window together, because
    /// some servers refuse a request that does not.
    pub(super) fn output_token_budget(&self, reply_tokens_max: u32, prompt_tokens: u32) -> u32 {
        let window = self.capabilities.window_tokens;
        let thinking = match (self.params.effort, self.capabilities.thinking) {
            (_, ThinkingSupport::None) => 0,
            (Some(effort), _) => effort.thinking_budget_tokens(),
            (None, ThinkingSupport::Levels) => ReasoningEffort::High.thinking_budget_tokens(),
            // Anthropic's older models think only on request; OpenAI's and Google's always do.
            (None, ThinkingSupport::Budget) if self.wire == WireFormat::Anthropic => 0,
            (None, ThinkingSupport::Budget) => ReasoningEffort::Medium.thinking_budget_tokens(),
            // A small window must not be used up by thinking.
            (None, ThinkingSupport::Unknown) => ReasoningEffort::Medium.thinking_budget_tokens().min(window / 4),
        };
        let room_after =
            |prompt: u32| window.saturating_sub(prompt).saturating_sub(SESSION_LIMITS.window_reserve_tokens);
        let answer = reply_tokens_max.min(room_after(prompt_tokens).max(ANSWER_TOKENS_MIN));
        // Vendors count tokens differently, so thinking only gets tokens that are certainly available.
        let margin = prompt_tokens / 100 * PROMPT_MARGIN_PERCENT;
        let certain = room_after(prompt_tokens.saturating_add(margin)).saturating_sub(answer);
        let thinking = thinking.max(self.capabilities.thinking_tokens_min).min(certain);
        answer.saturating_add(thinking).min(self.capabilities.output_tokens_max.unwrap_or(u32::MAX))
    }

    /// Returns the thinking budget within `output_tokens`, for vendors that expect a number; `None` if there is no room for it.
    pub(super) fn thinking_token_budget(
        &self,
        effort: ReasoningEffort,
        output_tokens: u32,
        reply_tokens_max: u32,
    ) -> Option<u32> {
        let answer = reply_tokens_max.min(output_tokens / 2);
        let tokens =
            effort.thinking_budget_tokens().max(self.capabilities.thinking_tokens_min).min(output_tokens - answer);
        (tokens >= THINKING_TOKENS_MIN.max(self.capabilities.thinking_tokens_min)).then_some(tokens)
    }

    /// Returns the temperature, unless the vendor accepts none for this model.
    pub(super) fn effective_temperature(&self) -> Option<f32> {
        let is_rejected = match (self.wire, self.capabilities.thinking) {
            (_, ThinkingSupport::None | ThinkingSupport::Unknown) | (WireFormat::Gemini | WireFormat::Ollama, _) => {
                false
            }
            (WireFormat::Chat, _) => self.capabilities.dialect.max_tokens_field == MaxTokensField::MaxCompletionTokens,
            (WireFormat::Anthropic, ThinkingSupport::Budget) => {
                !matches!(self.params.effort, None | Some(ReasoningEffort::None))
            }
            (WireFormat::Anthropic | WireFormat::Responses, ThinkingSupport::Budget | ThinkingSupport::Levels) => true,
        };
        self.params.temperature.filter(|_| !is_rejected)
    }
}
