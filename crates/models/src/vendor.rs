//! A real model, here or over the network: a prompt becomes a request in the vendor's format, and the stream that comes back
//! becomes chunks. Decides how things are said to a vendor, and what its refusals mean; not what is said, nor whether it is said again.
//!
//! Five formats cover the field: OpenAI's chat completions (which nearly every server speaks), OpenAI's responses, Anthropic's
//! messages, Google's Gemini and Ollama's own. Each is a request and a reader, over one transport.

mod anthropic;
mod call_driver;
mod call_ids;
mod capabilities;
mod chat;
mod error_classification;
mod gemini;
mod ollama;
mod responses;
mod retry_after;
mod schema_compat;
mod sse;
mod structured_output;
mod think_tags;
mod tool_call_assembler;
mod tool_names;
mod vendor_state;
mod wire_format;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::prompt::{CallFailure, FailureKind, OutputFormat, Prompt};
use serde::{Deserialize, Serialize};

use crate::http::{HttpTransport, SecretString};
use crate::model::{LanguageModel, ModelDescription, ModelRequest, ModelSource, ReplyChunkStream};
use call_driver::CallDriver;
pub use capabilities::{
    ChatDialect, FeatureSupport, GenerationParams, JsonMode, MaxTokensField, ModelCapabilities, ReasoningEcho,
    ReasoningEffort, ThinkingSupport,
};
use error_classification::VendorErrorContext;
pub(crate) use ollama::ollama_server_url;
pub use wire_format::WireFormat;

/// A model of a vendor.
#[derive(Debug, Clone)]
pub struct VendorModel {
    endpoint: Arc<ModelEndpoint>,
    transport: Arc<dyn HttpTransport>,
    unsupported: Arc<UnsupportedFeatures>,
    /// Who serves it, and where: what fails together.
    failure_domain: String,
}

/// What a vendor did not take once, and is not sent since.
#[derive(Debug, Default)]
struct UnsupportedFeatures {
    /// It is told of a schema in words.
    json_schemas: AtomicBool,
    /// It is not asked for figures, and may give them all the same.
    stream_options: AtomicBool,
    /// It is neither told how hard to think nor asked for its thoughts.
    reasoning: AtomicBool,
    /// It is not asked for its thoughts in short.
    reasoning_summaries: AtomicBool,
}

impl UnsupportedFeatures {
    /// What it may still be asked for.
    fn enabled_features(&self) -> wire_format::OptionalFeatures {
        let may = |refused: &AtomicBool| !refused.load(Ordering::Relaxed);
        wire_format::OptionalFeatures {
            usage: may(&self.stream_options),
            reasoning: may(&self.reasoning),
            reasoning_summaries: may(&self.reasoning_summaries),
        }
    }
}

/// How a model is reached, and what is known of it. Written down, it is without its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelEndpoint {
    /// Who serves it, for people. All models of one provider at one place fail together.
    pub provider: String,
    /// Which format it speaks.
    pub wire: WireFormat,
    /// Where, without a slash at the end.
    pub base_url: String,
    /// What the provider calls it.
    pub model: String,
    /// The key, if one is needed and was found.
    #[serde(skip)]
    pub credentials: Credentials,
    /// What it can do.
    pub capabilities: ModelCapabilities,
    /// How it is to be asked.
    pub params: GenerationParams,
}

/// By what right a vendor is asked.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// Everybody may.
    #[default]
    None,
    /// With a key from this variable of the environment.
    ApiKey {
        /// The variable.
        env: String,
        /// Its value; nothing if it is not set.
        key: Option<SecretString>,
    },
    /// With the name and the password that stand in the address in this variable of the environment.
    Basic {
        /// The variable.
        env: String,
        /// Both, as a header wants them.
        login: SecretString,
    },
}

impl Credentials {
    fn env_var(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::ApiKey { env, .. } | Self::Basic { env, .. } => Some(env),
        }
    }

    fn secret(&self) -> Option<&SecretString> {
        match self {
            Self::None => None,
            Self::ApiKey { key, .. } => key.as_ref(),
            Self::Basic { login, .. } => Some(login),
        }
    }
}

impl ModelEndpoint {
    fn error_context(&self) -> VendorErrorContext<'_> {
        VendorErrorContext {
            provider: &self.provider,
            model: &self.model,
            key_env: self.credentials.env_var(),
            key: self.credentials.secret(),
        }
    }

    /// Host and port, for people and for telling servers apart.
    #[must_use]
    pub fn host(&self) -> &str {
        let rest = self.base_url.split_once("://").map_or(self.base_url.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// The failure without the key: vendors quote what they do not like.
    pub(crate) fn redact_failure(&self, mut failure: CallFailure) -> CallFailure {
        failure.message = self.redact(&failure.message);
        failure
    }

    /// A text without the key. Goes before anything that cuts the text, which could leave most of a key behind.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.credentials.secret().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// Why the model need not even be asked, if so.
    fn preflight_failure(&self, prompt: &Prompt) -> Option<CallFailure> {
        let refuse = |kind, words: String| Some(CallFailure::new(kind, words));
        let Self { provider, model, .. } = self;
        if let Credentials::ApiKey { env, key } = &self.credentials
            && key.as_ref().is_none_or(SecretString::is_empty)
        {
            return refuse(FailureKind::InvalidApiKey, format!("{provider} wants a key, and {env} is not set"));
        }
        if self.capabilities.images == FeatureSupport::No
            && prompt.messages.iter().any(|message| !message.images.is_empty())
        {
            return refuse(FailureKind::BadRequest, format!("`{model}` cannot look at images"));
        }
        if self.capabilities.tools == FeatureSupport::No && !prompt.tools.is_empty() {
            return refuse(FailureKind::BadRequest, format!("`{model}` cannot call tools"));
        }
        None
    }
}

impl VendorModel {
    /// The model at the other end of `connection`.
    #[must_use]
    pub fn new(endpoint: ModelEndpoint, transport: Arc<dyn HttpTransport>) -> Self {
        let place = format!("{} at {}", endpoint.provider, endpoint.host());
        Self { endpoint: Arc::new(endpoint), transport, unsupported: Arc::default(), failure_domain: place }
    }

    /// How it is reached.
    #[must_use]
    pub fn endpoint(&self) -> &ModelEndpoint {
        &self.endpoint
    }

    /// How it is held to a schema now.
    fn json_mode(&self) -> JsonMode {
        match self.unsupported.json_schemas.load(Ordering::Relaxed) {
            true => JsonMode::Prompt,
            false => self.endpoint.capabilities.json,
        }
    }
}

impl LanguageModel for VendorModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        match &request.prompt.output_format {
            OutputFormat::Text => CallDriver::start(self.clone(), request),
            OutputFormat::Json(schema) => {
                structured_output::stream_validated_json(self.clone(), schema.clone(), request)
            }
        }
    }

    fn describe(&self) -> ModelDescription {
        let ModelEndpoint { provider, model, .. } = &*self.endpoint;
        let place = self.endpoint.host();
        let label = if place.contains(provider.as_str()) || place.is_empty() {
            format!("{model} of {provider}")
        } else {
            format!("{model} of {provider} at {place}")
        };
        ModelDescription { kind: ModelSource::Vendor, label, window_tokens: self.endpoint.capabilities.window_tokens }
    }

    fn provider(&self) -> Option<&str> {
        Some(&self.failure_domain)
    }
}
