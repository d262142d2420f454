//! What a model is shown: named fragments in a fixed order, each with a budget, and the receipt of every one.
//!
//! A role's recipe has an opening (shown once, when its thread opens) and asks (shown with each call). The flow fills
//! fragments with text; this module decides what fits, what is left out and why, and how the prompt relates to the one before.
//! It does not pick threads (`scope`) and does not shorten them (`compact`).

pub mod compact;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, Picture, Text};
use crate::ids::{AskName, CallId, FragmentName, HandoverId, MessageId, ThreadId, ToolRunId};
use crate::scope::{Opening, Slot, Tag};

/// Counts tokens. Handed in, since counting needs a vocabulary and core has none.
pub trait Count {
    /// Tokens in `text`.
    fn count(&self, text: &str) -> u32;
}

/// What a role is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recipe {
    /// Once, when the thread opens; becomes the system message.
    pub opening: Vec<FragmentSpec>,
    /// With each call of that name; becomes the user message.
    pub asks: BTreeMap<AskName, Vec<FragmentSpec>>,
}

impl Recipe {
    /// What is wrong with the recipe: a stable fragment behind a changing one moves the cached prefix at every call.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut changing: Option<&FragmentSpec> = None;
        for spec in &self.opening {
            match (spec.steadiness, changing) {
                (Steadiness::Changing, _) => changing = Some(spec),
                (Steadiness::Stable, Some(before)) => faults.push(format!(
                    "stable fragment `{}` stands behind changing fragment `{}`; stable ones come first",
                    spec.name, before.name
                )),
                (Steadiness::Stable, None) => {}
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
    pub layer: Layer,
    /// Whether it is the same from call to call.
    pub steadiness: Steadiness,
    /// Most tokens it may take.
    pub tokens_max: Option<u32>,
    /// What happens to a longer one.
    pub over: Over,
    /// Whether compaction must keep the message it is part of.
    pub pinned: Pinned,
}

impl FragmentSpec {
    /// A fragment that is the same from call to call.
    #[must_use]
    pub fn stable(name: &str, layer: Layer) -> Self {
        Self {
            name: name.into(),
            layer,
            steadiness: Steadiness::Stable,
            tokens_max: None,
            over: Over::KeepStart,
            pinned: Pinned::No,
        }
    }

    /// A fragment that differs from call to call.
    #[must_use]
    pub fn changing(name: &str, layer: Layer) -> Self {
        Self { steadiness: Steadiness::Changing, ..Self::stable(name, layer) }
    }

    /// The same with a budget.
    #[must_use]
    pub fn within(mut self, tokens_max: u32, over: Over) -> Self {
        self.tokens_max = Some(tokens_max);
        self.over = over;
        self
    }

    /// The same, kept by compaction.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.pinned = Pinned::Yes;
        self
    }
}

/// Kinds of context, as the inspector colours them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
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
    Words,
}

/// Whether a fragment is the same from call to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steadiness {
    /// The same bytes every time.
    Stable,
    /// Other bytes from time to time.
    Changing,
}

/// What happens to a fragment over its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
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
pub enum Pinned {
    /// It must.
    Yes,
    /// It may fold it.
    No,
}

/// What a flow puts into a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendered {
    /// A text made for this call.
    New {
        /// The text.
        text: String,
        /// Where it came from.
        source: Source,
        /// Why it is in, in a few words.
        why: String,
    },
    /// A text that is stored already.
    Stored {
        /// The text.
        text: Text,
        /// Where it came from.
        source: Source,
        /// Why it is in, in a few words.
        why: String,
    },
    /// Nothing to show, and why.
    Out(String),
}

/// Where a fragment came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
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
pub struct Piece {
    /// Which fragment.
    pub name: FragmentName,
    /// What kind of context.
    pub layer: Layer,
    /// Where it came from; nothing for one left out before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Why it is in, or why it is not.
    pub why: String,
    /// Its text as sent; nothing if it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Its tokens before it was cut or left out for its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_from: Option<u32>,
    /// Whether compaction must keep the message it is part of.
    #[serde(default, skip_serializing_if = "is_not_pinned")]
    pub pinned: bool,
    /// What the user showed with these words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Picture>,
}

fn is_not_pinned(pinned: &bool) -> bool {
    !*pinned
}

/// What a call was shown and why, as it stands in the journal. With the journal up to it, the exact prompt can be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The thread, and why this one.
    pub thread: ThreadUse,
    /// The opening fragments, if the thread opened with this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opening: Vec<Piece>,
    /// What the thread held already.
    #[serde(default, skip_serializing_if = "Carried::is_nothing")]
    pub carried: Carried,
    /// The fragments of this call.
    pub ask: Vec<Piece>,
    /// Tokens of the whole prompt, by our count.
    pub tokens: u32,
    /// The same as the model's vendor would count them, by what it has reported so far; nothing where that comes to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<u32>,
    /// The model's window, as its vendor counts.
    pub window: u32,
    /// How the prompt relates to the one before it.
    pub prefix: Prefix,
    /// Fingerprint of the whole prompt.
    pub digest: BodyId,
}

impl Receipt {
    /// Tokens of the whole prompt as the model's vendor would count them, as far as we know.
    #[must_use]
    pub fn vendor_tokens(&self) -> u32 {
        self.corrected.unwrap_or(self.tokens)
    }

    /// The user's own words among what is asked. What an answer quotes from them is not the answer's.
    pub fn words(&self) -> impl Iterator<Item = Text> {
        self.ask.iter().filter(|piece| piece.layer == Layer::Words).filter_map(|piece| piece.text)
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
        slot: Slot,
        /// What it is good for.
        tag: Tag,
        /// Why a new one.
        why: Opening,
    },
}

impl ThreadUse {
    /// The thread's number.
    #[must_use]
    pub fn thread(&self) -> ThreadId {
        match self {
            Self::Continued(thread) | Self::Opened { thread, .. } => *thread,
        }
    }
}

/// What a thread held when a call continued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Messages.
    pub entries: u32,
    /// Their tokens, the opening included.
    pub tokens: u32,
}

impl Carried {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// How a prompt relates to the previous one in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// There was none.
    First,
    /// It begins with all of the previous prompt.
    Extends(CallId),
    /// It parts from the previous prompt at a fragment.
    Broken {
        /// The previous call.
        from: CallId,
        /// Tokens that are still the same.
        kept: u32,
        /// The first fragment that differs.
        by: FragmentName,
    },
}

/// A prompt's fragments as far as comparing with the next one needs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Whose prompt.
    pub call: CallId,
    /// In which thread.
    pub thread: ThreadId,
    /// How often that thread had been compacted.
    pub compactions: u32,
    /// What the thread held then.
    pub carried: Carried,
    /// Its opening fragments.
    pub opening: Arc<[(FragmentName, Text)]>,
    /// Its own fragments.
    pub ask: Arc<[(FragmentName, Text)]>,
    /// Whether they are part of the thread by now.
    pub asked: Asked,
    /// The tools it was offered; vendors put them before all messages.
    pub tools: Option<BodyId>,
}

/// Whether what a call asked has become part of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Not yet, or never: only an answer makes it so.
    #[default]
    InPassing,
    /// It was answered.
    ForGood,
}

/// The name under which a compaction shows up as the cause of a broken prefix.
pub const COMPACTION: &str = "compaction";
/// The name under which other tools show up as the cause of a broken prefix.
pub const TOOLS: &str = "tools";
/// The name under which a left-behind thread shows up as the cause of a broken prefix, where nothing took its place.
pub const THREAD: &str = "thread";

/// Compares the prompt that `next` describes with the one before it. It extends that one if the messages of that one are
/// the first of its own, and the tools are the same.
#[must_use]
pub fn prefix(before: Option<&Mark>, next: &Mark) -> Prefix {
    let Some(before) = before else { return Prefix::First };
    let from = before.call;
    if before.tools != next.tools {
        return Prefix::Broken { from, kept: 0, by: TOOLS.into() };
    }
    let difference =
        if before.thread == next.thread { within_thread(before, next) } else { across_threads(before, next) };
    match difference {
        Some((kept, by)) => Prefix::Broken { from, kept, by },
        None => Prefix::Extends(from),
    }
}

fn within_thread(before: &Mark, next: &Mark) -> Option<(u32, FragmentName)> {
    if before.compactions != next.compactions {
        return Some((tokens(&next.opening), COMPACTION.into()));
    }
    match before.asked {
        Asked::ForGood => None,
        Asked::InPassing => difference(&before.ask, &next.ask, next.carried.tokens),
    }
}

fn across_threads(before: &Mark, next: &Mark) -> Option<(u32, FragmentName)> {
    let kept = tokens(&next.opening);
    if let Some((name, _)) = next.opening.first().filter(|_| before.opening.is_empty()) {
        return Some((0, name.clone()));
    }
    difference(&before.opening, &next.opening, 0).or_else(|| {
        if before.carried.entries == 0 {
            return difference(&before.ask, &next.ask, kept);
        }
        Some((kept, next.ask.first().map_or_else(|| THREAD.into(), |(name, _)| name.clone())))
    })
}

fn tokens(pieces: &[(FragmentName, Text)]) -> u32 {
    pieces.iter().map(|(_, text)| text.tokens).sum()
}

/// The first fragment in which a message differs from the one in its place before, and the tokens up to it. There is no
/// difference where no message stood before.
fn difference(
    old: &[(FragmentName, Text)],
    new: &[(FragmentName, Text)],
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
pub fn fit(spec: &FragmentSpec, text: &str, tokens: u32, count: &dyn Count) -> Fitted {
    let Some(max) = spec.tokens_max.filter(|max| tokens > *max) else { return Fitted::Whole };
    match spec.over {
        Over::LeaveOut => Fitted::Out,
        Over::KeepStart => Fitted::Cut(cut(text, max, count, Keep::Start)),
        Over::KeepEnd => Fitted::Cut(cut(text, max, count, Keep::End)),
    }
}

/// What [`fit`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fitted {
    /// It fits.
    Whole,
    /// It was cut to this.
    Cut(String),
    /// It is left out.
    Out,
}

#[derive(Clone, Copy)]
enum Keep {
    Start,
    End,
}

/// What stands where something was cut off.
pub const CUT_MARK: &str = "[…]";

fn cut(text: &str, tokens_max: u32, count: &dyn Count, keep: Keep) -> String {
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let piece = |chars: usize| match keep {
        Keep::Start => format!("{}{CUT_MARK}", &text[..boundaries[chars]]),
        Keep::End => format!("{CUT_MARK}{}", &text[boundaries[boundaries.len() - 1 - chars]..]),
    };
    let (mut fits, mut too_long) = (0, boundaries.len());
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if count.count(&piece(middle)) <= tokens_max {
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
    impl Count for Words {
        fn count(&self, text: &str) -> u32 {
            u32::try_from(text.split_whitespace().count()).expect("short")
        }
    }

    fn text(content: &str) -> Text {
        Text { body: BodyId::of(content), tokens: Words.count(content) }
    }

    fn mark(call: u32, thread: u32, pieces: &[(&str, &str)]) -> Mark {
        Mark {
            call: CallId(call),
            thread: ThreadId(thread),
            compactions: 0,
            carried: Carried::default(),
            opening: pieces.iter().map(|(name, content)| ((*name).into(), text(content))).collect(),
            ask: Arc::default(),
            asked: Asked::InPassing,
            tools: None,
        }
    }

    #[test]
    fn a_broken_prefix_names_the_fragment_that_broke_it() {
        let first = mark(1, 1, &[("role", "you map"), ("date", "monday"), ("task", "go")]);
        let second = mark(2, 2, &[("role", "you map"), ("date", "tuesday"), ("task", "go")]);
        assert_eq!(prefix(None, &first), Prefix::First);
        assert_eq!(prefix(Some(&first), &second), Prefix::Broken { from: CallId(1), kept: 2, by: "date".into() });
        let longer = mark(3, 3, &[("role", "you map"), ("date", "monday"), ("task", "go"), ("more", "on")]);
        assert!(matches!(prefix(Some(&first), &longer), Prefix::Broken { by, kept: 4, .. } if by == "more"));
    }

    #[test]
    fn a_thread_extends_itself_until_it_is_compacted() {
        let first = mark(1, 1, &[("role", "you map")]);
        let mut next = Mark { call: CallId(2), ask: [("task".into(), text("go on"))].into(), ..first.clone() };
        assert_eq!(prefix(Some(&first), &next), Prefix::Extends(CallId(1)));
        let unanswered = Mark { ask: [("task".into(), text("go"))].into(), ..first.clone() };
        assert_eq!(prefix(Some(&unanswered), &next), Prefix::Broken { from: CallId(1), kept: 0, by: "task".into() });
        let answered = Mark { asked: Asked::ForGood, ..unanswered };
        assert_eq!(prefix(Some(&answered), &next), Prefix::Extends(CallId(1)));
        next.compactions = 1;
        assert_eq!(prefix(Some(&first), &next), Prefix::Broken { from: CallId(1), kept: 2, by: COMPACTION.into() });
    }

    #[test]
    fn other_tools_break_the_prefix_before_its_first_word() {
        let first = mark(1, 1, &[("role", "you map")]);
        let next = Mark { call: CallId(2), tools: Some(BodyId::of("[]")), ..first.clone() };
        assert_eq!(prefix(Some(&first), &next), Prefix::Broken { from: CallId(1), kept: 0, by: TOOLS.into() });
    }

    #[test]
    fn a_fragment_over_its_budget_is_cut_or_left_out() {
        let long = "one two three four five six";
        let spec = FragmentSpec::stable("x", Layer::Task).within(3, Over::KeepStart);
        assert_eq!(fit(&spec, long, 6, &Words), Fitted::Cut("one two three[…]".into()));
        let spec = FragmentSpec::stable("x", Layer::Task).within(3, Over::KeepEnd);
        assert_eq!(fit(&spec, long, 6, &Words), Fitted::Cut("[…]four five six".into()));
        let spec = FragmentSpec::stable("x", Layer::Task).within(3, Over::LeaveOut);
        assert_eq!(fit(&spec, long, 6, &Words), Fitted::Out);
        let spec = FragmentSpec::stable("x", Layer::Task).within(6, Over::LeaveOut);
        assert_eq!(fit(&spec, long, 6, &Words), Fitted::Whole);
    }

    #[test]
    fn a_stable_fragment_behind_a_changing_one_is_a_fault() {
        let recipe = Recipe {
            opening: vec![
                FragmentSpec::changing("date", Layer::Task),
                FragmentSpec::stable("role", Layer::Instruction),
            ],
            asks: BTreeMap::new(),
        };
        assert_eq!(recipe.faults().len(), 2);
    }
}
