//! Finds models that are not configured: by API keys in the environment, and by probing a local Ollama server. Also asks a
//! server for its models and their capabilities. Does not decide which of them is used.

use futures_util::future;
use segue_core::prompt::{CallFailure, CallFailureKind};
use serde_json::{Value, json};

use crate::catalog::{ModelCatalog, RequestedVendorModel};
use crate::http::{HttpTransport, VendorHttpRequest, read_body_prefix, read_whole_body};
use crate::limits::{ERROR_BODY_BYTES_MAX, MODEL_LISTING_BYTES_MAX, MODELS_LISTED_MAX};
use crate::vendor::{FeatureSupport, ModelCapabilities, ModelEndpoint, ThinkingSupport, WireFormat, ollama_server_url};

/// The provider that is probed on this machine.
pub const OLLAMA_PROVIDER: &str = "ollama";
/// The environment variable with Ollama's address.
const OLLAMA_HOST_ENV: &str = "OLLAMA_HOST";
/// The environment variable with Ollama's context window.
const OLLAMA_CONTEXT_LENGTH_ENV: &str = "OLLAMA_CONTEXT_LENGTH";
const OLLAMA_DEFAULT_PORT: u16 = 11_434;

/// Returns the default model of every provider whose API key is in the environment, lowest rank first.
#[must_use]
pub fn discover_by_api_keys(catalog: &ModelCatalog, env: &dyn Fn(&str) -> Option<String>) -> Vec<RequestedVendorModel> {
    let is_set = |name: &String| env(name).is_some_and(|value| !value.trim().is_empty());
    let with_key =
        catalog.providers_by_rank().into_iter().filter(|(_, provider)| provider.key_env_vars.iter().any(is_set));
    let specs = with_key.filter_map(|(name, provider)| {
        let model = provider.default_model.clone()?;
        Some(RequestedVendorModel { provider: name.to_owned(), model, ..RequestedVendorModel::default() })
    });
    specs.collect()
}

/// Lists the chat models of the local Ollama server, or of the one at `OLLAMA_HOST`; empty if it cannot be reached. Use a
/// transport with a short timeout.
pub async fn discover_ollama_models(
    transport: &dyn HttpTransport,
    catalog: &ModelCatalog,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<RequestedVendorModel> {
    let spec = ollama_spec_from_env(env);
    let endpoint = catalog.resolve_model(&RequestedVendorModel { model: "any".to_owned(), ..spec.clone() }, env);
    let Ok(endpoint) = endpoint.map(|found| found.endpoint) else { return Vec::new() };
    let listing = fetch_json(transport, build_listing_request(&endpoint)).await;
    let listing = listing.inspect_err(|failure| tracing::debug!(failure = %failure.kind, "no Ollama server found"));
    let Ok(listing) = listing else { return Vec::new() };
    let models = listing["models"].as_array().into_iter().flatten().filter(|model| is_chat_model(model));
    let names = models.filter_map(|model| model["name"].as_str()).take(MODELS_LISTED_MAX);
    names.map(|name| RequestedVendorModel { model: name.to_owned(), ..spec.clone() }).collect()
}

/// Builds a spec without a model from Ollama's environment variables.
#[must_use]
fn ollama_spec_from_env(env: &dyn Fn(&str) -> Option<String>) -> RequestedVendorModel {
    let host = env(OLLAMA_HOST_ENV);
    let base_url = Some(ollama_base_url(host.as_deref()));
    let login_env = host.filter(|host| host.contains('@')).map(|_| OLLAMA_HOST_ENV.to_owned());
    let mut spec = RequestedVendorModel {
        provider: OLLAMA_PROVIDER.to_owned(),
        base_url,
        login_env,
        ..RequestedVendorModel::default()
    };
    let tokens = env(OLLAMA_CONTEXT_LENGTH_ENV).and_then(|tokens| tokens.trim().parse().ok());
    spec.overrides.window_tokens = tokens.filter(|tokens| *tokens > 0);
    spec
}

/// Fills in address and window of an Ollama model from the environment, unless an address is configured.
#[must_use]
pub fn apply_ollama_env(spec: RequestedVendorModel, env: &dyn Fn(&str) -> Option<String>) -> RequestedVendorModel {
    if spec.provider != OLLAMA_PROVIDER || spec.base_url.is_some() {
        return spec;
    }
    let from_env = ollama_spec_from_env(env);
    let mut spec = spec;
    spec.overrides.window_tokens = spec.overrides.window_tokens.or(from_env.overrides.window_tokens);
    if env(OLLAMA_HOST_ENV).is_some_and(|host| !host.trim().is_empty()) {
        (spec.base_url, spec.login_env) = (from_env.base_url, from_env.login_env);
    }
    spec
}

/// Returns whether a model in Ollama's list can chat; embedding models cannot.
fn is_chat_model(model: &Value) -> bool {
    let text_at = |key: &str| model.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let capabilities = model["capabilities"].as_array();
    capabilities.is_none_or(|capabilities| capabilities.iter().any(|capability| capability == "completion"))
        && !text_at("/name").contains("embed")
        && !text_at("/details/family").contains("bert")
}

/// Builds a URL from the value of `OLLAMA_HOST`: a host, host and port, or a full URL. The wildcard address, on which a
/// server listens on all interfaces, becomes `localhost`.
fn ollama_base_url(host: Option<&str>) -> String {
    let given = host.map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // User name and password are sent in a header instead.
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // More than one colon is an IPv6 address, whose port follows the closing bracket.
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
        // As in Ollama itself, an explicit scheme implies its default port.
        None if given.contains("://") => String::new(),
        None => format!(":{OLLAMA_DEFAULT_PORT}"),
    };
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{host}{port}{slash}{path}")
}

/// What a server reports about a model; `None` means it did not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedModelCapabilities {
    pub window_tokens: Option<u32>,
    pub thinking: Option<ThinkingSupport>,
    /// Whether it accepts images.
    pub images: Option<bool>,
    /// Whether it supports tool calls.
    pub tools: Option<bool>,
}

impl ReportedModelCapabilities {
    /// Updates `capabilities`; only the window overrides what is already known.
    pub fn apply_to(&self, capabilities: &mut ModelCapabilities) {
        let support = |supported: bool| if supported { FeatureSupport::Yes } else { FeatureSupport::No };
        capabilities.window_tokens = self.window_tokens.unwrap_or(capabilities.window_tokens);
        capabilities.thinking = self
            .thinking
            .filter(|_| capabilities.thinking == ThinkingSupport::Unknown)
            .unwrap_or(capabilities.thinking);
        capabilities.images = self
            .images
            .map(support)
            .filter(|_| capabilities.images == FeatureSupport::Unknown)
            .unwrap_or(capabilities.images);
        capabilities.tools = self
            .tools
            .map(support)
            .filter(|_| capabilities.tools == FeatureSupport::Unknown)
            .unwrap_or(capabilities.tools);
    }
}

/// Asks a server about a model. llama.cpp, vLLM, LM Studio, OpenRouter, Groq and Gemini report the window; Ollama also
/// reports capabilities.
pub async fn probe_capabilities(transport: &dyn HttpTransport, endpoint: &ModelEndpoint) -> ReportedModelCapabilities {
    match endpoint.wire {
        WireFormat::Ollama => probe_ollama_capabilities(transport, endpoint).await,
        WireFormat::Chat | WireFormat::Responses | WireFormat::Anthropic | WireFormat::Gemini => {
            ReportedModelCapabilities {
                window_tokens: probe_window_tokens(transport, endpoint).await,
                ..ReportedModelCapabilities::default()
            }
        }
    }
}

/// A loaded model keeps its window, because a different one would reload it. Otherwise each call requests the assumed
/// window, limited to the model's own.
async fn probe_ollama_capabilities(
    transport: &dyn HttpTransport,
    endpoint: &ModelEndpoint,
) -> ReportedModelCapabilities {
    let (ps, show) = future::join(
        fetch_json(
            transport,
            with_auth_headers(
                endpoint,
                VendorHttpRequest::get(format!("{}/api/ps", ollama_server_url(&endpoint.base_url))),
            ),
        ),
        fetch_json(transport, {
            let body = json!({ "model": endpoint.model });
            with_auth_headers(
                endpoint,
                VendorHttpRequest::post(format!("{}/api/show", ollama_server_url(&endpoint.base_url)), &body),
            )
        }),
    )
    .await;
    for failure in [&ps, &show].into_iter().filter_map(|response| response.as_ref().err()) {
        tracing::debug!(model = endpoint.model, failure = %failure.kind, "cannot read the capabilities of the model");
    }
    let (ps, show) = (ps.unwrap_or_default(), show.unwrap_or_default());
    let is_this_model = |row: &&Value| ["name", "model"].iter().any(|key| row[*key] == endpoint.model);
    let loaded = ps["models"].as_array().and_then(|rows| rows.iter().find(is_this_model));
    let loaded_window = loaded.and_then(|row| positive_u32(row.get("context_length")?));
    let own_window =
        show["model_info"].as_object().into_iter().flatten().find(|(key, _)| key.ends_with(".context_length"));
    let own_window = own_window
        .and_then(|(_, tokens)| positive_u32(tokens))
        .map(|tokens| tokens.min(endpoint.capabilities.window_tokens));
    let listed = show["capabilities"].as_array();
    let can = |name: &str| listed.map(|listed| listed.iter().any(|known| known == name));
    let has_effort_levels = show.pointer("/details/family").is_some_and(|family| family == "gptoss");
    let thinking = can("thinking").map(|thinks| match (thinks, has_effort_levels) {
        (false, _) => ThinkingSupport::None,
        (true, false) => ThinkingSupport::Budget,
        (true, true) => ThinkingSupport::Levels,
    });
    ReportedModelCapabilities {
        window_tokens: loaded_window.or(own_window),
        thinking,
        images: can("vision"),
        tools: can("tools"),
    }
}

async fn probe_window_tokens(transport: &dyn HttpTransport, endpoint: &ModelEndpoint) -> Option<u32> {
    let root = endpoint.base_url.strip_suffix("/v1").unwrap_or(&endpoint.base_url);
    if endpoint.wire == WireFormat::Chat
        && let Ok(props) =
            fetch_json(transport, with_auth_headers(endpoint, VendorHttpRequest::get(format!("{root}/props")))).await
        && let Some(tokens) = props.pointer("/default_generation_settings/n_ctx").and_then(positive_u32)
    {
        return Some(tokens);
    }
    // A server that cannot be reached, or does not list its models, does not tell the window.
    let listing = fetch_json(transport, build_listing_request(endpoint)).await.ok()?;
    let names = ["max_model_len", "loaded_context_length", "context_window", "context_length", "inputTokenLimit"];
    let model = listed_models(&listing).find(|row| listed_model_name(row) == Some(endpoint.model.as_str()))?;
    names.iter().find_map(|name| positive_u32(model.get(name)?))
}

fn positive_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

/// Lists the models a provider serves.
///
/// # Errors
/// The request fails, or the response is not JSON.
pub async fn list_provider_models(
    transport: &dyn HttpTransport,
    endpoint: &ModelEndpoint,
) -> Result<Vec<String>, CallFailure> {
    let listing = fetch_json(transport, build_listing_request(endpoint))
        .await
        .map_err(|failure| endpoint.redact_failure(failure))?;
    let mut names: Vec<String> =
        listed_models(&listing).filter_map(listed_model_name).take(MODELS_LISTED_MAX).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

fn build_listing_request(endpoint: &ModelEndpoint) -> VendorHttpRequest {
    let url = match endpoint.wire {
        WireFormat::Ollama => format!("{}/api/tags", ollama_server_url(&endpoint.base_url)),
        WireFormat::Chat | WireFormat::Responses | WireFormat::Anthropic | WireFormat::Gemini => {
            format!("{}/models", endpoint.base_url)
        }
    };
    with_auth_headers(endpoint, VendorHttpRequest::get(url))
}

fn with_auth_headers(endpoint: &ModelEndpoint, mut request: VendorHttpRequest) -> VendorHttpRequest {
    let (headers, key) = endpoint.request_headers();
    request.headers.extend(headers);
    request.auth = key;
    request
}

fn listed_models(listing: &Value) -> impl Iterator<Item = &Value> {
    ["data", "models"].iter().filter_map(|key| listing.get(key)?.as_array()).flatten()
}

fn listed_model_name(row: &Value) -> Option<&str> {
    let name = row.get("id").or_else(|| row.get("name"))?.as_str()?;
    Some(name.strip_prefix("models/").unwrap_or(name))
}

async fn fetch_json(transport: &dyn HttpTransport, request: VendorHttpRequest) -> Result<Value, CallFailure> {
    let key = request.auth.clone();
    let response = transport.send(request).await?;
    if !response.is_success() {
        let status = response.status;
        let body = read_body_prefix(response.body, ERROR_BODY_BYTES_MAX).await;
        let body = key.map_or_else(|| body.clone(), |header| header.secret.redact(&body));
        let kind = if matches!(status, 401 | 403) { CallFailureKind::InvalidApiKey } else { CallFailureKind::Overload };
        let body: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
        return Err(CallFailure::new(kind, format!("{body} ({status})")));
    }
    let body = read_whole_body(response.body, MODEL_LISTING_BYTES_MAX).await?;
    serde_json::from_str(&body)
        .map_err(|_| CallFailure::new(CallFailureKind::MalformedReply, "the response is not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_is_accepted_in_any_form() {
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
            assert_eq!(ollama_base_url(host), expected, "{host:?}");
        }
    }

    #[test]
    fn keys_in_the_environment_find_their_providers_in_order() {
        let catalog = ModelCatalog::built_in();
        let env = |set: &'static [&'static str]| move |name: &str| set.contains(&name).then(|| "key".to_owned());
        let found =
            |set| discover_by_api_keys(&catalog, &env(set)).into_iter().map(|spec| spec.provider).collect::<Vec<_>>();
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&["GROQ_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"]), ["openai", "gemini", "groq"]);
        assert!(discover_by_api_keys(&catalog, &|_| Some(" ".to_owned())).is_empty(), "an empty key is none");
    }
}
