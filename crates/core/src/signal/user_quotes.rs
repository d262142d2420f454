//! Recognises blocks that a model quotes from the user, so that they do not act as signals. A block is a quote if its
//! whole content also follows the same marker in the user's words, ignoring whitespace and case. The comparison works
//! character by character, so that a stream can be parsed as it arrives.

use super::BlockSet;
use crate::limits::QUOTED_MARKERS_MAX;

/// The user's texts that contain markers.
#[derive(Debug, Default)]
pub(super) struct UserQuotedMarkerMatcher {
    /// Without whitespace and in lower case.
    texts: Vec<Vec<char>>,
    /// For each marker, the block name, the index of the text, and the offset after the marker.
    markers: Vec<(String, usize, usize)>,
    /// The lines that name a block, without whitespace and in lower case.
    lines: Vec<Vec<char>>,
}

/// The positions in the user's texts that match a block so far.
#[derive(Debug, Default)]
pub(super) struct UserQuoteMatch {
    positions: Vec<(usize, usize)>,
}

impl UserQuoteMatch {
    /// Returns true if the block so far occurs in the user's texts.
    pub(super) fn is_matching(&self) -> bool {
        !self.positions.is_empty()
    }
}

impl UserQuotedMarkerMatcher {
    /// Prepares the user's texts for the given blocks.
    pub(super) fn new(user_texts: &[impl AsRef<str>], names: &BlockSet) -> Self {
        let mut quotes = Self::default();
        let marker = |name: &str| format!("<<<{name}>>>").chars().filter_map(normalize_char).collect::<Vec<char>>();
        let markers: Vec<(&str, Vec<char>)> = names.block_names().map(|name| (name, marker(name))).collect();
        for line in user_texts.iter().flat_map(|text| text.as_ref().lines()) {
            let upper = line.to_ascii_uppercase();
            if quotes.lines.len() < QUOTED_MARKERS_MAX && names.block_names().any(|name| upper.contains(name)) {
                quotes.lines.push(line.chars().filter_map(normalize_char).collect());
            }
        }
        for text in user_texts.iter().map(AsRef::as_ref).filter(|text| text.contains("<<<")) {
            let text: Vec<char> = text.chars().filter_map(normalize_char).collect();
            let index = quotes.texts.len();
            for at in (0..text.len()).filter(|at| text[*at..].starts_with(&['<', '<', '<'])) {
                let marked = markers.iter().filter(|(_, marker)| text[at..].starts_with(marker));
                for (name, marker) in marked {
                    if quotes.markers.len() < QUOTED_MARKERS_MAX {
                        quotes.markers.push(((*name).to_owned(), index, at + marker.len()));
                    }
                }
            }
            quotes.texts.push(text);
        }
        quotes
    }

    /// Returns true if the user wrote this line.
    pub(super) fn has_user_line(&self, line: &str) -> bool {
        let line: Vec<char> = line.chars().filter_map(normalize_char).collect();
        self.lines.contains(&line)
    }

    /// Starts to compare a block with this name.
    pub(super) fn start_quote_match(&self, name: &str) -> UserQuoteMatch {
        let markers = self.markers.iter().filter(|(marked, _, _)| marked == name);
        UserQuoteMatch { positions: markers.map(|(_, text, at)| (*text, *at)).collect() }
    }

    /// Returns true if the user's block ends here, with a marker or the end of the text.
    pub(super) fn is_complete_quote(&self, quote_match: &UserQuoteMatch) -> bool {
        let follows = |(text, at): &(usize, usize)| self.texts[*text].get(*at..).unwrap_or_default();
        quote_match.positions.iter().map(follows).any(|rest| rest.is_empty() || rest.starts_with(&['<', '<', '<']))
    }

    /// Continues the comparison with the next character of the block.
    pub(super) fn advance_quote_match(&self, quote_match: &mut UserQuoteMatch, c: char) {
        let Some(c) = normalize_char(c) else { return };
        quote_match.positions.retain_mut(|(text, at)| {
            let is_same = self.texts[*text].get(*at) == Some(&c);
            *at += 1;
            is_same
        });
    }
}

/// Normalizes a character for comparison; whitespace is ignored.
fn normalize_char(c: char) -> Option<char> {
    (!c.is_whitespace()).then(|| c.to_ascii_lowercase())
}
