//! Chooses the stance of the concierge and renders the guidance for it. The setting has priority, then a cue in the
//! message, then the concierge's answer to the question what the user wants, then the shape of the map.
//!
//! A cue is a whole phrase that says how to answer and can hardly mean anything else, in any case. It does not count after a negation in the same clause ("don't decide for me").
//! The first cue in the message counts; of several that start at the same word, the longest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::analysis::ClaimMapShape;
use super::phrases::{TextWord, WordSeparation, split_words, starts_with_phrase};
use crate::template::fill_template;

/// How the concierge replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ReplyStance {
    /// Answers the question.
    #[default]
    Default,
    /// Recommends one option.
    Decide,
    /// Shows several directions.
    Explore,
    /// Tests the user's view.
    Challenge,
}

impl ReplyStance {
    /// All stances.
    pub const ALL: [Self; 4] = [Self::Default, Self::Decide, Self::Explore, Self::Challenge];

    /// Returns the name that settings, handovers and templates use.
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

/// A stance and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyStanceChoice {
    pub stance: ReplyStance,
    pub reason: ReplyStanceReason,
}

/// Why a stance was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStanceReason {
    /// The session's settings fix it.
    UserSetting,
    /// The message contains this cue.
    MessageCue(&'static str),
    /// The concierge was asked how the user wants to be answered.
    ConciergeAnswer,
    /// It suits the shape of the map.
    ClaimMapShape(ClaimMapShape),
    /// No other reason applies.
    Fallback,
}

/// The cues of each stance. A hyphen counts as a blank.
pub const STANCE_CUES: [(ReplyStance, &[&str]); 3] = [
    (
        ReplyStance::Decide,
        &[
            "decide for me",
            "decide for us",
            "please decide",
            "you decide",
            "just tell me",
            "tell me what to do",
            "make the call",
            "make a decision",
            "pick one",
            "pick for me",
            "choose for me",
            "help me choose",
            "help me pick",
            "your recommendation",
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
            "please challenge",
            "devil's advocate",
            "push back",
            "poke holes",
            "stress test",
            "prove me wrong",
            "convince me otherwise",
            "argue against",
            "play the skeptic",
            "play the sceptic",
            "what am i missing",
            "what am i overlooking",
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
            "explore this with me",
            "explore it with me",
            "help me explore",
            "brainstorm with me",
            "help me brainstorm",
            "let's brainstorm",
            "help me think",
            "what are my options",
            "what are the options",
            "keep it open",
        ],
    ),
];

/// Words after which a cue does not count.
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
/// How many words a negation reaches.
const NEGATION_REACH_WORDS: usize = 3;

/// Chooses the stance for a message. `by_concierge` is what the concierge thinks that the user wants; the default stance
/// means that the user asks for none. `shape` is `None` without a map.
#[must_use]
pub fn choose_stance(
    setting: Option<ReplyStance>,
    message: &str,
    by_concierge: Option<ReplyStance>,
    shape: Option<ClaimMapShape>,
) -> ReplyStanceChoice {
    if let Some(stance) = setting {
        return ReplyStanceChoice { stance, reason: ReplyStanceReason::UserSetting };
    }
    if let Some((stance, cue)) = find_stance_cue(message) {
        return ReplyStanceChoice { stance, reason: ReplyStanceReason::MessageCue(cue) };
    }
    if let Some(stance) = by_concierge.filter(|stance| *stance != ReplyStance::Default) {
        return ReplyStanceChoice { stance, reason: ReplyStanceReason::ConciergeAnswer };
    }
    match shape {
        Some(shape) => {
            ReplyStanceChoice { stance: stance_for_shape(shape), reason: ReplyStanceReason::ClaimMapShape(shape) }
        }
        None => ReplyStanceChoice { stance: ReplyStance::Default, reason: ReplyStanceReason::Fallback },
    }
}

/// Returns the stance that suits a shape.
#[must_use]
pub fn stance_for_shape(shape: ClaimMapShape) -> ReplyStance {
    match shape {
        ClaimMapShape::Tradeoff
        | ClaimMapShape::Exploratory
        | ClaimMapShape::Dimensional
        | ClaimMapShape::Contextual => ReplyStance::Explore,
        ClaimMapShape::Settled | ClaimMapShape::Linear | ClaimMapShape::Keystone | ClaimMapShape::Contested => {
            ReplyStance::Default
        }
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

/// Returns whether a negation comes shortly before the word at `at`, in the same clause. "Why not" is an invitation.
fn is_negated(words: &[TextWord], at: usize) -> bool {
    for before in (at.saturating_sub(NEGATION_REACH_WORDS)..at).rev() {
        if words[before + 1].gap == WordSeparation::Separated {
            return false;
        }
        let is_invitation = before > 0 && words[before].text == "not" && words[before - 1].text == "why";
        if NEGATIONS.contains(&words[before].text.as_str()) && !is_invitation {
            return true;
        }
    }
    false
}

/// The texts about a stance in the concierge's prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyStanceGuidance {
    /// What the user expects; `None` for the default stance.
    pub framing: Option<String>,
    pub behaviour: String,
    pub voice: String,
}

/// Renders the guidance for a stance.
#[must_use]
pub fn render_stance_guidance(stance: ReplyStance) -> ReplyStanceGuidance {
    #[derive(Serialize)]
    struct ReplyStanceGuidanceTemplateFields {
        stance: &'static str,
    }
    let fill = |template| fill_template(template, &ReplyStanceGuidanceTemplateFields { stance: stance.name() });
    let framing = fill(include_str!("../../prompts/concierge/stance/framing.md"));
    ReplyStanceGuidance {
        framing: (!framing.is_empty()).then_some(framing),
        behaviour: fill(include_str!("../../prompts/concierge/stance/behaviour.md")),
        voice: fill(include_str!("../../prompts/concierge/stance/voice.md")),
    }
}
