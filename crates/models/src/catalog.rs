//! The catalog of providers and models: a built-in file, which a user's file can extend and override. Resolves a model's
//! endpoint and capabilities, with safe assumptions where nothing is known. Opens no connection.

mod file;

use std::collections::BTreeMap;

use segue_core::signal::SignalForm;

use crate::card::{ModelCard, TokenPrice};
use crate::http::{SecretString, is_unencrypted_remote_url};
use crate::limits::FALLBACK_WINDOW_TOKENS;
use crate::suggest::find_similar_name;
use crate::vendor::{
    ChatCompletionsDialect, FeatureSupport, GenerationParams, JsonMode, ModelCapabilities, ModelEndpoint,
    ThinkingSupport, VendorCredentials, WireFormat,
};

pub use file::ModelCatalogFileError;

const BUILT_IN_CATALOG: &str = include_str!("../data/models.toml");

/// All known providers and models.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelCatalog {
    providers: BTreeMap<String, CatalogModelProvider>,
    /// Entries with higher precedence come first.
    models: Vec<CatalogModel>,
}

/// A service that serves models.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogModelProvider {
    /// Order among the providers that are discovered automatically; the lowest comes first.
    pub rank: u32,
    /// The default wire format.
    pub wire: WireFormat,
    /// `None` if the address must be configured.
    pub base_url: Option<String>,
    /// Environment variables that may hold the API key; empty if none is needed.
    pub key_env_vars: Vec<String>,
    /// The model to use if none is named.
    pub default_model: Option<String>,
    /// Assumptions about models that are not in the catalog.
    pub model_defaults: CatalogModel,
    /// Whether its models cost nothing.
    pub is_free: bool,
}

/// What is known about a model; `None` means unknown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogModel {
    pub provider: String,
    /// The provider's name for the model.
    pub name: String,
    pub window_tokens: Option<u32>,
    pub output_tokens_max: Option<u32>,
    pub price: Option<TokenPrice>,
    /// How the model can be made to return JSON that matches a schema.
    pub json: Option<JsonMode>,
    pub thinking: Option<ThinkingSupport>,
    /// The smallest thinking budget the model accepts.
    pub thinking_tokens_min: Option<u32>,
    /// Deviations of the server from standard chat completions.
    pub dialect: Option<ChatCompletionsDialect>,
    /// Whether it accepts images.
    pub images: Option<bool>,
    /// Whether it supports tool calls.
    pub tools: Option<bool>,
    /// Whether it accepts explicit cache breakpoints.
    pub cache_breakpoints: Option<bool>,
    /// Whether it writes signal blocks in its replies reliably.
    pub inline_signals: Option<bool>,
}

/// A vendor model as requested by configuration or discovery.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestedVendorModel {
    pub provider: String,
    /// The provider's name for the model; empty for the provider's default.
    pub model: String,
    /// Overrides the provider's wire format.
    pub wire: Option<WireFormat>,
    /// Overrides the provider's address.
    pub base_url: Option<String>,
    /// The environment variable with the API key, if not one of the provider's.
    pub key_env: Option<String>,
    /// The environment variable with a URL that contains a user name and password.
    pub login_env: Option<String>,
    pub params: GenerationParams,
    /// Takes precedence over the catalog.
    pub overrides: CatalogModel,
}

/// A vendor model with everything needed to call it.
#[derive(Debug, Clone)]
pub struct ResolvedVendorModel {
    pub endpoint: ModelEndpoint,
    pub card: ModelCard,
    pub window_source: ContextWindowSource,
}

/// Where the size of a context window comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextWindowSource {
    /// From configuration, the environment or the catalog.
    Known,
    /// Unknown; a size that is safe with the provider is used.
    Assumed,
}

/// Why a model cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelResolveError {
    /// The provider is not in the catalog.
    #[error("unknown provider `{provider}`{hint}")]
    UnknownProvider {
        provider: String,
        /// A suggestion, or the list of known providers.
        hint: String,
    },
    /// The provider has no default address and none was configured.
    #[error("`{provider}` has no default address; set `base_url`, for example \"http://localhost:8080/v1\"")]
    MissingBaseUrl { provider: String },
    /// The address is not an HTTP URL.
    #[error(
        "`{url}` is not an address; it must begin with http:// or https://, for example \"http://localhost:8080/v1\""
    )]
    InvalidBaseUrl { url: String },
    /// The address contains a user name or password.
    #[error("the address of `{provider}` contains a user name or password; secrets are read from the environment only")]
    CredentialsInUrl { provider: String },
    /// The address is not encrypted, and a key would be sent to it.
    #[error(
        "the key in {env} would be sent unencrypted to {url}; use an https:// address, a server on this machine, or a model without a key"
    )]
    UnencryptedKey {
        /// The environment variable of the key.
        env: String,
        url: String,
    },
    /// No model was named and the provider has no default.
    #[error("`{provider}` serves several models; choose one with `model`")]
    MissingModel { provider: String },
}

impl ModelCatalog {
    /// Returns the catalog that is compiled into the program.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN_CATALOG).expect("a test parses the built-in file")
    }

    /// Parses a catalog file.
    ///
    /// # Errors
    /// The text is not valid TOML, or an entry is invalid.
    pub fn parse(text: &str) -> Result<Self, ModelCatalogFileError> {
        file::parse_catalog(text)
    }

    /// Adds the entries of `other`, which take precedence.
    #[must_use]
    pub fn extended_with(mut self, other: Self) -> Self {
        self.providers.extend(other.providers);
        self.models.splice(..0, other.models);
        self
    }

    /// Returns all providers, lowest rank first.
    #[must_use]
    pub fn providers_by_rank(&self) -> Vec<(&str, &CatalogModelProvider)> {
        let mut providers: Vec<_> = self.providers.iter().map(|(name, provider)| (name.as_str(), provider)).collect();
        providers.sort_by_key(|(name, provider)| (provider.rank, *name));
        providers
    }

    /// Returns all known models of a provider, in file order.
    pub fn provider_models<'c>(&'c self, provider: &'c str) -> impl Iterator<Item = &'c CatalogModel> {
        self.models.iter().filter(move |known| known.provider == provider)
    }

    /// Returns the profile of a model. Entries with higher precedence win field by field. Entries for the undated name of a
    /// dated model fill in what is still unknown.
    #[must_use]
    pub fn find_profile(&self, provider: &str, model: &str) -> Option<CatalogModel> {
        let provider_entries = || self.models.iter().filter(|known| known.provider == provider);
        let exact = provider_entries().filter(|known| known.name == model);
        let mut all = exact.chain(provider_entries().filter(|known| known.is_version_of(model)));
        let first = all.next()?.clone();
        Some(all.fold(first, |known, next| known.or_defaults_from(Some(next))))
    }

    /// Resolves a requested model. `env` looks up an environment variable.
    ///
    /// # Errors
    /// The provider is unknown, or its address or model is missing or invalid.
    pub fn resolve_model(
        &self,
        spec: &RequestedVendorModel,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ResolvedVendorModel, ModelResolveError> {
        let provider = self.providers.get(&spec.provider).ok_or_else(|| self.unknown_provider_error(&spec.provider))?;
        let provider_name = || spec.provider.clone();
        let base_url = spec.base_url.as_ref().or(provider.base_url.as_ref());
        let base_url = base_url.ok_or_else(|| ModelResolveError::MissingBaseUrl { provider: provider_name() })?;
        let mut base_url = base_url.trim().trim_end_matches('/').to_owned();
        if has_url_credentials(&base_url) {
            return Err(ModelResolveError::CredentialsInUrl { provider: provider_name() });
        }
        if !["http://", "https://"].iter().any(|start| base_url.starts_with(start) && base_url.len() > start.len()) {
            return Err(ModelResolveError::InvalidBaseUrl { url: base_url });
        }
        let wire = spec.wire.unwrap_or(provider.wire);
        // Ollama serves its OpenAI-compatible API under /v1.
        if (wire, provider.wire) == (WireFormat::Chat, WireFormat::Ollama) && !base_url.ends_with("/v1") {
            base_url.push_str("/v1");
        }
        let named = Some(&spec.model).filter(|model| !model.is_empty()).or(provider.default_model.as_ref());
        let model = named.ok_or_else(|| ModelResolveError::MissingModel { provider: provider_name() })?.clone();
        let entry = self.find_profile(&spec.provider, &model);
        let known =
            spec.overrides.clone().or_defaults_from(entry.as_ref()).or_defaults_from(Some(&provider.model_defaults));
        let window = match (spec.overrides.window_tokens, entry.and_then(|entry| entry.window_tokens)) {
            (None, None) => ContextWindowSource::Assumed,
            (Some(_), _) | (None, Some(_)) => ContextWindowSource::Known,
        };
        let free = provider.is_free.then(|| TokenPrice::flat(0, 0, 0));
        let card = ModelCard {
            window_tokens: known.window_tokens.unwrap_or(FALLBACK_WINDOW_TOKENS),
            price: known.price.or(free),
            signal_form: if known.inline_signals == Some(true) { SignalForm::Inline } else { SignalForm::Structured },
            has_tool_calls: known.tools == Some(true),
        };
        let credentials = resolve_credentials(spec, &provider.key_env_vars, env);
        if let Some(env) = credentials.env_var().filter(|_| credentials.secret().is_some())
            && is_unencrypted_remote_url(&base_url)
        {
            return Err(ModelResolveError::UnencryptedKey { env: env.to_owned(), url: base_url });
        }
        let endpoint = ModelEndpoint {
            provider: provider_name(),
            wire,
            base_url,
            model,
            credentials,
            capabilities: build_capabilities(&known, card.window_tokens),
            params: spec.params,
        };
        Ok(ResolvedVendorModel { endpoint, card, window_source: window })
    }

    fn unknown_provider_error(&self, provider: &str) -> ModelResolveError {
        let names = || self.providers.keys().map(String::as_str);
        let hint = match find_similar_name(provider, names()) {
            Some(name) => format!("; did you mean `{name}`?"),
            None => {
                format!("; known providers: {}", names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            }
        };
        ModelResolveError::UnknownProvider { provider: provider.to_owned(), hint }
    }
}

impl CatalogModel {
    /// Returns whether `model` is a dated version of this model, or its `latest` alias.
    fn is_version_of(&self, model: &str) -> bool {
        let version = model.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(['-', '@']));
        let is_date = |text: &str| text.len() >= 8 && text.chars().all(|c| c.is_ascii_digit() || c == '-');
        version.is_some_and(|version| version == "latest" || is_date(version))
    }

    /// Fills unknown fields from `other`.
    fn or_defaults_from(self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            provider: self.provider,
            name: self.name,
            window_tokens: self.window_tokens.or(other.window_tokens),
            output_tokens_max: self.output_tokens_max.or(other.output_tokens_max),
            price: self.price.or(other.price),
            json: self.json.or(other.json),
            thinking: self.thinking.or(other.thinking),
            thinking_tokens_min: self.thinking_tokens_min.or(other.thinking_tokens_min),
            dialect: self.dialect.or(other.dialect),
            images: self.images.or(other.images),
            tools: self.tools.or(other.tools),
            cache_breakpoints: self.cache_breakpoints.or(other.cache_breakpoints),
            inline_signals: self.inline_signals.or(other.inline_signals),
        }
    }
}

fn build_capabilities(profile: &CatalogModel, window_tokens: u32) -> ModelCapabilities {
    let support = |supported: Option<bool>| match supported {
        Some(true) => FeatureSupport::Yes,
        Some(false) => FeatureSupport::No,
        None => FeatureSupport::Unknown,
    };
    ModelCapabilities {
        window_tokens,
        output_tokens_max: profile.output_tokens_max,
        json: profile.json.unwrap_or(JsonMode::Schema),
        images: support(profile.images),
        tools: support(profile.tools),
        thinking: profile.thinking.unwrap_or(ThinkingSupport::Unknown),
        thinking_tokens_min: profile.thinking_tokens_min.unwrap_or(0),
        dialect: profile.dialect.unwrap_or_default(),
        cache_breakpoints: profile.cache_breakpoints.unwrap_or(false),
    }
}

fn resolve_credentials(
    spec: &RequestedVendorModel,
    keys: &[String],
    env: &dyn Fn(&str) -> Option<String>,
) -> VendorCredentials {
    if let Some(name) = &spec.login_env
        && let Some(login) = env(name).as_deref().and_then(basic_auth_from_url)
    {
        return VendorCredentials::Basic { env: name.clone(), login };
    }
    let read_key = |name: &str| env(name).map(|value| SecretString::new(&value)).filter(|key| !key.is_empty());
    if let Some(name) = &spec.key_env {
        return VendorCredentials::ApiKey { env: name.clone(), key: read_key(name) };
    }
    let set = keys.iter().find_map(|name| Some((name, read_key(name)?)));
    match (set, keys.first()) {
        (Some((name, key)), _) => VendorCredentials::ApiKey { env: name.clone(), key: Some(key) },
        (None, Some(name)) => VendorCredentials::ApiKey { env: name.clone(), key: None },
        (None, None) => VendorCredentials::None,
    }
}

/// Builds the value of a Basic authorization header from the user name and password in a URL.
fn basic_auth_from_url(url: &str) -> Option<SecretString> {
    let (userinfo, _) = url_authority(url).rsplit_once('@')?;
    let decoded = percent_decode(userinfo);
    let plain = String::from_utf8_lossy(&decoded).into_owned();
    let password = |login: &str| login.split_once(':').map(|(_, password)| password.to_owned());
    let forms = [password(userinfo), password(&plain), Some(userinfo.to_owned()), Some(plain.clone())];
    Some(SecretString::new(&encode_base64(&decoded)).with_aliases(forms.into_iter().flatten()))
}

/// Returns whether a URL contains a user name or password.
pub(crate) fn has_url_credentials(url: &str) -> bool {
    url_authority(url).contains('@')
}

fn url_authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        let digits = bytes.get(index + 1..index + 3).filter(|_| *byte == b'%');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(code.unwrap_or(*byte));
        index += if code.is_some() { 3 } else { 1 };
    }
    decoded
}

fn encode_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
