//! Google's Gemini API: requests and response streams.

use std::sync::Arc;

use segue_core::prompt::{
    CallFailureKind, ChatRole, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::vendor::{GenerationParams, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{KEY, Server, events, full_response, vendor_model};
use crate::support::{ask, empty_request};

const HELLO: [&str; 2] = [
    r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"Hel"}],"role":"model"}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"lo"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":32,"candidatesTokenCount":2,"thoughtsTokenCount":7}}"#,
];

#[tokio::test]
async fn a_conversation_is_sent_in_the_vendors_format() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Gemini);
    endpoint.capabilities.thinking = ThinkingSupport::Budget;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::Low), temperature: Some(0.5) };
    let call = |name: &str, id: &str| ToolCall { id: id.into(), name: name.into(), arguments: json!({"at": "sky"}) };
    let mut request = empty_request().system("Be brief.").user("What is up?");
    let content = json!({ "signatures": { "call_1": "sig" }, "ids": ["call_2"] });
    let state =
        Some(json!({ "gemini": { "provider": "acme", "model": "m-1", "content": content } }).to_string().into());
    let tool_calls = vec![call("look", "call_1"), call("hear", "call_2")];
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls,
        vendor_state: state,
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    for (id, text) in [("call_1", "blue"), ("call_2", "birds")] {
        Arc::make_mut(&mut request.prompt.messages)
            .push(PromptMessage { tool_call_id: Some(id.into()), ..PromptMessage::from_text(ChatRole::Tool, text) });
    }
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls: vec![call("look", "x")],
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    let images = vec![PromptImage { media_type: ImageMediaType::Gif, data: "aWk=".into() }];
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    let request = request.tool("look", "Looks.", json!({"type": "object"}));
    let reply = request.send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.stop_reason), ("Hello", "hm", StopReason::Done));
    assert_eq!(
        reply.usage,
        Some(TokenUsage {
            input_tokens: 50,
            output_tokens: 9,
            cached_tokens: 32,
            reasoning_tokens: 7,
            ..TokenUsage::default()
        })
    );
    let received = server.only_request();
    assert_eq!(received.line, "POST /v1/models/m-1:streamGenerateContent?alt=sse HTTP/1.1");
    assert_eq!(received.header("x-goog-api-key"), Some(KEY));
    assert_eq!(
        received.body,
        json!({
            "systemInstruction": { "parts": [{ "text": "Be brief." }] },
            "contents": [
                { "role": "user", "parts": [{ "text": "What is up?" }] },
                { "role": "model", "parts": [
                    { "functionCall": { "name": "look", "args": { "at": "sky" } }, "thoughtSignature": "sig" },
                    { "functionCall": { "name": "hear", "args": { "at": "sky" }, "id": "call_2" } },
                ]},
                { "role": "user", "parts": [
                    { "functionResponse": { "name": "look", "response": { "result": "blue" } } },
                    { "functionResponse": { "name": "hear", "response": { "result": "birds" }, "id": "call_2" } },
                ]},
                { "role": "model", "parts": [
                    { "functionCall": { "name": "look", "args": { "at": "sky" } }, "thoughtSignature": "skip_thought_signature_validator" },
                ]},
                { "role": "user", "parts": [
                    { "text": "And here?" },
                    { "inlineData": { "mimeType": "image/gif", "data": "aWk=" } },
                ]},
            ],
            "tools": [{ "functionDeclarations": [
                { "name": "look", "description": "Looks.", "parametersJsonSchema": { "type": "object" } },
            ]}],
            "generationConfig": {
                "maxOutputTokens": 4096 + 1024,
                "temperature": 0.5,
                "thinkingConfig": { "thinkingBudget": 1024, "includeThoughts": true },
            },
        })
    );
}

#[tokio::test]
async fn a_schema_is_sent_as_json_schema() {
    let schema = json!({"type": "object"});
    let say = r#"{"candidates":[{"content":{"parts":[{"text":"{}"}]},"finishReason":"STOP"}]}"#;
    let server = Server::new(vec![events(&[say])]).await;
    ask("hi").json(schema.clone()).send_to(&server.vendor(WireFormat::Gemini)).await.expect("a reply");
    let config = &server.only_request().body["generationConfig"];
    assert_eq!(config["responseMimeType"], json!("application/json"));
    assert_eq!(config["responseJsonSchema"], schema);
}

#[tokio::test]
async fn function_calls_get_ids_and_their_signatures_are_stored() {
    let server = Server::new(vec![events(&[
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"look","args":{"at":"sky"}},"thoughtSignature":"s1"},{"functionCall":{"name":"hear"}}]},"finishReason":"STOP"}]}"#,
    ])])
    .await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Gemini)).await.expect("a reply");
    let calls: Vec<_> = reply.tool_calls.iter().map(|call| (call.id.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("call_1", json!({"at": "sky"})), ("call_2", json!({}))]);
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    let state: Value = serde_json::from_str(&reply.vendor_state.expect("vendor state")).expect("JSON");
    let content = json!({ "signatures": { "call_1": "s1" }, "ids": [] });
    assert_eq!(state, json!({ "gemini": { "provider": "acme", "model": "m-1", "content": content } }));
}

#[tokio::test]
async fn blocked_prompts_and_replies_are_distinguished() {
    let end = async |event: &str| {
        let server = Server::new(vec![events(&[event])]).await;
        ask("hi").send_to(&server.vendor(WireFormat::Gemini)).await
    };
    let blocked = end(r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#).await.expect_err("blocked");
    assert_eq!(blocked.to_string(), "refused: acme: the prompt was blocked (SAFETY)");
    let empty = end(r#"{"candidates":[{"finishReason":"SAFETY"}]}"#).await.expect_err("an empty reply");
    assert_eq!(empty.kind, CallFailureKind::Refused);
    let cut = end(r#"{"candidates":[{"content":{"parts":[{"text":"so"}]},"finishReason":"RECITATION"}]}"#).await;
    assert_eq!(cut.expect("a reply").stop_reason, StopReason::ContentFilter);
    let long = end(r#"{"candidates":[{"content":{"parts":[{"text":"so"}]},"finishReason":"MAX_TOKENS"}]}"#).await;
    assert_eq!(long.expect("a reply").stop_reason, StopReason::Length);
    let other = end(r#"{"candidates":[{"content":{"parts":[{"text":"so"}]},"finishReason":"OTHER"}]}"#).await;
    assert_eq!(other.expect_err("aborted").to_string(), "unreadable answer: acme aborted the reply (OTHER)");
    let broken = end(r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#).await;
    assert_eq!(broken.expect_err("unreadable").kind, CallFailureKind::MalformedReply);
    let error = end(r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#).await;
    assert_eq!(error.expect_err("it failed").kind, CallFailureKind::Overload);
}

#[tokio::test]
async fn a_stream_without_a_finish_reason_is_incomplete() {
    let server = Server::new(vec![events(&HELLO[..1])]).await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Gemini)).await.expect_err("incomplete");
    assert_eq!(failure.to_string(), "unreadable answer: acme ended the stream before the reply was complete");
}

#[tokio::test]
async fn a_retry_delay_in_the_body_is_kept() {
    let body = r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}]"#;
    let server = Server::new(vec![full_response(429, "application/json", body)]).await;
    let failure = ask("hi").send_to(&server.vendor(WireFormat::Gemini)).await.expect_err("too fast");
    assert_eq!((failure.kind, failure.retry_after_ms), (CallFailureKind::RateLimit, Some(34_000)));
}

#[tokio::test]
async fn a_model_with_effort_levels_is_sent_the_effort() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Gemini);
    endpoint.capabilities.thinking = ThinkingSupport::Levels;
    endpoint.params.effort = Some(ReasoningEffort::None);
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    let config = &server.only_request().body["generationConfig"];
    assert_eq!(config["thinkingConfig"], json!({ "thinkingLevel": "low", "includeThoughts": true }));
}

#[tokio::test]
async fn a_model_that_always_thinks_gets_its_minimum_budget() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Gemini);
    endpoint.capabilities.thinking = ThinkingSupport::Budget;
    endpoint.params.effort = Some(ReasoningEffort::None);
    ask("hi").send_to(&vendor_model(endpoint.clone())).await.expect("a reply");
    endpoint.capabilities.thinking_tokens_min = 128;
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    let budgets: Vec<_> =
        server.received().iter().map(|received| received.body["generationConfig"]["thinkingConfig"].clone()).collect();
    assert_eq!(budgets, [json!({ "thinkingBudget": 0 }), json!({ "thinkingBudget": 128 })]);
}
