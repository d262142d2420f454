//! The results of earlier evaluations. They decide how a model is asked for signals, if the flow's setting is `auto`.

use segue_core::ids::UnixMillis;
use segue_core::signal::SignalForm;
use serde::{Deserialize, Serialize};

use crate::limits::RESULTS_MAX;
use crate::report::{ModelEvaluationInFlow, ModelSuitabilityForRole, RoleUsage};
use crate::score::{EvalMeasureResult, HANDOVER_WRITTEN, WITHOUT_SIGNALS};

/// The results that are kept, the newest last. There is one for each model, flow and form of signals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredEvaluationResultList {
    entries: Vec<StoredEvaluationResult>,
}

/// The result of one evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredEvaluationResult {
    /// The model as its provider knows it, such as `openai/gpt-6-mini`.
    pub model: String,
    pub flow: String,
    /// How signals were requested; `None` if the flow has no handovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<SignalForm>,
    pub evaluated_at: UnixMillis,
    /// The number of conversations.
    pub conversations: usize,
    pub turns: usize,
    pub measures: Vec<EvalMeasureResult>,
    pub verdicts: Vec<ModelSuitabilityForRole>,
    pub usage: RoleUsage,
    pub duration_ms: u64,
}

impl StoredEvaluationResult {
    #[must_use]
    pub fn new(model: &str, evaluation: &ModelEvaluationInFlow, evaluated_at: UnixMillis) -> Self {
        Self {
            model: model.to_owned(),
            flow: evaluation.flow.clone(),
            signals: evaluation.signals,
            evaluated_at,
            conversations: evaluation.conversations.len(),
            turns: evaluation.turns,
            measures: evaluation.measures.clone(),
            verdicts: evaluation.verdicts(),
            usage: evaluation.total_usage(),
            duration_ms: evaluation.duration_ms,
        }
    }

    /// Returns whether signals arrived and none was shown; `None` if the flow has no signals.
    fn has_reliable_signals(&self) -> Option<bool> {
        let find = |name: &str| self.measures.iter().find(|measure| measure.name == name);
        let (shown, written) = (find(WITHOUT_SIGNALS)?, find(HANDOVER_WRITTEN)?);
        Some(shown.is_met() && written.is_met())
    }
}

impl StoredEvaluationResultList {
    /// Adds a result, in place of an earlier one of the same model, flow and form of signals. Beyond the limit, the
    /// oldest is removed.
    pub fn add(&mut self, result: StoredEvaluationResult) {
        let is_same = |known: &StoredEvaluationResult| {
            (&known.model, &known.flow, known.signals) == (&result.model, &result.flow, result.signals)
        };
        self.entries.retain(|known| !is_same(known));
        self.entries.push(result);
        let excess = self.entries.len().saturating_sub(RESULTS_MAX);
        self.entries.drain(..excess);
    }

    /// Returns the results of a model, the oldest first.
    pub fn of_model<'r>(&'r self, model: &'r str) -> impl Iterator<Item = &'r StoredEvaluationResult> {
        self.entries.iter().filter(move |result| result.model == model)
    }

    /// Returns how a model is asked for signals, if an evaluation says so: in its replies if that was reliable, with
    /// separate questions if it was not. An evaluation of separate questions says nothing about the other form.
    #[must_use]
    pub fn signal_form(&self, model: &str) -> Option<SignalForm> {
        let inline = self.of_model(model).filter(|result| result.signals == Some(SignalForm::Inline));
        let reliable = inline.filter_map(StoredEvaluationResult::has_reliable_signals).last()?;
        Some(if reliable { SignalForm::Inline } else { SignalForm::Structured })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(model: &str, signals: SignalForm, shown: u32, written: u32) -> StoredEvaluationResult {
        let measure = |name: &str, passed: u32, total: u32| EvalMeasureResult {
            role: "concierge".into(),
            name: name.into(),
            passed,
            total,
            failures: Vec::new(),
        };
        StoredEvaluationResult {
            model: model.into(),
            flow: "concierge".into(),
            signals: Some(signals),
            evaluated_at: UnixMillis(0),
            conversations: 12,
            turns: 48,
            measures: vec![measure(WITHOUT_SIGNALS, 48 - shown, 48), measure(HANDOVER_WRITTEN, written, 12)],
            verdicts: Vec::new(),
            usage: RoleUsage::default(),
            duration_ms: 0,
        }
    }

    #[test]
    fn inline_signals_are_used_if_they_were_reliable() {
        let mut results = StoredEvaluationResultList::default();
        assert_eq!(results.signal_form("a"), None);
        results.add(result("a", SignalForm::Structured, 0, 12));
        assert_eq!(results.signal_form("a"), None, "the other form was not tried");
        results.add(result("a", SignalForm::Inline, 0, 10));
        assert_eq!(results.signal_form("a"), Some(SignalForm::Inline));
        results.add(result("a", SignalForm::Inline, 1, 12));
        assert_eq!(results.signal_form("a"), Some(SignalForm::Structured), "a signal was shown");
        results.add(result("b", SignalForm::Inline, 0, 9));
        assert_eq!(results.signal_form("b"), Some(SignalForm::Structured), "most handovers were built");
    }

    #[test]
    fn newer_result_replaces_the_older_one() {
        let mut results = StoredEvaluationResultList::default();
        for written in [1, 2] {
            results.add(result("a", SignalForm::Inline, 0, written));
        }
        assert_eq!(results.of_model("a").count(), 1);
        for number in 0..RESULTS_MAX + 5 {
            results.add(result(&number.to_string(), SignalForm::Inline, 0, 1));
        }
        assert_eq!(results.entries.len(), RESULTS_MAX);
        assert_eq!(results.of_model("a").count(), 0, "the oldest was removed");
    }
}
