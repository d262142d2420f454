//! Finds models that nobody configured: by the keys in the environment, and by asking a local server whether it is there. Also asks a
//! server what it serves and how much fits into it. Decides nothing about which of them is used.

use segue_core::prompt::{Failure, FailureKind};
use serde_json::Value;

use crate::catalog::{Catalog, Wanted};
use crate::http::{Request, Transport, beginning, whole};
use crate::limits::{LISTING_BYTES_MAX, MODELS_LISTED_MAX, REFUSAL_BYTES_MAX};
use crate::vendor::{Connection, Wire};

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
pub async fn ollama(transport: &dyn Transport, env: &dyn Fn(&str) -> Option<String>) -> Vec<Wanted> {
    let place = ollama_place(env(OLLAMA_HOST).as_deref());
    let Ok(listing) = get(transport, Request::get(format!("{place}/api/tags"))).await else { return Vec::new() };
    let names = listing["models"].as_array().into_iter().flatten().filter_map(|model| model["name"].as_str());
    // What turns texts into numbers does not talk.
    let talking = names.filter(|name| !name.contains("embed")).take(MODELS_LISTED_MAX);
    let window_tokens = env(OLLAMA_CONTEXT).and_then(|tokens| tokens.trim().parse().ok()).filter(|tokens| *tokens > 0);
    let wanted = talking.map(|name| {
        let base_url = Some(format!("{place}/v1"));
        let mut wanted = Wanted { provider: OLLAMA.to_owned(), model: name.to_owned(), base_url, ..Wanted::default() };
        wanted.known.window_tokens = window_tokens;
        wanted
    });
    wanted.collect()
}

/// An address from what `OLLAMA_HOST` may hold: a host, a host and a port, or a whole address. A server told to listen everywhere is
/// found here.
fn ollama_place(host: Option<&str>) -> String {
    let host = host.map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.trim_end_matches('/').replace("0.0.0.0", "localhost");
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port || scheme == "https" {
        format!("{scheme}://{rest}")
    } else {
        format!("{scheme}://{rest}:{OLLAMA_PORT}")
    }
}

/// How much fits into a model, if its server tells: llama.cpp, vLLM, LM Studio, OpenRouter, Groq and Gemini do.
pub async fn window_tokens(transport: &dyn Transport, connection: &Connection) -> Option<u32> {
    let root = connection.base_url.strip_suffix("/v1").unwrap_or(&connection.base_url);
    if connection.wire == Wire::Chat
        && let Ok(props) = get(transport, Request::get(format!("{root}/props"))).await
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
    let mut request = Request::get(format!("{}/models", connection.base_url));
    (request.headers, request.key) = connection.credentials();
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
    let response = transport.send(request).await?;
    if !response.is_ok() {
        let status = response.status;
        let body = beginning(response.body, REFUSAL_BYTES_MAX).await;
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
