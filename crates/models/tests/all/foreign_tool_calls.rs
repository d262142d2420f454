//! How each vendor is sent tool calls that another vendor's model made.

use std::sync::Arc;

use segue_core::prompt::{ChatRole, PromptMessage, ToolCall};
use segue_models::vendor::{ModelEndpoint, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, full_response, vendor_model};
use crate::support::{TestRequest, ask};

/// A request in the middle of a tool round with one call.
fn open_round(id: &str, arguments: Value) -> TestRequest {
    let call = ToolCall { id: id.into(), name: "look".into(), arguments };
    let mut request = ask("hi").tool("look", "Looks.", json!({"type": "object"}));
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls: vec![call],
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { tool_call_id: Some(id.into()), ..PromptMessage::from_text(ChatRole::Tool, "blue") });
    request
}

/// Returns the request body; the response does not matter here.
async fn sent_body(request: &TestRequest, wire: WireFormat, change: impl Fn(&mut ModelEndpoint)) -> Value {
    let server = Server::new(vec![full_response(500, "text/plain", "")]).await;
    let mut endpoint = server.endpoint(wire);
    change(&mut endpoint);
    let _ = request.send_to(&vendor_model(endpoint)).await;
    server.only_request().body
}

/// Returns the id of the call and the id in its result.
fn call_and_result_ids(wire: WireFormat, body: &Value) -> (Value, Value) {
    let (call, result) = match wire {
        WireFormat::Chat => ("/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"),
        WireFormat::Responses => ("/input/1/call_id", "/input/2/call_id"),
        WireFormat::Anthropic => ("/messages/1/content/0/id", "/messages/2/content/0/tool_use_id"),
        WireFormat::Ollama => ("/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"),
        WireFormat::Gemini => ("/contents/1/parts/0/functionCall/id", "/contents/2/parts/0/functionResponse/id"),
    };
    let at = |pointer: &str| body.pointer(pointer).cloned().unwrap_or_default();
    (at(call), at(result))
}

#[tokio::test]
async fn an_invalid_call_id_is_replaced_in_call_and_result() {
    let long = format!("functions.look:{}", "7".repeat(70));
    for (wire, provider, fits) in [
        (WireFormat::Chat, "acme", "functions.look:0"),
        (WireFormat::Chat, "mistral", "D681PevKs"),
        (WireFormat::Responses, "openai", "functions.look:0"),
        (WireFormat::Anthropic, "anthropic", "call_1"),
    ] {
        let sent_id = async |id: &str| {
            let body =
                sent_body(&open_round(id, json!({})), wire, |endpoint| endpoint.provider = provider.into()).await;
            let (call, result) = call_and_result_ids(wire, &body);
            assert_eq!(call, result, "{wire:?} of {provider}");
            call.as_str().expect("an id").to_owned()
        };
        assert_eq!(sent_id(fits).await, fits, "{wire:?} of {provider}");
        let other = sent_id(&long).await;
        assert!(other.chars().all(|c| c.is_ascii_alphanumeric()), "{wire:?} of {provider}: {other}");
        assert_eq!(other.len(), if provider == "mistral" { 9 } else { other.len().min(40) });
        assert_eq!(other, sent_id(&long).await, "the same every time");
    }
    let body = sent_body(&open_round(&long, json!({})), WireFormat::Gemini, |_| {}).await;
    assert_eq!(
        call_and_result_ids(WireFormat::Gemini, &body),
        (Value::Null, Value::Null),
        "it is sent only its own ids"
    );
}

#[tokio::test]
async fn ids_in_vendor_state_are_replaced_too() {
    let id = "functions.look:0";
    let mut request = open_round(id, json!({}));
    let blocks = json!([
        { "type": "thinking", "thinking": "hm", "signature": "s" },
        { "type": "tool_use", "id": id, "name": "look", "input": {} },
    ]);
    let state = json!({ "anthropic": { "provider": "acme", "model": "m-1", "content": blocks } }).to_string();
    Arc::make_mut(&mut request.prompt.messages)[1].vendor_state = Some(state.into());
    let body = sent_body(&request, WireFormat::Anthropic, |_| {}).await;
    let content = &body["messages"][1]["content"];
    assert_eq!(content[0]["type"], json!("thinking"));
    assert_ne!(content[1]["id"], json!(id));
    assert_eq!(content[1]["id"], body["messages"][2]["content"][0]["tool_use_id"]);

    let id = "x".repeat(70);
    let mut request = open_round(&id, json!({}));
    let items = json!([
        { "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz" },
        { "type": "function_call", "call_id": id, "name": "look", "arguments": "{}" },
    ]);
    let state = json!({ "responses": { "provider": "acme", "model": "m-1", "content": items } }).to_string();
    Arc::make_mut(&mut request.prompt.messages)[1].vendor_state = Some(state.into());
    let body = sent_body(&request, WireFormat::Responses, |_| {}).await;
    assert_eq!(body["input"][1]["type"], json!("reasoning"));
    assert_ne!(body["input"][2]["call_id"], json!(id));
    assert_eq!(body["input"][2]["call_id"], body["input"][3]["call_id"]);
}

#[tokio::test]
async fn arguments_that_are_not_an_object_are_wrapped() {
    for (wire, pointer) in [
        (WireFormat::Chat, "/messages/1/tool_calls/0/function/arguments"),
        (WireFormat::Responses, "/input/1/arguments"),
        (WireFormat::Anthropic, "/messages/1/content/0/input"),
        (WireFormat::Gemini, "/contents/1/parts/0/functionCall/args"),
        (WireFormat::Ollama, "/messages/1/tool_calls/0/function/arguments"),
    ] {
        for arguments in [json!("the sky"), json!(["sky", 7])] {
            let body = sent_body(&open_round("call_1", arguments.clone()), wire, |_| {}).await;
            let sent = body.pointer(pointer).expect("arguments");
            let sent = sent.as_str().map_or_else(|| sent.clone(), |text| serde_json::from_str(text).expect("JSON"));
            assert_eq!(sent, json!({ "input": arguments }), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn thinking_is_not_enabled_in_the_middle_of_a_tool_round() {
    let with_effort = |endpoint: &mut ModelEndpoint| {
        endpoint.capabilities.thinking = ThinkingSupport::Budget;
        endpoint.params.effort = Some(ReasoningEffort::Medium);
    };
    let with_state = |model: &str, blocks: Value| {
        let state = json!({ "anthropic": { "provider": "acme", "model": model, "content": blocks } });
        let mut request = open_round("call_1", json!({}));
        Arc::make_mut(&mut request.prompt.messages)[1].vendor_state = Some(state.to_string().into());
        request
    };
    let call = json!({ "type": "tool_use", "id": "call_1", "name": "look", "input": {} });
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    for (request, expected, reason) in [
        (open_round("call_1", json!({})), false, "another vendor's model began the round"),
        (with_state("m-2", json!([thought, call])), false, "another model began the round"),
        (with_state("m-1", json!([call])), false, "it began the round without a thought"),
        (with_state("m-1", json!([thought, call])), true, "it began the round with a thought"),
        (open_round("call_1", json!({})).assistant("Blue.").user("And now?"), true, "that round is over"),
    ] {
        let body = sent_body(&request, WireFormat::Anthropic, with_effort).await;
        assert_eq!(body.get("thinking").is_some(), expected, "{reason}");
    }
}
