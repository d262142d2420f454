//! A prompt by reference: what an owed call is to be sent, before its texts are fetched. The same function serves the
//! dispatch, the recovery after a crash and the rebuilding of any past call.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::body::BodyId;
use crate::event::CallOpened;
use crate::flow::Lookup;
use crate::ids::CallId;
use crate::prompt::{Message, Output, Prompt, Speaker};
use crate::session::Session;
use crate::thread::Entry;

/// A prompt whose texts are still to be fetched. Shares what the thread holds, so that making one costs next to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    opening: Vec<BodyId>,
    entries: imbl::Vector<Arc<Entry>>,
}

impl Session {
    /// What an owed call is to be sent.
    #[must_use]
    pub fn plan(&self, call: CallId) -> Option<Plan> {
        let open = self.calls.get(&call)?;
        let thread = self.threads.get(&open.opened.receipt.thread.thread())?;
        let opening = thread.opening.iter().map(|(_, text)| text.body).collect();
        Some(Plan { opened: open.opened.clone(), opening, entries: thread.entries.clone() })
    }
}

impl Plan {
    /// The texts it needs.
    #[must_use]
    pub fn needs(&self) -> BTreeSet<BodyId> {
        let said = self.entries.iter().flat_map(|entry| &entry.parts).map(|text| text.body);
        let ends = self.opened.tools.into_iter().chain(self.opened.output);
        self.opening.iter().copied().chain(said).chain(self.ask()).chain(ends).collect()
    }

    fn ask(&self) -> impl Iterator<Item = BodyId> {
        self.opened.receipt.ask.iter().filter_map(|piece| piece.text).map(|text| text.body)
    }

    /// The prompt itself.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn fill(&self, texts: &dyn Lookup) -> Result<Prompt, BodyId> {
        let find = |id: BodyId| texts.find(id).ok_or(id);
        let mut messages = Vec::with_capacity(self.entries.len() + 2);
        let opening: Vec<Arc<str>> = self.opening.iter().copied().map(find).collect::<Result<_, _>>()?;
        if !opening.is_empty() {
            messages.push(plain(Speaker::System, opening));
        }
        for entry in &self.entries {
            messages.push(Message {
                speaker: entry.speaker,
                parts: entry.parts.iter().map(|text| find(text.body)).collect::<Result<_, _>>()?,
                tool_calls: entry.tool_calls.clone(),
                answers: entry.answers.clone(),
            });
        }
        let ask: Vec<Arc<str>> = self.ask().map(find).collect::<Result<_, _>>()?;
        if !ask.is_empty() {
            messages.push(plain(Speaker::User, ask));
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

fn plain(speaker: Speaker, parts: Vec<Arc<str>>) -> Message {
    Message { speaker, parts, tool_calls: Vec::new(), answers: None }
}
