//! Answers that must satisfy a schema.

use segue_core::prompt::{FailureKind, ModelReply, TokenUsage};
use segue_models::vendor::{JsonMode, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, Step, answer, events, of};
use crate::support::{Asking, ask};

fn schema() -> Value {
    json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}})
}

fn asking() -> Asking {
    ask("how many?").json(schema())
}

fn say(text: &str) -> Vec<Step> {
    let first = json!({ "choices": [{ "delta": { "content": text } }] }).to_string();
    let last =
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}"#;
    events(&[&first, last, "[DONE]"])
}

async fn play(answers: &[&str]) -> (Result<ModelReply, segue_core::prompt::CallFailure>, Server) {
    let server = Server::new(answers.iter().map(|text| say(text)).collect()).await;
    (asking().of(&server.vendor(WireFormat::Chat)).await, server)
}

#[tokio::test]
async fn a_good_answer_is_passed_on_as_it_is() {
    let (reply, server) = play(&["{ \"n\": 3 }"]).await;
    assert_eq!(reply.expect("an answer").text, "{ \"n\": 3 }");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn the_json_is_taken_out_of_the_talk_around_it() {
    let (reply, server) = play(&["Here you are:\n```json\n{\"n\": 3,}\n```\nAnything else?"]).await;
    assert_eq!(reply.expect("an answer").text, "{\"n\":3}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_wrong_answer_is_sent_back_once_with_what_is_wrong() {
    let (reply, server) = play(&["{\"n\": 0, \"m\": {\"n\": 7}}", "{\"n\": 4}"]).await;
    let reply = reply.expect("an answer");
    assert_eq!(reply.text, "{\"n\": 4}");
    assert_eq!(
        reply.usage,
        Some(TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() }),
        "both were paid for"
    );
    assert_eq!(
        reply.rejected_usage,
        Some(TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() }),
        "one by one"
    );
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    let messages = seen[1].body["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[..1], seen[0].body["messages"].as_array().expect("messages")[..], "the prompt only grows");
    let complaint = messages[2]["content"].as_str().expect("a text");
    assert!(complaint.contains("at /n: 0 is less than the minimum of 1"), "{complaint}");
}

#[tokio::test]
async fn what_is_wrong_twice_is_passed_on_if_it_is_json_at_all() {
    let (reply, server) = play(&["{\"n\": 0}", "{\"n\": -1}", "never asked"]).await;
    assert_eq!(reply.expect("an answer").text, "{\"n\": -1}");
    assert_eq!(server.seen().len(), 2);
    let (reply, _) = play(&["{\"n\": 0}", "I cannot."]).await;
    assert_eq!(reply.expect("an answer").text, "{\"n\":0}", "the better of the two");
    let (reply, server) = play(&["I cannot.", "I said I cannot."]).await;
    let failure = reply.expect_err("no JSON");
    assert_eq!(failure.kind, FailureKind::UnusableReply, "it would do no better the third time");
    let both = TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(both), "both were paid for");
    let complaint = server.seen()[1].body["messages"][2]["content"].to_string();
    assert!(complaint.contains("there is no JSON in it"), "{complaint}");
}

#[tokio::test]
async fn a_tool_call_is_no_answer_yet() {
    let call = r#"{"choices":[{"delta":{"content":"Wait.","tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let server = Server::new(vec![events(&[call, "[DONE]"])]).await;
    let reply = asking().of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.tool_calls.len()), ("Wait.", 1));
}

#[tokio::test]
async fn a_vendor_that_takes_no_schema_is_told_in_words_from_then_on() {
    let refusal = r#"{"error":{"message":"Unsupported parameter: response_format of type json_schema"}}"#;
    let server = Server::new(vec![answer(400, "application/json", refusal), say("{\"n\": 1}")]).await;
    let vendor = server.vendor(WireFormat::Chat);
    for _ in 0..2 {
        assert_eq!(asking().of(&vendor).await.expect("an answer").text, "{\"n\": 1}");
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 3, "it is refused once only");
    assert!(seen[0].body.get("response_format").is_some());
    for later in &seen[1..] {
        assert!(later.body.get("response_format").is_none());
        assert!(later.body["messages"][0]["content"].as_str().expect("told").contains("\"minimum\":1"));
    }
}

#[tokio::test]
async fn a_refusal_of_something_else_is_a_refusal() {
    let server = Server::new(vec![answer(400, "application/json", r#"{"error":{"message":"bad messages"}}"#)]).await;
    let failure = asking().of(&server.vendor(WireFormat::Chat)).await.expect_err("refused");
    assert_eq!(failure.kind, FailureKind::BadRequest);
    let mut connection = server.connection(WireFormat::Chat);
    connection.capabilities.json = JsonMode::Prompt;
    assert!(asking().of(&of(connection)).await.is_err());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_schema_that_is_none_is_held_against_nobody() {
    let server = Server::new(vec![say("{\"a\": 1}")]).await;
    let reply = ask("hi").json(json!({"type": "nonsense"})).of(&server.vendor(WireFormat::Chat)).await;
    assert_eq!(reply.expect("an answer").text, "{\"a\": 1}");
}

#[tokio::test]
async fn what_was_sent_back_is_paid_for_even_if_nothing_better_comes() {
    let server = Server::new(vec![say("{\"n\": 0}"), answer(503, "text/plain", "oh no")]).await;
    let failure = asking().of(&server.vendor(WireFormat::Chat)).await.expect_err("it broke down");
    assert_eq!(failure.kind, FailureKind::Overload);
    let first = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(first));
}
