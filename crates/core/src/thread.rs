//! The messages of one role in one scope, by reference: a thread holds ids and token counts, never texts.

mod entries;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, Picture, Text};
use crate::context::Mark;
use crate::ids::{CallId, FragmentName, Millis, ThreadId};
use crate::prompt::{Speaker, ToolCall};
use crate::scope::{Slot, Tag};

pub use entries::Entries;

/// A role's memory in one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: ThreadId,
    /// Where it stands.
    pub slot: Arc<Slot>,
    /// What it is good for.
    pub tag: Tag,
    /// When it was opened.
    pub opened: Millis,
    /// The call that opened it.
    pub opened_by: CallId,
    /// What it was opened with: the system message.
    pub opening: Arc<[(FragmentName, Text)]>,
    /// What was said since, oldest first.
    pub entries: Entries,
    /// Tokens of all of it.
    pub tokens: u32,
    /// Fingerprint of all of it.
    pub digest: BodyId,
    /// The call that is using it now.
    pub busy: Option<CallId>,
    /// When it was last used.
    pub used: Millis,
    /// How often it was compacted.
    pub compactions: u32,
    /// What its first entry is.
    pub first: First,
    /// Its last prompt, to compare the next one with.
    pub mark: Option<Arc<Mark>>,
}

/// What the first entry of a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    /// A message like any other.
    #[default]
    Said,
    /// What stands in the place of messages that were folded.
    Summary,
}

/// One message of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The call it came with.
    pub call: CallId,
    /// Whose words.
    pub speaker: Speaker,
    /// Its parts.
    pub parts: Vec<Text>,
    /// What the assistant asked to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For a tool's message: which of those it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
    /// For a tool's message: whether the tool did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Kept by compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// The parts that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Text>,
    /// What the user showed with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Picture>,
    /// For an answer: what its vendor wants to see again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<BodyId>,
}

impl Entry {
    /// What is put to a model in a call.
    #[must_use]
    pub fn asked(call: CallId, parts: Vec<Text>) -> Self {
        Self { parts, ..Self::silent(call, Speaker::User) }
    }

    /// A message without words.
    #[must_use]
    pub fn silent(call: CallId, speaker: Speaker) -> Self {
        Self {
            call,
            speaker,
            parts: Vec::new(),
            tool_calls: Vec::new(),
            answers: None,
            failed: false,
            pinned: false,
            words: Vec::new(),
            images: Vec::new(),
            seal: None,
        }
    }

    /// Its tokens, and a few for the frame that vendors put around a message.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        let arguments: usize = self.tool_calls.iter().map(|call| call.arguments.to_string().len() / 4 + 8).sum();
        let parts: u32 = self.parts.iter().map(|text| text.tokens).sum();
        parts + images_tokens(&self.images) + MESSAGE_FRAME_TOKENS + u32::try_from(arguments).unwrap_or(u32::MAX / 2)
    }

    /// Its fingerprint.
    #[must_use]
    pub fn digest(&self) -> BodyId {
        let mut bytes = vec![self.speaker as u8];
        bytes.extend((self.parts.len() as u64).to_be_bytes());
        for part in &self.parts {
            bytes.extend(part.body.0);
        }
        for call in &self.tool_calls {
            bytes.extend(call.id.as_bytes());
            bytes.push(0);
            bytes.extend(call.name.as_str().as_bytes());
            bytes.push(0);
            bytes.extend(crate::signal::json::canonical(&call.arguments).as_bytes());
            bytes.push(0);
        }
        if let Some(answers) = &self.answers {
            bytes.extend(answers.as_bytes());
        }
        // No id of an image or a seal is that short.
        if self.failed {
            bytes.extend([0, 1]);
        }
        for id in self.images.iter().map(|image| image.body).chain(self.seal) {
            bytes.push(0);
            bytes.extend(id.0);
        }
        BodyId::of_bytes(&bytes)
    }
}

/// Tokens of some images. Vendors count pixels; this is what the largest they do not make smaller comes to.
#[must_use]
pub fn images_tokens(images: &[Picture]) -> u32 {
    u32::try_from(images.len()).unwrap_or(u32::MAX).saturating_mul(IMAGE_TOKENS)
}

/// Tokens of one image.
const IMAGE_TOKENS: u32 = 1_600;

/// Tokens a vendor spends on a message beside its text.
pub const MESSAGE_FRAME_TOKENS: u32 = 4;

impl Thread {
    /// A thread that has just been opened.
    #[must_use]
    pub fn open(
        id: ThreadId,
        slot: Arc<Slot>,
        tag: Tag,
        at: Millis,
        by: CallId,
        opening: Arc<[(FragmentName, Text)]>,
    ) -> Self {
        let tokens = opening_tokens(&opening);
        let digest = Self::opening_digest(&opening);
        Self {
            id,
            slot,
            tag,
            opened: at,
            opened_by: by,
            opening,
            entries: Entries::default(),
            tokens,
            digest,
            busy: None,
            used: at,
            compactions: 0,
            first: First::Said,
            mark: None,
        }
    }

    /// Adds what was said.
    pub fn push(&mut self, entry: impl Into<Arc<Entry>>) {
        let entry = entry.into();
        self.tokens = self.tokens.saturating_add(entry.tokens());
        self.digest = self.digest.chain(entry.digest());
        self.entries.push(entry);
    }

    /// Puts `summary` in the place of the entries that are not `kept`.
    pub fn fold(&mut self, summary: Option<Entry>, kept: &[usize]) {
        let stood = std::mem::take(&mut self.entries);
        self.tokens = opening_tokens(&self.opening);
        self.digest = Self::opening_digest(&self.opening);
        self.compactions += 1;
        self.first = if summary.is_some() { First::Summary } else { First::Said };
        summary.into_iter().for_each(|summary| self.push(summary));
        for place in kept {
            if let Some(entry) = stood.get(*place) {
                self.push(unsealed(entry));
            }
        }
    }

    /// Fingerprint of a thread in which nothing was said yet.
    #[must_use]
    pub fn opening_digest(opening: &[(FragmentName, Text)]) -> BodyId {
        opening.iter().fold(BodyId::of("opening"), |digest, (_, text)| digest.chain(text.body))
    }
}

/// The entry without its seal: what a vendor sealed held for the words before it, and those have changed.
fn unsealed(entry: &Arc<Entry>) -> Arc<Entry> {
    match entry.seal {
        Some(_) => Arc::new(Entry { seal: None, ..(**entry).clone() }),
        None => entry.clone(),
    }
}

fn opening_tokens(opening: &[(FragmentName, Text)]) -> u32 {
    let frame = if opening.is_empty() { 0 } else { MESSAGE_FRAME_TOKENS };
    opening.iter().map(|(_, text)| text.tokens).sum::<u32>() + frame
}
