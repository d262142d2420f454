//! What was decided and why: a summary a turn, two of them in full, older ones folded into one text. Also the label that
//! says how far a conversation has come; it is a word for Reply and stops nothing.

use std::collections::VecDeque;

use segue_core::body::TextRef;
use serde::{Deserialize, Serialize};

use super::facts::{StepEndStatus, StepKind, ThinkDecision};
use crate::limits::{FULL_SUMMARIES_MAX, SUMMARIES_AGED_MAX};

/// The layer of what was decided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReasoningMemory {
    /// The newest turns, in full.
    pub recent: VecDeque<TurnSummary>,
    /// Older ones that are not folded yet.
    pub uncompacted: VecDeque<TurnSummary>,
    /// Those before, folded.
    pub compacted: Option<CompactedTurns>,
}

/// Older turns in one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedTurns {
    /// Up to this turn.
    pub through_turn: u32,
    /// The text.
    pub text: TextRef,
}

/// What was done in a turn and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    /// Which turn.
    pub turn: u32,
    /// What Think decided; nothing if it could not.
    #[serde(default)]
    pub decision: Option<ThinkDecision>,
    /// What for.
    #[serde(default)]
    pub goal: String,
    /// The steps.
    #[serde(default)]
    pub steps: Vec<StepSummary>,
    /// What Understand did to the references.
    #[serde(default)]
    pub curation: CurationSummary,
    /// How far the conversation had come.
    #[serde(default)]
    pub phase: ConversationPhase,
    /// What the user expressed.
    #[serde(default)]
    pub intent: String,
    /// Why not everything was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepSummary {
    /// Which.
    pub step: u32,
    /// What sort of step.
    #[serde(rename = "type")]
    pub kind: StepKind,
    /// The type of record it was about.
    #[serde(default)]
    pub subdomain: String,
    /// How it ended; nothing if it was not begun.
    #[serde(default)]
    pub status: Option<StepEndStatus>,
    /// What came of it.
    #[serde(default)]
    pub outcome: String,
    /// The references it was about.
    #[serde(default)]
    pub refs: Vec<String>,
    /// What it told the next step.
    #[serde(default)]
    pub note: Option<String>,
}

/// What was done to the references.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CurationSummary {
    /// Kept near.
    pub retained: Vec<String>,
    /// Set aside.
    pub demoted: Vec<String>,
    /// Why, one by one.
    pub reasons: Vec<String>,
}

/// How far a conversation has come. A label and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationPhase {
    /// What is wanted is being found out.
    #[default]
    Exploring,
    /// Choices are being made.
    Narrowing,
    /// Something waits for a yes.
    Confirming,
    /// It is being done.
    Executing,
}

impl ConversationPhase {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exploring => "exploring",
            Self::Narrowing => "narrowing",
            Self::Confirming => "confirming",
            Self::Executing => "executing",
        }
    }

    /// The label of a turn: from what was decided, the sorts of step, and whether a draft waits for a yes.
    #[must_use]
    pub fn classify_turn(
        decision: Option<ThinkDecision>,
        steps: impl Iterator<Item = StepKind> + Clone,
        draft_waits: bool,
    ) -> Self {
        let any = |wanted: &[StepKind]| steps.clone().any(|kind| wanted.contains(&kind));
        match decision {
            Some(ThinkDecision::Propose | ThinkDecision::Clarify) | None => Self::Exploring,
            Some(ThinkDecision::PlanDirect) if any(&[StepKind::Write]) => Self::Executing,
            Some(ThinkDecision::PlanDirect) if draft_waits => Self::Confirming,
            Some(ThinkDecision::PlanDirect) if any(&[StepKind::Analyze, StepKind::Generate]) => Self::Narrowing,
            Some(ThinkDecision::PlanDirect) => Self::Exploring,
        }
    }
}

impl ReasoningMemory {
    pub(super) fn push_summary(&mut self, summary: TurnSummary) {
        self.recent.push_back(summary);
        while self.recent.len() > FULL_SUMMARIES_MAX {
            self.uncompacted.extend(self.recent.pop_front());
        }
        while self.uncompacted.len() > SUMMARIES_AGED_MAX {
            self.uncompacted.pop_front();
        }
    }

    pub(super) fn compact_through(&mut self, through_turn: u32, text: TextRef) {
        self.uncompacted.retain(|summary| summary.turn > through_turn);
        self.compacted = Some(CompactedTurns { through_turn, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepKind::{Analyze, Generate, Read, Write};

    fn label(decision: Option<ThinkDecision>, steps: &[StepKind], draft_waits: bool) -> &'static str {
        ConversationPhase::classify_turn(decision, steps.iter().copied(), draft_waits).as_str()
    }

    #[test]
    fn a15_to_propose_or_to_ask_is_to_explore() {
        for decision in [ThinkDecision::Propose, ThinkDecision::Clarify] {
            assert_eq!(label(Some(decision), &[], false), "exploring");
            assert_eq!(label(Some(decision), &[Write], true), "exploring");
        }
    }

    #[test]
    fn a16_the_label_follows_from_the_sorts_of_step() {
        let direct = Some(ThinkDecision::PlanDirect);
        assert_eq!(label(direct, &[Read, Write], false), "executing");
        assert_eq!(label(direct, &[Generate, Write], true), "executing");
        assert_eq!(label(direct, &[Read, Analyze], false), "narrowing");
        assert_eq!(label(direct, &[Generate], false), "narrowing");
        assert_eq!(label(direct, &[Generate], true), "confirming");
        assert_eq!(label(direct, &[Read, Read], false), "exploring");
        assert_eq!(label(direct, &[], false), "exploring");
        assert_eq!(label(None, &[], false), "exploring");
    }
}
