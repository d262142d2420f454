//! Gathers what the user sees and closes the gaps that removed blocks leave. It holds white space back until it is
//! known what follows, and nothing else.

use crate::limits::HELD_WHITESPACE_BYTES_MAX;

/// The visible text on its way out.
#[derive(Debug, Default)]
pub(super) struct VisibleText {
    /// Certain and not yet taken.
    out: String,
    /// White space that nothing has followed yet.
    gap: String,
    /// What stood before the blocks that were just removed.
    before: Option<String>,
    /// Whether anything was ever let out.
    begun: bool,
}

impl VisibleText {
    /// The next character outside blocks.
    pub(super) fn push_char(&mut self, c: char) {
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            self.gap.push(c);
            if self.gap.len() >= HELD_WHITESPACE_BYTES_MAX {
                self.flush_gap();
            }
        } else {
            self.flush_gap();
            self.out.push(c);
            self.begun = true;
        }
    }

    /// Here a block was taken out.
    pub(super) fn mark_block_removed(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        self.before = Some(match self.before.take() {
            Some(before) => merge_gaps(&before, &gap),
            None => gap,
        });
    }

    /// The text has ended.
    pub(super) fn finish(&mut self) {
        if self.before.is_none() {
            self.flush_gap();
        }
    }

    /// What became certain since this was last asked.
    pub(super) fn take_ready(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn flush_gap(&mut self) {
        match self.before.take() {
            Some(before) if self.begun => self.out.push_str(&merge_gaps(&before, &self.gap)),
            Some(_) => {}
            None => self.out.push_str(&self.gap),
        }
        self.begun |= !self.out.is_empty();
        self.gap.clear();
    }
}

/// What remains of the white space on both sides of a block.
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
