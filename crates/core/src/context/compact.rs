//! Shortens a thread that no longer fits: what is folded, what is kept.
//!
//! Kept: the opening (the system message), pinned messages, the newest messages, and the user's own words within a
//! budget. A tool call and its results are kept or folded together. What is folded never exceeds what the summarising
//! call itself can be shown, but for its last message, of which a part is shown.

use serde::{Deserialize, Serialize};

use crate::body::Text;
use crate::limits::{COMPACTED_FILL_PERCENT, KEPT_WORDS_PERCENT, SHOWN_BESIDE_PERCENT};
use crate::prompt::Speaker;
use crate::thread::{Entries, First, MESSAGE_FRAME_TOKENS, Thread};

/// What a compaction will do to a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Places of the entries that are folded into a summary, in order.
    pub folded: Vec<usize>,
    /// Places of the entries that stay, in order.
    pub kept: Vec<usize>,
    /// The user's own words among the folded, newest kept first, in order of speaking.
    pub words: Vec<Text>,
    /// Most tokens that may stand in the place of the folded beside those, so that the call it is done for fits.
    #[serde(default = "unbounded")]
    pub summary_max: u32,
}

/// Nothing was said of it once.
fn unbounded() -> u32 {
    u32::MAX
}

/// Room for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tokens the thread may have at the very most, the new message and the answer not counted.
    pub free: u32,
    /// Tokens the thread should have afterwards.
    pub tokens: u32,
    /// Tokens the summary may take.
    pub summary: u32,
    /// Tokens of folded messages that the summarising call can be shown; unlimited where no model is asked.
    pub shown: u32,
}

impl Room {
    /// The room in a window of which `taken` is spoken for by the next message, its answer and the reserve.
    #[must_use]
    pub fn within(window: u32, taken: u32, summary: u32, shown: u32) -> Self {
        let free = window.saturating_sub(taken);
        Self { free, tokens: free / 100 * COMPACTED_FILL_PERCENT, summary, shown }
    }
}

/// Plans a compaction of `thread` into `room`. There is none if nothing would be gained: nothing can be folded but an
/// earlier summary, or what must stay is too long by itself.
#[must_use]
pub fn plan(thread: &Thread, room: Room) -> Option<Plan> {
    let groups = groups(&thread.entries);
    let words_max = room.tokens / 100 * KEPT_WORDS_PERCENT;
    let stays_anyway = stays_anyway(thread, &groups);
    if stays_anyway > room.free {
        return None;
    }
    let mut left = room.tokens.saturating_sub(stays_anyway + room.summary + words_max);

    // From the newest backwards: what still fits stays.
    let mut stays = vec![false; groups.len()];
    let mut full = false;
    for (place, group) in groups.iter().enumerate().rev() {
        if group.pinned {
            stays[place] = true;
        } else if !full && group.tokens <= left {
            left -= group.tokens;
            stays[place] = true;
        } else {
            full = true;
        }
    }
    // From the oldest forwards: no more is folded than the summarising call can be shown. What is too long for it by itself comes
    // last and is shown in part, and so that there is progress, so does what is too long beside an earlier summary.
    let is_summary = |folded: &[usize]| folded == [0] && thread.first == First::Summary;
    let (mut shown, mut full) = (0u32, false);
    let mut folded = Vec::new();
    let mut kept = Vec::new();
    for (group, stays) in groups.iter().zip(&stays) {
        let fits = shown.saturating_add(group.tokens) <= room.shown;
        let in_part = folded.is_empty()
            || is_summary(&folded)
            || (group.tokens > room.shown && shown <= room.shown / 100 * SHOWN_BESIDE_PERCENT);
        if *stays || full || !(fits || in_part) {
            full |= !stays;
            kept.extend(group.places.clone());
        } else {
            shown = shown.saturating_add(group.tokens);
            full = !fits;
            folded.extend(group.places.clone());
        }
    }
    if folded.is_empty() || is_summary(&folded) {
        return None;
    }
    let words = words(&thread.entries, &folded, words_max);
    let spoken: u32 = words.iter().map(|text| text.tokens).sum();
    let beside = stays_anyway.saturating_add(spoken).saturating_add(MESSAGE_FRAME_TOKENS);
    let summary_max = room.summary.min(room.free.saturating_sub(beside));
    Some(Plan { folded, kept, words, summary_max })
}

/// Tokens of the opening and of what is pinned.
fn stays_anyway(thread: &Thread, groups: &[Group]) -> u32 {
    let opening = thread.tokens.saturating_sub(thread.entries.iter().map(|entry| entry.tokens()).sum());
    let pinned: u32 = groups.iter().filter(|group| group.pinned).map(|group| group.tokens).sum();
    opening.saturating_add(pinned)
}

struct Group {
    places: std::ops::Range<usize>,
    tokens: u32,
    pinned: bool,
}

/// Entries that must stay together: an assistant message that calls tools, and the results that follow it.
fn groups(entries: &Entries) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open_calls = 0usize;
    for (place, entry) in entries.iter().enumerate() {
        let joins = open_calls > 0 && entry.speaker == Speaker::Tool;
        if joins {
            open_calls -= 1;
        } else {
            open_calls = entry.tool_calls.len();
        }
        match groups.last_mut() {
            Some(group) if joins => {
                group.places.end = place + 1;
                group.tokens = group.tokens.saturating_add(entry.tokens());
                group.pinned |= entry.pinned;
            }
            _ => groups.push(Group { places: place..place + 1, tokens: entry.tokens(), pinned: entry.pinned }),
        }
    }
    groups
}

fn words(entries: &Entries, folded: &[usize], tokens_max: u32) -> Vec<Text> {
    let mut left = tokens_max;
    let mut words = Vec::new();
    let newest_first =
        folded.iter().rev().filter_map(|place| entries.get(*place)).flat_map(|entry| entry.words.iter().rev());
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
    use crate::ids::{CallId, Millis, ThreadId};
    use crate::prompt::ToolCall;
    use crate::scope::{Slot, Tag};
    use crate::thread::Entry;
    use proptest::prelude::*;

    fn entry(speaker: Speaker, tokens: u32, calls: usize, pinned: bool) -> Entry {
        let text = Text { body: BodyId::of(&format!("{speaker:?}{tokens}")), tokens };
        let tool_calls = (0..calls)
            .map(|n| ToolCall { id: n.to_string(), name: "t".into(), arguments: serde_json::Value::Null })
            .collect();
        let words = (speaker == Speaker::User).then_some(text).into_iter().collect();
        Entry { parts: vec![text], tool_calls, pinned, words, ..Entry::silent(CallId(1), speaker) }
    }

    fn thread(entries: Vec<Entry>) -> Thread {
        let slot = Slot { role: "r".into(), agent: None, peer: None, model: None };
        let mut thread = Thread::open(ThreadId(1), slot.into(), Tag::default(), Millis(0), CallId(1), [].into());
        entries.into_iter().for_each(|entry| thread.push(entry));
        thread
    }

    const ROOM: Room = Room { free: 2_000, tokens: 1_000, summary: 100, shown: u32::MAX };

    #[test]
    fn the_oldest_are_folded_and_the_users_words_are_kept() {
        let talk =
            (0..20).flat_map(|n| [entry(Speaker::User, 10 + n, 0, false), entry(Speaker::Assistant, 90, 0, false)]);
        let plan = plan(&thread(talk.collect()), ROOM).expect("it is too long");
        assert!(plan.folded.iter().max() < plan.kept.iter().min());
        assert!(!plan.words.is_empty());
        assert!(plan.words.iter().map(|text| text.tokens).sum::<u32>() <= 150);
    }

    #[test]
    fn a_tool_call_stays_with_its_results() {
        let mut talk = vec![entry(Speaker::User, 500, 0, false), entry(Speaker::Assistant, 10, 2, false)];
        talk.extend([entry(Speaker::Tool, 400, 0, false), entry(Speaker::Tool, 400, 0, false)]);
        talk.push(entry(Speaker::Assistant, 20, 0, false));
        let plan = plan(&thread(talk), ROOM).expect("it is too long");
        assert_eq!(plan.folded, [0, 1, 2, 3]);
    }

    #[test]
    fn no_more_is_folded_than_the_summariser_can_be_shown() {
        let talk = (0..20).map(|_| entry(Speaker::Assistant, 96, 0, false)).collect();
        let plan = plan(&thread(talk), Room { shown: 300, ..ROOM }).expect("it is too long");
        assert_eq!(plan.folded, [0, 1, 2]);
    }

    #[test]
    fn what_is_too_long_for_the_summariser_comes_last_and_nothing_is_skipped() {
        let said = |tokens: u32| entry(Speaker::Assistant, tokens - 4, 0, false);
        let room = Room { shown: 300, ..ROOM };
        let folded = |entries: Vec<Entry>| plan(&thread(entries), room).expect("it is too long").folded;
        assert_eq!(folded(vec![said(100), said(900), said(100), said(900)]), [0, 1], "in part, beside a little");
        assert_eq!(folded(vec![said(200), said(900), said(100), said(900)]), [0], "not beside much");
        assert_eq!(folded(vec![said(200), said(200), said(100), said(900)]), [0], "one that can be shown whole waits");
        assert_eq!(folded(vec![said(900), said(100), said(900)]), [0], "nothing comes after it");
    }

    #[test]
    fn beside_an_earlier_summary_there_is_always_something_to_fold() {
        let said = |tokens: u32| entry(Speaker::Assistant, tokens - 4, 0, false);
        let mut summarised = thread(vec![said(100), said(290), said(900)]);
        summarised.first = First::Summary;
        let room = Room { shown: 300, ..ROOM };
        assert_eq!(plan(&summarised, room).expect("it is too long").folded, [0, 1]);
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        (0..3u8, 1..200u32, 0..3usize, proptest::bool::weighted(0.1)).prop_map(|(who, tokens, calls, pinned)| match who
        {
            0 => entry(Speaker::User, tokens, 0, pinned),
            1 => entry(Speaker::Assistant, tokens, calls, pinned),
            _ => entry(Speaker::Tool, tokens, 0, pinned),
        })
    }

    proptest! {
        #[test]
        fn every_plan_parts_the_thread_and_keeps_what_must_be_kept(
            entries in proptest::collection::vec(any_entry(), 0..60),
            tokens in 100..5_000u32,
            shown in 100..5_000u32,
        ) {
            let thread = thread(entries);
            let Some(plan) = plan(&thread, Room { free: tokens * 2, tokens, summary: 50, shown }) else { return Ok(()) };
            let mut all = [plan.folded.clone(), plan.kept.clone()].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..thread.entries.len()).collect::<Vec<_>>());
            prop_assert!(plan.folded.iter().all(|place| !thread.entries[*place].pinned));
            let groups = groups(&thread.entries);
            let whole = groups.iter().filter(|group| plan.folded.contains(&group.places.start));
            let before: Vec<u32> = whole.map(|group| group.tokens).collect();
            let (_, before) = before.split_last().expect("something is folded");
            prop_assert!(before.iter().sum::<u32>() <= shown, "all but the last is shown whole");
            for group in groups {
                let folded = group.places.clone().filter(|place| plan.folded.contains(place)).count();
                prop_assert!(folded == 0 || folded == group.places.len(), "a tool call was parted from its result");
            }
        }
    }
}
