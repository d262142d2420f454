//! Shows a reply while it streams: all text outside blocks, as soon as it is certain, and nothing inside them. What
//! comes out in the end is what [`super::read`] would show, however the chunks fall.

use super::BlockSet;
use super::block_scanner::BlockScanner;
use super::user_quotes::UserQuotes;

/// A stream being filtered. It holds back white space, the beginning of what may become a marker, and an open block
/// (at most [`super::BLOCK_BYTES_MAX`]); everything else goes out at once.
#[derive(Debug)]
pub struct BlockStreamFilter {
    /// None where no block can come: all text is visible as it is.
    scanner: Option<BlockScanner>,
}

impl BlockStreamFilter {
    /// A filter for a stream in which `names` count as blocks.
    #[must_use]
    pub fn new(blocks: BlockSet) -> Self {
        Self::ignoring_quotes(blocks, &[] as &[&str])
    }

    /// The same, for an answer to somebody who said `words`: what is quoted from them is no block.
    #[must_use]
    pub fn ignoring_quotes(blocks: BlockSet, user_texts: &[impl AsRef<str>]) -> Self {
        let scanner = (!blocks.blocks.is_empty()).then(|| {
            let quotable = UserQuotes::new(user_texts, &blocks);
            BlockScanner::new(blocks, quotable)
        });
        Self { scanner }
    }

    /// Takes the next chunk; returns the visible text that is certain now.
    #[must_use]
    pub fn push(&mut self, chunk: &str) -> String {
        let Some(scanner) = &mut self.scanner else { return chunk.to_owned() };
        let visible = scanner.push(chunk);
        scanner.discard_blocks();
        visible
    }

    /// The stream has ended; returns what was held back and turned out to be no block.
    #[must_use]
    pub fn finish(self) -> String {
        self.scanner.map(|mut scanner| scanner.finish()).unwrap_or_default()
    }
}
