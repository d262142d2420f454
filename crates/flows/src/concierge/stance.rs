//! How the concierge speaks: which stance is taken, by a rule anyone can follow, and what it is told about it. What the
//! user set goes first; then what the message asks for in so many words; then what suits the shape.
//!
//! A cue counts as a whole phrase, in any case. It does not count after a word of refusal in the same clause ("don't
//! decide for me"). Of several cues the first in the message counts, and of those that begin at one word the longest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::analysis::MapShape;
use super::phrases::{TextWord, WordGap, split_words, starts_with_phrase};
use crate::template::fill_template;

/// The stances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ReplyStance {
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

impl ReplyStance {
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

impl fmt::Display for ReplyStance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A stance and what led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StanceChoice {
    /// The stance.
    pub stance: ReplyStance,
    /// What led to it.
    pub reason: StanceReason,
}

/// What leads to a stance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StanceReason {
    /// The user set it.
    UserSetting,
    /// The message asks for it in these words.
    MessageCue(&'static str),
    /// It suits the shape.
    MapShape(MapShape),
    /// Nothing speaks for another.
    Fallback,
}

/// Which words ask for which stance; a hyphen counts as a blank.
pub const STANCE_CUES: [(ReplyStance, &[&str]); 3] = [
    (
        ReplyStance::Decide,
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
        ReplyStance::Challenge,
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
        ReplyStance::Explore,
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
const NEGATIONS: [&str; 15] = [
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
const NEGATION_REACH_WORDS: usize = 3;

/// The stance for a message. Without a map there is no shape.
#[must_use]
pub fn choose_stance(setting: Option<ReplyStance>, message: &str, shape: Option<MapShape>) -> StanceChoice {
    if let Some(stance) = setting {
        return StanceChoice { stance, reason: StanceReason::UserSetting };
    }
    if let Some((stance, cue)) = find_stance_cue(message) {
        return StanceChoice { stance, reason: StanceReason::MessageCue(cue) };
    }
    match shape {
        Some(shape) => StanceChoice { stance: stance_for_shape(shape), reason: StanceReason::MapShape(shape) },
        None => StanceChoice { stance: ReplyStance::Default, reason: StanceReason::Fallback },
    }
}

/// The stance that suits a shape.
#[must_use]
pub fn stance_for_shape(shape: MapShape) -> ReplyStance {
    match shape {
        MapShape::Tradeoff | MapShape::Exploratory | MapShape::Dimensional | MapShape::Contextual => {
            ReplyStance::Explore
        }
        MapShape::Settled | MapShape::Linear | MapShape::Keystone | MapShape::Contested => ReplyStance::Default,
    }
}

fn find_stance_cue(message: &str) -> Option<(ReplyStance, &'static str)> {
    let words = split_words(message);
    (0..words.len()).find_map(|at| {
        let all = STANCE_CUES.iter().flat_map(|(stance, cues)| cues.iter().map(|cue| (*stance, *cue)));
        let found = all.filter(|(_, cue)| starts_with_phrase(&words[at..], cue)).max_by_key(|(_, cue)| cue.len());
        found.filter(|_| !is_negated(&words, at))
    })
}

/// Whether a word of refusal stands a few words before, in the same clause. "Why not" invites.
fn is_negated(words: &[TextWord], at: usize) -> bool {
    for before in (at.saturating_sub(NEGATION_REACH_WORDS)..at).rev() {
        if words[before + 1].gap == WordGap::Separated {
            return false;
        }
        let is_invitation = before > 0 && words[before].text == "not" && words[before - 1].text == "why";
        if NEGATIONS.contains(&words[before].text.as_str()) && !is_invitation {
            return true;
        }
    }
    false
}

/// What the concierge is told about its stance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StanceGuidance {
    /// What the user is after; nothing for the default.
    pub framing: Option<String>,
    /// What to do.
    pub behaviour: String,
    /// How to sound.
    pub voice: String,
}

/// What the concierge is told about a stance.
#[must_use]
pub fn render_stance_guidance(stance: ReplyStance) -> StanceGuidance {
    #[derive(Serialize)]
    struct StanceGuidanceArguments {
        stance: &'static str,
    }
    let filled = |template| fill_template(template, &StanceGuidanceArguments { stance: stance.name() });
    let framing = filled(include_str!("../../prompts/concierge/stance/framing.md"));
    StanceGuidance {
        framing: (!framing.is_empty()).then_some(framing),
        behaviour: filled(include_str!("../../prompts/concierge/stance/behaviour.md")),
        voice: filled(include_str!("../../prompts/concierge/stance/voice.md")),
    }
}
