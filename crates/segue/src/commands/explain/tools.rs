//! What came of the tools that answers asked for, as the call that brings their results was shown it.

use std::collections::BTreeMap;

use segue_core::event::{Event, ToolOutcome};
use segue_core::ids::{CallId, ToolName, ToolRunId};

/// The runs of a journal so far, by the call that wished them.
#[derive(Debug, Default)]
pub struct ToolResults {
    open: BTreeMap<ToolRunId, (CallId, ToolName)>,
    ended: BTreeMap<CallId, Vec<String>>,
}

impl ToolResults {
    /// Takes notice of an event.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::ToolOpened(opened) => {
                let wished = opened.wish.as_ref().map(|(call, _)| (*call, opened.tool.clone()));
                self.open.extend(wished.map(|wished| (opened.run, wished)));
            }
            Event::ToolAnswered { run, outcome, failed, .. } => {
                let Some((call, tool)) = self.open.remove(run) else { return };
                let told = match (outcome, failed) {
                    (ToolOutcome::Done, _) => "",
                    (_, true) => ", and the model is told so",
                    (_, false) => ", and the model is sent the text alone",
                };
                let outcome = format!("{outcome:?}").to_lowercase();
                self.ended.entry(call).or_default().push(format!("{run} {tool} {outcome}{told}"));
            }
            _ => {}
        }
    }

    /// The results of the tools that a call asked for, in the order they came.
    pub fn of(&self, call: CallId) -> Vec<String> {
        self.ended.get(&call).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use segue_core::body::{BodyId, Text};
    use segue_core::event::ToolOpened;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_result_says_what_came_of_the_tool_and_whether_the_model_is_told() {
        let mut results = ToolResults::default();
        for (run, tool) in [(1, "look"), (2, "hear"), (3, "feel")] {
            let wish = Some((CallId(7), format!("w{run}")));
            let (turn, agent, phase, arguments) = (None, None, None, Value::Null);
            let run = ToolRunId(run);
            let opened = ToolOpened { run, turn, tool: tool.into(), arguments, wish, agent, phase };
            results.take(&Event::ToolOpened(opened));
        }
        let text = Text { body: BodyId::of("x"), tokens: 1 };
        let ended = |run, outcome, failed| Event::ToolAnswered { run: ToolRunId(run), outcome, text, failed };
        results.take(&ended(2, ToolOutcome::Failed, true));
        results.take(&ended(1, ToolOutcome::Done, false));
        let before = json!({"is": "tool_answered", "run": 3, "outcome": "refused", "text": text});
        results.take(&serde_json::from_value(before).expect("as it was once written"));
        let told = [
            "x2 hear failed, and the model is told so",
            "x1 look done",
            "x3 feel refused, and the model is sent the text alone",
        ];
        assert_eq!(results.of(CallId(7)), told);
        assert_eq!(results.of(CallId(8)), [""; 0]);
    }
}
