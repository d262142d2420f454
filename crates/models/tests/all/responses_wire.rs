//! OpenAI's Responses API: requests and response streams.

use std::sync::Arc;

use segue_core::prompt::{
    CallFailureKind, ChatRole, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::CacheablePromptPart;
use segue_models::vendor::{GenerationParams, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::json;

use crate::server::{Server, events, full_response, vendor_model};
use crate::support::{ask, empty_request};

const HELLO: [&str; 3] = [
    r#"{"type":"response.created","response":{"id":"r","status":"in_progress"}}"#,
    r#"{"type":"response.output_text.delta","item_id":"m","delta":"Hello"}"#,
    r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":90,"input_tokens_details":{"cached_tokens":64,"cache_write_tokens":9},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":8}}}}"#,
];

#[tokio::test]
async fn a_conversation_is_sent_in_the_vendors_format() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Responses);
    endpoint.capabilities.thinking = ThinkingSupport::Levels;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::High), ..GenerationParams::default() };
    let look = ToolCall { id: "c1".into(), name: "look".into(), arguments: json!({"at": "sky"}) };
    let mut request = empty_request().system("Be brief.").user("What is up?");
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { tool_calls: vec![look], ..PromptMessage::from_text(ChatRole::Assistant, "Let me see.") });
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { tool_call_id: Some("c1".into()), ..PromptMessage::from_text(ChatRole::Tool, "blue") });
    let images = vec![PromptImage { media_type: ImageMediaType::Jpeg, data: "aWk=".into() }];
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    let request = request.tool("look", "Looks.", json!({"type": "object"}));
    let reply = request.send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.stop_reason), ("Hello", StopReason::Done));
    assert_eq!(
        reply.usage,
        Some(TokenUsage {
            input_tokens: 90,
            output_tokens: 12,
            cached_tokens: 64,
            cache_write_tokens: 9,
            reasoning_tokens: 8
        })
    );
    let received = server.only_request();
    assert_eq!(received.line, "POST /v1/responses HTTP/1.1");
    assert_eq!(
        received.body,
        json!({
            "model": "m-1",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 4096 + 16_384,
            "reasoning": { "effort": "high", "summary": "auto" },
            "input": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": [{ "type": "input_text", "text": "What is up?" }] },
                { "role": "assistant", "content": [{ "type": "output_text", "text": "Let me see." }] },
                { "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":\"sky\"}" },
                { "type": "function_call_output", "call_id": "c1", "output": "blue" },
                { "role": "user", "content": [
                    { "type": "input_text", "text": "And here?" },
                    { "type": "input_image", "image_url": "data:image/jpeg;base64,aWk=" },
                ]},
            ],
            "tools": [{ "type": "function", "name": "look", "description": "Looks.", "parameters": { "type": "object" }, "strict": false }],
        })
    );
}

#[tokio::test]
async fn reasoning_and_tool_calls_are_read() {
    let server = Server::new(vec![events(&[
        r#"{"type":"response.reasoning_summary_part.added","summary_index":0}"#,
        r#"{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#,
        r#"{"type":"response.reasoning_summary_part.added","summary_index":1}"#,
        r#"{"type":"response.reasoning_summary_text.delta","delta":"so"}"#,
        r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{\"at\""}"#,
        r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"fc","call_id":"c9","name":"look","arguments":"{\"at\":\"sky\"}"}}"#,
        r#"{"type":"response.completed","response":{"status":"completed"}}"#,
    ])])
    .await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Responses)).await.expect("a reply");
    assert_eq!((reply.reasoning.as_str(), reply.stop_reason, reply.usage), ("hm\n\nso", StopReason::ToolCalls, None));
    assert_eq!((reply.tool_calls[0].id.as_str(), &reply.tool_calls[0].arguments), ("c9", &json!({"at": "sky"})));
}

#[tokio::test]
async fn a_schema_is_sent_with_the_text() {
    let schema = json!({"type": "object", "additionalProperties": false, "required": [], "properties": {}});
    let server = Server::new(vec![events(&[
        r#"{"type":"response.output_text.delta","delta":"{}"}"#,
        r#"{"type":"response.completed","response":{}}"#,
    ])])
    .await;
    ask("hi").json(schema.clone()).send_to(&server.vendor(WireFormat::Responses)).await.expect("a reply");
    let format = json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": true });
    assert_eq!(server.only_request().body["text"], json!({ "format": format }));
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let end = async |event: &str| {
        let server = Server::new(vec![events(&[HELLO[1], event])]).await;
        ask("hi").send_to(&server.vendor(WireFormat::Responses)).await
    };
    let incomplete = |reason: &str| {
        format!(r#"{{"type":"response.incomplete","response":{{"incomplete_details":{{"reason":"{reason}"}}}}}}"#)
    };
    assert_eq!(end(&incomplete("max_output_tokens")).await.expect("a reply").stop_reason, StopReason::Length);
    assert_eq!(end(&incomplete("content_filter")).await.expect("a reply").stop_reason, StopReason::ContentFilter);
    let failed =
        r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow down"}}}"#;
    assert_eq!(end(failed).await.expect_err("it failed").kind, CallFailureKind::RateLimit);
    let error = r#"{"type":"error","code":"server_error","message":"oh"}"#;
    assert_eq!(end(error).await.expect_err("it failed").kind, CallFailureKind::Overload);
    assert_eq!(end(": nothing more").await.expect_err("no end").kind, CallFailureKind::MalformedReply);
}

#[tokio::test]
async fn an_unstreamed_reply_is_accepted() {
    let body = r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":3,"output_tokens":1},"error":null}"#;
    let server = Server::new(vec![full_response(200, "application/json", body)]).await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Responses)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.usage.map(|usage| usage.input_tokens)), ("Hello", Some(3)));
}

#[tokio::test]
async fn reasoning_in_an_unstreamed_reply_is_not_part_of_its_text() {
    let body = r#"{"output":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}"#;
    let server = Server::new(vec![full_response(200, "application/json", body)]).await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Responses)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hello", "hm"));
}

#[tokio::test]
async fn a_cache_breakpoint_follows_the_instructions_if_supported() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Responses);
    endpoint.capabilities.cache_breakpoints = true;
    let vendor = vendor_model(endpoint);
    let mut request = empty_request().system("Be brief.").user("one");
    request.send_to(&vendor).await.expect("a reply");
    request.clone().assistant("Hello").user("two").send_to(&vendor).await.expect("a reply");
    request.caching = CacheablePromptPart::SystemOnly;
    request.send_to(&vendor).await.expect("a reply");
    empty_request().system("Be brief.").user("other").send_to(&vendor).await.expect("a reply");
    let received = server.received();
    let with_breakpoint = json!({ "role": "system", "content": [
        { "type": "input_text", "text": "Be brief.", "prompt_cache_breakpoint": { "mode": "explicit" } },
    ]});
    assert!(received.iter().all(|received| received.body["input"][0] == with_breakpoint));
    let options = |index: usize| received[index].body.get("prompt_cache_options").cloned();
    assert_eq!(
        (options(0), options(2)),
        (None, Some(json!({ "mode": "explicit" }))),
        "only the instructions are cached"
    );
    let key = |index: usize| received[index].body["prompt_cache_key"].as_str().expect("a key").to_owned();
    assert_eq!(key(0), key(1), "one conversation, one key");
    assert_ne!(key(0), key(3));
}

#[tokio::test]
async fn rejected_reasoning_options_are_not_sent_again() {
    let rejection = |message: &str| {
        full_response(
            400,
            "application/json",
            &json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string(),
        )
    };
    for (message, has_reasoning) in [
        ("Encrypted content is not supported with this model.", false),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", false),
        ("Your organization must be verified to generate reasoning summaries.", true),
    ] {
        let server = Server::new(vec![rejection(message), events(&HELLO), events(&HELLO)]).await;
        let mut endpoint = server.endpoint(WireFormat::Responses);
        endpoint.capabilities.thinking = ThinkingSupport::Levels;
        endpoint.params = GenerationParams { effort: Some(ReasoningEffort::High), ..GenerationParams::default() };
        let vendor = vendor_model(endpoint);
        for _ in 0..2 {
            assert_eq!(ask("hi").send_to(&vendor).await.expect("a reply").text, "Hello", "{message}");
        }
        let received = server.received();
        assert_eq!(received.len(), 3, "retried once, then remembered: {message}");
        for request in &received[1..] {
            let reasoning = json!({ "effort": "high" });
            assert_eq!(request.body.get("reasoning"), has_reasoning.then_some(&reasoning), "{message}");
            assert_eq!(request.body.get("include").is_some(), has_reasoning, "{message}");
        }
    }
}

#[tokio::test]
async fn no_effort_is_sent_to_a_model_that_does_not_think() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Responses);
    endpoint.capabilities.thinking = ThinkingSupport::None;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::Low), ..GenerationParams::default() };
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!(server.only_request().body.get("reasoning"), None);
}
