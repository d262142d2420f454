//! Servers that are asked what they serve.

use segue_core::prompt::FailureKind;
use segue_models::ModelCatalog;
use segue_models::discovery::{ProbedCapabilities, discover_ollama_models, list_provider_models, probe_capabilities};
use segue_models::http::{ReqwestTransport, TimeoutProfile};
use segue_models::vendor::{ThinkingSupport, WireFormat};

use crate::server::{KEY, Server, answer};

fn probe() -> ReqwestTransport {
    ReqwestTransport::new(TimeoutProfile::Probe)
}

#[tokio::test]
async fn a_local_ollama_is_found_with_the_models_that_talk() {
    let listing = r#"{"models":[
        {"name":"bge-m3:latest","details":{"family":"bert"}},
        {"name":"llama3.2:latest","details":{"family":"llama"}},
        {"name":"nomic-embed-text:latest"},
        {"name":"reader:1b","capabilities":["embedding"]},
        {"name":"qwen3:8b","capabilities":["completion","tools","thinking"]}
    ]}"#;
    let server = Server::new(vec![answer(200, "application/json", listing)]).await;
    let host = server.url().replace("/v1", "");
    let env = |name: &str| match name {
        "OLLAMA_HOST" => Some(host.clone()),
        "OLLAMA_CONTEXT_LENGTH" => Some("16384".to_owned()),
        _ => None,
    };
    let found = discover_ollama_models(&probe(), &ModelCatalog::built_in(), &env).await;
    let names: Vec<&str> = found.iter().map(|wanted| wanted.model.as_str()).collect();
    assert_eq!(names, ["llama3.2:latest", "qwen3:8b"]);
    assert_eq!(found[0].base_url, Some(host.clone()));
    assert_eq!(found[0].overrides.window_tokens, Some(16_384));
    assert_eq!(server.only().line, "GET /api/tags HTTP/1.1");
}

#[tokio::test]
async fn nobody_and_nonsense_are_no_ollama() {
    let catalog = ModelCatalog::built_in();
    assert!(discover_ollama_models(&probe(), &catalog, &|_| Some("http://127.0.0.1:1".to_owned())).await.is_empty());
    for body in ["<html>", "{\"models\":7}", "[]"] {
        let server = Server::new(vec![answer(200, "application/json", body)]).await;
        let host = server.url().replace("/v1", "");
        assert!(discover_ollama_models(&probe(), &catalog, &|_| Some(host.clone())).await.is_empty(), "{body}");
    }
}

#[tokio::test]
async fn servers_tell_their_windows_each_in_its_own_word() {
    let props = r#"{"default_generation_settings":{"n_ctx":2048}}"#;
    let server = Server::new(vec![answer(200, "application/json", props)]).await;
    assert_eq!(
        probe_capabilities(&probe(), &server.connection(WireFormat::Chat)).await.window_tokens,
        Some(2048),
        "llama.cpp"
    );
    assert_eq!(server.only().line, "GET /props HTTP/1.1");
    let none = answer(404, "text/plain", "");
    for (listing, expected) in [
        (r#"{"data":[{"id":"other","max_model_len":1},{"id":"m-1","max_model_len":4096}]}"#, Some(4096)),
        (r#"{"data":[{"id":"m-1","context_length":131072}]}"#, Some(131_072)),
        (r#"{"models":[{"name":"models/m-1","inputTokenLimit":1048576}]}"#, Some(1_048_576)),
        (r#"{"data":[{"id":"m-1"}]}"#, None),
        (r#"{"data":[]}"#, None),
        ("nonsense", None),
    ] {
        let server = Server::new(vec![none.clone(), answer(200, "application/json", listing)]).await;
        let told = probe_capabilities(&probe(), &server.connection(WireFormat::Chat)).await;
        assert_eq!(told, ProbedCapabilities { window_tokens: expected, ..ProbedCapabilities::default() }, "{listing}");
    }
}

#[tokio::test]
async fn a_provider_lists_what_it_serves_to_whoever_has_a_key() {
    let listing = r#"{"data":[{"id":"b"},{"id":"a"}]}"#;
    let refusal = format!("no such key: {KEY}");
    let server = Server::new(vec![answer(200, "application/json", listing), answer(401, "text/plain", &refusal)]).await;
    let connection = server.connection(WireFormat::Anthropic);
    assert_eq!(list_provider_models(&probe(), &connection).await, Ok(vec!["a".to_owned(), "b".to_owned()]));
    let seen = server.only();
    assert_eq!((seen.line.as_str(), seen.header("x-api-key")), ("GET /v1/models HTTP/1.1", Some(KEY)));
    let failure = list_provider_models(&probe(), &connection).await.expect_err("refused");
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::InvalidApiKey, "no such key: [key] (401)"));
}

#[tokio::test]
async fn an_ollama_tells_what_a_model_can_do_and_how_it_is_loaded() {
    let ps = r#"{"models":[{"name":"other","context_length":1},{"name":"m-1","context_length":32768}]}"#;
    let show = r#"{"capabilities":["completion","thinking"],"details":{"family":"qwen3"},"model_info":{"qwen3.context_length":40960}}"#;
    let answers =
        |ps: &str, show: &str| vec![answer(200, "application/json", ps), answer(200, "application/json", show)];
    // Both are asked at once, so each answer may come to either; one that says nothing of it is passed over.
    let both = format!("{},{}", &ps[..ps.len() - 1], &show[1..]);
    let server = Server::new(answers(&both, &both)).await;
    let expected = ProbedCapabilities {
        window_tokens: Some(32_768),
        thinking: Some(ThinkingSupport::Budget),
        images: Some(false),
        tools: Some(false),
    };
    assert_eq!(probe_capabilities(&probe(), &server.connection(WireFormat::Ollama)).await, expected);
    let mut seen: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
    seen.sort();
    assert_eq!(seen, ["GET /api/ps HTTP/1.1", "POST /api/show HTTP/1.1"]);
    let server = Server::new(answers(show, show)).await;
    let mut connection = server.connection(WireFormat::Ollama);
    connection.capabilities.window_tokens = 8_192;
    assert_eq!(
        probe_capabilities(&probe(), &connection).await.window_tokens,
        Some(8_192),
        "what is asked for, where it is not loaded"
    );
    connection.capabilities.window_tokens = 100_000;
    assert_eq!(probe_capabilities(&probe(), &connection).await.window_tokens, Some(40_960), "and no more than it has");
}

#[tokio::test]
async fn a_password_in_the_address_of_an_ollama_goes_into_a_header_and_nowhere_else() {
    let listing = r#"{"models":[{"name":"llama3.2:latest"}]}"#;
    let server = Server::new(vec![answer(200, "application/json", listing)]).await;
    let host = server.url().replace("/v1", "").replace("http://", "http://maja:p%40ss@");
    let env = |name: &str| (name == "OLLAMA_HOST").then(|| host.clone());
    let catalog = ModelCatalog::built_in();
    let found = discover_ollama_models(&probe(), &catalog, &env).await;
    assert_eq!(server.only().header("authorization"), Some("Basic bWFqYTpwQHNz"));
    let connection = catalog.resolve_model(&found[0], &env).expect("it can be reached").endpoint;
    let shown = format!("{connection:?} {found:?} {}", serde_json::to_string(&connection).expect("JSON"));
    for secret in ["maja", "p%40ss", "p@ss", "bWFqYT"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}
