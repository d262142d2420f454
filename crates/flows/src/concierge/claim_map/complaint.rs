//! What can be amiss in a map, each in words a mapper or an operator can act on.

use super::ClaimId;
use crate::limits::{MAP_COMPLAINTS_MAX, MAP_EXCERPT_CHARS_MAX};

/// Something in a map that was repaired or left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapComplaint {
    /// The map does not stand between its tags.
    #[error("the map was found {0}")]
    BadTags(TagDefect),
    /// The JSON was not valid.
    #[error("the JSON was not valid and was mended")]
    JsonRepaired,
    /// The JSON ended too early.
    #[error("the JSON was cut short and its end is missing")]
    JsonTruncated,
    /// A list of the map is missing or no list.
    #[error("`{part}` is not a list and was taken as empty")]
    NotAList {
        /// `edges` or `gaps`.
        part: &'static str,
    },
    /// A list was longer than is read.
    #[error("only the first {max} of `{part}` were read")]
    ListTruncated {
        /// Which list.
        part: &'static str,
        /// How many were read.
        max: usize,
    },
    /// A text was longer than is kept.
    #[error("`{at}` was shortened to {max} characters")]
    TextTruncated {
        /// Which text.
        at: String,
        /// How much was kept.
        max: usize,
    },
    /// A claim had no id.
    #[error("a claim has no id and was called `{id}`")]
    IdGenerated {
        /// The id it was given.
        id: ClaimId,
    },
    /// A claim had a text and no label, or the other way round.
    #[error("claim `{id}` has no {missing}; the {taken} stands in for it")]
    TextSubstituted {
        /// Which claim.
        id: ClaimId,
        /// What it lacks.
        missing: &'static str,
        /// What was taken in place of it.
        taken: &'static str,
    },
    /// A word that is none of those to choose from; empty if there was none.
    #[error("`{at}` has {what} `{given}`, which is taken as {taken}")]
    UnknownWord {
        /// Which claim or edge.
        at: String,
        /// What the word should say.
        what: &'static str,
        /// What stands there.
        given: String,
        /// What it was read as.
        taken: &'static str,
    },
    /// A key that goes by another name.
    #[error("`{at}` has `{given}` in the place of `{meant}`")]
    AliasedKey {
        /// Which edge.
        at: String,
        /// What it is called there.
        given: &'static str,
        /// What it should be called.
        meant: &'static str,
    },
    /// A list in the place of its one item.
    #[error("`{at}` has a list in the place of `{what}`, of which the one item was taken")]
    ListForSingleValue {
        /// Which claim.
        at: String,
        /// What should stand there.
        what: &'static str,
    },
    /// A supporter that is written in words.
    #[error("claim `{id}` has supporter `{given}`, which is taken as {taken}")]
    SupporterGuessed {
        /// Which claim.
        id: ClaimId,
        /// What stands there.
        given: String,
        /// What it was read as.
        taken: u32,
    },
    /// A claim that no answer takes.
    #[error("claim `{id}` has no supporter")]
    NoSupporters {
        /// Which claim.
        id: ClaimId,
    },
    /// A reference that had to be guessed.
    #[error("`{at}` names `{given}`, which is taken as claim `{taken}`")]
    ReferenceGuessed {
        /// Where it stands.
        at: String,
        /// What stands there.
        given: String,
        /// Which claim it was taken for.
        taken: ClaimId,
    },
    /// Something was left out.
    #[error("{what} of `{at}` was left out: {why}")]
    Dropped {
        /// Which claim, edge or list.
        at: String,
        /// What of it.
        what: &'static str,
        /// Why.
        why: DropReason,
    },
    /// There is more to complain about.
    #[error("and {count} more of such")]
    MoreComplaints {
        /// How many.
        count: usize,
    },
}

/// Where a map was found that does not stand between its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagDefect {
    /// The closing tag is missing.
    UnclosedTag,
    /// There are no tags.
    Untagged,
}

impl std::fmt::Display for TagDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnclosedTag => "behind a tag that is never closed",
            Self::Untagged => "without its tags",
        })
    }
}

/// Why something was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// There is no such claim.
    #[error("there is no claim `{0}`")]
    UnknownClaim(String),
    /// There is no such answer.
    #[error("there is no answer `{0}`")]
    UnknownAnswer(String),
    /// It was there before.
    #[error("it was given before")]
    Duplicate,
    /// It refers to itself.
    #[error("it leads back to itself")]
    SelfReference,
    /// Only challengers challenge.
    #[error("the claim is no challenger")]
    NotChallenger,
    /// It has neither text nor label, or is not of the form it should be.
    #[error("it cannot be understood")]
    Unreadable,
}

/// Complaints, as many as are told.
#[derive(Debug, Default)]
pub(super) struct BoundedComplaints {
    complaints: Vec<MapComplaint>,
    omitted_count: usize,
}

impl BoundedComplaints {
    pub(super) fn push(&mut self, complaint: MapComplaint) {
        if self.complaints.len() < MAP_COMPLAINTS_MAX {
            self.complaints.push(complaint);
        } else {
            self.omitted_count += 1;
        }
    }

    pub(super) fn push_dropped(&mut self, at: impl Into<String>, what: &'static str, why: DropReason) {
        self.push(MapComplaint::Dropped { at: at.into(), what, why });
    }

    pub(super) fn into_vec(mut self) -> Vec<MapComplaint> {
        if self.omitted_count > 0 {
            self.complaints.push(MapComplaint::MoreComplaints { count: self.omitted_count });
        }
        self.complaints
    }
}

/// The beginning of a text, on one line.
pub(super) fn one_line_excerpt(text: &str) -> String {
    let text = text.trim();
    let cut: String = text.chars().take(MAP_EXCERPT_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
