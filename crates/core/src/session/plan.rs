//! A prompt by reference: what an owed call is to be sent, before its texts are fetched. The same function serves the
//! dispatch, the recovery after a crash and the rebuilding of any past call.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::BodyId;
use crate::event::CallOpened;
use crate::flow::Lookup;
use crate::ids::CallId;
use crate::prompt::{Message, Output, Prompt, Speaker, ToolCall};
use crate::session::Session;
use crate::thread::Thread;

/// A prompt whose texts are still to be fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    /// Its messages.
    pub messages: Vec<PlannedMessage>,
}

/// A message whose texts are still to be fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedMessage {
    /// Whose words.
    pub speaker: Speaker,
    /// Its parts.
    pub parts: Vec<BodyId>,
    /// What the assistant asked to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which of those a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
}

impl PlannedMessage {
    fn plain(speaker: Speaker, parts: Vec<BodyId>) -> Self {
        Self { speaker, parts, tool_calls: Vec::new(), answers: None }
    }
}

impl Session {
    /// What an owed call is to be sent.
    #[must_use]
    pub fn plan(&self, call: CallId) -> Option<Plan> {
        let open = self.calls.get(&call)?;
        if let Some(again) = &open.opened.recomputes {
            return Some(Plan { opened: open.opened.clone(), messages: again.messages.clone() });
        }
        let thread = self.threads.get(&open.opened.receipt.thread.thread())?;
        Some(Plan { opened: open.opened.clone(), messages: messages(thread, &open.opened) })
    }
}

fn messages(thread: &Thread, opened: &CallOpened) -> Vec<PlannedMessage> {
    let mut messages = Vec::with_capacity(thread.entries.len() + 2);
    if !thread.opening.is_empty() {
        messages
            .push(PlannedMessage::plain(Speaker::System, thread.opening.iter().map(|(_, text)| text.body).collect()));
    }
    messages.extend(thread.entries.iter().map(|entry| PlannedMessage {
        speaker: entry.speaker,
        parts: entry.parts.iter().map(|text| text.body).collect(),
        tool_calls: entry.tool_calls.clone(),
        answers: entry.answers.clone(),
    }));
    let ask: Vec<BodyId> = opened.receipt.ask.iter().filter_map(|piece| piece.text).map(|text| text.body).collect();
    if !ask.is_empty() {
        messages.push(PlannedMessage::plain(Speaker::User, ask));
    }
    messages
}

impl Plan {
    /// The texts it needs.
    #[must_use]
    pub fn needs(&self) -> BTreeSet<BodyId> {
        let parts = self.messages.iter().flat_map(|message| &message.parts);
        parts.chain(&self.opened.tools).chain(&self.opened.output).copied().collect()
    }

    /// The prompt itself.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn fill(&self, texts: &dyn Lookup) -> Result<Prompt, BodyId> {
        let find = |id: BodyId| texts.find(id).ok_or(id);
        let mut messages = Vec::with_capacity(self.messages.len());
        for planned in &self.messages {
            messages.push(Message {
                speaker: planned.speaker,
                parts: planned.parts.iter().map(|id| find(*id)).collect::<Result<Vec<Arc<str>>, BodyId>>()?,
                tool_calls: planned.tool_calls.clone(),
                answers: planned.answers.clone(),
            });
        }
        let tools = match self.opened.tools {
            Some(id) => serde_json::from_str(&find(id)?).map_err(|_| id)?,
            None => Vec::new(),
        };
        let output = match self.opened.output {
            Some(id) => Output::Json(serde_json::from_str(&find(id)?).map_err(|_| id)?),
            None => Output::Text,
        };
        Ok(Prompt {
            model: self.opened.model.clone(),
            messages,
            tools,
            output,
            reply_tokens_max: self.opened.reply_tokens_max,
        })
    }
}
