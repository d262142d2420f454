//! Servers that refuse, stall, break off, flood and talk nonsense, in every format: each ends in a sorted failure, in bounded memory.

use futures_util::StreamExt;
use segue_core::prompt::{AttemptCost, FailureKind};
use segue_models::http::SecretString;
use segue_models::limits::SSE_EVENT_BYTES_MAX;
use segue_models::vendor::{Credentials, WireFormat};
use segue_models::{LanguageModel, ReplyChunk};

use crate::server::{KEY, Server, Step, answer, events, lines, of, stream};
use crate::support::ask;

/// The beginning of an answer that says `so`, in each format.
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

/// And its end.
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

fn piece(text: &str) -> Step {
    Step::Piece(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_chunk_is_a_network_failure() {
    for wire in WireFormat::ALL {
        let half = &ending(wire)[..10];
        let server = Server::new(vec![vec![head(), piece(beginning(wire)), piece(half)]]).await;
        let chunks = ask("hi").chunks(&server.vendor(wire)).await;
        assert_eq!(chunks.first(), Some(&Ok(ReplyChunk::Text("so".into()))), "what came is passed on");
        let failure = chunks.last().expect("an end").clone().expect_err("cut");
        assert_eq!(failure.kind, FailureKind::Network, "{wire:?}: {failure}");
        assert!(failure.message.contains("broke in the middle of an answer"), "{failure}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_no_answer() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![stream(&[beginning(wire)]), stream(&[])]).await;
        for _ in 0..2 {
            let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("it is not whole");
            assert_eq!(failure.kind, FailureKind::MalformedReply, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_stream_is_passed_on_as_it_comes() {
    for wire in WireFormat::ALL {
        let alive = if wire == WireFormat::Ollama { "\n" } else { ": still here\n\n" };
        let steps = vec![head(), piece(beginning(wire)), Step::Wait, piece(alive), piece(ending(wire)), Step::End];
        let server = Server::new(vec![steps]).await;
        let mut chunks = server.vendor(wire).stream(ask("hi").request());
        assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::Text("so".into()))), "before the server goes on");
        server.go_on().await;
        let rest: Vec<_> = chunks.collect().await;
        assert!(matches!(rest.last(), Some(Ok(ReplyChunk::Finish(_)))), "{wire:?}: {rest:?}");
    }
}

#[tokio::test]
async fn a_sign_of_life_is_passed_on() {
    let server = Server::new(vec![vec![head(), piece(": ping\n\n"), Step::Wait, Step::End]]).await;
    let mut chunks = server.vendor(WireFormat::Chat).stream(ask("hi").request());
    assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::KeepAlive)));
}

#[tokio::test]
async fn dropping_the_stream_ends_the_call_at_the_vendor() {
    for wire in WireFormat::ALL {
        let mut server = Server::new(vec![vec![head(), piece(beginning(wire)), Step::SeeGone]]).await;
        let mut chunks = server.vendor(wire).stream(ask("hi").request());
        assert!(chunks.next().await.is_some());
        drop(chunks);
        server.gone().await;
    }
}

#[tokio::test]
async fn a_rate_limit_says_when_to_come_back() {
    for wire in WireFormat::ALL {
        let head = Step::Head(429, vec![("content-type", "application/json".into()), ("retry-after", "7".into())]);
        let server = Server::new(vec![vec![head, piece(r#"{"error":{"message":"slow down"}}"#), Step::End]]).await;
        let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("too fast");
        assert_eq!((failure.kind, failure.retry_after_ms), (FailureKind::RateLimit, Some(7_000)));
        assert_eq!(failure.message, "acme: slow down (429)");
    }
}

#[tokio::test]
async fn a_broken_server_is_overloaded_and_a_refused_key_is_not_shown() {
    for wire in WireFormat::ALL {
        let answers = [500, 502, 503, 529].map(|status| answer(status, "text/plain", "oh no")).to_vec();
        let server = Server::new(answers).await;
        for _ in 0..4 {
            let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("broken");
            assert_eq!(failure.kind, FailureKind::Overload, "{failure}");
        }
        let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
        let server = Server::new(vec![answer(401, "application/json", &body)]).await;
        let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("a bad key");
        assert_eq!(
            failure.to_string(),
            "key not accepted: acme: Incorrect API key provided: [key] (401); the key is taken from ACME_API_KEY"
        );
    }
}

#[tokio::test]
async fn a_key_that_is_missing_or_broken_never_leaves() {
    let server = Server::new(vec![events(&[])]).await;
    let mut connection = server.connection(WireFormat::Anthropic);
    connection.credentials = Credentials::ApiKey { env: "ACME_API_KEY".into(), key: None };
    let failure = ask("hi").of(&of(connection.clone())).await.expect_err("no key");
    assert_eq!(failure.to_string(), "key not accepted: acme wants a key, and ACME_API_KEY is not set");
    connection.credentials =
        Credentials::ApiKey { env: "ACME_API_KEY".into(), key: Some(SecretString::new("line\nbreak")) };
    let failure = ask("hi").of(&of(connection)).await.expect_err("a broken key");
    assert!(!failure.message.contains("break") && failure.kind == FailureKind::BadRequest, "{failure}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn nonsense_is_malformed() {
    for wire in WireFormat::ALL {
        for nonsense in ["data: {broken\n\n", "data: \u{0}\n\n", "<html>"] {
            let server = Server::new(vec![stream(&[nonsense])]).await;
            let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("nonsense");
            assert_eq!(failure.kind, FailureKind::MalformedReply, "{wire:?} {nonsense:?}: {failure}");
        }
        let server = Server::new(vec![answer(200, "application/json", "{\"hello\":1}")]).await;
        let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("no answer");
        assert_eq!(failure.kind, FailureKind::MalformedReply, "{wire:?}: {failure}");
    }
}

#[tokio::test]
async fn json_of_the_wrong_shape_is_survived() {
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
            // Whatever comes of it, it comes without a panic.
            let _ = ask("hi").of(&server.vendor(wire)).await;
            let server =
                Server::new(vec![lines(&[event, r#"{"message":7,"done":"x"}"#, r#"{"message":{"tool_calls":[7]}}"#])])
                    .await;
            let _ = ask("hi").of(&server.vendor(wire)).await;
        }
    }
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    for wire in WireFormat::ALL {
        let line = vec![Step::Piece(vec![b'x'; 1 << 20]); (SSE_EVENT_BYTES_MAX >> 20) + 1];
        let server = Server::new(vec![std::iter::once(head()).chain(line).collect()]).await;
        let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("an endless line");
        assert_eq!(failure.kind, FailureKind::UnusableReply, "{wire:?}: {failure}");
        let long = format!("data: {}", "x".repeat(1 << 14));
        let words = beginning(wire).replace("so", &long.replace("data: ", ""));
        let server = Server::new(vec![std::iter::once(head()).chain(vec![piece(&words); 300]).collect()]).await;
        let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("an endless answer");
        assert_eq!(failure.kind, FailureKind::UnusableReply, "{wire:?}: {failure}");
        assert!(failure.cost.is_some(), "and was made all the same");
    }
}

#[tokio::test]
async fn a_tool_call_at_an_absurd_place_costs_nothing() {
    let far = r#"{"choices":[{"delta":{"tool_calls":[{"index":18446744073709551615,"id":"a","function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let server = Server::new(vec![events(&[far, "[DONE]"])]).await;
    let reply = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    assert_eq!(reply.tool_calls.len(), 1);
}

#[tokio::test]
async fn a_wrong_address_is_said_to_be_one() {
    let server = Server::new(vec![
        answer(404, "text/html", "<html>not here</html>"),
        answer(200, "text/html", "<html>welcome</html>"),
        answer(301, "text/plain", "moved"),
    ])
    .await;
    for _ in 0..3 {
        let failure = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect_err("a wrong address");
        assert!(failure.kind == FailureKind::BadRequest && failure.message.contains("`base_url`"), "{failure}");
    }
    let mut connection = server.connection(WireFormat::Chat);
    connection.base_url = "http://127.0.0.1:1/v1".into();
    let failure = ask("hi").of(&of(connection.clone())).await.expect_err("nobody there");
    assert!(failure.message.starts_with("127.0.0.1:1 cannot be reached: "), "{failure}");
    assert_eq!(failure.kind, FailureKind::Network);
    connection.base_url = "no address".into();
    assert_eq!(ask("hi").of(&of(connection)).await.expect_err("no address").kind, FailureKind::BadRequest);
}

#[tokio::test]
async fn no_redirect_is_followed_for_the_key_would_go_along() {
    let elsewhere = Server::new(vec![events(&[])]).await;
    let head = Step::Head(307, vec![("location", elsewhere.url())]);
    let server = Server::new(vec![vec![head, Step::End]]).await;
    let failure = ask("hi").of(&server.vendor(WireFormat::Anthropic)).await.expect_err("it points elsewhere");
    assert_eq!(failure.kind, FailureKind::BadRequest);
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn a_letter_cut_in_two_is_put_together_in_every_format() {
    for wire in WireFormat::ALL {
        let text = beginning(wire).replace("so", "größe €");
        let bytes: Vec<Step> = text.bytes().map(|byte| Step::Piece(vec![byte])).collect();
        let steps = std::iter::once(head()).chain(bytes).chain([piece(ending(wire)), Step::End]).collect();
        let server = Server::new(vec![steps]).await;
        let reply = ask("hi").of(&server.vendor(wire)).await.expect("an answer");
        assert_eq!(reply.text, "größe €", "{wire:?}");
    }
}

#[tokio::test]
async fn a_date_to_come_back_at_is_kept_end_to_end() {
    let headers = vec![
        ("date", "Wed, 21 Oct 2026 07:28:00 GMT".to_owned()),
        ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT".to_owned()),
    ];
    let server = Server::new(vec![vec![Step::Head(429, headers), piece("{}"), Step::End]]).await;
    let failure = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect_err("too fast");
    assert_eq!(failure.retry_after_ms, Some(30_000));
}

#[tokio::test]
async fn what_broke_off_was_begun_and_what_was_refused_was_not() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![stream(&[beginning(wire)]), answer(503, "text/plain", "oh no")]).await;
        let vendor = server.vendor(wire);
        let begun = ask("hi").of(&vendor).await.expect_err("it broke off");
        assert_eq!(begun.cost, Some(AttemptCost::default()), "{wire:?}: nobody knows how much it took");
        assert_eq!(ask("hi").of(&vendor).await.expect_err("refused").cost, None, "{wire:?}");
    }
}

#[tokio::test]
async fn an_answer_of_megabytes_that_is_told_once_more_at_its_end_is_taken() {
    let words = "x".repeat(1 << 20);
    let delta = format!(r#"{{"type":"response.output_text.delta","delta":"{words}"}}"#);
    let end = format!(r#"{{"type":"response.completed","response":{{"output":["{}"]}}}}"#, words.repeat(3));
    let server = Server::new(vec![events(&[&delta, &delta, &delta, &end])]).await;
    let reply = ask("hi").of(&server.vendor(WireFormat::Responses)).await.expect("an answer");
    assert_eq!(reply.text.len(), 3 << 20);
}

#[tokio::test]
async fn a_refusal_that_speaks_of_some_schema_does_not_cost_a_plain_call_its_schemas() {
    let refusal = answer(400, "application/json", r#"{"error":{"message":"Invalid schema for function 'look'"}}"#);
    let server = Server::new(vec![refusal]).await;
    let failure = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect_err("refused");
    assert_eq!(failure.kind, FailureKind::BadRequest);
    assert_eq!(server.seen().len(), 1, "nothing is sent again that was not about the answer's form");
}

#[tokio::test]
async fn an_event_that_quotes_a_long_key_gives_away_nothing_of_it() {
    let key = "sk-".to_owned() + &"x".repeat(160);
    let server = Server::new(vec![stream(&[&format!("data: not JSON, but {key}\n\n")])]).await;
    let mut connection = server.connection(WireFormat::Chat);
    connection.credentials = Credentials::ApiKey { env: "ACME_API_KEY".into(), key: Some(SecretString::new(&key)) };
    let failure = ask("hi").of(&of(connection)).await.expect_err("no JSON");
    assert!(failure.message.contains("not JSON, but [key]") && !failure.message.contains("xxx"), "{failure}");
}
