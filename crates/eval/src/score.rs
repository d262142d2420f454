//! Computes what a conversation says about a model. A measure counts how often something went right, for one role. The
//! measures of every flow are here and in `replies`; a flow with measures of its own has a module and an entry in
//! `FLOW_SCORERS`.

mod assistant;
mod concierge;
mod expectations;
mod project;
mod replies;
mod team;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{FAILURE_NOTES_MAX, NOTE_CHARS_MAX};
use crate::record::EvalConversationRecord;

/// A measure that every flow has.
pub const TURNS_COMPLETED: &str = "turns completed";
pub const WITHOUT_SIGNALS: &str = "replies without signals";
pub const ANSWERED: &str = "replies that answer the user";
pub const LANGUAGE_KEPT: &str = "language kept";
pub const TASKS_RIGHT: &str = "tasks right";

/// Measures of particular flows.
pub const HANDOVER_WRITTEN: &str = "handover written by the model";
pub const MAPS_READ: &str = "maps that could be read";
pub const VALID_AT_ONCE: &str = "answers valid at once";
pub const VALID_AFTER_REPAIR: &str = "answers valid after a repair";
pub const STEPS_REALLY_DONE: &str = "steps ended only when done";
pub const REFERENCES_AT_ONCE: &str = "references that exist, at once";
pub const REFERENCES_AFTER_REPAIR: &str = "references that exist, repaired";
pub const NO_END_WITHOUT_EVIDENCE: &str = "no end without evidence";
pub const WITHOUT_TOOL_CALLS: &str = "replies without tool calls";
pub const HONEST_ACCOUNT: &str = "honest final account";
pub const FILES_WRITTEN: &str = "files written";
pub const CHECK_GREEN: &str = "check green at the end";
pub const NO_RED_MERGE: &str = "merges with green tests";
pub const FAILURES_NAMED: &str = "failures named";
pub const BRANCHES_KEPT: &str = "branches of failures kept";
pub const STORIES_MERGED: &str = "stories merged";

/// What share of a measure must be right, in percent. A measure without a requirement is for information.
const REQUIRED_PERCENT: [(&str, u32); 18] = [
    (TURNS_COMPLETED, 100),
    (WITHOUT_SIGNALS, 100),
    (ANSWERED, 90),
    (LANGUAGE_KEPT, 90),
    (TASKS_RIGHT, 50),
    (HANDOVER_WRITTEN, 80),
    (MAPS_READ, 80),
    (VALID_AFTER_REPAIR, 80),
    (STEPS_REALLY_DONE, 100),
    (REFERENCES_AFTER_REPAIR, 100),
    (NO_END_WITHOUT_EVIDENCE, 100),
    (WITHOUT_TOOL_CALLS, 100),
    (HONEST_ACCOUNT, 100),
    (FILES_WRITTEN, 70),
    (CHECK_GREEN, 30),
    (NO_RED_MERGE, 100),
    (FAILURES_NAMED, 100),
    (BRANCHES_KEPT, 100),
];
/// What is required of a measure that conversations define.
const EXPECTATION_PERCENT: u32 = 80;
/// Measures without a requirement.
const INFORMATIONAL: [&str; 3] = [VALID_AT_ONCE, REFERENCES_AT_ONCE, STORIES_MERGED];

/// Computes the measures of one flow.
type FlowScorer = fn(&EvalConversationRecord, &mut EvalConversationScore);

/// The flows with measures of their own.
const FLOW_SCORERS: [(&str, FlowScorer); 4] = [
    ("concierge", concierge::score_concierge),
    ("assistant", assistant::score_assistant),
    (PROJECT_FLOW, project::score_project),
    ("team", team::score_team),
];
/// The flow whose measures also apply to flows that are defined in a file.
const PROJECT_FLOW: &str = "project";

/// The roles that are responsible for the work in flows in which code writes the final account.
const RESPONSIBLE_ROLES: [(&str, &str); 2] = [(PROJECT_FLOW, "executor"), ("team", "coder")];

/// Returns the role whose measures count the result of a flow, if it is not the one that talks to the user.
pub(crate) fn responsible_role(flow: &str) -> Option<&'static str> {
    RESPONSIBLE_ROLES.iter().find(|(name, _)| *name == flow).map(|(_, role)| *role)
}

/// The measures of one conversation, by role and name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalConversationScore {
    pub measures: Vec<EvalMeasureResult>,
}

/// How often something went right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalMeasureResult {
    pub role: String,
    pub name: String,
    pub passed: u32,
    pub total: u32,
    /// What went wrong, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

impl EvalMeasureResult {
    /// Returns the share that went right, in percent, rounded down.
    #[must_use]
    pub fn percent(&self) -> u32 {
        (self.passed * 100).checked_div(self.total).unwrap_or(100)
    }

    /// Returns the share that is required, in percent; `None` if the measure is for information.
    #[must_use]
    pub fn required_percent(&self) -> Option<u32> {
        if INFORMATIONAL.contains(&self.name.as_str()) {
            return None;
        }
        let known = REQUIRED_PERCENT.iter().find(|(name, _)| *name == self.name);
        Some(known.map_or(EXPECTATION_PERCENT, |(_, percent)| *percent))
    }

    /// Returns whether enough went right.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.required_percent().is_none_or(|required| self.passed * 100 >= required * self.total)
    }
}

impl EvalConversationScore {
    /// Counts one case of a measure. `failure` says what went wrong; it is `None` if nothing did.
    pub(crate) fn count_case(&mut self, role: &str, name: &str, failure: Option<String>) {
        let measure = self.measure_mut(role, name);
        measure.total += 1;
        match failure {
            None => measure.passed += 1,
            Some(failure) if measure.failures.len() < FAILURE_NOTES_MAX => measure.failures.push(failure),
            Some(_) => {}
        }
    }

    fn measure_mut(&mut self, role: &str, name: &str) -> &mut EvalMeasureResult {
        let known = self.measures.iter().position(|measure| measure.role == role && measure.name == name);
        let index = known.unwrap_or_else(|| {
            let (role, name) = (role.to_owned(), name.to_owned());
            self.measures.push(EvalMeasureResult { role, name, passed: 0, total: 0, failures: Vec::new() });
            self.measures.len() - 1
        });
        &mut self.measures[index]
    }

    /// Returns the sums of several scores, ordered by role.
    pub(crate) fn sum_scores<'s>(scores: impl IntoIterator<Item = &'s Self>) -> Vec<EvalMeasureResult> {
        let mut sums: BTreeMap<(&str, usize, &str), EvalMeasureResult> = BTreeMap::new();
        for measure in scores.into_iter().flat_map(|score| &score.measures) {
            let rank = REQUIRED_PERCENT.iter().position(|(name, _)| *name == measure.name).unwrap_or(usize::MAX);
            let sum = sums.entry((&measure.role, rank, &measure.name)).or_insert_with(|| EvalMeasureResult {
                passed: 0,
                total: 0,
                failures: Vec::new(),
                ..measure.clone()
            });
            sum.passed += measure.passed;
            sum.total += measure.total;
            let space = FAILURE_NOTES_MAX.saturating_sub(sum.failures.len());
            sum.failures.extend(measure.failures.iter().take(space).cloned());
        }
        sums.into_values().collect()
    }
}

/// Scores a conversation.
#[must_use]
pub fn score_conversation(record: &EvalConversationRecord) -> EvalConversationScore {
    let mut score = EvalConversationScore::default();
    replies::score_replies(record, &mut score);
    let flow = if record.is_defined_in_a_file() { PROJECT_FLOW } else { record.conversation.flow.as_str() };
    if let Some((_, scorer)) = FLOW_SCORERS.iter().find(|(name, _)| *name == flow) {
        scorer(record, &mut score);
    }
    expectations::score_expectations(record, &mut score);
    score
}

/// Returns a note about a failure: where it happened, and a short quotation.
pub(crate) fn failure_note(record: &EvalConversationRecord, turn: usize, what: &str, quoted: &str) -> String {
    let quoted: Vec<&str> = quoted.split_whitespace().collect();
    let quoted = quoted.join(" ");
    let start: String = quoted.chars().take(NOTE_CHARS_MAX).collect();
    let more = if start.len() < quoted.len() { "…" } else { "" };
    let quotation = if start.is_empty() { String::new() } else { format!(": “{start}{more}”") };
    format!("{}, turn {turn}: {what}{quotation}", record.conversation.name)
}
