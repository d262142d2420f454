//! Anthropic's messages: the request as it is sent, with the marks for its cache, and the stream as it is read.

use segue_core::prompt::{
    ChatRole, FailureKind, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::PromptCaching;
use segue_models::vendor::{GenerationParams, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{KEY, Server, events, of, stream};
use crate::support::{Asking, ask, nothing};

const HELLO: &str = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn conversation() -> Asking {
    let look = ToolCall { id: "toolu_1".into(), name: "look".into(), arguments: json!({"at": "sky"}) };
    let mut asking = nothing().system("Be brief.").user("What is up?");
    let blocks = json!([
        { "type": "thinking", "thinking": "hm", "signature": "sig" },
        { "type": "text", "text": "Let me see." },
        { "type": "thinking", "thinking": "so", "signature": "sig2" },
        { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "at": "sky" } },
    ]);
    let seal = json!({ "anthropic": { "by": "acme", "model": "m-1", "content": blocks } }).to_string();
    let seal = Some(seal.into());
    let called = PromptMessage {
        tool_calls: vec![look],
        vendor_state: seal,
        ..PromptMessage::from_text(ChatRole::Assistant, "Let me see.")
    };
    asking.prompt.messages_mut().push(called);
    asking.prompt.messages_mut().push(PromptMessage {
        tool_call_id: Some("toolu_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let mut asking = asking.assistant("The sky.").assistant("  ");
    let images = vec![PromptImage { media_type: ImageMediaType::Webp, data: "aWk=".into() }];
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    asking.tool("look", "Looks.", json!({"type": "object"}))
}

const MARK: &str = r#"{"type":"ephemeral"}"#;

fn mark() -> Value {
    serde_json::from_str(MARK).expect("JSON")
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_format_wants_it_and_marked_for_the_cache() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let reply = conversation().of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.stop_reason), ("Hello", StopReason::Done));
    let usage = TokenUsage {
        input_tokens: 2125,
        output_tokens: 15,
        cached_tokens: 2000,
        cache_write_tokens: 100,
        reasoning_tokens: 0,
    };
    assert_eq!(reply.usage, Some(usage), "cached tokens are part of what was sent");
    let seen = server.only();
    assert_eq!(seen.line, "POST /v1/messages HTTP/1.1");
    assert_eq!((seen.header("x-api-key"), seen.header("authorization")), (Some(KEY), None));
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        seen.body,
        json!({
            "model": "m-1",
            "stream": true,
            "max_tokens": 4096,
            "system": [{ "type": "text", "text": "Be brief.", "cache_control": mark() }],
            "tools": [{ "name": "look", "description": "Looks.", "input_schema": { "type": "object" } }],
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "What is up?" }] },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "Let me see." },
                    { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "at": "sky" } },
                ]},
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": "blue", "cache_control": mark() },
                ]},
                { "role": "assistant", "content": [{ "type": "text", "text": "The sky." }] },
                { "role": "user", "content": [
                    { "type": "image", "source": { "type": "base64", "media_type": "image/webp", "data": "aWk=" } },
                    { "type": "text", "text": "And here?", "cache_control": mark() },
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn thoughts_go_back_while_the_round_they_began_is_open() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut asking = conversation();
    asking.prompt.messages_mut().truncate(4);
    asking.of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    let said = &server.only().body["messages"][1]["content"];
    let kinds: Vec<_> = said.as_array().expect("blocks").iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "text", "thinking", "tool_use"], "in the order they came in");
    assert_eq!(said[2], json!({ "type": "thinking", "thinking": "so", "signature": "sig2" }));
}

#[tokio::test]
async fn thoughts_of_another_model_are_not_shown_to_this_one() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut asking = conversation();
    asking.prompt.messages_mut().truncate(4);
    let mut connection = server.connection(WireFormat::Anthropic);
    connection.model = "m-2".into();
    asking.of(&of(connection)).await.expect("an answer");
    let said = &server.only().body["messages"][1]["content"];
    let kinds: Vec<_> = said.as_array().expect("blocks").iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["text", "tool_use"]);
}

#[tokio::test]
async fn a_call_that_was_left_out_is_left_out_of_the_seal_too() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut asking = conversation();
    asking.prompt.messages_mut().truncate(4);
    asking.prompt.messages_mut()[2].tool_calls[0].id = "toolu_9".into();
    asking.of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    let said = &server.only().body["messages"][1]["content"];
    assert_eq!(said[1]["id"], json!("toolu_9"), "it is rebuilt from what the thread holds");
}

#[tokio::test]
async fn figures_that_do_not_come_again_hold() {
    let server = Server::new(vec![events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"output_tokens":7}}"#,
        r#"{"type":"message_stop"}"#,
    ])])
    .await;
    let reply = ask("hi").of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    assert_eq!(
        reply.usage,
        Some(TokenUsage {
            input_tokens: 2125,
            output_tokens: 7,
            cached_tokens: 2000,
            cache_write_tokens: 100,
            reasoning_tokens: 0
        })
    );
}

#[tokio::test]
async fn a_stream_that_breaks_has_taken_what_it_said_at_its_start() {
    let server = Server::new(vec![events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}"#,
    ])])
    .await;
    let failure = ask("hi").of(&server.vendor(WireFormat::Anthropic)).await.expect_err("it broke off");
    let usage = TokenUsage { input_tokens: 25, output_tokens: 1, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage));
}

#[tokio::test]
async fn a_number_of_thoughts_leaves_room_for_the_answer() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut connection = server.connection(WireFormat::Anthropic);
    connection.params.effort = Some(ReasoningEffort::High);
    for (thinking, window_tokens) in
        [(ThinkingSupport::Budget, 8_192), (ThinkingSupport::Budget, 2_048), (ThinkingSupport::None, 8_192)]
    {
        (connection.capabilities.thinking, connection.capabilities.window_tokens) = (thinking, window_tokens);
        ask("hi").of(&of(connection.clone())).await.expect("an answer");
    }
    let seen = server.seen();
    let most = |place: usize| seen[place].body["max_tokens"].as_u64().expect("a number");
    let budget = seen[0].body["thinking"]["budget_tokens"].as_u64().expect("a number");
    assert!(budget < most(0) && most(0) < 8_192, "{budget} of {}", most(0));
    assert!(seen[1].body.get("thinking").is_none(), "no room to think");
    assert!(seen[2].body.get("thinking").is_none() && most(2) == 4_096, "it does not think");
}

#[tokio::test]
async fn a_model_that_thinks_by_itself_is_told_how_hard_to_try() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut connection = server.connection(WireFormat::Anthropic);
    connection.capabilities.thinking = ThinkingSupport::Levels;
    connection.params = GenerationParams { effort: Some(ReasoningEffort::High), temperature: Some(0.1) };
    ask("hi").of(&of(connection)).await.expect("an answer");
    let body = server.only().body;
    assert_eq!(body["thinking"], json!({ "type": "adaptive", "display": "summarized" }));
    assert_eq!(body["output_config"], json!({ "effort": "high" }));
    assert!(body.get("temperature").is_none(), "it takes no wish of that kind");
}

#[tokio::test]
async fn a_prompt_that_never_comes_again_is_not_put_into_the_cache() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut asking = nothing().system("Be brief.").user("Map this.");
    asking.growth = PromptCaching::SystemOnly;
    asking.of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    let body = server.only().body;
    assert_eq!(body["system"][0]["cache_control"], mark(), "its instructions do come again");
    assert!(!body["messages"].to_string().contains("cache_control"));
}

#[tokio::test]
async fn what_is_marked_for_one_prompt_is_the_beginning_of_the_next() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let vendor = server.vendor(WireFormat::Anthropic);
    let first = nothing().system("S").user("one");
    first.of(&vendor).await.expect("an answer");
    first.assistant("Hello").user("two").of(&vendor).await.expect("an answer");
    let seen = server.seen();
    let last_marked = &seen[0].body["messages"][0];
    assert_eq!(last_marked["content"][0]["cache_control"], mark());
    assert_eq!(&seen[1].body["messages"][0], last_marked, "the mark stands where the last prompt ended");
    assert_eq!(seen[0].body["system"], seen[1].body["system"]);
}

#[tokio::test]
async fn instructions_alone_are_said_by_the_user() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    nothing().system("Say hello.").of(&server.vendor(WireFormat::Anthropic)).await.expect("an answer");
    let body = server.only().body;
    assert!(body.get("system").is_none());
    assert_eq!(body["messages"][0]["content"][0]["text"], json!("Say hello."));
}

#[tokio::test]
async fn thoughts_are_kept_apart_and_sealed_with_the_tool_calls_they_led_to() {
    let server = Server::new(vec![events(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm, "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"at\":"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"sky\"}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ])])
    .await;
    let mut connection = server.connection(WireFormat::Anthropic);
    connection.capabilities.thinking = ThinkingSupport::Budget;
    connection.params = GenerationParams { effort: Some(ReasoningEffort::Low), temperature: Some(0.1) };
    let reply = ask("hi").of(&of(connection)).await.expect("an answer");
    assert_eq!(
        (reply.reasoning.as_str(), reply.text.as_str(), reply.stop_reason),
        ("hm, so", "", StopReason::ToolCalls)
    );
    assert_eq!(reply.tool_calls[0].arguments, json!({"at": "sky"}));
    let seal: Value = serde_json::from_str(&reply.vendor_state.expect("sealed")).expect("JSON");
    let blocks = json!([
        { "type": "thinking", "thinking": "hm, so", "signature": "abc" },
        { "type": "redacted_thinking", "data": "xyz" },
        { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": "sky" } },
    ]);
    assert_eq!(seal, json!({ "anthropic": { "by": "acme", "model": "m-1", "content": blocks } }));
    let body = server.only().body;
    assert_eq!(body["thinking"], json!({ "type": "enabled", "budget_tokens": 1024 }));
    assert_eq!((&body["max_tokens"], body.get("temperature")), (&json!(4096 + 1024), None));
}

#[tokio::test]
async fn a_schema_is_sent_closed_and_what_cannot_be_sent_is_told() {
    let say = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"n\":1}"}}"#;
    let server = Server::new(vec![events(&[say, r#"{"type":"message_stop"}"#])]).await;
    let vendor = server.vendor(WireFormat::Anthropic);
    let narrow = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}});
    ask("hi").json(narrow).of(&vendor).await.expect("an answer");
    let open = json!({"type": "object"});
    ask("hi").json(open).of(&vendor).await.expect("an answer");
    let seen = server.seen();
    let sent = json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {"n": {"type": "integer"}}});
    assert_eq!(seen[0].body["output_config"], json!({ "format": { "type": "json_schema", "schema": sent } }));
    assert!(seen[1].body.get("output_config").is_none());
    assert!(seen[1].body["system"][0]["text"].as_str().expect("told").ends_with(r#"{"type":"object"}"#));
}

#[tokio::test]
async fn ends_and_errors_within_the_stream_are_sorted() {
    let end = async |event: &str| {
        let server = Server::new(vec![events(&[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so far"}}"#,
            event,
            r#"{"type":"message_stop"}"#,
        ])])
        .await;
        ask("hi").of(&server.vendor(WireFormat::Anthropic)).await
    };
    let delta = |reason: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
    for (reason, stop) in [
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("stop_sequence", StopReason::Done),
        ("refusal", StopReason::ContentFilter),
    ] {
        assert_eq!(end(&delta(reason)).await.expect("an answer").stop_reason, stop, "{reason}");
    }
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(end(overloaded).await.expect_err("it failed").to_string(), "overloaded: acme: Overloaded");
    let server = Server::new(vec![events(&[&delta("refusal"), r#"{"type":"message_stop"}"#])]).await;
    let refused = ask("hi").of(&server.vendor(WireFormat::Anthropic)).await.expect_err("nothing was said");
    assert_eq!(refused.kind, FailureKind::Refused);
}
