//! What a failed tool returned, in every format: where there is a place that says so it is used, elsewhere the text says it.

use segue_core::prompt::{ChatRole, PromptMessage, ToolCall};
use segue_models::vendor::WireFormat;
use serde_json::{Value, json};

use crate::server::{Server, events};
use crate::support::nothing;

/// The request with a tool's message, which is the last of the conversation but for the question behind it.
async fn sent(wire: WireFormat, said: &str, failed: bool) -> Value {
    let look = ToolCall { id: "t1".into(), name: "look".into(), arguments: json!({}) };
    let mut asking = nothing().user("What is up?");
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { tool_calls: vec![look], ..PromptMessage::empty(ChatRole::Assistant) });
    let answers = Some("t1".into());
    asking.prompt.messages_mut().push(PromptMessage {
        tool_call_id: answers,
        failed,
        ..PromptMessage::from_text(ChatRole::Tool, said)
    });
    let asking = asking.tool("look", "Looks.", json!({"type": "object"}));
    let server = Server::new(vec![events(&[])]).await;
    // Only what is asked matters here; the server says nothing.
    asking.of(&server.vendor(wire)).await.expect_err("no answer");
    let body = server.seen()[0].body.clone();
    let result = match wire {
        WireFormat::Chat | WireFormat::Ollama => &body["messages"][2],
        WireFormat::Responses => &body["input"][2],
        WireFormat::Anthropic => &body["messages"][2]["content"][0],
        WireFormat::Gemini => &body["contents"][2]["parts"][0],
    };
    let mut result = result.clone();
    // Where the prompt may be cached up to is none of this test's business.
    result.as_object_mut().expect("a message").remove("cache_control");
    result
}

#[tokio::test]
async fn each_vendor_is_told_of_a_failure_where_it_looks_for_one() {
    let result = json!({ "role": "tool", "tool_call_id": "t1", "content": "Error: no light" });
    assert_eq!(sent(WireFormat::Chat, "no light", true).await, result);
    let result = json!({ "type": "function_call_output", "call_id": "t1", "output": "Error: no light" });
    assert_eq!(sent(WireFormat::Responses, "no light", true).await, result);
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": "no light", "is_error": true });
    assert_eq!(sent(WireFormat::Anthropic, "no light", true).await, result);
    let result = json!({ "functionResponse": { "name": "look", "response": { "error": "no light" } } });
    assert_eq!(sent(WireFormat::Gemini, "no light", true).await, result);
    let result = json!({ "role": "tool", "tool_name": "look", "tool_call_id": "t1", "content": "Error: no light" });
    assert_eq!(sent(WireFormat::Ollama, "no light", true).await, result);
}

#[tokio::test]
async fn a_text_that_says_so_itself_is_left_as_it_is_and_so_is_what_a_tool_has_done() {
    for said in ["error: no light", "ERROR 7", "Error"] {
        assert_eq!(sent(WireFormat::Chat, said, true).await["content"], said);
    }
    for said in ["", "ärger", "err"] {
        assert_eq!(sent(WireFormat::Chat, said, true).await["content"], format!("Error: {said}"));
    }
    for wire in WireFormat::ALL {
        let result = sent(wire, "blue", false).await;
        let told = result.to_string();
        assert!(told.contains("blue") && !told.to_lowercase().contains("error"), "{told}");
    }
}
