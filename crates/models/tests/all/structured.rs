//! Replies that must satisfy a schema.

use segue_core::prompt::{CallFailureKind, ModelReply, TokenUsage};
use segue_models::vendor::{JsonMode, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, Step, events, full_response, vendor_model};
use crate::support::{TestRequest, ask};

fn schema() -> Value {
    json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}})
}

fn request() -> TestRequest {
    ask("how many?").json(schema())
}

fn chat_response(text: &str) -> Vec<Step> {
    let first = json!({ "choices": [{ "delta": { "content": text } }] }).to_string();
    let last =
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}"#;
    events(&[&first, last, "[DONE]"])
}

async fn play(answers: &[&str]) -> (Result<ModelReply, segue_core::prompt::CallFailure>, Server) {
    let server = Server::new(answers.iter().map(|text| chat_response(text)).collect()).await;
    (request().send_to(&server.vendor(WireFormat::Chat)).await, server)
}

#[tokio::test]
async fn a_valid_reply_is_passed_on_unchanged() {
    let (reply, server) = play(&["{ \"n\": 3 }"]).await;
    assert_eq!(reply.expect("a reply").text, "{ \"n\": 3 }");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn json_is_extracted_from_surrounding_text() {
    let (reply, server) = play(&["Here you are:\n```json\n{\"n\": 3,}\n```\nAnything else?"]).await;
    assert_eq!(reply.expect("a reply").text, "{\"n\":3}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn an_invalid_reply_is_sent_back_once_with_its_errors() {
    let (reply, server) = play(&["{\"n\": 0, \"m\": {\"n\": 7}}", "{\"n\": 4}"]).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.text, "{\"n\": 4}");
    assert_eq!(
        reply.usage,
        Some(TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() }),
        "both were paid for"
    );
    assert_eq!(
        reply.rejected_usage,
        Some(TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() }),
        "the first one separately"
    );
    let received = server.received();
    assert_eq!(received.len(), 2);
    let messages = received[1].body["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[..1], received[0].body["messages"].as_array().expect("messages")[..], "the prompt only grows");
    let complaint = messages[2]["content"].as_str().expect("a text");
    assert!(complaint.contains("at /n: 0 is less than the minimum of 1"), "{complaint}");
}

#[tokio::test]
async fn a_reply_that_is_invalid_twice_is_passed_on_if_it_is_json() {
    let (reply, server) = play(&["{\"n\": 0}", "{\"n\": -1}", "never asked"]).await;
    assert_eq!(reply.expect("a reply").text, "{\"n\": -1}");
    assert_eq!(server.received().len(), 2);
    let (reply, _) = play(&["{\"n\": 0}", "I cannot."]).await;
    assert_eq!(reply.expect("a reply").text, "{\"n\":0}", "the better of the two");
    let (reply, server) = play(&["I cannot.", "I said I cannot."]).await;
    let failure = reply.expect_err("no JSON");
    assert_eq!(failure.kind, CallFailureKind::UnusableReply, "there is no third attempt");
    let both = TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(both), "both were paid for");
    let complaint = server.received()[1].body["messages"][2]["content"].to_string();
    assert!(complaint.contains("there is no JSON in it"), "{complaint}");
}

#[tokio::test]
async fn a_tool_call_is_not_validated() {
    let call = r#"{"choices":[{"delta":{"content":"Wait.","tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let server = Server::new(vec![events(&[call, "[DONE]"])]).await;
    let reply = request().send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.tool_calls.len()), ("Wait.", 1));
}

#[tokio::test]
async fn a_rejected_schema_is_written_into_the_prompt_from_then_on() {
    let rejection = r#"{"error":{"message":"Unsupported parameter: response_format of type json_schema"}}"#;
    let server =
        Server::new(vec![full_response(400, "application/json", rejection), chat_response("{\"n\": 1}")]).await;
    let vendor = server.vendor(WireFormat::Chat);
    for _ in 0..2 {
        assert_eq!(request().send_to(&vendor).await.expect("a reply").text, "{\"n\": 1}");
    }
    let received = server.received();
    assert_eq!(received.len(), 3, "it is rejected only once");
    assert!(received[0].body.get("response_format").is_some());
    for later in &received[1..] {
        assert!(later.body.get("response_format").is_none());
        assert!(later.body["messages"][0]["content"].as_str().expect("a prompt").contains("\"minimum\":1"));
    }
}

#[tokio::test]
async fn an_unrelated_rejection_is_a_failure() {
    let server =
        Server::new(vec![full_response(400, "application/json", r#"{"error":{"message":"bad messages"}}"#)]).await;
    let failure = request().send_to(&server.vendor(WireFormat::Chat)).await.expect_err("refused");
    assert_eq!(failure.kind, CallFailureKind::BadRequest);
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.capabilities.json = JsonMode::Prompt;
    assert!(request().send_to(&vendor_model(endpoint)).await.is_err());
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn an_invalid_schema_is_not_enforced() {
    let server = Server::new(vec![chat_response("{\"a\": 1}")]).await;
    let reply = ask("hi").json(json!({"type": "nonsense"})).send_to(&server.vendor(WireFormat::Chat)).await;
    assert_eq!(reply.expect("a reply").text, "{\"a\": 1}");
}

#[tokio::test]
async fn a_rejected_reply_is_paid_for_even_if_the_retry_fails() {
    let server = Server::new(vec![chat_response("{\"n\": 0}"), full_response(503, "text/plain", "oh no")]).await;
    let failure = request().send_to(&server.vendor(WireFormat::Chat)).await.expect_err("a server error");
    assert_eq!(failure.kind, CallFailureKind::Overload);
    let first = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(first));
}
