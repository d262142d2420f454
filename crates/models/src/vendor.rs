//! Vendor models, local or remote: turns a prompt into a request in the vendor's format and the response stream into chunks.
//! Decides how a request is written and what an error means. Does not decide what is asked or whether a call is retried.
//!
//! There are five wire formats: OpenAI's chat completions (which nearly every server supports), OpenAI's Responses API,
//! Anthropic's Messages API, Google's Gemini and Ollama's own. Each consists of a request builder and a stream reader.

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
mod tool_use;
mod vendor_state;
mod wire_format;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::prompt::{CallFailure, CallFailureKind, ModelOutputFormat, Prompt};
use serde::{Deserialize, Serialize};

use crate::http::{HttpTransport, SecretString};
use crate::model::{LanguageModel, ModelBackendKind, ModelDescription, ModelRequest, ReplyChunkStream};
use call_driver::VendorCallDriver;
pub use capabilities::{
    ChatCompletionsDialect, FeatureSupport, GenerationParams, JsonMode, MaxTokensField, ModelCapabilities,
    ReasoningEcho, ReasoningEffort, ThinkingSupport,
};
use error_classification::VendorErrorContext;
pub(crate) use ollama::ollama_server_url;
pub use wire_format::WireFormat;

/// A model served by a vendor.
#[derive(Debug, Clone)]
pub struct VendorModelClient {
    endpoint: Arc<ModelEndpoint>,
    transport: Arc<dyn HttpTransport>,
    unsupported: Arc<VendorRejectedFeatures>,
    /// Provider and host; models with the same value fail together.
    failure_domain: String,
}

/// Features that the vendor rejected once and that are no longer requested.
#[derive(Debug, Default)]
struct VendorRejectedFeatures {
    /// The schema is written into the prompt instead.
    json_schemas: AtomicBool,
    /// Token usage is not requested, but may still be sent.
    stream_options: AtomicBool,
    /// Neither an effort nor encrypted reasoning is requested.
    reasoning: AtomicBool,
    reasoning_summaries: AtomicBool,
    /// Tools are offered, but none is required.
    forced_tools: AtomicBool,
}

impl VendorRejectedFeatures {
    /// Returns the features that may still be requested.
    fn enabled_features(&self) -> wire_format::OptionalVendorFeatures {
        let is_enabled = |rejected: &AtomicBool| !rejected.load(Ordering::Relaxed);
        wire_format::OptionalVendorFeatures {
            usage: is_enabled(&self.stream_options),
            reasoning: is_enabled(&self.reasoning),
            reasoning_summaries: is_enabled(&self.reasoning_summaries),
            forced_tools: is_enabled(&self.forced_tools),
        }
    }
}

/// How a model is reached and what it can do. Serialized without its credentials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelEndpoint {
    /// The provider's name, for display. All models of one provider at one host fail together.
    pub provider: String,
    pub wire: WireFormat,
    /// Without a trailing slash.
    pub base_url: String,
    /// The provider's name for the model.
    pub model: String,
    #[serde(skip)]
    pub credentials: VendorCredentials,
    pub capabilities: ModelCapabilities,
    pub params: GenerationParams,
}

/// How requests are authenticated.
#[derive(Debug, Clone, Default)]
pub enum VendorCredentials {
    /// No authentication is needed.
    #[default]
    None,
    /// An API key from an environment variable.
    ApiKey {
        env: String,
        /// `None` if the variable is not set.
        key: Option<SecretString>,
    },
    /// User name and password from a URL in an environment variable.
    Basic {
        env: String,
        /// Encoded for a Basic authorization header.
        login: SecretString,
    },
}

impl VendorCredentials {
    pub(crate) fn env_var(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::ApiKey { env, .. } | Self::Basic { env, .. } => Some(env),
        }
    }

    pub(crate) fn secret(&self) -> Option<&SecretString> {
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

    /// Returns host and port, for display and to tell servers apart.
    #[must_use]
    pub fn host_and_port(&self) -> &str {
        let rest = self.base_url.split_once("://").map_or(self.base_url.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// Removes the credentials from a failure message, because vendors may quote them.
    pub(crate) fn redact_failure(&self, mut failure: CallFailure) -> CallFailure {
        failure.message = self.redact(&failure.message);
        failure
    }

    /// Removes the credentials from a text. Must happen before the text is shortened, which could leave part of a key.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.credentials.secret().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// Returns the failure of a call that cannot succeed and therefore is not sent.
    fn preflight_failure(&self, prompt: &Prompt) -> Option<CallFailure> {
        let refuse = |kind, message: String| Some(CallFailure::new(kind, message));
        let Self { provider, model, .. } = self;
        if let VendorCredentials::ApiKey { env, key } = &self.credentials
            && key.as_ref().is_none_or(SecretString::is_empty)
        {
            return refuse(
                CallFailureKind::InvalidApiKey,
                format!("{provider} needs an API key, but {env} is not set"),
            );
        }
        if self.capabilities.images == FeatureSupport::No
            && prompt.messages.iter().any(|message| !message.images.is_empty())
        {
            return refuse(CallFailureKind::BadRequest, format!("`{model}` does not accept images"));
        }
        if self.capabilities.tools == FeatureSupport::No && !prompt.tools.is_empty() {
            return refuse(CallFailureKind::BadRequest, format!("`{model}` does not support tools"));
        }
        None
    }
}

impl VendorModelClient {
    /// Creates a model that calls `endpoint` over `transport`.
    #[must_use]
    pub fn new(endpoint: ModelEndpoint, transport: Arc<dyn HttpTransport>) -> Self {
        let failure_domain = format!("{} at {}", endpoint.provider, endpoint.host_and_port());
        Self { endpoint: Arc::new(endpoint), transport, unsupported: Arc::default(), failure_domain }
    }

    /// Returns how the model is reached.
    #[must_use]
    pub fn endpoint(&self) -> &ModelEndpoint {
        &self.endpoint
    }

    /// Returns how the model is currently made to return JSON.
    fn json_mode(&self) -> JsonMode {
        match self.unsupported.json_schemas.load(Ordering::Relaxed) {
            true => JsonMode::Prompt,
            false => self.endpoint.capabilities.json,
        }
    }
}

impl LanguageModel for VendorModelClient {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        match &request.prompt.output_format {
            ModelOutputFormat::Text => VendorCallDriver::start(self.clone(), request),
            ModelOutputFormat::Json(schema) => {
                structured_output::stream_validated_json(self.clone(), schema.clone(), request)
            }
        }
    }

    fn describe(&self) -> ModelDescription {
        let ModelEndpoint { provider, model, .. } = &*self.endpoint;
        let host = self.endpoint.host_and_port();
        let label = if host.contains(provider.as_str()) || host.is_empty() {
            format!("{model} of {provider}")
        } else {
            format!("{model} of {provider} at {host}")
        };
        ModelDescription {
            kind: ModelBackendKind::Vendor,
            label,
            window_tokens: self.endpoint.capabilities.window_tokens,
        }
    }

    fn failure_domain(&self) -> Option<&str> {
        Some(&self.failure_domain)
    }
}
