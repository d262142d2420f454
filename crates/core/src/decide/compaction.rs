//! Shortening a thread before a call that would not fit: by a summary a model writes, or without one.

use super::calls::{Errand, reply_tokens};
use super::draft::Draft;
use crate::body::{BodyKind, Text};
use crate::context::compact::{Plan, Room, plan};
use crate::context::{Fitted, FragmentSpec, Layer, Over, Rendered, fit};
use crate::event::{CallOpened, CallWish, Event, ThreadCompacted};
use crate::flow::{About, Asking, Folding, RoleSpec};
use crate::ids::{CallId, ThreadId};
use crate::limits::{COMPACTIONS_PER_CALL_MAX, SUMMARY_PERCENT_MIN, WINDOW_RESERVE_TOKENS};
use crate::session::OpenCall;
use crate::thread::{Entry, First, MESSAGE_FRAME_TOKENS, Thread};

impl<'a> Draft<'a> {
    /// Makes room in `thread` for the call that `wish` describes, which is tried again afterwards. There is `space` for the prompt, of
    /// which its new message takes `taken`, both by our count.
    /// Says whether anything could be done.
    pub fn compact(
        &mut self,
        thread: ThreadId,
        role: &'a RoleSpec,
        wish: &CallWish,
        (space, taken): (u32, u32),
        errand: Errand<'_>,
    ) -> bool {
        let tries = errand.compactions;
        let Some(stood) = self.session().threads.get(&thread) else { return false };
        let room = |shown| Room::within(space, taken, role.compaction.tokens_max, shown);
        let by = role.compaction.by.as_ref().filter(|_| tries < COMPACTIONS_PER_CALL_MAX);
        let by = by.and_then(|by| Some((by, self.spec().roles.get(&by.role)?)));
        let by = by.and_then(|(by, summariser)| Some((by, plan(stood, room(self.shown_to(summariser)))?)));
        // One that there is no room for would be paid for in vain.
        let least = role.compaction.tokens_max.saturating_mul(SUMMARY_PERCENT_MIN) / 100;
        let by = by.filter(|(_, plan)| plan.summary_max >= least);
        let again = Errand { compactions: tries + 1, ..errand };
        if let Some((by, plan)) = by {
            let folding = self.folding(thread, &plan.folded);
            let note = serde_json::to_value(&plan).unwrap_or_default();
            let summary = CallWish { note, ..CallWish::new(by.role.as_str(), by.ask.as_str()) };
            let opened = self.call(summary, Errand { compacts: Some((thread, &folding)), ..Errand::default() });
            // A summary that failed at once will have been done without by then; the call is tried again either way.
            if let Some(waits_for) = opened {
                self.defer(wish.clone(), waits_for, again);
                return true;
            }
        }
        let Some(stood) = self.session().threads.get(&thread) else { return false };
        let planned = trimmed(stood, room(u32::MAX)).filter(|_| tries <= COMPACTIONS_PER_CALL_MAX);
        let Some((plan, stands)) = planned else { return false };
        self.fold(thread, &plan, stands);
        self.call(wish.clone(), again);
        true
    }

    /// Tokens of folded messages that a summariser can be shown.
    fn shown_to(&self, summariser: &RoleSpec) -> u32 {
        let model = self.model_for(summariser, &CallWish::new(summariser.name.as_str(), ""), None);
        let window = self.window(&model);
        // Its own instructions and the frame around each message take a share that is not known beforehand.
        let own = window / 4 + reply_tokens(summariser, window) + WINDOW_RESERVE_TOKENS;
        self.session().weight(&model).ours(window.saturating_sub(own))
    }

    fn folding(&self, thread: ThreadId, folded: &[usize]) -> Folding {
        let Some(thread) = self.session().threads.get(&thread) else { return Folding::default() };
        let words = |entry: &Entry| {
            let parts: Vec<_> = entry.parts.iter().map(|text| self.texts.get(text.body)).collect();
            let calls = entry.tool_calls.iter().map(|call| format!("[{} {}]", call.name, call.arguments));
            parts.iter().map(ToString::to_string).chain(calls).collect::<Vec<_>>().join("\n\n")
        };
        let entries = folded.iter().filter_map(|place| thread.entries.get(*place));
        Folding { entries: entries.map(|entry| (entry.speaker, words(entry))).collect(), summary: None }
    }

    /// A summarising call ended: folds what it was shown, with its summary or without one of its own.
    pub fn finish_compaction(&mut self, opened: &CallOpened, summary: Option<Text>) {
        let Some(thread) = opened.compacts else { return };
        let Ok(plan) = serde_json::from_value::<Plan>(opened.note.clone()) else { return };
        let summary = summary.filter(|text| !self.texts.get(text.body).trim().is_empty());
        self.fold(thread, &plan, summary.map_or(Stands::Earlier, |text| Stands::Summary(opened.call, text)));
    }

    /// How the thread of a call that a vendor finds too long is made shorter. No model is asked for a summary: the one at hand has just
    /// shown that less fits into it than we thought.
    pub fn shorter(&self, open: &OpenCall) -> Option<(Plan, Stands)> {
        let opened = &open.opened;
        if opened.compacts.is_some() || opened.recomputes.is_some() {
            return None;
        }
        let stood = self.session().threads.get(&opened.receipt.thread.thread())?;
        let role = self.spec().roles.get(&opened.role)?;
        // The prompt did not fit, so the window is smaller than it; by how much nobody said.
        let window = opened.receipt.tokens / 4 * 3;
        let asked = opened.receipt.tokens.saturating_sub(opened.receipt.carried.tokens);
        let taken = asked + reply_tokens(role, window) + WINDOW_RESERVE_TOKENS;
        trimmed(stood, Room::within(window, taken, role.compaction.tokens_max.min(window / 8), u32::MAX))
    }

    /// Puts what `stands` says in the place of the messages that are folded.
    pub fn fold(&mut self, thread: ThreadId, plan: &Plan, stands: Stands) {
        let Some(stood) = self.session().threads.get(&thread).cloned() else { return };
        let Some(role) = self.spec().roles.get(&stood.slot.role) else { return };
        let (summary, earlier) = match stands {
            Stands::Summary(call, text) => (Some((call, text)), None),
            Stands::Earlier => (None, earlier(&stood).filter(|_| plan.folded.first() == Some(&0))),
            Stands::Nothing => (None, None),
        };
        let left_out = if earlier.is_some() { &plan.folded[1..] } else { &plan.folded };
        let mut parts: Vec<Text> = earlier.iter().map(|(_, text)| *text).collect();
        let left = plan.summary_max.saturating_sub(parts.iter().map(|text| text.tokens).sum());
        let tokens_max = role.compaction.tokens_max.min(left);
        parts.extend(self.standing_in(role, &stood, (left_out, tokens_max), summary));
        parts.extend(&plan.words);
        let kept: Vec<u32> = plan.kept.iter().map(|place| u32::try_from(*place).unwrap_or(u32::MAX)).collect();
        let compacted = ThreadCompacted {
            thread,
            folded: u32::try_from(plan.folded.len()).unwrap_or(u32::MAX),
            kept,
            summary: parts,
            words: plan.words.clone(),
            tokens_before: stood.tokens,
            tokens_after: 0,
            by: summary.or(earlier).map(|(call, _)| call),
        };
        let tokens_after = after(&stood, &compacted);
        self.record(Event::ThreadCompacted(Box::new(ThreadCompacted { tokens_after, ..compacted })));
    }

    /// What stands in the place of the folded messages: the flow's words around the summary.
    fn standing_in(
        &mut self,
        role: &RoleSpec,
        stood: &Thread,
        (folded, tokens_max): (&[usize], u32),
        summary: Option<(CallId, Text)>,
    ) -> Option<Text> {
        let mut folding = self.folding(stood.id, folded);
        folding.summary = summary.map(|(_, text)| self.texts.get(text.body).to_string());
        let wish = CallWish::new(role.name.as_str(), crate::context::COMPACTION);
        let call = summary.map_or(stood.opened_by, |(call, _)| call);
        let asking = Asking { wish: &wish, call, turn: None, opens: false, folding: Some(&folding) };
        let rendered = self.rules.fragment(self.sight(&About::default()), &asking, &role.compaction.stands);
        let content = match rendered {
            Rendered::New { text, .. } => text,
            Rendered::Stored { text, .. } => self.texts.get(text.body).to_string(),
            Rendered::Out(_) => folding.summary?,
        };
        let spec =
            FragmentSpec::changing(crate::context::COMPACTION, Layer::Conversation).within(tokens_max, Over::KeepStart);
        let tokens = self.env.count.count(&content);
        let content = match fit(&spec, &content, tokens, self.env.count) {
            Fitted::Cut(cut) => cut,
            Fitted::Whole | Fitted::Out => content,
        };
        Some(self.store(content, BodyKind::Inner))
    }
}

/// What is to stand in the place of folded messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stands {
    /// This summary, which this call wrote.
    Summary(CallId, Text),
    /// The summary that stands there already, if a model wrote one, and that the rest was left out.
    Earlier,
    /// That all of them were left out.
    Nothing,
}

/// How a thread is shortened without a model: an earlier summary stands on, as it was paid for, where there is room for it and for
/// a word on what is left out.
fn trimmed(stood: &Thread, room: Room) -> Option<(Plan, Stands)> {
    let summary = earlier(stood).map(|(_, text)| room.summary.saturating_add(text.tokens));
    let beside =
        summary.and_then(|summary| plan(stood, Room { summary, ..room }).filter(|plan| plan.summary_max == summary));
    beside.map(|plan| (plan, Stands::Earlier)).or_else(|| Some((plan(stood, room)?, Stands::Nothing)))
}

/// The summary that stands at the beginning of a thread, and the call that wrote it. What stands for messages that were only left
/// out is none: it goes by the call that opened the thread.
fn earlier(stood: &Thread) -> Option<(CallId, Text)> {
    let first = stood.entries.first().filter(|_| stood.first == First::Summary)?;
    let text = first.parts.first().filter(|text| !first.words.contains(text))?;
    (first.call != stood.opened_by).then_some((first.call, *text))
}

fn after(stood: &Thread, compacted: &ThreadCompacted) -> u32 {
    let kept: u32 =
        compacted.kept.iter().filter_map(|place| stood.entries.get(*place as usize)).map(|entry| entry.tokens()).sum();
    let folded: u32 = stood.entries.iter().map(|entry| entry.tokens()).sum();
    let summary: u32 = compacted.summary.iter().map(|text| text.tokens).sum();
    let frame = if compacted.summary.is_empty() { 0 } else { MESSAGE_FRAME_TOKENS };
    stood.tokens.saturating_sub(folded) + kept + summary + frame
}
