//! The problems that parsing a map can find, with messages for the mapper and for operators.

use super::ClaimId;
use crate::limits::{MAP_COMPLAINTS_MAX, MAP_EXCERPT_CHARS_MAX};

/// A part of a map that was repaired or left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimMapComplaint {
    #[error("the map was found {0}")]
    BadTags(ClaimMapTagDefect),
    #[error("the JSON was invalid and was repaired")]
    JsonRepaired,
    #[error("the JSON was cut short and its end is missing")]
    JsonTruncated,
    #[error("`{part}` is not a list and is treated as empty")]
    NotAList { part: &'static str },
    #[error("only the first {max} of `{part}` were read")]
    ListTruncated { part: &'static str, max: usize },
    #[error("`{at}` was shortened to {max} characters")]
    TextTruncated { at: String, max: usize },
    #[error("a claim has no id and got the id `{id}`")]
    IdGenerated { id: ClaimId },
    #[error("claim `{id}` has no {missing}; its {taken} is used instead")]
    TextSubstituted { id: ClaimId, missing: &'static str, taken: &'static str },
    /// An unknown word for a kind, role or type; empty if the word is missing.
    #[error("`{at}` has the unknown {what} `{given}`, which is read as {taken}")]
    UnknownWord {
        /// The claim or edge.
        at: String,
        /// The key of the word.
        what: &'static str,
        given: String,
        taken: &'static str,
    },
    #[error("`{at}` has the key `{given}` instead of `{meant}`")]
    AliasedKey { at: String, given: &'static str, meant: &'static str },
    #[error("`{what}` of `{at}` is a list; its only item is used")]
    ListForSingleValue { at: String, what: &'static str },
    #[error("claim `{id}` has the supporter `{given}`, which is read as {taken}")]
    SupporterGuessed { id: ClaimId, given: String, taken: u32 },
    #[error("claim `{id}` has no supporter")]
    NoSupporters { id: ClaimId },
    /// A reference in another case, or a label instead of an id.
    #[error("`{at}` references `{given}`, which is read as claim `{taken}`")]
    ReferenceGuessed { at: String, given: String, taken: ClaimId },
    #[error("{what} of `{at}` was left out: {why}")]
    Dropped {
        /// The claim, edge or list.
        at: String,
        /// The part that was left out.
        what: &'static str,
        why: ClaimMapPartDropReason,
    },
    #[error("and {count} more")]
    MoreComplaints { count: usize },
}

/// How the tags of a map are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMapTagDefect {
    UnclosedTag,
    Untagged,
}

impl std::fmt::Display for ClaimMapTagDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnclosedTag => "after a tag that is never closed",
            Self::Untagged => "without tags",
        })
    }
}

/// Why something was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimMapPartDropReason {
    #[error("there is no claim `{0}`")]
    UnknownClaim(String),
    #[error("there is no answer `{0}`")]
    UnknownAnswer(String),
    #[error("it is a duplicate")]
    Duplicate,
    #[error("it references itself")]
    SelfReference,
    #[error("the claim is not a challenger")]
    NotChallenger,
    /// It has neither text nor label, or the wrong JSON type.
    #[error("it is unreadable")]
    Unreadable,
}

/// A list of complaints with a limited length.
#[derive(Debug, Default)]
pub(super) struct BoundedClaimMapComplaints {
    complaints: Vec<ClaimMapComplaint>,
    omitted_count: usize,
}

impl BoundedClaimMapComplaints {
    pub(super) fn push(&mut self, complaint: ClaimMapComplaint) {
        if self.complaints.len() < MAP_COMPLAINTS_MAX {
            self.complaints.push(complaint);
        } else {
            self.omitted_count += 1;
        }
    }

    pub(super) fn push_dropped(&mut self, at: impl Into<String>, what: &'static str, why: ClaimMapPartDropReason) {
        self.push(ClaimMapComplaint::Dropped { at: at.into(), what, why });
    }

    pub(super) fn into_vec(mut self) -> Vec<ClaimMapComplaint> {
        if self.omitted_count > 0 {
            self.complaints.push(ClaimMapComplaint::MoreComplaints { count: self.omitted_count });
        }
        self.complaints
    }
}

/// Returns the start of a text on one line.
pub(super) fn one_line_excerpt(text: &str) -> String {
    let text = text.trim();
    let cut: String = text.chars().take(MAP_EXCERPT_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
