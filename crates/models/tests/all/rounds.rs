//! A round of tools in every format: what a model says, thinks and calls comes in as a stream, and goes back with the results as its vendor
//! wants to see it.

use segue_core::prompt::{ChatRole, ModelReply, PromptMessage};
use segue_models::vendor::{ChatDialect, ModelEndpoint, ReasoningEcho, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, Step, events, lines, of};
use crate::support::{Asking, ask};

/// What was answered, and what the next request holds of it.
async fn round(wire: WireFormat, answer: Vec<Step>, change: impl Fn(&mut ModelEndpoint)) -> (ModelReply, Value) {
    let server = Server::new(vec![answer]).await;
    let mut connection = server.connection(wire);
    change(&mut connection);
    let vendor = of(connection);
    let asking = ask("hi").tool("look.up", "Looks.", json!({"type": "object"}));
    let reply = asking.of(&vendor).await.expect("an answer");
    after(asking, &reply).of(&vendor).await.expect("an answer");
    (reply, server.seen()[1].body.clone())
}

/// The conversation with an answer and the results of its calls.
fn after(mut asking: Asking, reply: &ModelReply) -> Asking {
    let seal = reply.vendor_state.as_deref().map(Into::into);
    let tool_calls = reply.tool_calls.clone();
    let said = PromptMessage {
        tool_calls,
        vendor_state: seal,
        ..PromptMessage::from_text(ChatRole::Assistant, reply.text.as_str())
    };
    asking.prompt.messages_mut().push(said);
    for call in &reply.tool_calls {
        let answers = Some(call.id.clone());
        asking
            .prompt
            .messages_mut()
            .push(PromptMessage { tool_call_id: answers, ..PromptMessage::from_text(ChatRole::Tool, "blue") });
    }
    asking
}

fn calls(reply: &ModelReply) -> Vec<(&str, &str)> {
    reply.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect()
}

#[tokio::test]
async fn chat_completions_go_back_without_thoughts_unless_they_are_wanted() {
    let answer = events(&[
        r#"{"choices":[{"delta":{"reasoning_content":"hm, "}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"so"}}]}"#,
        r#"{"choices":[{"delta":{"content":"Wait.","tool_calls":[{"index":0,"id":"a","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let (reply, body) = round(WireFormat::Chat, answer.clone(), |_| {}).await;
    assert_eq!((calls(&reply), &reply.vendor_state), (vec![("a", "look.up")], &None));
    let call = json!({ "id": "a", "type": "function", "function": { "name": "look_up", "arguments": "{}" } });
    let said = json!({ "role": "assistant", "content": "Wait.", "tool_calls": [call] });
    assert_eq!(body["messages"][1], said);
    assert_eq!(body["messages"][2], json!({ "role": "tool", "tool_call_id": "a", "content": "blue" }));
    let wants = |connection: &mut ModelEndpoint| {
        connection.capabilities.dialect =
            ChatDialect { reasoning_echo: ReasoningEcho::ReasoningContent, ..ChatDialect::default() };
    };
    let (_, body) = round(WireFormat::Chat, answer, wants).await;
    assert_eq!(body["messages"][1]["reasoning_content"], json!("hm, so"));
}

#[tokio::test]
async fn details_of_thoughts_go_back_put_together() {
    let answer = events(&[
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm, "}]}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"so","signature":"s"}]}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","index":1,"data":"xyz"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let wants = |connection: &mut ModelEndpoint| {
        connection.capabilities.dialect =
            ChatDialect { reasoning_echo: ReasoningEcho::ReasoningDetails, ..ChatDialect::default() };
    };
    let (_, body) = round(WireFormat::Chat, answer, wants).await;
    let details = json!([
        { "type": "reasoning.text", "index": 0, "text": "hm, so", "signature": "s" },
        { "type": "reasoning.encrypted", "index": 1, "data": "xyz" },
    ]);
    assert_eq!(body["messages"][1]["reasoning_details"], details);
}

#[tokio::test]
async fn what_hangs_on_a_call_goes_back_with_that_call() {
    let answer = events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"look_up","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"look_up","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let (_, body) = round(WireFormat::Chat, answer, |_| {}).await;
    let calls = &body["messages"][1]["tool_calls"];
    assert_eq!(calls[0]["extra_content"], json!({ "google": { "thought_signature": "s" } }));
    assert_eq!(calls[1].get("extra_content"), None);
}

#[tokio::test]
async fn responses_go_back_with_their_thoughts_in_order() {
    let answer = events(&[
        r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"xyz","status":"completed"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Wait."}"#,
        r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Wait.","annotations":[]}]}}"#,
        r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"fc","call_id":"c9","name":"look_up","arguments":"{}"}}"#,
        r#"{"type":"response.completed","response":{}}"#,
    ]);
    let (reply, body) =
        round(WireFormat::Responses, answer, |connection| connection.capabilities.thinking = ThinkingSupport::Levels)
            .await;
    assert_eq!(calls(&reply), [("c9", "look.up")]);
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
async fn messages_go_back_block_by_block() {
    let answer = events(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm","signature":"s1"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"look_up"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"And there."}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"look_up"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let (reply, body) = round(WireFormat::Anthropic, answer, |_| {}).await;
    assert_eq!(calls(&reply), [("t1", "look.up"), ("t2", "look.up")]);
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
async fn function_calls_go_back_with_their_signatures_and_ids() {
    let answer = events(&[
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"f1","name":"look_up"},"thoughtSignature":"s1"},{"functionCall":{"name":"look_up"}}]},"finishReason":"STOP"}]}"#,
    ]);
    let (reply, body) = round(WireFormat::Gemini, answer, |_| {}).await;
    assert_eq!(calls(&reply), [("f1", "look.up"), ("call_2", "look.up")]);
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
async fn ollamas_calls_go_back_with_the_thoughts_that_led_to_them() {
    let answer = lines(&[
        r#"{"message":{"thinking":"hm"}}"#,
        r#"{"message":{"tool_calls":[{"function":{"index":0,"name":"look_up","arguments":{"at":"sky"}}}]}}"#,
        r#"{"message":{"tool_calls":[{"function":{"index":0,"name":"look_up","arguments":{"at":"sea"}}}]},"done":true,"done_reason":"stop"}"#,
    ]);
    let (reply, body) = round(WireFormat::Ollama, answer, |_| {}).await;
    assert_eq!(calls(&reply), [("call_1", "look.up"), ("call_2", "look.up")]);
    let said = &body["messages"][1];
    assert_eq!(
        (&said["thinking"], &said["tool_calls"][1]["function"]["arguments"]),
        (&json!("hm"), &json!({"at": "sea"}))
    );
    assert_eq!(body["messages"][3]["tool_name"], json!("look_up"));
}
