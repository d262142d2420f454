//! The tools that a model has called since it was last asked something, and how they ended.

use segue_core::prompt::{ChatRole, Prompt};
use serde_json::Value;

/// The tool calls since the last question, oldest first.
#[derive(Debug, Default)]
pub(super) struct RehearsalToolHistory {
    calls: Vec<RehearsalPastToolCall>,
}

#[derive(Debug)]
struct RehearsalPastToolCall {
    id: String,
    tool: String,
    arguments: Value,
    has_failed: bool,
}

/// How an action of the rehearsal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RehearsalActionStatus {
    NotTried,
    Done,
    /// It failed this many times.
    Failed(usize),
}

impl RehearsalToolHistory {
    pub(super) fn from_prompt(prompt: &Prompt) -> Self {
        let mut history = Self::default();
        for message in &*prompt.messages {
            match message.chat_role {
                ChatRole::User => history.calls.clear(),
                ChatRole::Assistant => {
                    history.calls.extend(message.tool_calls.iter().map(|call| RehearsalPastToolCall {
                        id: call.id.clone(),
                        tool: call.name.to_string(),
                        arguments: call.arguments.clone(),
                        has_failed: false,
                    }))
                }
                ChatRole::Tool => {
                    let answered = message.tool_call_id.as_deref().unwrap_or_default();
                    if let Some(call) = history.calls.iter_mut().find(|call| call.id == answered) {
                        call.has_failed = message.failed;
                    }
                }
                ChatRole::System => {}
            }
        }
        history
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns how a tool with these arguments ended.
    pub(super) fn action_status(&self, tool: &str, arguments: &Value) -> RehearsalActionStatus {
        let same = self.calls.iter().filter(|call| call.tool == tool && call.arguments == *arguments);
        let (failed, done): (Vec<_>, Vec<_>) = same.partition(|call| call.has_failed);
        match (done.is_empty(), failed.len()) {
            (false, _) => RehearsalActionStatus::Done,
            (true, 0) => RehearsalActionStatus::NotTried,
            (true, failures) => RehearsalActionStatus::Failed(failures),
        }
    }
}
