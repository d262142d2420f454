//! The reasoning layer of the memory: one summary for each turn, the newest in full and the older ones compacted into one text.
//! Also the phase label of a conversation, which Reply is shown and which restricts nothing.

use std::collections::VecDeque;

use segue_core::body::TextRef;
use serde::{Deserialize, Serialize};

use super::facts::{AssistantPlanStepKind, AssistantStepEndStatus, ThinkDecision};
use crate::limits::{FULL_SUMMARIES_MAX, SUMMARIES_AGED_MAX};

/// What was decided so far, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnDecisionHistory {
    /// The newest turns in full, oldest first.
    pub recent: VecDeque<TurnDecisionSummary>,
    /// Older turns that wait for compaction.
    pub uncompacted: VecDeque<TurnDecisionSummary>,
    /// The summary of all turns before.
    pub compacted: Option<CompactedTurnsSummary>,
}

/// The text that replaces older turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedTurnsSummary {
    /// The last turn that the text covers.
    pub through_turn: u32,
    pub text: TextRef,
}

/// What was done in one turn, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnDecisionSummary {
    pub turn: u32,
    /// What Think decided; `None` if it gave no usable answer.
    #[serde(default)]
    pub decision: Option<ThinkDecision>,
    #[serde(default)]
    pub goal: String,
    #[serde(default)]
    pub steps: Vec<AssistantStepSummary>,
    #[serde(default)]
    pub curation: RetainedAndDemotedReferences,
    #[serde(default)]
    pub phase: ConversationStageLabel,
    /// What the user wanted, in a few words.
    #[serde(default)]
    pub intent: String,
    /// Why the plan was not completed, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// The outcome of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantStepSummary {
    pub step: u32,
    #[serde(rename = "type")]
    pub kind: AssistantPlanStepKind,
    /// The type of record that the step was about.
    #[serde(default)]
    pub subdomain: String,
    /// How the step ended; `None` if it never started.
    #[serde(default)]
    pub status: Option<AssistantStepEndStatus>,
    #[serde(default)]
    pub outcome: String,
    #[serde(default)]
    pub refs: Vec<String>,
    /// Its note for the next step.
    #[serde(default)]
    pub note: Option<String>,
}

/// The references that Understand retained and demoted in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetainedAndDemotedReferences {
    pub retained: Vec<String>,
    pub demoted: Vec<String>,
    /// The reasons, as `reference: reason`.
    pub reasons: Vec<String>,
}

/// How far a conversation has come. This is only a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStageLabel {
    /// Finding out what the user wants.
    #[default]
    Exploring,
    /// Choosing among what was found.
    Narrowing,
    /// A draft waits for the user's approval.
    Confirming,
    /// Writing records.
    Executing,
}

impl ConversationStageLabel {
    /// Returns the name used in prompts and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exploring => "exploring",
            Self::Narrowing => "narrowing",
            Self::Confirming => "confirming",
            Self::Executing => "executing",
        }
    }

    /// Returns the label of a turn, from Think's decision, the kinds of its steps, and whether a draft waits for approval.
    #[must_use]
    pub fn classify_turn(
        decision: Option<ThinkDecision>,
        steps: impl Iterator<Item = AssistantPlanStepKind> + Clone,
        draft_waits: bool,
    ) -> Self {
        let any = |wanted: &[AssistantPlanStepKind]| steps.clone().any(|kind| wanted.contains(&kind));
        match decision {
            Some(ThinkDecision::Propose | ThinkDecision::Clarify) | None => Self::Exploring,
            Some(ThinkDecision::PlanDirect) if any(&[AssistantPlanStepKind::Write]) => Self::Executing,
            Some(ThinkDecision::PlanDirect) if draft_waits => Self::Confirming,
            Some(ThinkDecision::PlanDirect)
                if any(&[AssistantPlanStepKind::Analyze, AssistantPlanStepKind::Generate]) =>
            {
                Self::Narrowing
            }
            Some(ThinkDecision::PlanDirect) => Self::Exploring,
        }
    }
}

impl TurnDecisionHistory {
    pub(super) fn push_summary(&mut self, summary: TurnDecisionSummary) {
        self.recent.push_back(summary);
        while self.recent.len() > FULL_SUMMARIES_MAX {
            self.uncompacted.extend(self.recent.pop_front());
        }
        while self.uncompacted.len() > SUMMARIES_AGED_MAX {
            self.uncompacted.pop_front();
        }
    }

    pub(super) fn store_compacted_summary(&mut self, through_turn: u32, text: TextRef) {
        self.uncompacted.retain(|summary| summary.turn > through_turn);
        self.compacted = Some(CompactedTurnsSummary { through_turn, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AssistantPlanStepKind::{Analyze, Generate, Read, Write};

    fn label(decision: Option<ThinkDecision>, steps: &[AssistantPlanStepKind], draft_waits: bool) -> &'static str {
        ConversationStageLabel::classify_turn(decision, steps.iter().copied(), draft_waits).as_str()
    }

    #[test]
    fn a15_proposing_and_asking_are_labelled_exploring() {
        for decision in [ThinkDecision::Propose, ThinkDecision::Clarify] {
            assert_eq!(label(Some(decision), &[], false), "exploring");
            assert_eq!(label(Some(decision), &[Write], true), "exploring");
        }
    }

    #[test]
    fn a16_label_follows_from_the_kinds_of_steps() {
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
