//! Anthropic's Messages API: requests with cache breakpoints, and response streams.

use std::sync::Arc;

use segue_core::prompt::{
    CallFailureKind, ChatRole, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::CacheablePromptPart;
use segue_models::vendor::{GenerationParams, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{KEY, Server, events, stream, vendor_model};
use crate::support::{TestRequest, ask, empty_request};

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

fn conversation() -> TestRequest {
    let look = ToolCall { id: "toolu_1".into(), name: "look".into(), arguments: json!({"at": "sky"}) };
    let mut request = empty_request().system("Be brief.").user("What is up?");
    let blocks = json!([
        { "type": "thinking", "thinking": "hm", "signature": "sig" },
        { "type": "text", "text": "Let me see." },
        { "type": "thinking", "thinking": "so", "signature": "sig2" },
        { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "at": "sky" } },
    ]);
    let state = json!({ "anthropic": { "provider": "acme", "model": "m-1", "content": blocks } }).to_string();
    let state = Some(state.into());
    let called = PromptMessage {
        tool_calls: vec![look],
        vendor_state: state,
        ..PromptMessage::from_text(ChatRole::Assistant, "Let me see.")
    };
    Arc::make_mut(&mut request.prompt.messages).push(called);
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_call_id: Some("toolu_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let mut request = request.assistant("The sky.").assistant("  ");
    let images = vec![PromptImage { media_type: ImageMediaType::Webp, data: "aWk=".into() }];
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    request.tool("look", "Looks.", json!({"type": "object"}))
}

const EPHEMERAL: &str = r#"{"type":"ephemeral"}"#;

fn ephemeral() -> Value {
    serde_json::from_str(EPHEMERAL).expect("JSON")
}

#[tokio::test]
async fn a_conversation_is_sent_in_the_vendors_format_with_cache_breakpoints() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let reply = conversation().send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.stop_reason), ("Hello", StopReason::Done));
    let usage = TokenUsage {
        input_tokens: 2125,
        output_tokens: 15,
        cached_tokens: 2000,
        cache_write_tokens: 100,
        reasoning_tokens: 0,
    };
    assert_eq!(reply.usage, Some(usage), "cached tokens are part of what was sent");
    let received = server.only_request();
    assert_eq!(received.line, "POST /v1/messages HTTP/1.1");
    assert_eq!((received.header("x-api-key"), received.header("authorization")), (Some(KEY), None));
    assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        received.body,
        json!({
            "model": "m-1",
            "stream": true,
            "max_tokens": 4096,
            "system": [{ "type": "text", "text": "Be brief.", "cache_control": ephemeral() }],
            "tools": [{ "name": "look", "description": "Looks.", "input_schema": { "type": "object" } }],
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "What is up?" }] },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "Let me see." },
                    { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "at": "sky" } },
                ]},
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": "blue", "cache_control": ephemeral() },
                ]},
                { "role": "assistant", "content": [{ "type": "text", "text": "The sky." }] },
                { "role": "user", "content": [
                    { "type": "image", "source": { "type": "base64", "media_type": "image/webp", "data": "aWk=" } },
                    { "type": "text", "text": "And here?", "cache_control": ephemeral() },
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn thinking_is_sent_back_while_its_tool_round_is_open() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut request = conversation();
    Arc::make_mut(&mut request.prompt.messages).truncate(4);
    request.send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
    let content = &server.only_request().body["messages"][1]["content"];
    let kinds: Vec<_> = content.as_array().expect("blocks").iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "text", "thinking", "tool_use"], "in the original order");
    assert_eq!(content[2], json!({ "type": "thinking", "thinking": "so", "signature": "sig2" }));
}

#[tokio::test]
async fn thinking_of_another_model_is_not_sent() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut request = conversation();
    Arc::make_mut(&mut request.prompt.messages).truncate(4);
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.model = "m-2".into();
    request.send_to(&vendor_model(endpoint)).await.expect("a reply");
    let content = &server.only_request().body["messages"][1]["content"];
    let kinds: Vec<_> = content.as_array().expect("blocks").iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["text", "tool_use"]);
}

#[tokio::test]
async fn a_removed_call_is_removed_from_the_vendor_state_too() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut request = conversation();
    Arc::make_mut(&mut request.prompt.messages).truncate(4);
    Arc::make_mut(&mut request.prompt.messages)[2].tool_calls[0].id = "toolu_9".into();
    request.send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
    let content = &server.only_request().body["messages"][1]["content"];
    assert_eq!(content[1]["id"], json!("toolu_9"), "it is rebuilt from the thread");
}

#[tokio::test]
async fn usage_that_is_not_repeated_is_kept() {
    let server = Server::new(vec![events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"output_tokens":7}}"#,
        r#"{"type":"message_stop"}"#,
    ])])
    .await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
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
async fn a_broken_stream_reports_the_usage_from_its_start() {
    let server = Server::new(vec![events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}"#,
    ])])
    .await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Anthropic)).await.expect_err("incomplete");
    let usage = TokenUsage { input_tokens: 25, output_tokens: 1, ..TokenUsage::default() };
    assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage));
}

#[tokio::test]
async fn a_thinking_budget_leaves_room_for_the_reply() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.params.effort = Some(ReasoningEffort::High);
    for (thinking, window_tokens) in
        [(ThinkingSupport::Budget, 8_192), (ThinkingSupport::Budget, 2_048), (ThinkingSupport::None, 8_192)]
    {
        (endpoint.capabilities.thinking, endpoint.capabilities.window_tokens) = (thinking, window_tokens);
        ask("hi").send_to(&vendor_model(endpoint.clone())).await.expect("a reply");
    }
    let received = server.received();
    let max_tokens = |index: usize| received[index].body["max_tokens"].as_u64().expect("a number");
    let budget = received[0].body["thinking"]["budget_tokens"].as_u64().expect("a number");
    assert!(budget < max_tokens(0) && max_tokens(0) < 8_192, "{budget} of {}", max_tokens(0));
    assert!(received[1].body.get("thinking").is_none(), "no room to think");
    assert!(received[2].body.get("thinking").is_none() && max_tokens(2) == 4_096, "it does not think");
}

#[tokio::test]
async fn a_model_with_effort_levels_is_sent_the_effort() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.capabilities.thinking = ThinkingSupport::Levels;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::High), temperature: Some(0.1) };
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    let body = server.only_request().body;
    assert_eq!(body["thinking"], json!({ "type": "adaptive", "display": "summarized" }));
    assert_eq!(body["output_config"], json!({ "effort": "high" }));
    assert!(body.get("temperature").is_none(), "this model accepts no temperature");
}

#[tokio::test]
async fn a_prompt_that_is_not_repeated_is_not_cached() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let mut request = empty_request().system("Be brief.").user("Map this.");
    request.caching = CacheablePromptPart::SystemOnly;
    request.send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
    let body = server.only_request().body;
    assert_eq!(body["system"][0]["cache_control"], ephemeral(), "its instructions are repeated");
    assert!(!body["messages"].to_string().contains("cache_control"));
}

#[tokio::test]
async fn the_cached_prefix_is_the_beginning_of_the_next_prompt() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    let vendor = server.vendor(WireFormat::Anthropic);
    let first = empty_request().system("S").user("one");
    first.send_to(&vendor).await.expect("a reply");
    first.assistant("Hello").user("two").send_to(&vendor).await.expect("a reply");
    let received = server.received();
    let last_marked = &received[0].body["messages"][0];
    assert_eq!(last_marked["content"][0]["cache_control"], ephemeral());
    assert_eq!(&received[1].body["messages"][0], last_marked, "the breakpoint is where the last prompt ended");
    assert_eq!(received[0].body["system"], received[1].body["system"]);
}

#[tokio::test]
async fn instructions_without_messages_are_sent_as_a_user_message() {
    let server = Server::new(vec![stream(&[HELLO])]).await;
    empty_request().system("Say hello.").send_to(&server.vendor(WireFormat::Anthropic)).await.expect("a reply");
    let body = server.only_request().body;
    assert!(body.get("system").is_none());
    assert_eq!(body["messages"][0]["content"][0]["text"], json!("Say hello."));
}

#[tokio::test]
async fn thinking_is_separated_and_stored_with_its_tool_calls() {
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
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.capabilities.thinking = ThinkingSupport::Budget;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::Low), temperature: Some(0.1) };
    let reply = ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!(
        (reply.reasoning.as_str(), reply.text.as_str(), reply.stop_reason),
        ("hm, so", "", StopReason::ToolCalls)
    );
    assert_eq!(reply.tool_calls[0].arguments, json!({"at": "sky"}));
    let state: Value = serde_json::from_str(&reply.vendor_state.expect("vendor state")).expect("JSON");
    let blocks = json!([
        { "type": "thinking", "thinking": "hm, so", "signature": "abc" },
        { "type": "redacted_thinking", "data": "xyz" },
        { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": "sky" } },
    ]);
    assert_eq!(state, json!({ "anthropic": { "provider": "acme", "model": "m-1", "content": blocks } }));
    let body = server.only_request().body;
    assert_eq!(body["thinking"], json!({ "type": "enabled", "budget_tokens": 1024 }));
    assert_eq!((&body["max_tokens"], body.get("temperature")), (&json!(4096 + 1024), None));
}

#[tokio::test]
async fn a_schema_is_sent_closed_or_else_in_the_prompt() {
    let say = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"n\":1}"}}"#;
    let server = Server::new(vec![events(&[say, r#"{"type":"message_stop"}"#])]).await;
    let vendor = server.vendor(WireFormat::Anthropic);
    let narrow = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}});
    ask("hi").json(narrow).send_to(&vendor).await.expect("a reply");
    let open = json!({"type": "object"});
    ask("hi").json(open).send_to(&vendor).await.expect("a reply");
    let received = server.received();
    let sent = json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {"n": {"type": "integer"}}});
    assert_eq!(received[0].body["output_config"], json!({ "format": { "type": "json_schema", "schema": sent } }));
    assert!(received[1].body.get("output_config").is_none());
    assert!(received[1].body["system"][0]["text"].as_str().expect("a system prompt").ends_with(r#"{"type":"object"}"#));
}

#[tokio::test]
async fn stop_reasons_and_stream_errors_are_classified() {
    let end = async |event: &str| {
        let server = Server::new(vec![events(&[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so far"}}"#,
            event,
            r#"{"type":"message_stop"}"#,
        ])])
        .await;
        ask("hi").send_to(&server.vendor(WireFormat::Anthropic)).await
    };
    let delta = |reason: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
    for (reason, stop) in [
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("stop_sequence", StopReason::Done),
        ("refusal", StopReason::ContentFilter),
    ] {
        assert_eq!(end(&delta(reason)).await.expect("a reply").stop_reason, stop, "{reason}");
    }
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(end(overloaded).await.expect_err("it failed").to_string(), "overloaded: acme: Overloaded");
    let server = Server::new(vec![events(&[&delta("refusal"), r#"{"type":"message_stop"}"#])]).await;
    let refused = ask("hi").send_to(&server.vendor(WireFormat::Anthropic)).await.expect_err("an empty reply");
    assert_eq!(refused.kind, CallFailureKind::Refused);
}

/// The models of 2026 refuse requests that force a tool, and requests with sampling parameters.
#[tokio::test]
async fn no_request_forces_a_tool_or_sets_sampling_parameters_of_a_thinking_model() {
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let say = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"n\":1}"}}"#;
    let server = Server::new(vec![events(&[say, r#"{"type":"message_stop"}"#])]).await;
    for effort in [None, Some(ReasoningEffort::Low)] {
        let mut endpoint = server.endpoint(WireFormat::Anthropic);
        endpoint.capabilities.thinking = ThinkingSupport::Levels;
        endpoint.params = GenerationParams { effort, temperature: Some(0.7) };
        let vendor = vendor_model(endpoint);
        conversation().send_to(&vendor).await.expect("a reply");
        ask("hi").json(schema.clone()).send_to(&vendor).await.expect("a reply");
    }
    for request in server.received() {
        for refused in ["tool_choice", "temperature", "top_p", "top_k"] {
            assert!(request.body.get(refused).is_none(), "{refused}: {}", request.body);
        }
    }
}

/// Newer models send what they say between tool calls as thinking. It is not part of the reply, and goes back unchanged.
#[tokio::test]
async fn text_between_tool_calls_that_comes_as_thinking_is_not_part_of_the_reply() {
    let server = Server::new(vec![events(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"Now the sea."}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"abc"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t2","name":"look","input":{}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ])])
    .await;
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.capabilities.thinking = ThinkingSupport::Levels;
    let reply = ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("", "Now the sea."));
    let state: Value = serde_json::from_str(&reply.vendor_state.expect("vendor state")).expect("JSON");
    let kinds: Vec<&Value> =
        state["anthropic"]["content"].as_array().expect("blocks").iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["tool_use", "thinking", "tool_use"]);
    assert_eq!(state["anthropic"]["model"], "m-1", "thinking is bound to its model");
}
