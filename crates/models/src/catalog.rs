//! Who serves models, and what is known of the models beforehand: a file that comes with the program, and one that a user may put before it.
//! Decides how a model is reached and what is assumed of it where nobody knows; opens no connection.

mod file;

use std::collections::BTreeMap;

use crate::card::{ModelCard, TokenPrice};
use crate::http::SecretString;
use crate::limits::FALLBACK_WINDOW_TOKENS;
use crate::suggest::find_similar_name;
use crate::vendor::{
    ChatDialect, Credentials, FeatureSupport, GenerationParams, JsonMode, ModelCapabilities, ModelEndpoint,
    ThinkingSupport, WireFormat,
};

pub use file::CatalogError;

const BUILT_IN_CATALOG: &str = include_str!("../data/models.toml");

/// Providers and models.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelCatalog {
    providers: BTreeMap<String, CatalogProvider>,
    /// Those that go before others come first.
    models: Vec<ModelProfile>,
}

/// Somebody who serves models.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogProvider {
    /// Where it stands among those that are found without being configured; the lowest comes first.
    pub rank: u32,
    /// Which format it speaks.
    pub wire: WireFormat,
    /// Where it is; if absent, whoever wants it must know.
    pub base_url: Option<String>,
    /// The variables that may hold its key; none if it wants no key.
    pub key_env_vars: Vec<String>,
    /// The model to take where nobody named one.
    pub default_model: Option<String>,
    /// What is assumed of its models.
    pub model_defaults: ModelProfile,
    /// Whether nobody bills for it.
    pub is_free: bool,
}

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelProfile {
    /// Whose.
    pub provider: String,
    /// What it is called there.
    pub name: String,
    /// Its window.
    pub window_tokens: Option<u32>,
    /// Its longest answer.
    pub output_tokens_max: Option<u32>,
    /// What it costs.
    pub price: Option<TokenPrice>,
    /// How it can be held to a schema.
    pub json: Option<JsonMode>,
    /// How it thinks.
    pub thinking: Option<ThinkingSupport>,
    /// The fewest tokens of thought it can be held to.
    pub thinking_tokens_min: Option<u32>,
    /// How its server speaks chat completions.
    pub dialect: Option<ChatDialect>,
    /// Whether it can look at images.
    pub images: Option<bool>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
    /// Whether its cache can be marked.
    pub cache_breakpoints: Option<bool>,
}

/// A model that somebody wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VendorModelSpec {
    /// Whose.
    pub provider: String,
    /// What it is called there.
    pub model: String,
    /// Another format than the provider's usual one.
    pub wire: Option<WireFormat>,
    /// Another place than the provider's own.
    pub base_url: Option<String>,
    /// The variable that holds the key, if not one of the provider's.
    pub key_env: Option<String>,
    /// The variable whose address holds a name and a password.
    pub login_env: Option<String>,
    /// How it is to be asked.
    pub params: GenerationParams,
    /// What is known of it beyond the catalog, or better.
    pub overrides: ModelProfile,
}

/// A model that can be reached.
#[derive(Debug, Clone)]
pub struct ResolvedVendorModel {
    /// How.
    pub endpoint: ModelEndpoint,
    /// Its window and price.
    pub card: ModelCard,
    /// How its window came to be known.
    pub window_source: WindowSource,
}

/// How a window came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    /// Somebody said so, or it stands in the catalog.
    Known,
    /// Nobody knows it; this one is safe with the provider.
    Assumed,
}

/// Why a model cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelResolveError {
    /// There is no such provider.
    #[error("there is no provider `{provider}`{hint}")]
    UnknownProvider {
        /// What was named.
        provider: String,
        /// What was meant, or what there is.
        hint: String,
    },
    /// Nobody said where it is.
    #[error("`{provider}` can be anywhere: say where with `base_url`, such as \"http://localhost:8080/v1\"")]
    MissingBaseUrl {
        /// Who.
        provider: String,
    },
    /// That is no place.
    #[error("`{url}` is no address; it begins with http:// or https://, such as \"http://localhost:8080/v1\"")]
    InvalidBaseUrl {
        /// What was given.
        url: String,
    },
    /// It holds a password.
    #[error("the address of `{provider}` holds a name or a password; secrets are taken from the environment only")]
    CredentialsInUrl {
        /// Whose.
        provider: String,
    },
    /// Nobody said which model.
    #[error("`{provider}` serves many models: say which with `model`")]
    MissingModel {
        /// Whose.
        provider: String,
    },
}

impl ModelCatalog {
    /// What comes with the program.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN_CATALOG).expect("a test reads the file")
    }

    /// Reads a file of the catalog's form.
    ///
    /// # Errors
    /// Says where and what is wrong.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        file::parse_catalog(text)
    }

    /// The same with what another catalog adds; where both know something, the other is right.
    #[must_use]
    pub fn extended_with(mut self, other: Self) -> Self {
        self.providers.extend(other.providers);
        self.models.splice(..0, other.models);
        self
    }

    /// Everybody who serves models, those that come first first.
    #[must_use]
    pub fn providers_by_rank(&self) -> Vec<(&str, &CatalogProvider)> {
        let mut providers: Vec<_> = self.providers.iter().map(|(name, provider)| (name.as_str(), provider)).collect();
        providers.sort_by_key(|(name, provider)| (provider.rank, *name));
        providers
    }

    /// Every model of a provider that is known, in the file's order.
    pub fn provider_models<'c>(&'c self, provider: &'c str) -> impl Iterator<Item = &'c ModelProfile> {
        self.models.iter().filter(move |known| known.provider == provider)
    }

    /// What is known of a model: what was said last, and where that is silent what was said before; then what is said of it
    /// under a name without a date.
    #[must_use]
    pub fn find_profile(&self, provider: &str, model: &str) -> Option<ModelProfile> {
        let of_provider = || self.models.iter().filter(|known| known.provider == provider);
        let named = of_provider().filter(|known| known.name == model);
        let mut all = named.chain(of_provider().filter(|known| known.is_version_of(model)));
        let first = all.next()?.clone();
        Some(all.fold(first, |known, next| known.or_defaults_from(Some(next))))
    }

    /// How a wanted model is reached. `env` looks a variable of the environment up.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn resolve_model(
        &self,
        spec: &VendorModelSpec,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ResolvedVendorModel, ModelResolveError> {
        let provider = self.providers.get(&spec.provider).ok_or_else(|| self.unknown_provider_error(&spec.provider))?;
        let owned = || spec.provider.clone();
        let base_url = spec.base_url.as_ref().or(provider.base_url.as_ref());
        let base_url = base_url.ok_or_else(|| ModelResolveError::MissingBaseUrl { provider: owned() })?;
        let mut base_url = base_url.trim().trim_end_matches('/').to_owned();
        if has_url_credentials(&base_url) {
            return Err(ModelResolveError::CredentialsInUrl { provider: owned() });
        }
        if !["http://", "https://"].iter().any(|start| base_url.starts_with(start) && base_url.len() > start.len()) {
            return Err(ModelResolveError::InvalidBaseUrl { url: base_url });
        }
        let wire = spec.wire.unwrap_or(provider.wire);
        // Where Ollama is, it speaks like OpenAI a little further on.
        if (wire, provider.wire) == (WireFormat::Chat, WireFormat::Ollama) && !base_url.ends_with("/v1") {
            base_url.push_str("/v1");
        }
        let named = Some(&spec.model).filter(|model| !model.is_empty()).or(provider.default_model.as_ref());
        let model = named.ok_or_else(|| ModelResolveError::MissingModel { provider: owned() })?.clone();
        let entry = self.find_profile(&spec.provider, &model);
        let known =
            spec.overrides.clone().or_defaults_from(entry.as_ref()).or_defaults_from(Some(&provider.model_defaults));
        let window = match (spec.overrides.window_tokens, entry.and_then(|entry| entry.window_tokens)) {
            (None, None) => WindowSource::Assumed,
            (Some(_), _) | (None, Some(_)) => WindowSource::Known,
        };
        let free = provider.is_free.then(|| TokenPrice::flat(0, 0, 0));
        let card = ModelCard {
            window_tokens: known.window_tokens.unwrap_or(FALLBACK_WINDOW_TOKENS),
            price: known.price.or(free),
        };
        let connection = ModelEndpoint {
            provider: owned(),
            wire,
            base_url,
            model,
            credentials: resolve_credentials(spec, &provider.key_env_vars, env),
            capabilities: build_capabilities(&known, card.window_tokens),
            params: spec.params,
        };
        Ok(ResolvedVendorModel { endpoint: connection, card, window_source: window })
    }

    fn unknown_provider_error(&self, provider: &str) -> ModelResolveError {
        let names = || self.providers.keys().map(String::as_str);
        let hint = match find_similar_name(provider, names()) {
            Some(name) => format!("; did you mean `{name}`?"),
            None => format!("; there are {}", names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
        };
        ModelResolveError::UnknownProvider { provider: provider.to_owned(), hint }
    }
}

impl ModelProfile {
    /// Whether `model` is a dated version of this one, or its latest.
    fn is_version_of(&self, model: &str) -> bool {
        let version = model.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(['-', '@']));
        let is_date = |text: &str| text.len() >= 8 && text.chars().all(|c| c.is_ascii_digit() || c == '-');
        version.is_some_and(|version| version == "latest" || is_date(version))
    }

    /// This, and where it knows nothing, the other.
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
        }
    }
}

fn build_capabilities(profile: &ModelProfile, window_tokens: u32) -> ModelCapabilities {
    let ability = |can: Option<bool>| match can {
        Some(true) => FeatureSupport::Yes,
        Some(false) => FeatureSupport::No,
        None => FeatureSupport::Unknown,
    };
    ModelCapabilities {
        window_tokens,
        output_tokens_max: profile.output_tokens_max,
        json: profile.json.unwrap_or(JsonMode::Schema),
        images: ability(profile.images),
        tools: ability(profile.tools),
        thinking: profile.thinking.unwrap_or(ThinkingSupport::Unknown),
        thinking_tokens_min: profile.thinking_tokens_min.unwrap_or(0),
        dialect: profile.dialect.unwrap_or_default(),
        cache_breakpoints: profile.cache_breakpoints.unwrap_or(false),
    }
}

fn resolve_credentials(spec: &VendorModelSpec, keys: &[String], env: &dyn Fn(&str) -> Option<String>) -> Credentials {
    if let Some(name) = &spec.login_env
        && let Some(login) = env(name).as_deref().and_then(basic_auth_from_url)
    {
        return Credentials::Basic { env: name.clone(), login };
    }
    let found = |name: &str| env(name).map(|value| SecretString::new(&value)).filter(|key| !key.is_empty());
    if let Some(name) = &spec.key_env {
        return Credentials::ApiKey { env: name.clone(), key: found(name) };
    }
    let set = keys.iter().find_map(|name| Some((name, found(name)?)));
    match (set, keys.first()) {
        (Some((name, key)), _) => Credentials::ApiKey { env: name.clone(), key: Some(key) },
        (None, Some(name)) => Credentials::ApiKey { env: name.clone(), key: None },
        (None, None) => Credentials::None,
    }
}

/// The name and the password in an address, as a header wants them.
fn basic_auth_from_url(url: &str) -> Option<SecretString> {
    let (userinfo, _) = url_authority(url).rsplit_once('@')?;
    let decoded = percent_decode(userinfo);
    let plain = String::from_utf8_lossy(&decoded).into_owned();
    let password = |login: &str| login.split_once(':').map(|(_, password)| password.to_owned());
    let forms = [password(userinfo), password(&plain), Some(userinfo.to_owned()), Some(plain.clone())];
    Some(SecretString::new(&encode_base64(&decoded)).with_aliases(forms.into_iter().flatten()))
}

/// Whether an address holds a name or a password.
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
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        let digits = bytes.get(place + 1..place + 3).filter(|_| *byte == b'%');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(code.unwrap_or(*byte));
        place += if code.is_some() { 3 } else { 1 };
    }
    decoded
}

fn encode_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
