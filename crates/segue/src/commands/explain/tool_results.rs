//! Collects the results of the tools that models called, by the call that requested them.

use std::collections::BTreeMap;

use segue_core::event::{Event, ToolRunOutcome};
use segue_core::ids::{CallId, ToolName, ToolRunId};

/// The tool runs of a journal up to some event.
#[derive(Debug, Default)]
pub(crate) struct ToolOutcomesByCall {
    open_runs: BTreeMap<ToolRunId, (CallId, ToolName)>,
    results_by_call: BTreeMap<CallId, Vec<String>>,
}

impl ToolOutcomesByCall {
    /// Records the opening or the end of a tool run; ignores other events.
    pub(crate) fn apply_event(&mut self, event: &Event) {
        match event {
            Event::ToolRunOpened(opened) => {
                let request = opened.requested_by.as_ref().map(|(call, _)| (*call, opened.tool.clone()));
                self.open_runs.extend(request.map(|request| (opened.run, request)));
            }
            Event::ToolRunEnded { run, outcome, failed, .. } => {
                let Some((call, tool)) = self.open_runs.remove(run) else { return };
                let marked = match (outcome, failed) {
                    (ToolRunOutcome::Done, _) => "",
                    (_, true) => " (marked as an error for the model)",
                    (_, false) => " (not marked as an error for the model)",
                };
                let outcome = format!("{outcome:?}").to_lowercase();
                self.results_by_call.entry(call).or_default().push(format!("{run} {tool} {outcome}{marked}"));
            }
            _ => {}
        }
    }

    /// Returns the results of the tools that a call requested, in the order in which they ended.
    pub(crate) fn results_for_call(&self, call: CallId) -> Vec<String> {
        self.results_by_call.get(&call).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use segue_core::body::{BodyId, TextRef};
    use segue_core::event::ToolRunOpened;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_result_has_its_outcome_and_whether_the_model_sees_an_error() {
        let mut results = ToolOutcomesByCall::default();
        for (run, tool) in [(1, "look"), (2, "hear"), (3, "feel")] {
            let requested_by = Some((CallId(7), format!("w{run}")));
            let (turn, agent, phase, arguments) = (None, None, None, Value::Null);
            let run = ToolRunId(run);
            let opened = ToolRunOpened { run, turn, tool: tool.into(), arguments, requested_by, agent, phase };
            results.apply_event(&Event::ToolRunOpened(opened));
        }
        let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
        let ended = |run, outcome, failed| Event::ToolRunEnded {
            run: ToolRunId(run),
            outcome,
            text,
            failed,
            value: None,
            artifacts: Vec::new(),
        };
        results.apply_event(&ended(2, ToolRunOutcome::Failed, true));
        results.apply_event(&ended(1, ToolRunOutcome::Done, false));
        let without_flag = json!({"type": "tool_run_ended", "run": 3, "outcome": "refused", "text": text});
        results.apply_event(&serde_json::from_value(without_flag).expect("the flag is optional"));
        let expected = [
            "x2 hear failed (marked as an error for the model)",
            "x1 look done",
            "x3 feel refused (not marked as an error for the model)",
        ];
        assert_eq!(results.results_for_call(CallId(7)), expected);
        assert_eq!(results.results_for_call(CallId(8)), [""; 0]);
    }
}
