//! Knows what the user wrote that looks like a block, so that a model that repeats it does not act by it. A block is a quote if all
//! of it, white space and case aside, stands in the user's words behind the same marker. It is followed character by
//! character, so that a stream can be read as it comes.

use super::BlockSet;
use crate::limits::QUOTED_MARKERS_MAX;

/// The user's words, as far as they matter here.
#[derive(Debug, Default)]
pub(super) struct UserQuotes {
    /// Without white space, in lower case; only those that hold a marker.
    texts: Vec<Vec<char>>,
    /// Which name is marked, in which text, and where what follows the marker begins.
    markers: Vec<(String, usize, usize)>,
}

/// The places in the user's words at which the same stands as in a block so far.
#[derive(Debug, Default)]
pub(super) struct QuoteMatch {
    positions: Vec<(usize, usize)>,
}

impl QuoteMatch {
    /// Whether all of the block so far stands in the user's words.
    pub(super) fn is_matching(&self) -> bool {
        !self.positions.is_empty()
    }
}

impl UserQuotes {
    /// The user's words, in which `names` may be marked.
    pub(super) fn new(user_texts: &[impl AsRef<str>], names: &BlockSet) -> Self {
        let mut quotable = Self::default();
        let marker = |name: &str| format!("<<<{name}>>>").chars().filter_map(normalize_char).collect::<Vec<char>>();
        let markers: Vec<(&str, Vec<char>)> = names.names().map(|name| (name, marker(name))).collect();
        for text in user_texts.iter().map(AsRef::as_ref).filter(|text| text.contains("<<<")) {
            let text: Vec<char> = text.chars().filter_map(normalize_char).collect();
            let place = quotable.texts.len();
            for at in (0..text.len()).filter(|at| text[*at..].starts_with(&['<', '<', '<'])) {
                let marked = markers.iter().filter(|(_, marker)| text[at..].starts_with(marker));
                for (name, marker) in marked {
                    if quotable.markers.len() < QUOTED_MARKERS_MAX {
                        quotable.markers.push(((*name).to_owned(), place, at + marker.len()));
                    }
                }
            }
            quotable.texts.push(text);
        }
        quotable
    }

    /// A block of this name begins.
    pub(super) fn start_match(&self, name: &str) -> QuoteMatch {
        let places = self.markers.iter().filter(|(marked, _, _)| marked == name);
        QuoteMatch { positions: places.map(|(_, text, at)| (*text, *at)).collect() }
    }

    /// Whether that is all the user wrote there: a marker follows, or nothing.
    pub(super) fn is_complete_quote(&self, echo: &QuoteMatch) -> bool {
        let follows = |(text, at): &(usize, usize)| self.texts[*text].get(*at..).unwrap_or_default();
        echo.positions.iter().map(follows).any(|rest| rest.is_empty() || rest.starts_with(&['<', '<', '<']))
    }

    /// The block goes on with `c`.
    pub(super) fn advance_match(&self, echo: &mut QuoteMatch, c: char) {
        let Some(c) = normalize_char(c) else { return };
        echo.positions.retain_mut(|(text, at)| {
            let is_same = self.texts[*text].get(*at) == Some(&c);
            *at += 1;
            is_same
        });
    }
}

/// A character as it is compared; white space is not.
fn normalize_char(c: char) -> Option<char> {
    (!c.is_whitespace()).then(|| c.to_ascii_lowercase())
}
