//! Collects a stream of chunks into a complete reply, within limits. A stream without a final chunk is malformed. Retries
//! are decided elsewhere.

use futures_util::StreamExt;
use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply};

use crate::limits::{REPLY_BYTES_MAX, REPLY_TOOL_CALLS_MAX};
use crate::model::{ReplyChunk, ReplyChunkStream};

/// Reads a stream to its end and passes each chunk to `on_chunk`. Dropping the future cancels the call.
///
/// # Errors
/// The stream's own failure; `MalformedReply` if it ends early; `UnusableReply` if it exceeds [`REPLY_BYTES_MAX`] or
/// [`REPLY_TOOL_CALLS_MAX`].
pub async fn collect_reply(
    mut stream: ReplyChunkStream,
    mut on_chunk: impl FnMut(&ReplyChunk),
) -> Result<ModelReply, CallFailure> {
    let mut reply = ModelReply::default();
    let mut bytes = 0usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        bytes = bytes.saturating_add(chunk_bytes(&chunk));
        if bytes > REPLY_BYTES_MAX {
            return Err(unusable_reply_failure(format!("the reply is longer than {REPLY_BYTES_MAX} bytes")));
        }
        if matches!(chunk, ReplyChunk::ToolCall(_)) && reply.tool_calls.len() == REPLY_TOOL_CALLS_MAX {
            return Err(unusable_reply_failure(format!("the reply makes more than {REPLY_TOOL_CALLS_MAX} tool calls")));
        }
        on_chunk(&chunk);
        match chunk {
            ReplyChunk::Text(text) => reply.text.push_str(&text),
            ReplyChunk::Reasoning(text) => reply.reasoning.push_str(&text),
            ReplyChunk::ToolCall(call) => reply.tool_calls.push(call),
            ReplyChunk::VendorState(state) => reply.vendor_state = Some(state),
            ReplyChunk::KeepAlive => {}
            ReplyChunk::Finish(finish) => {
                reply.stop_reason = finish.stop;
                reply.usage = finish.usage;
                reply.rejected_usage = finish.rejected_usage;
                return Ok(reply);
            }
        }
    }
    let incomplete = CallFailure::new(CallFailureKind::MalformedReply, "the reply ended before it was complete");
    Err(if bytes > 0 { incomplete.with_usage(None) } else { incomplete })
}

fn chunk_bytes(chunk: &ReplyChunk) -> usize {
    match chunk {
        ReplyChunk::Text(text) | ReplyChunk::Reasoning(text) | ReplyChunk::VendorState(text) => text.len(),
        ReplyChunk::ToolCall(call) => call.id.len() + call.name.as_str().len() + call.arguments.to_string().len(),
        ReplyChunk::KeepAlive | ReplyChunk::Finish(_) => 0,
    }
}

/// The vendor produced output, so the attempt has a cost, of unknown size.
fn unusable_reply_failure(message: String) -> CallFailure {
    CallFailure::new(CallFailureKind::UnusableReply, message).with_usage(None)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use segue_core::prompt::{StopReason, TokenUsage, ToolCall};
    use serde_json::json;

    use super::*;
    use crate::model::ReplyFinish;

    fn run(chunks: Vec<Result<ReplyChunk, CallFailure>>) -> (Result<ModelReply, CallFailure>, usize) {
        let mut shown = 0;
        let reply =
            collect_reply(stream::iter(chunks).boxed(), |_| shown += 1).now_or_never().expect("nothing to wait for");
        (reply, shown)
    }

    fn text(text: &str) -> Result<ReplyChunk, CallFailure> {
        Ok(ReplyChunk::Text(text.to_owned()))
    }

    fn call() -> Result<ReplyChunk, CallFailure> {
        Ok(ReplyChunk::ToolCall(ToolCall { id: "1".into(), name: "look".into(), arguments: json!({"at": "sky"}) }))
    }

    #[test]
    fn chunks_become_one_reply_and_each_is_shown() {
        let usage = Some(TokenUsage { input_tokens: 3, output_tokens: 2, ..TokenUsage::default() });
        let finish =
            Ok(ReplyChunk::Finish(ReplyFinish { stop: StopReason::ToolCalls, usage, ..ReplyFinish::default() }));
        let (reply, shown) = run(vec![Ok(ReplyChunk::Reasoning("hm".into())), text("a"), text("b"), call(), finish]);
        let reply = reply.expect("a whole stream");
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("ab", "hm"));
        assert_eq!((reply.tool_calls.len(), reply.stop_reason, reply.usage), (1, StopReason::ToolCalls, usage));
        assert_eq!(shown, 5);
    }

    #[test]
    fn a_stream_without_an_end_is_malformed() {
        for chunks in [vec![], vec![text("half")]] {
            assert_eq!(run(chunks).0.expect_err("no finish").kind, CallFailureKind::MalformedReply);
        }
    }

    #[test]
    fn a_failure_in_the_middle_is_the_outcome() {
        let (reply, shown) = run(vec![text("a"), Err(CallFailure::new(CallFailureKind::Overload, "full")), text("b")]);
        assert_eq!(reply.expect_err("it failed").kind, CallFailureKind::Overload);
        assert_eq!(shown, 1);
    }

    #[test]
    fn an_endless_reply_is_cut_off_and_the_excess_is_not_shown() {
        let chunk = "x".repeat(1 << 20);
        let (reply, shown) = run((0..10).map(|_| text(&chunk)).collect());
        assert_eq!(reply.expect_err("too long").kind, CallFailureKind::UnusableReply);
        assert_eq!(shown, REPLY_BYTES_MAX >> 20);
        let (reply, shown) = run((0..1000).map(|_| call()).collect());
        assert_eq!(reply.expect_err("too many").kind, CallFailureKind::UnusableReply);
        assert_eq!(shown, REPLY_TOOL_CALLS_MAX);
    }
}
