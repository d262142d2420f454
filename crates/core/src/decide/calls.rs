//! Opening calls: the one rule that picks a thread, the fragments that make the prompt, the receipt that says why.

use super::Dispatch;
use super::draft::DecisionDraft;
use crate::body::{BodyId, BodyKind, ImageRef, TextRef};
use crate::context::{
    AskStatus, CarriedHistory, ContextLayer, FitResult, FragmentReceipt, FragmentSource, FragmentSpec, PromptOutline,
    PromptReceipt, RenderedFragment, ThreadUse, compare_prefix, fit_to_budget,
};
use crate::event::{CallDeferred, CallOpened, CallRequest, Event, NO_CALL, RetryDecision, ToolOutcome, ToolRunOpened};
use crate::flow::{CompactedMessages, EventSubject, FragmentRequest, RoleSpec, ToolRunner};
use crate::ids::{CallId, FragmentName, ModelName, ThreadId, ToolName, ToolRunId};
use crate::limits::{CALLS_PER_TURN_MAX, DEFERRED_CALLS_MAX, OPEN_CALLS_MAX, WINDOW_RESERVE_TOKENS};
use crate::prompt::{CallFailure, FailureKind, OutputFormat, ToolSpec};
use crate::scope::{
    CurrentThread, PhaseVisit, ScopeContext, ScopeTag, ThreadChoice, ThreadSlot, choose_thread, resolve_slot_and_tag,
};
use crate::signal::json::canonical_json;
use crate::thread::{MESSAGE_OVERHEAD_TOKENS, Thread, ThreadEntry, estimate_image_tokens};

/// What a call is for, beyond what the flow wished.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallPurpose<'f> {
    /// The call whose tool results it brings.
    pub follows: Option<CallId>,
    /// The thread it writes a summary for, and what is folded.
    pub compacts: Option<(ThreadId, &'f CompactedMessages)>,
    /// How often a compaction was tried for it already.
    pub compaction_attempts: u32,
}

impl CallPurpose<'_> {
    /// What a call that waited is for.
    fn from_deferred(wait: &CallDeferred) -> Self {
        Self { follows: wait.continues, compacts: None, compaction_attempts: wait.compactions }
    }
}

/// The identity of a call, settled before anything is rendered.
pub(super) struct CallTarget<'s> {
    pub role: &'s RoleSpec,
    pub model: ModelName,
    pub visit: Option<PhaseVisit>,
    pub slot: ThreadSlot,
    pub tag: ScopeTag,
    pub choice: ThreadChoice,
}

/// What a call is about to be sent.
struct RenderedPrompt<'p> {
    opening: &'p [FragmentReceipt],
    carried: CarriedHistory,
    ask: &'p [FragmentReceipt],
    tools: Option<BodyId>,
    output: Option<BodyId>,
}

impl<'a> DecisionDraft<'a> {
    /// Opens a call, or defers it, or refuses it. Gives the call's number if it was opened.
    pub fn open_or_defer_call(&mut self, request: CallRequest, purpose: CallPurpose<'_>) -> Option<CallId> {
        let step = format!("call of `{}` for `{}`", request.role, request.ask);
        let Some(role) = self.spec().roles.get(&request.role) else {
            self.refuse_step(step, "the flow has no such role");
            return None;
        };
        if purpose.follows.is_none() && !role.recipe.asks.contains_key(&request.ask) {
            self.refuse_step(step, "the role has no such ask");
            return None;
        }
        if let Some(why) = self.call_limit_error() {
            self.refuse_step(step, why);
            return None;
        }
        if self.env.dispatch == Dispatch::Deferred {
            self.defer_call(request, NO_CALL, purpose);
            return None;
        }
        let call = CallId(self.session().last_ids.call.0 + 1);
        let bearing = self.resolve_call_target(role, &request, call, purpose);
        if let Some(busy) = self.blocking_call(&bearing, purpose) {
            self.defer_call(request, busy, purpose);
            return None;
        }
        self.open_call(request, call, bearing, purpose)
    }

    pub fn call_limit_error(&self) -> Option<String> {
        let session = self.session();
        if session.open_calls.len() >= OPEN_CALLS_MAX {
            return Some(format!("{OPEN_CALLS_MAX} calls are open already, the most a session may have"));
        }
        let calls = session
            .current_turn
            .as_ref()
            .filter(|_| self.active_cause_turn().is_some())
            .map_or(0, |turn| turn.calls_opened);
        (calls >= CALLS_PER_TURN_MAX).then(|| {
            format!("the turn has made {CALLS_PER_TURN_MAX} calls already, the most it may; does the flow loop?")
        })
    }

    /// The single rule before every call, from authoritative state alone.
    pub fn resolve_call_target(
        &self,
        role: &'a RoleSpec,
        request: &CallRequest,
        call: CallId,
        purpose: CallPurpose<'_>,
    ) -> CallTarget<'a> {
        let session = self.session();
        let visit = session.current_visit(self.spec(), &request.role, request.agent.as_ref());
        let model = self.choose_model(role, request, visit.as_ref());
        let round = purpose.follows.and_then(|follows| session.tool_rounds.get(&follows));
        let worker = request.peer.as_ref().or(request.agent.as_ref());
        let mut caller = ScopeContext {
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
        let (slot, _) = resolve_slot_and_tag(&role.scope, &caller);
        caller.slot_resets = session.slot_resets.get(&slot).copied().unwrap_or_default();
        let (slot, tag) = resolve_slot_and_tag(&role.scope, &caller);
        // A further round of a call's tools belongs to what its root was opened for.
        let choice = match round {
            Some(round) => ThreadChoice::Continue(round.thread),
            None => {
                let standing = session.thread_by_slot.get(&slot).and_then(|id| session.threads.get(id));
                let standing = standing.map(|thread| CurrentThread {
                    thread: thread.id,
                    scope_tag: &thread.scope_tag,
                    opened_at: thread.opened_at,
                });
                choose_thread(&role.scope, standing, &tag, self.env.now)
            }
        };
        CallTarget { role, model, visit, slot, tag, choice }
    }

    pub fn choose_model(&self, role: &RoleSpec, request: &CallRequest, visit: Option<&PhaseVisit>) -> ModelName {
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

    /// The call that is using the thread. The one whose tool results are brought is not in its own way.
    fn blocking_call(&self, target: &CallTarget<'_>, purpose: CallPurpose<'_>) -> Option<CallId> {
        match target.choice {
            ThreadChoice::Continue(thread) => {
                self.session().threads.get(&thread)?.active_call.filter(|busy| purpose.follows != Some(*busy))
            }
            ThreadChoice::Open(_) => None,
        }
    }

    pub fn defer_call(&mut self, request: CallRequest, waits_for: CallId, purpose: CallPurpose<'_>) {
        if self.session().deferred_calls.len() >= DEFERRED_CALLS_MAX {
            let step = format!("call of `{}` for `{}`", request.role, request.ask);
            self.refuse_step(step, format!("{DEFERRED_CALLS_MAX} calls wait already, the most a session may have"));
            return;
        }
        let deferred = self.session().last_ids.deferred_call + 1;
        let turn = self.active_cause_turn();
        let CallPurpose { follows, compaction_attempts: compactions, .. } = purpose;
        self.record_event(Event::CallDeferred(Box::new(CallDeferred {
            deferred_id: deferred,
            turn,
            request,
            waits_for_call: waits_for,
            continues: follows,
            compactions,
        })));
    }

    fn open_call(
        &mut self,
        request: CallRequest,
        call: CallId,
        target: CallTarget<'a>,
        purpose: CallPurpose<'_>,
    ) -> Option<CallId> {
        let role = target.role;
        let folding = purpose.compacts.map(|(_, folding)| folding);
        let opens = matches!(target.choice, ThreadChoice::Open(_));
        let asking = FragmentRequest {
            call_request: &request,
            call,
            turn: self.active_cause_turn(),
            opens_thread: opens,
            compacted: folding,
        };
        let window = self.context_window(&target.model);
        let weight = self.session().token_ratio(&target.model);
        let reply_tokens_max = reply_tokens_limit(role, window);
        let free = window.saturating_sub(reply_tokens_max + WINDOW_RESERVE_TOKENS);
        let opening = if opens { self.render_fragments(&role.recipe.opening, &asking) } else { Vec::new() };
        let asks = role.recipe.asks.get(&request.ask).map_or(&[][..], Vec::as_slice);
        let ask = match purpose {
            CallPurpose { follows: Some(_), .. } => Vec::new(),
            // A summary of a part is worth more than none.
            CallPurpose { compacts: Some(_), .. } => self.render_fragments_within(
                asks,
                &asking,
                weight.to_our_tokens(free).saturating_sub(sum_message_tokens(&opening)),
            ),
            CallPurpose { .. } => self.render_fragments(asks, &asking),
        };
        let tools = self.allowed_tools_json(role, target.visit.as_ref());
        let carried = self.carried_history(&target.choice);
        let tool_tokens = tools.as_ref().map_or(0, |text| self.env.token_counter.count_tokens(text));
        let tokens = carried.tokens + sum_message_tokens(&opening) + sum_message_tokens(&ask) + tool_tokens;
        let corrected = weight.to_vendor_tokens(tokens);
        let taken = sum_message_tokens(&ask) + tool_tokens;
        // Where there is no room by the vendor's count, as far as we know it, there may be some by ours.
        for (needed, space) in [(corrected, weight.to_our_tokens(free)), (corrected.min(tokens), free)] {
            if needed > free
                && purpose.compacts.is_none()
                && let ThreadChoice::Continue(thread) = target.choice
                && self.compact_thread(thread, role, &request, (space, taken), purpose)
            {
                return None;
            }
        }
        let thread = match target.choice {
            ThreadChoice::Continue(thread) => ThreadUse::Continued(thread),
            ThreadChoice::Open(why) => ThreadUse::Opened {
                thread: ThreadId(self.session().last_ids.thread.0 + 1),
                slot: target.slot.clone(),
                tag: target.tag,
                why,
            },
        };
        let tools = tools.map(|text| self.store_uncounted_text(text.into(), BodyKind::Internal));
        let output = match &role.output {
            OutputFormat::Text => None,
            OutputFormat::Json(schema) => {
                Some(self.store_uncounted_text(canonical_json(schema).into(), BodyKind::Internal))
            }
        };
        let shown = RenderedPrompt { opening: &opening, carried, ask: &ask, tools, output };
        let prefix = self.prefix_match(&thread, &target.slot, &shown);
        let digest = self.prompt_digest(&thread, &shown, &target.model, reply_tokens_max);
        let corrected = Some(corrected).filter(|_| !weight.is_unity());
        let receipt = PromptReceipt {
            thread,
            opening,
            carried,
            ask,
            tokens,
            vendor_tokens_estimate: corrected,
            window_tokens: window,
            prefix,
            digest,
        };
        let opened = std::sync::Arc::new(CallOpened {
            call,
            turn: self.active_cause_turn(),
            role: request.role,
            ask: request.ask,
            agent: request.agent,
            peer: request.peer,
            model: target.model,
            sample: request.sample,
            phase: target.visit.map(|visit| visit.phase),
            continues: purpose.follows,
            compacts_thread: purpose.compacts.map(|(thread, _)| thread),
            recomputation: None,
            metadata: request.metadata,
            tools_body: tools,
            output_schema: output,
            reply_tokens_max,
            receipt,
        });
        let has_room = opened.fits_window();
        self.record_event(Event::CallOpened(opened));
        if !has_room {
            let message =
                format!("the prompt has {tokens} tokens, which leaves no room for an answer in a window of {window}");
            let failure = CallFailure::new(FailureKind::ContextTooLong, message);
            self.record_event(Event::CallFailed { call, attempt: 1, failure, next: RetryDecision::GiveUp });
        }
        Some(call)
    }

    /// The window we plan for with a model.
    pub fn context_window(&self, model: &ModelName) -> u32 {
        self.session().effective_window(model, self.env.model_selector.context_window_tokens(model))
    }

    fn carried_history(&self, choice: &ThreadChoice) -> CarriedHistory {
        let ThreadChoice::Continue(thread) = choice else { return CarriedHistory::default() };
        let Some(thread) = self.session().threads.get(thread) else { return CarriedHistory::default() };
        CarriedHistory { entries: u32::try_from(thread.entries.len()).unwrap_or(u32::MAX), tokens: thread.tokens }
    }

    /// Has the flow fill the fragments, fits each to its budget, and notes what became of it.
    fn render_fragments(&mut self, specs: &[FragmentSpec], request: &FragmentRequest<'_>) -> Vec<FragmentReceipt> {
        specs.iter().map(|spec| self.render_fragment(spec, request)).collect()
    }

    /// The same for a message of at most so many tokens: each fragment has what those before it left.
    fn render_fragments_within(
        &mut self,
        specs: &[FragmentSpec],
        request: &FragmentRequest<'_>,
        tokens_max: u32,
    ) -> Vec<FragmentReceipt> {
        let mut pieces: Vec<FragmentReceipt> = Vec::with_capacity(specs.len());
        for spec in specs {
            let left = tokens_max.saturating_sub(sum_message_tokens(&pieces).max(MESSAGE_OVERHEAD_TOKENS));
            let tokens_max = spec.tokens_max.map_or(left, |own| own.min(left));
            pieces.push(self.render_fragment(&spec.clone().with_budget(tokens_max, spec.overflow), request));
        }
        pieces
    }

    fn render_fragment(&mut self, spec: &FragmentSpec, request: &FragmentRequest<'_>) -> FragmentReceipt {
        let rendered = self.flow.render_fragment(self.flow_context(&EventSubject::default()), request, &spec.name);
        let mut piece = FragmentReceipt {
            name: spec.name.clone(),
            layer: spec.layer,
            source: None,
            why: String::new(),
            text: None,
            tokens_before_cut: None,
            pinned: spec.retention == crate::context::Retention::Pinned,
            images: Vec::new(),
        };
        // The user's words are stored where they can be found again; all else is machinery.
        let kind = if spec.layer == ContextLayer::UserWords { BodyKind::Conversation } else { BodyKind::Internal };
        let (content, text) = match rendered {
            RenderedFragment::Omitted(why) => {
                piece.why = why;
                return piece;
            }
            RenderedFragment::New { text, source, why } => {
                piece.images = self.attached_images(spec, &source);
                (piece.source, piece.why) = (Some(source), why);
                let content: std::sync::Arc<str> = text.into();
                let tokens = self.env.token_counter.count_tokens(&content);
                (content.clone(), TextRef { body: BodyId::hash_text(&content), tokens })
            }
            RenderedFragment::Stored { text, source, why } => {
                piece.images = self.attached_images(spec, &source);
                (piece.source, piece.why) = (Some(source), why);
                if spec.tokens_max.is_none_or(|max| text.tokens <= max) {
                    piece.text = Some(text);
                    return piece;
                }
                (self.texts.resolve(text.body), text)
            }
        };
        match fit_to_budget(spec, &content, text.tokens, self.env.token_counter) {
            FitResult::Whole => {
                self.store_uncounted_text(content, kind);
                piece.text = Some(text);
            }
            FitResult::Cut(cut) => {
                piece.tokens_before_cut = Some(text.tokens);
                piece.text = Some(self.store_text(cut, BodyKind::Internal));
            }
            FitResult::Omitted => {
                piece.tokens_before_cut = Some(text.tokens);
                piece.images.clear();
                piece.why = format!("left out: {} tokens, more than its budget", text.tokens);
            }
        }
        piece
    }

    /// What a user shows goes where the user's words go.
    fn attached_images(&self, spec: &FragmentSpec, source: &FragmentSource) -> Vec<ImageRef> {
        let (ContextLayer::UserWords, FragmentSource::Message(message)) = (spec.layer, source) else {
            return Vec::new();
        };
        let told =
            self.session().current_turn.iter().flat_map(|turn| &turn.messages).find(|told| told.message == *message);
        told.map(|told| told.images.clone()).unwrap_or_default()
    }

    /// How the prompt relates to the last one of its thread, or for a new thread to the last one of its slot.
    fn prefix_match(
        &self,
        thread: &ThreadUse,
        slot: &ThreadSlot,
        prompt: &RenderedPrompt<'_>,
    ) -> crate::context::PrefixMatch {
        let stood = self.session().threads.get(&thread.thread_id());
        let next = PromptOutline {
            call: CallId(self.session().last_ids.call.0 + 1),
            thread: thread.thread_id(),
            compactions: stood.map_or(0, |thread| thread.compactions),
            carried: prompt.carried,
            opening: stood.map_or_else(|| fragment_texts(prompt.opening).into(), |thread| thread.opening.clone()),
            ask: fragment_texts(prompt.ask).into(),
            ask_status: AskStatus::Unanswered,
            tools: prompt.tools,
        };
        let before = stood.map_or_else(|| self.session().last_prompts.get(slot), |thread| thread.last_prompt.as_ref());
        compare_prefix(before.map(|mark| &**mark), &next)
    }

    /// The fingerprint of everything a model is sent: equal prompts have equal ones, and only those.
    fn prompt_digest(
        &self,
        thread: &ThreadUse,
        prompt: &RenderedPrompt<'_>,
        model: &ModelName,
        reply_tokens_max: u32,
    ) -> BodyId {
        let stood = self.session().threads.get(&thread.thread_id()).map(|thread| thread.digest);
        let opening = fragment_texts(prompt.opening);
        let mut digest = stood.unwrap_or_else(|| Thread::opening_digest(&opening));
        let parts: Vec<TextRef> = fragment_texts(prompt.ask).into_iter().map(|(_, text)| text).collect();
        if !parts.is_empty() {
            let images = prompt.ask.iter().flat_map(|piece| &piece.images).copied().collect();
            digest = digest.chain_hash(ThreadEntry { images, ..ThreadEntry::user_message(CallId(0), parts) }.digest());
        }
        let around = serde_json::to_vec(&(model, prompt.tools, prompt.output, reply_tokens_max)).unwrap_or_default();
        digest.chain_hash(BodyId::hash_bytes(&around))
    }

    /// The tools the role may use in its phase, as JSON.
    fn allowed_tools_json(&self, role: &RoleSpec, visit: Option<&PhaseVisit>) -> Option<String> {
        let spec = self.spec();
        let tools: Vec<&ToolSpec> = role
            .tools
            .iter()
            .filter(|tool| self.is_tool_allowed(visit, tool))
            .filter_map(|tool| spec.tools.get(tool))
            .map(|tool| &tool.spec)
            .collect();
        if tools.is_empty() {
            return None;
        }
        serde_json::to_value(tools).ok().map(|value| canonical_json(&value))
    }

    fn is_tool_allowed(&self, visit: Option<&PhaseVisit>, tool: &ToolName) -> bool {
        let phase = visit.and_then(|visit| self.spec().graphs.get(&visit.graph)?.find_phase(&visit.phase));
        phase.is_none_or(|phase| phase.tools.allows(tool))
    }

    /// What the rules themselves make of an event, before the flow is asked.
    pub fn apply_builtin_rules(&mut self, event: &Event, subject: &EventSubject) {
        match event {
            Event::CallAnswered(answered) => {
                let Some(opened) = &subject.call else { return };
                self.finish_compaction(opened, Some(answered.text));
                for wish in &answered.tool_calls {
                    self.open_requested_tool(opened, wish);
                }
            }
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { next: RetryDecision::GiveUp, .. } => {
                if let Some(opened) = &subject.call {
                    self.finish_compaction(opened, None);
                }
            }
            _ => {}
        }
    }

    fn open_requested_tool(&mut self, opened: &CallOpened, tool_call: &crate::prompt::ToolCall) {
        let role = self.spec().roles.get(&opened.role);
        let visit = self.session().current_visit(self.spec(), &opened.role, opened.agent.as_ref());
        let has = role.is_some_and(|role| role.tools.contains(&tool_call.name));
        let permitted = self.is_tool_allowed(visit.as_ref(), &tool_call.name);
        let run = self.open_tool_run(ToolRunOpened {
            run: ToolRunId(0),
            turn: opened.turn,
            tool: tool_call.name.clone(),
            arguments: tool_call.arguments.clone(),
            requested_by: Some((opened.call, tool_call.id.clone())),
            agent: opened.agent.clone(),
            phase: visit.map(|visit| visit.phase),
        });
        if !has {
            self.close_tool_run(
                run,
                ToolOutcome::Refused,
                format!("there is no tool `{}` for this role", tool_call.name),
            );
        } else if !permitted {
            self.close_tool_run(
                run,
                ToolOutcome::Refused,
                format!("`{}` may not be used in this phase", tool_call.name),
            );
        }
    }

    /// Records a tool run as owed, under the next number.
    pub fn open_tool_run(&mut self, opened: ToolRunOpened) -> ToolRunId {
        let run = ToolRunId(self.session().last_ids.tool_run.0 + 1);
        self.record_event(Event::ToolRunOpened(ToolRunOpened { run, ..opened }));
        run
    }

    /// A tool that the flow runs itself is answered in the same decision, or not at all.
    pub fn fail_unanswered_flow_tools(&mut self) -> bool {
        let mut answered = false;
        for run in std::mem::take(&mut self.opened_tool_runs) {
            let Some(opened) = self.session().open_tool_runs.get(&run) else { continue };
            let runs = self.spec().tools.get(&opened.tool).map_or(ToolRunner::Flow, |tool| tool.runner);
            if runs == ToolRunner::Flow {
                let text = format!("nothing answers to `{}`", opened.tool);
                self.close_tool_run(run, ToolOutcome::Failed, text);
                answered = true;
            }
        }
        answered
    }

    /// Goes on with a call whose tools have all answered.
    pub fn continue_after_tools(&mut self) -> bool {
        let session = self.session();
        let waits = |call: CallId| session.deferred_calls.values().any(|wait| wait.continues == Some(call));
        let complete = session.tool_rounds.iter().find(|(call, round)| round.is_complete() && !waits(**call));
        let Some((call, round)) = complete.map(|(call, round)| (*call, round.clone())) else { return false };
        self.cause_turn = round.turn;
        self.open_or_defer_call(round.request, CallPurpose { follows: Some(call), ..CallPurpose::default() });
        self.drop_unfollowed_tool_round(call);
        true
    }

    fn drop_unfollowed_tool_round(&mut self, call: CallId) {
        let session = self.session();
        let waits = session.deferred_calls.values().any(|wait| wait.continues == Some(call));
        if session.tool_rounds.contains_key(&call) && !waits {
            self.record_event(Event::ToolRoundDropped { call, reason: "no further call may be opened".to_owned() });
        }
    }

    /// Goes on with a call that waited for another.
    pub fn resume_deferred_call(&mut self) -> bool {
        let Some(wait) = self.session().deferred_calls.values().find(|wait| self.can_resume(wait)).cloned() else {
            return false;
        };
        self.cause_turn = wait.turn;
        self.record_event(Event::DeferredCallResumed { deferred_id: wait.deferred_id });
        self.open_or_defer_call(wait.request.clone(), CallPurpose::from_deferred(&wait));
        wait.continues.into_iter().for_each(|call| self.drop_unfollowed_tool_round(call));
        true
    }

    /// Whether what a call waits for is over. Of several that wait for one thread only the first goes on; the others need
    /// no new event to wait for that one.
    fn can_resume(&self, deferred: &CallDeferred) -> bool {
        let session = self.session();
        if session.open_calls.contains_key(&deferred.waits_for_call)
            || session.tool_rounds.contains_key(&deferred.waits_for_call)
        {
            return false;
        }
        let Some(role) = self.spec().roles.get(&deferred.request.role) else { return true };
        let errand = CallPurpose::from_deferred(deferred);
        let bearing = self.resolve_call_target(role, &deferred.request, CallId(session.last_ids.call.0 + 1), errand);
        self.blocking_call(&bearing, errand).is_none()
    }
}

/// The longest answer a role may give in a window: what it asks for, and no more than a quarter.
pub(super) fn reply_tokens_limit(role: &RoleSpec, window: u32) -> u32 {
    role.reply_tokens_max.min(window / 4)
}

/// Tokens of the message that these make.
fn sum_message_tokens(pieces: &[FragmentReceipt]) -> u32 {
    let mut texts = pieces.iter().filter_map(|piece| piece.text).peekable();
    let frame = if texts.peek().is_some() { MESSAGE_OVERHEAD_TOKENS } else { 0 };
    let images: u32 = pieces.iter().map(|piece| estimate_image_tokens(&piece.images)).sum();
    texts.map(|text| text.tokens).sum::<u32>() + images + frame
}

fn fragment_texts(pieces: &[FragmentReceipt]) -> Vec<(FragmentName, TextRef)> {
    pieces.iter().filter_map(|piece| Some((piece.name.clone(), piece.text?))).collect()
}
