//! Applies each event to a session's state. This never fails: an event that makes no sense here changes nothing.

use std::sync::Arc;

use super::{
    HeldToolRun, OpenCall, OpenCallStatus, QueuedMessage, Session, SessionTimer, ToolCallWithResult, ToolRound, Turn,
};
use crate::body::BodyId;
use crate::context::{CallAnswerStatus, CallThread, FragmentContentKind, FragmentReceipt, PromptComparisonData};
use crate::event::{
    CallAnswered, CallOpened, Event, MidTurnPolicy, RecordedClientTurnOptions, RecordedEvent, RetryDecision,
    SessionOpened, ThreadCompacted, TurnOutcome, UsageSource, UserMessageReceived,
};
use crate::flow::FlowSpec;
use crate::ids::{CallId, MessageId, ModelName, ThreadId, TurnId, UnixMillis};
use crate::limits::{HANDOVERS_KEPT_MAX, IDEMPOTENCY_KEYS_MAX, LAST_PROMPTS_MAX, THREADS_MAX};
use crate::prompt::{CallFailureKind, ChatRole, FailedCallAttemptCost};
use crate::session::ledger::CallAttribution;
use crate::session::thread::{Thread, ThreadMessage};
use crate::token_ratio::VendorTokenRatio;

impl Session {
    /// Applies one event.
    pub(crate) fn apply(&mut self, spec: &FlowSpec, recorded: &RecordedEvent) {
        let at = recorded.at;
        self.add_waited_time(spec, at);
        self.last_seq = recorded.seq;
        self.last_event_at = at;
        match &recorded.event {
            Event::SessionOpened(opened) => self.apply_session_opened(spec, opened, at),
            Event::SessionForked { session, .. } => {
                self.id = Some(session.clone());
                self.closed_reason = None;
                self.open_calls.values_mut().for_each(OpenCall::mark_call_inherited);
                // The original session reports to the parent.
                self.child_origin = None;
                self.result_reported = false;
                // They were allowed for the original session.
                self.allowed_tool_uses.clear();
            }
            Event::SessionRenamed { title } => self.title.clone_from(title),
            Event::SessionClosed { reason } => self.closed_reason = Some(reason.clone()),
            Event::UserMessageReceived(received) => {
                self.last_ids.message = self.last_ids.message.max(received.message);
                self.calls_outside_turns_by_role.clear();
                let UserMessageReceived { message, text, mid_turn_policy, images, options, .. } = received;
                let waiting = QueuedMessage {
                    message: *message,
                    text: *text,
                    mid_turn_policy: *mid_turn_policy,
                    images: images.clone(),
                    options: options.clone(),
                };
                match received.mid_turn_policy {
                    // The current turn was interrupted for this message, so it goes before the queued ones.
                    MidTurnPolicy::Interrupt => self.queued_messages.push_front(waiting),
                    MidTurnPolicy::Queue | MidTurnPolicy::Coalesce | MidTurnPolicy::Reject => {
                        self.queued_messages.push_back(waiting)
                    }
                }
                if let Some(key) = &received.idempotency_key {
                    let keys = Arc::make_mut(&mut self.recent_idempotency_keys);
                    keys.push_back((key.clone(), received.message));
                    keep_newest(keys, IDEMPOTENCY_KEYS_MAX);
                }
            }
            Event::AgentMessageSent(sent) => {
                self.last_ids.message = self.last_ids.message.max(sent.message);
                self.inboxes.entry(sent.to.clone()).or_default().push(sent.clone());
            }
            Event::AgentMessageReceived { message } => {
                self.inboxes.values_mut().for_each(|inbox| inbox.retain(|mail| mail.message != *message));
                self.inboxes.retain(|_, inbox| !inbox.is_empty());
            }
            Event::TurnStarted { turn, messages, retry_of } => self.apply_turn_started(*turn, messages, *retry_of, at),
            Event::TurnOptionsChanged { turn, options } => {
                if let Some(current) = self.current_turn.as_mut().filter(|current| current.id == *turn) {
                    current.options = Some(options.clone()).filter(|options| *options != RecordedClientTurnOptions::default());
                }
            }
            Event::ReplySent(reply) => self.last_reply = Some(reply.text),
            Event::TurnEnded { turn, outcome } => self.apply_turn_ended(*turn, outcome),
            Event::CallOpened(opened) => self.apply_call_opened(spec, opened, at),
            Event::CallDeferred(deferred) => {
                self.last_ids.deferred_call = self.last_ids.deferred_call.max(deferred.deferred_id);
                self.deferred_calls.insert(deferred.deferred_id, (**deferred).clone());
            }
            Event::DeferredCallResumed { deferred_id } | Event::DeferredCallDropped { deferred_id, .. } => {
                self.deferred_calls.remove(deferred_id);
            }
            Event::CallAnswered(answered) => self.apply_call_answered(answered, at),
            Event::CallFailed { call, next, failure, .. } => {
                self.learn_refused_window(*call, failure.kind);
                self.apply_unanswered_attempt(*call, *next, UnansweredCallAttemptOutcome::Failed(failure.cost));
            }
            Event::CallFailedOver { call, to, .. } => self.apply_call_failed_over(*call, to),
            Event::CallOutcomeUnknown { call, next, .. } => {
                self.apply_unanswered_attempt(*call, *next, UnansweredCallAttemptOutcome::Unknown)
            }
            Event::InheritedCallStarted { call } => {
                if let Some(open) = self.open_calls.get_mut(call) {
                    open.make_inherited_call_due();
                }
            }
            Event::CallResolved { call, next } => {
                self.apply_unanswered_attempt(*call, *next, UnansweredCallAttemptOutcome::Resolved)
            }
            Event::CallCancelled { call, in_flight, .. } => self.apply_call_cancelled(*call, *in_flight),
            Event::CallAnsweredLate { call, usage, cost_microusd, .. } => {
                self.apply_late_answer(*call, *usage, *cost_microusd);
            }
            Event::ThreadReset { slot, .. } => *self.slot_resets.entry(slot.clone()).or_default() += 1,
            Event::ThreadCompacted(compacted) => self.apply_thread_compacted(compacted),
            Event::PhaseEntered(entered) => self.apply_phase_entered(spec, entered, at),
            Event::PhaseRoundCounted { graph_key } => {
                if let Some(status) = self.phase_graph_status_mut(spec, graph_key) {
                    status.state.count_round_in_visit();
                }
            }
            Event::SkipGranted { graph_key, grant } => {
                if let Some(status) = self.phase_graph_status_mut(spec, graph_key) {
                    status.state.add_grant(grant.clone());
                }
            }
            Event::HandoverCreated(handover) => {
                self.last_ids.handover = self.last_ids.handover.max(handover.id);
                self.handover_repairs.remove(&handover.kind);
                for (_, status) in self.phase_graphs.iter_mut().filter(|(key, _)| handover.is_visible_in(key)) {
                    Arc::make_mut(status).handover_kinds.insert(handover.kind.clone());
                }
                let handovers = Arc::make_mut(&mut self.handovers);
                handovers.push_back(Arc::new(crate::handover::Handover { created_at: at, ..handover.clone() }));
                keep_newest(handovers, HANDOVERS_KEPT_MAX);
            }
            Event::HandoverRepairRequested { kind } => *self.handover_repairs.entry(kind.clone()).or_default() += 1,
            Event::ToolRunOpened(opened) => {
                self.last_ids.tool_run = self.last_ids.tool_run.max(opened.run);
                self.open_tool_runs.insert(opened.run, opened.clone());
            }
            Event::ToolRunHeld { run, reason, role } => {
                self.held_tool_runs.insert(*run, HeldToolRun { reason: *reason, role: role.clone(), since: at });
            }
            Event::ToolRunApproved { run, edited_arguments, .. } => {
                self.apply_tool_run_approved(*run, edited_arguments.as_ref());
            }
            Event::ToolRunResolved { run, .. } => {
                self.held_tool_runs.remove(run);
            }
            Event::ToolApprovalRuleAdded(allowed) => {
                if !self.allowed_tool_uses.contains(allowed) {
                    self.allowed_tool_uses.push(allowed.clone());
                }
            }
            Event::ToolRunEnded { run, text, failed, .. } => self.apply_tool_run_ended(*run, *text, *failed),
            Event::ToolRoundDropped { call, .. } => self.close_tool_round(*call),
            Event::TimerSet { timer, name, fires_at, turn } => {
                self.last_ids.timer = self.last_ids.timer.max(*timer);
                self.timers.retain(|_, running| running.name != *name);
                self.timers.insert(*timer, SessionTimer { name: name.clone(), fires_at: *fires_at, turn: *turn });
            }
            Event::TimerFired { timer, .. } | Event::TimerStopped { timer } => {
                self.timers.remove(timer);
            }
            Event::WorkItemAssigned { agent, work_item } => {
                match work_item {
                    Some(work_item) => self.work_assignments.insert(agent.clone(), work_item.clone()),
                    None => self.work_assignments.remove(agent),
                };
            }
            Event::ChildSpawned(_)
            | Event::ChildCloseRequested { .. }
            | Event::ChildEnded { .. }
            | Event::ChildUsageReported { .. }
            | Event::ResultSet { .. }
            | Event::ResultReported
            | Event::AskSent(_)
            | Event::AskEnded { .. }
            | Event::AskReceived(_)
            | Event::AskReplied { .. }
            | Event::ReceivedAskDropped { .. }
            | Event::ClaimRequested { .. }
            | Event::ClaimReleased { .. } => self.apply_cross_session_event(&recorded.event),
            Event::PhaseTransitionRefused { .. }
            | Event::SubmissionHandled { .. }
            | Event::ReplyUndelivered { .. }
            // The end of a denied run is an event of its own.
            | Event::ToolRunDenied { .. }
            | Event::CommandIssued { .. }
            | Event::StepRefused { .. }
            | Event::FlowFactRecorded { .. } => {}
        }
    }

    fn apply_session_opened(&mut self, spec: &FlowSpec, opened: &SessionOpened, at: UnixMillis) {
        self.id = Some(opened.session.clone());
        self.flow = Some(opened.flow.clone());
        self.flow_definition = opened.flow_definition.as_deref().map(BodyId::hash_text);
        self.title = opened.title.clone().unwrap_or_default();
        self.mid_turn_policy = opened.mid_turn_policy;
        self.settings = Arc::new(opened.settings.clone());
        self.model_overrides = opened.model_overrides.clone();
        self.child_origin = opened.child_origin.clone();
        self.opened_at = at;
        self.start_phase_graphs(spec);
    }

    fn apply_turn_started(&mut self, turn: TurnId, messages: &[MessageId], retry_of: Option<TurnId>, at: UnixMillis) {
        self.last_ids.turn = self.last_ids.turn.max(turn);
        let failed = self.failed_turn.take().filter(|failed| Some(failed.id) == retry_of);
        let (mut turn_messages, remaining): (Vec<_>, Vec<_>) =
            self.queued_messages.drain(..).partition(|waiting| messages.contains(&waiting.message));
        self.queued_messages = remaining.into();
        turn_messages.extend(failed.into_iter().flat_map(|failed| failed.messages));
        // If several messages share a turn, the options of the last one apply.
        let options = turn_messages.iter().rev().find_map(|message| message.options.clone());
        self.current_turn =
            Some(Turn { id: turn, messages: turn_messages, started_at: at, options, ..Turn::default() });
        self.ledger.start_turn_totals(turn);
    }

    fn apply_turn_ended(&mut self, turn: TurnId, outcome: &TurnOutcome) {
        let ended = self.current_turn.take();
        self.failed_turn = ended.filter(|_| matches!(outcome, TurnOutcome::Failed { .. }));
        if matches!(outcome, TurnOutcome::Cancelled | TurnOutcome::Interrupted) {
            let calls_of_turn = self.abandoned_calls.iter_mut().filter(|abandoned| abandoned.turn == Some(turn));
            calls_of_turn.for_each(|abandoned| abandoned.turn_stopped = true);
        }
        let rounds: Vec<CallId> =
            self.tool_rounds.iter().filter(|(_, round)| round.turn == Some(turn)).map(|(call, _)| *call).collect();
        rounds.into_iter().for_each(|call| self.close_tool_round(call));
        for status in self.phase_graphs.values_mut().filter(|status| status.counted_turn == Some(turn)) {
            Arc::make_mut(status).state.count_turn_ended_in_visit();
        }
    }

    fn apply_call_opened(&mut self, spec: &FlowSpec, opened: &Arc<CallOpened>, at: UnixMillis) {
        self.last_ids.call = self.last_ids.call.max(opened.call);
        if opened.recomputation.is_some() {
            self.apply_recomputation_opened(spec, opened, at);
            return;
        }
        self.ledger.count_prompt_prefix(&opened.receipt.prefix);
        let thread_id = opened.receipt.thread.thread_id();
        if let CallThread::Opened { thread, slot, tag, .. } = &opened.receipt.thread {
            self.last_ids.thread = self.last_ids.thread.max(*thread);
            let opening = opened.receipt.opening.iter();
            let opening = opening.filter_map(|fragment| Some((fragment.name.clone(), fragment.text?))).collect();
            let slot = Arc::new(slot.clone());
            let mut new = Thread::new(*thread, slot.clone(), tag.clone(), at, opened.call, opening);
            let foreign = opened.receipt.opening.iter().filter(|fragment| fragment.layer.has_foreign_texts());
            new.foreign_opening = foreign.filter_map(|fragment| fragment.text).collect();
            self.threads.insert(*thread, Arc::new(new));
            if tag.single_call.is_none()
                && let Some(old) = self.thread_by_slot.insert(slot, *thread)
            {
                self.drop_thread_if_unreachable(old);
            }
        }
        let (root_call, tool_round) = match opened.continues.and_then(|call| self.tool_rounds.remove(&call)) {
            Some(round) => (round.root_call, round.round_number + 1),
            None => (opened.call, 0),
        };
        if let Some(thread) = self.threads.get_mut(&thread_id).map(Arc::make_mut) {
            thread.active_call = Some(opened.call);
            thread.last_used_at = at;
            let ask = opened.receipt.ask.iter().filter_map(|fragment| Some((fragment.name.clone(), fragment.text?)));
            let outline = Arc::new(PromptComparisonData {
                call: opened.call,
                thread: thread_id,
                compactions: thread.compactions,
                carried: opened.receipt.carried,
                opening: thread.opening.clone(),
                ask: ask.collect(),
                first_call_only: opened.receipt.first_call_only_index(),
                ask_status: CallAnswerStatus::Unanswered,
                tools: opened.tools_body,
            });
            // The next prompt of the thread continues the last one that stays in it.
            if !opened.is_detached {
                thread.last_prompt = Some(outline.clone());
            }
            // A late tool round in a replaced thread must not affect the thread that replaced it.
            let is_current =
                thread.scope_tag.single_call.is_some() || self.thread_by_slot.get(&thread.slot) == Some(&thread_id);
            if is_current && (!opened.is_detached || thread.scope_tag.single_call.is_some()) {
                self.last_prompts.insert(thread.slot.clone(), outline);
            }
        }
        if let Some(thread) = opened.compacts_thread.and_then(|thread| self.threads.get_mut(&thread)) {
            Arc::make_mut(thread).active_call = Some(opened.call);
        }
        self.evict_oldest_idle_threads();
        self.evict_oldest_prompt_outlines();
        let key = Self::phase_graph_key_for_role(spec, &opened.role, opened.agent.as_ref());
        let ledger_phase = key.as_ref().zip(opened.phase.as_ref()).map(|(key, phase)| format!("{}/{phase}", key.graph));
        if let Some(status) = key.and_then(|key| self.phase_graph_status_mut(spec, &key))
            && opened.turn.is_some()
            && status.counted_turn != opened.turn
        {
            status.counted_turn = opened.turn;
            status.state.count_turn_started_in_visit();
        }
        if let Some(turn) = self.current_turn.as_mut().filter(|turn| Some(turn.id) == opened.turn) {
            *turn.calls_by_role.entry(opened.role.clone()).or_default() += 1;
        }
        if opened.turn.is_none() && opened.recomputation.is_none() {
            *self.calls_outside_turns_by_role.entry(opened.role.clone()).or_default() += 1;
        }
        self.open_calls.insert(
            opened.call,
            OpenCall {
                opened: opened.clone(),
                attempt: 1,
                model_first_attempt: 1,
                status: OpenCallStatus::Due,
                opened_at: at,
                root_call,
                tool_round,
                ledger_phase,
            },
        );
    }

    /// Opens a call that repeats an earlier one. It is pending and counted, but affects nothing else.
    fn apply_recomputation_opened(&mut self, spec: &FlowSpec, opened: &Arc<CallOpened>, at: UnixMillis) {
        let key = Self::phase_graph_key_for_role(spec, &opened.role, opened.agent.as_ref());
        let ledger_phase = key.zip(opened.phase.as_ref()).map(|(key, phase)| format!("{}/{phase}", key.graph));
        let (opened, root_call) = (opened.clone(), opened.call);
        let (attempt, model_first_attempt, status, tool_round) = (1, 1, OpenCallStatus::Due, 0);
        let open = OpenCall {
            opened,
            attempt,
            model_first_attempt,
            status,
            opened_at: at,
            root_call,
            tool_round,
            ledger_phase,
        };
        self.open_calls.insert(root_call, open);
    }

    fn apply_call_answered(&mut self, answered: &CallAnswered, at: UnixMillis) {
        let Some(open) = self.open_calls.get(&answered.call).cloned() else { return };
        self.ledger.record_answer(ledger_account(&open), answered);
        let opened = &open.opened;
        if opened.recomputation.is_some() {
            self.open_calls.remove(&answered.call);
            return;
        }
        self.learn_token_ratio(opened, answered);
        let thread_id = opened.receipt.thread.thread_id();
        let waits_for_tools = !answered.tool_calls.is_empty();
        let turn = self.current_turn.as_mut().filter(|turn| Some(turn.id) == opened.turn);
        if let Some(turn) = turn.filter(|_| waits_for_tools) {
            let tool_calls = u32::try_from(answered.tool_calls.len()).unwrap_or(u32::MAX);
            let made = turn.tool_calls_by_role.entry(opened.role.clone()).or_default();
            *made = made.saturating_add(tool_calls);
        }
        let added_to = self.threads.get_mut(&thread_id).filter(|_| !opened.is_detached);
        if let Some(thread) = added_to.map(Arc::make_mut) {
            let lasting = || opened.receipt.lasting_ask();
            let parts: Vec<_> = lasting().filter_map(|fragment| fragment.text).collect();
            if !parts.is_empty() {
                let pinned = lasting().any(|fragment| fragment.pinned);
                let is_user = |fragment: &&FragmentReceipt| fragment.layer == FragmentContentKind::UserWords;
                let user_texts = lasting().filter(is_user).filter_map(|fragment| fragment.text).collect();
                let foreign = lasting().filter(|fragment| fragment.layer.has_foreign_texts() && !is_user(fragment));
                let foreign_texts = foreign.filter_map(|fragment| fragment.text).collect();
                let images = lasting().flat_map(|fragment| &fragment.images).copied().collect();
                thread.push(ThreadMessage {
                    pinned,
                    user_texts,
                    foreign_texts,
                    images,
                    ..ThreadMessage::user_message(opened.call, parts)
                });
            }
            if let Some(outline) = thread.last_prompt.as_mut().filter(|outline| outline.call == opened.call) {
                Arc::make_mut(outline).ask_status = CallAnswerStatus::Answered;
                let slot_prompt =
                    self.last_prompts.get_mut(&thread.slot).filter(|slot_prompt| slot_prompt.call == opened.call);
                slot_prompt.into_iter().for_each(|slot_prompt| slot_prompt.clone_from(outline));
            }
            thread.push(ThreadMessage {
                parts: vec![answered.text],
                tool_calls: answered.tool_calls.clone(),
                // It is only valid after the prompt as it was sent.
                vendor_state: answered.vendor_state.filter(|_| opened.receipt.first_call_only_index().is_none()),
                ..ThreadMessage::empty(opened.call, ChatRole::Assistant)
            });
            thread.last_used_at = at;
        }
        if waits_for_tools {
            let results = answered.tool_calls.iter().map(ToolCallWithResult::from_tool_call).collect();
            let round = ToolRound {
                request: super::to_call_request(opened),
                turn: opened.turn,
                thread: thread_id,
                root_call: open.root_call,
                round_number: open.tool_round,
                tool_results: results,
            };
            self.tool_rounds.insert(answered.call, round);
            self.open_calls.remove(&answered.call);
        } else {
            self.close_call(answered.call);
        }
    }

    fn apply_unanswered_attempt(&mut self, call: CallId, next: RetryDecision, ended: UnansweredCallAttemptOutcome) {
        let Some(open) = self.open_calls.get_mut(&call) else {
            return self.apply_late_failure(call, ended);
        };
        match ended {
            UnansweredCallAttemptOutcome::Failed(cost) => self.ledger.record_failure(ledger_account(open), cost),
            UnansweredCallAttemptOutcome::Unknown => self.ledger.record_unknown_outcome(ledger_account(open)),
            UnansweredCallAttemptOutcome::Resolved => {}
        }
        match next {
            RetryDecision::Retry { at } => {
                open.attempt += 1;
                open.status = OpenCallStatus::WaitingUntil(at);
            }
            RetryDecision::AwaitOperator => open.status = OpenCallStatus::AwaitingOperator,
            RetryDecision::GiveUp => self.abandon_call(call),
        }
    }

    /// Remembers the size of a prompt that a model refused as too long, whatever its model card says.
    fn learn_refused_window(&mut self, call: CallId, kind: CallFailureKind) {
        let refused = self.open_calls.get(&call).filter(|_| kind == CallFailureKind::ContextTooLong);
        // A prompt that was not sent because it did not fit was not refused by the model.
        let Some(open) = refused.filter(|open| open.opened.is_prompt_within_window()) else { return };
        let (model, tokens) = (open.opened.model.clone(), open.opened.receipt.tokens);
        let known = self.refused_prompt_tokens.entry(model).or_insert(tokens);
        *known = (*known).min(tokens);
    }

    /// Learns the token ratio of a model from the count that its vendor reported. If an answer was rejected first, the
    /// count of that request is used, because the second prompt was longer.
    fn learn_token_ratio(&mut self, opened: &CallOpened, answered: &CallAnswered) {
        if answered.usage_source != UsageSource::Vendor {
            return;
        }
        let reported = answered.rejected_usage.unwrap_or(answered.usage).input_tokens;
        let mut ratio = self.token_ratio(&opened.model);
        ratio.add_observation(self.current_prompt_tokens(opened), reported);
        if ratio != VendorTokenRatio::default() {
            self.token_ratios.insert(opened.model.clone(), ratio);
        }
    }

    /// Makes further attempts with another model.
    fn apply_call_failed_over(&mut self, call: CallId, to: &ModelName) {
        let Some(open) = self.open_calls.get_mut(&call) else { return };
        let mut opened = CallOpened { model: to.clone(), ..(*open.opened).clone() };
        // The estimate was for the other model.
        opened.receipt.vendor_tokens_estimate = None;
        open.opened = Arc::new(opened);
        open.model_first_attempt = open.attempt;
    }

    pub(super) fn close_call(&mut self, call: CallId) {
        let Some(open) = self.open_calls.remove(&call) else { return };
        for id in [Some(open.opened.receipt.thread.thread_id()), open.opened.compacts_thread].into_iter().flatten() {
            self.release_thread(id, call);
        }
    }

    /// Ends a tool round that no call continues.
    fn close_tool_round(&mut self, call: CallId) {
        let Some(round) = self.tool_rounds.remove(&call) else { return };
        // A thread must not keep a tool call without results, even if it was forked in the middle of a decision.
        if !round.is_complete() {
            self.push_tool_results(call, &round);
        }
        self.release_thread(round.thread, call);
    }

    /// Releases a thread after a call. If the thread was compacted during a tool round, the round gets it back.
    fn release_thread(&mut self, id: ThreadId, call: CallId) {
        if let Some(thread) = self.threads.get_mut(&id).filter(|thread| thread.active_call == Some(call)) {
            Arc::make_mut(thread).active_call =
                self.tool_rounds.iter().find(|(_, round)| round.thread == id).map(|(call, _)| *call);
        }
        self.drop_thread_if_unreachable(id);
    }

    /// Drops a thread that no call can continue: it is not the current thread of a slot, and no call uses it.
    fn drop_thread_if_unreachable(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(&id) else { return };
        let is_current = self.thread_by_slot.get(&thread.slot) == Some(&id);
        let is_used = thread
            .active_call
            .is_some_and(|call| self.open_calls.contains_key(&call) || self.tool_rounds.contains_key(&call));
        if !is_current && !is_used {
            self.threads.remove(&id);
        }
    }

    fn evict_oldest_idle_threads(&mut self) {
        while self.threads.len() > THREADS_MAX {
            let idle = self.threads.values().filter(|thread| thread.active_call.is_none());
            let Some(oldest) = idle.min_by_key(|thread| (thread.last_used_at, thread.id)) else { return };
            let (id, slot) = (oldest.id, oldest.slot.clone());
            self.threads.remove(&id);
            if self.thread_by_slot.get(&slot) == Some(&id) {
                self.thread_by_slot.remove(&slot);
            }
        }
    }

    fn evict_oldest_prompt_outlines(&mut self) {
        while self.last_prompts.len() > LAST_PROMPTS_MAX {
            let oldest = self.last_prompts.iter().min_by_key(|(_, outline)| outline.call).map(|(slot, _)| slot.clone());
            oldest.map(|slot| self.last_prompts.remove(&slot));
        }
    }

    fn apply_thread_compacted(&mut self, compacted: &ThreadCompacted) {
        let Some(thread) = self.threads.get_mut(&compacted.thread).map(Arc::make_mut) else { return };
        let kept: Vec<usize> = compacted.kept_indices.iter().map(|index| *index as usize).collect();
        let summary = (!compacted.summary.is_empty()).then(|| {
            let call = compacted.summary_call.unwrap_or(thread.opened_by);
            ThreadMessage {
                user_texts: compacted.user_texts.clone(),
                ..ThreadMessage::user_message(call, compacted.summary.clone())
            }
        });
        thread.compact(summary, &kept);
    }
}

impl OpenCall {
    /// Marks a call as inherited, because it has not started in the forked session.
    fn mark_call_inherited(&mut self) {
        self.status = match self.status {
            OpenCallStatus::Due => OpenCallStatus::Inherited(UnixMillis(0)),
            OpenCallStatus::WaitingUntil(until) => OpenCallStatus::Inherited(until),
            unchanged @ (OpenCallStatus::AwaitingOperator | OpenCallStatus::Inherited(_)) => unchanged,
        };
    }

    /// Makes an inherited call due.
    fn make_inherited_call_due(&mut self) {
        self.status = match self.status {
            OpenCallStatus::Inherited(UnixMillis(0)) => OpenCallStatus::Due,
            OpenCallStatus::Inherited(until) => OpenCallStatus::WaitingUntil(until),
            unchanged @ (OpenCallStatus::Due | OpenCallStatus::WaitingUntil(_) | OpenCallStatus::AwaitingOperator) => {
                unchanged
            }
        };
    }
}

#[derive(Clone, Copy)]
pub(super) enum UnansweredCallAttemptOutcome {
    Failed(Option<FailedCallAttemptCost>),
    Unknown,
    Resolved,
}

pub(super) fn ledger_account(open: &OpenCall) -> CallAttribution<'_> {
    let opened = &open.opened;
    CallAttribution { role: &opened.role, model: &opened.model, phase: open.ledger_phase.as_deref(), turn: opened.turn }
}

pub(super) fn keep_newest<T>(queue: &mut std::collections::VecDeque<T>, count_max: usize) {
    while queue.len() > count_max {
        queue.pop_front();
    }
}
