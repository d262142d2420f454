//! Shortening a thread before a call that would not fit: by a summary a model writes, or without one.

use super::calls::{CallPurpose, reply_tokens_limit};
use super::draft::DecisionDraft;
use crate::body::{BodyKind, TextRef};
use crate::context::compact::{CompactionBudget, CompactionPlan, plan_compaction};
use crate::context::{ContextLayer, FitResult, FragmentSpec, OverflowPolicy, RenderedFragment, fit_to_budget};
use crate::event::{CallOpened, CallRequest, Event, ThreadCompacted};
use crate::flow::{CompactedMessages, EventSubject, FragmentRequest, RoleSpec};
use crate::ids::{CallId, ThreadId};
use crate::limits::{COMPACTIONS_PER_CALL_MAX, SUMMARY_SPACE_PERCENT_MIN, WINDOW_RESERVE_TOKENS};
use crate::session::OpenCall;
use crate::thread::{FirstEntryKind, MESSAGE_OVERHEAD_TOKENS, Thread, ThreadEntry};

impl<'a> DecisionDraft<'a> {
    /// Makes room in `thread` for the call that `wish` describes, which is tried again afterwards. There is `space` for the prompt, of
    /// which its new message takes `taken`, both by our count.
    /// Says whether anything could be done.
    pub fn compact_thread(
        &mut self,
        thread: ThreadId,
        role: &'a RoleSpec,
        request: &CallRequest,
        (space, taken): (u32, u32),
        purpose: CallPurpose<'_>,
    ) -> bool {
        let tries = purpose.compaction_attempts;
        let Some(stood) = self.session().threads.get(&thread) else { return false };
        let room = |shown| CompactionBudget::from_window(space, taken, role.compaction.summary_tokens_max, shown);
        let by = role.compaction.summarizer.as_ref().filter(|_| tries < COMPACTIONS_PER_CALL_MAX);
        let by = by.and_then(|by| Some((by, self.spec().roles.get(&by.role)?)));
        let by = by.and_then(|(by, summariser)| {
            Some((by, plan_compaction(stood, room(self.summarizer_input_tokens(summariser)))?))
        });
        // One that there is no room for would be paid for in vain.
        let least = role.compaction.summary_tokens_max.saturating_mul(SUMMARY_SPACE_PERCENT_MIN) / 100;
        let by = by.filter(|(_, plan)| plan.summary_tokens_max >= least);
        let again = CallPurpose { compaction_attempts: tries + 1, ..purpose };
        if let Some((by, plan)) = by {
            let folding = self.collect_compacted_messages(thread, &plan.folded);
            let note = serde_json::to_value(&plan).unwrap_or_default();
            let summary = CallRequest { metadata: note, ..CallRequest::new(by.role.as_str(), by.ask.as_str()) };
            let opened = self.open_or_defer_call(
                summary,
                CallPurpose { compacts: Some((thread, &folding)), ..CallPurpose::default() },
            );
            // A summary that failed at once will have been done without by then; the call is tried again either way.
            if let Some(waits_for) = opened {
                self.defer_call(request.clone(), waits_for, again);
                return true;
            }
        }
        let Some(stood) = self.session().threads.get(&thread) else { return false };
        let planned = plan_without_model(stood, room(u32::MAX)).filter(|_| tries <= COMPACTIONS_PER_CALL_MAX);
        let Some((plan, stands)) = planned else { return false };
        self.replace_folded_messages(thread, &plan, stands);
        self.open_or_defer_call(request.clone(), again);
        true
    }

    /// Tokens of folded messages that a summariser can be shown.
    fn summarizer_input_tokens(&self, summariser: &RoleSpec) -> u32 {
        let model = self.choose_model(summariser, &CallRequest::new(summariser.name.as_str(), ""), None);
        let window = self.context_window(&model);
        // Its own instructions and the frame around each message take a share that is not known beforehand.
        let own = window / 4 + reply_tokens_limit(summariser, window) + WINDOW_RESERVE_TOKENS;
        self.session().token_ratio(&model).to_our_tokens(window.saturating_sub(own))
    }

    fn collect_compacted_messages(&self, thread: ThreadId, folded: &[usize]) -> CompactedMessages {
        let Some(thread) = self.session().threads.get(&thread) else { return CompactedMessages::default() };
        let words = |entry: &ThreadEntry| {
            let parts: Vec<_> = entry.parts.iter().map(|text| self.texts.resolve(text.body)).collect();
            let calls = entry.tool_calls.iter().map(|call| format!("[{} {}]", call.name, call.arguments));
            parts.iter().map(ToString::to_string).chain(calls).collect::<Vec<_>>().join("\n\n")
        };
        let entries = folded.iter().filter_map(|place| thread.entries.get(*place));
        CompactedMessages { messages: entries.map(|entry| (entry.chat_role, words(entry))).collect(), summary: None }
    }

    /// A summarising call ended: folds what it was shown, with its summary or without one of its own.
    pub fn finish_compaction(&mut self, opened: &CallOpened, summary: Option<TextRef>) {
        let Some(thread) = opened.compacts_thread else { return };
        let Ok(plan) = serde_json::from_value::<CompactionPlan>(opened.metadata.clone()) else { return };
        let summary = summary.filter(|text| !self.texts.resolve(text.body).trim().is_empty());
        self.replace_folded_messages(
            thread,
            &plan,
            summary.map_or(FoldReplacement::EarlierSummary, |text| FoldReplacement::Summary(opened.call, text)),
        );
    }

    /// How the thread of a call that a vendor finds too long is made shorter. No model is asked for a summary: the one at hand has just
    /// shown that less fits into it than we thought.
    pub fn plan_shorter_thread(&self, open: &OpenCall) -> Option<(CompactionPlan, FoldReplacement)> {
        let opened = &open.opened;
        if opened.compacts_thread.is_some() || opened.recomputation.is_some() {
            return None;
        }
        let stood = self.session().threads.get(&opened.receipt.thread.thread_id())?;
        let role = self.spec().roles.get(&opened.role)?;
        // The prompt did not fit, so the window is smaller than it; by how much nobody said.
        let window = opened.receipt.tokens / 4 * 3;
        let asked = opened.receipt.tokens.saturating_sub(opened.receipt.carried.tokens);
        let taken = asked + reply_tokens_limit(role, window) + WINDOW_RESERVE_TOKENS;
        plan_without_model(
            stood,
            CompactionBudget::from_window(window, taken, role.compaction.summary_tokens_max.min(window / 8), u32::MAX),
        )
    }

    /// Puts what `stands` says in the place of the messages that are folded.
    pub fn replace_folded_messages(&mut self, thread: ThreadId, plan: &CompactionPlan, replacement: FoldReplacement) {
        let Some(stood) = self.session().threads.get(&thread).cloned() else { return };
        let Some(role) = self.spec().roles.get(&stood.slot.role) else { return };
        let (summary, earlier) = match replacement {
            FoldReplacement::Summary(call, text) => (Some((call, text)), None),
            FoldReplacement::EarlierSummary => {
                (None, earlier_summary(&stood).filter(|_| plan.folded.first() == Some(&0)))
            }
            FoldReplacement::OmissionNotice => (None, None),
        };
        let left_out = if earlier.is_some() { &plan.folded[1..] } else { &plan.folded };
        let mut parts: Vec<TextRef> = earlier.iter().map(|(_, text)| *text).collect();
        let left = plan.summary_tokens_max.saturating_sub(parts.iter().map(|text| text.tokens).sum());
        let tokens_max = role.compaction.summary_tokens_max.min(left);
        parts.extend(self.render_summary(role, &stood, (left_out, tokens_max), summary));
        parts.extend(&plan.user_words);
        let kept: Vec<u32> = plan.kept.iter().map(|place| u32::try_from(*place).unwrap_or(u32::MAX)).collect();
        let compacted = ThreadCompacted {
            thread,
            folded_entries: u32::try_from(plan.folded.len()).unwrap_or(u32::MAX),
            kept_indices: kept,
            summary: parts,
            user_texts: plan.user_words.clone(),
            tokens_before: stood.tokens,
            tokens_after: 0,
            summary_call: summary.or(earlier).map(|(call, _)| call),
        };
        let tokens_after = tokens_after_compaction(&stood, &compacted);
        self.record_event(Event::ThreadCompacted(Box::new(ThreadCompacted { tokens_after, ..compacted })));
    }

    /// What stands in the place of the folded messages: the flow's words around the summary.
    fn render_summary(
        &mut self,
        role: &RoleSpec,
        thread: &Thread,
        (folded, tokens_max): (&[usize], u32),
        summary: Option<(CallId, TextRef)>,
    ) -> Option<TextRef> {
        let mut folding = self.collect_compacted_messages(thread.id, folded);
        folding.summary = summary.map(|(_, text)| self.texts.resolve(text.body).to_string());
        let wish = CallRequest::new(role.name.as_str(), crate::context::COMPACTION_FRAGMENT);
        let call = summary.map_or(thread.opened_by, |(call, _)| call);
        let asking =
            FragmentRequest { call_request: &wish, call, turn: None, opens_thread: false, compacted: Some(&folding) };
        let rendered = self.flow.render_fragment(
            self.flow_context(&EventSubject::default()),
            &asking,
            &role.compaction.summary_fragment,
        );
        let content = match rendered {
            RenderedFragment::New { text, .. } => text,
            RenderedFragment::Stored { text, .. } => self.texts.resolve(text.body).to_string(),
            RenderedFragment::Omitted(_) => folding.summary?,
        };
        let spec = FragmentSpec::changing(crate::context::COMPACTION_FRAGMENT, ContextLayer::Conversation)
            .with_budget(tokens_max, OverflowPolicy::KeepStart);
        let tokens = self.env.token_counter.count_tokens(&content);
        let content = match fit_to_budget(&spec, &content, tokens, self.env.token_counter) {
            FitResult::Cut(cut) => cut,
            FitResult::Whole | FitResult::Omitted => content,
        };
        Some(self.store_text(content, BodyKind::Internal))
    }
}

/// What is to stand in the place of folded messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum FoldReplacement {
    /// This summary, which this call wrote.
    Summary(CallId, TextRef),
    /// The summary that stands there already, if a model wrote one, and that the rest was left out.
    EarlierSummary,
    /// That all of them were left out.
    OmissionNotice,
}

/// How a thread is shortened without a model: an earlier summary stands on, as it was paid for, where there is room for it and for
/// a word on what is left out.
fn plan_without_model(thread: &Thread, budget: CompactionBudget) -> Option<(CompactionPlan, FoldReplacement)> {
    let summary = earlier_summary(thread).map(|(_, text)| budget.summary_tokens.saturating_add(text.tokens));
    let beside = summary.and_then(|summary| {
        plan_compaction(thread, CompactionBudget { summary_tokens: summary, ..budget })
            .filter(|plan| plan.summary_tokens_max == summary)
    });
    beside
        .map(|plan| (plan, FoldReplacement::EarlierSummary))
        .or_else(|| Some((plan_compaction(thread, budget)?, FoldReplacement::OmissionNotice)))
}

/// The summary that stands at the beginning of a thread, and the call that wrote it. What stands for messages that were only left
/// out is none: it goes by the call that opened the thread.
fn earlier_summary(thread: &Thread) -> Option<(CallId, TextRef)> {
    let first = thread.entries.first().filter(|_| thread.first_entry_kind == FirstEntryKind::Summary)?;
    let text = first.parts.first().filter(|text| !first.user_texts.contains(text))?;
    (first.call != thread.opened_by).then_some((first.call, *text))
}

fn tokens_after_compaction(thread: &Thread, compacted: &ThreadCompacted) -> u32 {
    let kept: u32 = compacted
        .kept_indices
        .iter()
        .filter_map(|place| thread.entries.get(*place as usize))
        .map(|entry| entry.tokens())
        .sum();
    let folded: u32 = thread.entries.iter().map(|entry| entry.tokens()).sum();
    let summary: u32 = compacted.summary.iter().map(|text| text.tokens).sum();
    let frame = if compacted.summary.is_empty() { 0 } else { MESSAGE_OVERHEAD_TOKENS };
    thread.tokens.saturating_sub(folded) + kept + summary + frame
}
