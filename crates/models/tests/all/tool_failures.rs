//! Results of failed tools, in every format: in a separate field if there is one, else in the text.

use std::sync::Arc;

use segue_core::prompt::{ChatRole, PromptMessage, ToolCall};
use segue_models::vendor::WireFormat;
use serde_json::{Value, json};

use crate::server::{Server, events};
use crate::support::empty_request;

/// Returns the tool result as it is sent.
async fn sent_result(wire: WireFormat, text: &str, failed: bool) -> Value {
    let look = ToolCall { id: "t1".into(), name: "look".into(), arguments: json!({}) };
    let mut request = empty_request().user("What is up?");
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls: vec![look],
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    let tool_call_id = Some("t1".into());
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_call_id,
        failed,
        ..PromptMessage::from_text(ChatRole::Tool, text)
    });
    let request = request.tool("look", "Looks.", json!({"type": "object"}));
    let server = Server::new(vec![events(&[])]).await;
    // Only the request matters here; the response is empty.
    request.send_to(&server.vendor(wire)).await.expect_err("no reply");
    let body = server.received()[0].body.clone();
    let result = match wire {
        WireFormat::Chat | WireFormat::Ollama => &body["messages"][2],
        WireFormat::Responses => &body["input"][2],
        WireFormat::Anthropic => &body["messages"][2]["content"][0],
        WireFormat::Gemini => &body["contents"][2]["parts"][0],
    };
    let mut result = result.clone();
    // Cache breakpoints are tested elsewhere.
    result.as_object_mut().expect("a message").remove("cache_control");
    result
}

#[tokio::test]
async fn a_tool_failure_is_sent_in_each_vendors_field() {
    let result = json!({ "role": "tool", "tool_call_id": "t1", "content": "Error: no light" });
    assert_eq!(sent_result(WireFormat::Chat, "no light", true).await, result);
    let result = json!({ "type": "function_call_output", "call_id": "t1", "output": "Error: no light" });
    assert_eq!(sent_result(WireFormat::Responses, "no light", true).await, result);
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": "no light", "is_error": true });
    assert_eq!(sent_result(WireFormat::Anthropic, "no light", true).await, result);
    let result = json!({ "functionResponse": { "name": "look", "response": { "error": "no light" } } });
    assert_eq!(sent_result(WireFormat::Gemini, "no light", true).await, result);
    let result = json!({ "role": "tool", "tool_name": "look", "tool_call_id": "t1", "content": "Error: no light" });
    assert_eq!(sent_result(WireFormat::Ollama, "no light", true).await, result);
}

#[tokio::test]
async fn error_texts_and_successful_results_are_not_changed() {
    for text in ["error: no light", "ERROR 7", "Error"] {
        assert_eq!(sent_result(WireFormat::Chat, text, true).await["content"], text);
    }
    for text in ["", "ärger", "err"] {
        assert_eq!(sent_result(WireFormat::Chat, text, true).await["content"], format!("Error: {text}"));
    }
    for wire in WireFormat::ALL {
        let result = sent_result(wire, "blue", false).await;
        let sent = result.to_string();
        assert!(sent.contains("blue") && !sent.to_lowercase().contains("error"), "{sent}");
    }
}
