//! What came of the tools that answers asked for, as the call that brings their results was shown it.

use std::collections::BTreeMap;

use segue_core::event::{Event, ToolOutcome};
use segue_core::ids::{CallId, ToolName, ToolRunId};

/// The runs of a journal so far, by the call that wished them.
#[derive(Debug, Default)]
pub struct ToolResultLog {
    open_runs: BTreeMap<ToolRunId, (CallId, ToolName)>,
    results_by_call: BTreeMap<CallId, Vec<String>>,
}

impl ToolResultLog {
    /// Takes notice of an event.
    pub fn apply_event(&mut self, event: &Event) {
        match event {
            Event::ToolRunOpened(opened) => {
                let wished = opened.requested_by.as_ref().map(|(call, _)| (*call, opened.tool.clone()));
                self.open_runs.extend(wished.map(|wished| (opened.run, wished)));
            }
            Event::ToolRunEnded { run, outcome, failed, .. } => {
                let Some((call, tool)) = self.open_runs.remove(run) else { return };
                let told = match (outcome, failed) {
                    (ToolOutcome::Done, _) => "",
                    (_, true) => ", and the model is told so",
                    (_, false) => ", and the model is sent the text alone",
                };
                let outcome = format!("{outcome:?}").to_lowercase();
                self.results_by_call.entry(call).or_default().push(format!("{run} {tool} {outcome}{told}"));
            }
            _ => {}
        }
    }

    /// The results of the tools that a call asked for, in the order they came.
    pub fn results_for_call(&self, call: CallId) -> Vec<String> {
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
    fn each_result_says_what_came_of_the_tool_and_whether_the_model_is_told() {
        let mut results = ToolResultLog::default();
        for (run, tool) in [(1, "look"), (2, "hear"), (3, "feel")] {
            let wish = Some((CallId(7), format!("w{run}")));
            let (turn, agent, phase, arguments) = (None, None, None, Value::Null);
            let run = ToolRunId(run);
            let opened = ToolRunOpened { run, turn, tool: tool.into(), arguments, requested_by: wish, agent, phase };
            results.apply_event(&Event::ToolRunOpened(opened));
        }
        let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
        let ended = |run, outcome, failed| Event::ToolRunEnded { run: ToolRunId(run), outcome, text, failed };
        results.apply_event(&ended(2, ToolOutcome::Failed, true));
        results.apply_event(&ended(1, ToolOutcome::Done, false));
        let before = json!({"type": "tool_run_ended", "run": 3, "outcome": "refused", "text": text});
        results.apply_event(&serde_json::from_value(before).expect("as it was once written"));
        let told = [
            "x2 hear failed, and the model is told so",
            "x1 look done",
            "x3 feel refused, and the model is sent the text alone",
        ];
        assert_eq!(results.results_for_call(CallId(7)), told);
        assert_eq!(results.results_for_call(CallId(8)), [""; 0]);
    }
}
