//! Opens calls: chooses the thread, renders the fragments of the prompt, and writes the receipt.

use std::borrow::Cow;

use super::EffectDispatchMode;
use super::draft::DecisionDraft;
use super::fragments::sum_message_tokens;
use crate::body::{BodyId, BodyVisibility, TextRef};
use crate::context::compact::ThreadTokenBudget;
use crate::context::{
    CallAnswerStatus, CallThread, FragmentReceipt, PromptComparisonData, PromptReceipt, ThreadHistorySize,
    compare_prefix,
};
use crate::event::{CallOpened, CallQueuedOnThread, CallRequest, Event, NO_CALL, RetryDecision, ToolOfferPolicy};
use crate::flow::{EventSubject, FragmentRenderContext, MessagesToCompact, RoleSpec};
use crate::ids::{CallId, FragmentName, ModelName, ThreadId, ToolName};
use crate::limits::{DEFERRED_CALLS_MAX, DETACHED_REPLY_TOKENS_MAX, WINDOW_RESERVE_TOKENS};
use crate::prompt::{CallFailure, CallFailureKind, ModelOutputFormat, ModelToolSpec, ModelToolUseRules};
use crate::scope::{
    CurrentThread, PhaseVisit, ThreadChoice, ThreadKey, ThreadReuseConditions, ThreadScopeInputs, choose_thread,
    resolve_thread_key_and_conditions,
};
use crate::session::thread::{Thread, ThreadMessage};
use crate::signal::json::canonical_json;

/// What a call is for, beyond the flow's request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallPurpose<'f> {
    /// The call whose tool results it continues.
    pub continues: Option<CallId>,
    /// The thread that it summarizes, and the messages to fold.
    pub compacts: Option<(ThreadId, &'f MessagesToCompact)>,
    /// How many compactions were already tried for it.
    pub compaction_attempts: u32,
}

impl CallPurpose<'_> {
    fn from_deferred(wait: &CallQueuedOnThread) -> Self {
        Self { continues: wait.continues, compacts: None, compaction_attempts: wait.compactions }
    }
}

/// The role, model and thread of a call, chosen before anything is rendered.
pub(super) struct CallTarget<'s> {
    pub role: &'s RoleSpec,
    pub model: ModelName,
    pub visit: Option<PhaseVisit>,
    pub slot: ThreadKey,
    pub tag: ThreadReuseConditions,
    pub choice: ThreadChoice,
}

/// The rendered parts of a prompt, before the call is opened.
struct RenderedPromptParts<'p> {
    opening: &'p [FragmentReceipt],
    carried: ThreadHistorySize,
    ask: &'p [FragmentReceipt],
    tools: Option<BodyId>,
    output: Option<BodyId>,
    tool_use: &'p ModelToolUseRules,
}

impl<'a> DecisionDraft<'a> {
    /// Opens, defers or refuses a call. Returns the call's id if it was opened.
    pub(crate) fn open_or_defer_call(&mut self, request: CallRequest, purpose: CallPurpose<'_>) -> Option<CallId> {
        let step = format!("call of `{}` for `{}`", request.role, request.ask);
        let Some(role) = self.spec().roles.get(&request.role) else {
            self.refuse_step(step, "the flow has no such role");
            return None;
        };
        if purpose.continues.is_none() && !role.asks.contains_key(&request.ask) {
            self.refuse_step(step, "the role has no such ask");
            return None;
        }
        if let Some(why) = self.role_call_limit_error(role).or_else(|| self.calls_outside_turns_error(role)) {
            self.refuse_step(step, why);
            return None;
        }
        if self.env.dispatch == EffectDispatchMode::Deferred {
            self.defer_call(request, NO_CALL, purpose);
            return None;
        }
        let call = CallId(self.session().last_ids.call.0 + 1);
        let target = self.resolve_call_target(role, &request, call, purpose);
        if let Some(busy) = self.blocking_call(&target, purpose) {
            self.defer_call(request, busy, purpose);
            return None;
        }
        self.open_call(request, call, target, purpose)
    }

    /// Chooses the role's model and thread for a call, from the session's state alone.
    pub(crate) fn resolve_call_target(
        &self,
        role: &'a RoleSpec,
        request: &CallRequest,
        call: CallId,
        purpose: CallPurpose<'_>,
    ) -> CallTarget<'a> {
        let session = self.session();
        let visit = session.current_visit(self.spec(), &request.role, request.agent.as_ref());
        let model = self.choose_model(role, request, visit.as_ref());
        let round = purpose.continues.and_then(|call| session.tool_rounds.get(&call));
        let worker = request.peer.as_ref().or(request.agent.as_ref());
        let mut context = ThreadScopeInputs {
            role: request.role.clone(),
            agent: request.agent.clone(),
            peer: request.peer.clone(),
            model: model.clone(),
            sample: request.sample,
            turn: self.active_cause_turn(),
            phase_visit: visit.clone(),
            work_item: worker.and_then(|worker| session.work_assignments.get(worker)).cloned(),
            root_call: round.map_or(call, |round| round.root_call),
            slot_resets: 0,
        };
        let scope = role.scope_of_ask(&request.ask);
        let (slot, _) = resolve_thread_key_and_conditions(scope, &context);
        context.slot_resets = session.slot_resets.get(&slot).copied().unwrap_or_default();
        let (slot, tag) = resolve_thread_key_and_conditions(scope, &context);
        // Further tool rounds of a call stay in the thread of their root call.
        let choice = match round {
            Some(round) => ThreadChoice::Continue(round.thread),
            None => {
                let existing = session.thread_by_slot.get(&slot).and_then(|id| session.threads.get(id));
                let existing = existing.map(|thread| CurrentThread {
                    thread: thread.id,
                    scope_tag: &thread.scope_tag,
                    opened_at: thread.opened_at,
                });
                choose_thread(scope, existing, &tag, self.env.now)
            }
        };
        CallTarget { role, model, visit, slot, tag, choice }
    }

    pub(crate) fn choose_model(&self, role: &RoleSpec, request: &CallRequest, visit: Option<&PhaseVisit>) -> ModelName {
        if let Some(model) = request.model.as_ref().or_else(|| self.session().model_overrides.get(&role.name)) {
            return model.clone();
        }
        let spec = self.spec();
        let phase = visit.and_then(|visit| spec.graphs.get(&visit.graph)?.find_phase(&visit.phase));
        if let Some(model) = phase.and_then(|phase| phase.model_for_role(&role.name)) {
            return model.clone();
        }
        self.env.model_selector.model_for_role(&spec.name, &role.name, visit.map(|visit| &visit.phase))
    }

    /// Returns the call that is using the thread, other than the one whose tool results are continued.
    fn blocking_call(&self, target: &CallTarget<'_>, purpose: CallPurpose<'_>) -> Option<CallId> {
        match target.choice {
            ThreadChoice::Continue(thread) => {
                self.session().threads.get(&thread)?.active_call.filter(|busy| purpose.continues != Some(*busy))
            }
            ThreadChoice::Open(_) => None,
        }
    }

    pub(crate) fn defer_call(&mut self, request: CallRequest, waits_for_call: CallId, purpose: CallPurpose<'_>) {
        if self.session().deferred_calls.len() >= DEFERRED_CALLS_MAX {
            let step = format!("call of `{}` for `{}`", request.role, request.ask);
            self.refuse_step(step, format!("{DEFERRED_CALLS_MAX} calls are already waiting, which is the maximum"));
            return;
        }
        let deferred_id = self.session().last_ids.deferred_call + 1;
        let turn = self.active_cause_turn();
        let CallPurpose { continues, compaction_attempts: compactions, .. } = purpose;
        self.record_event(Event::CallDeferred(Box::new(CallQueuedOnThread {
            deferred_id,
            turn,
            request,
            waits_for_call,
            continues,
            compactions,
        })));
    }

    /// Decides whether a call is offered tools. If it is, its output schema is removed.
    fn resolve_tool_offer(&self, mut request: CallRequest, model: &ModelName) -> (CallRequest, bool) {
        let offers_tools = match request.tool_offer {
            ToolOfferPolicy::Offered => request.output_schema.is_null(),
            ToolOfferPolicy::Withheld => false,
            ToolOfferPolicy::IfSupported => self.env.model_selector.supports_tool_calls(model),
        };
        if offers_tools {
            request.output_schema = serde_json::Value::Null;
        }
        (request, offers_tools)
    }

    fn open_call(
        &mut self,
        request: CallRequest,
        call: CallId,
        target: CallTarget<'a>,
        purpose: CallPurpose<'_>,
    ) -> Option<CallId> {
        let role = target.role;
        let (request, offers_tools) = self.resolve_tool_offer(request, &target.model);
        let compacted = purpose.compacts.map(|(_, compacted)| compacted);
        let opens_thread = matches!(target.choice, ThreadChoice::Open(_));
        let fragment_request = FragmentRenderContext {
            call_request: &request,
            call,
            turn: self.active_cause_turn(),
            opens_thread,
            signal_form: self.env.model_selector.signal_form(&target.model),
            compacted,
        };
        let signal_form = fragment_request.signal_form;
        let window = self.context_window(&target.model);
        let ratio = self.session().token_ratio(&target.model);
        let mut reply_tokens_max = reply_tokens_limit(role, window);
        if role.is_detached_ask(&request.ask) {
            reply_tokens_max = reply_tokens_max.min(DETACHED_REPLY_TOKENS_MAX);
        }
        let free_tokens = window.saturating_sub(reply_tokens_max + WINDOW_RESERVE_TOKENS);
        let opening = if opens_thread {
            self.render_fragments(role.opening_of_ask(&request.ask), &fragment_request)
        } else {
            Vec::new()
        };
        let ask_specs = role.asks.get(&request.ask).map_or(&[][..], Vec::as_slice);
        let ask = match purpose {
            CallPurpose { continues: Some(_), .. } => Vec::new(),
            // A summary of a part is better than none.
            CallPurpose { compacts: Some(_), .. } => self.render_fragments_within(
                ask_specs,
                &fragment_request,
                ratio.to_our_tokens(free_tokens).saturating_sub(sum_message_tokens(&opening)),
            ),
            CallPurpose { .. } => self.render_fragments(ask_specs, &fragment_request),
        };
        let options = self.options_for_role(role);
        let tools = match options.tools {
            Some(tools) => Some(self.texts.resolve_or_mark_missing(tools).to_string()),
            None => self.allowed_tools_json(role, target.visit.as_ref()),
        };
        let tools = tools.filter(|_| offers_tools);
        let carried = self.carried_history(&target.choice);
        let tool_tokens = tools.as_ref().map_or(0, |text| self.env.token_counter.count_tokens(text));
        let tokens = carried.tokens + sum_message_tokens(&opening) + sum_message_tokens(&ask) + tool_tokens;
        let vendor_tokens = ratio.to_vendor_tokens(tokens);
        let taken = sum_message_tokens(&ask) + tool_tokens;
        // If the prompt does not fit by the estimated vendor count, it may still fit by ours.
        let by_vendor = (vendor_tokens > free_tokens).then(|| ratio.to_our_tokens(free_tokens));
        let by_us = (vendor_tokens.min(tokens) > free_tokens).then_some(free_tokens);
        let spaces = [by_vendor, by_us].into_iter().flatten().map(|space| ThreadTokenBudget::in_window(space, taken));
        if let ThreadChoice::Continue(thread) = target.choice
            && self.compact_before_call(thread, role, &request, spaces, purpose)
        {
            return None;
        }
        let thread = match target.choice {
            ThreadChoice::Continue(thread) => CallThread::Continued(thread),
            ThreadChoice::Open(why) => CallThread::Opened {
                thread: ThreadId(self.session().last_ids.thread.0 + 1),
                slot: target.slot.clone(),
                tag: target.tag,
                why,
            },
        };
        let tools = tools.map(|text| self.store_uncounted_text(text.into(), BodyVisibility::Internal));
        let schema = match (&request.output_schema, &role.output) {
            (serde_json::Value::Null, ModelOutputFormat::Text) => None,
            (serde_json::Value::Null, ModelOutputFormat::Json(schema)) => Some(schema),
            (own, _) => Some(own),
        };
        let output =
            schema.map(|schema| self.store_uncounted_text(canonical_json(schema).into(), BodyVisibility::Internal));
        let output = options.output_schema.or(output);
        let tool_use = options.tool_use;
        let rendered =
            RenderedPromptParts { opening: &opening, carried, ask: &ask, tools, output, tool_use: &tool_use };
        let prefix = self.compare_with_last_prompt(&thread, &target.slot, &rendered);
        let digest = self.prompt_digest(&thread, &rendered, &target.model, reply_tokens_max);
        let vendor_tokens_estimate = Some(vendor_tokens).filter(|_| !ratio.is_unity());
        let receipt = PromptReceipt {
            thread,
            opening,
            carried,
            ask,
            tokens,
            vendor_tokens_estimate,
            window_tokens: window,
            prefix,
            digest,
        };
        let opened = std::sync::Arc::new(CallOpened {
            call,
            turn: self.active_cause_turn(),
            signal_form,
            is_detached: role.is_detached_ask(&request.ask),
            role: request.role,
            ask: request.ask,
            agent: request.agent,
            peer: request.peer,
            model: target.model,
            sample: request.sample,
            phase: target.visit.map(|visit| visit.phase),
            continues: purpose.continues,
            compacts_thread: purpose.compacts.map(|(thread, _)| thread),
            recomputation: None,
            metadata: request.metadata,
            tools_body: tools,
            tool_use,
            output_schema: output,
            reply_tokens_max,
            receipt,
        });
        let fits = opened.is_prompt_within_window();
        self.record_event(Event::CallOpened(opened));
        if !fits {
            let message =
                format!("the prompt has {tokens} tokens, which leaves no space for an answer in a window of {window}");
            let failure = CallFailure::new(CallFailureKind::ContextTooLong, message);
            self.record_event(Event::CallFailed { call, attempt: 1, failure, next: RetryDecision::GiveUp });
        }
        Some(call)
    }

    /// Returns the context window to assume for a model.
    pub(crate) fn context_window(&self, model: &ModelName) -> u32 {
        self.session().effective_window(model, self.env.model_selector.context_window_tokens(model))
    }

    fn carried_history(&self, choice: &ThreadChoice) -> ThreadHistorySize {
        let ThreadChoice::Continue(thread) = choice else { return ThreadHistorySize::default() };
        let Some(thread) = self.session().threads.get(thread) else { return ThreadHistorySize::default() };
        ThreadHistorySize { entries: u32::try_from(thread.entries.len()).unwrap_or(u32::MAX), tokens: thread.tokens }
    }

    /// Compares the prompt with the last one of its thread, or of its slot if the thread is new.
    fn compare_with_last_prompt(
        &self,
        thread: &CallThread,
        slot: &ThreadKey,
        prompt: &RenderedPromptParts<'_>,
    ) -> crate::context::PreviousPromptComparison {
        let current = self.session().threads.get(&thread.thread_id());
        let next = PromptComparisonData {
            call: CallId(self.session().last_ids.call.0 + 1),
            thread: thread.thread_id(),
            compactions: current.map_or(0, |thread| thread.compactions),
            carried: prompt.carried,
            opening: current.map_or_else(|| fragment_texts(prompt.opening).into(), |thread| thread.opening.clone()),
            ask: fragment_texts(prompt.ask).into(),
            // Only known prompts are compared with later ones.
            first_call_only: None,
            ask_status: CallAnswerStatus::Unanswered,
            tools: prompt.tools,
        };
        let before =
            current.map_or_else(|| self.session().last_prompts.get(slot), |thread| thread.last_prompt.as_ref());
        compare_prefix(before.map(|outline| &**outline), &next)
    }

    /// Returns the digest of everything that is sent to the model. Equal prompts have equal digests.
    fn prompt_digest(
        &self,
        thread: &CallThread,
        prompt: &RenderedPromptParts<'_>,
        model: &ModelName,
        reply_tokens_max: u32,
    ) -> BodyId {
        let current = self.session().threads.get(&thread.thread_id()).map(|thread| thread.digest);
        let opening = fragment_texts(prompt.opening);
        let mut digest = current.unwrap_or_else(|| Thread::opening_digest(&opening));
        let parts: Vec<TextRef> = fragment_texts(prompt.ask).into_iter().map(|(_, text)| text).collect();
        if !parts.is_empty() {
            let images = prompt.ask.iter().flat_map(|fragment| &fragment.images).copied().collect();
            digest =
                digest.chain_hash(ThreadMessage { images, ..ThreadMessage::user_message(CallId(0), parts) }.digest());
        }
        let settings = serde_json::to_vec(&(model, prompt.tools, prompt.output, reply_tokens_max)).unwrap_or_default();
        let digest = digest.chain_hash(BodyId::hash_bytes(&settings));
        if prompt.tool_use.is_default() {
            return digest;
        }
        digest.chain_hash(BodyId::hash_bytes(&serde_json::to_vec(prompt.tool_use).unwrap_or_default()))
    }

    /// Returns the tools that the role may use in its phase, as JSON.
    fn allowed_tools_json(&self, role: &RoleSpec, visit: Option<&PhaseVisit>) -> Option<String> {
        let spec = self.spec();
        let subject = EventSubject::default();
        let tools: Vec<Cow<'_, ModelToolSpec>> = role
            .tools
            .iter()
            .filter(|tool| self.is_tool_allowed(visit, tool))
            .filter_map(|tool| spec.tools.get(tool))
            .filter_map(|tool| self.flow.describe_tool(self.flow_context(&subject), &tool.spec))
            .collect();
        if tools.is_empty() {
            return None;
        }
        serde_json::to_value(tools).ok().map(|value| canonical_json(&value))
    }

    pub(crate) fn is_tool_allowed(&self, visit: Option<&PhaseVisit>, tool: &ToolName) -> bool {
        let phase = visit.and_then(|visit| self.spec().graphs.get(&visit.graph)?.find_phase(&visit.phase));
        phase.is_none_or(|phase| phase.tools.allows(tool))
    }

    /// Applies the rules that follow from an event, before the flow reacts to it.
    pub(crate) fn apply_builtin_rules(&mut self, event: &Event, subject: &EventSubject) {
        match event {
            Event::CallAnswered(answered) => {
                let Some(opened) = &subject.call else { return };
                self.fold_messages_after_summary_call(opened, Some(answered.text));
                for tool_call in &answered.tool_calls {
                    self.open_requested_tool(opened, tool_call);
                }
            }
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { next: RetryDecision::GiveUp, .. } => {
                if let Some(opened) = &subject.call {
                    self.fold_messages_after_summary_call(opened, None);
                }
            }
            _ => {}
        }
    }

    /// Continues a call whose tools have all finished.
    pub(crate) fn continue_after_tools(&mut self) -> bool {
        let session = self.session();
        let waits = |call: CallId| session.deferred_calls.values().any(|wait| wait.continues == Some(call));
        let complete = session.tool_rounds.iter().find(|(call, round)| round.is_complete() && !waits(**call));
        let Some((call, round)) = complete.map(|(call, round)| (*call, round.clone())) else { return false };
        self.cause_turn = round.turn;
        self.open_or_defer_call(round.request, CallPurpose { continues: Some(call), ..CallPurpose::default() });
        self.drop_tool_round_without_next_call(call);
        true
    }

    /// Ends a tool round at the flow's request. Its tools must have finished, so that none of their results is lost.
    pub(super) fn end_tool_round(&mut self, call: CallId, reason: String) {
        match self.session().tool_rounds.get(&call) {
            Some(round) if round.is_complete() => self.record_event(Event::ToolRoundDropped { call, reason }),
            Some(_) => self.refuse_step(format!("end of the tool round of {call}"), "its tools are still running"),
            None => self.refuse_step(format!("end of the tool round of {call}"), "there is none"),
        }
    }

    fn drop_tool_round_without_next_call(&mut self, call: CallId) {
        let session = self.session();
        let waits = session.deferred_calls.values().any(|wait| wait.continues == Some(call));
        if session.tool_rounds.contains_key(&call) && !waits {
            self.record_event(Event::ToolRoundDropped { call, reason: "no further call may be opened".to_owned() });
        }
    }

    /// Resumes a deferred call.
    pub(crate) fn resume_deferred_call(&mut self) -> bool {
        let Some(wait) = self.session().deferred_calls.values().find(|wait| self.can_resume(wait)).cloned() else {
            return false;
        };
        self.cause_turn = wait.turn;
        self.record_event(Event::DeferredCallResumed { deferred_id: wait.deferred_id });
        self.open_or_defer_call(wait.request.clone(), CallPurpose::from_deferred(&wait));
        wait.continues.into_iter().for_each(|call| self.drop_tool_round_without_next_call(call));
        true
    }

    /// Returns true if a deferred call can be resumed. If several calls wait for one thread, only the first is resumed;
    /// the others keep waiting without a new event.
    fn can_resume(&self, deferred: &CallQueuedOnThread) -> bool {
        let session = self.session();
        if session.open_calls.contains_key(&deferred.waits_for_call)
            || session.tool_rounds.contains_key(&deferred.waits_for_call)
        {
            return false;
        }
        let Some(role) = self.spec().roles.get(&deferred.request.role) else { return true };
        let purpose = CallPurpose::from_deferred(deferred);
        let target = self.resolve_call_target(role, &deferred.request, CallId(session.last_ids.call.0 + 1), purpose);
        self.blocking_call(&target, purpose).is_none()
    }
}

/// Returns the maximum length of a role's answer in a window, which is at most a quarter of it.
pub(super) fn reply_tokens_limit(role: &RoleSpec, window: u32) -> u32 {
    role.reply_tokens_max.min(window / 4)
}

fn fragment_texts(fragments: &[FragmentReceipt]) -> Vec<(FragmentName, TextRef)> {
    fragments.iter().filter_map(|fragment| Some((fragment.name.clone(), fragment.text?))).collect()
}
