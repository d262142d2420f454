//! Plans how a thread that no longer fits is shortened: which messages are folded into a summary and which are kept.
//!
//! Kept are the opening (the system message), pinned messages, the newest messages, and the user's own words within a
//! budget. A tool call and its results are kept or folded together. The folded messages never exceed the input of the
//! summarizing call, except that the last one may be shown to it in part.

use serde::{Deserialize, Serialize};

use crate::body::TextRef;
use crate::flow::ThreadCompactionThreshold;
use crate::limits::{COMPACTED_FILL_PERCENT, KEPT_USER_TEXT_PERCENT_MAX, SUMMARIZER_CONTEXT_PERCENT_MAX};
use crate::prompt::ChatRole;
use crate::session::thread::{FirstThreadMessageKind, MESSAGE_OVERHEAD_TOKENS, Thread, ThreadMessageList};

/// What a compaction does to a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactionPlan {
    /// The indices of the messages to fold into a summary, in order.
    pub folded: Vec<usize>,
    /// The indices of the messages to keep, in order.
    pub kept: Vec<usize>,
    /// The user's own words in folded messages, in order. The newest are kept first.
    pub user_words: Vec<TextRef>,
    /// The maximum size of the summary, without `user_words`, so that the pending call fits.
    #[serde(default = "unbounded")]
    pub summary_tokens_max: u32,
}

/// The default for plans that were recorded before the field existed.
fn unbounded() -> u32 {
    u32::MAX
}

/// The token limits of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactionBudget {
    /// The maximum size of the thread, without the new message and the answer.
    pub thread_tokens_max: u32,
    /// The size that the thread should have afterwards.
    pub target_tokens: u32,
    /// The maximum size of the summary.
    pub summary_tokens: u32,
    /// The maximum size of the folded messages, so that the summarizing call fits; unlimited without a summarizer.
    pub summarizer_input_tokens: u32,
}

/// How long a thread may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadTokenBudget {
    /// The maximum size of the thread, without the new message and the answer.
    tokens_max: u32,
    /// The size that the thread should have after a compaction.
    target_tokens: u32,
}

impl ThreadTokenBudget {
    /// Returns the space in a window in which `taken` tokens are reserved for the next message, its answer and the
    /// reserve.
    #[must_use]
    pub(crate) fn in_window(window: u32, taken: u32) -> Self {
        let free = window.saturating_sub(taken);
        Self { tokens_max: free, target_tokens: free / 100 * COMPACTED_FILL_PERCENT }
    }
}

impl From<ThreadCompactionThreshold> for ThreadTokenBudget {
    fn from(limit: ThreadCompactionThreshold) -> Self {
        Self { tokens_max: limit.tokens_max, target_tokens: limit.tokens_kept }
    }
}

impl CompactionBudget {
    #[must_use]
    pub(crate) fn new(space: ThreadTokenBudget, summary_tokens: u32, summarizer_input_tokens: u32) -> Self {
        Self {
            thread_tokens_max: space.tokens_max,
            target_tokens: space.target_tokens,
            summary_tokens,
            summarizer_input_tokens,
        }
    }
}

/// Plans a compaction of `thread`. Returns `None` if nothing would be gained: only an earlier summary could be folded,
/// or the messages that must stay are too long by themselves.
#[must_use]
pub(crate) fn plan_compaction(thread: &Thread, budget: CompactionBudget) -> Option<CompactionPlan> {
    let groups = group_entries(&thread.entries);
    let words_max = budget.target_tokens / 100 * KEPT_USER_TEXT_PERCENT_MAX;
    let mandatory = mandatory_tokens(thread, &groups);
    if mandatory > budget.thread_tokens_max {
        return None;
    }
    let mut left = budget.target_tokens.saturating_sub(mandatory + budget.summary_tokens + words_max);

    // From the newest backwards: messages that still fit are kept.
    let mut stays = vec![false; groups.len()];
    let mut full = false;
    for (index, group) in groups.iter().enumerate().rev() {
        if group.pinned {
            stays[index] = true;
        } else if !full && group.tokens <= left {
            left -= group.tokens;
            stays[index] = true;
        } else {
            full = true;
        }
    }
    // From the oldest forwards: no more is folded than the summarizing call can contain. A message that is too long for
    // it is folded last and shown in part. So that there is progress, the same goes for a message that is too long
    // together with an earlier summary.
    let is_summary = |folded: &[usize]| folded == [0] && thread.first_entry_kind == FirstThreadMessageKind::Summary;
    let (mut shown, mut full) = (0u32, false);
    let mut folded = Vec::new();
    let mut kept = Vec::new();
    for (group, stays) in groups.iter().zip(&stays) {
        let fits = shown.saturating_add(group.tokens) <= budget.summarizer_input_tokens;
        let in_part = folded.is_empty()
            || is_summary(&folded)
            || (group.tokens > budget.summarizer_input_tokens
                && shown <= budget.summarizer_input_tokens / 100 * SUMMARIZER_CONTEXT_PERCENT_MAX);
        if *stays || full || !(fits || in_part) {
            full |= !stays;
            kept.extend(group.range.clone());
        } else {
            shown = shown.saturating_add(group.tokens);
            full = !fits;
            folded.extend(group.range.clone());
        }
    }
    if folded.is_empty() || is_summary(&folded) {
        return None;
    }
    let user_words = select_user_words(&thread.entries, &folded, words_max);
    let word_tokens: u32 = user_words.iter().map(|text| text.tokens).sum();
    let other_tokens = mandatory.saturating_add(word_tokens).saturating_add(MESSAGE_OVERHEAD_TOKENS);
    let summary_tokens_max = budget.summary_tokens.min(budget.thread_tokens_max.saturating_sub(other_tokens));
    Some(CompactionPlan { folded, kept, user_words, summary_tokens_max })
}

/// Returns the size of the opening and the pinned messages.
fn mandatory_tokens(thread: &Thread, groups: &[InseparableMessageGroup]) -> u32 {
    let opening = thread.tokens.saturating_sub(thread.entries.iter().map(|entry| entry.tokens()).sum());
    let pinned: u32 = groups.iter().filter(|group| group.pinned).map(|group| group.tokens).sum();
    opening.saturating_add(pinned)
}

struct InseparableMessageGroup {
    range: std::ops::Range<usize>,
    tokens: u32,
    pinned: bool,
}

/// Groups messages that must stay together: an assistant message that calls tools, and the results that follow it.
fn group_entries(entries: &ThreadMessageList) -> Vec<InseparableMessageGroup> {
    let mut groups: Vec<InseparableMessageGroup> = Vec::new();
    let mut open_calls = 0usize;
    for (index, entry) in entries.iter().enumerate() {
        let joins = open_calls > 0 && entry.chat_role == ChatRole::Tool;
        if joins {
            open_calls -= 1;
        } else {
            open_calls = entry.tool_calls.len();
        }
        match groups.last_mut() {
            Some(group) if joins => {
                group.range.end = index + 1;
                group.tokens = group.tokens.saturating_add(entry.tokens());
                group.pinned |= entry.pinned;
            }
            _ => groups.push(InseparableMessageGroup {
                range: index..index + 1,
                tokens: entry.tokens(),
                pinned: entry.pinned,
            }),
        }
    }
    groups
}

fn select_user_words(entries: &ThreadMessageList, folded: &[usize], tokens_max: u32) -> Vec<TextRef> {
    let mut left = tokens_max;
    let mut words = Vec::new();
    let newest_first =
        folded.iter().rev().filter_map(|index| entries.get(*index)).flat_map(|entry| entry.user_texts.iter().rev());
    for text in newest_first {
        if text.tokens > left {
            break;
        }
        left -= text.tokens;
        words.push(*text);
    }
    words.reverse();
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyId;
    use crate::ids::{CallId, ThreadId, UnixMillis};
    use crate::prompt::ToolCall;
    use crate::scope::{ThreadKey, ThreadReuseConditions};
    use crate::session::thread::ThreadMessage;
    use proptest::prelude::*;

    fn entry(speaker: ChatRole, tokens: u32, calls: usize, pinned: bool) -> ThreadMessage {
        let text = TextRef { body: BodyId::hash_text(&format!("{speaker:?}{tokens}")), tokens };
        let tool_calls = (0..calls)
            .map(|n| ToolCall { id: n.to_string(), name: "t".into(), arguments: serde_json::Value::Null })
            .collect();
        let words = (speaker == ChatRole::User).then_some(text).into_iter().collect();
        ThreadMessage {
            parts: vec![text],
            tool_calls,
            pinned,
            user_texts: words,
            ..ThreadMessage::empty(CallId(1), speaker)
        }
    }

    fn thread(entries: Vec<ThreadMessage>) -> Thread {
        let slot = ThreadKey { role: "r".into(), agent: None, peer: None, model: None };
        let mut thread = Thread::new(
            ThreadId(1),
            slot.into(),
            ThreadReuseConditions::default(),
            UnixMillis(0),
            CallId(1),
            [].into(),
        );
        entries.into_iter().for_each(|entry| thread.push(entry));
        thread
    }

    const BUDGET: CompactionBudget = CompactionBudget {
        thread_tokens_max: 2_000,
        target_tokens: 1_000,
        summary_tokens: 100,
        summarizer_input_tokens: u32::MAX,
    };

    #[test]
    fn oldest_messages_are_folded_and_user_words_are_kept() {
        let talk =
            (0..20).flat_map(|n| [entry(ChatRole::User, 10 + n, 0, false), entry(ChatRole::Assistant, 90, 0, false)]);
        let plan = plan_compaction(&thread(talk.collect()), BUDGET).expect("it is too long");
        assert!(plan.folded.iter().max() < plan.kept.iter().min());
        assert!(!plan.user_words.is_empty());
        assert!(plan.user_words.iter().map(|text| text.tokens).sum::<u32>() <= 150);
    }

    #[test]
    fn a_tool_call_stays_with_its_results() {
        let mut talk = vec![entry(ChatRole::User, 500, 0, false), entry(ChatRole::Assistant, 10, 2, false)];
        talk.extend([entry(ChatRole::Tool, 400, 0, false), entry(ChatRole::Tool, 400, 0, false)]);
        talk.push(entry(ChatRole::Assistant, 20, 0, false));
        let plan = plan_compaction(&thread(talk), BUDGET).expect("it is too long");
        assert_eq!(plan.folded, [0, 1, 2, 3]);
    }

    #[test]
    fn folded_messages_fit_the_summarizing_call() {
        let talk = (0..20).map(|_| entry(ChatRole::Assistant, 96, 0, false)).collect();
        let plan = plan_compaction(&thread(talk), CompactionBudget { summarizer_input_tokens: 300, ..BUDGET })
            .expect("it is too long");
        assert_eq!(plan.folded, [0, 1, 2]);
    }

    #[test]
    fn message_too_long_for_the_summarizer_is_folded_last_and_none_is_skipped() {
        let message = |tokens: u32| entry(ChatRole::Assistant, tokens - 4, 0, false);
        let budget = CompactionBudget { summarizer_input_tokens: 300, ..BUDGET };
        let folded =
            |entries: Vec<ThreadMessage>| plan_compaction(&thread(entries), budget).expect("it is too long").folded;
        assert_eq!(
            folded(vec![message(100), message(900), message(100), message(900)]),
            [0, 1],
            "in part, after a short message"
        );
        assert_eq!(
            folded(vec![message(200), message(900), message(100), message(900)]),
            [0],
            "not after a long message"
        );
        assert_eq!(
            folded(vec![message(200), message(200), message(100), message(900)]),
            [0],
            "a message that fits whole waits"
        );
        assert_eq!(folded(vec![message(900), message(100), message(900)]), [0], "nothing comes after it");
    }

    #[test]
    fn something_is_always_folded_together_with_an_earlier_summary() {
        let message = |tokens: u32| entry(ChatRole::Assistant, tokens - 4, 0, false);
        let mut compacted = thread(vec![message(100), message(290), message(900)]);
        compacted.first_entry_kind = FirstThreadMessageKind::Summary;
        let budget = CompactionBudget { summarizer_input_tokens: 300, ..BUDGET };
        assert_eq!(plan_compaction(&compacted, budget).expect("it is too long").folded, [0, 1]);
    }

    fn any_entry() -> impl Strategy<Value = ThreadMessage> {
        (0..3u8, 1..200u32, 0..3usize, proptest::bool::weighted(0.1)).prop_map(|(who, tokens, calls, pinned)| match who
        {
            0 => entry(ChatRole::User, tokens, 0, pinned),
            1 => entry(ChatRole::Assistant, tokens, calls, pinned),
            _ => entry(ChatRole::Tool, tokens, 0, pinned),
        })
    }

    proptest! {
        #[test]
        fn every_plan_covers_the_thread_and_keeps_pinned_messages(
            entries in proptest::collection::vec(any_entry(), 0..60),
            tokens in 100..5_000u32,
            shown in 100..5_000u32,
        ) {
            let thread = thread(entries);
            let Some(plan) = plan_compaction(&thread, CompactionBudget { thread_tokens_max: tokens * 2, target_tokens: tokens, summary_tokens: 50, summarizer_input_tokens: shown }) else { return Ok(()) };
            let mut all = [plan.folded.clone(), plan.kept.clone()].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..thread.entries.len()).collect::<Vec<_>>());
            prop_assert!(plan.folded.iter().all(|index| !thread.entries[*index].pinned));
            let groups = group_entries(&thread.entries);
            let whole = groups.iter().filter(|group| plan.folded.contains(&group.range.start));
            let before: Vec<u32> = whole.map(|group| group.tokens).collect();
            let (_, before) = before.split_last().expect("something is folded");
            prop_assert!(before.iter().sum::<u32>() <= shown, "all but the last is shown whole");
            for group in groups {
                let folded = group.range.clone().filter(|index| plan.folded.contains(index)).count();
                prop_assert!(folded == 0 || folded == group.range.len(), "a tool call was separated from its result");
            }
        }
    }
}
