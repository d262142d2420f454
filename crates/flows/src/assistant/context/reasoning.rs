//! The reasoning slice: two turns in full, the rest folded.

use serde::Serialize;

use super::{Sight, cut};
use crate::assistant::facts::End;
use crate::assistant::reasoning::{StepSummary, TurnSummary};
use crate::limits::FOLDED_CHARS_MAX;

/// What was decided before.
#[derive(Debug, Clone, Serialize)]
pub struct Past {
    /// Long ago, in short.
    pub folded: Option<String>,
    /// Lately, in full; the oldest first.
    pub turns: Vec<TurnShown>,
}

/// A turn's summary as it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct TurnShown {
    turn: u32,
    phase: &'static str,
    expressed: String,
    decision: &'static str,
    goal: String,
    steps: Vec<StepOf>,
    retained: Vec<String>,
    demoted: Vec<String>,
    blocked: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct StepOf {
    step: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    subdomain: String,
    end: &'static str,
    outcome: String,
    refs: Vec<String>,
    note: Option<String>,
}

impl Past {
    /// The newest turns.
    #[must_use]
    pub fn of(view: &Sight<'_>) -> Self {
        Self { folded: folded(view), turns: view.state.reasoning.full.iter().map(TurnShown::of).collect() }
    }

    /// The turns that are to be folded, after what is folded already.
    #[must_use]
    pub fn aged(view: &Sight<'_>) -> Self {
        Self { folded: folded(view), turns: view.state.reasoning.aged.iter().map(TurnShown::of).collect() }
    }

    /// Whether nothing was decided yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folded.is_none() && self.turns.is_empty()
    }
}

fn folded(view: &Sight<'_>) -> Option<String> {
    let folded = view.state.reasoning.folded?;
    Some(cut(view.text(folded.text).trim(), FOLDED_CHARS_MAX))
}

impl TurnShown {
    /// A summary in words.
    #[must_use]
    pub fn of(summary: &TurnSummary) -> Self {
        Self {
            turn: summary.turn,
            phase: summary.phase.word(),
            expressed: summary.expressed.clone(),
            decision: summary.decision.map_or("nothing", |decision| decision.word()),
            goal: summary.goal.clone(),
            steps: summary.steps.iter().map(StepOf::of).collect(),
            retained: summary.curation.retained.clone(),
            demoted: summary.curation.demoted.clone(),
            blocked: summary.blocked_reason.clone(),
        }
    }
}

impl StepOf {
    fn of(step: &StepSummary) -> Self {
        Self {
            step: step.step,
            kind: step.kind.word(),
            subdomain: step.subdomain.clone(),
            end: End::words(step.end),
            outcome: step.outcome.clone(),
            refs: step.refs.clone(),
            note: step.note.clone(),
        }
    }
}
