//! The progress of an evaluation on standard error: a changing line on a terminal, a line for each finished conversation
//! otherwise.

use segue_core::ids::ModelName;
use segue_eval::conversation::EvalConversationSpec;
use segue_eval::record::EvalConversationRecord;
use segue_eval::runner::EvalConversationProgress;
use segue_eval::score::score_conversation;

use crate::follow::ProgressLine;
use crate::print::{self, number_format};

#[derive(Debug)]
pub(super) struct EvalProgressDisplay {
    line: ProgressLine,
    conversation_count: usize,
    started_count: usize,
    label: String,
}

impl EvalProgressDisplay {
    pub(super) fn new(conversation_count: usize) -> Self {
        Self { line: ProgressLine::new(), conversation_count, started_count: 0, label: String::new() }
    }

    pub(super) fn start_conversation(&mut self, model: &ModelName, conversation: &EvalConversationSpec) {
        // Each model holds all conversations.
        self.started_count = self.started_count % self.conversation_count + 1;
        let number = format!("{}/{}", self.started_count, self.conversation_count);
        self.label = format!("{number} {model} {}/{}", conversation.flow, conversation.name);
        self.line.show(&self.label);
    }

    pub(super) fn show_turn(&mut self, progress: &EvalConversationProgress<'_>) {
        let phase = if progress.phase.is_empty() { String::new() } else { format!(", {}", progress.phase) };
        self.line.show(&format!("{}: turn {}{phase}", self.label, progress.turn));
    }

    pub(super) fn show_finished(&mut self, record: &EvalConversationRecord) {
        self.clear();
        let score = score_conversation(record);
        let required = score.measures.iter().filter(|measure| measure.required_percent().is_some());
        let failures: usize = required.map(|measure| (measure.total - measure.passed) as usize).sum();
        let result = match failures {
            0 => "nothing went wrong".to_owned(),
            count => format!("{} went wrong", number_format::format_plural(count as u64, "check")),
        };
        let duration = number_format::format_duration(record.duration_ms);
        print::write_stderr_line(&format!("{}: {result}, {duration}", self.label));
    }

    pub(super) fn clear(&mut self) {
        self.line.clear();
    }
}
