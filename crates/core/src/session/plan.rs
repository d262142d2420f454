//! A prompt by reference: what an owed call is to be sent, before its texts are fetched. The same function serves the
//! dispatch, the recovery after a crash and the rebuilding of any past call.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, Picture};
use crate::event::CallOpened;
use crate::flow::Lookup;
use crate::ids::CallId;
use crate::prompt::{Image, Message, Output, Prompt, Speaker, ToolCall};
use crate::session::Session;
use crate::thread::{Entries, Entry};

/// A prompt whose texts are still to be fetched. Shares what the thread holds, so that making one costs next to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    shown: Shown,
}

#[derive(Debug, Clone, PartialEq)]
enum Shown {
    /// A thread, and what the call asks.
    Thread { opening: Vec<BodyId>, entries: Entries, compactions: u32 },
    /// What another call was shown.
    Again(Vec<PlannedMessage>),
}

/// The messages of a thread as its last prompt held them. The next one only adds what was said since.
#[derive(Debug, Default)]
pub struct Filled {
    messages: Arc<Vec<Message>>,
    /// How many of them the thread holds; the others are what was asked last.
    kept: usize,
    /// How often the thread had been compacted.
    compactions: u32,
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
    /// Whether that tool did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// What the user showed with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Picture>,
    /// What an answer's vendor wants to see again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<BodyId>,
}

impl PlannedMessage {
    /// Every text it names.
    pub fn bodies(&self) -> impl Iterator<Item = BodyId> {
        self.parts.iter().copied().chain(self.images.iter().map(|image| image.body)).chain(self.seal)
    }
}

impl Session {
    /// Tokens of what an owed call is sent: those of its receipt, unless its thread was shortened since it was opened.
    #[must_use]
    pub fn sent_tokens(&self, opened: &CallOpened) -> u32 {
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread()).filter(|_| receipt.carried.entries > 0);
        thread.map_or(receipt.tokens, |thread| receipt.tokens.saturating_sub(receipt.carried.tokens) + thread.tokens)
    }

    /// What an owed call is to be sent.
    #[must_use]
    pub fn plan(&self, call: CallId) -> Option<Plan> {
        let open = self.calls.get(&call)?;
        if let Some(again) = &open.opened.recomputes {
            return Some(Plan { opened: open.opened.clone(), shown: Shown::Again(again.messages.clone()) });
        }
        let thread = self.threads.get(&open.opened.receipt.thread.thread())?;
        let opening = thread.opening.iter().map(|(_, text)| text.body).collect();
        let (entries, compactions) = (thread.entries.clone(), thread.compactions);
        let shown = Shown::Thread { opening, entries, compactions };
        Some(Plan { opened: open.opened.clone(), shown })
    }
}

impl Plan {
    /// Its messages.
    #[must_use]
    pub fn messages(&self) -> Vec<PlannedMessage> {
        let mut messages = Vec::with_capacity(self.len_max());
        let told = self.tell(0, |message, parts| {
            let parts = parts.collect();
            let Told { speaker, tool_calls, answers, failed, images, seal } = message;
            messages.push(PlannedMessage {
                speaker,
                parts,
                tool_calls: tool_calls.to_vec(),
                answers: answers.cloned(),
                failed,
                images: images.to_vec(),
                seal,
            });
            Ok::<_, Infallible>(())
        });
        let Ok(()) = told;
        messages
    }

    /// The texts it needs.
    #[must_use]
    pub fn needs(&self) -> BTreeSet<BodyId> {
        let mut needs: BTreeSet<BodyId> = self.opened.tools.into_iter().chain(self.opened.output).collect();
        let told = self.tell(0, |message, parts| {
            needs.extend(parts);
            needs.extend(message.images.iter().map(|image| image.body).chain(message.seal));
            Ok::<_, Infallible>(())
        });
        let Ok(()) = told;
        needs
    }

    /// At most so many messages.
    fn len_max(&self) -> usize {
        match &self.shown {
            Shown::Thread { entries, .. } => entries.len() + 2,
            Shown::Again(messages) => messages.len(),
        }
    }

    /// How many messages come before what the call asks.
    fn kept(&self) -> usize {
        match &self.shown {
            Shown::Thread { opening, entries, .. } => usize::from(!opening.is_empty()) + entries.len(),
            Shown::Again(_) => 0,
        }
    }

    /// Goes through the messages in order, but for the first `known`.
    fn tell<E>(
        &self,
        known: usize,
        mut each: impl FnMut(Told<'_>, &mut dyn Iterator<Item = BodyId>) -> Result<(), E>,
    ) -> Result<(), E> {
        let plain = |speaker| Told { speaker, tool_calls: &[], answers: None, failed: false, images: &[], seal: None };
        let (opening, entries) = match &self.shown {
            Shown::Thread { opening, entries, .. } => (opening, entries),
            Shown::Again(messages) => {
                return messages.iter().skip(known).try_for_each(|message| {
                    let PlannedMessage { speaker, parts, tool_calls, answers, failed, images, seal } = message;
                    let (speaker, answers, failed, seal) = (*speaker, answers.as_ref(), *failed, *seal);
                    each(Told { speaker, tool_calls, answers, failed, images, seal }, &mut parts.iter().copied())
                });
            }
        };
        if known == 0 && !opening.is_empty() {
            each(plain(Speaker::System), &mut opening.iter().copied())?;
        }
        let known = known.saturating_sub(usize::from(!opening.is_empty()));
        for entry in (known..entries.len()).filter_map(|place| entries.get(place)) {
            let Entry { speaker, tool_calls, answers, failed, images, seal, .. } = &**entry;
            let (speaker, answers, failed, seal) = (*speaker, answers.as_ref(), *failed, *seal);
            let told = Told { speaker, tool_calls, answers, failed, images, seal };
            each(told, &mut entry.parts.iter().map(|text| text.body))?;
        }
        let ask = || self.opened.receipt.ask.iter().filter_map(|piece| piece.text).map(|text| text.body);
        if ask().next().is_some() {
            let shown = self.opened.receipt.ask.iter().flat_map(|piece| &piece.images);
            let images: Vec<Picture> = shown.copied().collect();
            each(Told { images: &images, ..plain(Speaker::User) }, &mut ask())?;
        }
        Ok(())
    }

    /// The prompt itself.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn fill(&self, texts: &dyn Lookup) -> Result<Prompt, BodyId> {
        self.fill_on(&mut Filled::default(), texts)
    }

    /// The same, but of what was `filled` for an earlier call of the same thread nothing is looked up again: a long thread costs
    /// no more than a short one.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn fill_on(&self, filled: &mut Filled, texts: &dyn Lookup) -> Result<Prompt, BodyId> {
        let find = |id: BodyId| texts.find(id).ok_or(id);
        filled.bring_to(self);
        // Shared only while that earlier call is still under way.
        let messages = Arc::make_mut(&mut filled.messages);
        messages.truncate(filled.kept);
        messages.reserve(self.len_max().saturating_sub(filled.kept));
        self.tell(filled.kept, |message, parts| {
            let mut filled = Vec::with_capacity(parts.size_hint().0);
            for part in parts {
                filled.push(find(part)?);
            }
            let Told { speaker, tool_calls, answers, failed, images, seal } = message;
            let mut shown = Vec::with_capacity(images.len());
            for image in images {
                shown.push(Image { media: image.media, data: find(image.body)? });
            }
            let (tool_calls, answers) = (tool_calls.to_vec(), answers.cloned());
            let seal = seal.map(find).transpose()?;
            messages.push(Message { speaker, parts: filled, images: shown, tool_calls, answers, failed, seal });
            Ok(())
        })?;
        filled.kept = self.kept();
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
            messages: filled.messages.clone(),
            tools,
            output,
            reply_tokens_max: self.opened.reply_tokens_max,
        })
    }
}

impl Filled {
    /// Forgets what is not in the thread of that plan any more.
    fn bring_to(&mut self, plan: &Plan) {
        match &plan.shown {
            Shown::Thread { compactions, .. } if *compactions == self.compactions => {
                self.kept = self.kept.min(plan.kept());
            }
            Shown::Thread { compactions, .. } => *self = Self { compactions: *compactions, ..Self::default() },
            Shown::Again(_) => *self = Self::default(),
        }
    }
}

/// A message but for its parts.
struct Told<'p> {
    speaker: Speaker,
    tool_calls: &'p [ToolCall],
    answers: Option<&'p String>,
    failed: bool,
    images: &'p [Picture],
    seal: Option<BodyId>,
}
