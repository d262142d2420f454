//! Plays a prepared answer as a stream: in pieces, with pauses, breaking off or hanging where it is told to. Pauses go
//! through tokio's clock; an answer without pauses needs no runtime at all.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{StreamExt, future, stream};
use segue_core::prompt::{Failure, ToolCall};

use crate::model::{Chunk, ChunkStream, Finish};
use crate::text::Pieces;

/// One thing that happens while an answer is played.
#[derive(Debug)]
pub(crate) enum Beat {
    Wait(Duration),
    Reasoning(String),
    Text(Pieces),
    ToolCall(ToolCall),
    Finish(Finish),
    Fail(Failure),
    Hang,
}

/// A prepared answer.
#[derive(Debug, Default)]
pub(crate) struct Playback {
    beats: VecDeque<Beat>,
    gap: Duration,
    text_chunks: usize,
    breaks: Option<(usize, Failure)>,
}

impl Playback {
    pub(crate) fn new(beats: impl IntoIterator<Item = Beat>) -> Self {
        Self { beats: beats.into_iter().collect(), ..Self::default() }
    }

    /// Pauses between chunks of text.
    pub(crate) fn with_gap(mut self, gap: Duration) -> Self {
        self.gap = gap;
        self
    }

    /// Fails once so many chunks of text were sent, at the latest where the answer would end.
    pub(crate) fn breaking_after(mut self, text_chunks: usize, failure: Failure) -> Self {
        self.breaks = Some((text_chunks, failure));
        self
    }

    pub(crate) fn into_stream(self) -> ChunkStream {
        stream::unfold(self, |mut playback| async move {
            let item = playback.next().await?;
            Some((item, playback))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<Chunk, Failure>> {
        loop {
            match self.beats.pop_front()? {
                Beat::Wait(time) => pause(time).await,
                Beat::Reasoning(text) => return Some(Ok(Chunk::Reasoning(text))),
                Beat::ToolCall(call) => return Some(Ok(Chunk::ToolCall(call))),
                Beat::Fail(failure) => return Some(Err(self.fail(failure))),
                Beat::Hang => future::pending().await,
                Beat::Finish(finish) => {
                    return Some(match self.breaks.take() {
                        Some((_, failure)) => Err(self.fail(failure)),
                        None => Ok(Chunk::Finish(finish)),
                    });
                }
                Beat::Text(mut pieces) => {
                    let Some(piece) = pieces.next() else { continue };
                    if let Some((_, failure)) = self.breaks.take_if(|(after, _)| *after <= self.text_chunks) {
                        return Some(Err(self.fail(failure)));
                    }
                    self.beats.push_front(Beat::Text(pieces));
                    if self.text_chunks > 0 {
                        pause(self.gap).await;
                    }
                    self.text_chunks += 1;
                    return Some(Ok(Chunk::Text(piece)));
                }
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Failure {
        self.beats.clear();
        failure
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use segue_core::prompt::FailureKind;
    use tokio::time::Instant;

    use super::*;

    fn letters(text: &str) -> Beat {
        Beat::Text(Pieces::cut(text.to_owned(), 1))
    }

    fn end() -> Beat {
        Beat::Finish(Finish::default())
    }

    fn broken() -> Failure {
        Failure::new(FailureKind::Network, "cut")
    }

    fn text_of(items: &[Result<Chunk, Failure>]) -> String {
        items
            .iter()
            .filter_map(|item| if let Ok(Chunk::Text(text)) = item { Some(text.as_str()) } else { None })
            .collect()
    }

    #[test]
    fn without_pauses_no_runtime_is_needed() {
        let items: Vec<_> =
            Playback::new([letters("abc"), end()]).into_stream().collect().now_or_never().expect("at once");
        assert_eq!((text_of(&items).as_str(), items.len()), ("abc", 4));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_kept_before_the_first_and_between_chunks() {
        let start = Instant::now();
        let beats = [Beat::Wait(Duration::from_millis(500)), letters("abc"), end()];
        let items: Vec<_> = Playback::new(beats).with_gap(Duration::from_millis(10)).into_stream().collect().await;
        assert_eq!(items.len(), 4);
        assert_eq!(start.elapsed().as_millis(), 520);
    }

    #[test]
    fn a_break_comes_after_the_given_number_of_chunks_and_ends_the_stream() {
        for (after, said) in [(0, ""), (2, "ab"), (3, "abc"), (9, "abc")] {
            let playback = Playback::new([letters("abc"), end()]).breaking_after(after, broken());
            let items: Vec<_> = playback.into_stream().collect().now_or_never().expect("at once");
            assert_eq!(text_of(&items), said);
            assert_eq!(items.last(), Some(&Err(broken())), "after {after}");
            assert_eq!(items.len(), said.len() + 1);
        }
    }

    #[test]
    fn nothing_follows_a_failure() {
        let beats = [Beat::Fail(broken()), letters("abc"), end()];
        let items: Vec<_> = Playback::new(beats).into_stream().collect().now_or_never().expect("at once");
        assert_eq!(items, [Err(broken())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_answer_never_ends_and_can_be_dropped() {
        let mut stream = Playback::new([letters("a"), Beat::Hang, end()]).into_stream();
        assert_eq!(stream.next().await, Some(Ok(Chunk::Text("a".into()))));
        let next = tokio::time::timeout(Duration::from_secs(3600), stream.next()).await;
        assert!(next.is_err(), "still hanging after an hour");
    }
}
