//! Ends a streamed reply that repeats itself without end. It decides by the text alone, in one of two ways:
//!
//! - The last [`REPETITION_WINDOW_BYTES`] consist of the same passage again and again.
//! - A passage of prose of at least [`REPEATED_PROSE_BYTES_MIN`] was said twice in a row and begins once more. Code blocks
//!   and replies that are JSON are no prose: data may repeat itself.
//!
//! The result does not depend on how the text is split into chunks.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream};
use segue_core::prompt::StopReason;
use segue_models::{ReplyChunk, ReplyChunkStream, ReplyFinish};

use crate::limits::{
    REPEATED_PROSE_BEGINNING_BYTES, REPEATED_PROSE_BYTES_MIN, REPETITION_CHECK_BYTES, REPETITION_PASSAGE_BYTES_MAX,
    REPETITION_WINDOW_BYTES,
};

/// The end of one reply's text.
#[derive(Debug, Default)]
struct ReplyRepetitionDetector {
    window: VecDeque<u8>,
    bytes_since_check: usize,
    prose: TrailingProseCounter,
}

impl ReplyRepetitionDetector {
    /// Reads the next chunk. If the text repeats itself, returns how many bytes of the chunk to keep.
    fn push_and_find_repetition(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            if self.window.len() == REPETITION_WINDOW_BYTES {
                self.window.pop_front();
            }
            self.window.push_back(byte);
            self.prose.push(byte);
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

    fn is_repeating(&self) -> bool {
        let prose_bytes = self.prose.bytes.min(self.window.len());
        if self.window.len() < REPETITION_WINDOW_BYTES && prose_bytes < 2 * REPEATED_PROSE_BYTES_MIN {
            return false;
        }
        let backwards: Vec<u8> = self.window.iter().rev().copied().collect();
        let periods = smallest_periods(&backwards);
        let is_repeated_prose = |(length, period): (usize, usize)| {
            period >= REPEATED_PROSE_BYTES_MIN && length >= 2 * period + REPEATED_PROSE_BEGINNING_BYTES
        };
        let is_full = backwards.len() == REPETITION_WINDOW_BYTES;
        is_full && periods.last().is_some_and(|period| *period <= REPETITION_PASSAGE_BYTES_MAX)
            || (1..=prose_bytes).zip(periods.iter().copied()).any(is_repeated_prose)
    }
}

/// How much of the end of a text is prose.
#[derive(Debug, Default)]
struct TrailingProseCounter {
    /// The bytes since the last line of code. None if the reply is JSON.
    bytes: usize,
    is_json: bool,
    has_begun: bool,
    is_in_code_block: bool,
    /// The first characters of the current line, without spaces.
    line_start: Vec<u8>,
}

impl TrailingProseCounter {
    fn push(&mut self, byte: u8) {
        if !self.has_begun && !byte.is_ascii_whitespace() {
            self.has_begun = true;
            self.is_json = matches!(byte, b'{' | b'[');
        }
        if byte == b'\n' {
            self.line_start.clear();
        } else if self.line_start.len() < 3 && byte != b' ' {
            self.line_start.push(byte);
            if matches!(self.line_start.as_slice(), b"```" | b"~~~") {
                self.is_in_code_block = !self.is_in_code_block;
                self.bytes = 0;
            }
        }
        self.bytes = if self.is_json || self.is_in_code_block { 0 } else { self.bytes + 1 };
    }
}

/// Returns for each prefix of `bytes` the smallest distance at which all of it repeats itself.
fn smallest_periods(bytes: &[u8]) -> Vec<usize> {
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
    borders.iter().zip(1..).map(|(border, length)| length - border).collect()
}

/// Ends the stream with [`StopReason::Repetition`] if its text or its reasoning repeats itself. The vendor's stream is
/// dropped then, so its usage is unknown.
pub(crate) fn with_repetition_guard(stream: ReplyChunkStream) -> ReplyChunkStream {
    let guards = (ReplyRepetitionDetector::default(), ReplyRepetitionDetector::default());
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
        let mut guard = ReplyRepetitionDetector::default();
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

    const PROSE: &str = "Renting is often more convenient than buying, because you do not have to pay for the down payment \
        or for the initial costs. It is a good choice if you have enough savings to cover the deposit and the rent, and if \
        you may want to move again within a few years.\n\n";

    #[test]
    fn passage_of_prose_that_begins_for_the_third_time_is_cut() {
        let whole = format!("Rent a flat. {}", PROSE.repeat(5));
        let end = cut_at(&[&whole]).expect("it is cut");
        assert!(end > 2 * PROSE.len() && end < 3 * PROSE.len() + REPETITION_CHECK_BYTES, "{end}");
        assert_eq!(cut_at(&[&format!("Rent a flat. {}", PROSE.repeat(2))]), None, "a refrain is sung twice");
        let verses: String = (1..=5).map(|verse| format!("Verse {verse} is another one.\n\n{PROSE}")).collect();
        assert_eq!(cut_at(&[&verses]), None, "a refrain follows every verse");
    }

    #[test]
    fn code_and_json_may_repeat_a_passage() {
        for (before, after) in [("```html\n", "\n```\nDone."), ("[\"", "\"]"), ("  ~~~\n", "~~~")] {
            let data = format!("{before}{}{after}", PROSE.repeat(5));
            assert_eq!(cut_at(&[&data]), None, "{before}");
        }
        let prose_after_code = format!("```\nx = 1\n```\n{}", PROSE.repeat(4));
        assert!(cut_at(&[&prose_after_code]).is_some());
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
            for text in [passage.repeat(12_000 / passage.len()), format!("{passage}{}", PROSE.repeat(9))] {
                let characters: Vec<char> = text.chars().collect();
                let chunks: Vec<String> = characters.chunks(size).map(|chunk| chunk.iter().collect()).collect();
                let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
                let (whole, split) = (cut_at(&[&text]), cut_at(&chunks));
                prop_assert!(whole.is_some());
                prop_assert_eq!(whole, split);
            }
        }
    }
}
