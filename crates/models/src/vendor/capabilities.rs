//! What a model can do, and how it is to be asked. Decides how many tokens an answer may take, thoughts included; says nothing to anybody.

use segue_core::limits::WINDOW_RESERVE_TOKENS;
use serde::{Deserialize, Serialize};

use super::{ModelEndpoint, WireFormat};
use crate::limits::{ANSWER_TOKENS_MIN, PROMPT_MARGIN_PERCENT, THINKING_TOKENS_MIN};

/// What a model can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCapabilities {
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
    /// Its longest answer, where that is known.
    pub output_tokens_max: Option<u32>,
    /// How it can be held to a schema.
    pub json: JsonMode,
    /// Whether it can look at images.
    pub images: FeatureSupport,
    /// Whether it can call tools.
    pub tools: FeatureSupport,
    /// How it thinks before it answers, which takes tokens beside those of the answer.
    pub thinking: ThinkingSupport,
    /// The fewest tokens of thought it can be held to, where it cannot do without.
    #[serde(default)]
    pub thinking_tokens_min: u32,
    /// Whether it can be told up to where to cache, where the vendor would otherwise decide that.
    pub cache_breakpoints: bool,
    /// How its server speaks, where that is not how everybody does.
    #[serde(default)]
    pub dialect: ChatDialect,
}

/// How chat completions are spoken: nearly alike everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatDialect {
    /// What the longest answer is called.
    pub max_tokens_field: MaxTokensField,
    /// Whether figures come without being asked for, and asking is refused.
    pub usage_always_sent: bool,
    /// What a server wants to see again of the thoughts that led to a tool call.
    pub reasoning_echo: ReasoningEcho,
    /// Whether the prompt ends with the tag that opens a thought, so that an answer has only the one that closes it.
    pub starts_in_thinking: bool,
}

/// What the longest answer is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// As nearly everybody does.
    #[default]
    MaxTokens,
    /// As OpenAI does, whose models that think take no temperature either.
    MaxCompletionTokens,
}

/// What a server wants to see again of the thoughts that led to a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEcho {
    /// Nothing.
    #[default]
    None,
    /// The thoughts, as `reasoning_content`.
    ReasoningContent,
    /// What it calls `reasoning_details`.
    ReasoningDetails,
}

impl ModelCapabilities {
    /// What is assumed of a model nobody knows.
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
            dialect: ChatDialect::default(),
        }
    }
}

/// Whether a model can do something. What is not known is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSupport {
    /// It can.
    Yes,
    /// It cannot.
    No,
    /// Nobody told us.
    Unknown,
}

/// How a model thinks, as its vendor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingSupport {
    /// It does not.
    None,
    /// Nobody knows, so it is left room for it.
    Unknown,
    /// It is given a number of tokens for it, and thinks only then.
    Budget,
    /// It decides itself, and is told how hard to try.
    Levels,
}

/// How a model is held to a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonMode {
    /// The vendor takes the schema.
    Schema,
    /// The vendor promises JSON, and the model is told of the schema.
    Object,
    /// The model is told of the schema.
    Prompt,
}

/// How a model is to be asked. What is absent is left to the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GenerationParams {
    /// How freely it chooses its words.
    pub temperature: Option<f32>,
    /// How much it thinks first.
    pub effort: Option<ReasoningEffort>,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Not at all, or as little as it can.
    None,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Much.
    High,
}

impl ReasoningEffort {
    /// Its name, as vendors and files spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// As OpenAI wants it: its older models cannot do without thinking.
    pub(super) fn as_openai_str(self, thinking: ThinkingSupport) -> &'static str {
        match (self, thinking) {
            (Self::None, ThinkingSupport::Budget) => Self::Low.as_str(),
            (effort, _) => effort.as_str(),
        }
    }

    /// Tokens of thought, where a vendor wants a number.
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
    /// Tokens an answer may take, with room for thoughts where the vendor counts them in. Prompt and answer fit into the window
    /// together: some servers refuse a prompt that leaves less room than is asked for.
    pub(super) fn output_token_budget(&self, reply_tokens_max: u32, prompt_tokens: u32) -> u32 {
        let window = self.capabilities.window_tokens;
        let thoughts = match (self.params.effort, self.capabilities.thinking) {
            (_, ThinkingSupport::None) => 0,
            (Some(effort), _) => effort.thinking_budget_tokens(),
            (None, ThinkingSupport::Levels) => ReasoningEffort::High.thinking_budget_tokens(),
            // Anthropic's older models think only when told to; OpenAI's and Google's do so unasked.
            (None, ThinkingSupport::Budget) if self.wire == WireFormat::Anthropic => 0,
            (None, ThinkingSupport::Budget) => ReasoningEffort::Medium.thinking_budget_tokens(),
            // A model that talks for ever must not fill a small window with it.
            (None, ThinkingSupport::Unknown) => ReasoningEffort::Medium.thinking_budget_tokens().min(window / 4),
        };
        let beside = |prompt: u32| window.saturating_sub(prompt).saturating_sub(WINDOW_RESERVE_TOKENS);
        let answer = reply_tokens_max.min(beside(prompt_tokens).max(ANSWER_TOKENS_MIN));
        // Every vendor counts a little differently, so thoughts get only what is there for sure.
        let more = prompt_tokens / 100 * PROMPT_MARGIN_PERCENT;
        let sure = beside(prompt_tokens.saturating_add(more)).saturating_sub(answer);
        let thoughts = thoughts.max(self.capabilities.thinking_tokens_min).min(sure);
        answer.saturating_add(thoughts).min(self.capabilities.output_tokens_max.unwrap_or(u32::MAX))
    }

    /// Tokens of thought out of so many for the whole answer, where a vendor wants a number; none if there is no room to think.
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

    /// How freely it chooses its words, unless its vendor takes no wish of that kind for a model that thinks.
    pub(super) fn effective_temperature(&self) -> Option<f32> {
        let is_bound = match (self.wire, self.capabilities.thinking) {
            (_, ThinkingSupport::None | ThinkingSupport::Unknown) | (WireFormat::Gemini | WireFormat::Ollama, _) => {
                false
            }
            (WireFormat::Chat, _) => self.capabilities.dialect.max_tokens_field == MaxTokensField::MaxCompletionTokens,
            (WireFormat::Anthropic, ThinkingSupport::Budget) => {
                !matches!(self.params.effort, None | Some(ReasoningEffort::None))
            }
            (WireFormat::Anthropic | WireFormat::Responses, ThinkingSupport::Budget | ThinkingSupport::Levels) => true,
        };
        self.params.temperature.filter(|_| !is_bound)
    }
}
