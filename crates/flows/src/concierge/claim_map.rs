//! The map: which positions the answers take, how these bear on each other, and what no answer addressed. This module
//! decides how a mapper writes a map down and what is understood of what it wrote; it passes no judgement on positions
//! and asks nobody to write again.
//!
//! # How it is found
//!
//! A mapper writes `<map>`, a JSON object, `</map>`, and then its narrative ([`FORMAT`]). The first of these that holds
//! an object with claims is taken: the last tag with valid JSON; the last tag whose JSON can be mended; the last tag
//! that was opened and never closed; the last code fence with claims in it; any JSON object with `claims` and `edges`. Tags
//! count in any case.
//!
//! # How it is read
//!
//! | written | read as |
//! |---|---|
//! | unknown or no type of a claim | speculative |
//! | unknown or no role | branch |
//! | unknown or no kind of an edge | supports |
//! | `challenges` on a claim that is no challenger, or of a claim that does not exist | left out |
//! | supporters outside 1..=answers | left out |
//! | `type` or `relation` of an edge, `source` and `target` | its kind, its ends |
//! | `challenges` as a list of one | that one; of more, none |
//! | an edge to an unknown claim, from a claim to itself, or for the second time | left out |
//! | an end of an edge in other case, or a label in place of an id | the claim that is meant |
//! | the id of an earlier claim | the earlier claim stands |
//! | no id, no label or no text | a new id; the beginning of the text; the label |
//!
//! Conflicts and tradeoffs have no direction: written both ways they are the same edge. Each of these repairs is a
//! [`Complaint`]. Reading takes time in proportion to the length of the text, but for the sorting of ids.

mod build;
mod complaint;
mod extract;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use complaint::{DropReason, MapComplaint, TagDefect};

use crate::limits::MAP_ANSWERS_MIN;

/// How a mapper is told to write a map down, with a sample.
pub const MAP_FORMAT_PROMPT: &str = include_str!("../../prompts/concierge/map_format.md");

/// What a mapper found in the answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClaimMap {
    /// The positions.
    pub claims: Vec<ClaimNode>,
    /// How they bear on each other.
    pub edges: Vec<ClaimEdge>,
    /// What no answer addressed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The same in the mapper's own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub narrative: String,
}

/// A claim's name within its map. It is never shown to the user or to the concierge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(pub String);

impl From<&str> for ClaimId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A position that at least one answer takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimNode {
    /// Its name.
    pub id: ClaimId,
    /// A short stance, a verb phrase.
    pub label: String,
    /// The position in a sentence or two.
    pub text: String,
    /// The numbers of the answers that take it; the first answer is 1.
    #[serde(default)]
    pub supporters: BTreeSet<u32>,
    /// What sort of statement it is.
    #[serde(rename = "type")]
    pub kind: ClaimKind,
    /// What it does among the others.
    pub role: ClaimRole,
    /// The claim a challenger turns against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenges: Option<ClaimId>,
}

/// The sorts of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// Says what is.
    Factual,
    /// Says what to do.
    Prescriptive,
    /// Holds only if something else does.
    Conditional,
    /// The answers disagree about it.
    Contested,
    /// A guess.
    Speculative,
}

/// What a claim does among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimRole {
    /// Others rest on it.
    Anchor,
    /// One of several ways on.
    Branch,
    /// Turns against another.
    Challenger,
    /// Adds to the rest and could be left out.
    Supplement,
}

/// How one claim bears on another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimEdge {
    /// Where it begins.
    pub from: ClaimId,
    /// Where it ends.
    pub to: ClaimId,
    /// What it says.
    pub kind: ClaimEdgeKind,
}

/// The ways one claim bears on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimEdgeKind {
    /// `from` is a reason for `to`.
    Supports,
    /// Not both can hold. Has no direction.
    Conflicts,
    /// More of one is less of the other. Has no direction.
    Tradeoff,
    /// `to` needs `from`.
    Prerequisite,
}

impl ClaimEdgeKind {
    /// Whether the two ends help each other; otherwise they are in tension, and the edge has no direction.
    #[must_use]
    pub fn is_reinforcing(self) -> bool {
        match self {
            Self::Supports | Self::Prerequisite => true,
            Self::Conflicts | Self::Tradeoff => false,
        }
    }
}

/// A map that was read, and what was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedClaimMap {
    /// What was understood.
    pub map: ClaimMap,
    /// What was repaired or left out; empty if the mapper kept to the format.
    pub complaints: Vec<MapComplaint>,
}

impl ParsedClaimMap {
    /// Whether the map was cut off before it came to its edges: then it says who holds what, and not what that comes to.
    #[must_use]
    pub fn is_truncated_before_edges(&self) -> bool {
        self.map.edges.is_empty() && self.complaints.contains(&MapComplaint::JsonTruncated)
    }
}

/// Why there is no map. A mapper can be told so and asked once more, except if there were too few answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimMapError {
    /// There is nothing to compare.
    #[error("a map needs at least {MAP_ANSWERS_MIN} answers, and there are {answers}")]
    TooFewAnswers {
        /// How many there are.
        answers: u32,
    },
    /// The reply holds no map.
    #[error("the reply holds no JSON object with `claims` and `edges`")]
    NoMapFound,
    /// The reply holds a map with nothing in it.
    #[error("the map has no claim that can be understood")]
    NoClaims,
}

/// Reads the map in a mapper's reply about this many answers.
///
/// # Errors
/// If there are fewer than two answers, or no claim can be understood.
pub fn parse_claim_map(reply: &str, answers: u32) -> Result<ParsedClaimMap, ClaimMapError> {
    if answers < MAP_ANSWERS_MIN {
        return Err(ClaimMapError::TooFewAnswers { answers });
    }
    let written = extract::extract_map_json(reply)?;
    build::build_claim_map(&written, answers)
}
