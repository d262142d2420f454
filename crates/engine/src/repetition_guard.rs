//! Ends a streamed reply that repeats itself without end. It decides by the text alone: the last
//! [`REPETITION_WINDOW_BYTES`] consist of the same passage again and again. The result does not depend on how the text
//! is split into chunks.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream};
use segue_core::prompt::StopReason;
use segue_models::{ReplyChunk, ReplyChunkStream, ReplyFinish};

use crate::limits::{REPETITION_CHECK_BYTES, REPETITION_PASSAGE_BYTES_MAX, REPETITION_WINDOW_BYTES};

/// The end of one reply's text.
#[derive(Debug, Default)]
struct RepetitionGuard {
    window: VecDeque<u8>,
    bytes_since_check: usize,
}

impl RepetitionGuard {
    /// Reads the next chunk. If the text repeats itself, returns how many bytes of the chunk to keep.
    fn push_and_find_repetition(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            if self.window.len() == REPETITION_WINDOW_BYTES {
                self.window.pop_front();
            }
            self.window.push_back(byte);
            self.bytes_since_check += 1;
            if self.bytes_since_check == REPETITION_CHECK_BYTES {
                self.bytes_since_check = 0;
                if self.is_repeating() {
                    return Some((0..=at + 1).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
                }
            }
        }
        None
    }

    fn is_repeating(&mut self) -> bool {
        self.window.len() == REPETITION_WINDOW_BYTES
            && smallest_period(self.window.make_contiguous()) <= REPETITION_PASSAGE_BYTES_MAX
    }
}

/// Returns the smallest distance at which all of `bytes` repeats itself.
fn smallest_period(bytes: &[u8]) -> usize {
    // For each prefix, the length of its longest proper prefix that is also its suffix.
    let mut borders = vec![0; bytes.len()];
    let mut border = 0;
    for at in 1..bytes.len() {
        while border > 0 && bytes[at] != bytes[border] {
            border = borders[border - 1];
        }
        border += usize::from(bytes[at] == bytes[border]);
        borders[at] = border;
    }
    bytes.len() - border
}

/// Ends the stream with [`StopReason::Repetition`] if its text or its reasoning repeats itself. The vendor's stream is
/// dropped then, so its usage is unknown.
pub(crate) fn with_repetition_guard(stream: ReplyChunkStream) -> ReplyChunkStream {
    let guards = (RepetitionGuard::default(), RepetitionGuard::default());
    stream::unfold((Some(stream), guards, false), |(stream, mut guards, is_cut)| async move {
        if is_cut {
            let finish = ReplyFinish { stop: StopReason::Repetition, ..ReplyFinish::default() };
            return Some((Ok(ReplyChunk::Finish(finish)), (None, guards, false)));
        }
        let mut stream = stream?;
        let mut item = stream.next().await?;
        let cut = match &mut item {
            Ok(ReplyChunk::Text(text)) => guards.0.push_and_find_repetition(text).map(|end| text.truncate(end)),
            Ok(ReplyChunk::Reasoning(text)) => guards.1.push_and_find_repetition(text).map(|end| text.truncate(end)),
            _ => None,
        };
        match cut {
            Some(()) => Some((item, (None, guards, true))),
            None => Some((item, (Some(stream), guards, false))),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut_at(chunks: &[&str]) -> Option<usize> {
        let mut guard = RepetitionGuard::default();
        let mut before = 0;
        for chunk in chunks {
            if let Some(end) = guard.push_and_find_repetition(chunk) {
                return Some(before + end);
            }
            before += chunk.len();
        }
        None
    }

    #[test]
    fn repeated_passage_is_cut_soon_after_the_window() {
        for passage in ["a", "The answer is no.\n", "- [ ] é\n\n", &"one two three ".repeat(30)] {
            let text = format!("Well, {}{}", "let us see. 1 2 3\n", passage.repeat(20_000 / passage.len()));
            let end = cut_at(&[&text]).expect("it is cut");
            assert!(end <= REPETITION_WINDOW_BYTES + 2 * REPETITION_CHECK_BYTES, "{passage}: {end}");
        }
    }

    /// Rows, lists and code as models write them: the same form, with other content in every line.
    fn ordinary_line(kind: u8, number: u32) -> String {
        match kind % 5 {
            0 => format!("| row {number} | {} | yes |\n", number * 7 % 13),
            1 => format!("- item {number}\n"),
            2 => format!("    let value_{number} = values[{number}];\n"),
            3 => format!("{number}. Go on to the next house.\n"),
            _ => format!("{number}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,\n"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn tables_lists_and_code_are_not_cut(kind in any::<u8>(), start in 0u32..1_000, lines in 0u32..1_500) {
            let text: String = (start..start + lines).map(|number| ordinary_line(kind, number)).collect();
            prop_assert_eq!(cut_at(&[&text]), None);
        }

        #[test]
        fn short_repetitions_are_not_cut(passage in "[a-z0|\\- \n]{1,60}", bytes in 1usize..3_000) {
            let text = format!("Before.\n{}\nAfter.", passage.repeat(bytes / passage.len()));
            prop_assert_eq!(cut_at(&[&text.repeat(2)]), None);
        }

        #[test]
        fn cut_does_not_depend_on_the_chunks(passage in "[a-zé \n]{1,40}", size in 1usize..900) {
            let text = passage.repeat(12_000 / passage.len());
            let characters: Vec<char> = text.chars().collect();
            let chunks: Vec<String> = characters.chunks(size).map(|chunk| chunk.iter().collect()).collect();
            let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
            let (whole, split) = (cut_at(&[&text]), cut_at(&chunks));
            prop_assert!(whole.is_some());
            prop_assert_eq!(whole, split);
        }
    }
}
