//! A prompt by reference: what an owed call is to be sent, before its texts are fetched. The same function serves the
//! dispatch, the recovery after a crash and the rebuilding of any past call.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef};
use crate::event::CallOpened;
use crate::flow::BodyTextLookup;
use crate::ids::CallId;
use crate::prompt::{ChatRole, OutputFormat, Prompt, PromptImage, PromptMessage, ToolCall};
use crate::session::Session;
use crate::thread::{ThreadEntries, ThreadEntry};

/// A prompt whose texts are still to be fetched. Shares what the thread holds, so that making one costs next to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptPlan {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    content: PlanContent,
}

#[derive(Debug, Clone, PartialEq)]
enum PlanContent {
    /// A thread, and what the call asks.
    Thread { opening: Vec<BodyId>, entries: ThreadEntries, compactions: u32 },
    /// What another call was shown.
    Frozen(Vec<PromptMessageRef>),
}

/// The messages of a thread as its last prompt held them. The next one only adds what was said since.
#[derive(Debug, Default)]
pub struct ThreadPromptCache {
    messages: Arc<Vec<PromptMessage>>,
    /// How many of them the thread holds; the others are what was asked last.
    thread_message_count: usize,
    /// How often the thread had been compacted.
    compactions: u32,
}

/// A message whose texts are still to be fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptMessageRef {
    /// Whose words.
    pub chat_role: ChatRole,
    /// Its parts.
    pub parts: Vec<BodyId>,
    /// What the assistant asked to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which of those a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Whether that tool did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// What the user showed with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// What an answer's vendor wants to see again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<BodyId>,
}

impl PromptMessageRef {
    /// Every text it names.
    pub fn body_ids(&self) -> impl Iterator<Item = BodyId> {
        self.parts.iter().copied().chain(self.images.iter().map(|image| image.body)).chain(self.vendor_state)
    }
}

impl Session {
    /// Tokens of what an owed call is sent: those of its receipt, unless its thread was shortened since it was opened.
    #[must_use]
    pub fn current_prompt_tokens(&self, opened: &CallOpened) -> u32 {
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread_id()).filter(|_| receipt.carried.entries > 0);
        thread.map_or(receipt.tokens, |thread| receipt.tokens.saturating_sub(receipt.carried.tokens) + thread.tokens)
    }

    /// What an owed call is to be sent.
    #[must_use]
    pub fn prompt_plan(&self, call: CallId) -> Option<PromptPlan> {
        let open = self.open_calls.get(&call)?;
        if let Some(again) = &open.opened.recomputation {
            return Some(PromptPlan {
                opened: open.opened.clone(),
                content: PlanContent::Frozen(again.messages.clone()),
            });
        }
        let thread = self.threads.get(&open.opened.receipt.thread.thread_id())?;
        let opening = thread.opening.iter().map(|(_, text)| text.body).collect();
        let (entries, compactions) = (thread.entries.clone(), thread.compactions);
        let shown = PlanContent::Thread { opening, entries, compactions };
        Some(PromptPlan { opened: open.opened.clone(), content: shown })
    }
}

impl PromptPlan {
    /// Its messages.
    #[must_use]
    pub fn messages(&self) -> Vec<PromptMessageRef> {
        let mut messages = Vec::with_capacity(self.message_count_max());
        let told = self.try_for_each_message(0, |message, parts| {
            let parts = parts.collect();
            let MessageHeader {
                chat_role: speaker,
                tool_calls,
                tool_call_id: answers,
                failed,
                images,
                vendor_state: seal,
            } = message;
            messages.push(PromptMessageRef {
                chat_role: speaker,
                parts,
                tool_calls: tool_calls.to_vec(),
                tool_call_id: answers.cloned(),
                failed,
                images: images.to_vec(),
                vendor_state: seal,
            });
            Ok::<_, Infallible>(())
        });
        let Ok(()) = told;
        messages
    }

    /// The texts it needs.
    #[must_use]
    pub fn required_body_ids(&self) -> BTreeSet<BodyId> {
        let mut needs: BTreeSet<BodyId> = self.opened.tools_body.into_iter().chain(self.opened.output_schema).collect();
        let told = self.try_for_each_message(0, |message, parts| {
            needs.extend(parts);
            needs.extend(message.images.iter().map(|image| image.body).chain(message.vendor_state));
            Ok::<_, Infallible>(())
        });
        let Ok(()) = told;
        needs
    }

    /// At most so many messages.
    fn message_count_max(&self) -> usize {
        match &self.content {
            PlanContent::Thread { entries, .. } => entries.len() + 2,
            PlanContent::Frozen(messages) => messages.len(),
        }
    }

    /// How many messages come before what the call asks.
    fn thread_message_count(&self) -> usize {
        match &self.content {
            PlanContent::Thread { opening, entries, .. } => usize::from(!opening.is_empty()) + entries.len(),
            PlanContent::Frozen(_) => 0,
        }
    }

    /// Goes through the messages in order, but for the first `known`.
    fn try_for_each_message<E>(
        &self,
        skip_count: usize,
        mut each: impl FnMut(MessageHeader<'_>, &mut dyn Iterator<Item = BodyId>) -> Result<(), E>,
    ) -> Result<(), E> {
        let plain = |speaker| MessageHeader {
            chat_role: speaker,
            tool_calls: &[],
            tool_call_id: None,
            failed: false,
            images: &[],
            vendor_state: None,
        };
        let (opening, entries) = match &self.content {
            PlanContent::Thread { opening, entries, .. } => (opening, entries),
            PlanContent::Frozen(messages) => {
                return messages.iter().skip(skip_count).try_for_each(|message| {
                    let PromptMessageRef {
                        chat_role: speaker,
                        parts,
                        tool_calls,
                        tool_call_id: answers,
                        failed,
                        images,
                        vendor_state: seal,
                    } = message;
                    let (speaker, answers, failed, seal) = (*speaker, answers.as_ref(), *failed, *seal);
                    each(
                        MessageHeader {
                            chat_role: speaker,
                            tool_calls,
                            tool_call_id: answers,
                            failed,
                            images,
                            vendor_state: seal,
                        },
                        &mut parts.iter().copied(),
                    )
                });
            }
        };
        if skip_count == 0 && !opening.is_empty() {
            each(plain(ChatRole::System), &mut opening.iter().copied())?;
        }
        let known = skip_count.saturating_sub(usize::from(!opening.is_empty()));
        for entry in (known..entries.len()).filter_map(|place| entries.get(place)) {
            let ThreadEntry {
                chat_role: speaker,
                tool_calls,
                tool_call_id: answers,
                failed,
                images,
                vendor_state: seal,
                ..
            } = &**entry;
            let (speaker, answers, failed, seal) = (*speaker, answers.as_ref(), *failed, *seal);
            let told = MessageHeader {
                chat_role: speaker,
                tool_calls,
                tool_call_id: answers,
                failed,
                images,
                vendor_state: seal,
            };
            each(told, &mut entry.parts.iter().map(|text| text.body))?;
        }
        let ask = || self.opened.receipt.ask.iter().filter_map(|piece| piece.text).map(|text| text.body);
        if ask().next().is_some() {
            let shown = self.opened.receipt.ask.iter().flat_map(|piece| &piece.images);
            let images: Vec<ImageRef> = shown.copied().collect();
            each(MessageHeader { images: &images, ..plain(ChatRole::User) }, &mut ask())?;
        }
        Ok(())
    }

    /// The prompt itself.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn resolve_prompt(&self, texts: &dyn BodyTextLookup) -> Result<Prompt, BodyId> {
        self.resolve_prompt_cached(&mut ThreadPromptCache::default(), texts)
    }

    /// The same, but of what was `filled` for an earlier call of the same thread nothing is looked up again: a long thread costs
    /// no more than a short one.
    ///
    /// # Errors
    /// Names a text that is not at hand, or that is not what its id says.
    pub fn resolve_prompt_cached(
        &self,
        cache: &mut ThreadPromptCache,
        texts: &dyn BodyTextLookup,
    ) -> Result<Prompt, BodyId> {
        let find = |id: BodyId| texts.find_text(id).ok_or(id);
        cache.sync_with_plan(self);
        // Shared only while that earlier call is still under way.
        let messages = Arc::make_mut(&mut cache.messages);
        messages.truncate(cache.thread_message_count);
        messages.reserve(self.message_count_max().saturating_sub(cache.thread_message_count));
        self.try_for_each_message(cache.thread_message_count, |message, parts| {
            let mut filled = Vec::with_capacity(parts.size_hint().0);
            for part in parts {
                filled.push(find(part)?);
            }
            let MessageHeader {
                chat_role: speaker,
                tool_calls,
                tool_call_id: answers,
                failed,
                images,
                vendor_state: seal,
            } = message;
            let mut shown = Vec::with_capacity(images.len());
            for image in images {
                shown.push(PromptImage { media_type: image.media_type, data: find(image.body)? });
            }
            let (tool_calls, answers) = (tool_calls.to_vec(), answers.cloned());
            let seal = seal.map(find).transpose()?;
            messages.push(PromptMessage {
                chat_role: speaker,
                parts: filled,
                images: shown,
                tool_calls,
                tool_call_id: answers,
                failed,
                vendor_state: seal,
            });
            Ok(())
        })?;
        cache.thread_message_count = self.thread_message_count();
        let tools = match self.opened.tools_body {
            Some(id) => serde_json::from_str(&find(id)?).map_err(|_| id)?,
            None => Vec::new(),
        };
        let output = match self.opened.output_schema {
            Some(id) => OutputFormat::Json(serde_json::from_str(&find(id)?).map_err(|_| id)?),
            None => OutputFormat::Text,
        };
        Ok(Prompt {
            model: self.opened.model.clone(),
            messages: cache.messages.clone(),
            tools,
            output_format: output,
            reply_tokens_max: self.opened.reply_tokens_max,
        })
    }
}

impl ThreadPromptCache {
    /// Forgets what is not in the thread of that plan any more.
    fn sync_with_plan(&mut self, plan: &PromptPlan) {
        match &plan.content {
            PlanContent::Thread { compactions, .. } if *compactions == self.compactions => {
                self.thread_message_count = self.thread_message_count.min(plan.thread_message_count());
            }
            PlanContent::Thread { compactions, .. } => *self = Self { compactions: *compactions, ..Self::default() },
            PlanContent::Frozen(_) => *self = Self::default(),
        }
    }
}

/// A message but for its parts.
struct MessageHeader<'p> {
    chat_role: ChatRole,
    tool_calls: &'p [ToolCall],
    tool_call_id: Option<&'p String>,
    failed: bool,
    images: &'p [ImageRef],
    vendor_state: Option<BodyId>,
}
