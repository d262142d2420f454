//! Builds prompts from named fragments in a fixed order, each with a budget, and records a receipt for every fragment.
//!
//! A role's recipe has an opening, which is sent once when its thread opens, and asks, which are sent with each call.
//! The flow renders fragments; this module decides what fits, what is left out and why, and how the prompt relates to
//! the previous one. It does not choose threads (see `scope`) and does not shorten them (see `compact`).

pub(crate) mod compact;
mod describe;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef, TextRef};
use crate::ids::{CallId, FragmentName, HandoverId, MessageId, ThreadId, ToolRunId};
use crate::scope::{ThreadKey, ThreadOpenReason, ThreadReuseConditions};

/// Counts tokens. The caller provides it, because counting needs a vocabulary.
pub trait TokenCounter {
    /// Returns the number of tokens in `text`.
    fn count_tokens(&self, text: &str) -> u32;
}

/// A fragment of a recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentSpec {
    pub name: FragmentName,
    pub layer: FragmentContentKind,
    pub stability: FragmentStability,
    pub tokens_max: Option<u32>,
    /// What happens if the text exceeds `tokens_max`.
    pub overflow: FragmentOverflowPolicy,
    pub retention: FragmentRetention,
}

impl FragmentSpec {
    /// Creates a fragment with the same text in every call.
    #[must_use]
    pub fn stable(name: &str, layer: FragmentContentKind) -> Self {
        Self {
            name: name.into(),
            layer,
            stability: FragmentStability::Stable,
            tokens_max: None,
            overflow: FragmentOverflowPolicy::KeepStart,
            retention: FragmentRetention::Foldable,
        }
    }

    /// Creates a fragment whose text differs from call to call.
    #[must_use]
    pub fn changing(name: &str, layer: FragmentContentKind) -> Self {
        Self { stability: FragmentStability::Changing, ..Self::stable(name, layer) }
    }

    /// Returns the fragment with a token budget.
    #[must_use]
    pub fn with_budget(mut self, tokens_max: u32, overflow: FragmentOverflowPolicy) -> Self {
        self.tokens_max = Some(tokens_max);
        self.overflow = overflow;
        self
    }

    /// Returns the fragment with another retention. By default compaction may fold it.
    #[must_use]
    pub fn with_retention(mut self, retention: FragmentRetention) -> Self {
        self.retention = retention;
        self
    }
}

/// The kinds of context. The inspector gives each a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentContentKind {
    /// The role's identity and instructions.
    Instruction,
    /// Knowledge from outside the conversation.
    Knowledge,
    /// Information from an earlier phase.
    Handover,
    /// Known entities.
    Entities,
    /// Parts of the conversation.
    Conversation,
    /// Decisions of models.
    Reasoning,
    /// The task of this call.
    Task,
    /// The user's own words, which compaction keeps.
    UserWords,
}

impl FragmentContentKind {
    /// Returns whether others than the flow's author wrote the texts of this layer. They are content, never instructions
    /// or signals.
    #[must_use]
    pub(crate) fn has_foreign_texts(self) -> bool {
        match self {
            Self::Instruction | Self::Task => false,
            Self::Knowledge
            | Self::Handover
            | Self::Entities
            | Self::Conversation
            | Self::Reasoning
            | Self::UserWords => true,
        }
    }
}

/// Whether a fragment has the same text in every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentStability {
    /// The text is the same in every call.
    Stable,
    /// The text may differ between calls.
    Changing,
}

/// What happens to a fragment that exceeds its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentOverflowPolicy {
    /// The end is cut off.
    KeepStart,
    /// The beginning is cut off.
    KeepEnd,
    /// The fragment is left out.
    LeaveOut,
}

/// How long a fragment stays in its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentRetention {
    /// Compaction must keep the message.
    Pinned,
    /// Compaction may fold the message.
    Foldable,
    /// Only its call sees the fragment.
    CallOnly,
}

/// The result of rendering a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderedFragment {
    /// A new text.
    New {
        text: String,
        source: FragmentSource,
        /// The reason for including it, in a few words.
        why: String,
    },
    /// A text that is already stored.
    Stored {
        text: TextRef,
        source: FragmentSource,
        /// The reason for including it, in a few words.
        why: String,
    },
    /// Nothing, with the reason.
    Omitted(String),
}

/// The origin of a fragment's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentSource {
    /// A prompt template.
    Template(String),
    /// A message.
    Message(MessageId),
    /// A handover.
    Handover(HandoverId),
    /// The answer of an earlier call.
    Call(CallId),
    /// A tool's result.
    Tool(ToolRunId),
    /// The flow's state.
    State,
    /// The phase graph.
    Phase,
    /// The folded messages of a thread.
    Thread(ThreadId),
}

/// The record of one fragment in one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentReceipt {
    pub name: FragmentName,
    pub layer: FragmentContentKind,
    /// `None` if the fragment was not rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<FragmentSource>,
    /// The reason for including it or leaving it out.
    pub why: String,
    /// The text as sent; `None` if the fragment was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextRef>,
    /// The number of tokens before the text was cut or left out because of its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before_cut: Option<u32>,
    /// True if compaction must keep the message that contains this fragment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// True if only this call sees the fragment: it does not stay in the thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub call_only: bool,
    /// The images that belong to the user's message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

/// The record of a call's prompt and the reasons for its content. Together with the journal it reproduces the exact
/// prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptReceipt {
    pub thread: CallThread,
    /// The opening fragments, if this call opens the thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opening: Vec<FragmentReceipt>,
    /// The earlier messages of the thread.
    #[serde(default, skip_serializing_if = "ThreadHistorySize::is_empty")]
    pub carried: ThreadHistorySize,
    /// The fragments of this call.
    pub ask: Vec<FragmentReceipt>,
    /// The size of the whole prompt, as counted by Segue.
    pub tokens: u32,
    /// The size of the prompt as the vendor would count it, estimated from its earlier reports; `None` if equal to
    /// `tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_tokens_estimate: Option<u32>,
    /// The model's context window, as counted by the vendor.
    pub window_tokens: u32,
    pub prefix: PreviousPromptComparison,
    /// The digest of the whole prompt.
    pub digest: BodyId,
}

impl PromptReceipt {
    /// Returns the size of the prompt as the vendor would count it, as far as known.
    #[must_use]
    pub(crate) fn vendor_tokens(&self) -> u32 {
        self.vendor_tokens_estimate.unwrap_or(self.tokens)
    }

    /// Returns the texts in this call that others than the flow's author wrote. Those of earlier calls in the thread are
    /// not included; see [`Session::foreign_texts`](crate::session::Session::foreign_texts).
    pub(crate) fn foreign_texts(&self) -> impl Iterator<Item = TextRef> {
        let fragments = self.opening.iter().chain(&self.ask);
        fragments.filter(|fragment| fragment.layer.has_foreign_texts()).filter_map(|fragment| fragment.text)
    }

    /// Returns the fragments of this call that stay in its thread once it is answered.
    pub(crate) fn lasting_ask(&self) -> impl Iterator<Item = &FragmentReceipt> {
        self.ask.iter().filter(|fragment| !fragment.call_only)
    }

    /// Returns the position, among the included fragments of this call, of the first that does not stay in the thread.
    pub(crate) fn first_call_only_index(&self) -> Option<usize> {
        self.ask.iter().filter(|fragment| fragment.text.is_some()).position(|fragment| fragment.call_only)
    }
}

/// The thread of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallThread {
    /// An existing thread was continued.
    Continued(ThreadId),
    /// A new thread was opened.
    Opened {
        thread: ThreadId,
        slot: ThreadKey,
        /// The scope tag of the new thread.
        tag: ThreadReuseConditions,
        why: ThreadOpenReason,
    },
}

impl CallThread {
    #[must_use]
    pub fn thread_id(&self) -> ThreadId {
        match self {
            Self::Continued(thread) | Self::Opened { thread, .. } => *thread,
        }
    }
}

/// The earlier messages of a thread that a call continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadHistorySize {
    /// The number of messages.
    pub entries: u32,
    /// The size of the messages, including the opening.
    pub tokens: u32,
}

impl ThreadHistorySize {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a prompt relates to the previous one in the same slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviousPromptComparison {
    /// There was no previous prompt.
    First,
    /// The prompt begins with all of the previous prompt.
    Extends(CallId),
    /// The prompt differs from the previous one at a fragment.
    Broken {
        /// The previous call.
        from: CallId,
        /// The size of the part that is unchanged.
        kept_tokens: u32,
        /// The first fragment that differs.
        cause: FragmentName,
    },
}

/// The parts of a prompt that are needed to compare it with the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PromptComparisonData {
    pub(crate) call: CallId,
    pub(crate) thread: ThreadId,
    /// How often the thread had been compacted.
    pub(crate) compactions: u32,
    pub(crate) carried: ThreadHistorySize,
    pub(crate) opening: Arc<[(FragmentName, TextRef)]>,
    pub(crate) ask: Arc<[(FragmentName, TextRef)]>,
    /// The first part of `ask` that does not stay in the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_call_only: Option<usize>,
    pub(crate) ask_status: CallAnswerStatus,
    /// The offered tools. Vendors put them before all messages.
    pub(crate) tools: Option<BodyId>,
}

/// Whether the ask of a call has become part of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallAnswerStatus {
    /// The call was not answered, so its ask is not in the thread.
    #[default]
    Unanswered,
    /// The call was answered.
    Answered,
}

/// The cause of a broken prefix if the thread was compacted.
pub const COMPACTION_FRAGMENT: &str = "compaction";
/// The cause of a broken prefix if other tools are offered.
pub(crate) const TOOLS_CHANGED_CAUSE: &str = "tools";
/// The cause of a broken prefix if the earlier thread was replaced and the new prompt has no fragments.
pub(crate) const THREAD_REPLACED_CAUSE: &str = "thread";

/// Compares a prompt with the previous one. The prompt extends it if it has the same tools and begins with all of its
/// messages.
#[must_use]
pub(crate) fn compare_prefix(
    before: Option<&PromptComparisonData>,
    next: &PromptComparisonData,
) -> PreviousPromptComparison {
    let Some(before) = before else { return PreviousPromptComparison::First };
    let from = before.call;
    if before.tools != next.tools {
        return PreviousPromptComparison::Broken { from, kept_tokens: 0, cause: TOOLS_CHANGED_CAUSE.into() };
    }
    let difference = if before.thread == next.thread {
        find_change_within_thread(before, next)
    } else {
        find_change_across_threads(before, next)
    };
    match difference {
        Some((kept_tokens, cause)) => PreviousPromptComparison::Broken { from, kept_tokens, cause },
        None => PreviousPromptComparison::Extends(from),
    }
}

fn find_change_within_thread(
    before: &PromptComparisonData,
    next: &PromptComparisonData,
) -> Option<(u32, FragmentName)> {
    if before.compactions != next.compactions {
        return Some((sum_fragment_tokens(&next.opening), COMPACTION_FRAGMENT.into()));
    }
    match before.ask_status {
        CallAnswerStatus::Answered => {
            let index = before.first_call_only?;
            let (name, _) = before.ask.get(index)?;
            // A call that opened the thread carries nothing; its opening is before the ask.
            let opening = if before.carried.entries == 0 { sum_fragment_tokens(&before.opening) } else { 0 };
            Some((before.carried.tokens + opening + sum_fragment_tokens(&before.ask[..index]), name.clone()))
        }
        CallAnswerStatus::Unanswered => find_first_changed_fragment(&before.ask, &next.ask, next.carried.tokens),
    }
}

fn find_change_across_threads(
    before: &PromptComparisonData,
    next: &PromptComparisonData,
) -> Option<(u32, FragmentName)> {
    let kept = sum_fragment_tokens(&next.opening);
    if let Some((name, _)) = next.opening.first().filter(|_| before.opening.is_empty()) {
        return Some((0, name.clone()));
    }
    find_first_changed_fragment(&before.opening, &next.opening, 0).or_else(|| {
        if before.carried.entries == 0 {
            return find_first_changed_fragment(&before.ask, &next.ask, kept);
        }
        Some((kept, next.ask.first().map_or_else(|| THREAD_REPLACED_CAUSE.into(), |(name, _)| name.clone())))
    })
}

fn sum_fragment_tokens(fragments: &[(FragmentName, TextRef)]) -> u32 {
    fragments.iter().map(|(_, text)| text.tokens).sum()
}

/// Returns the first fragment that differs from the earlier message and the number of unchanged tokens before it.
/// Returns `None` if there was no earlier message.
fn find_first_changed_fragment(
    old: &[(FragmentName, TextRef)],
    new: &[(FragmentName, TextRef)],
    mut kept: u32,
) -> Option<(u32, FragmentName)> {
    if old.is_empty() {
        return None;
    }
    for (index, (name, text)) in new.iter().enumerate() {
        match old.get(index) {
            Some((_, earlier)) if earlier.body == text.body => kept += text.tokens,
            _ => return Some((kept, name.clone())),
        }
    }
    old.get(new.len()).map(|(name, _)| (kept, name.clone()))
}

/// Fits a rendered text to the budget of its fragment.
#[must_use]
pub(crate) fn fit_to_budget(
    spec: &FragmentSpec,
    text: &str,
    tokens: u32,
    counter: &dyn TokenCounter,
) -> FragmentFitResult {
    let Some(max) = spec.tokens_max.filter(|max| tokens > *max) else { return FragmentFitResult::Whole };
    match spec.overflow {
        FragmentOverflowPolicy::LeaveOut => FragmentFitResult::Omitted,
        FragmentOverflowPolicy::KeepStart => {
            FragmentFitResult::Cut(cut_to_tokens(text, max, counter, TruncationKeptSide::Start))
        }
        FragmentOverflowPolicy::KeepEnd => {
            FragmentFitResult::Cut(cut_to_tokens(text, max, counter, TruncationKeptSide::End))
        }
    }
}

/// The result of [`fit_to_budget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FragmentFitResult {
    /// The text fits.
    Whole,
    /// The text was cut to this.
    Cut(String),
    /// The fragment is left out.
    Omitted,
}

#[derive(Clone, Copy)]
enum TruncationKeptSide {
    Start,
    End,
}

/// The mark in place of text that was cut off.
pub(crate) const CUT_MARK: &str = "[…]";

fn cut_to_tokens(text: &str, tokens_max: u32, counter: &dyn TokenCounter, keep: TruncationKeptSide) -> String {
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let cut = |chars: usize| match keep {
        TruncationKeptSide::Start => format!("{}{CUT_MARK}", &text[..boundaries[chars]]),
        TruncationKeptSide::End => format!("{CUT_MARK}{}", &text[boundaries[boundaries.len() - 1 - chars]..]),
    };
    let (mut fits, mut too_long) = (0, boundaries.len());
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if counter.count_tokens(&cut(middle)) <= tokens_max {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    cut(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words;
    impl TokenCounter for Words {
        fn count_tokens(&self, text: &str) -> u32 {
            u32::try_from(text.split_whitespace().count()).expect("short")
        }
    }

    fn text(content: &str) -> TextRef {
        TextRef { body: BodyId::hash_text(content), tokens: Words.count_tokens(content) }
    }

    fn outline(call: u32, thread: u32, pieces: &[(&str, &str)]) -> PromptComparisonData {
        PromptComparisonData {
            call: CallId(call),
            thread: ThreadId(thread),
            compactions: 0,
            carried: ThreadHistorySize::default(),
            opening: pieces.iter().map(|(name, content)| ((*name).into(), text(content))).collect(),
            ask: Arc::default(),
            first_call_only: None,
            ask_status: CallAnswerStatus::Unanswered,
            tools: None,
        }
    }

    #[test]
    fn a_broken_prefix_names_the_fragment_that_broke_it() {
        let first = outline(1, 1, &[("role", "you map"), ("date", "monday"), ("task", "go")]);
        let second = outline(2, 2, &[("role", "you map"), ("date", "tuesday"), ("task", "go")]);
        assert_eq!(compare_prefix(None, &first), PreviousPromptComparison::First);
        assert_eq!(
            compare_prefix(Some(&first), &second),
            PreviousPromptComparison::Broken { from: CallId(1), kept_tokens: 2, cause: "date".into() }
        );
        let longer = outline(3, 3, &[("role", "you map"), ("date", "monday"), ("task", "go"), ("more", "on")]);
        assert!(
            matches!(compare_prefix(Some(&first), &longer), PreviousPromptComparison::Broken { cause, kept_tokens: 4, .. } if cause == "more")
        );
    }

    #[test]
    fn a_thread_extends_itself_until_it_is_compacted() {
        let first = outline(1, 1, &[("role", "you map")]);
        let mut next =
            PromptComparisonData { call: CallId(2), ask: [("task".into(), text("go on"))].into(), ..first.clone() };
        assert_eq!(compare_prefix(Some(&first), &next), PreviousPromptComparison::Extends(CallId(1)));
        let unanswered = PromptComparisonData { ask: [("task".into(), text("go"))].into(), ..first.clone() };
        assert_eq!(
            compare_prefix(Some(&unanswered), &next),
            PreviousPromptComparison::Broken { from: CallId(1), kept_tokens: 0, cause: "task".into() }
        );
        let answered = PromptComparisonData { ask_status: CallAnswerStatus::Answered, ..unanswered };
        assert_eq!(compare_prefix(Some(&answered), &next), PreviousPromptComparison::Extends(CallId(1)));
        next.compactions = 1;
        assert_eq!(
            compare_prefix(Some(&first), &next),
            PreviousPromptComparison::Broken { from: CallId(1), kept_tokens: 2, cause: COMPACTION_FRAGMENT.into() }
        );
    }

    #[test]
    fn other_tools_break_the_prefix_before_its_first_word() {
        let first = outline(1, 1, &[("role", "you map")]);
        let next = PromptComparisonData { call: CallId(2), tools: Some(BodyId::hash_text("[]")), ..first.clone() };
        assert_eq!(
            compare_prefix(Some(&first), &next),
            PreviousPromptComparison::Broken { from: CallId(1), kept_tokens: 0, cause: TOOLS_CHANGED_CAUSE.into() }
        );
    }

    #[test]
    fn a_fragment_over_its_budget_is_cut_or_left_out() {
        let long = "one two three four five six";
        let spec =
            FragmentSpec::stable("x", FragmentContentKind::Task).with_budget(3, FragmentOverflowPolicy::KeepStart);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FragmentFitResult::Cut("one two three[…]".into()));
        let spec = FragmentSpec::stable("x", FragmentContentKind::Task).with_budget(3, FragmentOverflowPolicy::KeepEnd);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FragmentFitResult::Cut("[…]four five six".into()));
        let spec =
            FragmentSpec::stable("x", FragmentContentKind::Task).with_budget(3, FragmentOverflowPolicy::LeaveOut);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FragmentFitResult::Omitted);
        let spec =
            FragmentSpec::stable("x", FragmentContentKind::Task).with_budget(6, FragmentOverflowPolicy::LeaveOut);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FragmentFitResult::Whole);
    }
}
