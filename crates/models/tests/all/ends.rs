//! How answers end, in every format: well, cut off, broken, in a way nobody knows, or with nothing said.

use segue_core::prompt::{CallFailure, FailureKind, ModelReply, StopReason, TokenUsage};
use segue_models::vendor::WireFormat;
use serde_json::json;

use crate::server::{Server, Step, events, lines, of, stream};
use crate::support::ask;

async fn answered(wire: WireFormat, steps: Vec<Step>) -> Result<ModelReply, CallFailure> {
    let server = Server::new(vec![steps]).await;
    ask("hi").of(&of(server.connection(wire))).await
}

/// An answer in chat completions with this reason to end.
async fn chat(reason: &str) -> Result<ModelReply, CallFailure> {
    let last = json!({
        "choices": [{ "delta": { "content": "so" }, "finish_reason": reason }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 2 },
    });
    answered(WireFormat::Chat, events(&[&last.to_string(), "[DONE]"])).await
}

#[tokio::test]
async fn ends_that_servers_have_many_words_for_are_told_apart() {
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
        assert_eq!(chat(reason).await.expect("an answer").stop_reason, stop, "{reason}");
    }
    for (reason, kind) in [
        ("insufficient_system_resource", FailureKind::Overload),
        ("error", FailureKind::MalformedReply),
        ("abort", FailureKind::MalformedReply),
    ] {
        let failure = chat(reason).await.expect_err("it is not whole");
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(reason), "{failure}");
        let usage = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
        assert_eq!(failure.cost.and_then(|spent| spent.usage), Some(usage), "it was made all the same");
    }
}

#[tokio::test]
async fn an_end_that_nobody_knows_is_no_good_end_in_any_format() {
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
        let reply = answered(wire, steps).await.expect("what came is shown");
        assert_eq!((reply.text.as_str(), reply.stop_reason), ("so", StopReason::Length), "{wire:?}");
    }
}

#[tokio::test]
async fn an_event_that_calls_itself_an_error_is_one() {
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";
    for (data, kind) in [
        (r#"{"message":"the model is gone"}"#, FailureKind::Overload),
        (r#"{"message":"This model's maximum context length is 8192 tokens"}"#, FailureKind::ContextTooLong),
        (r#"{"error":{"message":"slow down","code":429}}"#, FailureKind::RateLimit),
        ("it broke", FailureKind::Overload),
    ] {
        let error = format!("event: error\ndata: {data}\n\n");
        let failure =
            answered(WireFormat::Chat, stream(&[begun, &error, "data: [DONE]\n\n"])).await.expect_err("an error");
        assert_eq!(failure.kind, kind, "{failure}");
    }
}

/// An answer of thoughts, or of nothing at all, that ends as if it were whole.
fn empty(wire: WireFormat, thinks: bool) -> Vec<Step> {
    let told: &[&str] = match wire {
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
    let told = if thinks { told } else { &told[1..] };
    if wire == WireFormat::Ollama { lines(told) } else { events(told) }
}

#[tokio::test]
async fn an_answer_with_nothing_in_it_is_no_answer() {
    for wire in WireFormat::ALL {
        for thinks in [true, false] {
            let failure = answered(wire, empty(wire, thinks)).await.expect_err("nothing was said");
            assert_eq!(failure.kind, FailureKind::UnusableReply, "{wire:?}: {failure}");
            assert!(failure.message.contains("had answered nothing"), "{failure}");
            assert!(failure.cost.is_some(), "{wire:?}: it was made all the same");
        }
    }
}

#[tokio::test]
async fn an_empty_message_of_the_assistant_is_not_sent() {
    for (wire, list) in [
        (WireFormat::Chat, "messages"),
        (WireFormat::Responses, "input"),
        (WireFormat::Anthropic, "messages"),
        (WireFormat::Gemini, "contents"),
        (WireFormat::Ollama, "messages"),
    ] {
        let server = Server::new(vec![empty(wire, false)]).await;
        let asking = ask("one").assistant("").user("two");
        // What it answers is not what this is about.
        let _ = asking.of(&server.vendor(wire)).await;
        let body = server.only().body;
        let roles: Vec<_> = body[list].as_array().expect("a list").iter().map(|said| said["role"].clone()).collect();
        assert!(!roles.is_empty() && roles.iter().all(|role| role == "user"), "{wire:?}: {roles:?}");
    }
}
