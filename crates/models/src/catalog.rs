//! Who serves models, and what is known of the models beforehand: a file that comes with the program, and one that a user may put before it.
//! Decides how a model is reached and what is assumed of it where nobody knows; opens no connection.

mod file;

use std::collections::BTreeMap;

use crate::card::{ModelCard, Price};
use crate::http::Secret;
use crate::limits::SAFE_WINDOW_TOKENS;
use crate::suggest::nearest;
use crate::vendor::{Ability, Access, Connection, Dialect, Json, Manner, Skills, Thinking, Wire};

pub use file::CatalogError;

const BUILT_IN: &str = include_str!("../data/models.toml");

/// Providers and models.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    providers: BTreeMap<String, Provider>,
    /// Those that go before others come first.
    models: Vec<Known>,
}

/// Somebody who serves models.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// Where it stands among those that are found without being configured; the lowest comes first.
    pub rank: u32,
    /// Which format it speaks.
    pub wire: Wire,
    /// Where it is; if absent, whoever wants it must know.
    pub base_url: Option<String>,
    /// The variables that may hold its key; none if it wants no key.
    pub keys: Vec<String>,
    /// The model to take where nobody named one.
    pub default: Option<String>,
    /// What is assumed of its models.
    pub assumed: Known,
    /// Whether nobody bills for it.
    pub is_free: bool,
}

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    /// Whose.
    pub provider: String,
    /// What it is called there.
    pub name: String,
    /// Its window.
    pub window_tokens: Option<u32>,
    /// Its longest answer.
    pub output_tokens_max: Option<u32>,
    /// What it costs.
    pub price: Option<Price>,
    /// How it can be held to a schema.
    pub json: Option<Json>,
    /// How it thinks.
    pub thinking: Option<Thinking>,
    /// The fewest tokens of thought it can be held to.
    pub thought_tokens_min: Option<u32>,
    /// How its server speaks chat completions.
    pub dialect: Option<Dialect>,
    /// Whether it can look at images.
    pub images: Option<bool>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
    /// Whether its cache can be marked.
    pub marks: Option<bool>,
}

/// A model that somebody wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wanted {
    /// Whose.
    pub provider: String,
    /// What it is called there.
    pub model: String,
    /// Another format than the provider's usual one.
    pub wire: Option<Wire>,
    /// Another place than the provider's own.
    pub base_url: Option<String>,
    /// The variable that holds the key, if not one of the provider's.
    pub key_env: Option<String>,
    /// The variable whose address holds a name and a password.
    pub login_env: Option<String>,
    /// How it is to be asked.
    pub manner: Manner,
    /// What is known of it beyond the catalog, or better.
    pub known: Known,
}

/// A model that can be reached.
#[derive(Debug, Clone)]
pub struct Found {
    /// How.
    pub connection: Connection,
    /// Its window and price.
    pub card: ModelCard,
    /// How its window came to be known.
    pub window: WindowIs,
}

/// How a window came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowIs {
    /// Somebody said so, or it stands in the catalog.
    Known,
    /// Nobody knows it; this one is safe with the provider.
    Assumed,
}

/// Why a model cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotReach {
    /// There is no such provider.
    #[error("there is no provider `{provider}`{hint}")]
    NoProvider {
        /// What was named.
        provider: String,
        /// What was meant, or what there is.
        hint: String,
    },
    /// Nobody said where it is.
    #[error("`{provider}` can be anywhere: say where with `base_url`, such as \"http://localhost:8080/v1\"")]
    NoPlace {
        /// Who.
        provider: String,
    },
    /// That is no place.
    #[error("`{url}` is no address; it begins with http:// or https://, such as \"http://localhost:8080/v1\"")]
    BadPlace {
        /// What was given.
        url: String,
    },
    /// It holds a password.
    #[error("the address of `{provider}` holds a name or a password; secrets are taken from the environment only")]
    Login {
        /// Whose.
        provider: String,
    },
    /// Nobody said which model.
    #[error("`{provider}` serves many models: say which with `model`")]
    NoModel {
        /// Whose.
        provider: String,
    },
}

impl Catalog {
    /// What comes with the program.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("a test reads the file")
    }

    /// Reads a file of the catalog's form.
    ///
    /// # Errors
    /// Says where and what is wrong.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        file::read(text)
    }

    /// The same with what another catalog adds; where both know something, the other is right.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.providers.extend(other.providers);
        self.models.splice(..0, other.models);
        self
    }

    /// Everybody who serves models, those that come first first.
    #[must_use]
    pub fn providers(&self) -> Vec<(&str, &Provider)> {
        let mut providers: Vec<_> = self.providers.iter().map(|(name, provider)| (name.as_str(), provider)).collect();
        providers.sort_by_key(|(name, provider)| (provider.rank, *name));
        providers
    }

    /// Every model of a provider that is known, in the file's order.
    pub fn models<'c>(&'c self, provider: &'c str) -> impl Iterator<Item = &'c Known> {
        self.models.iter().filter(move |known| known.provider == provider)
    }

    /// What is known of a model: what was said last, and where that is silent what was said before; then what is said of it
    /// under a name without a date.
    #[must_use]
    pub fn known(&self, provider: &str, model: &str) -> Option<Known> {
        let of_provider = || self.models.iter().filter(|known| known.provider == provider);
        let named = of_provider().filter(|known| known.name == model);
        let mut all = named.chain(of_provider().filter(|known| known.is_also(model)));
        let first = all.next()?.clone();
        Some(all.fold(first, |known, next| known.or(Some(next))))
    }

    /// How a wanted model is reached. `env` looks a variable of the environment up.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn find(&self, wanted: &Wanted, env: &dyn Fn(&str) -> Option<String>) -> Result<Found, CannotReach> {
        let provider = self.providers.get(&wanted.provider).ok_or_else(|| self.no_provider(&wanted.provider))?;
        let owned = || wanted.provider.clone();
        let base_url = wanted.base_url.as_ref().or(provider.base_url.as_ref());
        let base_url = base_url.ok_or_else(|| CannotReach::NoPlace { provider: owned() })?;
        let mut base_url = base_url.trim().trim_end_matches('/').to_owned();
        if holds_login(&base_url) {
            return Err(CannotReach::Login { provider: owned() });
        }
        if !["http://", "https://"].iter().any(|start| base_url.starts_with(start) && base_url.len() > start.len()) {
            return Err(CannotReach::BadPlace { url: base_url });
        }
        let wire = wanted.wire.unwrap_or(provider.wire);
        // Where Ollama is, it speaks like OpenAI a little further on.
        if (wire, provider.wire) == (Wire::Chat, Wire::Ollama) && !base_url.ends_with("/v1") {
            base_url.push_str("/v1");
        }
        let named = Some(&wanted.model).filter(|model| !model.is_empty()).or(provider.default.as_ref());
        let model = named.ok_or_else(|| CannotReach::NoModel { provider: owned() })?.clone();
        let entry = self.known(&wanted.provider, &model);
        let known = wanted.known.clone().or(entry.as_ref()).or(Some(&provider.assumed));
        let window = match (wanted.known.window_tokens, entry.and_then(|entry| entry.window_tokens)) {
            (None, None) => WindowIs::Assumed,
            (Some(_), _) | (None, Some(_)) => WindowIs::Known,
        };
        let free = provider.is_free.then(|| Price::plain(0, 0, 0));
        let card =
            ModelCard { window_tokens: known.window_tokens.unwrap_or(SAFE_WINDOW_TOKENS), price: known.price.or(free) };
        let connection = Connection {
            provider: owned(),
            wire,
            base_url,
            model,
            key: access(wanted, &provider.keys, env),
            skills: skills(&known, card.window_tokens),
            manner: wanted.manner,
        };
        Ok(Found { connection, card, window })
    }

    fn no_provider(&self, provider: &str) -> CannotReach {
        let names = || self.providers.keys().map(String::as_str);
        let hint = match nearest(provider, names()) {
            Some(name) => format!("; did you mean `{name}`?"),
            None => format!("; there are {}", names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
        };
        CannotReach::NoProvider { provider: provider.to_owned(), hint }
    }
}

impl Known {
    /// Whether `model` is a dated version of this one, or its latest.
    fn is_also(&self, model: &str) -> bool {
        let version = model.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(['-', '@']));
        let is_date = |text: &str| text.len() >= 8 && text.chars().all(|c| c.is_ascii_digit() || c == '-');
        version.is_some_and(|version| version == "latest" || is_date(version))
    }

    /// This, and where it knows nothing, the other.
    fn or(self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            provider: self.provider,
            name: self.name,
            window_tokens: self.window_tokens.or(other.window_tokens),
            output_tokens_max: self.output_tokens_max.or(other.output_tokens_max),
            price: self.price.or(other.price),
            json: self.json.or(other.json),
            thinking: self.thinking.or(other.thinking),
            thought_tokens_min: self.thought_tokens_min.or(other.thought_tokens_min),
            dialect: self.dialect.or(other.dialect),
            images: self.images.or(other.images),
            tools: self.tools.or(other.tools),
            marks: self.marks.or(other.marks),
        }
    }
}

fn skills(known: &Known, window_tokens: u32) -> Skills {
    let ability = |can: Option<bool>| match can {
        Some(true) => Ability::Yes,
        Some(false) => Ability::No,
        None => Ability::Unknown,
    };
    Skills {
        window_tokens,
        output_tokens_max: known.output_tokens_max,
        json: known.json.unwrap_or(Json::Schema),
        images: ability(known.images),
        tools: ability(known.tools),
        thinking: known.thinking.unwrap_or(Thinking::Unknown),
        thought_tokens_min: known.thought_tokens_min.unwrap_or(0),
        dialect: known.dialect.unwrap_or_default(),
        marks: known.marks.unwrap_or(false),
    }
}

fn access(wanted: &Wanted, keys: &[String], env: &dyn Fn(&str) -> Option<String>) -> Access {
    if let Some(name) = &wanted.login_env
        && let Some(login) = env(name).as_deref().and_then(login)
    {
        return Access::Login { env: name.clone(), login };
    }
    let found = |name: &str| env(name).map(|value| Secret::new(&value)).filter(|key| !key.is_empty());
    if let Some(name) = &wanted.key_env {
        return Access::Key { env: name.clone(), key: found(name) };
    }
    let set = keys.iter().find_map(|name| Some((name, found(name)?)));
    match (set, keys.first()) {
        (Some((name, key)), _) => Access::Key { env: name.clone(), key: Some(key) },
        (None, Some(name)) => Access::Key { env: name.clone(), key: None },
        (None, None) => Access::Open,
    }
}

/// The name and the password in an address, as a header wants them.
fn login(url: &str) -> Option<Secret> {
    let (userinfo, _) = authority(url).rsplit_once('@')?;
    let decoded = percent_decoded(userinfo);
    let plain = String::from_utf8_lossy(&decoded).into_owned();
    let password = |login: &str| login.split_once(':').map(|(_, password)| password.to_owned());
    let forms = [password(userinfo), password(&plain), Some(userinfo.to_owned()), Some(plain.clone())];
    Some(Secret::new(&base64(&decoded)).also(forms.into_iter().flatten()))
}

/// Whether an address holds a name or a password.
pub(crate) fn holds_login(url: &str) -> bool {
    authority(url).contains('@')
}

fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn percent_decoded(text: &str) -> Vec<u8> {
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

fn base64(bytes: &[u8]) -> String {
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
