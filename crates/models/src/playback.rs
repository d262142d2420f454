//! Plays a prepared reply as a stream: in chunks, with delays, failing or hanging where requested. Delays use tokio's clock;
//! a reply without delays needs no runtime.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{StreamExt, future, stream};
use segue_core::prompt::{CallFailure, ToolCall};

use crate::model::{ReplyChunk, ReplyChunkStream, ReplyFinish};
use crate::text::TextChunkIterator;

/// One step of a prepared reply.
#[derive(Debug)]
pub(crate) enum ReplyPlaybackStep {
    Wait(Duration),
    Reasoning(String),
    Text(TextChunkIterator),
    ToolCall(ToolCall),
    Finish(ReplyFinish),
    Fail(CallFailure),
    Hang,
}

/// A prepared reply.
#[derive(Debug, Default)]
pub(crate) struct ReplyPlayback {
    steps: VecDeque<ReplyPlaybackStep>,
    chunk_delay: Duration,
    text_chunks_sent: usize,
    fail_after_chunks: Option<(usize, CallFailure)>,
}

impl ReplyPlayback {
    pub(crate) fn new(steps: impl IntoIterator<Item = ReplyPlaybackStep>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Sets the delay between text chunks.
    pub(crate) fn with_chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Fails after this many text chunks, or at the end of the reply if it has fewer.
    pub(crate) fn failing_after_chunks(mut self, text_chunks: usize, failure: CallFailure) -> Self {
        self.fail_after_chunks = Some((text_chunks, failure));
        self
    }

    pub(crate) fn into_stream(self) -> ReplyChunkStream {
        stream::unfold(self, |mut playback| async move {
            let item = playback.next_chunk().await?;
            Some((item, playback))
        })
        .boxed()
    }

    async fn next_chunk(&mut self) -> Option<Result<ReplyChunk, CallFailure>> {
        loop {
            match self.steps.pop_front()? {
                ReplyPlaybackStep::Wait(time) => sleep_unless_zero(time).await,
                ReplyPlaybackStep::Reasoning(text) => return Some(Ok(ReplyChunk::Reasoning(text))),
                ReplyPlaybackStep::ToolCall(call) => return Some(Ok(ReplyChunk::ToolCall(call))),
                ReplyPlaybackStep::Fail(failure) => return Some(Err(self.clear_and_fail(failure))),
                ReplyPlaybackStep::Hang => future::pending().await,
                ReplyPlaybackStep::Finish(finish) => {
                    return Some(match self.fail_after_chunks.take() {
                        Some((_, failure)) => Err(self.clear_and_fail(failure)),
                        None => Ok(ReplyChunk::Finish(finish)),
                    });
                }
                ReplyPlaybackStep::Text(mut chunks) => {
                    let Some(text) = chunks.next() else { continue };
                    if let Some((_, failure)) =
                        self.fail_after_chunks.take_if(|(after, _)| *after <= self.text_chunks_sent)
                    {
                        return Some(Err(self.clear_and_fail(failure)));
                    }
                    self.steps.push_front(ReplyPlaybackStep::Text(chunks));
                    if self.text_chunks_sent > 0 {
                        sleep_unless_zero(self.chunk_delay).await;
                    }
                    self.text_chunks_sent += 1;
                    return Some(Ok(ReplyChunk::Text(text)));
                }
            }
        }
    }

    fn clear_and_fail(&mut self, failure: CallFailure) -> CallFailure {
        self.steps.clear();
        failure
    }
}

async fn sleep_unless_zero(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use segue_core::prompt::CallFailureKind;
    use tokio::time::Instant;

    use super::*;

    fn letters(text: &str) -> ReplyPlaybackStep {
        ReplyPlaybackStep::Text(TextChunkIterator::split_every(text.to_owned(), 1))
    }

    fn end() -> ReplyPlaybackStep {
        ReplyPlaybackStep::Finish(ReplyFinish::default())
    }

    fn broken() -> CallFailure {
        CallFailure::new(CallFailureKind::Network, "cut")
    }

    fn text_of(items: &[Result<ReplyChunk, CallFailure>]) -> String {
        items
            .iter()
            .filter_map(|item| if let Ok(ReplyChunk::Text(text)) = item { Some(text.as_str()) } else { None })
            .collect()
    }

    #[test]
    fn a_reply_without_delays_needs_no_runtime() {
        let items: Vec<_> =
            ReplyPlayback::new([letters("abc"), end()]).into_stream().collect().now_or_never().expect("at once");
        assert_eq!((text_of(&items).as_str(), items.len()), ("abc", 4));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_apply_before_the_first_and_between_chunks() {
        let start = Instant::now();
        let steps = [ReplyPlaybackStep::Wait(Duration::from_millis(500)), letters("abc"), end()];
        let items: Vec<_> =
            ReplyPlayback::new(steps).with_chunk_delay(Duration::from_millis(10)).into_stream().collect().await;
        assert_eq!(items.len(), 4);
        assert_eq!(start.elapsed().as_millis(), 520);
    }

    #[test]
    fn a_failure_comes_after_the_given_number_of_chunks_and_ends_the_stream() {
        for (after, expected) in [(0, ""), (2, "ab"), (3, "abc"), (9, "abc")] {
            let playback = ReplyPlayback::new([letters("abc"), end()]).failing_after_chunks(after, broken());
            let items: Vec<_> = playback.into_stream().collect().now_or_never().expect("at once");
            assert_eq!(text_of(&items), expected);
            assert_eq!(items.last(), Some(&Err(broken())), "after {after}");
            assert_eq!(items.len(), expected.len() + 1);
        }
    }

    #[test]
    fn nothing_follows_a_failure() {
        let steps = [ReplyPlaybackStep::Fail(broken()), letters("abc"), end()];
        let items: Vec<_> = ReplyPlayback::new(steps).into_stream().collect().now_or_never().expect("at once");
        assert_eq!(items, [Err(broken())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_reply_never_ends_and_can_be_dropped() {
        let mut stream = ReplyPlayback::new([letters("a"), ReplyPlaybackStep::Hang, end()]).into_stream();
        assert_eq!(stream.next().await, Some(Ok(ReplyChunk::Text("a".into()))));
        let next = tokio::time::timeout(Duration::from_secs(3600), stream.next()).await;
        assert!(next.is_err(), "still hanging after an hour");
    }
}
