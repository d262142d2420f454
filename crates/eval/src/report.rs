//! The result of an evaluation: what was measured for each role, what it cost, and in words what the model is good enough
//! for.

use std::collections::BTreeMap;

use segue_core::event::Event;
use segue_core::signal::SignalForm;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::EvalConversationRecord;
use crate::score::{EvalConversationScore, EvalMeasureResult, score_conversation};

/// The evaluation of one model in one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelEvaluationInFlow {
    pub flow: String,
    /// How signals were requested from the role that talks to the user; `None` if the flow has no handovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<SignalForm>,
    pub conversations: Vec<EvalConversationReport>,
    /// The sums over all conversations, ordered by role.
    pub measures: Vec<EvalMeasureResult>,
    pub usage: Vec<RoleUsage>,
    pub turns: usize,
    pub duration_ms: u64,
}

/// One conversation of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalConversationReport {
    pub name: String,
    pub turns: usize,
    pub duration_ms: u64,
    /// What went wrong in measures that have a requirement.
    pub failures: Vec<String>,
}

/// What the calls of a role used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoleUsage {
    pub role: String,
    pub calls: u64,
    /// Attempts without an answer.
    pub failed_attempts: u64,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// `None` if the price of a call is unknown.
    pub cost_microusd: Option<u64>,
    pub duration_ms: u64,
}

/// What a model is good enough for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSuitabilityForRole {
    pub role: String,
    pub is_good_enough: bool,
    /// The measures that are not met, each in words.
    pub reasons: Vec<String>,
}

impl ModelEvaluationInFlow {
    /// Evaluates the conversations of one flow.
    #[must_use]
    pub fn from_records(flow: &str, records: &[EvalConversationRecord]) -> Self {
        let scores: Vec<EvalConversationScore> = records.iter().map(score_conversation).collect();
        let conversations = records.iter().zip(&scores).map(|(record, score)| {
            let required = score.measures.iter().filter(|measure| measure.required_percent().is_some());
            let mut failures: Vec<String> = Vec::new();
            for failure in required.flat_map(|measure| &measure.failures) {
                // A wrong task has the failure of the expectation that is not met.
                if !failures.contains(failure) {
                    failures.push(failure.clone());
                }
            }
            let (name, turns) = (record.conversation.name.clone(), record.messages.len());
            EvalConversationReport { name, turns, duration_ms: record.duration_ms, failures }
        });
        Self {
            flow: flow.to_owned(),
            signals: records.iter().filter(|record| !record.handover_fields.is_empty()).map(signal_form).next(),
            conversations: conversations.collect(),
            measures: EvalConversationScore::sum_scores(&scores),
            usage: sum_usage(records),
            turns: records.iter().map(|record| record.messages.len()).sum(),
            duration_ms: records.iter().map(|record| record.duration_ms).sum(),
        }
    }

    /// Returns for each role that was measured what the model is good enough for.
    #[must_use]
    pub fn verdicts(&self) -> Vec<ModelSuitabilityForRole> {
        let mut roles: Vec<&str> = self.measures.iter().map(|measure| measure.role.as_str()).collect();
        roles.dedup();
        let verdict = |role: &str| {
            let mine = self.measures.iter().filter(|measure| measure.role == role);
            let unmet: Vec<&EvalMeasureResult> = mine.filter(|measure| !measure.is_met()).collect();
            let reasons = unmet.iter().map(|measure| {
                let EvalMeasureResult { name, passed, total, .. } = measure;
                let required = measure.required_percent().unwrap_or(0);
                format!("{name}: {passed} of {total} ({} %), wanted {required} %", measure.percent())
            });
            ModelSuitabilityForRole {
                role: role.to_owned(),
                is_good_enough: unmet.is_empty(),
                reasons: reasons.collect(),
            }
        };
        roles.into_iter().map(verdict).collect()
    }

    /// Returns the sums over all roles.
    #[must_use]
    pub fn total_usage(&self) -> RoleUsage {
        self.usage.iter().fold(RoleUsage { cost_microusd: Some(0), ..RoleUsage::default() }, |mut sum, role| {
            sum.add(role);
            sum
        })
    }

    /// Returns the measure with this name, summed over the roles.
    #[must_use]
    pub fn find_measure(&self, name: &str) -> Option<EvalMeasureResult> {
        let mut found = self.measures.iter().filter(|measure| measure.name == name);
        let first = found.next()?.clone();
        Some(found.fold(first, |mut sum, measure| {
            (sum.passed, sum.total) = (sum.passed + measure.passed, sum.total + measure.total);
            sum
        }))
    }
}

impl RoleUsage {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed_attempts += other.failed_attempts;
        self.input_tokens += other.input_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        self.duration_ms += other.duration_ms;
        self.cost_microusd = self.cost_microusd.zip(other.cost_microusd).map(|(one, other)| one + other);
    }
}

/// Returns how signals were requested: by the session's settings, or else by what is known of the model.
fn signal_form(record: &EvalConversationRecord) -> SignalForm {
    let opened = record.events.iter().find_map(|recorded| match &recorded.event {
        Event::SessionOpened(opened) => Some(opened),
        _ => None,
    });
    let setting = opened.and_then(|opened| opened.settings.get("signals")).and_then(Value::as_str);
    match setting {
        Some("inline") => SignalForm::Inline,
        Some("structured") => SignalForm::Structured,
        _ => {
            let mut calls = record.answered_calls().into_iter().map(|call| call.opened);
            calls.find(|opened| record.visible_roles.contains(&opened.role)).map(|opened| opened.signal_form)
        }
        .unwrap_or_default(),
    }
}

fn sum_usage(records: &[EvalConversationRecord]) -> Vec<RoleUsage> {
    let mut roles: BTreeMap<String, RoleUsage> = BTreeMap::new();
    for record in records {
        for call in record.answered_calls() {
            let role = call.opened.role.to_string();
            let answered = call.answered;
            let one = RoleUsage {
                role: role.clone(),
                calls: 1,
                failed_attempts: u64::from(answered.attempt.saturating_sub(1)),
                input_tokens: u64::from(answered.usage.input_tokens),
                cached_tokens: u64::from(answered.usage.cached_tokens),
                output_tokens: u64::from(answered.usage.output_tokens),
                cost_microusd: answered.cost_microusd,
                duration_ms: answered.duration_ms,
            };
            match roles.get_mut(&role) {
                Some(sum) => sum.add(&one),
                None => {
                    roles.insert(role, one);
                }
            }
        }
    }
    roles.into_values().collect()
}
