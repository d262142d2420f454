//! Puts a stream of chunks together into a whole reply, within bounds. A stream that ends without saying so is malformed;
//! what is done about a failure is decided elsewhere.

use futures_util::StreamExt;
use segue_core::prompt::{Failure, FailureKind, Reply};

use crate::limits::{REPLY_BYTES_MAX, REPLY_TOOL_CALLS_MAX};
use crate::model::{Chunk, ChunkStream};

/// Reads a stream to its end, showing each chunk to `on_chunk` as it comes. Dropping the future cancels the call.
///
/// # Errors
/// The stream's own failure; `Malformed` if it ends early; `Unusable` if it exceeds [`REPLY_BYTES_MAX`] or [`REPLY_TOOL_CALLS_MAX`].
pub async fn collect(mut stream: ChunkStream, mut on_chunk: impl FnMut(&Chunk)) -> Result<Reply, Failure> {
    let mut reply = Reply::default();
    let mut bytes = 0usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        bytes = bytes.saturating_add(weight(&chunk));
        if bytes > REPLY_BYTES_MAX {
            return Err(unusable(format!("the answer is longer than {REPLY_BYTES_MAX} bytes")));
        }
        if matches!(chunk, Chunk::ToolCall(_)) && reply.tool_calls.len() == REPLY_TOOL_CALLS_MAX {
            return Err(unusable(format!("the answer calls more than {REPLY_TOOL_CALLS_MAX} tools")));
        }
        on_chunk(&chunk);
        match chunk {
            Chunk::Text(text) => reply.text.push_str(&text),
            Chunk::Reasoning(text) => reply.reasoning.push_str(&text),
            Chunk::ToolCall(call) => reply.tool_calls.push(call),
            Chunk::Seal(seal) => reply.seal = Some(seal),
            Chunk::Alive => {}
            Chunk::Finish(finish) => {
                reply.stop = finish.stop;
                reply.usage = finish.usage;
                reply.sent_back = finish.sent_back;
                return Ok(reply);
            }
        }
    }
    let broken_off = Failure::new(FailureKind::Malformed, "the answer broke off before its end");
    Err(if bytes > 0 { broken_off.after(None) } else { broken_off })
}

fn weight(chunk: &Chunk) -> usize {
    match chunk {
        Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::Seal(text) => text.len(),
        Chunk::ToolCall(call) => call.id.len() + call.name.as_str().len() + call.arguments.to_string().len(),
        Chunk::Alive | Chunk::Finish(_) => 0,
    }
}

/// Nobody can use an answer of any length, and it was made all the same.
fn unusable(message: String) -> Failure {
    Failure::new(FailureKind::Unusable, message).after(None)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use segue_core::prompt::{Stop, ToolCall, Usage};
    use serde_json::json;

    use super::*;
    use crate::model::Finish;

    fn run(chunks: Vec<Result<Chunk, Failure>>) -> (Result<Reply, Failure>, usize) {
        let mut shown = 0;
        let reply = collect(stream::iter(chunks).boxed(), |_| shown += 1).now_or_never().expect("nothing to wait for");
        (reply, shown)
    }

    fn text(text: &str) -> Result<Chunk, Failure> {
        Ok(Chunk::Text(text.to_owned()))
    }

    fn call() -> Result<Chunk, Failure> {
        Ok(Chunk::ToolCall(ToolCall { id: "1".into(), name: "look".into(), arguments: json!({"at": "sky"}) }))
    }

    #[test]
    fn chunks_become_one_reply_and_each_is_shown() {
        let usage = Some(Usage { input: 3, output: 2, ..Usage::default() });
        let finish = Ok(Chunk::Finish(Finish { stop: Stop::Tools, usage, ..Finish::default() }));
        let (reply, shown) = run(vec![Ok(Chunk::Reasoning("hm".into())), text("a"), text("b"), call(), finish]);
        let reply = reply.expect("a whole stream");
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("ab", "hm"));
        assert_eq!((reply.tool_calls.len(), reply.stop, reply.usage), (1, Stop::Tools, usage));
        assert_eq!(shown, 5);
    }

    #[test]
    fn a_stream_without_an_end_is_malformed() {
        for chunks in [vec![], vec![text("half")]] {
            assert_eq!(run(chunks).0.expect_err("no finish").kind, FailureKind::Malformed);
        }
    }

    #[test]
    fn a_failure_in_the_middle_is_the_outcome() {
        let (reply, shown) = run(vec![text("a"), Err(Failure::new(FailureKind::Overload, "full")), text("b")]);
        assert_eq!(reply.expect_err("it failed").kind, FailureKind::Overload);
        assert_eq!(shown, 1);
    }

    #[test]
    fn an_endless_answer_is_cut_off_and_the_excess_is_not_shown() {
        let piece = "x".repeat(1 << 20);
        let (reply, shown) = run((0..10).map(|_| text(&piece)).collect());
        assert_eq!(reply.expect_err("too long").kind, FailureKind::Unusable);
        assert_eq!(shown, REPLY_BYTES_MAX >> 20);
        let (reply, shown) = run((0..1000).map(|_| call()).collect());
        assert_eq!(reply.expect_err("too many").kind, FailureKind::Unusable);
        assert_eq!(shown, REPLY_TOOL_CALLS_MAX);
    }
}
