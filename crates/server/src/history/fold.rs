//! Applies events to a session's history.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::context::{CallThread, FragmentContentKind, FragmentReceipt, FragmentSource};
use segue_core::event::{
    CallAnswered, CallOpened, Event, PhaseGraphKey, RecordedEvent, RetryDecision, ToolRunHoldReason,
};
use segue_core::ids::{CallId, TurnId};
use segue_core::prompt::TokenUsage;
use segue_core::session::UsageTotals;

use super::{
    CallEndHistoryEntry, CallHistoryEntry, EventSeqAndTime, FailedCallAttemptHistoryEntry, HandoverHistoryEntry,
    PhaseEventHistoryEntry, PhaseEventKind, RecordedFactHistoryEntry, RefusedFlowStepHistoryEntry, ReplyHistoryEntry,
    SessionHistory, ThreadCompactionHistoryEntry, ThreadHistoryEntry, ToolRunEndHistoryEntry, ToolRunHistoryEntry,
    TurnHistoryEntry, UserMessageHistoryEntry,
};

impl SessionHistory {
    /// Applies the next event.
    pub(crate) fn apply_event(&mut self, recorded: &RecordedEvent) {
        if self.first_event.is_none() {
            self.first_event = Some(Box::new(recorded.clone()));
        }
        let position = EventSeqAndTime { seq: recorded.seq, at: recorded.at };
        (self.last_seq, self.last_at) = (recorded.seq, recorded.at);
        match &recorded.event {
            Event::SessionForked { from, at_seq: at, .. } => self.forked_from = Some((from.clone(), *at)),
            Event::UserMessageReceived(received) => {
                let entry = UserMessageHistoryEntry {
                    message: received.message,
                    position,
                    text: received.text,
                    images: received.images.clone(),
                    idempotency_key: received.idempotency_key.clone(),
                    mid_turn_policy: received.mid_turn_policy,
                    turn: None,
                };
                self.messages.insert(received.message, entry);
            }
            Event::AgentMessageSent(_) => self.has_agent_messages = true,
            Event::TurnStarted { turn, messages, .. } => self.apply_turn_started(*turn, messages, position),
            Event::TurnEnded { turn, outcome } => {
                if let Some(entry) = self.turns.get_mut(turn) {
                    (entry.ended, entry.outcome) = (Some(position), Some(outcome.clone()));
                }
                self.running_turn = None;
            }
            Event::ReplySent(reply) => {
                let entry =
                    ReplyHistoryEntry { position, text: reply.text, role: reply.role.clone(), call: reply.call };
                if let Some(turn) = self.turn_mut(reply.turn) {
                    turn.replies.push(entry);
                }
            }
            Event::CallOpened(opened) => self.apply_call_opened(opened, position),
            Event::CallAnswered(answered) => self.apply_call_answered(answered, position),
            Event::ThreadCompacted(compacted) => {
                if let Some(thread) = self.threads.get_mut(&compacted.thread) {
                    let (messages_folded, summary_call) = (compacted.folded_entries, compacted.summary_call);
                    let (tokens_before, tokens_after) = (compacted.tokens_before, compacted.tokens_after);
                    thread.compactions.push(ThreadCompactionHistoryEntry {
                        position,
                        messages_folded,
                        tokens_before,
                        tokens_after,
                        summary_call,
                    });
                }
            }
            Event::PhaseEntered(entered) => {
                self.push_phase_event(
                    position,
                    &entered.graph_key,
                    PhaseEventKind::Entered(entered.transition.clone()),
                );
            }
            Event::PhaseTransitionRefused { graph_key, refusal } => {
                self.push_phase_event(position, graph_key, PhaseEventKind::Refused(refusal.clone()));
            }
            Event::SkipGranted { graph_key, grant } => {
                self.push_phase_event(position, graph_key, PhaseEventKind::Granted(grant.clone()))
            }
            Event::HandoverCreated(handover) => {
                let number = self.handovers.len();
                let turn = self.running_turn;
                self.handovers.push(HandoverHistoryEntry {
                    position,
                    turn,
                    handover: handover.clone(),
                    shown_to: Vec::new(),
                });
                if let Some(turn) = self.turn_mut(turn) {
                    turn.handovers.push(number);
                }
            }
            Event::StepRefused { step, reason } => {
                let entry = RefusedFlowStepHistoryEntry { position, step: step.clone(), reason: reason.clone() };
                if let Some(turn) = self.turn_mut(self.running_turn) {
                    turn.refused_steps.push(entry);
                }
            }
            Event::FlowFactRecorded { kind, .. } => {
                let (number, turn) = (self.facts.len(), self.running_turn);
                self.facts.push(RecordedFactHistoryEntry { position, turn, kind: kind.clone() });
                if let Some(turn) = self.turn_mut(turn) {
                    turn.facts.push(number);
                }
            }
            event => self.apply_attempt_or_tool_event(event, position),
        }
    }

    /// Applies the events of attempts, tool runs and calls that end without a regular answer.
    fn apply_attempt_or_tool_event(&mut self, event: &Event, position: EventSeqAndTime) {
        let summary = || event.summary_line(&|_| String::new());
        match event {
            Event::CallFailed { call, attempt, failure, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedCallAttemptHistoryEntry {
                        position,
                        attempt: Some(*attempt),
                        summary: summary(),
                        next: Some(*next),
                    },
                );
                self.resolve_unknown_attempt(*call);
                self.update_turn_totals(*call, |totals| totals.record_call_event(event));
                self.mark_failed_if_given_up(*call, *next, position, failure.to_string());
            }
            Event::CallOutcomeUnknown { call, attempt, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedCallAttemptHistoryEntry {
                        position,
                        attempt: Some(*attempt),
                        summary: summary(),
                        next: Some(*next),
                    },
                );
                self.add_unknown_attempt(*call);
                self.mark_failed_if_given_up(
                    *call,
                    *next,
                    position,
                    "its outcome is unknown, because the process ended during the call".to_owned(),
                );
            }
            Event::CallResolved { call, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedCallAttemptHistoryEntry { position, attempt: None, summary: summary(), next: Some(*next) },
                );
                self.mark_failed_if_given_up(*call, *next, position, "a person marked it as failed".to_owned());
            }
            Event::CallCancelled { call, reason, in_flight } => {
                if let Some(entry) = self.calls.get_mut(call) {
                    entry.end = Some(CallEndHistoryEntry::Cancelled {
                        position,
                        reason: reason.clone(),
                        in_flight: *in_flight,
                    });
                }
                if *in_flight {
                    self.add_unknown_attempt(*call);
                }
            }
            Event::CallAnsweredLate { call, text, usage, usage_source: counted_by, cost_microusd } => {
                self.resolve_unknown_attempt(*call);
                if let Some(entry) = self.calls.get_mut(call) {
                    entry.end = Some(CallEndHistoryEntry::Answered {
                        position,
                        text: *text,
                        stop_reason: None,
                        usage: *usage,
                        counted_by: *counted_by,
                        cost_microusd: *cost_microusd,
                        duration_ms: None,
                        is_late: true,
                    });
                }
                self.update_turn_totals(*call, |totals| totals.record_call_event(event));
            }
            Event::ToolRunOpened(opened) => {
                let entry = ToolRunHistoryEntry {
                    run: opened.run,
                    position,
                    tool: opened.tool.clone(),
                    arguments: opened.arguments.clone(),
                    call: opened.requested_by.as_ref().map(|(call, _)| *call),
                    agent: opened.agent.clone(),
                    phase: opened.phase.clone(),
                    hold_reason: None,
                    client_held_seq: None,
                    requested_arguments: None,
                    end: None,
                };
                self.tool_runs.insert(opened.run, entry);
                if let Some(turn) = self.turn_mut(opened.turn) {
                    turn.tool_runs.push(opened.run);
                }
            }
            Event::ToolRunHeld { run, reason, .. } => {
                if let Some(entry) = self.tool_runs.get_mut(run) {
                    entry.hold_reason = Some(*reason);
                    if *reason == ToolRunHoldReason::ClientResult {
                        entry.client_held_seq = Some(position.seq);
                    }
                }
            }
            Event::ToolRunResolved { run, .. } => {
                if let Some(entry) = self.tool_runs.get_mut(run) {
                    entry.hold_reason = None;
                }
            }
            Event::ToolRunApproved { run, edited_arguments, .. } => {
                if let Some(entry) = self.tool_runs.get_mut(run) {
                    entry.hold_reason = None;
                    if let Some(edited) = edited_arguments {
                        let requested = std::mem::replace(&mut entry.arguments, edited.clone());
                        entry.requested_arguments = Some(requested);
                    }
                }
            }
            Event::ToolRunEnded { run, outcome, text, value, artifacts, .. } => {
                if let Some(entry) = self.tool_runs.get_mut(run) {
                    entry.hold_reason = None;
                    let (outcome, text, value, artifacts) = (*outcome, *text, value.clone(), artifacts.clone());
                    entry.end = Some(ToolRunEndHistoryEntry { position, outcome, text, value, artifacts });
                }
            }
            _ => {}
        }
    }

    fn apply_turn_started(&mut self, turn: TurnId, messages: &[segue_core::ids::MessageId], position: EventSeqAndTime) {
        for message in messages {
            if let Some(entry) = self.messages.get_mut(message) {
                entry.turn = Some(turn);
            }
        }
        let entry = TurnHistoryEntry {
            turn,
            started: position,
            ended: None,
            outcome: None,
            messages: messages.to_vec(),
            replies: Vec::new(),
            calls: Vec::new(),
            tool_runs: Vec::new(),
            phase_events: Vec::new(),
            handovers: Vec::new(),
            facts: Vec::new(),
            refused_steps: Vec::new(),
            spent: UsageTotals::default(),
        };
        self.turns.insert(turn, entry);
        self.running_turn = Some(turn);
    }

    fn apply_call_opened(&mut self, opened: &Arc<CallOpened>, position: EventSeqAndTime) {
        let receipt = &opened.receipt;
        if opened.recomputation.is_none() {
            self.apply_thread_use(opened, position);
        }
        let entry = CallHistoryEntry {
            call: opened.call,
            position,
            turn: opened.turn,
            role: opened.role.clone(),
            ask: opened.ask.clone(),
            agent: opened.agent.clone(),
            peer: opened.peer.clone(),
            model: opened.model.clone(),
            sample: opened.sample,
            phase: opened.phase.clone(),
            thread: receipt.thread.thread_id(),
            thread_opening: match &receipt.thread {
                CallThread::Opened { why: reason, .. } => Some(reason.clone()),
                CallThread::Continued(_) => None,
            },
            prompt_tokens: receipt.tokens,
            tokens_by_layer: self.prompt_tokens_by_layer(opened),
            window_tokens: receipt.window_tokens,
            prefix: receipt.prefix.clone(),
            follows: opened.continues,
            compacts: opened.compacts_thread,
            recomputes: opened
                .recomputation
                .as_ref()
                .map(|recomputation| (recomputation.call, recomputation.changed_fragments.clone())),
            failed_attempts: Vec::new(),
            unknown_attempts: 0,
            end: None,
        };
        self.calls.insert(opened.call, entry);
        if let Some(turn) = self.turn_mut(opened.turn) {
            turn.calls.push(opened.call);
        }
        let shown = |fragment: &&FragmentReceipt| fragment.text.is_some();
        for fragment in receipt.opening.iter().chain(&receipt.ask).filter(shown) {
            if let Some(FragmentSource::Handover(shown)) = &fragment.source {
                let entry = self.handovers.iter_mut().find(|entry| entry.handover.id == *shown);
                entry.into_iter().for_each(|entry| entry.shown_to.push(opened.call));
            }
        }
    }

    /// Returns the tokens of a prompt by context layer: the thread's opening, its messages, and the fragments of the ask.
    fn prompt_tokens_by_layer(&self, opened: &CallOpened) -> BTreeMap<FragmentContentKind, u32> {
        // A recomputation uses the prompt of the original call.
        let previous = opened.recomputation.as_ref().and_then(|recomputation| self.calls.get(&recomputation.call));
        if let Some(previous) = previous {
            return previous.tokens_by_layer.clone();
        }
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread_id());
        let mut tokens_by_layer = thread.map(|thread| thread.opening_tokens.clone()).unwrap_or_default();
        let carried = receipt.carried.tokens.saturating_sub(tokens_by_layer.values().sum());
        if receipt.carried.entries > 0 {
            *tokens_by_layer.entry(FragmentContentKind::Conversation).or_default() += carried;
        }
        for (layer, tokens) in sum_tokens_by_layer(&receipt.ask) {
            *tokens_by_layer.entry(layer).or_default() += tokens;
        }
        tokens_by_layer
    }

    fn apply_thread_use(&mut self, opened: &CallOpened, position: EventSeqAndTime) {
        let receipt = &opened.receipt;
        let point = (position, opened.turn, opened.call);
        if let CallThread::Opened { thread, slot, tag, why: reason } = &receipt.thread {
            let previous = self.thread_by_slot.insert(slot.clone(), *thread);
            if let Some(previous) = previous.and_then(|previous| self.threads.get_mut(&previous)) {
                previous.ended = Some(point);
            }
            let entry = ThreadHistoryEntry {
                thread: *thread,
                slot: slot.clone(),
                tag: tag.clone(),
                opening_reason: reason.clone(),
                opened: point,
                ended: None,
                opening_tokens: sum_tokens_by_layer(&receipt.opening),
                calls: Vec::new(),
                messages: 0,
                tokens: 0,
                compactions: Vec::new(),
            };
            self.threads.insert(*thread, entry);
        }
        if let Some(thread) = self.threads.get_mut(&receipt.thread.thread_id()) {
            thread.calls.push(opened.call);
            thread.messages = receipt.carried.entries;
            thread.tokens = receipt.tokens;
        }
    }

    fn apply_call_answered(&mut self, answered: &CallAnswered, position: EventSeqAndTime) {
        let Some(entry) = self.calls.get_mut(&answered.call) else { return };
        entry.end = Some(CallEndHistoryEntry::Answered {
            position,
            text: answered.text,
            stop_reason: Some(answered.stop_reason),
            usage: answered.usage,
            counted_by: answered.usage_source,
            cost_microusd: answered.cost_microusd,
            duration_ms: Some(answered.duration_ms),
            is_late: false,
        });
        if entry.recomputes.is_none()
            && let Some(thread) = self.threads.get_mut(&entry.thread)
        {
            // The request and the answer have become part of the thread.
            thread.messages += 2;
            thread.tokens = thread.tokens.saturating_add(answered.text.tokens);
        }
        self.update_turn_totals(answered.call, |totals| {
            totals.answered_calls += 1;
            add_usage_to_tally(totals, answered.usage, answered.cost_microusd);
        });
    }

    fn push_failed_attempt(&mut self, call: CallId, attempt: FailedCallAttemptHistoryEntry) {
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.failed_attempts.push(attempt);
        }
    }

    fn mark_failed_if_given_up(
        &mut self,
        call: CallId,
        next: RetryDecision,
        position: EventSeqAndTime,
        reason: String,
    ) {
        // A cancelled call stays cancelled; a later failure only adds an attempt.
        if next == RetryDecision::GiveUp
            && let Some(entry) = self.calls.get_mut(&call)
            && entry.end.is_none()
        {
            entry.end = Some(CallEndHistoryEntry::Failed { position, reason });
        }
    }

    /// Counts an attempt whose outcome is unknown.
    fn add_unknown_attempt(&mut self, call: CallId) {
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.unknown_attempts += 1;
        }
        self.update_turn_totals(call, |totals| totals.unknown_attempts += 1);
    }

    /// Corrects the counters when the outcome of a cancelled call becomes known.
    fn resolve_unknown_attempt(&mut self, call: CallId) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if let Some(CallEndHistoryEntry::Cancelled { in_flight, .. }) = &mut entry.end
            && std::mem::take(in_flight)
        {
            entry.unknown_attempts = entry.unknown_attempts.saturating_sub(1);
            self.update_turn_totals(call, |totals| {
                totals.unknown_attempts = totals.unknown_attempts.saturating_sub(1);
            });
        }
    }

    fn push_phase_event(&mut self, position: EventSeqAndTime, key: &PhaseGraphKey, kind: PhaseEventKind) {
        let (number, turn) = (self.phase_events.len(), self.running_turn);
        self.phase_events.push(PhaseEventHistoryEntry { position, turn, phase_key: key.clone(), kind });
        if let Some(turn) = self.turn_mut(turn) {
            turn.phase_events.push(number);
        }
    }

    fn turn_mut(&mut self, turn: Option<TurnId>) -> Option<&mut TurnHistoryEntry> {
        self.turns.get_mut(&turn?)
    }

    fn update_turn_totals(&mut self, call: CallId, update: impl FnOnce(&mut UsageTotals)) {
        let turn = self.calls.get(&call).and_then(|entry| entry.turn);
        if let Some(turn) = self.turn_mut(turn) {
            update(&mut turn.spent);
        }
    }
}

fn sum_tokens_by_layer(fragments: &[FragmentReceipt]) -> BTreeMap<FragmentContentKind, u32> {
    let mut tokens_by_layer = BTreeMap::new();
    for fragment in fragments {
        if let Some(text) = fragment.text {
            *tokens_by_layer.entry(fragment.layer).or_default() += text.tokens;
        }
    }
    tokens_by_layer
}

fn add_usage_to_tally(totals: &mut UsageTotals, usage: TokenUsage, cost_microusd: Option<u64>) {
    totals.input_tokens += u64::from(usage.input_tokens);
    totals.output_tokens += u64::from(usage.output_tokens);
    totals.cached_tokens += u64::from(usage.cached_tokens);
    match cost_microusd {
        Some(cost) => totals.cost_microusd = totals.cost_microusd.saturating_add(cost),
        None => totals.unpriced_answers += 1,
    }
}
