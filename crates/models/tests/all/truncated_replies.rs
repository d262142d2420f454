//! Truncated replies, in every format: complete parts are used, and the rest is dropped rather than repaired.

use std::sync::Arc;

use segue_core::prompt::{CallFailureKind, ChatRole, ModelReply, PromptMessage, StopReason, TokenUsage};
use segue_models::vendor::WireFormat;
use serde_json::{Value, json};

use crate::server::{Server, Step, events, lines};
use crate::support::{TestRequest, ask};

/// A response with this text, these tool calls (id and raw arguments) and this stop reason.
fn response(wire: WireFormat, text: &str, calls: &[(&str, &str)], stop: StopReason) -> Vec<Step> {
    let mut events_json: Vec<Value> = Vec::new();
    match wire {
        WireFormat::Chat => {
            events_json.push(json!({ "choices": [{ "delta": { "content": text } }] }));
            for (index, (id, arguments)) in calls.iter().enumerate() {
                let function = json!({ "name": "write", "arguments": arguments });
                let call = json!({ "index": index, "id": id, "function": function });
                events_json.push(json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }));
            }
            let reason = ["stop", "length", "tool_calls", "content_filter"][stop as usize];
            let usage = json!({ "prompt_tokens": 10, "completion_tokens": 2 });
            events_json.push(json!({ "choices": [{ "delta": {}, "finish_reason": reason }], "usage": usage }));
        }
        WireFormat::Responses => {
            events_json.push(json!({ "type": "response.output_text.delta", "delta": text }));
            for (id, arguments) in calls {
                let item = json!({ "type": "function_call", "call_id": id, "name": "write", "arguments": arguments });
                events_json.push(json!({ "type": "response.output_item.done", "item": item }));
            }
            let usage = json!({ "input_tokens": 10, "output_tokens": 2 });
            let details = match stop {
                StopReason::Length => json!({ "reason": "max_output_tokens" }),
                StopReason::ContentFilter => json!({ "reason": "content_filter" }),
                StopReason::Done | StopReason::ToolCalls | StopReason::Repetition => Value::Null,
            };
            let body = json!({ "usage": usage, "incomplete_details": details });
            events_json.push(json!({ "type": "response.completed", "response": body }));
        }
        WireFormat::Anthropic => {
            events_json.push(json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10 } } }));
            let block = json!({ "type": "text", "text": text });
            events_json.push(json!({ "type": "content_block_start", "index": 0, "content_block": block }));
            for (index, (id, arguments)) in calls.iter().enumerate() {
                let block = json!({ "type": "tool_use", "id": id, "name": "write", "input": {} });
                events_json.push(json!({ "type": "content_block_start", "index": index + 1, "content_block": block }));
                let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
                events_json.push(json!({ "type": "content_block_delta", "index": index + 1, "delta": delta }));
            }
            let reason = ["end_turn", "max_tokens", "tool_use", "refusal"][stop as usize];
            let usage = json!({ "output_tokens": 2 });
            events_json.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage }));
            events_json.push(json!({ "type": "message_stop" }));
        }
        WireFormat::Gemini => {
            let mut parts = vec![json!({ "text": text })];
            for (id, arguments) in calls {
                // Arguments arrive as JSON, so they are never incomplete.
                let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
                let call = json!({ "id": id, "name": "write", "args": arguments });
                parts.push(json!({ "functionCall": call, "thoughtSignature": format!("signed {id}") }));
            }
            let reason = ["STOP", "MAX_TOKENS", "STOP", "SAFETY"][stop as usize];
            let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 2 });
            let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
            events_json.push(json!({ "candidates": [candidate], "usageMetadata": usage }));
        }
        WireFormat::Ollama => {
            let call = |(id, arguments): &(&str, &str)| json!({ "id": id, "function": { "name": "write", "arguments": arguments } });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            let reason = ["stop", "length", "stop", "stop"][stop as usize];
            let message = json!({ "content": text, "tool_calls": calls });
            events_json.push(json!({ "message": message, "done": true, "done_reason": reason, "prompt_eval_count": 10, "eval_count": 2 }));
        }
    }
    let events_json: Vec<String> = events_json.iter().map(ToString::to_string).collect();
    let events_json: Vec<&str> = events_json.iter().map(String::as_str).collect();
    if wire == WireFormat::Ollama { lines(&events_json) } else { events(&events_json) }
}

/// The stop reasons of truncated replies. Ollama has no content filter.
fn truncating_stops(wire: WireFormat) -> &'static [StopReason] {
    if wire == WireFormat::Ollama { &[StopReason::Length] } else { &[StopReason::Length, StopReason::ContentFilter] }
}

fn json_request() -> TestRequest {
    let schema = json!({ "type": "object", "required": ["note"], "properties": { "note": { "type": "string" } } });
    ask("write it down").json(schema)
}

#[tokio::test]
async fn truncated_json_is_sent_back_and_never_repaired() {
    for wire in WireFormat::ALL {
        for stop in truncating_stops(wire) {
            let truncated = response(wire, r#"{"note": "buy milk and"#, &[], *stop);
            let complete = response(wire, r#"{"note": "milk"}"#, &[], StopReason::Done);
            let server = Server::new(vec![truncated.clone(), complete]).await;
            let reply = json_request().send_to(&server.vendor(wire)).await.expect("a reply");
            assert_eq!(
                (reply.text.as_str(), reply.stop_reason),
                (r#"{"note": "milk"}"#, StopReason::Done),
                "{wire:?} {stop:?}"
            );
            let complaint = server.received()[1].body.to_string();
            assert!(complaint.contains("it must be shorter"), "{wire:?} {stop:?}: {complaint}");

            let server = Server::new(vec![truncated]).await;
            let failure = json_request().send_to(&server.vendor(wire)).await.expect_err("truncated JSON");
            assert_eq!(failure.kind, CallFailureKind::UnusableReply, "{wire:?} {stop:?}: {failure}");
            assert!(failure.message.contains("the second reply was cut off"), "{failure}");
            let both = TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() };
            assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(both), "both were paid for");
            assert_eq!(server.received().len(), 2, "there is no third attempt");
        }
    }
}

#[tokio::test]
async fn json_that_is_complete_before_the_cut_is_accepted() {
    for wire in WireFormat::ALL {
        for stop in truncating_stops(wire) {
            let text = "{\"note\": \"milk\"}\n\nI chose this since";
            let server = Server::new(vec![response(wire, text, &[], *stop)]).await;
            let reply = json_request().send_to(&server.vendor(wire)).await.expect("a reply");
            assert_eq!((reply.text.as_str(), reply.stop_reason), (r#"{"note":"milk"}"#, *stop), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_complete_first_reply_is_preferred_to_a_truncated_second() {
    let invalid = response(WireFormat::Chat, r#"{"note": 7}"#, &[], StopReason::Done);
    let truncated = response(WireFormat::Chat, r#"{"note": "seve"#, &[], StopReason::Length);
    let server = Server::new(vec![invalid, truncated]).await;
    let reply = json_request().send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.stop_reason), (r#"{"note":7}"#, StopReason::Done));
}

fn tool_calls(reply: &ModelReply) -> Vec<(&str, Value)> {
    reply.tool_calls.iter().map(|call| (call.id.as_str(), call.arguments.clone())).collect()
}

#[tokio::test]
async fn a_truncated_tool_call_is_dropped() {
    let calls = [("a1", r#"{"note":"milk"}"#), ("b2", r#"{"note":"brea"#), ("c3", r#"{"note":"tea"}"#)];
    for wire in WireFormat::ALL {
        for stop in truncating_stops(wire) {
            let server = Server::new(vec![response(wire, "So:", &calls, *stop)]).await;
            let reply = ask("hi").send_to(&server.vendor(wire)).await.expect("a reply");
            assert_eq!(
                tool_calls(&reply),
                [("a1", json!({"note": "milk"})), ("c3", json!({"note": "tea"}))],
                "{wire:?}"
            );
            assert_eq!((reply.text.as_str(), reply.stop_reason), ("So:", *stop), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn vendor_state_stays_with_its_call_when_another_is_truncated() {
    let calls = [("a1", r#"{"note":"brea"#), ("b2", r#"{"note":"tea"}"#)];
    for wire in [WireFormat::Anthropic, WireFormat::Gemini] {
        let server = Server::new(vec![response(wire, "So:", &calls, StopReason::Length)]).await;
        let vendor = server.vendor(wire);
        let mut request = ask("hi");
        let reply = request.send_to(&vendor).await.expect("a reply");
        let state = reply.vendor_state.as_deref().map(Into::into);
        let (tool_calls, message) = (reply.tool_calls, PromptMessage::from_text(ChatRole::Assistant, reply.text));
        Arc::make_mut(&mut request.prompt.messages).push(PromptMessage { tool_calls, vendor_state: state, ..message });
        Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
            tool_call_id: Some("b2".into()),
            ..PromptMessage::from_text(ChatRole::Tool, "done")
        });
        request.send_to(&vendor).await.expect("a reply");
        let body = &server.received()[1].body;
        match wire {
            WireFormat::Anthropic => {
                let call = json!({ "type": "tool_use", "id": "b2", "name": "write", "input": { "note": "tea" } });
                assert_eq!(body["messages"][1]["content"], json!([{ "type": "text", "text": "So:" }, call]));
            }
            _ => {
                let parts = body["contents"][1]["parts"].as_array().expect("parts");
                assert_eq!((parts.len(), &parts[1]["thoughtSignature"]), (2, &json!("signed b2")));
            }
        }
    }
}

#[tokio::test]
async fn a_reply_of_only_a_truncated_call_is_unusable() {
    for wire in WireFormat::ALL {
        for arguments in [r#"{"note":"brea"#, ""] {
            let server = Server::new(vec![response(wire, "", &[("a1", arguments)], StopReason::Length)]).await;
            let failure = ask("hi").send_to(&server.vendor(wire)).await.expect_err("a truncated call");
            assert_eq!(failure.kind, CallFailureKind::UnusableReply, "{wire:?}: {failure}");
            let usage = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
            assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage), "it was paid for");
        }
    }
}

#[tokio::test]
async fn a_complete_reply_is_still_repaired() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![response(wire, r#"{"note": "milk",}"#, &[], StopReason::Done)]).await;
        let reply = json_request().send_to(&server.vendor(wire)).await.expect("a reply");
        assert_eq!(reply.text, r#"{"note":"milk"}"#, "{wire:?}");
        let server =
            Server::new(vec![response(wire, "", &[("a1", r#"{"note":"milk",}"#)], StopReason::ToolCalls)]).await;
        let reply = ask("hi").send_to(&server.vendor(wire)).await.expect("a reply");
        let repaired = if wire == WireFormat::Gemini { json!("{\"note\":\"milk\",}") } else { json!({"note": "milk"}) };
        assert_eq!(tool_calls(&reply), [("a1", repaired)], "{wire:?}");
    }
}
