//! What can be amiss in a map, each in words a mapper or an operator can act on.

use super::ClaimId;
use crate::limits::{MAP_COMPLAINTS_MAX, MAP_EXCERPT_CHARS_MAX};

/// Something in a map that was repaired or left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Complaint {
    /// The map does not stand between its tags.
    #[error("the map was found {0}")]
    Found(Found),
    /// The JSON was not valid.
    #[error("the JSON was not valid and was mended")]
    Mended,
    /// The JSON ended too early.
    #[error("the JSON was cut short and its end is missing")]
    CutShort,
    /// A list of the map is missing or no list.
    #[error("`{part}` is not a list and was taken as empty")]
    NoList {
        /// `edges` or `gaps`.
        part: &'static str,
    },
    /// A list was longer than is read.
    #[error("only the first {max} of `{part}` were read")]
    TooMany {
        /// Which list.
        part: &'static str,
        /// How many were read.
        max: usize,
    },
    /// A text was longer than is kept.
    #[error("`{at}` was shortened to {max} characters")]
    Shortened {
        /// Which text.
        at: String,
        /// How much was kept.
        max: usize,
    },
    /// A claim had no id.
    #[error("a claim has no id and was called `{id}`")]
    Named {
        /// The id it was given.
        id: ClaimId,
    },
    /// A claim had a text and no label, or the other way round.
    #[error("claim `{id}` has no {missing}; the {taken} stands in for it")]
    StoodIn {
        /// Which claim.
        id: ClaimId,
        /// What it lacks.
        missing: &'static str,
        /// What was taken in place of it.
        taken: &'static str,
    },
    /// A word that is none of those to choose from; empty if there was none.
    #[error("`{at}` has {what} `{given}`, which is taken as {taken}")]
    Word {
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
    Key {
        /// Which edge.
        at: String,
        /// What it is called there.
        given: &'static str,
        /// What it should be called.
        meant: &'static str,
    },
    /// A list in the place of its one item.
    #[error("`{at}` has a list in the place of `{what}`, of which the one item was taken")]
    OneOfList {
        /// Which claim.
        at: String,
        /// What should stand there.
        what: &'static str,
    },
    /// A supporter that is written in words.
    #[error("claim `{id}` has supporter `{given}`, which is taken as {taken}")]
    Supporter {
        /// Which claim.
        id: ClaimId,
        /// What stands there.
        given: String,
        /// What it was read as.
        taken: u32,
    },
    /// A claim that no answer takes.
    #[error("claim `{id}` has no supporter")]
    Unsupported {
        /// Which claim.
        id: ClaimId,
    },
    /// A reference that had to be guessed.
    #[error("`{at}` names `{given}`, which is taken as claim `{taken}`")]
    Reference {
        /// Where it stands.
        at: String,
        /// What stands there.
        given: String,
        /// Which claim it was taken for.
        taken: ClaimId,
    },
    /// Something was left out.
    #[error("{what} of `{at}` was left out: {why}")]
    LeftOut {
        /// Which claim, edge or list.
        at: String,
        /// What of it.
        what: &'static str,
        /// Why.
        why: Dropped,
    },
    /// There is more to complain about.
    #[error("and {count} more of such")]
    More {
        /// How many.
        count: usize,
    },
}

/// Where a map was found that does not stand between its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The closing tag is missing.
    UnclosedTag,
    /// There are no tags.
    Untagged,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnclosedTag => "behind a tag that is never closed",
            Self::Untagged => "without its tags",
        })
    }
}

/// Why something was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// There is no such claim.
    #[error("there is no claim `{0}`")]
    UnknownClaim(String),
    /// There is no such answer.
    #[error("there is no answer `{0}`")]
    UnknownAnswer(String),
    /// It was there before.
    #[error("it was given before")]
    Repeated,
    /// It refers to itself.
    #[error("it leads back to itself")]
    ToItself,
    /// Only challengers challenge.
    #[error("the claim is no challenger")]
    NoChallenger,
    /// It has neither text nor label, or is not of the form it should be.
    #[error("it cannot be understood")]
    Unreadable,
}

/// Complaints, as many as are told.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    told: Vec<Complaint>,
    more: usize,
}

impl Complaints {
    pub(super) fn push(&mut self, complaint: Complaint) {
        if self.told.len() < MAP_COMPLAINTS_MAX {
            self.told.push(complaint);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn left_out(&mut self, at: impl Into<String>, what: &'static str, why: Dropped) {
        self.push(Complaint::LeftOut { at: at.into(), what, why });
    }

    pub(super) fn into_vec(mut self) -> Vec<Complaint> {
        if self.more > 0 {
            self.told.push(Complaint::More { count: self.more });
        }
        self.told
    }
}

/// The beginning of a text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let text = text.trim();
    let cut: String = text.chars().take(MAP_EXCERPT_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
