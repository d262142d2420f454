//! How the concierge speaks: which stance is taken, by a rule anyone can follow, and what it is told about it. What the
//! user set goes first; then what the message asks for in so many words; then what suits the shape.
//!
//! A cue counts as a whole phrase, in any case. It does not count after a word of refusal in the same clause ("don't
//! decide for me"). Of several cues the first in the message counts, and of those that begin at one word the longest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::analysis::Shape;
use super::words::{Gap, Word, begins, words};
use crate::template::fill;

/// The stances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Stance {
    /// Answers what was asked.
    #[default]
    Default,
    /// Commits to one way.
    Decide,
    /// Opens the ground.
    Explore,
    /// Tests what the user holds.
    Challenge,
}

impl Stance {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Default, Self::Decide, Self::Explore, Self::Challenge];

    /// Its name, as settings, handovers and templates have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Decide => "decide",
            Self::Explore => "explore",
            Self::Challenge => "challenge",
        }
    }
}

impl fmt::Display for Stance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A stance and what led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The stance.
    pub stance: Stance,
    /// What led to it.
    pub because: Because,
}

/// What leads to a stance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The user set it.
    Set,
    /// The message asks for it in these words.
    Cue(&'static str),
    /// It suits the shape.
    Shape(Shape),
    /// Nothing speaks for another.
    Nothing,
}

/// Which words ask for which stance; a hyphen counts as a blank.
pub const CUES: [(Stance, &[&str]); 3] = [
    (
        Stance::Decide,
        &[
            "decide",
            "just tell me",
            "tell me what to do",
            "make the call",
            "make a decision",
            "make up my mind",
            "pick one",
            "pick for me",
            "choose for me",
            "help me choose",
            "help me pick",
            "recommend",
            "your recommendation",
            "what should i do",
            "which one should i",
            "which should i",
            "what would you do",
            "give me an answer",
            "give me a straight answer",
            "bottom line",
        ],
    ),
    (
        Stance::Challenge,
        &[
            "challenge me",
            "challenge my",
            "challenge our",
            "challenge this",
            "challenge that",
            "challenge these",
            "challenge the",
            "challenge it",
            "please challenge",
            "devil's advocate",
            "push back",
            "poke holes",
            "stress test",
            "prove me wrong",
            "change my mind",
            "convince me otherwise",
            "argue against",
            "play the skeptic",
            "play the sceptic",
            "what am i missing",
            "what am i overlooking",
            "am i wrong",
            "where am i wrong",
            "find the flaws",
            "find flaws",
            "tear it apart",
            "tear this apart",
            "be critical",
        ],
    ),
    (
        Stance::Explore,
        &[
            "explore",
            "exploring",
            "brainstorm",
            "brainstorming",
            "think through",
            "think out loud",
            "thinking out loud",
            "help me think",
            "what if",
            "what are my options",
            "what are the options",
            "what possibilities",
            "open ended",
            "keep it open",
            "just curious",
        ],
    ),
];

/// After one of these, a cue asks for nothing.
const REFUSALS: [&str; 15] = [
    "don't",
    "dont",
    "not",
    "never",
    "no",
    "without",
    "before",
    "avoid",
    "stop",
    "won't",
    "wouldn't",
    "shouldn't",
    "needn't",
    "instead",
    "than",
];
/// How many words a refusal reaches.
const REFUSAL_WORDS: usize = 3;

/// The stance for a message. Without a map there is no shape.
#[must_use]
pub fn choose(set: Option<Stance>, message: &str, shape: Option<Shape>) -> Choice {
    if let Some(stance) = set {
        return Choice { stance, because: Because::Set };
    }
    if let Some((stance, cue)) = cue(message) {
        return Choice { stance, because: Because::Cue(cue) };
    }
    match shape {
        Some(shape) => Choice { stance: suiting(shape), because: Because::Shape(shape) },
        None => Choice { stance: Stance::Default, because: Because::Nothing },
    }
}

/// The stance that suits a shape.
#[must_use]
pub fn suiting(shape: Shape) -> Stance {
    match shape {
        Shape::Tradeoff | Shape::Exploratory | Shape::Dimensional | Shape::Contextual => Stance::Explore,
        Shape::Settled | Shape::Linear | Shape::Keystone | Shape::Contested => Stance::Default,
    }
}

fn cue(message: &str) -> Option<(Stance, &'static str)> {
    let words = words(message);
    (0..words.len()).find_map(|at| {
        let all = CUES.iter().flat_map(|(stance, cues)| cues.iter().map(|cue| (*stance, *cue)));
        let found = all.filter(|(_, cue)| begins(&words[at..], cue)).max_by_key(|(_, cue)| cue.len());
        found.filter(|_| !is_refused(&words, at))
    })
}

/// Whether a word of refusal stands a few words before, in the same clause. "Why not" invites.
fn is_refused(words: &[Word], at: usize) -> bool {
    for before in (at.saturating_sub(REFUSAL_WORDS)..at).rev() {
        if words[before + 1].gap == Gap::Wide {
            return false;
        }
        let is_invitation = before > 0 && words[before].text == "not" && words[before - 1].text == "why";
        if REFUSALS.contains(&words[before].text.as_str()) && !is_invitation {
            return true;
        }
    }
    false
}

/// What the concierge is told about its stance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guidance {
    /// What the user is after; nothing for the default.
    pub framing: Option<String>,
    /// What to do.
    pub behaviour: String,
    /// How to sound.
    pub voice: String,
}

/// What the concierge is told about a stance.
#[must_use]
pub fn guidance(stance: Stance) -> Guidance {
    #[derive(Serialize)]
    struct Arguments {
        stance: &'static str,
    }
    let filled = |template| fill(template, &Arguments { stance: stance.name() });
    let framing = filled(include_str!("../../prompts/concierge/stance/framing.md"));
    Guidance {
        framing: (!framing.is_empty()).then_some(framing),
        behaviour: filled(include_str!("../../prompts/concierge/stance/behaviour.md")),
        voice: filled(include_str!("../../prompts/concierge/stance/voice.md")),
    }
}
