//! Signals: typed values in a model's reply. This module decides which parts of a text are signals, which parts the
//! user sees, and how foreign text is wrapped before it becomes part of a prompt. It does not decide what a signal
//! means; the flow does. Parsing never fails: it returns what it understood and a list of complaints, and its running
//! time is linear in the length of the text.
//!
//! # Blocks
//!
//! ```text
//! <<<NAME>>>
//! key: value
//! <<<END>>>
//! ```
//!
//! - A **marker** is `<<<`, a known name in any case, `>>>`; up to three spaces may surround the name. Anything else in
//!   such brackets is ordinary text. Of a longer run of `<` the last three count.
//! - A marker may be anywhere in a line. It is **ignored** in a code fence (as defined by CommonMark, including list
//!   items), in a quoted line (`>`), and after an opening run of backticks for which no run of the same length follows
//!   in its line. A code span ends at the latest with its line. So whether a marker counts depends only on the text
//!   before it, and a stream can be parsed as it arrives.
//! - The first start marker that counts opens a block. In a block the same rule applies to the end marker, except that
//!   an **end marker at the beginning of a line always ends the block**, even in a fence that the block did not close.
//!   A further start marker is content, with a complaint. A fence that was opened in a block ends with it.
//! - An **end marker** is `<<<END>>>`, or names what it closes: `<<<END NAME>>>`, `<<<END_NAME>>>`, `<<</NAME>>>`.
//!   Outside a block it is ordinary text.
//! - A block that does not end, or that exceeds `BLOCK_BYTES_MAX`, is not parsed, with a complaint. It is hidden if
//!   it was intended as a block: its marker has its own line, it contains a known key, or nothing follows its marker.
//!   Otherwise it is a mention and shown as it is. It is not searched for further blocks. A text that is cut off in a
//!   marker at the beginning of a line ends before that marker.
//! - A **near-miss marker** has its own line, outside fences and quotes, and counts with a complaint. With other brackets
//!   (`>>>NAME<<<`, `<<NAME>>`, `<NAME>`; one to three of each, but not a single `>` at the beginning) it opens or ends a
//!   block. With other decoration (`**NAME**`, `## NAME`, `[NAME]`, `NAME:`, in upper case) it opens a block if the next
//!   line that is not blank begins with a known key; such an end counts only in a block that began with a near miss. A
//!   **code fence** that begins with a marker in its own line and a known key is the block, and the lines of the fence
//!   are hidden. A near-miss marker that occurs as a line in the user's words is text.
//! - Text that the **user** wrote is never a signal: a block that also occurs in the user's words (ignoring whitespace
//!   and case) is a quote and shown as it is. If the user's block has no end, the quote ends before the next marker. A
//!   block that is cut off is not a quote if its marker has its own line.
//!
//! # Visible text
//!
//! The user sees everything outside blocks, character by character, except for the whitespace around a block. The
//! whitespace before and after it becomes one gap: the side with more line breaks (the later one if equal) and the
//! indentation of the following line; without line breaks, the longer side. At the beginning and the end of the text
//! the gap is dropped. Whitespace beyond `HELD_WHITESPACE_BYTES_MAX` is ordinary text. A text without
//! blocks is not changed.

mod block_scanner;
pub(crate) mod fields;
pub(crate) mod json;
mod json_repair;
mod list_value;
mod markdown_lines;
mod near_miss;
pub(crate) mod stream_filter;
mod user_quotes;
mod visible_text;

#[cfg(test)]
mod tests;

use crate::limits::{
    BLOCK_BYTES_MAX, BLOCK_NAME_BYTES_MAX, BLOCKS_PER_TEXT_MAX, COMPLAINTS_PER_PARSE_MAX, EXCERPT_CHARS_MAX,
    LIST_ITEMS_MAX,
};
use block_scanner::BlockScanner;
use user_quotes::UserQuotedMarkerMatcher;

pub use self::{
    fields::{BlockFieldKind, BlockFieldSchema, BlockFields},
    json::{JsonComplaint, JsonSearchResult, canonical_json, find_json_where},
    stream_filter::BlockStreamFilter,
};

/// How a model is asked for signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalForm {
    /// As blocks in its replies to the user.
    #[default]
    Inline,
    /// With private questions, whose answers are JSON.
    Structured,
}

impl SignalForm {
    /// Returns whether signals are blocks in replies.
    #[must_use]
    pub(crate) fn is_inline(&self) -> bool {
        *self == Self::Inline
    }
}

/// Texts up to about this length are searched for JSON completely.
pub(crate) const JSON_FULL_SEARCH_BYTES: usize = 8 * 1024;

/// The known blocks in order, each with the schema of its content. By default there is none, so that every text is
/// ordinary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockSet {
    blocks: Vec<(String, BlockFieldSchema)>,
}

impl BlockSet {
    /// Returns the set with a block added, or replaced if the name is known. Ignores a name that no marker can have:
    /// empty, longer than `BLOCK_NAME_BYTES_MAX`, `END`, or with characters other than ASCII letters, digits, `_` and
    /// `-`.
    #[must_use]
    pub fn with_block(mut self, name: &str, schema: BlockFieldSchema) -> Self {
        let name = name.to_ascii_uppercase();
        let is_valid_name = !name.is_empty()
            && name.len() <= BLOCK_NAME_BYTES_MAX
            && name != block_scanner::END_MARKER_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if is_valid_name {
            match self.blocks.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = schema,
                None => self.blocks.push((name, schema)),
            }
        }
        self
    }

    /// Returns the names in upper case, in order.
    pub(crate) fn block_names(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().map(|(name, _)| name.as_str())
    }

    fn block_schema(&self, name: &str) -> Option<&BlockFieldSchema> {
        self.blocks.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }
}

/// The result of parsing a reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedReply {
    /// The text that the user sees.
    pub visible_text: String,
    /// The blocks in order. A name may occur more than once.
    pub blocks: Vec<SignalBlock>,
    pub complaints: Vec<BlockComplaint>,
}

/// A block in a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalBlock {
    /// The name in upper case.
    pub name: String,
    /// The text between the markers.
    pub raw: String,
    /// The fields found according to the block's schema.
    pub fields: BlockFields,
}

/// A problem in a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockComplaint {
    /// A block has no end marker. It is hidden.
    #[error("block {block} has no end marker and was not parsed")]
    UnclosedBlock { block: String },
    /// A start marker in running text has no end marker. It is shown.
    #[error("marker {marker} has no end marker and was treated as text")]
    MarkerMentioned { marker: String },
    /// A marker is not written exactly. It counts nevertheless.
    #[error("marker `{marker}` is not exact and was read as <<<{name}>>>")]
    NearMissMarker {
        /// The marker as written.
        marker: String,
        /// The block that it opens, or `END`.
        name: String,
    },
    /// The text ends in a marker.
    #[error("the text was cut off in the marker `{text}`")]
    TruncatedMarker {
        /// The part of the marker that exists.
        text: String,
    },
    /// The model repeated a block that the user wrote.
    #[error("block {block} is quoted from the user or from another text and was treated as text")]
    QuotedFromUser { block: String },
    /// A block is too long.
    #[error("block {block} is longer than {BLOCK_BYTES_MAX} bytes and was not parsed")]
    BlockTooLong { block: String },
    /// There are more blocks than are parsed.
    #[error("more than {BLOCKS_PER_TEXT_MAX} blocks; a further {block} was not parsed")]
    TooManyBlocks {
        /// The first block that was not parsed.
        block: String,
    },
    /// There is a start marker in a block.
    #[error("start marker {inner} inside block {block} was treated as its content")]
    NestedStartMarker {
        block: String,
        /// The name of the inner marker.
        inner: String,
    },
    /// A marker is in a region where markers are ignored.
    #[error("marker {marker} is {region} and was ignored")]
    IgnoredMarker {
        marker: String,
        /// The region, as text.
        region: String,
    },
    /// There is text before the first known key of a block or section.
    #[error("{at}: text before the first known key: `{text}`")]
    StrayText {
        /// The block and section.
        at: String,
        /// The beginning of the text.
        text: String,
    },
    /// A key is not known. Its value is ignored.
    #[error("{at}: unknown key; its value was ignored")]
    UnknownKey {
        /// The block, section and key.
        at: String,
    },
    /// A key occurs again.
    #[error("{at}: repeated key; the first value is used")]
    RepeatedKey {
        /// The block, section and key.
        at: String,
    },
    /// There is text instead of a section.
    #[error("{at}: expected indented keys, found `{text}`")]
    ExpectedSection {
        /// The block, section and key.
        at: String,
        /// The beginning of the text.
        text: String,
    },
    /// An inline list has no closing bracket.
    #[error("{at}: list has no closing bracket")]
    UnclosedList {
        /// The block, section and key.
        at: String,
    },
    /// There is text after the closing bracket of an inline list. It is ignored.
    #[error("{at}: text after the list was ignored: `{text}`")]
    TextAfterList {
        /// The block, section and key.
        at: String,
        /// The beginning of the text.
        text: String,
    },
    /// A list has more items than are parsed.
    #[error("{at}: only the first {LIST_ITEMS_MAX} items were parsed")]
    TooManyItems {
        /// The block, section and key.
        at: String,
    },
}

/// Where markers are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerIgnoredRegion {
    /// In a code fence, or on the line that opens it.
    CodeFence,
    /// On a quoted line.
    Quote,
    /// In a code span.
    CodeSpan,
}

impl std::fmt::Display for MarkerIgnoredRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CodeFence => "in a code fence",
            Self::Quote => "in a quote",
            Self::CodeSpan => "in a code span",
        })
    }
}

/// Splits a reply into the text that the user sees and its blocks. Blocks that are quoted from `foreign_texts` are text:
/// from the user's messages, and from other texts in the prompt that the model's instructions do not contain.
#[must_use]
pub fn parse_reply(text: &str, blocks: &BlockSet, foreign_texts: &[impl AsRef<str>]) -> ParsedReply {
    let mut scanner = BlockScanner::new(blocks.clone(), UserQuotedMarkerMatcher::new(foreign_texts, blocks));
    let mut visible = scanner.push(text);
    visible.push_str(&scanner.finish());
    let (found, mut complaints) = scanner.into_blocks_and_complaints();
    let blocks = found
        .into_iter()
        .map(|(name, raw)| {
            let fields = match blocks.block_schema(&name) {
                Some(schema) => fields::parse_block_fields(&name, &raw, schema, &mut complaints),
                None => BlockFields::default(),
            };
            SignalBlock { name, raw, fields }
        })
        .collect();
    ParsedReply { visible_text: visible, blocks, complaints }
}

/// Wraps foreign text in a code fence that is longer than any run of backticks in it, so that the text can neither
/// leave the fence nor act as a marker.
#[must_use]
pub fn wrap_in_code_fence(text: &str) -> String {
    let (mut longest, mut run) = (0, 0);
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{line_end}{fence}")
}

/// Quotes foreign text by putting `>` before every line, whatever ends it.
#[must_use]
pub fn quote_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16 + 2);
    let text = text.replace("\r\n", "\n");
    for (index, line) in text.split(['\n', '\r']).enumerate() {
        if index > 0 {
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
