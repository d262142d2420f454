//! A real model, here or over the network: a prompt becomes a request in the vendor's format, and the stream that comes back
//! becomes chunks. Decides how things are said to a vendor, and what its refusals mean; not what is said, nor whether it is said again.
//!
//! Five formats cover the field: OpenAI's chat completions (which nearly every server speaks), OpenAI's responses, Anthropic's
//! messages, Google's Gemini and Ollama's own. Each is a request and a reader, over one transport.

mod anthropic;
mod chat;
mod drive;
mod failure;
mod gemini;
mod ids;
mod names;
mod ollama;
mod pieces;
mod responses;
mod retry_after;
mod schema;
mod seal;
mod skills;
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
pub(crate) use ollama::root;
pub use skills::{Ability, Dialect, Effort, Json, Limit, Manner, Skills, Thinking, ThoughtsBack};
pub use wire::Wire;

/// A model of a vendor.
#[derive(Debug, Clone)]
pub struct Vendor {
    connection: Arc<Connection>,
    transport: Arc<dyn Transport>,
    refuses: Arc<Refuses>,
    /// Who serves it, and where: what fails together.
    place: String,
}

/// What a vendor did not take once, and is not sent since.
#[derive(Debug, Default)]
struct Refuses {
    /// It is told of a schema in words.
    schemas: AtomicBool,
    /// It is not asked for figures, and may give them all the same.
    stream_options: AtomicBool,
    /// It is neither told how hard to think nor asked for its thoughts.
    thoughts: AtomicBool,
    /// It is not asked for its thoughts in short.
    summaries: AtomicBool,
}

impl Refuses {
    /// What it may still be asked for.
    fn asks(&self) -> wire::Asks {
        let may = |refused: &AtomicBool| !refused.load(Ordering::Relaxed);
        wire::Asks {
            figures: may(&self.stream_options),
            thoughts: may(&self.thoughts),
            summaries: may(&self.summaries),
        }
    }
}

/// How a model is reached, and what is known of it. Written down, it is without its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connection {
    /// Who serves it, for people. All models of one provider at one place fail together.
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
    /// With the name and the password that stand in the address in this variable of the environment.
    Login {
        /// The variable.
        env: String,
        /// Both, as a header wants them.
        login: Secret,
    },
}

impl Access {
    fn env(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Key { env, .. } | Self::Login { env, .. } => Some(env),
        }
    }

    fn key(&self) -> Option<&Secret> {
        match self {
            Self::Open => None,
            Self::Key { key, .. } => key.as_ref(),
            Self::Login { login, .. } => Some(login),
        }
    }
}

impl Connection {
    fn refuser(&self) -> Refuser<'_> {
        Refuser { provider: &self.provider, model: &self.model, key_env: self.key.env(), key: self.key.key() }
    }

    /// Host and port, for people and for telling servers apart.
    #[must_use]
    pub fn host(&self) -> &str {
        let rest = self.base_url.split_once("://").map_or(self.base_url.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// The failure without the key: vendors quote what they do not like.
    pub(crate) fn clean(&self, mut failure: Failure) -> Failure {
        failure.message = self.strip(&failure.message);
        failure
    }

    /// A text without the key. Goes before anything that cuts the text, which could leave most of a key behind.
    pub(crate) fn strip(&self, text: &str) -> String {
        self.key.key().map_or_else(|| text.to_owned(), |key| key.strip(text))
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
        let place = format!("{} at {}", connection.provider, connection.host());
        Self { connection: Arc::new(connection), transport, refuses: Arc::default(), place }
    }

    /// How it is reached.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How it is held to a schema now.
    fn json(&self) -> Json {
        match self.refuses.schemas.load(Ordering::Relaxed) {
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
        let Connection { provider, model, .. } = &*self.connection;
        let place = self.connection.host();
        let label = if place.contains(provider.as_str()) || place.is_empty() {
            format!("{model} of {provider}")
        } else {
            format!("{model} of {provider} at {place}")
        };
        Description { kind: Kind::Vendor, label, window_tokens: self.connection.skills.window_tokens }
    }

    fn provider(&self) -> Option<&str> {
        Some(&self.place)
    }
}
