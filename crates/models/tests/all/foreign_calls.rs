//! Tool calls that another vendor's model made, as each vendor is told of them.

use segue_core::prompt::{ChatRole, PromptMessage, ToolCall};
use segue_models::vendor::{ModelEndpoint, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, answer, of};
use crate::support::{Asking, ask};

/// A round of one call that is still open.
fn called(id: &str, arguments: Value) -> Asking {
    let call = ToolCall { id: id.into(), name: "look".into(), arguments };
    let mut asking = ask("hi").tool("look", "Looks.", json!({"type": "object"}));
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { tool_calls: vec![call], ..PromptMessage::empty(ChatRole::Assistant) });
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { tool_call_id: Some(id.into()), ..PromptMessage::from_text(ChatRole::Tool, "blue") });
    asking
}

/// What is sent of it; the answer does not matter here.
async fn sent(asking: &Asking, wire: WireFormat, change: impl Fn(&mut ModelEndpoint)) -> Value {
    let server = Server::new(vec![answer(500, "text/plain", "")]).await;
    let mut connection = server.connection(wire);
    change(&mut connection);
    let _ = asking.of(&of(connection)).await;
    server.only().body
}

/// The id of the call and that in its result.
fn ids(wire: WireFormat, body: &Value) -> (Value, Value) {
    let (call, result) = match wire {
        WireFormat::Chat => ("/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"),
        WireFormat::Responses => ("/input/1/call_id", "/input/2/call_id"),
        WireFormat::Anthropic => ("/messages/1/content/0/id", "/messages/2/content/0/tool_use_id"),
        WireFormat::Ollama => ("/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"),
        WireFormat::Gemini => ("/contents/1/parts/0/functionCall/id", "/contents/2/parts/0/functionResponse/id"),
    };
    let at = |place: &str| body.pointer(place).cloned().unwrap_or_default();
    (at(call), at(result))
}

#[tokio::test]
async fn an_id_that_a_vendor_would_refuse_is_another_in_call_and_result() {
    let long = format!("functions.look:{}", "7".repeat(70));
    for (wire, provider, fits) in [
        (WireFormat::Chat, "acme", "functions.look:0"),
        (WireFormat::Chat, "mistral", "D681PevKs"),
        (WireFormat::Responses, "openai", "functions.look:0"),
        (WireFormat::Anthropic, "anthropic", "call_1"),
    ] {
        let sent = async |id: &str| {
            let body = sent(&called(id, json!({})), wire, |connection| connection.provider = provider.into()).await;
            let (call, result) = ids(wire, &body);
            assert_eq!(call, result, "{wire:?} of {provider}");
            call.as_str().expect("an id").to_owned()
        };
        assert_eq!(sent(fits).await, fits, "{wire:?} of {provider}");
        let other = sent(&long).await;
        assert!(other.chars().all(|c| c.is_ascii_alphanumeric()), "{wire:?} of {provider}: {other}");
        assert_eq!(other.len(), if provider == "mistral" { 9 } else { other.len().min(40) });
        assert_eq!(other, sent(&long).await, "the same every time");
    }
    let body = sent(&called(&long, json!({})), WireFormat::Gemini, |_| {}).await;
    assert_eq!(ids(WireFormat::Gemini, &body), (Value::Null, Value::Null), "it is told only its own");
}

#[tokio::test]
async fn ids_within_a_seal_are_changed_with_the_others() {
    let id = "functions.look:0";
    let mut asking = called(id, json!({}));
    let blocks = json!([
        { "type": "thinking", "thinking": "hm", "signature": "s" },
        { "type": "tool_use", "id": id, "name": "look", "input": {} },
    ]);
    let seal = json!({ "anthropic": { "by": "acme", "model": "m-1", "content": blocks } }).to_string();
    asking.prompt.messages_mut()[1].vendor_state = Some(seal.into());
    let body = sent(&asking, WireFormat::Anthropic, |_| {}).await;
    let said = &body["messages"][1]["content"];
    assert_eq!(said[0]["type"], json!("thinking"));
    assert_ne!(said[1]["id"], json!(id));
    assert_eq!(said[1]["id"], body["messages"][2]["content"][0]["tool_use_id"]);

    let id = "x".repeat(70);
    let mut asking = called(&id, json!({}));
    let items = json!([
        { "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz" },
        { "type": "function_call", "call_id": id, "name": "look", "arguments": "{}" },
    ]);
    let seal = json!({ "responses": { "by": "acme", "model": "m-1", "content": items } }).to_string();
    asking.prompt.messages_mut()[1].vendor_state = Some(seal.into());
    let body = sent(&asking, WireFormat::Responses, |_| {}).await;
    assert_eq!(body["input"][1]["type"], json!("reasoning"));
    assert_ne!(body["input"][2]["call_id"], json!(id));
    assert_eq!(body["input"][2]["call_id"], body["input"][3]["call_id"]);
}

#[tokio::test]
async fn arguments_that_are_no_object_go_back_within_one() {
    for (wire, place) in [
        (WireFormat::Chat, "/messages/1/tool_calls/0/function/arguments"),
        (WireFormat::Responses, "/input/1/arguments"),
        (WireFormat::Anthropic, "/messages/1/content/0/input"),
        (WireFormat::Gemini, "/contents/1/parts/0/functionCall/args"),
        (WireFormat::Ollama, "/messages/1/tool_calls/0/function/arguments"),
    ] {
        for arguments in [json!("the sky"), json!(["sky", 7])] {
            let body = sent(&called("call_1", arguments.clone()), wire, |_| {}).await;
            let told = body.pointer(place).expect("arguments");
            let told = told.as_str().map_or_else(|| told.clone(), |text| serde_json::from_str(text).expect("JSON"));
            assert_eq!(told, json!({ "input": arguments }), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn thinking_is_not_switched_on_in_the_middle_of_a_round() {
    let thinks = |connection: &mut ModelEndpoint| {
        connection.capabilities.thinking = ThinkingSupport::Budget;
        connection.params.effort = Some(ReasoningEffort::Medium);
    };
    let sealed = |model: &str, blocks: Value| {
        let seal = json!({ "anthropic": { "by": "acme", "model": model, "content": blocks } });
        let mut asking = called("call_1", json!({}));
        asking.prompt.messages_mut()[1].vendor_state = Some(seal.to_string().into());
        asking
    };
    let call = json!({ "type": "tool_use", "id": "call_1", "name": "look", "input": {} });
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    for (asking, expected, why) in [
        (called("call_1", json!({})), false, "another vendor's model began the round"),
        (sealed("m-2", json!([thought, call])), false, "another model began the round"),
        (sealed("m-1", json!([call])), false, "it began the round without a thought"),
        (sealed("m-1", json!([thought, call])), true, "it began the round with a thought"),
        (called("call_1", json!({})).assistant("Blue.").user("And now?"), true, "that round is over"),
    ] {
        let body = sent(&asking, WireFormat::Anthropic, thinks).await;
        assert_eq!(body.get("thinking").is_some(), expected, "{why}");
    }
}
