//! Ollama's own format: the request as it is sent, the lines as they are read.

use segue_core::prompt::{
    ChatRole, FailureKind, ImageMediaType, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::vendor::{JsonMode, ModelCapabilities, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::json;

use crate::server::{Server, answer, lines, of};
use crate::support::{ask, nothing};

const HELLO: [&str; 3] = [
    r#"{"model":"m-1","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}"#,
    r#"{"model":"m-1","message":{"role":"assistant","content":"Hel"},"done":false}"#,
    r#"{"model":"m-1","message":{"role":"assistant","content":"lo"},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":9}"#,
];

#[tokio::test]
async fn a_conversation_is_sent_as_the_format_wants_it_with_the_window_it_needs() {
    let server = Server::new(vec![lines(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Ollama);
    connection.capabilities = ModelCapabilities { window_tokens: 8_192, ..connection.capabilities };
    connection.params.temperature = Some(0.5);
    let look = ToolCall { id: "call_1".into(), name: "look.up".into(), arguments: json!({"at": "sky"}) };
    let mut asking = nothing().system("Be brief.").user("What is up?");
    asking.prompt_tokens = 5_000;
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { tool_calls: vec![look], ..PromptMessage::empty(ChatRole::Assistant) });
    asking.prompt.messages_mut().push(PromptMessage {
        tool_call_id: Some("call_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let images = vec![PromptImage { media_type: ImageMediaType::Png, data: "aWk=".into() }];
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { images, ..PromptMessage::from_text(ChatRole::User, "And here?") });
    let asking = asking.tool("look.up", "Looks.", json!({"type": "object"}));
    let reply = asking.of(&of(connection)).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.stop_reason), ("Hello", "hm", StopReason::Done));
    assert_eq!(reply.usage, Some(TokenUsage { input_tokens: 26, output_tokens: 9, ..TokenUsage::default() }));
    let seen = server.only();
    assert_eq!(seen.line, "POST /api/chat HTTP/1.1", "not where it speaks like OpenAI");
    assert_eq!(
        seen.body,
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
async fn a_schema_is_the_format() {
    let schema = json!({"type": "object"});
    let server = Server::new(vec![lines(&[r#"{"message":{"content":"{}"},"done":true}"#])]).await;
    for json in [JsonMode::Schema, JsonMode::Object, JsonMode::Prompt] {
        let mut connection = server.connection(WireFormat::Ollama);
        connection.capabilities.json = json;
        ask("hi").json(schema.clone()).of(&of(connection)).await.expect("an answer");
    }
    let formats: Vec<_> = server.seen().iter().map(|seen| seen.body.get("format").cloned()).collect();
    assert_eq!(formats, [Some(schema), Some(json!("json")), None]);
}

#[tokio::test]
async fn who_thinks_is_told_how_much() {
    let server = Server::new(vec![lines(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Ollama);
    for (thinking, effort) in [
        (ThinkingSupport::None, ReasoningEffort::High),
        (ThinkingSupport::Budget, ReasoningEffort::High),
        (ThinkingSupport::Budget, ReasoningEffort::None),
        (ThinkingSupport::Levels, ReasoningEffort::High),
        (ThinkingSupport::Levels, ReasoningEffort::None),
    ] {
        (connection.capabilities.thinking, connection.params.effort) = (thinking, Some(effort));
        ask("hi").of(&of(connection.clone())).await.expect("an answer");
    }
    let told: Vec<_> = server.seen().iter().map(|seen| seen.body.get("think").cloned()).collect();
    assert_eq!(told, [None, Some(json!(true)), Some(json!(false)), Some(json!("high")), Some(json!("low"))]);
}

#[tokio::test]
async fn ends_and_errors_are_sorted() {
    let end = async |line: &str| {
        let server = Server::new(vec![lines(&[r#"{"message":{"content":"so"}}"#, line])]).await;
        ask("hi").of(&server.vendor(WireFormat::Ollama)).await
    };
    let long = end(r#"{"message":{},"done":true,"done_reason":"length"}"#).await;
    assert_eq!(long.expect("an answer").stop_reason, StopReason::Length);
    let broken = end(r#"{"error":"an error was encountered while running the model"}"#).await;
    assert_eq!(broken.expect_err("it broke down").kind, FailureKind::Overload);
    for (status, body, kind) in [
        (404, r#"{"error":"model 'm-1' not found"}"#, FailureKind::ModelNotFound),
        (400, r#"{"error":"the input length exceeds the context length"}"#, FailureKind::ContextTooLong),
        (400, r#"{"error":"\"m-1\" does not support tools"}"#, FailureKind::BadRequest),
    ] {
        let server = Server::new(vec![answer(status, "application/json", body)]).await;
        assert_eq!(ask("hi").of(&server.vendor(WireFormat::Ollama)).await.expect_err("refused").kind, kind, "{body}");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_taken_too() {
    let body = r#"{"message":{"role":"assistant","content":"Hello"},"done":true,"done_reason":"stop"}"#;
    let server = Server::new(vec![answer(200, "application/json; charset=utf-8", body)]).await;
    assert_eq!(ask("hi").of(&server.vendor(WireFormat::Ollama)).await.expect("an answer").text, "Hello");
}
