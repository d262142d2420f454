//! A real model, here or over the network: a prompt becomes a request in the vendor's format, and the stream that comes back
//! becomes chunks. Decides how things are said to a vendor, and what its refusals mean; not what is said, nor whether it is said again.
//!
//! Four formats cover the field: OpenAI's chat completions (which nearly every server speaks), OpenAI's responses, Anthropic's
//! messages and Google's Gemini. Each is a request and a reader, over one transport.

mod anthropic;
mod chat;
mod drive;
mod failure;
mod gemini;
mod names;
mod pieces;
mod responses;
mod retry_after;
mod schema;
mod sse;
mod structured;
mod think;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::prompt::{Failure, FailureKind, Output, Prompt};
use serde::{Deserialize, Serialize};

use crate::http::{Secret, Transport};
use crate::model::{ChunkStream, Description, Kind, Model, Request};
use drive::Drive;
use failure::Refuser;
pub use wire::Wire;

/// A model of a vendor.
#[derive(Debug, Clone)]
pub struct Vendor {
    connection: Arc<Connection>,
    transport: Arc<dyn Transport>,
    /// The vendor did not take a schema once; it is told of it in words since.
    refuses_schemas: Arc<AtomicBool>,
}

/// How a model is reached, and what is known of it. Written down, it is without its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connection {
    /// Who serves it, for people and for counting failures: all models of one provider fail together.
    pub provider: String,
    /// Which format it speaks.
    pub wire: Wire,
    /// Where, without a slash at the end.
    pub base_url: String,
    /// What the provider calls it.
    pub model: String,
    /// The key, if one is needed and was found.
    #[serde(skip)]
    pub key: Access,
    /// What it can do.
    pub skills: Skills,
    /// How it is to be asked.
    pub manner: Manner,
}

/// By what right a vendor is asked.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Everybody may.
    #[default]
    Open,
    /// With a key from this variable of the environment.
    Key {
        /// The variable.
        env: String,
        /// Its value; nothing if it is not set.
        key: Option<Secret>,
    },
}

impl Access {
    fn env(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Key { env, .. } => Some(env),
        }
    }

    fn key(&self) -> Option<&Secret> {
        match self {
            Self::Open => None,
            Self::Key { key, .. } => key.as_ref(),
        }
    }
}

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
    /// Whether it can be told up to where to cache, where the vendor would otherwise decide that.
    pub marks: bool,
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
            thinking: Thinking::None,
            marks: false,
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
    /// It does not, or nobody knows.
    None,
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
    fn word_for(self, thinking: Thinking) -> &'static str {
        match (self, thinking) {
            (Self::None, Thinking::Budget) => Self::Low.word(),
            (effort, _) => effort.word(),
        }
    }

    /// Tokens of thought, where a vendor wants a number.
    fn tokens(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Low => 1_024,
            Self::Medium => 8_192,
            Self::High => 16_384,
        }
    }
}

impl Connection {
    fn refuser(&self) -> Refuser<'_> {
        Refuser { provider: &self.provider, model: &self.model, key_env: self.key.env() }
    }

    /// The failure without the key: vendors quote what they do not like.
    pub(crate) fn clean(&self, mut failure: Failure) -> Failure {
        if let Some(key) = self.key.key() {
            failure.message = key.strip(&failure.message);
        }
        failure
    }

    /// Tokens an answer may take, with room for thoughts where the vendor counts them in.
    fn output_tokens(&self, prompt: &Prompt) -> u32 {
        let thoughts = match (self.manner.effort, self.skills.thinking) {
            (Some(effort), _) => effort.tokens(),
            (None, Thinking::Levels) => Effort::High.tokens(),
            // Anthropic's and Google's older models think only when told to; OpenAI's do so unasked.
            (None, Thinking::Budget) if matches!(self.wire, Wire::Anthropic) => 0,
            (None, Thinking::Budget) => Effort::Medium.tokens(),
            (None, Thinking::None) => 0,
        };
        let wanted = prompt.reply_tokens_max.saturating_add(thoughts);
        self.skills.output_tokens_max.map_or(wanted, |most| wanted.min(most))
    }

    /// How freely it chooses its words, unless its vendor takes no wish of that kind for a model that thinks.
    fn temperature(&self) -> Option<f32> {
        let is_bound = match (self.wire, self.skills.thinking) {
            (_, Thinking::None) | (Wire::Chat | Wire::Gemini, _) => false,
            (Wire::Anthropic, Thinking::Budget) => !matches!(self.manner.effort, None | Some(Effort::None)),
            (Wire::Anthropic | Wire::Responses, Thinking::Budget | Thinking::Levels) => true,
        };
        self.manner.temperature.filter(|_| !is_bound)
    }

    /// Why the model need not even be asked, if so.
    fn objection(&self, prompt: &Prompt) -> Option<Failure> {
        let refuse = |kind, words: String| Some(Failure::new(kind, words));
        let Self { provider, model, .. } = self;
        if let Access::Key { env, key } = &self.key
            && key.as_ref().is_none_or(Secret::is_empty)
        {
            return refuse(FailureKind::BadKey, format!("{provider} wants a key, and {env} is not set"));
        }
        if self.skills.images == Ability::No && prompt.messages.iter().any(|message| !message.images.is_empty()) {
            return refuse(FailureKind::BadRequest, format!("`{model}` cannot look at images"));
        }
        if self.skills.tools == Ability::No && !prompt.tools.is_empty() {
            return refuse(FailureKind::BadRequest, format!("`{model}` cannot call tools"));
        }
        None
    }
}

impl Vendor {
    /// The model at the other end of `connection`.
    #[must_use]
    pub fn new(connection: Connection, transport: Arc<dyn Transport>) -> Self {
        Self { connection: Arc::new(connection), transport, refuses_schemas: Arc::default() }
    }

    /// How it is reached.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How it is held to a schema now.
    fn json(&self) -> Json {
        match self.refuses_schemas.load(Ordering::Relaxed) {
            true => Json::Told,
            false => self.connection.skills.json,
        }
    }
}

impl Model for Vendor {
    fn stream(&self, request: Request) -> ChunkStream {
        match &request.prompt.output {
            Output::Text => Drive::stream(self.clone(), request),
            Output::Json(schema) => structured::stream(self.clone(), schema.clone(), request),
        }
    }

    fn describe(&self) -> Description {
        let Connection { provider, model, base_url, .. } = &*self.connection;
        let place = base_url.split("://").last().and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let label = if place.contains(provider.as_str()) || place.is_empty() {
            format!("{model} of {provider}")
        } else {
            format!("{model} of {provider} at {place}")
        };
        Description { kind: Kind::Vendor, label, window_tokens: self.connection.skills.window_tokens }
    }

    fn provider(&self) -> Option<&str> {
        Some(&self.connection.provider)
    }
}
