//! Ollama's own API: requests and response streams.

use std::sync::Arc;

use segue_core::prompt::{
    CallFailureKind, ChatRole, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::vendor::{JsonMode, ModelCapabilities, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::json;

use crate::server::{Server, full_response, lines, vendor_model};
use crate::support::{ask, empty_request};

const HELLO: [&str; 3] = [
    r#"{"model":"m-1","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}"#,
    r#"{"model":"m-1","message":{"role":"assistant","content":"Hel"},"done":false}"#,
    r#"{"model":"m-1","message":{"role":"assistant","content":"lo"},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":9}"#,
];

#[tokio::test]
async fn a_conversation_is_sent_in_the_vendors_format_with_its_window() {
    let server = Server::new(vec![lines(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Ollama);
    endpoint.capabilities = ModelCapabilities { window_tokens: 8_192, ..endpoint.capabilities };
    endpoint.params.temperature = Some(0.5);
    let look = ToolCall { id: "call_1".into(), name: "look.up".into(), arguments: json!({"at": "sky"}) };
    let mut request = empty_request().system("Be brief.").user("What is up?");
    request.prompt_tokens = 5_000;
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls: vec![look],
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_call_id: Some("call_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let images = vec![PromptImage { media_type: ImageMediaType::Png, data: "aWk=".into() }];
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    let request = request.tool("look.up", "Looks.", json!({"type": "object"}));
    let reply = request.send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.stop_reason), ("Hello", "hm", StopReason::Done));
    assert_eq!(reply.usage, Some(TokenUsage { input_tokens: 26, output_tokens: 9, ..TokenUsage::default() }));
    let received = server.only_request();
    assert_eq!(received.line, "POST /api/chat HTTP/1.1", "not the OpenAI-compatible path");
    assert_eq!(
        received.body,
        json!({
            "model": "m-1",
            "stream": true,
            "truncate": false,
            "shift": false,
            "options": { "num_ctx": 8_192, "num_predict": 8_192 - 5_000 - 256, "temperature": 0.5 },
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "What is up?" },
                { "role": "assistant", "content": "", "tool_calls": [
                    { "id": "call_1", "function": { "name": "look_up", "arguments": { "at": "sky" } } },
                ]},
                { "role": "tool", "tool_name": "look_up", "tool_call_id": "call_1", "content": "blue" },
                { "role": "user", "content": "And here?", "images": ["aWk="] },
            ],
            "tools": [{ "type": "function", "function": {
                "name": "look_up", "description": "Looks.", "parameters": { "type": "object" },
            }}],
        })
    );
}

#[tokio::test]
async fn a_schema_is_sent_as_format() {
    let schema = json!({"type": "object"});
    let server = Server::new(vec![lines(&[r#"{"message":{"content":"{}"},"done":true}"#])]).await;
    for json in [JsonMode::Schema, JsonMode::Object, JsonMode::Prompt] {
        let mut endpoint = server.endpoint(WireFormat::Ollama);
        endpoint.capabilities.json = json;
        ask("hi").json(schema.clone()).send_to(&vendor_model(endpoint)).await.expect("a reply");
    }
    let formats: Vec<_> = server.received().iter().map(|received| received.body.get("format").cloned()).collect();
    assert_eq!(formats, [Some(schema), Some(json!("json")), None]);
}

#[tokio::test]
async fn the_effort_is_sent_if_the_model_thinks() {
    let server = Server::new(vec![lines(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Ollama);
    for (thinking, effort) in [
        (ThinkingSupport::None, ReasoningEffort::High),
        (ThinkingSupport::Budget, ReasoningEffort::High),
        (ThinkingSupport::Budget, ReasoningEffort::None),
        (ThinkingSupport::Levels, ReasoningEffort::High),
        (ThinkingSupport::Levels, ReasoningEffort::None),
    ] {
        (endpoint.capabilities.thinking, endpoint.params.effort) = (thinking, Some(effort));
        ask("hi").send_to(&vendor_model(endpoint.clone())).await.expect("a reply");
    }
    let sent: Vec<_> = server.received().iter().map(|received| received.body.get("think").cloned()).collect();
    assert_eq!(sent, [None, Some(json!(true)), Some(json!(false)), Some(json!("high")), Some(json!("low"))]);
}

#[tokio::test]
async fn stop_reasons_and_errors_are_classified() {
    let end = async |line: &str| {
        let server = Server::new(vec![lines(&[r#"{"message":{"content":"so"}}"#, line])]).await;
        ask("hi").send_to(&server.vendor(WireFormat::Ollama)).await
    };
    let long = end(r#"{"message":{},"done":true,"done_reason":"length"}"#).await;
    assert_eq!(long.expect("a reply").stop_reason, StopReason::Length);
    let broken = end(r#"{"error":"an error was encountered while running the model"}"#).await;
    assert_eq!(broken.expect_err("a server error").kind, CallFailureKind::Overload);
    for (status, body, kind) in [
        (404, r#"{"error":"model 'm-1' not found"}"#, CallFailureKind::ModelNotFound),
        (400, r#"{"error":"the input length exceeds the context length"}"#, CallFailureKind::ContextTooLong),
        (400, r#"{"error":"\"m-1\" does not support tools"}"#, CallFailureKind::BadRequest),
    ] {
        let server = Server::new(vec![full_response(status, "application/json", body)]).await;
        assert_eq!(
            ask("hi").send_to(&server.vendor(WireFormat::Ollama)).await.expect_err("refused").kind,
            kind,
            "{body}"
        );
    }
}

#[tokio::test]
async fn an_unstreamed_reply_is_accepted() {
    let body = r#"{"message":{"role":"assistant","content":"Hello"},"done":true,"done_reason":"stop"}"#;
    let server = Server::new(vec![full_response(200, "application/json; charset=utf-8", body)]).await;
    assert_eq!(ask("hi").send_to(&server.vendor(WireFormat::Ollama)).await.expect("a reply").text, "Hello");
}
