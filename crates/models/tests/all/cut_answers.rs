//! Answers that ended before their models were done, in every format: what is whole in them is used, and nothing is made up for the rest.

use segue_core::prompt::{ChatRole, FailureKind, ModelReply, PromptMessage, StopReason, TokenUsage};
use segue_models::vendor::WireFormat;
use serde_json::{Value, json};

use crate::server::{Server, Step, events, lines};
use crate::support::{Asking, ask};

/// An answer with these words, these calls (id and arguments as they came) and this end.
fn answered(wire: WireFormat, words: &str, calls: &[(&str, &str)], stop: StopReason) -> Vec<Step> {
    let mut told: Vec<Value> = Vec::new();
    match wire {
        WireFormat::Chat => {
            told.push(json!({ "choices": [{ "delta": { "content": words } }] }));
            for (place, (id, arguments)) in calls.iter().enumerate() {
                let function = json!({ "name": "write", "arguments": arguments });
                let call = json!({ "index": place, "id": id, "function": function });
                told.push(json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }));
            }
            let reason = ["stop", "length", "tool_calls", "content_filter"][stop as usize];
            let usage = json!({ "prompt_tokens": 10, "completion_tokens": 2 });
            told.push(json!({ "choices": [{ "delta": {}, "finish_reason": reason }], "usage": usage }));
        }
        WireFormat::Responses => {
            told.push(json!({ "type": "response.output_text.delta", "delta": words }));
            for (id, arguments) in calls {
                let item = json!({ "type": "function_call", "call_id": id, "name": "write", "arguments": arguments });
                told.push(json!({ "type": "response.output_item.done", "item": item }));
            }
            let usage = json!({ "input_tokens": 10, "output_tokens": 2 });
            let details = match stop {
                StopReason::Length => json!({ "reason": "max_output_tokens" }),
                StopReason::ContentFilter => json!({ "reason": "content_filter" }),
                StopReason::Done | StopReason::ToolCalls => Value::Null,
            };
            let response = json!({ "usage": usage, "incomplete_details": details });
            told.push(json!({ "type": "response.completed", "response": response }));
        }
        WireFormat::Anthropic => {
            told.push(json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10 } } }));
            let block = json!({ "type": "text", "text": words });
            told.push(json!({ "type": "content_block_start", "index": 0, "content_block": block }));
            for (place, (id, arguments)) in calls.iter().enumerate() {
                let block = json!({ "type": "tool_use", "id": id, "name": "write", "input": {} });
                told.push(json!({ "type": "content_block_start", "index": place + 1, "content_block": block }));
                let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
                told.push(json!({ "type": "content_block_delta", "index": place + 1, "delta": delta }));
            }
            let reason = ["end_turn", "max_tokens", "tool_use", "refusal"][stop as usize];
            let usage = json!({ "output_tokens": 2 });
            told.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage }));
            told.push(json!({ "type": "message_stop" }));
        }
        WireFormat::Gemini => {
            let mut parts = vec![json!({ "text": words })];
            for (id, arguments) in calls {
                // Its arguments come as JSON; only a strange server sends less.
                let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
                let call = json!({ "id": id, "name": "write", "args": arguments });
                parts.push(json!({ "functionCall": call, "thoughtSignature": format!("signed {id}") }));
            }
            let reason = ["STOP", "MAX_TOKENS", "STOP", "SAFETY"][stop as usize];
            let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 2 });
            let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
            told.push(json!({ "candidates": [candidate], "usageMetadata": usage }));
        }
        WireFormat::Ollama => {
            let call = |(id, arguments): &(&str, &str)| json!({ "id": id, "function": { "name": "write", "arguments": arguments } });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            let reason = ["stop", "length", "stop", "stop"][stop as usize];
            let message = json!({ "content": words, "tool_calls": calls });
            told.push(json!({ "message": message, "done": true, "done_reason": reason, "prompt_eval_count": 10, "eval_count": 2 }));
        }
    }
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    if wire == WireFormat::Ollama { lines(&told) } else { events(&told) }
}

/// In which ways an answer can be cut off in a format. Ollama has no filter.
fn cuts(wire: WireFormat) -> &'static [StopReason] {
    if wire == WireFormat::Ollama { &[StopReason::Length] } else { &[StopReason::Length, StopReason::ContentFilter] }
}

fn writes() -> Asking {
    let schema = json!({ "type": "object", "required": ["note"], "properties": { "note": { "type": "string" } } });
    ask("write it down").json(schema)
}

#[tokio::test]
async fn json_that_was_cut_off_is_sent_back_and_never_mended() {
    for wire in WireFormat::ALL {
        for stop in cuts(wire) {
            let half = answered(wire, r#"{"note": "buy milk and"#, &[], *stop);
            let whole = answered(wire, r#"{"note": "milk"}"#, &[], StopReason::Done);
            let server = Server::new(vec![half.clone(), whole]).await;
            let reply = writes().of(&server.vendor(wire)).await.expect("an answer");
            assert_eq!(
                (reply.text.as_str(), reply.stop_reason),
                (r#"{"note": "milk"}"#, StopReason::Done),
                "{wire:?} {stop:?}"
            );
            let complaint = server.seen()[1].body.to_string();
            assert!(complaint.contains("it must be shorter"), "{wire:?} {stop:?}: {complaint}");

            let server = Server::new(vec![half]).await;
            let failure = writes().of(&server.vendor(wire)).await.expect_err("half a note");
            assert_eq!(failure.kind, FailureKind::UnusableReply, "{wire:?} {stop:?}: {failure}");
            assert!(failure.message.contains("cut off before its end"), "{failure}");
            let both = TokenUsage { input_tokens: 20, output_tokens: 4, ..TokenUsage::default() };
            assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(both), "both were paid for");
            assert_eq!(server.seen().len(), 2, "and no third is asked for");
        }
    }
}

#[tokio::test]
async fn json_that_was_whole_before_the_cut_is_taken() {
    for wire in WireFormat::ALL {
        for stop in cuts(wire) {
            let words = "{\"note\": \"milk\"}\n\nI chose this since";
            let server = Server::new(vec![answered(wire, words, &[], *stop)]).await;
            let reply = writes().of(&server.vendor(wire)).await.expect("an answer");
            assert_eq!((reply.text.as_str(), reply.stop_reason), (r#"{"note":"milk"}"#, *stop), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_first_answer_that_was_whole_goes_before_a_second_that_was_cut_off() {
    let wrong = answered(WireFormat::Chat, r#"{"note": 7}"#, &[], StopReason::Done);
    let half = answered(WireFormat::Chat, r#"{"note": "seve"#, &[], StopReason::Length);
    let server = Server::new(vec![wrong, half]).await;
    let reply = writes().of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.stop_reason), (r#"{"note":7}"#, StopReason::Done));
}

fn kept(reply: &ModelReply) -> Vec<(&str, Value)> {
    reply.tool_calls.iter().map(|call| (call.id.as_str(), call.arguments.clone())).collect()
}

#[tokio::test]
async fn a_tool_call_that_was_cut_off_is_not_made() {
    let calls = [("a1", r#"{"note":"milk"}"#), ("b2", r#"{"note":"brea"#), ("c3", r#"{"note":"tea"}"#)];
    for wire in WireFormat::ALL {
        for stop in cuts(wire) {
            let server = Server::new(vec![answered(wire, "So:", &calls, *stop)]).await;
            let reply = ask("hi").of(&server.vendor(wire)).await.expect("an answer");
            assert_eq!(kept(&reply), [("a1", json!({"note": "milk"})), ("c3", json!({"note": "tea"}))], "{wire:?}");
            assert_eq!((reply.text.as_str(), reply.stop_reason), ("So:", *stop), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn what_is_sealed_stays_with_its_call_when_another_was_cut_off() {
    let calls = [("a1", r#"{"note":"brea"#), ("b2", r#"{"note":"tea"}"#)];
    for wire in [WireFormat::Anthropic, WireFormat::Gemini] {
        let server = Server::new(vec![answered(wire, "So:", &calls, StopReason::Length)]).await;
        let vendor = server.vendor(wire);
        let mut asking = ask("hi");
        let reply = asking.of(&vendor).await.expect("an answer");
        let seal = reply.vendor_state.as_deref().map(Into::into);
        let (tool_calls, said) = (reply.tool_calls, PromptMessage::from_text(ChatRole::Assistant, reply.text));
        asking.prompt.messages_mut().push(PromptMessage { tool_calls, vendor_state: seal, ..said });
        asking.prompt.messages_mut().push(PromptMessage {
            tool_call_id: Some("b2".into()),
            ..PromptMessage::from_text(ChatRole::Tool, "done")
        });
        asking.of(&vendor).await.expect("an answer");
        let body = &server.seen()[1].body;
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
async fn nothing_but_a_call_that_was_cut_off_is_no_answer() {
    for wire in WireFormat::ALL {
        for arguments in [r#"{"note":"brea"#, ""] {
            let server = Server::new(vec![answered(wire, "", &[("a1", arguments)], StopReason::Length)]).await;
            let failure = ask("hi").of(&server.vendor(wire)).await.expect_err("half a call");
            assert_eq!(failure.kind, FailureKind::UnusableReply, "{wire:?}: {failure}");
            let usage = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
            assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage), "it was made all the same");
        }
    }
}

#[tokio::test]
async fn whoever_was_done_is_still_mended() {
    for wire in WireFormat::ALL {
        let server = Server::new(vec![answered(wire, r#"{"note": "milk",}"#, &[], StopReason::Done)]).await;
        let reply = writes().of(&server.vendor(wire)).await.expect("an answer");
        assert_eq!(reply.text, r#"{"note":"milk"}"#, "{wire:?}");
        let server =
            Server::new(vec![answered(wire, "", &[("a1", r#"{"note":"milk",}"#)], StopReason::ToolCalls)]).await;
        let reply = ask("hi").of(&server.vendor(wire)).await.expect("an answer");
        let mended = if wire == WireFormat::Gemini { json!("{\"note\":\"milk\",}") } else { json!({"note": "milk"}) };
        assert_eq!(kept(&reply), [("a1", mended)], "{wire:?}");
    }
}
