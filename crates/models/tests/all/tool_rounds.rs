//! Tool rounds in every format: text, reasoning and tool calls are read from the stream and sent back with the results in the
//! vendor's format.

use std::sync::Arc;

use segue_core::prompt::{ChatRole, ModelReply, PromptMessage};
use segue_models::vendor::{ChatCompletionsDialect, ModelEndpoint, ReasoningEcho, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, Step, events, lines, vendor_model};
use crate::support::{TestRequest, ask};

/// Returns the reply and the body of the next request.
async fn play_round(wire: WireFormat, response: Vec<Step>, change: impl Fn(&mut ModelEndpoint)) -> (ModelReply, Value) {
    let server = Server::new(vec![response]).await;
    let mut endpoint = server.endpoint(wire);
    change(&mut endpoint);
    let vendor = vendor_model(endpoint);
    let request = ask("hi").tool("look.up", "Looks.", json!({"type": "object"}));
    let reply = request.send_to(&vendor).await.expect("a reply");
    with_tool_results(request, &reply).send_to(&vendor).await.expect("a reply");
    (reply, server.received()[1].body.clone())
}

/// Adds a reply and the results of its tool calls.
fn with_tool_results(mut request: TestRequest, reply: &ModelReply) -> TestRequest {
    let state = reply.vendor_state.as_deref().map(Into::into);
    let tool_calls = reply.tool_calls.clone();
    let message = PromptMessage {
        tool_calls,
        vendor_state: state,
        ..PromptMessage::from_text(ChatRole::Assistant, reply.text.as_str())
    };
    Arc::make_mut(&mut request.prompt.messages).push(message);
    for call in &reply.tool_calls {
        let tool_call_id = Some(call.id.clone());
        Arc::make_mut(&mut request.prompt.messages)
            .push(PromptMessage { tool_call_id, ..PromptMessage::from_text(ChatRole::Tool, "blue") });
    }
    request
}

fn tool_calls(reply: &ModelReply) -> Vec<(&str, &str)> {
    reply.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect()
}

#[tokio::test]
async fn chat_reasoning_is_sent_back_only_if_the_server_expects_it() {
    let response = events(&[
        r#"{"choices":[{"delta":{"reasoning_content":"hm, "}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"so"}}]}"#,
        r#"{"choices":[{"delta":{"content":"Wait.","tool_calls":[{"index":0,"id":"a","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let (reply, body) = play_round(WireFormat::Chat, response.clone(), |_| {}).await;
    assert_eq!((tool_calls(&reply), &reply.vendor_state), (vec![("a", "look.up")], &None));
    let call = json!({ "id": "a", "type": "function", "function": { "name": "look_up", "arguments": "{}" } });
    let message = json!({ "role": "assistant", "content": "Wait.", "tool_calls": [call] });
    assert_eq!(body["messages"][1], message);
    assert_eq!(body["messages"][2], json!({ "role": "tool", "tool_call_id": "a", "content": "blue" }));
    let expects_reasoning = |endpoint: &mut ModelEndpoint| {
        endpoint.capabilities.dialect = ChatCompletionsDialect {
            reasoning_echo: ReasoningEcho::ReasoningContent,
            ..ChatCompletionsDialect::default()
        };
    };
    let (_, body) = play_round(WireFormat::Chat, response, expects_reasoning).await;
    assert_eq!(body["messages"][1]["reasoning_content"], json!("hm, so"));
}

#[tokio::test]
async fn reasoning_details_are_sent_back_merged() {
    let response = events(&[
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm, "}]}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"so","signature":"s"}]}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","index":1,"data":"xyz"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let expects_reasoning = |endpoint: &mut ModelEndpoint| {
        endpoint.capabilities.dialect = ChatCompletionsDialect {
            reasoning_echo: ReasoningEcho::ReasoningDetails,
            ..ChatCompletionsDialect::default()
        };
    };
    let (_, body) = play_round(WireFormat::Chat, response, expects_reasoning).await;
    let details = json!([
        { "type": "reasoning.text", "index": 0, "text": "hm, so", "signature": "s" },
        { "type": "reasoning.encrypted", "index": 1, "data": "xyz" },
    ]);
    assert_eq!(body["messages"][1]["reasoning_details"], details);
}

#[tokio::test]
async fn extra_content_is_sent_back_with_its_call() {
    let response = events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"look_up","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let (_, body) = play_round(WireFormat::Chat, response, |_| {}).await;
    let calls = &body["messages"][1]["tool_calls"];
    assert_eq!(calls[0]["extra_content"], json!({ "google": { "thought_signature": "s" } }));
    assert_eq!(calls[1].get("extra_content"), None);
}

#[tokio::test]
async fn responses_reasoning_is_sent_back_in_order() {
    let response = events(&[
        r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"xyz","status":"completed"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Wait."}"#,
        r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Wait.","annotations":[]}]}}"#,
        r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"fc","call_id":"c9","name":"look_up","arguments":"{}"}}"#,
        r#"{"type":"response.completed","response":{}}"#,
    ]);
    let (reply, body) = play_round(WireFormat::Responses, response, |endpoint| {
        endpoint.capabilities.thinking = ThinkingSupport::Levels
    })
    .await;
    assert_eq!(tool_calls(&reply), [("c9", "look.up")]);
    assert_eq!(
        body["input"].as_array().expect("items")[1..],
        [
            json!({ "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz" }),
            json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "Wait." }] }),
            json!({ "type": "function_call", "call_id": "c9", "name": "look_up", "arguments": "{}" }),
            json!({ "type": "function_call_output", "call_id": "c9", "output": "blue" }),
        ]
    );
}

#[tokio::test]
async fn anthropic_blocks_are_sent_back_in_order() {
    let response = events(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm","signature":"s1"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"look_up"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"And there."}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"look_up"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let (reply, body) = play_round(WireFormat::Anthropic, response, |_| {}).await;
    assert_eq!(tool_calls(&reply), [("t1", "look.up"), ("t2", "look.up")]);
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            { "type": "thinking", "thinking": "hm", "signature": "s1" },
            { "type": "tool_use", "id": "t1", "name": "look_up", "input": {} },
            { "type": "text", "text": "And there." },
            { "type": "tool_use", "id": "t2", "name": "look_up", "input": {} },
        ])
    );
    assert_eq!(body["messages"][2]["content"][1]["tool_use_id"], json!("t2"));
}

#[tokio::test]
async fn gemini_calls_are_sent_back_with_signatures_and_ids() {
    let response = events(&[
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"f1","name":"look_up"},"thoughtSignature":"s1"},{"functionCall":{"name":"look_up"}}]},"finishReason":"STOP"}]}"#,
    ]);
    let (reply, body) = play_round(WireFormat::Gemini, response, |_| {}).await;
    assert_eq!(tool_calls(&reply), [("f1", "look.up"), ("call_2", "look.up")]);
    assert_eq!(
        body["contents"].as_array().expect("turns")[1..],
        [
            json!({ "role": "model", "parts": [
                { "functionCall": { "name": "look_up", "args": {}, "id": "f1" }, "thoughtSignature": "s1" },
                { "functionCall": { "name": "look_up", "args": {} } },
            ]}),
            json!({ "role": "user", "parts": [
                { "functionResponse": { "name": "look_up", "response": { "result": "blue" }, "id": "f1" } },
                { "functionResponse": { "name": "look_up", "response": { "result": "blue" } } },
            ]}),
        ]
    );
}

#[tokio::test]
async fn ollama_calls_are_sent_back_with_their_thinking() {
    let response = lines(&[
        r#"{"message":{"thinking":"hm"}}"#,
        r#"{"message":{"tool_calls":[{"function":{"index":0,"name":"look_up","arguments":{"at":"sky"}}}]}}"#,
        r#"{"message":{"tool_calls":[{"function":{"index":0,"name":"look_up","arguments":{"at":"sea"}}}]},"done":true,"done_reason":"stop"}"#,
    ]);
    let (reply, body) = play_round(WireFormat::Ollama, response, |_| {}).await;
    assert_eq!(tool_calls(&reply), [("call_1", "look.up"), ("call_2", "look.up")]);
    let message = &body["messages"][1];
    assert_eq!(
        (&message["thinking"], &message["tool_calls"][1]["function"]["arguments"]),
        (&json!("hm"), &json!({"at": "sea"}))
    );
    assert_eq!(body["messages"][3]["tool_name"], json!("look_up"));
}
