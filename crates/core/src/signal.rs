//! Signals: the typed values a model puts into its reply. This module decides what in a text is a signal, what of the
//! text the user sees, and how words that are not ours are wrapped before they enter a prompt. It does not decide what
//! a signal means or whether it is welcome: that is the flow's. Nothing here fails: what was understood is returned,
//! what was not is a complaint, and the time taken grows with the length of the text and nothing else.
//!
//! # Blocks
//!
//! ```text
//! <<<NAME>>>
//! key: value
//! <<<END>>>
//! ```
//!
//! - A **marker** is `<<<`, a known name in any case, `>>>`; up to three blanks may surround the name. Anything else in
//!   such brackets is ordinary text. Of a longer run of `<` the last three count.
//! - A marker may stand anywhere in a line. It does **not** count inside a code fence (as CommonMark has them, list
//!   items included), on a line that is a quote (`>`), or after an opening run of backticks on its line for which no run
//!   of the same length has followed. A code span ends with its line at the latest. So whether a marker counts
//!   depends only on what stands before it, and a stream can be read as it comes.
//! - The first start marker that counts opens a block. Within it the same rule holds for the end marker, except that an
//!   **end marker that begins its line always ends the block**, also inside a fence that the block forgot to close. A
//!   further start marker is content, with a complaint. A fence opened in a block ends with it.
//! - An **end marker** is `<<<END>>>`, or names what it closes: `<<<END NAME>>>`, `<<<END_NAME>>>`, `<<</NAME>>>`. Outside a block
//!   it is ordinary text.
//! - A block that is never ended, or grows beyond [`BLOCK_BYTES_MAX`], is not read, with a complaint. It is hidden all the same if
//!   it was meant as one: its marker has a line to itself, it holds a known key, or nothing follows its marker. Else it is a
//!   mention, and shown as it stands. It is not searched for blocks again. A text cut off within a marker that begins a line
//!   ends before it.
//! - What the **user** wrote does not act: a block that stands like this in the user's words (white space and case aside) is a
//!   quote, and shown as it stands. If the user's has no end, it ends before the next marker. What is cut off is no quote if its
//!   marker has a line to itself.
//!
//! # What the user sees
//!
//! Everything outside blocks, character for character, but for the white space around a block. What stands before and
//! after it becomes one gap: the side with more line ends stays (the later one, if equal) and the indentation of the
//! line that follows; where neither side has a line end, the longer side. At the beginning and the end of the text the
//! gap is dropped. White space in excess of [`crate::limits::GAP_BYTES_MAX`] is ordinary text. A text without blocks is seen unchanged.

mod block_scanner;
pub mod fields;
pub mod json;
mod json_repair;
mod list_value;
mod markdown_lines;
pub mod stream_filter;
mod user_quotes;
mod visible_text;

use crate::limits::{
    BLOCK_BYTES_MAX, BLOCK_NAME_BYTES_MAX, BLOCKS_PER_TEXT_MAX, COMPLAINTS_PER_PARSE_MAX, EXCERPT_CHARS_MAX,
    LIST_ITEMS_MAX,
};
use block_scanner::BlockScanner;
use fields::{BlockFields, BlockSchema};
use user_quotes::UserQuotes;

/// Up to about this length a text is searched for JSON to its end, whatever it takes.
pub const JSON_FULL_SEARCH_BYTES: usize = 8 * 1024;

/// The blocks that count as such, in order, each with the shape of its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockSet {
    blocks: Vec<(String, BlockSchema)>,
}

impl BlockSet {
    /// No block at all: every text is ordinary.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also `name`, in place of an earlier one of that name. A name no marker can have (empty, longer than
    /// [`BLOCK_NAME_BYTES_MAX`], `END`, or with anything but ASCII letters, digits, `_` and `-`) is left out.
    #[must_use]
    pub fn with_block(mut self, name: &str, schema: BlockSchema) -> Self {
        let name = name.to_ascii_uppercase();
        let can_be_marked = !name.is_empty()
            && name.len() <= BLOCK_NAME_BYTES_MAX
            && name != block_scanner::END_MARKER_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if can_be_marked {
            match self.blocks.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = schema,
                None => self.blocks.push((name, schema)),
            }
        }
        self
    }

    /// The names, in upper case, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().map(|(name, _)| name.as_str())
    }

    fn block_schema(&self, name: &str) -> Option<&BlockSchema> {
        self.blocks.iter().find(|(known, _)| known == name).map(|(_, shape)| shape)
    }
}

/// What was read in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedReply {
    /// What the user sees.
    pub visible_text: String,
    /// The blocks, in order; the same name may come twice.
    pub blocks: Vec<SignalBlock>,
    /// What was not as it should be.
    pub complaints: Vec<BlockComplaint>,
}

/// A block of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalBlock {
    /// Its name, in upper case.
    pub name: String,
    /// All that stood between its markers.
    pub raw: String,
    /// What its shape finds in it.
    pub fields: BlockFields,
}

/// Something in a text that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockComplaint {
    /// A block without end marker. It is hidden.
    #[error("block {block} has no end marker and was not read")]
    UnclosedBlock {
        /// Which block.
        block: String,
    },
    /// A start marker in running text, with no end marker behind it. It is shown.
    #[error("marker {marker} has no end marker and was taken as text")]
    MarkerMentioned {
        /// The marker's name.
        marker: String,
    },
    /// The text ends within a marker.
    #[error("the text was cut off in the marker `{text}`")]
    TruncatedMarker {
        /// As much of it as there is.
        text: String,
    },
    /// A block that the user wrote and the model repeats.
    #[error("block {block} is quoted from the user and was taken as text")]
    QuotedFromUser {
        /// Which block.
        block: String,
    },
    /// A block that is too long.
    #[error("block {block} is longer than {BLOCK_BYTES_MAX} bytes and was not read")]
    BlockTooLong {
        /// Which block.
        block: String,
    },
    /// More blocks than are read.
    #[error("more than {BLOCKS_PER_TEXT_MAX} blocks; a further {block} was not read")]
    TooManyBlocks {
        /// The first that was not read.
        block: String,
    },
    /// A start marker within a block.
    #[error("start marker {inner} inside block {block} was taken as its content")]
    NestedStartMarker {
        /// The open block.
        block: String,
        /// The marker within.
        inner: String,
    },
    /// A marker where markers do not count.
    #[error("marker {marker} stands {region} and does not count")]
    IgnoredMarker {
        /// The marker's name.
        marker: String,
        /// Where it stands.
        region: IgnoredRegion,
    },
    /// Text before the first known key of a block or section.
    #[error("{at}: text before the first known key: `{text}`")]
    StrayText {
        /// Block and section.
        at: String,
        /// The beginning of the text.
        text: String,
    },
    /// A key for the second time.
    #[error("{at}: key given again; the first one stands")]
    RepeatedKey {
        /// Block, section and key.
        at: String,
    },
    /// Text where a section was expected.
    #[error("{at}: expected indented keys, found `{text}`")]
    ExpectedSection {
        /// Block, section and key.
        at: String,
        /// The beginning of the text.
        text: String,
    },
    /// An inline list without its closing bracket.
    #[error("{at}: list has no closing bracket")]
    UnclosedList {
        /// Block, section and key.
        at: String,
    },
    /// A list with more items than are read.
    #[error("{at}: only the first {LIST_ITEMS_MAX} items were read")]
    TooManyItems {
        /// Block, section and key.
        at: String,
    },
}

/// Where a marker does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredRegion {
    /// In a code fence, or on the line that opens it.
    CodeFence,
    /// On a quoted line.
    Quote,
    /// In a code span.
    CodeSpan,
}

impl std::fmt::Display for IgnoredRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CodeFence => "in a code fence",
            Self::Quote => "in a quote",
            Self::CodeSpan => "in a code span",
        })
    }
}

/// Parts `text` into what the user sees and its blocks.
#[must_use]
pub fn parse_reply(text: &str, blocks: &BlockSet) -> ParsedReply {
    parse_reply_ignoring_quotes(text, blocks, &[] as &[&str])
}

/// The same, for an answer to somebody who said `words`: what is quoted from them is no block.
#[must_use]
pub fn parse_reply_ignoring_quotes(text: &str, blocks: &BlockSet, user_texts: &[impl AsRef<str>]) -> ParsedReply {
    let mut scanner = BlockScanner::new(blocks.clone(), UserQuotes::new(user_texts, blocks));
    let mut visible = scanner.push(text);
    visible.push_str(&scanner.finish());
    let (found, mut complaints) = scanner.into_blocks_and_complaints();
    let blocks = found
        .into_iter()
        .map(|(name, raw)| {
            let fields = match blocks.block_schema(&name) {
                Some(shape) => fields::parse_block_fields(&name, &raw, shape, &mut complaints),
                None => BlockFields::default(),
            };
            SignalBlock { name, raw, fields }
        })
        .collect();
    ParsedReply { visible_text: visible, blocks, complaints }
}

/// Wraps words that are not ours in a code fence longer than any run of backticks in them, so that they can neither
/// leave it nor act as a marker.
#[must_use]
pub fn wrap_in_code_fence(text: &str) -> String {
    let (mut longest, mut run) = (0, 0);
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let mark = "`".repeat((longest + 1).max(3));
    let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{mark}\n{text}{line_end}{mark}")
}

/// Quotes words that are not ours: every line, whatever ends it, comes to stand behind a `>`.
#[must_use]
pub fn quote_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16 + 2);
    let text = text.replace("\r\n", "\n");
    for (place, line) in text.split(['\n', '\r']).enumerate() {
        if place > 0 {
            out.push('\n');
        }
        out.push('>');
        if !line.is_empty() {
            out.push(' ');
            out.push_str(line);
        }
    }
    out
}

fn push_complaint(complaints: &mut Vec<BlockComplaint>, complaint: BlockComplaint) {
    if complaints.len() < COMPLAINTS_PER_PARSE_MAX {
        complaints.push(complaint);
    }
}

fn shorten_excerpt(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
