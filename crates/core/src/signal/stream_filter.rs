//! Filters a reply while it streams: emits text outside blocks as soon as it is final, and nothing inside them. The
//! result is the same as that of [`super::parse_reply`], however the text is split into chunks.

use super::BlockSet;
use super::block_scanner::BlockScanner;
use super::user_quotes::UserQuotedMarkerMatcher;

/// A filter for one stream. It holds back whitespace, possible markers, and an open block (at most
/// `BLOCK_BYTES_MAX`). Everything else is emitted immediately.
#[derive(Debug)]
pub struct BlockStreamFilter {
    /// `None` if there are no blocks, so that all text is visible.
    scanner: Option<BlockScanner>,
}

impl BlockStreamFilter {
    /// Creates a filter that hides `blocks`, but treats blocks quoted from `user_texts` as text.
    #[must_use]
    pub fn ignoring_quotes(blocks: BlockSet, user_texts: &[impl AsRef<str>]) -> Self {
        let scanner = (!blocks.blocks.is_empty()).then(|| {
            let quotes = UserQuotedMarkerMatcher::new(user_texts, &blocks);
            BlockScanner::new(blocks, quotes)
        });
        Self { scanner }
    }

    /// Processes the next chunk and returns the visible text that is final now.
    #[must_use]
    pub fn push(&mut self, chunk: &str) -> String {
        let Some(scanner) = &mut self.scanner else { return chunk.to_owned() };
        let visible = scanner.push(chunk);
        scanner.discard_blocks();
        visible
    }

    /// Ends the stream and returns held text that was not part of a block.
    #[must_use]
    pub fn finish(self) -> String {
        self.scanner.map(|mut scanner| scanner.finish()).unwrap_or_default()
    }
}
