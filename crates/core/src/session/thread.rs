//! Threads: the messages of one role in one scope. A thread holds text ids and token counts, never texts.

mod entries;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef, TextRef};
use crate::context::PromptComparisonData;
use crate::ids::{CallId, FragmentName, ThreadId, UnixMillis};
use crate::prompt::{ChatRole, ToolCall};
use crate::scope::{ThreadKey, ThreadReuseConditions};

pub(crate) use entries::ThreadMessageList;

/// The messages that a role's next call will see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub id: ThreadId,
    pub slot: Arc<ThreadKey>,
    pub scope_tag: ThreadReuseConditions,
    pub opened_at: UnixMillis,
    pub opened_by: CallId,
    /// The fragments of the system message.
    pub opening: Arc<[(FragmentName, TextRef)]>,
    /// The texts of the opening that were written by others than the flow's author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) foreign_opening: Vec<TextRef>,
    /// The messages after the opening, oldest first.
    pub(crate) entries: ThreadMessageList,
    /// The size of the whole thread.
    pub tokens: u32,
    /// The digest of the whole thread.
    pub digest: BodyId,
    /// The call that is using the thread now.
    pub active_call: Option<CallId>,
    pub last_used_at: UnixMillis,
    /// How often it was compacted.
    pub(crate) compactions: u32,
    pub(crate) first_entry_kind: FirstThreadMessageKind,
    /// The last prompt, for comparison with the next one.
    pub(crate) last_prompt: Option<Arc<PromptComparisonData>>,
}

/// The kind of a thread's first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FirstThreadMessageKind {
    /// An ordinary message.
    #[default]
    Message,
    /// The replacement of messages that were folded.
    Summary,
}

/// A message of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThreadMessage {
    /// The call that added it.
    pub(crate) call: CallId,
    pub(crate) chat_role: ChatRole,
    pub(crate) parts: Vec<TextRef>,
    /// The tools that the assistant called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
    /// In a tool's message, the id of the tool call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// In a tool's message, true if the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
    /// True if compaction must keep the message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pinned: bool,
    /// The parts that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) user_texts: Vec<TextRef>,
    /// The other parts that were written by others than the flow's author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) foreign_texts: Vec<TextRef>,
    /// The images that belong to the user's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<ImageRef>,
    /// In an answer, opaque vendor data that must be sent back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vendor_state: Option<BodyId>,
}

impl ThreadMessage {
    /// Creates the user message of a call.
    #[must_use]
    pub(crate) fn user_message(call: CallId, parts: Vec<TextRef>) -> Self {
        Self { parts, ..Self::empty(call, ChatRole::User) }
    }

    /// Creates a message without text.
    #[must_use]
    pub(crate) fn empty(call: CallId, chat_role: ChatRole) -> Self {
        Self {
            call,
            chat_role,
            parts: Vec::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            failed: false,
            pinned: false,
            user_texts: Vec::new(),
            foreign_texts: Vec::new(),
            images: Vec::new(),
            vendor_state: None,
        }
    }

    /// Returns the size of the message, including the vendor's overhead.
    #[must_use]
    pub(crate) fn tokens(&self) -> u32 {
        let arguments: usize = self.tool_calls.iter().map(|call| call.arguments.to_string().len() / 4 + 8).sum();
        let parts: u32 = self.parts.iter().map(|text| text.tokens).sum();
        parts
            + estimate_image_tokens(&self.images)
            + MESSAGE_OVERHEAD_TOKENS
            + u32::try_from(arguments).unwrap_or(u32::MAX / 2)
    }

    /// Returns the digest of the message.
    #[must_use]
    pub(crate) fn digest(&self) -> BodyId {
        let mut bytes = vec![self.chat_role as u8];
        bytes.extend((self.parts.len() as u64).to_be_bytes());
        for part in &self.parts {
            bytes.extend(part.body.0);
        }
        for call in &self.tool_calls {
            bytes.extend(call.id.as_bytes());
            bytes.push(0);
            bytes.extend(call.name.as_str().as_bytes());
            bytes.push(0);
            bytes.extend(crate::signal::json::canonical_json(&call.arguments).as_bytes());
            bytes.push(0);
        }
        if let Some(answers) = &self.tool_call_id {
            bytes.extend(answers.as_bytes());
        }
        // Cannot be confused with the id of an image or vendor state, which is longer.
        if self.failed {
            bytes.extend([0, 1]);
        }
        for id in self.images.iter().map(|image| image.body).chain(self.vendor_state) {
            bytes.push(0);
            bytes.extend(id.0);
        }
        BodyId::hash_bytes(&bytes)
    }
}

/// Estimates the tokens of images. Vendors count pixels; this assumes the largest size that they do not scale down.
#[must_use]
pub(crate) fn estimate_image_tokens(images: &[ImageRef]) -> u32 {
    u32::try_from(images.len()).unwrap_or(u32::MAX).saturating_mul(IMAGE_TOKENS)
}

/// The tokens of one image.
const IMAGE_TOKENS: u32 = 1_600;

/// The tokens that a vendor adds to each message.
pub(crate) const MESSAGE_OVERHEAD_TOKENS: u32 = 4;

impl Thread {
    /// Creates a thread that has only its opening.
    #[must_use]
    pub(crate) fn new(
        id: ThreadId,
        slot: Arc<ThreadKey>,
        tag: ThreadReuseConditions,
        at: UnixMillis,
        by: CallId,
        opening: Arc<[(FragmentName, TextRef)]>,
    ) -> Self {
        let tokens = count_opening_tokens(&opening);
        let digest = Self::opening_digest(&opening);
        Self {
            id,
            slot,
            scope_tag: tag,
            opened_at: at,
            opened_by: by,
            opening,
            foreign_opening: Vec::new(),
            entries: ThreadMessageList::default(),
            tokens,
            digest,
            active_call: None,
            last_used_at: at,
            compactions: 0,
            first_entry_kind: FirstThreadMessageKind::Message,
            last_prompt: None,
        }
    }

    /// Returns the texts in the thread that were written by others than the flow's author.
    pub(crate) fn foreign_texts(&self) -> impl Iterator<Item = TextRef> {
        let entries = self.entries.iter().flat_map(|entry| entry.user_texts.iter().chain(&entry.foreign_texts));
        self.foreign_opening.iter().chain(entries).copied()
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, entry: impl Into<Arc<ThreadMessage>>) {
        let entry = entry.into();
        self.tokens = self.tokens.saturating_add(entry.tokens());
        self.digest = self.digest.chain_hash(entry.digest());
        self.entries.push(entry);
    }

    /// Replaces all entries by `summary` and the entries with the indices in `kept`.
    pub(crate) fn compact(&mut self, summary: Option<ThreadMessage>, kept: &[usize]) {
        let old_entries = std::mem::take(&mut self.entries);
        self.tokens = count_opening_tokens(&self.opening);
        self.digest = Self::opening_digest(&self.opening);
        self.compactions += 1;
        self.first_entry_kind =
            if summary.is_some() { FirstThreadMessageKind::Summary } else { FirstThreadMessageKind::Message };
        summary.into_iter().for_each(|summary| self.push(summary));
        for index in kept {
            if let Some(entry) = old_entries.get(*index) {
                self.push(without_vendor_state(entry));
            }
        }
    }

    /// Returns the digest of a thread that has only its opening.
    #[must_use]
    pub(crate) fn opening_digest(opening: &[(FragmentName, TextRef)]) -> BodyId {
        opening.iter().fold(BodyId::hash_text("opening"), |digest, (_, text)| digest.chain_hash(text.body))
    }
}

/// Removes the vendor state of an entry. It is only valid after the original messages, which have changed.
fn without_vendor_state(entry: &Arc<ThreadMessage>) -> Arc<ThreadMessage> {
    match entry.vendor_state {
        Some(_) => Arc::new(ThreadMessage { vendor_state: None, ..(**entry).clone() }),
        None => entry.clone(),
    }
}

fn count_opening_tokens(opening: &[(FragmentName, TextRef)]) -> u32 {
    let overhead = if opening.is_empty() { 0 } else { MESSAGE_OVERHEAD_TOKENS };
    opening.iter().map(|(_, text)| text.tokens).sum::<u32>() + overhead
}
