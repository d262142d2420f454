//! What each event adds to an account.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::context::{ContextLayer, FragmentReceipt, FragmentSource, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, Event, PhaseGraphKey, RecordedEvent, RetryDecision};
use segue_core::ids::{CallId, TurnId};
use segue_core::ledger::UsageTotals;
use segue_core::prompt::TokenUsage;

use super::{
    CallEndEntry, CallEntry, CompactionEntry, FactEntry, FailedAttemptEntry, HandoverEntry, JournalPosition,
    MessageEntry, PhaseEventEntry, PhaseEventKind, RefusedStepEntry, ReplyEntry, SessionHistory, ThreadHistoryEntry,
    ToolRunEntry, TurnEntry,
};

impl SessionHistory {
    /// Goes on with an event.
    pub fn apply(&mut self, recorded: &RecordedEvent) {
        if self.first_event.is_none() {
            self.first_event = Some(Box::new(recorded.clone()));
        }
        let place = JournalPosition { seq: recorded.seq, at: recorded.at };
        (self.last_seq, self.last_at) = (recorded.seq, recorded.at);
        match &recorded.event {
            Event::SessionForked { from, at_seq: at, .. } => self.forked_from = Some((from.clone(), *at)),
            Event::UserMessageReceived(received) => {
                let note = MessageEntry {
                    message: received.message,
                    position: place,
                    text: received.text,
                    images: received.images.clone(),
                    idempotency_key: received.idempotency_key.clone(),
                    mid_turn_policy: received.mid_turn_policy,
                    turn: None,
                };
                self.messages.insert(received.message, note);
            }
            Event::AgentMessageSent(_) => self.has_agent_messages = true,
            Event::TurnStarted { turn, messages, .. } => self.apply_turn_started(*turn, messages, place),
            Event::TurnEnded { turn, outcome } => {
                if let Some(note) = self.turns.get_mut(turn) {
                    (note.ended, note.outcome) = (Some(place), Some(outcome.clone()));
                }
                self.running_turn = None;
            }
            Event::ReplySent(said) => {
                let note = ReplyEntry { position: place, text: said.text, role: said.role.clone(), call: said.call };
                if let Some(turn) = self.turn_mut(said.turn) {
                    turn.replies.push(note);
                }
            }
            Event::CallOpened(opened) => self.apply_call_opened(opened, place),
            Event::CallAnswered(answered) => self.apply_call_answered(answered, place),
            Event::ThreadCompacted(compacted) => {
                if let Some(thread) = self.threads.get_mut(&compacted.thread) {
                    let (folded, by) = (compacted.folded_entries, compacted.summary_call);
                    let (tokens_before, tokens_after) = (compacted.tokens_before, compacted.tokens_after);
                    thread.compactions.push(CompactionEntry {
                        position: place,
                        messages_folded: folded,
                        tokens_before,
                        tokens_after,
                        summary_call: by,
                    });
                }
            }
            Event::PhaseEntered(entered) => {
                self.push_phase_event(place, &entered.graph_key, PhaseEventKind::Entered(entered.transition.clone()));
            }
            Event::PhaseTransitionRefused(refused) => {
                self.push_phase_event(place, &refused.graph_key, PhaseEventKind::Refused(refused.refusal.clone()));
            }
            Event::SkipGranted { graph_key: phase, grant } => {
                self.push_phase_event(place, phase, PhaseEventKind::Granted(grant.clone()))
            }
            Event::HandoverCreated(handover) => {
                let number = self.handovers.len();
                let turn = self.running_turn;
                self.handovers.push(HandoverEntry {
                    position: place,
                    turn,
                    handover: handover.clone(),
                    shown_to: Vec::new(),
                });
                if let Some(turn) = self.turn_mut(turn) {
                    turn.handovers.push(number);
                }
            }
            Event::StepRefused { step, reason: why } => {
                let note = RefusedStepEntry { position: place, step: step.clone(), reason: why.clone() };
                if let Some(turn) = self.turn_mut(self.running_turn) {
                    turn.refused_steps.push(note);
                }
            }
            Event::FlowFactRecorded { kind, .. } => {
                let (number, turn) = (self.facts.len(), self.running_turn);
                self.facts.push(FactEntry { position: place, turn, kind: kind.clone() });
                if let Some(turn) = self.turn_mut(turn) {
                    turn.facts.push(number);
                }
            }
            event => self.apply_outcome(event, place),
        }
    }

    /// Tries, tools, and calls that ended without an answer.
    fn apply_outcome(&mut self, event: &Event, position: JournalPosition) {
        let line = || event.summary_line(&|_| String::new());
        match event {
            Event::CallFailed { call, attempt, failure, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedAttemptEntry { position, attempt: Some(*attempt), summary: line(), next: Some(*next) },
                );
                self.resolve_unknown_attempt(*call);
                self.update_turn_tally(*call, |tally| tally.record_failure(failure.cost));
                self.mark_failed_if_given_up(*call, *next, position, failure.to_string());
            }
            Event::CallOutcomeUnknown { call, attempt, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedAttemptEntry { position, attempt: Some(*attempt), summary: line(), next: Some(*next) },
                );
                self.add_unknown_attempt(*call);
                self.mark_failed_if_given_up(
                    *call,
                    *next,
                    position,
                    "its answer was lost when the process died".to_owned(),
                );
            }
            Event::CallResolved { call, next } => {
                self.push_failed_attempt(
                    *call,
                    FailedAttemptEntry { position, attempt: None, summary: line(), next: Some(*next) },
                );
                self.mark_failed_if_given_up(*call, *next, position, "taken as failed by hand".to_owned());
            }
            Event::CallCancelled { call, reason, in_flight } => {
                if let Some(note) = self.calls.get_mut(call) {
                    note.end =
                        Some(CallEndEntry::Cancelled { position, reason: reason.clone(), in_flight: *in_flight });
                }
                if *in_flight {
                    self.add_unknown_attempt(*call);
                }
            }
            Event::CallAnsweredLate { call, text, usage, usage_source: counted_by, cost_microusd } => {
                self.resolve_unknown_attempt(*call);
                if let Some(note) = self.calls.get_mut(call) {
                    note.end = Some(CallEndEntry::Answered {
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
                self.update_turn_tally(*call, |tally| tally.record_late_answer(*usage, *cost_microusd));
            }
            Event::ToolRunOpened(opened) => {
                let note = ToolRunEntry {
                    run: opened.run,
                    position,
                    tool: opened.tool.clone(),
                    arguments: opened.arguments.clone(),
                    call: opened.requested_by.as_ref().map(|(call, _)| *call),
                    agent: opened.agent.clone(),
                    phase: opened.phase.clone(),
                    end: None,
                };
                self.tool_runs.insert(opened.run, note);
                if let Some(turn) = self.turn_mut(opened.turn) {
                    turn.tool_runs.push(opened.run);
                }
            }
            Event::ToolRunEnded { run, outcome, text, .. } => {
                if let Some(note) = self.tool_runs.get_mut(run) {
                    note.end = Some((position, *outcome, *text));
                }
            }
            _ => {}
        }
    }

    fn apply_turn_started(&mut self, turn: TurnId, messages: &[segue_core::ids::MessageId], position: JournalPosition) {
        for message in messages {
            if let Some(note) = self.messages.get_mut(message) {
                note.turn = Some(turn);
            }
        }
        let note = TurnEntry {
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
        self.turns.insert(turn, note);
        self.running_turn = Some(turn);
    }

    fn apply_call_opened(&mut self, opened: &Arc<CallOpened>, position: JournalPosition) {
        let receipt = &opened.receipt;
        if opened.recomputation.is_none() {
            self.apply_thread_use(opened, position);
        }
        let note = CallEntry {
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
                ThreadUse::Opened { why, .. } => Some(why.clone()),
                ThreadUse::Continued(_) => None,
            },
            prompt_tokens: receipt.tokens,
            tokens_by_layer: self.prompt_tokens_by_layer(opened),
            window_tokens: receipt.window_tokens,
            prefix: receipt.prefix.clone(),
            follows: opened.continues,
            compacts: opened.compacts_thread,
            recomputes: opened.recomputation.as_ref().map(|again| (again.call, again.changed_fragments.clone())),
            failed_attempts: Vec::new(),
            unknown_attempts: 0,
            end: None,
        };
        self.calls.insert(opened.call, note);
        if let Some(turn) = self.turn_mut(opened.turn) {
            turn.calls.push(opened.call);
        }
        let shown = |piece: &&FragmentReceipt| piece.text.is_some();
        for piece in receipt.opening.iter().chain(&receipt.ask).filter(shown) {
            if let Some(FragmentSource::Handover(shown)) = &piece.source {
                let note = self.handovers.iter_mut().find(|note| note.handover.id == *shown);
                note.into_iter().for_each(|note| note.shown_to.push(opened.call));
            }
        }
    }

    /// What the prompt was made of: the opening that stands since the thread began, what the thread carried, and what is asked.
    fn prompt_tokens_by_layer(&self, opened: &CallOpened) -> BTreeMap<ContextLayer, u32> {
        // A call made once more is shown what it was shown then.
        let before = opened.recomputation.as_ref().and_then(|again| self.calls.get(&again.call));
        if let Some(before) = before {
            return before.tokens_by_layer.clone();
        }
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread_id());
        let mut layers = thread.map(|thread| thread.opening_tokens.clone()).unwrap_or_default();
        let carried = receipt.carried.tokens.saturating_sub(layers.values().sum());
        if receipt.carried.entries > 0 {
            *layers.entry(ContextLayer::Conversation).or_default() += carried;
        }
        for (layer, tokens) in sum_tokens_by_layer(&receipt.ask) {
            *layers.entry(layer).or_default() += tokens;
        }
        layers
    }

    fn apply_thread_use(&mut self, opened: &CallOpened, position: JournalPosition) {
        let receipt = &opened.receipt;
        let here = (position, opened.turn, opened.call);
        if let ThreadUse::Opened { thread, slot, tag, why } = &receipt.thread {
            let before = self.thread_by_slot.insert(slot.clone(), *thread);
            if let Some(before) = before.and_then(|before| self.threads.get_mut(&before)) {
                before.ended = Some(here);
            }
            let note = ThreadHistoryEntry {
                thread: *thread,
                slot: slot.clone(),
                tag: tag.clone(),
                opening_reason: why.clone(),
                opened: here,
                ended: None,
                opening_tokens: sum_tokens_by_layer(&receipt.opening),
                calls: Vec::new(),
                messages: 0,
                tokens: 0,
                compactions: Vec::new(),
            };
            self.threads.insert(*thread, note);
        }
        if let Some(thread) = self.threads.get_mut(&receipt.thread.thread_id()) {
            thread.calls.push(opened.call);
            thread.messages = receipt.carried.entries;
            thread.tokens = receipt.tokens;
        }
    }

    fn apply_call_answered(&mut self, answered: &CallAnswered, position: JournalPosition) {
        let Some(note) = self.calls.get_mut(&answered.call) else { return };
        note.end = Some(CallEndEntry::Answered {
            position,
            text: answered.text,
            stop_reason: Some(answered.stop_reason),
            usage: answered.usage,
            counted_by: answered.usage_source,
            cost_microusd: answered.cost_microusd,
            duration_ms: Some(answered.duration_ms),
            is_late: false,
        });
        if note.recomputes.is_none()
            && let Some(thread) = self.threads.get_mut(&note.thread)
        {
            // What was asked and what was answered are part of it now.
            thread.messages += 2;
            thread.tokens = thread.tokens.saturating_add(answered.text.tokens);
        }
        self.update_turn_tally(answered.call, |tally| {
            tally.answered_calls += 1;
            add_usage_to_tally(tally, answered.usage, answered.cost_microusd);
        });
    }

    fn push_failed_attempt(&mut self, call: CallId, attempt: FailedAttemptEntry) {
        if let Some(note) = self.calls.get_mut(&call) {
            note.failed_attempts.push(attempt);
        }
    }

    fn mark_failed_if_given_up(&mut self, call: CallId, next: RetryDecision, position: JournalPosition, why: String) {
        // What was cancelled stays so: that it failed later is one of its tries.
        if next == RetryDecision::GiveUp
            && let Some(note) = self.calls.get_mut(&call)
            && note.end.is_none()
        {
            note.end = Some(CallEndEntry::Failed { position, reason: why });
        }
    }

    /// A try of a call has an unknown end.
    fn add_unknown_attempt(&mut self, call: CallId) {
        if let Some(note) = self.calls.get_mut(&call) {
            note.unknown_attempts += 1;
        }
        self.update_turn_tally(call, |tally| tally.unknown_attempts += 1);
    }

    /// A call is heard of. If it was cancelled while it was under way, its end is known now.
    fn resolve_unknown_attempt(&mut self, call: CallId) {
        let Some(note) = self.calls.get_mut(&call) else { return };
        if let Some(CallEndEntry::Cancelled { in_flight, .. }) = &mut note.end
            && std::mem::take(in_flight)
        {
            note.unknown_attempts = note.unknown_attempts.saturating_sub(1);
            self.update_turn_tally(call, UsageTotals::resolve_unknown_outcome);
        }
    }

    fn push_phase_event(&mut self, position: JournalPosition, key: &PhaseGraphKey, what: PhaseEventKind) {
        let (number, turn) = (self.phase_events.len(), self.running_turn);
        self.phase_events.push(PhaseEventEntry { position, turn, phase_key: key.clone(), kind: what });
        if let Some(turn) = self.turn_mut(turn) {
            turn.phase_events.push(number);
        }
    }

    fn turn_mut(&mut self, turn: Option<TurnId>) -> Option<&mut TurnEntry> {
        self.turns.get_mut(&turn?)
    }

    fn update_turn_tally(&mut self, call: CallId, spend: impl FnOnce(&mut UsageTotals)) {
        let turn = self.calls.get(&call).and_then(|note| note.turn);
        if let Some(turn) = self.turn_mut(turn) {
            spend(&mut turn.spent);
        }
    }
}

fn sum_tokens_by_layer(pieces: &[FragmentReceipt]) -> BTreeMap<ContextLayer, u32> {
    let mut layers = BTreeMap::new();
    for piece in pieces {
        if let Some(text) = piece.text {
            *layers.entry(piece.layer).or_default() += text.tokens;
        }
    }
    layers
}

fn add_usage_to_tally(tally: &mut UsageTotals, usage: TokenUsage, cost_microusd: Option<u64>) {
    tally.input_tokens += u64::from(usage.input_tokens);
    tally.output_tokens += u64::from(usage.output_tokens);
    tally.cached_tokens += u64::from(usage.cached_tokens);
    match cost_microusd {
        Some(cost) => tally.cost_microusd = tally.cost_microusd.saturating_add(cost),
        None => tally.unpriced_answers += 1,
    }
}
