//! The reasoning part of a prompt: the newest turns in full, and a summary of the rest.

use serde::Serialize;

use super::{AssistantFlowContext, truncate_chars};
use crate::assistant::facts::AssistantStepEndStatus;
use crate::assistant::reasoning::{AssistantStepSummary, TurnDecisionSummary};
use crate::limits::FOLDED_CHARS_MAX;

/// The turn summaries that a prompt shows.
#[derive(Debug, Clone, Serialize)]
pub struct TurnSummariesForPrompt {
    /// The summary of older turns.
    pub compacted: Option<String>,
    /// The turns in full, oldest first.
    pub turns: Vec<TurnSummaryForPrompt>,
}

/// One turn's summary as prompts show it.
#[derive(Debug, Clone, Serialize)]
pub struct TurnSummaryForPrompt {
    turn: u32,
    phase: &'static str,
    intent: String,
    decision: &'static str,
    goal: String,
    steps: Vec<AssistantStepSummaryForPrompt>,
    retained: Vec<String>,
    demoted: Vec<String>,
    blocked: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct AssistantStepSummaryForPrompt {
    step: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    subdomain: String,
    status: &'static str,
    outcome: String,
    refs: Vec<String>,
    note: Option<String>,
}

impl TurnSummariesForPrompt {
    /// Returns the newest turns, and the summary of those that were compacted.
    #[must_use]
    pub fn from_recent_turns(view: &AssistantFlowContext<'_>) -> Self {
        Self {
            compacted: render_compacted_reasoning(view),
            turns: view.state.reasoning.recent.iter().map(TurnSummaryForPrompt::from_summary).collect(),
        }
    }

    /// Returns the turns that wait for compaction, and the summary so far.
    #[must_use]
    pub fn from_uncompacted_turns(view: &AssistantFlowContext<'_>) -> Self {
        Self {
            compacted: render_compacted_reasoning(view),
            turns: view.state.reasoning.uncompacted.iter().map(TurnSummaryForPrompt::from_summary).collect(),
        }
    }

    /// Returns whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.compacted.is_none() && self.turns.is_empty()
    }
}

fn render_compacted_reasoning(view: &AssistantFlowContext<'_>) -> Option<String> {
    let compacted = view.state.reasoning.compacted?;
    Some(truncate_chars(view.read_text(compacted.text).trim(), FOLDED_CHARS_MAX))
}

impl TurnSummaryForPrompt {
    /// Converts a stored summary.
    #[must_use]
    pub fn from_summary(summary: &TurnDecisionSummary) -> Self {
        Self {
            turn: summary.turn,
            phase: summary.phase.as_str(),
            intent: summary.intent.clone(),
            decision: summary.decision.map_or("nothing", |decision| decision.as_str()),
            goal: summary.goal.clone(),
            steps: summary.steps.iter().map(AssistantStepSummaryForPrompt::from_summary).collect(),
            retained: summary.curation.retained.clone(),
            demoted: summary.curation.demoted.clone(),
            blocked: summary.blocked_reason.clone(),
        }
    }
}

impl AssistantStepSummaryForPrompt {
    fn from_summary(step: &AssistantStepSummary) -> Self {
        Self {
            step: step.step,
            kind: step.kind.as_str(),
            subdomain: step.subdomain.clone(),
            status: AssistantStepEndStatus::describe(step.status),
            outcome: step.outcome.clone(),
            refs: step.refs.clone(),
            note: step.note.clone(),
        }
    }
}
