//! How replies end, in every format: complete, truncated, broken, for an unknown reason, or empty.

use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply, StopReason, TokenUsage};
use segue_models::vendor::WireFormat;
use serde_json::json;

use crate::server::{Server, Step, events, lines, stream, vendor_model};
use crate::support::ask;

async fn reply_to(wire: WireFormat, steps: Vec<Step>) -> Result<ModelReply, CallFailure> {
    let server = Server::new(vec![steps]).await;
    ask("hi").send_to(&vendor_model(server.endpoint(wire))).await
}

/// A chat completion with this finish reason.
async fn chat_reply(reason: &str) -> Result<ModelReply, CallFailure> {
    let last = json!({
        "choices": [{ "delta": { "content": "so" }, "finish_reason": reason }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 2 },
    });
    reply_to(WireFormat::Chat, events(&[&last.to_string(), "[DONE]"])).await
}

#[tokio::test]
async fn finish_reasons_of_many_servers_are_mapped() {
    for (reason, stop) in [
        ("stop", StopReason::Done),
        ("eos", StopReason::Done),
        ("end_turn", StopReason::Done),
        ("stop_sequence", StopReason::Done),
        ("COMPLETE", StopReason::Done),
        ("tool_calls", StopReason::ToolCalls),
        ("function_call", StopReason::ToolCalls),
        ("length", StopReason::Length),
        ("model_length", StopReason::Length),
        ("content_filter", StopReason::ContentFilter),
    ] {
        assert_eq!(chat_reply(reason).await.expect("a reply").stop_reason, stop, "{reason}");
    }
    for (reason, kind) in [
        ("insufficient_system_resource", CallFailureKind::Overload),
        ("error", CallFailureKind::MalformedReply),
        ("abort", CallFailureKind::MalformedReply),
    ] {
        let failure = chat_reply(reason).await.expect_err("incomplete");
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(reason), "{failure}");
        let usage = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
        assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage), "it was paid for");
    }
}

#[tokio::test]
async fn an_unknown_finish_reason_counts_as_truncated_in_every_format() {
    for wire in WireFormat::ALL {
        let steps = match wire {
            WireFormat::Chat => {
                events(&[r#"{"choices":[{"delta":{"content":"so"},"finish_reason":"moonrise"}]}"#, "[DONE]"])
            }
            WireFormat::Responses => events(&[
                r#"{"type":"response.output_text.delta","delta":"so"}"#,
                r#"{"type":"response.completed","response":{"status":"moonrise"}}"#,
            ]),
            WireFormat::Anthropic => events(&[
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"moonrise"}}"#,
                r#"{"type":"message_stop"}"#,
            ]),
            WireFormat::Gemini => {
                events(&[r#"{"candidates":[{"content":{"parts":[{"text":"so"}]},"finishReason":"MOONRISE"}]}"#])
            }
            WireFormat::Ollama => lines(&[r#"{"message":{"content":"so"},"done":true,"done_reason":"moonrise"}"#]),
        };
        let reply = reply_to(wire, steps).await.expect("the text is shown");
        assert_eq!((reply.text.as_str(), reply.stop_reason), ("so", StopReason::Length), "{wire:?}");
    }
}

#[tokio::test]
async fn an_error_event_is_a_failure() {
    let beginning = "data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";
    for (data, kind) in [
        (r#"{"message":"the model is gone"}"#, CallFailureKind::Overload),
        (r#"{"message":"This model's maximum context length is 8192 tokens"}"#, CallFailureKind::ContextTooLong),
        (r#"{"error":{"message":"slow down","code":429}}"#, CallFailureKind::RateLimit),
        ("it broke", CallFailureKind::Overload),
    ] {
        let error = format!("event: error\ndata: {data}\n\n");
        let failure =
            reply_to(WireFormat::Chat, stream(&[beginning, &error, "data: [DONE]\n\n"])).await.expect_err("an error");
        assert_eq!(failure.kind, kind, "{failure}");
    }
}

/// A complete response without text, with or without reasoning.
fn empty_response(wire: WireFormat, has_reasoning: bool) -> Vec<Step> {
    let data: &[&str] = match wire {
        WireFormat::Chat => &[
            r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"content":" \n"},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        WireFormat::Responses => &[
            r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#,
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ],
        WireFormat::Anthropic => &[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        WireFormat::Gemini => &[
            r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}"#,
            r#"{"candidates":[{"finishReason":"STOP"}]}"#,
        ],
        WireFormat::Ollama => {
            &[r#"{"message":{"thinking":"hm"}}"#, r#"{"message":{},"done":true,"done_reason":"stop"}"#]
        }
    };
    let data = if has_reasoning { data } else { &data[1..] };
    if wire == WireFormat::Ollama { lines(data) } else { events(data) }
}

#[tokio::test]
async fn an_empty_reply_is_unusable() {
    for wire in WireFormat::ALL {
        for has_reasoning in [true, false] {
            let failure = reply_to(wire, empty_response(wire, has_reasoning)).await.expect_err("an empty reply");
            assert_eq!(failure.kind, CallFailureKind::UnusableReply, "{wire:?}: {failure}");
            assert!(failure.message.contains("finished without a reply"), "{failure}");
            assert!(failure.cost.is_some(), "{wire:?}: it was paid for");
        }
    }
}

#[tokio::test]
async fn an_empty_assistant_message_is_not_sent() {
    for (wire, list) in [
        (WireFormat::Chat, "messages"),
        (WireFormat::Responses, "input"),
        (WireFormat::Anthropic, "messages"),
        (WireFormat::Gemini, "contents"),
        (WireFormat::Ollama, "messages"),
    ] {
        let server = Server::new(vec![empty_response(wire, false)]).await;
        let request = ask("one").assistant("").user("two");
        // Only the request matters here.
        let _ = request.send_to(&server.vendor(wire)).await;
        let body = server.only_request().body;
        let roles: Vec<_> =
            body[list].as_array().expect("a list").iter().map(|message| message["role"].clone()).collect();
        assert!(!roles.is_empty() && roles.iter().all(|role| role == "user"), "{wire:?}: {roles:?}");
    }
}
