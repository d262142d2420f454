//! Asking servers for their models and capabilities.

use segue_core::prompt::CallFailureKind;
use segue_models::ModelCatalog;
use segue_models::discovery::{
    ReportedModelCapabilities, discover_ollama_models, list_provider_models, probe_capabilities,
};
use segue_models::http::{CompletionOrProbeTimeouts, ReqwestTransport};
use segue_models::vendor::{ThinkingSupport, WireFormat};

use crate::server::{KEY, Server, full_response};

fn probe_transport() -> ReqwestTransport {
    ReqwestTransport::new(CompletionOrProbeTimeouts::Probe)
}

#[tokio::test]
async fn a_local_ollama_is_found_with_its_chat_models() {
    let listing = r#"{"models":[
        {"name":"bge-m3:latest","details":{"family":"bert"}},
        {"name":"llama3.2:latest","details":{"family":"llama"}},
        {"name":"nomic-embed-text:latest"},
        {"name":"reader:1b","capabilities":["embedding"]},
        {"name":"qwen3:8b","capabilities":["completion","tools","thinking"]}
    ]}"#;
    let server = Server::new(vec![full_response(200, "application/json", listing)]).await;
    let host = server.url().replace("/v1", "");
    let env = |name: &str| match name {
        "OLLAMA_HOST" => Some(host.clone()),
        "OLLAMA_CONTEXT_LENGTH" => Some("16384".to_owned()),
        _ => None,
    };
    let found = discover_ollama_models(&probe_transport(), &ModelCatalog::built_in(), &env).await;
    let names: Vec<&str> = found.iter().map(|spec| spec.model.as_str()).collect();
    assert_eq!(names, ["llama3.2:latest", "qwen3:8b"]);
    assert_eq!(found[0].base_url, Some(host.clone()));
    assert_eq!(found[0].overrides.window_tokens, Some(16_384));
    assert_eq!(server.only_request().line, "GET /api/tags HTTP/1.1");
}

#[tokio::test]
async fn a_missing_or_broken_server_is_not_ollama() {
    let catalog = ModelCatalog::built_in();
    assert!(
        discover_ollama_models(&probe_transport(), &catalog, &|_| Some("http://127.0.0.1:1".to_owned()))
            .await
            .is_empty()
    );
    for body in ["<html>", "{\"models\":7}", "[]"] {
        let server = Server::new(vec![full_response(200, "application/json", body)]).await;
        let host = server.url().replace("/v1", "");
        assert!(
            discover_ollama_models(&probe_transport(), &catalog, &|_| Some(host.clone())).await.is_empty(),
            "{body}"
        );
    }
}

#[tokio::test]
async fn windows_are_found_in_every_servers_own_field() {
    let props = r#"{"default_generation_settings":{"n_ctx":2048}}"#;
    let server = Server::new(vec![full_response(200, "application/json", props)]).await;
    assert_eq!(
        probe_capabilities(&probe_transport(), &server.endpoint(WireFormat::Chat)).await.window_tokens,
        Some(2048),
        "llama.cpp"
    );
    assert_eq!(server.only_request().line, "GET /props HTTP/1.1");
    let none = full_response(404, "text/plain", "");
    for (listing, expected) in [
        (r#"{"data":[{"id":"other","max_model_len":1},{"id":"m-1","max_model_len":4096}]}"#, Some(4096)),
        (r#"{"data":[{"id":"m-1","context_length":131072}]}"#, Some(131_072)),
        (r#"{"models":[{"name":"models/m-1","inputTokenLimit":1048576}]}"#, Some(1_048_576)),
        (r#"{"data":[{"id":"m-1"}]}"#, None),
        (r#"{"data":[]}"#, None),
        ("nonsense", None),
    ] {
        let server = Server::new(vec![none.clone(), full_response(200, "application/json", listing)]).await;
        let probed = probe_capabilities(&probe_transport(), &server.endpoint(WireFormat::Chat)).await;
        assert_eq!(
            probed,
            ReportedModelCapabilities { window_tokens: expected, ..ReportedModelCapabilities::default() },
            "{listing}"
        );
    }
}

#[tokio::test]
async fn a_provider_lists_its_models_with_a_key() {
    let listing = r#"{"data":[{"id":"b"},{"id":"a"}]}"#;
    let refusal = format!("no such key: {KEY}");
    let server =
        Server::new(vec![full_response(200, "application/json", listing), full_response(401, "text/plain", &refusal)])
            .await;
    let endpoint = server.endpoint(WireFormat::Anthropic);
    assert_eq!(list_provider_models(&probe_transport(), &endpoint).await, Ok(vec!["a".to_owned(), "b".to_owned()]));
    let received = server.only_request();
    assert_eq!((received.line.as_str(), received.header("x-api-key")), ("GET /v1/models HTTP/1.1", Some(KEY)));
    let failure = list_provider_models(&probe_transport(), &endpoint).await.expect_err("refused");
    assert_eq!((failure.kind, failure.message.as_str()), (CallFailureKind::InvalidApiKey, "no such key: [key] (401)"));
}

#[tokio::test]
async fn ollama_reports_capabilities_and_the_loaded_window() {
    let ps = r#"{"models":[{"name":"other","context_length":1},{"name":"m-1","context_length":32768}]}"#;
    let show = r#"{"capabilities":["completion","thinking"],"details":{"family":"qwen3"},"model_info":{"qwen3.context_length":40960}}"#;
    let responses = |ps: &str, show: &str| {
        vec![full_response(200, "application/json", ps), full_response(200, "application/json", show)]
    };
    // Both requests are sent at once, so either may get either response; unrelated fields are ignored.
    let both = format!("{},{}", &ps[..ps.len() - 1], &show[1..]);
    let server = Server::new(responses(&both, &both)).await;
    let expected = ReportedModelCapabilities {
        window_tokens: Some(32_768),
        thinking: Some(ThinkingSupport::Budget),
        images: Some(false),
        tools: Some(false),
    };
    assert_eq!(probe_capabilities(&probe_transport(), &server.endpoint(WireFormat::Ollama)).await, expected);
    let mut received: Vec<String> = server.received().into_iter().map(|received| received.line).collect();
    received.sort();
    assert_eq!(received, ["GET /api/ps HTTP/1.1", "POST /api/show HTTP/1.1"]);
    let server = Server::new(responses(show, show)).await;
    let mut endpoint = server.endpoint(WireFormat::Ollama);
    endpoint.capabilities.window_tokens = 8_192;
    assert_eq!(
        probe_capabilities(&probe_transport(), &endpoint).await.window_tokens,
        Some(8_192),
        "the assumed window, because the model is not loaded"
    );
    endpoint.capabilities.window_tokens = 100_000;
    assert_eq!(
        probe_capabilities(&probe_transport(), &endpoint).await.window_tokens,
        Some(40_960),
        "limited to the model's own window"
    );
}

#[tokio::test]
async fn a_password_in_ollama_host_is_sent_in_a_header_only() {
    let listing = r#"{"models":[{"name":"llama3.2:latest"}]}"#;
    let server = Server::new(vec![full_response(200, "application/json", listing)]).await;
    let host = server.url().replace("/v1", "").replace("http://", "http://maja:p%40ss@");
    let env = |name: &str| (name == "OLLAMA_HOST").then(|| host.clone());
    let catalog = ModelCatalog::built_in();
    let found = discover_ollama_models(&probe_transport(), &catalog, &env).await;
    assert_eq!(server.only_request().header("authorization"), Some("Basic bWFqYTpwQHNz"));
    let endpoint = catalog.resolve_model(&found[0], &env).expect("resolved").endpoint;
    let shown = format!("{endpoint:?} {found:?} {}", serde_json::to_string(&endpoint).expect("JSON"));
    for secret in ["maja", "p%40ss", "p@ss", "bWFqYT"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}
