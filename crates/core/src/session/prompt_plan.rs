//! Prompts by reference: the messages of a pending call before their texts are loaded. Normal dispatch, recovery after
//! a crash and the inspection of past calls all use this code.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef, TextRef};
use crate::event::CallOpened;
use crate::flow::BodyTextLookup;
use crate::ids::CallId;
use crate::prompt::{ChatRole, ModelOutputFormat, Prompt, PromptImage, PromptMessage, ToolCall};
use crate::session::Session;
use crate::session::thread::{ThreadMessage, ThreadMessageList};

/// A prompt whose texts are not loaded yet. It shares the thread's messages, so it is cheap to create.
#[derive(Debug, Clone, PartialEq)]
pub struct UnloadedPrompt {
    pub opened: Arc<CallOpened>,
    content: UnloadedPromptSource,
}

#[derive(Debug, Clone, PartialEq)]
enum UnloadedPromptSource {
    /// A thread and the ask of the call.
    Thread { opening: Vec<BodyId>, entries: ThreadMessageList, compactions: u32 },
    /// The messages of an earlier call that is repeated.
    Recorded(Vec<UnloadedPromptMessage>),
}

/// The messages of a thread's last prompt. The next prompt only adds the messages since then.
#[derive(Debug, Default)]
pub struct ThreadPromptCache {
    messages: Arc<Vec<PromptMessage>>,
    /// The number of messages in the thread; the others are the last ask.
    thread_message_count: usize,
    /// How often the thread had been compacted.
    compactions: u32,
}

/// A message whose texts are not loaded yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnloadedPromptMessage {
    pub(crate) chat_role: ChatRole,
    pub(crate) parts: Vec<BodyId>,
    /// The tools that the assistant called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
    /// In a tool's message, the id of the tool call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// In a tool's message, true if the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
    /// The images that belong to the user's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<ImageRef>,
    /// In an answer, opaque vendor data that must be sent back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vendor_state: Option<BodyId>,
}

impl UnloadedPromptMessage {
    /// Returns the ids of all texts and images of the message.
    pub(crate) fn body_ids(&self) -> impl Iterator<Item = BodyId> {
        self.parts.iter().copied().chain(self.images.iter().map(|image| image.body)).chain(self.vendor_state)
    }
}

impl Session {
    /// Returns the size of a pending call's prompt: that of its receipt, unless its thread was shortened since.
    #[must_use]
    pub(crate) fn current_prompt_tokens(&self, opened: &CallOpened) -> u32 {
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread_id()).filter(|_| receipt.carried.entries > 0);
        thread.map_or(receipt.tokens, |thread| receipt.tokens.saturating_sub(receipt.carried.tokens) + thread.tokens)
    }

    /// Returns the prompt of a pending call by reference.
    #[must_use]
    pub fn prompt_plan(&self, call: CallId) -> Option<UnloadedPrompt> {
        let open = self.open_calls.get(&call)?;
        if let Some(repeated) = &open.opened.recomputation {
            return Some(UnloadedPrompt {
                opened: open.opened.clone(),
                content: UnloadedPromptSource::Recorded(repeated.messages.clone()),
            });
        }
        let thread = self.threads.get(&open.opened.receipt.thread.thread_id())?;
        let opening = thread.opening.iter().map(|(_, text)| text.body).collect();
        let (entries, compactions) = (thread.entries.clone(), thread.compactions);
        let content = UnloadedPromptSource::Thread { opening, entries, compactions };
        Some(UnloadedPrompt { opened: open.opened.clone(), content })
    }

    /// Returns the texts in the prompt of a call that others than the flow's author wrote: users, other models, and what
    /// was made from them. Blocks that the answer repeats from them are not signals.
    #[must_use]
    pub fn foreign_texts(&self, opened: &CallOpened) -> Vec<TextRef> {
        let thread = self.threads.get(&opened.receipt.thread.thread_id());
        let mut texts: Vec<TextRef> = opened.receipt.foreign_texts().collect();
        for text in thread.iter().flat_map(|thread| thread.foreign_texts()) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }
}

impl UnloadedPrompt {
    /// Returns the messages of the prompt.
    #[must_use]
    pub(crate) fn messages(&self) -> Vec<UnloadedPromptMessage> {
        let mut messages = Vec::with_capacity(self.message_count_max());
        let result = self.try_for_each_message(0, |message, parts| {
            let parts = parts.collect();
            let PromptMessageWithoutParts { chat_role, tool_calls, tool_call_id, failed, images, vendor_state } =
                message;
            messages.push(UnloadedPromptMessage {
                chat_role,
                parts,
                tool_calls: tool_calls.to_vec(),
                tool_call_id: tool_call_id.cloned(),
                failed,
                images: images.to_vec(),
                vendor_state,
            });
            Ok::<_, Infallible>(())
        });
        let Ok(()) = result;
        messages
    }

    /// Returns the ids of all texts that the prompt needs.
    #[must_use]
    pub fn required_prompt_body_ids(&self) -> BTreeSet<BodyId> {
        let mut ids: BTreeSet<BodyId> = self.opened.tools_body.into_iter().chain(self.opened.output_schema).collect();
        let result = self.try_for_each_message(0, |message, parts| {
            ids.extend(parts);
            ids.extend(message.images.iter().map(|image| image.body).chain(message.vendor_state));
            Ok::<_, Infallible>(())
        });
        let Ok(()) = result;
        ids
    }

    /// Returns an upper bound of the number of messages.
    fn message_count_max(&self) -> usize {
        match &self.content {
            UnloadedPromptSource::Thread { entries, .. } => entries.len() + 2,
            UnloadedPromptSource::Recorded(messages) => messages.len(),
        }
    }

    /// Returns the number of messages before the ask.
    fn thread_message_count(&self) -> usize {
        match &self.content {
            UnloadedPromptSource::Thread { opening, entries, .. } => usize::from(!opening.is_empty()) + entries.len(),
            UnloadedPromptSource::Recorded(_) => 0,
        }
    }

    /// Calls `each` for the messages in order, without the first `skip_count`.
    fn try_for_each_message<E>(
        &self,
        skip_count: usize,
        mut each: impl FnMut(PromptMessageWithoutParts<'_>, &mut dyn Iterator<Item = BodyId>) -> Result<(), E>,
    ) -> Result<(), E> {
        let plain = |chat_role| PromptMessageWithoutParts {
            chat_role,
            tool_calls: &[],
            tool_call_id: None,
            failed: false,
            images: &[],
            vendor_state: None,
        };
        let (opening, entries) = match &self.content {
            UnloadedPromptSource::Thread { opening, entries, .. } => (opening, entries),
            UnloadedPromptSource::Recorded(messages) => {
                return messages.iter().skip(skip_count).try_for_each(|message| {
                    let UnloadedPromptMessage {
                        chat_role,
                        parts,
                        tool_calls,
                        tool_call_id,
                        failed,
                        images,
                        vendor_state,
                    } = message;
                    let (chat_role, tool_call_id, failed, vendor_state) =
                        (*chat_role, tool_call_id.as_ref(), *failed, *vendor_state);
                    each(
                        PromptMessageWithoutParts { chat_role, tool_calls, tool_call_id, failed, images, vendor_state },
                        &mut parts.iter().copied(),
                    )
                });
            }
        };
        if skip_count == 0 && !opening.is_empty() {
            each(plain(ChatRole::System), &mut opening.iter().copied())?;
        }
        let skipped_entries = skip_count.saturating_sub(usize::from(!opening.is_empty()));
        for entry in (skipped_entries..entries.len()).filter_map(|index| entries.get(index)) {
            let ThreadMessage { chat_role, tool_calls, tool_call_id, failed, images, vendor_state, .. } = &**entry;
            let (chat_role, tool_call_id, failed, vendor_state) =
                (*chat_role, tool_call_id.as_ref(), *failed, *vendor_state);
            let header =
                PromptMessageWithoutParts { chat_role, tool_calls, tool_call_id, failed, images, vendor_state };
            each(header, &mut entry.parts.iter().map(|text| text.body))?;
        }
        let ask = || self.opened.receipt.ask.iter().filter_map(|fragment| fragment.text).map(|text| text.body);
        if ask().next().is_some() {
            let ask_images = self.opened.receipt.ask.iter().flat_map(|fragment| &fragment.images);
            let images: Vec<ImageRef> = ask_images.copied().collect();
            each(PromptMessageWithoutParts { images: &images, ..plain(ChatRole::User) }, &mut ask())?;
        }
        Ok(())
    }

    /// Loads the texts and returns the prompt. Reuses the messages in `cache` from an earlier call of the same thread, so
    /// that the cost does not grow with the thread; a new cache is right for a single prompt.
    ///
    /// # Errors
    /// Returns the id of a text that is missing or cannot be parsed.
    pub fn resolve_prompt(&self, cache: &mut ThreadPromptCache, texts: &dyn BodyTextLookup) -> Result<Prompt, BodyId> {
        let find = |id: BodyId| texts.find_text(id).ok_or(id);
        cache.drop_messages_not_in_plan(self);
        // Copied only while the earlier call is still in progress.
        let messages = Arc::make_mut(&mut cache.messages);
        messages.truncate(cache.thread_message_count);
        messages.reserve(self.message_count_max().saturating_sub(cache.thread_message_count));
        self.try_for_each_message(cache.thread_message_count, |message, parts| {
            let mut loaded_parts = Vec::with_capacity(parts.size_hint().0);
            for part in parts {
                loaded_parts.push(find(part)?);
            }
            let PromptMessageWithoutParts { chat_role, tool_calls, tool_call_id, failed, images, vendor_state } =
                message;
            let mut prompt_images = Vec::with_capacity(images.len());
            for image in images {
                prompt_images.push(PromptImage { media_type: image.media_type, data: find(image.body)? });
            }
            let (tool_calls, tool_call_id) = (tool_calls.to_vec(), tool_call_id.cloned());
            let vendor_state = vendor_state.map(find).transpose()?;
            messages.push(PromptMessage {
                chat_role,
                parts: loaded_parts,
                images: prompt_images,
                tool_calls,
                tool_call_id,
                failed,
                vendor_state,
            });
            Ok(())
        })?;
        cache.thread_message_count = self.thread_message_count();
        let tools = match self.opened.tools_body {
            Some(id) => serde_json::from_str(&find(id)?).map_err(|_| id)?,
            None => Vec::new(),
        };
        let output = match self.opened.output_schema {
            Some(id) => ModelOutputFormat::Json(serde_json::from_str(&find(id)?).map_err(|_| id)?),
            None => ModelOutputFormat::Text,
        };
        Ok(Prompt {
            model: self.opened.model.clone(),
            messages: cache.messages.clone(),
            tools,
            tool_use: self.opened.tool_use.clone(),
            output_format: output,
            reply_tokens_max: self.opened.reply_tokens_max,
        })
    }
}

impl ThreadPromptCache {
    /// Removes messages that are no longer in the plan's thread.
    fn drop_messages_not_in_plan(&mut self, plan: &UnloadedPrompt) {
        match &plan.content {
            UnloadedPromptSource::Thread { compactions, .. } if *compactions == self.compactions => {
                self.thread_message_count = self.thread_message_count.min(plan.thread_message_count());
            }
            UnloadedPromptSource::Thread { compactions, .. } => {
                *self = Self { compactions: *compactions, ..Self::default() }
            }
            UnloadedPromptSource::Recorded(_) => *self = Self::default(),
        }
    }
}

/// A message without its parts.
struct PromptMessageWithoutParts<'p> {
    chat_role: ChatRole,
    tool_calls: &'p [ToolCall],
    tool_call_id: Option<&'p String>,
    failed: bool,
    images: &'p [ImageRef],
    vendor_state: Option<BodyId>,
}
