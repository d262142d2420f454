//! What a model can do, and how it is to be asked. Decides how many tokens an answer may take, thoughts included; says nothing to anybody.

use segue_core::limits::WINDOW_RESERVE_TOKENS;
use serde::{Deserialize, Serialize};

use super::{Connection, Wire};
use crate::limits::{ANSWER_TOKENS_MIN, PROMPT_MARGIN_PERCENT, THOUGHT_TOKENS_MIN};

/// What a model can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skills {
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
    /// Its longest answer, where that is known.
    pub output_tokens_max: Option<u32>,
    /// How it can be held to a schema.
    pub json: Json,
    /// Whether it can look at images.
    pub images: Ability,
    /// Whether it can call tools.
    pub tools: Ability,
    /// How it thinks before it answers, which takes tokens beside those of the answer.
    pub thinking: Thinking,
    /// The fewest tokens of thought it can be held to, where it cannot do without.
    #[serde(default)]
    pub thought_tokens_min: u32,
    /// Whether it can be told up to where to cache, where the vendor would otherwise decide that.
    pub marks: bool,
    /// How its server speaks, where that is not how everybody does.
    #[serde(default)]
    pub dialect: Dialect,
}

/// How chat completions are spoken: nearly alike everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dialect {
    /// What the longest answer is called.
    pub limit: Limit,
    /// Whether figures come without being asked for, and asking is refused.
    pub counts_unasked: bool,
    /// What a server wants to see again of the thoughts that led to a tool call.
    pub thoughts_back: ThoughtsBack,
    /// Whether the prompt ends with the tag that opens a thought, so that an answer has only the one that closes it.
    pub opens_thoughts: bool,
}

/// What the longest answer is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// As nearly everybody does.
    #[default]
    MaxTokens,
    /// As OpenAI does, whose models that think take no temperature either.
    MaxCompletionTokens,
}

/// What a server wants to see again of the thoughts that led to a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThoughtsBack {
    /// Nothing.
    #[default]
    None,
    /// The thoughts, as `reasoning_content`.
    ReasoningContent,
    /// What it calls `reasoning_details`.
    ReasoningDetails,
}

impl Skills {
    /// What is assumed of a model nobody knows.
    #[must_use]
    pub fn unknown(window_tokens: u32) -> Self {
        Self {
            window_tokens,
            output_tokens_max: None,
            json: Json::Schema,
            images: Ability::Unknown,
            tools: Ability::Unknown,
            thinking: Thinking::Unknown,
            thought_tokens_min: 0,
            marks: false,
            dialect: Dialect::default(),
        }
    }
}

/// Whether a model can do something. What is not known is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
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
pub enum Thinking {
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
pub enum Json {
    /// The vendor takes the schema.
    Schema,
    /// The vendor promises JSON, and the model is told of the schema.
    Object,
    /// The model is told of the schema.
    Told,
}

/// How a model is to be asked. What is absent is left to the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Manner {
    /// How freely it chooses its words.
    pub temperature: Option<f32>,
    /// How much it thinks first.
    pub effort: Option<Effort>,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all, or as little as it can.
    None,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Much.
    High,
}

impl Effort {
    /// Its name, as vendors and files spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// As OpenAI wants it: its older models cannot do without thinking.
    pub(super) fn word_for(self, thinking: Thinking) -> &'static str {
        match (self, thinking) {
            (Self::None, Thinking::Budget) => Self::Low.word(),
            (effort, _) => effort.word(),
        }
    }

    /// Tokens of thought, where a vendor wants a number.
    pub(super) fn tokens(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Low => 1_024,
            Self::Medium => 8_192,
            Self::High => 16_384,
        }
    }
}

impl Connection {
    /// Tokens an answer may take, with room for thoughts where the vendor counts them in. Prompt and answer fit into the window
    /// together: some servers refuse a prompt that leaves less room than is asked for.
    pub(super) fn output_tokens(&self, reply_tokens_max: u32, prompt_tokens: u32) -> u32 {
        let window = self.skills.window_tokens;
        let thoughts = match (self.manner.effort, self.skills.thinking) {
            (_, Thinking::None) => 0,
            (Some(effort), _) => effort.tokens(),
            (None, Thinking::Levels) => Effort::High.tokens(),
            // Anthropic's older models think only when told to; OpenAI's and Google's do so unasked.
            (None, Thinking::Budget) if self.wire == Wire::Anthropic => 0,
            (None, Thinking::Budget) => Effort::Medium.tokens(),
            // A model that talks for ever must not fill a small window with it.
            (None, Thinking::Unknown) => Effort::Medium.tokens().min(window / 4),
        };
        let beside = |prompt: u32| window.saturating_sub(prompt).saturating_sub(WINDOW_RESERVE_TOKENS);
        let answer = reply_tokens_max.min(beside(prompt_tokens).max(ANSWER_TOKENS_MIN));
        // Every vendor counts a little differently, so thoughts get only what is there for sure.
        let more = prompt_tokens / 100 * PROMPT_MARGIN_PERCENT;
        let sure = beside(prompt_tokens.saturating_add(more)).saturating_sub(answer);
        let thoughts = thoughts.max(self.skills.thought_tokens_min).min(sure);
        answer.saturating_add(thoughts).min(self.skills.output_tokens_max.unwrap_or(u32::MAX))
    }

    /// Tokens of thought out of so many for the whole answer, where a vendor wants a number; none if there is no room to think.
    pub(super) fn thought_tokens(&self, effort: Effort, output_tokens: u32, reply_tokens_max: u32) -> Option<u32> {
        let answer = reply_tokens_max.min(output_tokens / 2);
        let tokens = effort.tokens().max(self.skills.thought_tokens_min).min(output_tokens - answer);
        (tokens >= THOUGHT_TOKENS_MIN.max(self.skills.thought_tokens_min)).then_some(tokens)
    }

    /// How freely it chooses its words, unless its vendor takes no wish of that kind for a model that thinks.
    pub(super) fn temperature(&self) -> Option<f32> {
        let is_bound = match (self.wire, self.skills.thinking) {
            (_, Thinking::None | Thinking::Unknown) | (Wire::Gemini | Wire::Ollama, _) => false,
            (Wire::Chat, _) => self.skills.dialect.limit == Limit::MaxCompletionTokens,
            (Wire::Anthropic, Thinking::Budget) => !matches!(self.manner.effort, None | Some(Effort::None)),
            (Wire::Anthropic | Wire::Responses, Thinking::Budget | Thinking::Levels) => true,
        };
        self.manner.temperature.filter(|_| !is_bound)
    }
}
