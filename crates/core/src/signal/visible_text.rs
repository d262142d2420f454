//! Collects the text that the user sees and closes the gaps that removed blocks leave. It holds whitespace back until
//! the next character is known.

use crate::limits::HELD_WHITESPACE_BYTES_MAX;

/// The visible text in progress.
#[derive(Debug, Default)]
pub(super) struct VisibleTextGapMerger {
    /// Final text that was not taken yet.
    out: String,
    /// Whitespace at the end, so far.
    gap: String,
    /// The whitespace before the blocks that were just removed.
    before: Option<String>,
    /// True if any text was emitted.
    started: bool,
}

impl VisibleTextGapMerger {
    /// Adds the next character outside blocks.
    pub(super) fn push_char(&mut self, c: char) {
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            self.gap.push(c);
            if self.gap.len() >= HELD_WHITESPACE_BYTES_MAX {
                self.flush_gap();
            }
        } else {
            self.flush_gap();
            self.out.push(c);
            self.started = true;
        }
    }

    /// Marks that a block was removed here.
    pub(super) fn mark_block_removed(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        self.before = Some(match self.before.take() {
            Some(before) => merge_gaps(&before, &gap),
            None => gap,
        });
    }

    /// Ends the text.
    pub(super) fn finish(&mut self) {
        if self.before.is_none() {
            self.flush_gap();
        }
    }

    /// Returns the text that became final since the last call.
    pub(super) fn take_ready(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn flush_gap(&mut self) {
        match self.before.take() {
            Some(before) if self.started => self.out.push_str(&merge_gaps(&before, &self.gap)),
            Some(_) => {}
            None => self.out.push_str(&self.gap),
        }
        self.started |= !self.out.is_empty();
        self.gap.clear();
    }
}

/// Merges the whitespace on both sides of a block.
fn merge_gaps(before: &str, after: &str) -> String {
    let line_ends = |gap: &str| gap.bytes().filter(|byte| *byte == b'\n').count();
    let (ends_before, ends_after) = (line_ends(before), line_ends(after));
    if ends_before == 0 && ends_after == 0 {
        return if after.len() > before.len() { after } else { before }.to_owned();
    }
    if ends_after >= ends_before {
        return after.to_owned();
    }
    match (before.rfind('\n'), after.rfind('\n')) {
        (Some(last), Some(indent)) => format!("{}{}", &before[..=last], &after[indent + 1..]),
        _ => before.to_owned(),
    }
}
