//! Servers that refuse, stall, disconnect, flood or send nonsense, in every format: each ends in a classified failure, in
//! bounded memory.

use futures_util::StreamExt;
use segue_core::prompt::{CallFailureKind, FailedCallAttemptCost};
use segue_models::http::SecretString;
use segue_models::limits::SSE_EVENT_BYTES_MAX;
use segue_models::vendor::{VendorCredentials, WireFormat};
use segue_models::{LanguageModel, ReplyChunk};

use crate::server::{KEY, Server, Step, events, full_response, lines, stream, vendor_model};
use crate::support::ask;

/// The beginning of a reply with the text `so`.
fn beginning(wire: WireFormat) -> &'static str {
    match wire {
        WireFormat::Chat => "data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n",
        WireFormat::Responses => "data: {\"type\":\"response.output_text.delta\",\"delta\":\"so\"}\n\n",
        WireFormat::Anthropic => {
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"so\"}}\n\n"
        }
        WireFormat::Gemini => "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"so\"}]}}]}\n\n",
        WireFormat::Ollama => "{\"message\":{\"content\":\"so\"},\"done\":false}\n",
    }
}

/// The end of a reply.
fn ending(wire: WireFormat) -> &'static str {
    match wire {
        WireFormat::Chat => "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        WireFormat::Responses => "data: {\"type\":\"response.completed\",\"response\":{}}\n\n",
        WireFormat::Anthropic => "data: {\"type\":\"message_stop\"}\n\n",
        WireFormat::Gemini => "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
        WireFormat::Ollama => "{\"message\":{},\"done\":true,\"done_reason\":\"stop\"}\n",
    }
}

fn head() -> Step {
    Step::Head(200, vec![("content-type", "text/event-stream".to_owned())])
}

fn chunk(text: &str) -> Step {
    Step::Chunk(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_chunk_is_a_network_failure() {
    for wire in WireFormat::ALL {
        let half = &ending(wire)[..10];
        let server = Server::new(vec![vec![head(), chunk(beginning(wire)), chunk(half)]]).await;
        let chunks = ask("hi").chunks(&server.vendor(wire)).await;
        assert_eq!(chunks.first(), Some(&Ok(ReplyChunk::Text("so".into()))), "chunks before the failure are passed on");
        let failure = chunks.last().expect("an end").clone().expect_err("cut");
        assert_eq!(failure.kind, CallFailureKind::Network, "{wire:?}: {failure}");
        assert!(failure.message.contains("was lost in the middle of a reply"), "{failure}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_malformed() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![stream(&[beginning(wire)]), stream(&[])]).await;
        for _ in 0..2 {
            let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("incomplete");
            assert_eq!(failure.kind, CallFailureKind::MalformedReply, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_stream_is_passed_on_as_it_arrives() {
    for wire in WireFormat::ALL {
        let keep_alive = if wire == WireFormat::Ollama { "\n" } else { ": still here\n\n" };
        let steps = vec![head(), chunk(beginning(wire)), Step::Wait, chunk(keep_alive), chunk(ending(wire)), Step::End];
        let server = Server::new(vec![steps]).await;
        let mut chunks = server.vendor(wire).stream(ask("hi").model_request());
        assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::Text("so".into()))), "before the server resumes");
        server.resume().await;
        let rest: Vec<_> = chunks.collect().await;
        assert!(matches!(rest.last(), Some(Ok(ReplyChunk::Finish(_)))), "{wire:?}: {rest:?}");
    }
}

#[tokio::test]
async fn a_keep_alive_is_passed_on() {
    let server = Server::new(vec![vec![head(), chunk(": ping\n\n"), Step::Wait, Step::End]]).await;
    let mut chunks = server.vendor(WireFormat::Chat).stream(ask("hi").model_request());
    assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::KeepAlive)));
}

#[tokio::test]
async fn dropping_the_stream_ends_the_call_at_the_vendor() {
    for wire in WireFormat::ALL {
        let mut server = Server::new(vec![vec![head(), chunk(beginning(wire)), Step::AwaitDisconnect]]).await;
        let mut chunks = server.vendor(wire).stream(ask("hi").model_request());
        assert!(chunks.next().await.is_some());
        drop(chunks);
        server.wait_for_disconnect().await;
    }
}

#[tokio::test]
async fn a_rate_limit_carries_its_retry_delay() {
    for wire in WireFormat::ALL {
        let head = Step::Head(429, vec![("content-type", "application/json".into()), ("retry-after", "7".into())]);
        let server = Server::new(vec![vec![head, chunk(r#"{"error":{"message":"slow down"}}"#), Step::End]]).await;
        let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("too fast");
        assert_eq!((failure.kind, failure.retry_after_ms), (CallFailureKind::RateLimit, Some(7_000)));
        assert_eq!(failure.message, "acme: slow down (429)");
    }
}

#[tokio::test]
async fn a_broken_server_is_overloaded_and_a_refused_key_is_not_shown() {
    for wire in WireFormat::ALL {
        let answers = [500, 502, 503, 529].map(|status| full_response(status, "text/plain", "oh no")).to_vec();
        let server = Server::new(answers).await;
        for _ in 0..4 {
            let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("broken");
            assert_eq!(failure.kind, CallFailureKind::Overload, "{failure}");
        }
        let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
        let server = Server::new(vec![full_response(401, "application/json", &body)]).await;
        let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("a bad key");
        assert_eq!(
            failure.to_string(),
            "key not accepted: acme: Incorrect API key provided: [key] (401); the key is taken from ACME_API_KEY"
        );
    }
}

#[tokio::test]
async fn a_missing_or_invalid_key_is_never_sent() {
    let server = Server::new(vec![events(&[])]).await;
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.credentials = VendorCredentials::ApiKey { env: "ACME_API_KEY".into(), key: None };
    let failure = ask("hi").send_to(&vendor_model(endpoint.clone())).await.expect_err("no key");
    assert_eq!(failure.to_string(), "key not accepted: acme needs an API key, but ACME_API_KEY is not set");
    endpoint.credentials =
        VendorCredentials::ApiKey { env: "ACME_API_KEY".into(), key: Some(SecretString::new("line\nbreak")) };
    let failure = ask("hi").send_to(&vendor_model(endpoint)).await.expect_err("a broken key");
    assert!(!failure.message.contains("break") && failure.kind == CallFailureKind::BadRequest, "{failure}");
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn nonsense_is_malformed() {
    for wire in WireFormat::ALL {
        for nonsense in ["data: {broken\n\n", "data: \u{0}\n\n", "<html>"] {
            let server = Server::new(vec![stream(&[nonsense])]).await;
            let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("nonsense");
            assert_eq!(failure.kind, CallFailureKind::MalformedReply, "{wire:?} {nonsense:?}: {failure}");
        }
        let server = Server::new(vec![full_response(200, "application/json", "{\"hello\":1}")]).await;
        let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("no answer");
        assert_eq!(failure.kind, CallFailureKind::MalformedReply, "{wire:?}: {failure}");
    }
}

#[tokio::test]
async fn json_of_the_wrong_shape_does_not_panic() {
    let strange = [
        "null",
        "[]",
        "7",
        "\"x\"",
        "{}",
        r#"{"choices":7}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":[{"delta":[]}]}"#,
        r#"{"choices":[{"delta":{"content":{"a":1},"tool_calls":[7,{"index":-1},{"function":null}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[7,{"functionCall":7}]}}],"usageMetadata":{"promptTokenCount":-4}}"#,
        r#"{"type":"content_block_delta","delta":7,"index":"x"}"#,
        r#"{"type":"message_start","message":7}"#,
        r#"{"type":"response.completed","response":7}"#,
        r#"{"type":"response.output_item.done"}"#,
    ];
    for wire in WireFormat::ALL {
        for event in strange {
            let server = Server::new(vec![events(&[event])]).await;
            // The result does not matter, as long as nothing panics.
            let _ = ask("hi").send_to(&server.vendor(wire)).await;
            let server =
                Server::new(vec![lines(&[event, r#"{"message":7,"done":"x"}"#, r#"{"message":{"tool_calls":[7]}}"#])])
                    .await;
            let _ = ask("hi").send_to(&server.vendor(wire)).await;
        }
    }
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    for wire in WireFormat::ALL {
        let line = vec![Step::Chunk(vec![b'x'; 1 << 20]); (SSE_EVENT_BYTES_MAX >> 20) + 1];
        let server = Server::new(vec![std::iter::once(head()).chain(line).collect()]).await;
        let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("an endless line");
        assert_eq!(failure.kind, CallFailureKind::UnusableReply, "{wire:?}: {failure}");
        let long = format!("data: {}", "x".repeat(1 << 14));
        let words = beginning(wire).replace("so", &long.replace("data: ", ""));
        let server = Server::new(vec![std::iter::once(head()).chain(vec![chunk(&words); 300]).collect()]).await;
        let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("an endless answer");
        assert_eq!(failure.kind, CallFailureKind::UnusableReply, "{wire:?}: {failure}");
        assert!(failure.cost.is_some(), "the reply was paid for");
    }
}

#[tokio::test]
async fn a_tool_call_with_a_huge_index_costs_no_memory() {
    let far = r#"{"choices":[{"delta":{"tool_calls":[{"index":18446744073709551615,"id":"a","function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let server = Server::new(vec![events(&[far, "[DONE]"])]).await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    assert_eq!(reply.tool_calls.len(), 1);
}

#[tokio::test]
async fn a_wrong_address_is_reported() {
    let server = Server::new(vec![
        full_response(404, "text/html", "<html>not here</html>"),
        full_response(200, "text/html", "<html>welcome</html>"),
        full_response(301, "text/plain", "moved"),
    ])
    .await;
    for _ in 0..3 {
        let failure = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect_err("a wrong address");
        assert!(failure.kind == CallFailureKind::BadRequest && failure.message.contains("`base_url`"), "{failure}");
    }
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.base_url = "http://127.0.0.1:1/v1".into();
    let failure = ask("hi").send_to(&vendor_model(endpoint.clone())).await.expect_err("no server");
    assert!(failure.message.starts_with("127.0.0.1:1 cannot be reached: "), "{failure}");
    assert_eq!(failure.kind, CallFailureKind::Network);
    endpoint.base_url = "no address".into();
    assert_eq!(
        ask("hi").send_to(&vendor_model(endpoint)).await.expect_err("no address").kind,
        CallFailureKind::BadRequest
    );
}

#[tokio::test]
async fn redirects_are_not_followed_so_the_key_stays_private() {
    let elsewhere = Server::new(vec![events(&[])]).await;
    let head = Step::Head(307, vec![("location", elsewhere.url())]);
    let server = Server::new(vec![vec![head, Step::End]]).await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Anthropic)).await.expect_err("a redirect");
    assert_eq!(failure.kind, CallFailureKind::BadRequest);
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn a_character_split_between_chunks_is_joined_in_every_format() {
    for wire in WireFormat::ALL {
        let text = beginning(wire).replace("so", "größe €");
        let bytes: Vec<Step> = text.bytes().map(|byte| Step::Chunk(vec![byte])).collect();
        let steps = std::iter::once(head()).chain(bytes).chain([chunk(ending(wire)), Step::End]).collect();
        let server = Server::new(vec![steps]).await;
        let reply = ask("hi").send_to(&server.vendor(wire)).await.expect("a reply");
        assert_eq!(reply.text, "größe €", "{wire:?}");
    }
}

#[tokio::test]
async fn a_retry_date_is_kept_end_to_end() {
    let headers = vec![
        ("date", "Wed, 21 Oct 2026 07:28:00 GMT".to_owned()),
        ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT".to_owned()),
    ];
    let server = Server::new(vec![vec![Step::Head(429, headers), chunk("{}"), Step::End]]).await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect_err("too fast");
    assert_eq!(failure.retry_after_ms, Some(30_000));
}

#[tokio::test]
async fn a_broken_stream_has_a_cost_and_a_refused_request_has_none() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![stream(&[beginning(wire)]), full_response(503, "text/plain", "oh no")]).await;
        let vendor = server.vendor(wire);
        let incomplete = ask("hi").send_to(&vendor).await.expect_err("incomplete");
        assert_eq!(incomplete.cost, Some(FailedCallAttemptCost::default()), "{wire:?}: the usage is unknown");
        assert_eq!(ask("hi").send_to(&vendor).await.expect_err("refused").cost, None, "{wire:?}");
    }
}

#[tokio::test]
async fn a_long_reply_that_is_repeated_at_its_end_is_accepted() {
    let words = "x".repeat(1 << 20);
    let delta = format!(r#"{{"type":"response.output_text.delta","delta":"{words}"}}"#);
    let end = format!(r#"{{"type":"response.completed","response":{{"output":["{}"]}}}}"#, words.repeat(3));
    let server = Server::new(vec![events(&[&delta, &delta, &delta, &end])]).await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Responses)).await.expect("a reply");
    assert_eq!(reply.text.len(), 3 << 20);
}

#[tokio::test]
async fn an_error_about_a_tool_schema_is_not_retried() {
    let refusal =
        full_response(400, "application/json", r#"{"error":{"message":"Invalid schema for function 'look'"}}"#);
    let server = Server::new(vec![refusal]).await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect_err("refused");
    assert_eq!(failure.kind, CallFailureKind::BadRequest);
    assert_eq!(server.received().len(), 1, "the request is not repeated");
}

#[tokio::test]
async fn an_event_that_quotes_a_long_key_is_redacted() {
    let key = "sk-".to_owned() + &"x".repeat(160);
    let server = Server::new(vec![stream(&[&format!("data: not JSON, but {key}\n\n")])]).await;
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.credentials = VendorCredentials::ApiKey { env: "ACME_API_KEY".into(), key: Some(SecretString::new(&key)) };
    let failure = ask("hi").send_to(&vendor_model(endpoint)).await.expect_err("no JSON");
    assert!(failure.message.contains("not JSON, but [key]") && !failure.message.contains("xxx"), "{failure}");
}
