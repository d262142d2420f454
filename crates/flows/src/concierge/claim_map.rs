//! The claim map: the positions in the experts' answers, how they relate, and what no answer mentions. This module defines
//! the format and parses it leniently. It does not analyse the map and does not request repairs.
//!
//! # Finding the map
//!
//! A mapper writes `<map>`, a JSON object, `</map>`, and then its narrative ([`MAP_FORMAT_PROMPT`]). The parser takes the
//! first of these that contains an object with claims: the last tag pair with valid JSON; the last tag pair whose JSON can
//! be repaired; the last tag that was opened and never closed; the last code fence with claims; any JSON object with
//! `claims` and `edges`. The case of tags is ignored.
//!
//! # Parsing the map
//!
//! | written | parsed as |
//! |---|---|
//! | unknown or no type of a claim | speculative |
//! | unknown or no role | branch |
//! | unknown or no kind of an edge | supports |
//! | `challenges` of a claim that is not a challenger, or with an unknown claim | left out |
//! | supporters outside 1..=answers | left out |
//! | `type` or `relation` of an edge; `source` and `target` | its kind; its ends |
//! | `challenges` as a list | its item if it has exactly one, otherwise left out |
//! | an edge with an unknown claim, from a claim to itself, or a duplicate | left out |
//! | an end of an edge in another case, or a label instead of an id | the matching claim |
//! | the id of an earlier claim | left out |
//! | no id; no label; no text | a generated id; the start of the text; the label |
//!
//! Conflicts and tradeoffs have no direction: both directions are the same edge. Each repair is reported as a
//! [`ClaimMapComplaint`]. Apart from sorting ids, parsing takes time linear in the length of the text.

mod build;
mod complaint;
mod extract;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use complaint::{ClaimMapComplaint, ClaimMapPartDropReason, ClaimMapTagDefect};

use crate::limits::MAP_ANSWERS_MIN;

/// The format instruction for the mapper, with a sample.
pub const MAP_FORMAT_PROMPT: &str = include_str!("../../prompts/concierge/map_format.md");

/// The positions in several answers and how they relate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClaimMap {
    pub claims: Vec<ClaimNode>,
    pub edges: Vec<ClaimEdge>,
    /// Points that no answer mentions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The mapper's description in prose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub narrative: String,
}

/// The id of a claim within its map. Neither the user nor the concierge sees it.
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
    pub id: ClaimId,
    /// A few words that start with a verb.
    pub label: String,
    /// The position in one or two sentences.
    pub text: String,
    /// The numbers of the answers that take the position, starting at 1.
    #[serde(default)]
    pub supporters: BTreeSet<u32>,
    #[serde(rename = "type")]
    pub kind: ClaimStatementKind,
    pub role: ClaimRoleInMap,
    /// The claim that a challenger argues against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenges: Option<ClaimId>,
}

/// The kind of statement that a claim makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatementKind {
    /// States a fact.
    Factual,
    /// Says what to do.
    Prescriptive,
    /// Holds only under a condition.
    Conditional,
    /// Disputed among the answers.
    Contested,
    /// A guess.
    Speculative,
}

/// The role of a claim among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimRoleInMap {
    /// Other claims depend on it.
    Anchor,
    /// One of several options.
    Branch,
    /// Argues against another claim.
    Challenger,
    /// Adds a detail.
    Supplement,
}

/// A relation between two claims.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimEdge {
    pub from: ClaimId,
    pub to: ClaimId,
    pub kind: ClaimEdgeKind,
}

/// The kind of a relation between two claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimEdgeKind {
    /// `from` is a reason for `to`.
    Supports,
    /// The two cannot both be right. Undirected.
    Conflicts,
    /// More of one means less of the other. Undirected.
    Tradeoff,
    /// `to` needs `from`.
    Prerequisite,
}

impl ClaimEdgeKind {
    /// Returns whether the claims reinforce each other. Otherwise they are in tension and the edge is undirected.
    #[must_use]
    pub fn is_reinforcing(self) -> bool {
        match self {
            Self::Supports | Self::Prerequisite => true,
            Self::Conflicts | Self::Tradeoff => false,
        }
    }
}

/// A parsed map and the problems in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedClaimMap {
    pub map: ClaimMap,
    /// What was repaired or left out; empty if the mapper followed the format.
    pub complaints: Vec<ClaimMapComplaint>,
}

impl ParsedClaimMap {
    /// Returns whether the map was truncated before its edges, so that it has claims but no relations.
    #[must_use]
    pub fn is_truncated_before_edges(&self) -> bool {
        self.map.edges.is_empty() && self.complaints.contains(&ClaimMapComplaint::JsonTruncated)
    }
}

/// Why there is no map. Except for too few answers, the mapper can be asked once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimMapParseError {
    #[error("a map needs at least {MAP_ANSWERS_MIN} answers, but there are only {answers}")]
    TooFewAnswers { answers: u32 },
    #[error("the reply has no JSON object with `claims` and `edges`")]
    NoMapFound,
    #[error("the map has no readable claim")]
    NoClaims,
}

/// Parses the map in a mapper's reply about `answers` answers.
///
/// # Errors
/// If there are fewer than two answers, or the reply has no readable claim.
pub fn parse_claim_map(reply: &str, answers: u32) -> Result<ParsedClaimMap, ClaimMapParseError> {
    if answers < MAP_ANSWERS_MIN {
        return Err(ClaimMapParseError::TooFewAnswers { answers });
    }
    let map_json = extract::extract_map_json(reply)?;
    build::build_claim_map(&map_json, answers)
}
