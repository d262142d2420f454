//! Rules about tool use in every format, and a vendor that refuses to force a tool.

use segue_core::prompt::{ModelToolUseRules, ToolChoice};
use segue_models::vendor::{GenerationParams, ReasoningEffort, ThinkingSupport, WireFormat};
use serde_json::{Value, json};

use crate::server::{Server, events, full_response, vendor_model};
use crate::support::{TestRequest, ask};

fn request(choice: ToolChoice, is_single_call: bool) -> TestRequest {
    let mut request = ask("hi").tool("look.up", "Looks.", json!({"type": "object"}));
    request.prompt.tool_use = ModelToolUseRules { choice, is_single_call };
    request
}

/// Returns the body of the request; the reply does not matter.
async fn sent(wire: WireFormat, choice: ToolChoice, is_single_call: bool) -> Value {
    let server = Server::new(vec![full_response(400, "application/json", "{}")]).await;
    // The error may be dropped: only the request matters.
    let _ = request(choice, is_single_call).send_to(&server.vendor(wire)).await;
    server.received()[0].body.clone()
}

#[tokio::test]
async fn rules_are_sent_in_the_vendors_format() {
    let named = || ToolChoice::Tool("look.up".into());
    let chat = sent(WireFormat::Chat, named(), true).await;
    assert_eq!(chat["tool_choice"], json!({"type": "function", "function": {"name": "look_up"}}));
    assert_eq!(chat["parallel_tool_calls"], false);
    let responses = sent(WireFormat::Responses, named(), false).await;
    assert_eq!(responses["tool_choice"], json!({"type": "function", "name": "look_up"}));
    assert!(responses.get("parallel_tool_calls").is_none());
    let anthropic = sent(WireFormat::Anthropic, named(), true).await;
    assert_eq!(anthropic["tool_choice"], json!({"type": "tool", "name": "look_up", "disable_parallel_tool_use": true}));
    let gemini = sent(WireFormat::Gemini, named(), false).await;
    assert_eq!(
        gemini["toolConfig"]["functionCallingConfig"],
        json!({"mode": "ANY", "allowedFunctionNames": ["look_up"]})
    );
    assert_eq!(sent(WireFormat::Chat, ToolChoice::Required, false).await["tool_choice"], "required");
    assert_eq!(sent(WireFormat::Anthropic, ToolChoice::None, false).await["tool_choice"], json!({"type": "none"}));
    assert!(sent(WireFormat::Ollama, ToolChoice::None, false).await.get("tools").is_none());
    for wire in [WireFormat::Chat, WireFormat::Responses, WireFormat::Anthropic, WireFormat::Gemini] {
        let body = sent(wire, ToolChoice::Auto, false).await;
        assert!(body.get("tool_choice").is_none() && body.get("toolConfig").is_none(), "{body}");
    }
}

#[tokio::test]
async fn model_that_thinks_is_not_forced() {
    let server = Server::new(vec![full_response(400, "application/json", "{}")]).await;
    let mut endpoint = server.endpoint(WireFormat::Anthropic);
    endpoint.capabilities.thinking = ThinkingSupport::Levels;
    endpoint.params = GenerationParams { effort: Some(ReasoningEffort::Low), ..endpoint.params };
    let _ = request(ToolChoice::Required, false).send_to(&vendor_model(endpoint)).await;
    let body = &server.received()[0].body;
    assert_eq!(body["tool_choice"], json!({"type": "auto"}));
}

#[tokio::test]
async fn refused_force_is_left_out_now_and_later() {
    let refusal = r#"{"error":{"message":"tool_choice: forcing a tool is not supported by this model","type":"invalid_request_error"}}"#;
    let reply = || events(&[r#"{"choices":[{"delta":{"content":"fine"},"finish_reason":"stop"}]}"#, "[DONE]"]);
    let server = Server::new(vec![full_response(400, "application/json", refusal), reply(), reply()]).await;
    let vendor = server.vendor(WireFormat::Chat);
    for _ in 0..2 {
        let answer = request(ToolChoice::Required, false).send_to(&vendor).await.expect("a reply");
        assert_eq!(answer.text, "fine");
    }
    let choices: Vec<bool> =
        server.received().iter().map(|request| request.body.get("tool_choice").is_some()).collect();
    assert_eq!(choices, [true, false, false]);
}
