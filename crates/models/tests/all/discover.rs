//! Servers that are asked what they serve.

use segue_core::prompt::FailureKind;
use segue_models::discover::{offered, ollama, window_tokens};
use segue_models::http::{Client, Patience};
use segue_models::vendor::Wire;

use crate::server::{KEY, Server, answer};

fn probe() -> Client {
    Client::new(Patience::Little)
}

#[tokio::test]
async fn a_local_ollama_is_found_with_the_models_that_talk() {
    let listing = r#"{"models":[{"name":"llama3.2:latest"},{"name":"nomic-embed-text:latest"},{"name":"qwen3:8b"}]}"#;
    let server = Server::new(vec![answer(200, "application/json", listing)]).await;
    let host = server.url().replace("/v1", "");
    let env = |name: &str| match name {
        "OLLAMA_HOST" => Some(host.clone()),
        "OLLAMA_CONTEXT_LENGTH" => Some("16384".to_owned()),
        _ => None,
    };
    let found = ollama(&probe(), &env).await;
    let names: Vec<&str> = found.iter().map(|wanted| wanted.model.as_str()).collect();
    assert_eq!(names, ["llama3.2:latest", "qwen3:8b"]);
    assert_eq!(found[0].base_url, Some(server.url()));
    assert_eq!(found[0].known.window_tokens, Some(16_384));
    assert_eq!(server.only().line, "GET /api/tags HTTP/1.1");
}

#[tokio::test]
async fn nobody_and_nonsense_are_no_ollama() {
    assert!(ollama(&probe(), &|_| Some("http://127.0.0.1:1".to_owned())).await.is_empty());
    for body in ["<html>", "{\"models\":7}", "[]"] {
        let server = Server::new(vec![answer(200, "application/json", body)]).await;
        let host = server.url().replace("/v1", "");
        assert!(ollama(&probe(), &|_| Some(host.clone())).await.is_empty(), "{body}");
    }
}

#[tokio::test]
async fn servers_tell_their_windows_each_in_its_own_word() {
    let props = r#"{"default_generation_settings":{"n_ctx":2048}}"#;
    let server = Server::new(vec![answer(200, "application/json", props)]).await;
    assert_eq!(window_tokens(&probe(), &server.connection(Wire::Chat)).await, Some(2048), "llama.cpp");
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
        assert_eq!(window_tokens(&probe(), &server.connection(Wire::Chat)).await, expected, "{listing}");
    }
}

#[tokio::test]
async fn a_provider_lists_what_it_serves_to_whoever_has_a_key() {
    let listing = r#"{"data":[{"id":"b"},{"id":"a"}]}"#;
    let refusal = format!("no such key: {KEY}");
    let server = Server::new(vec![answer(200, "application/json", listing), answer(401, "text/plain", &refusal)]).await;
    let connection = server.connection(Wire::Anthropic);
    assert_eq!(offered(&probe(), &connection).await, Ok(vec!["a".to_owned(), "b".to_owned()]));
    let seen = server.only();
    assert_eq!((seen.line.as_str(), seen.header("x-api-key")), ("GET /v1/models HTTP/1.1", Some(KEY)));
    let failure = offered(&probe(), &connection).await.expect_err("refused");
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::BadKey, "no such key: [key] (401)"));
}
