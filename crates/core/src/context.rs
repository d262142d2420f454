//! What a model is shown: named fragments in a fixed order, each with a budget, and the receipt of every one.
//!
//! A role's recipe has an opening (shown once, when its thread opens) and asks (shown with each call). The flow fills
//! fragments with text; this module decides what fits, what is left out and why, and how the prompt relates to the one before.
//! It does not pick threads (`scope`) and does not shorten them (`compact`).

pub mod compact;
mod describe;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, ImageRef, TextRef};
use crate::ids::{AskName, CallId, FragmentName, HandoverId, MessageId, ThreadId, ToolRunId};
use crate::scope::{ScopeTag, ThreadOpenReason, ThreadSlot};

/// Counts tokens. Handed in, since counting needs a vocabulary and core has none.
pub trait TokenCounter {
    /// Tokens in `text`.
    fn count_tokens(&self, text: &str) -> u32;
}

/// What a role is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptRecipe {
    /// Once, when the thread opens; becomes the system message.
    pub opening: Vec<FragmentSpec>,
    /// With each call of that name; becomes the user message.
    pub asks: BTreeMap<AskName, Vec<FragmentSpec>>,
}

impl PromptRecipe {
    /// What is wrong with the recipe: a stable fragment behind a changing one moves the cached prefix at every call.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut changing: Option<&FragmentSpec> = None;
        for spec in &self.opening {
            match (spec.stability, changing) {
                (Stability::Changing, _) => changing = Some(spec),
                (Stability::Stable, Some(before)) => faults.push(format!(
                    "stable fragment `{}` stands behind changing fragment `{}`; stable ones come first",
                    spec.name, before.name
                )),
                (Stability::Stable, None) => {}
            }
        }
        if self.asks.is_empty() {
            faults.push("the recipe has no ask, so the role can never be called".to_owned());
        }
        faults
    }
}

/// One fragment of a recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentSpec {
    /// Its name.
    pub name: FragmentName,
    /// What kind of context it is.
    pub layer: ContextLayer,
    /// Whether it is the same from call to call.
    pub stability: Stability,
    /// Most tokens it may take.
    pub tokens_max: Option<u32>,
    /// What happens to a longer one.
    pub overflow: OverflowPolicy,
    /// Whether compaction must keep the message it is part of.
    pub retention: Retention,
}

impl FragmentSpec {
    /// A fragment that is the same from call to call.
    #[must_use]
    pub fn stable(name: &str, layer: ContextLayer) -> Self {
        Self {
            name: name.into(),
            layer,
            stability: Stability::Stable,
            tokens_max: None,
            overflow: OverflowPolicy::KeepStart,
            retention: Retention::Foldable,
        }
    }

    /// A fragment that differs from call to call.
    #[must_use]
    pub fn changing(name: &str, layer: ContextLayer) -> Self {
        Self { stability: Stability::Changing, ..Self::stable(name, layer) }
    }

    /// The same with a budget.
    #[must_use]
    pub fn with_budget(mut self, tokens_max: u32, overflow: OverflowPolicy) -> Self {
        self.tokens_max = Some(tokens_max);
        self.overflow = overflow;
        self
    }

    /// The same, kept by compaction.
    #[must_use]
    pub fn pin(mut self) -> Self {
        self.retention = Retention::Pinned;
        self
    }
}

/// Kinds of context, as the inspector colours them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextLayer {
    /// Who the role is and what it must do.
    Instruction,
    /// What is known beyond this conversation.
    Knowledge,
    /// What an earlier phase handed over.
    Handover,
    /// What exists.
    Entities,
    /// What was said.
    Conversation,
    /// What models decided.
    Reasoning,
    /// What is to be done in this call.
    Task,
    /// The user's own words; compaction keeps them.
    UserWords,
}

/// Whether a fragment is the same from call to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stability {
    /// The same bytes every time.
    Stable,
    /// Other bytes from time to time.
    Changing,
}

/// What happens to a fragment over its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverflowPolicy {
    /// Its end is cut off.
    KeepStart,
    /// Its beginning is cut off.
    KeepEnd,
    /// It is left out.
    LeaveOut,
}

/// Whether compaction must keep a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// It must.
    Pinned,
    /// It may fold it.
    Foldable,
}

/// What a flow puts into a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderedFragment {
    /// A text made for this call.
    New {
        /// The text.
        text: String,
        /// Where it came from.
        source: FragmentSource,
        /// Why it is in, in a few words.
        why: String,
    },
    /// A text that is stored already.
    Stored {
        /// The text.
        text: TextRef,
        /// Where it came from.
        source: FragmentSource,
        /// Why it is in, in a few words.
        why: String,
    },
    /// Nothing to show, and why.
    Omitted(String),
}

/// Where a fragment came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentSource {
    /// A prompt template.
    Template(String),
    /// A message.
    Message(MessageId),
    /// A handover.
    Handover(HandoverId),
    /// An earlier call's answer.
    Call(CallId),
    /// A tool's result.
    Tool(ToolRunId),
    /// The flow's own state.
    State,
    /// The phase graph.
    Phase,
    /// The folded part of a thread.
    Thread(ThreadId),
}

/// What became of one fragment in one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentReceipt {
    /// Which fragment.
    pub name: FragmentName,
    /// What kind of context.
    pub layer: ContextLayer,
    /// Where it came from; nothing for one left out before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<FragmentSource>,
    /// Why it is in, or why it is not.
    pub why: String,
    /// Its text as sent; nothing if it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextRef>,
    /// Its tokens before it was cut or left out for its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before_cut: Option<u32>,
    /// Whether compaction must keep the message it is part of.
    #[serde(default, skip_serializing_if = "is_not_pinned")]
    pub pinned: bool,
    /// What the user showed with these words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

fn is_not_pinned(pinned: &bool) -> bool {
    !*pinned
}

/// What a call was shown and why, as it stands in the journal. With the journal up to it, the exact prompt can be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptReceipt {
    /// The thread, and why this one.
    pub thread: ThreadUse,
    /// The opening fragments, if the thread opened with this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opening: Vec<FragmentReceipt>,
    /// What the thread held already.
    #[serde(default, skip_serializing_if = "CarriedHistory::is_empty")]
    pub carried: CarriedHistory,
    /// The fragments of this call.
    pub ask: Vec<FragmentReceipt>,
    /// Tokens of the whole prompt, by our count.
    pub tokens: u32,
    /// The same as the model's vendor would count them, by what it has reported so far; nothing where that comes to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_tokens_estimate: Option<u32>,
    /// The model's window, as its vendor counts.
    pub window_tokens: u32,
    /// How the prompt relates to the one before it.
    pub prefix: PrefixMatch,
    /// Fingerprint of the whole prompt.
    pub digest: BodyId,
}

impl PromptReceipt {
    /// Tokens of the whole prompt as the model's vendor would count them, as far as we know.
    #[must_use]
    pub fn vendor_tokens(&self) -> u32 {
        self.vendor_tokens_estimate.unwrap_or(self.tokens)
    }

    /// The user's own words among what is asked. What an answer quotes from them is not the answer's.
    pub fn user_words(&self) -> impl Iterator<Item = TextRef> {
        self.ask.iter().filter(|piece| piece.layer == ContextLayer::UserWords).filter_map(|piece| piece.text)
    }
}

/// Which thread a call uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadUse {
    /// One that stood already.
    Continued(ThreadId),
    /// A new one.
    Opened {
        /// Its number.
        thread: ThreadId,
        /// Where it stands.
        slot: ThreadSlot,
        /// What it is good for.
        tag: ScopeTag,
        /// Why a new one.
        why: ThreadOpenReason,
    },
}

impl ThreadUse {
    /// The thread's number.
    #[must_use]
    pub fn thread_id(&self) -> ThreadId {
        match self {
            Self::Continued(thread) | Self::Opened { thread, .. } => *thread,
        }
    }
}

/// What a thread held when a call continued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CarriedHistory {
    /// Messages.
    pub entries: u32,
    /// Their tokens, the opening included.
    pub tokens: u32,
}

impl CarriedHistory {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a prompt relates to the previous one in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixMatch {
    /// There was none.
    First,
    /// It begins with all of the previous prompt.
    Extends(CallId),
    /// It parts from the previous prompt at a fragment.
    Broken {
        /// The previous call.
        from: CallId,
        /// Tokens that are still the same.
        kept_tokens: u32,
        /// The first fragment that differs.
        cause: FragmentName,
    },
}

/// A prompt's fragments as far as comparing with the next one needs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptOutline {
    /// Whose prompt.
    pub call: CallId,
    /// In which thread.
    pub thread: ThreadId,
    /// How often that thread had been compacted.
    pub compactions: u32,
    /// What the thread held then.
    pub carried: CarriedHistory,
    /// Its opening fragments.
    pub opening: Arc<[(FragmentName, TextRef)]>,
    /// Its own fragments.
    pub ask: Arc<[(FragmentName, TextRef)]>,
    /// Whether they are part of the thread by now.
    pub ask_status: AskStatus,
    /// The tools it was offered; vendors put them before all messages.
    pub tools: Option<BodyId>,
}

/// Whether what a call asked has become part of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskStatus {
    /// Not yet, or never: only an answer makes it so.
    #[default]
    Unanswered,
    /// It was answered.
    Answered,
}

/// The name under which a compaction shows up as the cause of a broken prefix.
pub const COMPACTION_FRAGMENT: &str = "compaction";
/// The name under which other tools show up as the cause of a broken prefix.
pub const TOOLS_CHANGED_CAUSE: &str = "tools";
/// The name under which a left-behind thread shows up as the cause of a broken prefix, where nothing took its place.
pub const THREAD_REPLACED_CAUSE: &str = "thread";

/// Compares the prompt that `next` describes with the one before it. It extends that one if the messages of that one are
/// the first of its own, and the tools are the same.
#[must_use]
pub fn compare_prefix(before: Option<&PromptOutline>, next: &PromptOutline) -> PrefixMatch {
    let Some(before) = before else { return PrefixMatch::First };
    let from = before.call;
    if before.tools != next.tools {
        return PrefixMatch::Broken { from, kept_tokens: 0, cause: TOOLS_CHANGED_CAUSE.into() };
    }
    let difference =
        if before.thread == next.thread { diff_within_thread(before, next) } else { diff_across_threads(before, next) };
    match difference {
        Some((kept, by)) => PrefixMatch::Broken { from, kept_tokens: kept, cause: by },
        None => PrefixMatch::Extends(from),
    }
}

fn diff_within_thread(before: &PromptOutline, next: &PromptOutline) -> Option<(u32, FragmentName)> {
    if before.compactions != next.compactions {
        return Some((sum_fragment_tokens(&next.opening), COMPACTION_FRAGMENT.into()));
    }
    match before.ask_status {
        AskStatus::Answered => None,
        AskStatus::Unanswered => first_difference(&before.ask, &next.ask, next.carried.tokens),
    }
}

fn diff_across_threads(before: &PromptOutline, next: &PromptOutline) -> Option<(u32, FragmentName)> {
    let kept = sum_fragment_tokens(&next.opening);
    if let Some((name, _)) = next.opening.first().filter(|_| before.opening.is_empty()) {
        return Some((0, name.clone()));
    }
    first_difference(&before.opening, &next.opening, 0).or_else(|| {
        if before.carried.entries == 0 {
            return first_difference(&before.ask, &next.ask, kept);
        }
        Some((kept, next.ask.first().map_or_else(|| THREAD_REPLACED_CAUSE.into(), |(name, _)| name.clone())))
    })
}

fn sum_fragment_tokens(pieces: &[(FragmentName, TextRef)]) -> u32 {
    pieces.iter().map(|(_, text)| text.tokens).sum()
}

/// The first fragment in which a message differs from the one in its place before, and the tokens up to it. There is no
/// difference where no message stood before.
fn first_difference(
    old: &[(FragmentName, TextRef)],
    new: &[(FragmentName, TextRef)],
    mut kept: u32,
) -> Option<(u32, FragmentName)> {
    if old.is_empty() {
        return None;
    }
    for (place, (name, text)) in new.iter().enumerate() {
        match old.get(place) {
            Some((_, stood)) if stood.body == text.body => kept += text.tokens,
            _ => return Some((kept, name.clone())),
        }
    }
    old.get(new.len()).map(|(name, _)| (kept, name.clone()))
}

/// Fits a rendered text to its fragment's budget. The answer's text is what is sent; the number is what it was cut from.
#[must_use]
pub fn fit_to_budget(spec: &FragmentSpec, text: &str, tokens: u32, counter: &dyn TokenCounter) -> FitResult {
    let Some(max) = spec.tokens_max.filter(|max| tokens > *max) else { return FitResult::Whole };
    match spec.overflow {
        OverflowPolicy::LeaveOut => FitResult::Omitted,
        OverflowPolicy::KeepStart => FitResult::Cut(cut_to_tokens(text, max, counter, KeptSide::Start)),
        OverflowPolicy::KeepEnd => FitResult::Cut(cut_to_tokens(text, max, counter, KeptSide::End)),
    }
}

/// What [`fit`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitResult {
    /// It fits.
    Whole,
    /// It was cut to this.
    Cut(String),
    /// It is left out.
    Omitted,
}

#[derive(Clone, Copy)]
enum KeptSide {
    Start,
    End,
}

/// What stands where something was cut off.
pub const CUT_MARK: &str = "[…]";

fn cut_to_tokens(text: &str, tokens_max: u32, counter: &dyn TokenCounter, keep: KeptSide) -> String {
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let piece = |chars: usize| match keep {
        KeptSide::Start => format!("{}{CUT_MARK}", &text[..boundaries[chars]]),
        KeptSide::End => format!("{CUT_MARK}{}", &text[boundaries[boundaries.len() - 1 - chars]..]),
    };
    let (mut fits, mut too_long) = (0, boundaries.len());
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if counter.count_tokens(&piece(middle)) <= tokens_max {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    piece(fits)
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

    fn mark(call: u32, thread: u32, pieces: &[(&str, &str)]) -> PromptOutline {
        PromptOutline {
            call: CallId(call),
            thread: ThreadId(thread),
            compactions: 0,
            carried: CarriedHistory::default(),
            opening: pieces.iter().map(|(name, content)| ((*name).into(), text(content))).collect(),
            ask: Arc::default(),
            ask_status: AskStatus::Unanswered,
            tools: None,
        }
    }

    #[test]
    fn a_broken_prefix_names_the_fragment_that_broke_it() {
        let first = mark(1, 1, &[("role", "you map"), ("date", "monday"), ("task", "go")]);
        let second = mark(2, 2, &[("role", "you map"), ("date", "tuesday"), ("task", "go")]);
        assert_eq!(compare_prefix(None, &first), PrefixMatch::First);
        assert_eq!(
            compare_prefix(Some(&first), &second),
            PrefixMatch::Broken { from: CallId(1), kept_tokens: 2, cause: "date".into() }
        );
        let longer = mark(3, 3, &[("role", "you map"), ("date", "monday"), ("task", "go"), ("more", "on")]);
        assert!(
            matches!(compare_prefix(Some(&first), &longer), PrefixMatch::Broken { cause, kept_tokens: 4, .. } if cause == "more")
        );
    }

    #[test]
    fn a_thread_extends_itself_until_it_is_compacted() {
        let first = mark(1, 1, &[("role", "you map")]);
        let mut next = PromptOutline { call: CallId(2), ask: [("task".into(), text("go on"))].into(), ..first.clone() };
        assert_eq!(compare_prefix(Some(&first), &next), PrefixMatch::Extends(CallId(1)));
        let unanswered = PromptOutline { ask: [("task".into(), text("go"))].into(), ..first.clone() };
        assert_eq!(
            compare_prefix(Some(&unanswered), &next),
            PrefixMatch::Broken { from: CallId(1), kept_tokens: 0, cause: "task".into() }
        );
        let answered = PromptOutline { ask_status: AskStatus::Answered, ..unanswered };
        assert_eq!(compare_prefix(Some(&answered), &next), PrefixMatch::Extends(CallId(1)));
        next.compactions = 1;
        assert_eq!(
            compare_prefix(Some(&first), &next),
            PrefixMatch::Broken { from: CallId(1), kept_tokens: 2, cause: COMPACTION_FRAGMENT.into() }
        );
    }

    #[test]
    fn other_tools_break_the_prefix_before_its_first_word() {
        let first = mark(1, 1, &[("role", "you map")]);
        let next = PromptOutline { call: CallId(2), tools: Some(BodyId::hash_text("[]")), ..first.clone() };
        assert_eq!(
            compare_prefix(Some(&first), &next),
            PrefixMatch::Broken { from: CallId(1), kept_tokens: 0, cause: TOOLS_CHANGED_CAUSE.into() }
        );
    }

    #[test]
    fn a_fragment_over_its_budget_is_cut_or_left_out() {
        let long = "one two three four five six";
        let spec = FragmentSpec::stable("x", ContextLayer::Task).with_budget(3, OverflowPolicy::KeepStart);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FitResult::Cut("one two three[…]".into()));
        let spec = FragmentSpec::stable("x", ContextLayer::Task).with_budget(3, OverflowPolicy::KeepEnd);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FitResult::Cut("[…]four five six".into()));
        let spec = FragmentSpec::stable("x", ContextLayer::Task).with_budget(3, OverflowPolicy::LeaveOut);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FitResult::Omitted);
        let spec = FragmentSpec::stable("x", ContextLayer::Task).with_budget(6, OverflowPolicy::LeaveOut);
        assert_eq!(fit_to_budget(&spec, long, 6, &Words), FitResult::Whole);
    }

    #[test]
    fn a_stable_fragment_behind_a_changing_one_is_a_fault() {
        let recipe = PromptRecipe {
            opening: vec![
                FragmentSpec::changing("date", ContextLayer::Task),
                FragmentSpec::stable("role", ContextLayer::Instruction),
            ],
            asks: BTreeMap::new(),
        };
        assert_eq!(recipe.validation_errors().len(), 2);
    }
}
