//! Shortens a thread before a call that would not fit, with a summary by a model or without one.

use super::calls::{CallPurpose, reply_tokens_limit};
use super::draft::DecisionDraft;
use crate::body::{BodyVisibility, TextRef};
use crate::context::compact::{CompactionBudget, CompactionPlan, ThreadTokenBudget, plan_compaction};
use crate::context::{
    FragmentContentKind, FragmentFitResult, FragmentOverflowPolicy, FragmentSpec, RenderedFragment, fit_to_budget,
};
use crate::event::{CallOpened, CallRequest, Event, ThreadCompacted};
use crate::flow::{EventSubject, FragmentRenderContext, MessagesToCompact, RoleSpec};
use crate::ids::{CallId, ThreadId};
use crate::limits::{COMPACTIONS_PER_CALL_MAX, SUMMARY_SPACE_PERCENT_MIN, WINDOW_RESERVE_TOKENS};
use crate::session::OpenCall;
use crate::session::thread::{FirstThreadMessageKind, MESSAGE_OVERHEAD_TOKENS, Thread, ThreadMessage};

impl<'a> DecisionDraft<'a> {
    /// Shortens `thread` before the requested call, if its prompt does not fit into one of `spaces`, or if the thread has
    /// reached the limit of its role. Returns true if the call is tried again.
    pub(super) fn compact_before_call(
        &mut self,
        thread: ThreadId,
        role: &'a RoleSpec,
        request: &CallRequest,
        spaces: impl Iterator<Item = ThreadTokenBudget>,
        purpose: CallPurpose<'_>,
    ) -> bool {
        if purpose.compacts.is_some() {
            return false;
        }
        let limit = role.compaction.thread_limit.filter(|limit| {
            let is_longer = self.session().threads.get(&thread).is_some_and(|thread| thread.tokens > limit.tokens_max);
            // Once for each call, because what must stay may exceed the limit.
            is_longer && purpose.continues.is_none() && purpose.compaction_attempts == 0
        });
        let mut spaces = spaces.chain(limit.map(ThreadTokenBudget::from));
        spaces.any(|space| self.compact_thread(thread, role, request, space, purpose))
    }

    /// Shortens `thread` to `space` before the requested call, which is then tried again. Returns true if anything could be
    /// done.
    fn compact_thread(
        &mut self,
        thread: ThreadId,
        role: &'a RoleSpec,
        request: &CallRequest,
        space: ThreadTokenBudget,
        purpose: CallPurpose<'_>,
    ) -> bool {
        let attempts = purpose.compaction_attempts;
        let Some(current) = self.session().threads.get(&thread) else { return false };
        let budget =
            |summarizer_input| CompactionBudget::new(space, role.compaction.summary_tokens_max, summarizer_input);
        let summarizer = role.compaction.summarizer.as_ref().filter(|_| attempts < COMPACTIONS_PER_CALL_MAX);
        let summarizer = summarizer.and_then(|by| Some((by, self.spec().roles.get(&by.role)?)));
        let summarizer = summarizer.and_then(|(by, summarizer)| {
            Some((by, plan_compaction(current, budget(self.summarizer_input_tokens(summarizer)))?))
        });
        // A summary that would not fit is not worth its cost.
        let summary_tokens_min = role.compaction.summary_tokens_max.saturating_mul(SUMMARY_SPACE_PERCENT_MIN) / 100;
        let summarizer = summarizer.filter(|(_, plan)| plan.summary_tokens_max >= summary_tokens_min);
        let next_purpose = CallPurpose { compaction_attempts: attempts + 1, ..purpose };
        if let Some((summarizer, plan)) = summarizer {
            let compacted_messages = self.collect_compacted_messages(thread, &plan.folded);
            let metadata = serde_json::to_value(&plan).unwrap_or_default();
            let summary =
                CallRequest { metadata, ..CallRequest::new(summarizer.role.as_str(), summarizer.ask.as_str()) };
            let opened = self.open_or_defer_call(
                summary,
                CallPurpose { compacts: Some((thread, &compacted_messages)), ..CallPurpose::default() },
            );
            // If the summary fails at once, the thread is trimmed without one. The call is tried again in both cases.
            if let Some(waits_for) = opened {
                self.defer_call(request.clone(), waits_for, next_purpose);
                return true;
            }
        }
        let Some(current) = self.session().threads.get(&thread) else { return false };
        let planned =
            plan_compaction_without_model(current, budget(u32::MAX)).filter(|_| attempts <= COMPACTIONS_PER_CALL_MAX);
        let Some((plan, replacement)) = planned else { return false };
        self.replace_folded_messages(thread, &plan, replacement);
        self.open_or_defer_call(request.clone(), next_purpose);
        true
    }

    /// Returns the maximum size of the messages in a summarizing call.
    fn summarizer_input_tokens(&self, summarizer: &RoleSpec) -> u32 {
        let model = self.choose_model(summarizer, &CallRequest::new(summarizer.name.as_str(), ""), None);
        let window = self.context_window(&model);
        // The size of its instructions and of the message overhead is not known yet.
        let reserved = window / 4 + reply_tokens_limit(summarizer, window) + WINDOW_RESERVE_TOKENS;
        self.session().token_ratio(&model).to_our_tokens(window.saturating_sub(reserved))
    }

    fn collect_compacted_messages(&self, thread: ThreadId, folded: &[usize]) -> MessagesToCompact {
        let Some(thread) = self.session().threads.get(&thread) else { return MessagesToCompact::default() };
        let entry_text = |entry: &ThreadMessage| {
            let parts: Vec<_> = entry.parts.iter().map(|text| self.texts.resolve_or_mark_missing(text.body)).collect();
            let calls = entry.tool_calls.iter().map(|call| format!("[{} {}]", call.name, call.arguments));
            parts.iter().map(ToString::to_string).chain(calls).collect::<Vec<_>>().join("\n\n")
        };
        let entries = folded.iter().filter_map(|index| thread.entries.get(*index));
        MessagesToCompact {
            messages: entries.map(|entry| (entry.chat_role, entry_text(entry))).collect(),
            summary: None,
        }
    }

    /// Folds messages after a summarizing call has ended, with its summary or without one.
    pub(crate) fn fold_messages_after_summary_call(&mut self, opened: &CallOpened, summary: Option<TextRef>) {
        let Some(thread) = opened.compacts_thread else { return };
        let Ok(plan) = serde_json::from_value::<CompactionPlan>(opened.metadata.clone()) else { return };
        let summary = summary.filter(|text| !self.texts.resolve_or_mark_missing(text.body).trim().is_empty());
        self.replace_folded_messages(
            thread,
            &plan,
            summary.map_or(CompactedMessagesReplacement::EarlierSummary, |text| {
                CompactedMessagesReplacement::Summary(opened.call, text)
            }),
        );
    }

    /// Plans how to shorten the thread of a call that the vendor found too long. No model writes a summary, because the
    /// model has just shown that its window is smaller than assumed.
    pub(crate) fn plan_shorter_thread(
        &self,
        open: &OpenCall,
    ) -> Option<(CompactionPlan, CompactedMessagesReplacement)> {
        let opened = &open.opened;
        if opened.compacts_thread.is_some() || opened.recomputation.is_some() {
            return None;
        }
        let current = self.session().threads.get(&opened.receipt.thread.thread_id())?;
        let role = self.spec().roles.get(&opened.role)?;
        // The window is smaller than the prompt, but the vendor does not say by how much.
        let window = opened.receipt.tokens / 4 * 3;
        let ask_tokens = opened.receipt.tokens.saturating_sub(opened.receipt.carried.tokens);
        let taken = ask_tokens + reply_tokens_limit(role, window) + WINDOW_RESERVE_TOKENS;
        let summary_tokens = role.compaction.summary_tokens_max.min(window / 8);
        plan_compaction_without_model(
            current,
            CompactionBudget::new(ThreadTokenBudget::in_window(window, taken), summary_tokens, u32::MAX),
        )
    }

    /// Replaces folded messages.
    pub(crate) fn replace_folded_messages(
        &mut self,
        thread: ThreadId,
        plan: &CompactionPlan,
        replacement: CompactedMessagesReplacement,
    ) {
        let Some(current) = self.session().threads.get(&thread).cloned() else { return };
        let Some(role) = self.spec().roles.get(&current.slot.role) else { return };
        let (summary, earlier) = match replacement {
            CompactedMessagesReplacement::Summary(call, text) => (Some((call, text)), None),
            CompactedMessagesReplacement::EarlierSummary => {
                (None, earlier_summary(&current).filter(|_| plan.folded.first() == Some(&0)))
            }
            CompactedMessagesReplacement::OmissionNotice => (None, None),
        };
        let left_out = if earlier.is_some() { &plan.folded[1..] } else { &plan.folded };
        let mut parts: Vec<TextRef> = earlier.iter().map(|(_, text)| *text).collect();
        let left = plan.summary_tokens_max.saturating_sub(parts.iter().map(|text| text.tokens).sum());
        let tokens_max = role.compaction.summary_tokens_max.min(left);
        parts.extend(self.render_compaction_text(role, &current, (left_out, tokens_max), summary));
        parts.extend(&plan.user_words);
        let kept_indices: Vec<u32> = plan.kept.iter().map(|index| u32::try_from(*index).unwrap_or(u32::MAX)).collect();
        let compacted = ThreadCompacted {
            thread,
            folded_entries: u32::try_from(plan.folded.len()).unwrap_or(u32::MAX),
            kept_indices,
            summary: parts,
            user_texts: plan.user_words.clone(),
            tokens_before: current.tokens,
            tokens_after: 0,
            summary_call: summary.or(earlier).map(|(call, _)| call),
        };
        let tokens_after = tokens_after_compaction(&current, &compacted);
        self.record_event(Event::ThreadCompacted(Box::new(ThreadCompacted { tokens_after, ..compacted })));
    }

    /// Renders the text that replaces the folded messages: the flow's text around the summary.
    fn render_compaction_text(
        &mut self,
        role: &RoleSpec,
        thread: &Thread,
        (folded, tokens_max): (&[usize], u32),
        summary: Option<(CallId, TextRef)>,
    ) -> Option<TextRef> {
        let mut compacted_messages = self.collect_compacted_messages(thread.id, folded);
        compacted_messages.summary = summary.map(|(_, text)| self.texts.resolve_or_mark_missing(text.body).to_string());
        let request = CallRequest::new(role.name.as_str(), crate::context::COMPACTION_FRAGMENT);
        let call = summary.map_or(thread.opened_by, |(call, _)| call);
        let fragment_request = FragmentRenderContext {
            call_request: &request,
            call,
            turn: None,
            opens_thread: false,
            signal_form: crate::signal::SignalForm::Inline,
            compacted: Some(&compacted_messages),
        };
        let rendered = self.flow.render_fragment(
            self.flow_context(&EventSubject::default()),
            &fragment_request,
            &role.compaction.summary_fragment,
        );
        let content = match rendered {
            RenderedFragment::New { text, .. } => text,
            RenderedFragment::Stored { text, .. } => self.texts.resolve_or_mark_missing(text.body).to_string(),
            RenderedFragment::Omitted(_) => compacted_messages.summary?,
        };
        let spec = FragmentSpec::changing(crate::context::COMPACTION_FRAGMENT, FragmentContentKind::Conversation)
            .with_budget(tokens_max, FragmentOverflowPolicy::KeepStart);
        let tokens = self.env.token_counter.count_tokens(&content);
        let content = match fit_to_budget(&spec, &content, tokens, self.env.token_counter) {
            FragmentFitResult::Cut(cut) => cut,
            FragmentFitResult::Whole | FragmentFitResult::Omitted => content,
        };
        Some(self.store_text(content, BodyVisibility::Internal))
    }
}

/// The replacement of folded messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum CompactedMessagesReplacement {
    /// A summary and the call that wrote it.
    Summary(CallId, TextRef),
    /// An existing summary by a model, and a notice that later messages were left out.
    EarlierSummary,
    /// A notice that all folded messages were left out.
    OmissionNotice,
}

/// Plans how to shorten a thread without a model. An earlier summary is kept, because it was paid for, if it fits
/// together with a notice about the messages left out.
fn plan_compaction_without_model(
    thread: &Thread,
    budget: CompactionBudget,
) -> Option<(CompactionPlan, CompactedMessagesReplacement)> {
    let summary = earlier_summary(thread).map(|(_, text)| budget.summary_tokens.saturating_add(text.tokens));
    let with_earlier_summary = summary.and_then(|summary| {
        plan_compaction(thread, CompactionBudget { summary_tokens: summary, ..budget })
            .filter(|plan| plan.summary_tokens_max == summary)
    });
    with_earlier_summary
        .map(|plan| (plan, CompactedMessagesReplacement::EarlierSummary))
        .or_else(|| Some((plan_compaction(thread, budget)?, CompactedMessagesReplacement::OmissionNotice)))
}

/// Returns the summary at the beginning of a thread and the call that wrote it. A notice about messages left out does
/// not count; it carries the call that opened the thread.
fn earlier_summary(thread: &Thread) -> Option<(CallId, TextRef)> {
    let first = thread.entries.first().filter(|_| thread.first_entry_kind == FirstThreadMessageKind::Summary)?;
    let text = first.parts.first().filter(|text| !first.user_texts.contains(text))?;
    (first.call != thread.opened_by).then_some((first.call, *text))
}

fn tokens_after_compaction(thread: &Thread, compacted: &ThreadCompacted) -> u32 {
    let kept: u32 = compacted
        .kept_indices
        .iter()
        .filter_map(|index| thread.entries.get(*index as usize))
        .map(|entry| entry.tokens())
        .sum();
    let folded: u32 = thread.entries.iter().map(|entry| entry.tokens()).sum();
    let summary: u32 = compacted.summary.iter().map(|text| text.tokens).sum();
    let overhead = if compacted.summary.is_empty() { 0 } else { MESSAGE_OVERHEAD_TOKENS };
    thread.tokens.saturating_sub(folded) + kept + summary + overhead
}
