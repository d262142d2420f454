//! The messages of one role in one scope, by reference: a thread holds ids and token counts, never texts.

mod entries;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef, TextRef};
use crate::context::PromptOutline;
use crate::ids::{CallId, FragmentName, ThreadId, UnixMillis};
use crate::prompt::{ChatRole, ToolCall};
use crate::scope::{ScopeTag, ThreadSlot};

pub use entries::ThreadEntries;

/// A role's memory in one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: ThreadId,
    /// Where it stands.
    pub slot: Arc<ThreadSlot>,
    /// What it is good for.
    pub scope_tag: ScopeTag,
    /// When it was opened.
    pub opened_at: UnixMillis,
    /// The call that opened it.
    pub opened_by: CallId,
    /// What it was opened with: the system message.
    pub opening: Arc<[(FragmentName, TextRef)]>,
    /// What was said since, oldest first.
    pub entries: ThreadEntries,
    /// Tokens of all of it.
    pub tokens: u32,
    /// Fingerprint of all of it.
    pub digest: BodyId,
    /// The call that is using it now.
    pub active_call: Option<CallId>,
    /// When it was last used.
    pub last_used_at: UnixMillis,
    /// How often it was compacted.
    pub compactions: u32,
    /// What its first entry is.
    pub first_entry_kind: FirstEntryKind,
    /// Its last prompt, to compare the next one with.
    pub last_prompt: Option<Arc<PromptOutline>>,
}

/// What the first entry of a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstEntryKind {
    /// A message like any other.
    #[default]
    Message,
    /// What stands in the place of messages that were folded.
    Summary,
}

/// One message of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// The call it came with.
    pub call: CallId,
    /// Whose words.
    pub chat_role: ChatRole,
    /// Its parts.
    pub parts: Vec<TextRef>,
    /// What the assistant asked to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For a tool's message: which of those it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For a tool's message: whether the tool did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Kept by compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// The parts that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_texts: Vec<TextRef>,
    /// What the user showed with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// For an answer: what its vendor wants to see again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_state: Option<BodyId>,
}

impl ThreadEntry {
    /// What is put to a model in a call.
    #[must_use]
    pub fn user_message(call: CallId, parts: Vec<TextRef>) -> Self {
        Self { parts, ..Self::empty(call, ChatRole::User) }
    }

    /// A message without words.
    #[must_use]
    pub fn empty(call: CallId, speaker: ChatRole) -> Self {
        Self {
            call,
            chat_role: speaker,
            parts: Vec::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            failed: false,
            pinned: false,
            user_texts: Vec::new(),
            images: Vec::new(),
            vendor_state: None,
        }
    }

    /// Its tokens, and a few for the frame that vendors put around a message.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        let arguments: usize = self.tool_calls.iter().map(|call| call.arguments.to_string().len() / 4 + 8).sum();
        let parts: u32 = self.parts.iter().map(|text| text.tokens).sum();
        parts
            + estimate_image_tokens(&self.images)
            + MESSAGE_OVERHEAD_TOKENS
            + u32::try_from(arguments).unwrap_or(u32::MAX / 2)
    }

    /// Its fingerprint.
    #[must_use]
    pub fn digest(&self) -> BodyId {
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
        // No id of an image or a seal is that short.
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

/// Tokens of some images. Vendors count pixels; this is what the largest they do not make smaller comes to.
#[must_use]
pub fn estimate_image_tokens(images: &[ImageRef]) -> u32 {
    u32::try_from(images.len()).unwrap_or(u32::MAX).saturating_mul(IMAGE_TOKENS)
}

/// Tokens of one image.
const IMAGE_TOKENS: u32 = 1_600;

/// Tokens a vendor spends on a message beside its text.
pub const MESSAGE_OVERHEAD_TOKENS: u32 = 4;

impl Thread {
    /// A thread that has just been opened.
    #[must_use]
    pub fn new(
        id: ThreadId,
        slot: Arc<ThreadSlot>,
        tag: ScopeTag,
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
            entries: ThreadEntries::default(),
            tokens,
            digest,
            active_call: None,
            last_used_at: at,
            compactions: 0,
            first_entry_kind: FirstEntryKind::Message,
            last_prompt: None,
        }
    }

    /// Adds what was said.
    pub fn push(&mut self, entry: impl Into<Arc<ThreadEntry>>) {
        let entry = entry.into();
        self.tokens = self.tokens.saturating_add(entry.tokens());
        self.digest = self.digest.chain_hash(entry.digest());
        self.entries.push(entry);
    }

    /// Puts `summary` in the place of the entries that are not `kept`.
    pub fn compact(&mut self, summary: Option<ThreadEntry>, kept: &[usize]) {
        let stood = std::mem::take(&mut self.entries);
        self.tokens = count_opening_tokens(&self.opening);
        self.digest = Self::opening_digest(&self.opening);
        self.compactions += 1;
        self.first_entry_kind = if summary.is_some() { FirstEntryKind::Summary } else { FirstEntryKind::Message };
        summary.into_iter().for_each(|summary| self.push(summary));
        for place in kept {
            if let Some(entry) = stood.get(*place) {
                self.push(without_vendor_state(entry));
            }
        }
    }

    /// Fingerprint of a thread in which nothing was said yet.
    #[must_use]
    pub fn opening_digest(opening: &[(FragmentName, TextRef)]) -> BodyId {
        opening.iter().fold(BodyId::hash_text("opening"), |digest, (_, text)| digest.chain_hash(text.body))
    }
}

/// The entry without its seal: what a vendor sealed held for the words before it, and those have changed.
fn without_vendor_state(entry: &Arc<ThreadEntry>) -> Arc<ThreadEntry> {
    match entry.vendor_state {
        Some(_) => Arc::new(ThreadEntry { vendor_state: None, ..(**entry).clone() }),
        None => entry.clone(),
    }
}

fn count_opening_tokens(opening: &[(FragmentName, TextRef)]) -> u32 {
    let frame = if opening.is_empty() { 0 } else { MESSAGE_OVERHEAD_TOKENS };
    opening.iter().map(|(_, text)| text.tokens).sum::<u32>() + frame
}
