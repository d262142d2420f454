//! Finds models that nobody configured: by the keys in the environment, and by asking a local server whether it is there. Also asks a
//! server what it serves and how much fits into it. Decides nothing about which of them is used.

use futures_util::future;
use segue_core::prompt::{Failure, FailureKind};
use serde_json::{Value, json};

use crate::catalog::{Catalog, Wanted};
use crate::http::{Request, Transport, beginning, whole};
use crate::limits::{LISTING_BYTES_MAX, MODELS_LISTED_MAX, REFUSAL_BYTES_MAX};
use crate::vendor::{Ability, Connection, Skills, Thinking, Wire, root};

/// The provider that is looked for on this machine.
pub const OLLAMA: &str = "ollama";
/// The variable that says where Ollama is.
const OLLAMA_HOST: &str = "OLLAMA_HOST";
/// The variable that says how much fits into a model of Ollama's.
const OLLAMA_CONTEXT: &str = "OLLAMA_CONTEXT_LENGTH";
const OLLAMA_PORT: u16 = 11_434;

/// The usual model of every provider whose key is in the environment, those that come first first.
#[must_use]
pub fn by_keys(catalog: &Catalog, env: &dyn Fn(&str) -> Option<String>) -> Vec<Wanted> {
    let is_set = |name: &String| env(name).is_some_and(|value| !value.trim().is_empty());
    let keyed = catalog.providers().into_iter().filter(|(_, provider)| provider.keys.iter().any(is_set));
    let wanted = keyed.filter_map(|(name, provider)| {
        let model = provider.default.clone()?;
        Some(Wanted { provider: name.to_owned(), model, ..Wanted::default() })
    });
    wanted.collect()
}

/// The models of the Ollama on this machine, or wherever the environment says it is; none if it is not there. The transport should
/// have little patience.
pub async fn ollama(transport: &dyn Transport, catalog: &Catalog, env: &dyn Fn(&str) -> Option<String>) -> Vec<Wanted> {
    let wanted = ollama_here(env);
    let connection = catalog.find(&Wanted { model: "any".to_owned(), ..wanted.clone() }, env);
    let Ok(connection) = connection.map(|found| found.connection) else { return Vec::new() };
    let Ok(listing) = get(transport, listing_request(&connection)).await else { return Vec::new() };
    let models = listing["models"].as_array().into_iter().flatten().filter(|model| talks(model));
    let names = models.filter_map(|model| model["name"].as_str()).take(MODELS_LISTED_MAX);
    names.map(|name| Wanted { model: name.to_owned(), ..wanted.clone() }).collect()
}

/// Whatever the Ollama on this machine serves, or the one wherever the environment says it is.
#[must_use]
fn ollama_here(env: &dyn Fn(&str) -> Option<String>) -> Wanted {
    let host = env(OLLAMA_HOST);
    let base_url = Some(ollama_place(host.as_deref()));
    let login_env = host.filter(|host| host.contains('@')).map(|_| OLLAMA_HOST.to_owned());
    let mut wanted = Wanted { provider: OLLAMA.to_owned(), base_url, login_env, ..Wanted::default() };
    let tokens = env(OLLAMA_CONTEXT).and_then(|tokens| tokens.trim().parse().ok());
    wanted.known.window_tokens = tokens.filter(|tokens| *tokens > 0);
    wanted
}

/// A wanted model at the place that the environment names, where nobody named another.
#[must_use]
pub fn placed(wanted: Wanted, env: &dyn Fn(&str) -> Option<String>) -> Wanted {
    if wanted.provider != OLLAMA || wanted.base_url.is_some() {
        return wanted;
    }
    let here = ollama_here(env);
    let mut placed = wanted;
    placed.known.window_tokens = placed.known.window_tokens.or(here.known.window_tokens);
    if env(OLLAMA_HOST).is_some_and(|host| !host.trim().is_empty()) {
        (placed.base_url, placed.login_env) = (here.base_url, here.login_env);
    }
    placed
}

/// Whether a model in Ollama's list talks; many only turn texts into numbers.
fn talks(model: &Value) -> bool {
    let named = |key: &str| model.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let can = model["capabilities"].as_array();
    can.is_none_or(|can| can.iter().any(|can| can == "completion"))
        && !named("/name").contains("embed")
        && !named("/details/family").contains("bert")
}

/// An address from what `OLLAMA_HOST` may hold: a host, a host and a port, or a whole address. A server told to listen everywhere is
/// found here.
fn ollama_place(host: Option<&str>) -> String {
    let given = host.map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A name and a password go into a header.
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // More than one colon is an address of the sixth version, which has a port only behind its bracket.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => {
            (host, Some(port))
        }
        _ => (authority, None),
    };
    let host = match host {
        "" | "0.0.0.0" | "[::]" | "::" => "localhost".to_owned(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let port = match port {
        Some(port) => format!(":{port}"),
        // A scheme that was written down says the port too, as it does for Ollama itself.
        None if given.contains("://") => String::new(),
        None => format!(":{OLLAMA_PORT}"),
    };
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{host}{port}{slash}{path}")
}

/// What a server tells about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// How much fits into it.
    pub window_tokens: Option<u32>,
    /// How it thinks.
    pub thinking: Option<Thinking>,
    /// Whether it can look at images.
    pub images: Option<bool>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
}

impl Told {
    /// What is known of a model with this.
    pub fn improve(&self, skills: &mut Skills) {
        let ability = |can: bool| if can { Ability::Yes } else { Ability::No };
        skills.window_tokens = self.window_tokens.unwrap_or(skills.window_tokens);
        skills.thinking = self.thinking.filter(|_| skills.thinking == Thinking::Unknown).unwrap_or(skills.thinking);
        skills.images = self.images.map(ability).filter(|_| skills.images == Ability::Unknown).unwrap_or(skills.images);
        skills.tools = self.tools.map(ability).filter(|_| skills.tools == Ability::Unknown).unwrap_or(skills.tools);
    }
}

/// Asks a server about a model: llama.cpp, vLLM, LM Studio, OpenRouter, Groq and Gemini tell how much fits into it, Ollama tells all.
pub async fn told(transport: &dyn Transport, connection: &Connection) -> Told {
    match connection.wire {
        Wire::Ollama => told_by_ollama(transport, connection).await,
        Wire::Chat | Wire::Responses | Wire::Anthropic | Wire::Gemini => {
            Told { window_tokens: window_tokens(transport, connection).await, ..Told::default() }
        }
    }
}

/// Where a model is loaded, its window is taken as it is, since another would have it loaded anew. Else it is asked for with each call, and
/// is what we assume, unless the model itself has less.
async fn told_by_ollama(transport: &dyn Transport, connection: &Connection) -> Told {
    let (ps, show) = future::join(
        get(transport, with_key(connection, Request::get(format!("{}/api/ps", root(&connection.base_url))))),
        get(transport, {
            let body = json!({ "model": connection.model });
            with_key(connection, Request::post(format!("{}/api/show", root(&connection.base_url)), &body))
        }),
    )
    .await;
    let (ps, show) = (ps.unwrap_or_default(), show.unwrap_or_default());
    let is_it = |row: &&Value| ["name", "model"].iter().any(|key| row[*key] == connection.model);
    let loaded = ps["models"].as_array().and_then(|rows| rows.iter().find(is_it));
    let loaded = loaded.and_then(|row| number(row.get("context_length")?));
    let own = show["model_info"].as_object().into_iter().flatten().find(|(key, _)| key.ends_with(".context_length"));
    let own = own.and_then(|(_, tokens)| number(tokens)).map(|tokens| tokens.min(connection.skills.window_tokens));
    let can = show["capabilities"].as_array();
    let can = |word: &str| can.map(|can| can.iter().any(|known| known == word));
    let is_open_weights = show.pointer("/details/family").is_some_and(|family| family == "gptoss");
    let thinking = can("thinking").map(|thinks| match (thinks, is_open_weights) {
        (false, _) => Thinking::None,
        (true, false) => Thinking::Budget,
        (true, true) => Thinking::Levels,
    });
    Told { window_tokens: loaded.or(own), thinking, images: can("vision"), tools: can("tools") }
}

async fn window_tokens(transport: &dyn Transport, connection: &Connection) -> Option<u32> {
    let root = connection.base_url.strip_suffix("/v1").unwrap_or(&connection.base_url);
    if connection.wire == Wire::Chat
        && let Ok(props) = get(transport, with_key(connection, Request::get(format!("{root}/props")))).await
        && let Some(tokens) = props.pointer("/default_generation_settings/n_ctx").and_then(number)
    {
        return Some(tokens);
    }
    let listing = get(transport, listing_request(connection)).await.ok()?;
    let names = ["max_model_len", "loaded_context_length", "context_window", "context_length", "inputTokenLimit"];
    let model = rows(&listing).find(|row| name_of(row) == Some(connection.model.as_str()))?;
    names.iter().find_map(|name| number(model.get(name)?))
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

/// What a provider serves.
///
/// # Errors
/// As a call would fail there.
pub async fn offered(transport: &dyn Transport, connection: &Connection) -> Result<Vec<String>, Failure> {
    let listing = get(transport, listing_request(connection)).await.map_err(|failure| connection.clean(failure))?;
    let mut names: Vec<String> =
        rows(&listing).filter_map(name_of).take(MODELS_LISTED_MAX).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

fn listing_request(connection: &Connection) -> Request {
    let url = match connection.wire {
        Wire::Ollama => format!("{}/api/tags", root(&connection.base_url)),
        Wire::Chat | Wire::Responses | Wire::Anthropic | Wire::Gemini => format!("{}/models", connection.base_url),
    };
    with_key(connection, Request::get(url))
}

fn with_key(connection: &Connection, mut request: Request) -> Request {
    let (headers, key) = connection.credentials();
    request.headers.extend(headers);
    request.key = key;
    request
}

fn rows(listing: &Value) -> impl Iterator<Item = &Value> {
    ["data", "models"].iter().filter_map(|key| listing.get(key)?.as_array()).flatten()
}

fn name_of(row: &Value) -> Option<&str> {
    let name = row.get("id").or_else(|| row.get("name"))?.as_str()?;
    Some(name.strip_prefix("models/").unwrap_or(name))
}

async fn get(transport: &dyn Transport, request: Request) -> Result<Value, Failure> {
    let key = request.key.clone();
    let response = transport.send(request).await?;
    if !response.is_ok() {
        let status = response.status;
        let body = beginning(response.body, REFUSAL_BYTES_MAX).await;
        let body = key.map_or_else(|| body.clone(), |header| header.key.strip(&body));
        let kind = if matches!(status, 401 | 403) { FailureKind::BadKey } else { FailureKind::Overload };
        let body: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
        return Err(Failure::new(kind, format!("{body} ({status})")));
    }
    let body = whole(response.body, LISTING_BYTES_MAX).await?;
    serde_json::from_str(&body).map_err(|_| Failure::new(FailureKind::Malformed, "the answer is no JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_is_where_its_variable_says_in_any_form() {
        for (host, expected) in [
            (None, "http://localhost:11434"),
            (Some(""), "http://localhost:11434"),
            (Some("0.0.0.0"), "http://localhost:11434"),
            (Some("0.0.0.0:8000"), "http://localhost:8000"),
            (Some("box"), "http://box:11434"),
            (Some("http://box:8000/"), "http://box:8000"),
            (Some("https://models.example.com"), "https://models.example.com"),
            (Some("http://me:p@ss@box:8000/"), "http://box:8000"),
            (Some("me:secret@box"), "http://box:11434"),
            (Some("http://127.0.0.1:18081/ollama"), "http://127.0.0.1:18081/ollama"),
            (Some("http://box/ollama/"), "http://box/ollama"),
            (Some("http://box"), "http://box"),
            (Some(":18081"), "http://localhost:18081"),
            (Some("::1"), "http://[::1]:11434"),
            (Some("[::1]:8000"), "http://[::1]:8000"),
            (Some("[::]:8000"), "http://localhost:8000"),
        ] {
            assert_eq!(ollama_place(host), expected, "{host:?}");
        }
    }

    #[test]
    fn keys_in_the_environment_find_their_providers_in_order() {
        let catalog = Catalog::built_in();
        let env = |set: &'static [&'static str]| move |name: &str| set.contains(&name).then(|| "key".to_owned());
        let found = |set| by_keys(&catalog, &env(set)).into_iter().map(|wanted| wanted.provider).collect::<Vec<_>>();
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&["GROQ_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"]), ["openai", "gemini", "groq"]);
        assert!(by_keys(&catalog, &|_| Some(" ".to_owned())).is_empty(), "an empty key is none");
    }
}
