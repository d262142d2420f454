//! Shows a reply while it streams: all text outside blocks, as soon as it is certain, and nothing inside them. What
//! comes out in the end is what [`super::read`] would show, however the chunks fall.

use super::BlockNames;
use super::scan::Scanner;

/// A stream being filtered. It holds back white space, the beginning of what may become a marker, and an open block
/// (at most [`super::BLOCK_BYTES_MAX`]); everything else goes out at once.
#[derive(Debug)]
pub struct Filter {
    scanner: Scanner,
}

impl Filter {
    /// A filter for a stream in which `names` count as blocks.
    #[must_use]
    pub fn new(names: BlockNames) -> Self {
        Self { scanner: Scanner::new(names.blocks.into_iter().map(|(name, _)| name).collect()) }
    }

    /// Takes the next chunk; returns the visible text that is certain now.
    #[must_use]
    pub fn push(&mut self, chunk: &str) -> String {
        let visible = self.scanner.push(chunk);
        self.scanner.forget_findings();
        visible
    }

    /// The stream has ended; returns what was held back and turned out to be no block.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.scanner.finish()
    }
}
