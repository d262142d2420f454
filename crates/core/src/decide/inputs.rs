//! Handles each kind of input: refuses it or records events.

use super::draft::DecisionDraft;
use super::{InputRefusal, OperatorCommand, SessionInput, UnknownCallOutcomeResolution};
use crate::body::{BodyVisibility, ImageRef};
use crate::event::{
    CallAnswered, CallRequest, ClientTurnOptions, Event, MidTurnPolicy, RetryDecision, SessionOpened, TurnOutcome,
    UsageSource, UserMessageReceived,
};
use crate::ids::{CallId, IdempotencyKey, MessageId, ModelName, TimerId, TurnId};
use crate::limits::{
    ATTEMPTS_PER_CALL_MAX, FAILURE_MESSAGE_BYTES_MAX, FALLBACK_RETRY_AFTER_MS_MIN, IDEMPOTENCY_KEY_BYTES_MAX,
    IMAGE_BYTES_MAX, IMAGES_PER_MESSAGE_MAX, MESSAGE_BYTES_MAX, QUEUED_MESSAGES_MAX, REPLY_BYTES_MAX,
    RETRY_AFTER_MS_MAX, TITLE_CHARS_MAX, VENDOR_STATE_BYTES_MAX, WINDOW_RESERVE_TOKENS,
};
use crate::phase::guard::PhaseTransitionProposer;
use crate::prompt::{CallFailure, CallFailureKind, ModelReply, PromptImage, TokenUsage};
use crate::scope::ThreadKey;
use crate::session::{OpenCall, OpenCallStatus, QueuedMessage};

impl DecisionDraft<'_> {
    pub(crate) fn handle_input(&mut self, input: SessionInput) -> Result<(), InputRefusal> {
        let is_open = self.session().id.is_some();
        match input {
            SessionInput::Open(_) if is_open => Err(InputRefusal::AlreadyOpen),
            SessionInput::Open(opened) => {
                self.open_session(opened);
                Ok(())
            }
            _ if !is_open => Err(InputRefusal::NotOpen),
            SessionInput::Forked { session, from, at } => {
                self.detach_fork_from_origin(session, from, at);
                Ok(())
            }
            SessionInput::Message { text, idempotency_key, mid_turn_policy, images } => {
                self.receive_message(text, idempotency_key, mid_turn_policy, images, &ClientTurnOptions::default())
            }
            SessionInput::ClientMessage { text, idempotency_key, images, options } => {
                self.receive_message(text, idempotency_key, None, images, &options)
            }
            SessionInput::Answer { call, attempt, reply, cost_microusd, duration_ms } => {
                self.handle_answer(call, attempt, reply, cost_microusd, duration_ms)
            }
            SessionInput::CallFailure { call, attempt, failure } => self.handle_failure(call, attempt, failure),
            SessionInput::ToolResult { run, result } => self.handle_tool_result(run, result),
            SessionInput::Tick => {
                self.fire_due_timers();
                self.end_overdue_waits();
                Ok(())
            }
            SessionInput::Recovered => {
                self.recover_from_crash();
                Ok(())
            }
            SessionInput::Operator(command) => self.handle_command(command),
            SessionInput::Recompute(recomputation) => self.open_recomputation(*recomputation),
            SessionInput::Submitted { id, sender, content } => {
                self.handle_submission(id, sender.as_ref(), content);
                Ok(())
            }
        }
    }

    fn open_session(&mut self, opened: SessionOpened) {
        let title = opened.title.map(|title| shorten_to_title(&title));
        self.record_event(Event::SessionOpened(SessionOpened { title, ..opened }));
    }

    pub(super) fn receive_message(
        &mut self,
        text: String,
        idempotency_key: Option<IdempotencyKey>,
        mid_turn_policy: Option<MidTurnPolicy>,
        images: Vec<PromptImage>,
        options: &ClientTurnOptions,
    ) -> Result<(), InputRefusal> {
        let session = self.session();
        if let Some(key) = &idempotency_key {
            let bytes = key.as_str().len();
            if bytes > IDEMPOTENCY_KEY_BYTES_MAX {
                return Err(InputRefusal::IdempotencyKeyTooLong { bytes, most: IDEMPOTENCY_KEY_BYTES_MAX });
            }
            if let Some((_, known)) = session.recent_idempotency_keys.iter().find(|(known, _)| known == key) {
                self.message = Some(*known);
                return Ok(());
            }
        }
        if let Some(reason) = &session.closed_reason {
            return Err(InputRefusal::Closed { reason: reason.clone() });
        }
        check_message(&text)?;
        check_images(&images)?;
        self.check_turn_options(options)?;
        let policy = mid_turn_policy.unwrap_or(session.mid_turn_policy);
        let turn_is_running = session.current_turn.is_some();
        if turn_is_running && policy == MidTurnPolicy::Reject {
            return Err(InputRefusal::Busy);
        }
        let waiting = session.queued_messages.len();
        if waiting >= QUEUED_MESSAGES_MAX {
            return Err(InputRefusal::QueueFull { waiting });
        }
        if turn_is_running && policy == MidTurnPolicy::Interrupt {
            self.stop_turn("interrupted by another message", TurnOutcome::Interrupted);
        }
        let message = MessageId(self.session().last_ids.message.0 + 1);
        if self.session().title.is_empty() {
            self.record_event(Event::SessionRenamed { title: shorten_to_title(&text) });
        }
        let text = self.store_text(text, BodyVisibility::Conversation);
        let images = images.into_iter();
        let images = images.map(|image| ImageRef {
            body: self.store_uncounted_text(image.data, BodyVisibility::Internal),
            media_type: image.media_type,
        });
        let images = images.collect();
        let options = self.store_turn_options(options);
        self.record_event(Event::UserMessageReceived(UserMessageReceived {
            message,
            text,
            idempotency_key,
            mid_turn_policy: policy,
            images,
            options,
        }));
        self.message = Some(message);
        Ok(())
    }

    /// Starts the next turn, if there are queued messages and no turn is running.
    pub(crate) fn start_turn(&mut self) -> bool {
        let session = self.session();
        if session.current_turn.is_some() || session.closed_reason.is_some() {
            return false;
        }
        let Some(first) = session.queued_messages.front() else { return false };
        let joins = |index: usize, next: &QueuedMessage| {
            index == 0
                || (first.mid_turn_policy == MidTurnPolicy::Coalesce && next.mid_turn_policy == MidTurnPolicy::Coalesce)
        };
        let together = session.queued_messages.iter().enumerate().take_while(|(index, next)| joins(*index, next));
        let messages: Vec<MessageId> = together.map(|(_, waiting)| waiting.message).collect();
        let turn = TurnId(session.last_ids.turn.0 + 1);
        self.record_event(Event::TurnStarted { turn, messages, retry_of: None });
        true
    }

    /// Starts a turn that answers no message.
    pub(crate) fn start_turn_without_message(&mut self) {
        let turn = TurnId(self.session().last_ids.turn.0 + 1);
        self.record_event(Event::TurnStarted { turn, messages: Vec::new(), retry_of: None });
    }

    fn pending_call(&self, call: CallId, attempt: u32) -> Result<&OpenCall, InputRefusal> {
        let open = self.session().open_calls.get(&call);
        open.filter(|open| open.attempt == attempt)
            .filter(|open| !matches!(open.status, OpenCallStatus::AwaitingOperator | OpenCallStatus::Inherited(_)))
            .ok_or(InputRefusal::CallNotPending { call, attempt })
    }

    fn handle_answer(
        &mut self,
        call: CallId,
        attempt: u32,
        mut reply: ModelReply,
        cost: Option<u64>,
        duration_ms: u64,
    ) -> Result<(), InputRefusal> {
        truncate_to_bytes(&mut reply.text, REPLY_BYTES_MAX);
        truncate_to_bytes(&mut reply.reasoning, REPLY_BYTES_MAX);
        if let Some(abandoned) = self.session().abandoned_calls.iter().find(|abandoned| abandoned.call == call) {
            let prompt_tokens = abandoned.prompt_tokens;
            let text = self.store_text(reply.text, BodyVisibility::Internal);
            let (usage, usage_source) = choose_usage(reply.usage, prompt_tokens, text.tokens);
            self.record_event(Event::CallAnsweredLate { call, text, usage, usage_source, cost_microusd: cost });
            return Ok(());
        }
        let open = self.pending_call(call, attempt)?;
        let (opened, round) = (open.opened.clone(), open.tool_round);
        let visible = self.spec().roles.get(&opened.role).is_some_and(|role| role.hidden_blocks(&opened.ask).is_some())
            && opened.recomputation.is_none();
        if opened.compacts_thread.is_some() || opened.recomputation.is_some() {
            reply.tool_calls.clear();
        }
        self.drop_tool_calls_beyond_limits(&opened, round, &mut reply.tool_calls);
        self.drop_oversized_tool_calls(&mut reply.tool_calls);
        let text =
            self.store_text(reply.text, if visible { BodyVisibility::Conversation } else { BodyVisibility::Internal });
        let reasoning =
            (!reply.reasoning.is_empty()).then(|| self.store_text(reply.reasoning, BodyVisibility::Internal));
        let vendor_state = reply.vendor_state.filter(|state| state.len() <= VENDOR_STATE_BYTES_MAX);
        let vendor_state = vendor_state.map(|state| self.store_uncounted_text(state.into(), BodyVisibility::Internal));
        let reply_tokens = text.tokens + reasoning.map_or(0, |text| text.tokens);
        let (usage, usage_source) =
            choose_usage(reply.usage, self.session().current_prompt_tokens(&opened), reply_tokens);
        self.record_event(Event::CallAnswered(Box::new(CallAnswered {
            call,
            attempt,
            text,
            reasoning,
            tool_calls: reply.tool_calls,
            vendor_state,
            stop_reason: reply.stop_reason,
            usage,
            rejected_usage: reply.rejected_usage,
            usage_source,
            cost_microusd: cost,
            duration_ms,
        })));
        Ok(())
    }

    fn handle_failure(&mut self, call: CallId, attempt: u32, mut failure: CallFailure) -> Result<(), InputRefusal> {
        truncate_to_bytes(&mut failure.message, FAILURE_MESSAGE_BYTES_MAX);
        let abandoned = self.session().abandoned_calls.iter().find(|abandoned| abandoned.call == call);
        if abandoned.is_some_and(|abandoned| abandoned.in_flight || failure.cost.is_some()) {
            // The call was abandoned, but its cost and its end were not known yet.
            self.record_event(Event::CallFailed { call, attempt, failure, next: RetryDecision::GiveUp });
            return Ok(());
        }
        let open = self.pending_call(call, attempt)?.clone();
        let retry_policy = self.spec().roles.get(&open.opened.role).map(|role| role.retry_policy).unwrap_or_default();
        let requested_wait_ms = failure.retry_after_ms.unwrap_or(0);
        let attempts_on_model = attempt.saturating_sub(open.model_first_attempt) + 1;
        let attempt_allowed = attempt < ATTEMPTS_PER_CALL_MAX;
        let attempts_left = attempt_allowed && attempts_on_model < retry_policy.attempts_max;
        let now = RetryDecision::Retry { at: self.env.now };
        let fallback = attempt_allowed.then(|| self.find_fallback_model(&open, failure.kind)).flatten();
        let shorter = (attempts_left && failure.kind == CallFailureKind::ContextTooLong)
            .then(|| self.plan_shorter_thread(&open))
            .flatten();
        let may_retry = failure.kind.is_transient() && attempts_left && requested_wait_ms <= RETRY_AFTER_MS_MAX;
        let (next, failover) = match fallback {
            Some(_) if shorter.is_some() => (now, None),
            Some(to) if !may_retry || requested_wait_ms > FALLBACK_RETRY_AFTER_MS_MIN => (now, Some(to)),
            _ if may_retry => {
                let wait = retry_policy.backoff_delay_ms(attempts_on_model + 1, self.env.random).max(requested_wait_ms);
                (RetryDecision::Retry { at: self.env.now.plus_ms(wait) }, None)
            }
            _ if shorter.is_some() => (now, None),
            _ => (RetryDecision::GiveUp, None),
        };
        self.record_event(Event::CallFailed { call, attempt, failure, next });
        if let Some((plan, replacement)) = shorter {
            self.replace_folded_messages(open.opened.receipt.thread.thread_id(), &plan, replacement);
        }
        if let Some(to) = failover {
            self.record_event(Event::CallFailedOver { call, from: open.opened.model.clone(), to });
        }
        Ok(())
    }

    /// Returns the fallback model for a failed call, if the call uses the role's configured model and its prompt fits
    /// the fallback's window.
    fn find_fallback_model(&self, open: &OpenCall, kind: CallFailureKind) -> Option<ModelName> {
        let opened = &open.opened;
        let may_fail_over = match kind {
            CallFailureKind::InvalidApiKey
            | CallFailureKind::ModelNotFound
            | CallFailureKind::RateLimit
            | CallFailureKind::Overload
            | CallFailureKind::Network
            | CallFailureKind::Timeout
            | CallFailureKind::MalformedReply
            | CallFailureKind::UnusableReply
            | CallFailureKind::ContextTooLong => true,
            // The prompt was refused or is invalid, and another model would not change that.
            CallFailureKind::Refused | CallFailureKind::BadRequest | CallFailureKind::NotAllowed => false,
        };
        if !may_fail_over || open.model_first_attempt > 1 || opened.recomputation.is_some() {
            return None;
        }
        let flow = &self.spec().name;
        let role = self.spec().roles.get(&opened.role)?;
        let visit = self.session().current_visit(self.spec(), &opened.role, opened.agent.as_ref());
        // A model that the flow requested explicitly is not replaced.
        let request = CallRequest { model: None, ..crate::session::to_call_request(opened) };
        if self.choose_model(role, &request, visit.as_ref()) != opened.model {
            return None;
        }
        let to = self.env.model_selector.fallback_model(flow, &opened.role).filter(|to| *to != opened.model)?;
        let window = self.session().effective_window(&to, self.env.model_selector.context_window_tokens(&to));
        let prompt = self.session().token_ratio(&to).to_vendor_tokens(opened.receipt.tokens);
        let needed = prompt.saturating_add(opened.reply_tokens_max.min(window / 4));
        (needed.saturating_add(WINDOW_RESERVE_TOKENS) <= window).then_some(to)
    }

    pub(crate) fn fire_due_timers(&mut self) {
        let now = self.env.now;
        let mut due: Vec<(TimerId, String)> = Vec::new();
        for (timer, running) in self.session().timers.iter().filter(|(_, running)| running.fires_at <= now) {
            due.push((*timer, running.name.clone()));
        }
        for (timer, name) in due {
            self.record_event(Event::TimerFired { timer, name });
        }
    }

    pub(super) fn handle_command(&mut self, command: OperatorCommand) -> Result<(), InputRefusal> {
        match command {
            OperatorCommand::Cancel { turn } => {
                let current = self.session().current_turn.as_ref().ok_or(InputRefusal::NoTurnRunning)?.id;
                check_named_turn(turn, current)?;
                self.stop_turn("cancelled on request", TurnOutcome::Cancelled);
                Ok(())
            }
            OperatorCommand::Retry { turn: named } => {
                if self.session().current_turn.is_some() {
                    return Err(InputRefusal::Busy);
                }
                if let Some(reason) = &self.session().closed_reason {
                    return Err(InputRefusal::Closed { reason: reason.clone() });
                }
                let failed = self.session().failed_turn.as_ref().ok_or(InputRefusal::LastTurnNotFailed)?;
                check_named_turn(named, failed.id)?;
                let messages = failed.messages.iter().map(|waiting| waiting.message).collect();
                let turn = TurnId(self.session().last_ids.turn.0 + 1);
                let retry_of = Some(failed.id);
                self.record_event(Event::TurnStarted { turn, messages, retry_of });
                Ok(())
            }
            OperatorCommand::Resolve { call, resolution } => {
                let open =
                    self.session().open_calls.get(&call).filter(|open| open.status == OpenCallStatus::AwaitingOperator);
                open.ok_or(InputRefusal::NoResolutionNeeded { call })?;
                let next = match resolution {
                    UnknownCallOutcomeResolution::Retry => RetryDecision::Retry { at: self.env.now },
                    UnknownCallOutcomeResolution::Fail => RetryDecision::GiveUp,
                };
                self.record_event(Event::CallResolved { call, next });
                Ok(())
            }
            OperatorCommand::Approve { run, arguments, remember, by } => {
                self.approve_tool_run(run, arguments, remember, by)
            }
            OperatorCommand::Deny { run, reason } => self.deny_tool_run(run, reason),
            OperatorCommand::ResolveToolRun { run, resolution, text } => self.resolve_tool_run(run, resolution, text),
            OperatorCommand::ProvideToolResults { results, options } => self.receive_client_results(results, &options),
            OperatorCommand::Grant { phase, to } => self.grant_skip(phase, &to),
            OperatorCommand::Propose { phase, to, reason } => self.propose_phase_as_user(phase, to, reason),
            OperatorCommand::RollBack { phase, visit } => self.roll_back_phase(phase, visit),
            OperatorCommand::Forget { role, agent, peer } => {
                if !self.spec().roles.contains_key(&role) {
                    let known: Vec<String> = self.spec().roles.keys().map(|name| format!("`{name}`")).collect();
                    return Err(InputRefusal::NoSuchRole { role, known: known.join(", ") });
                }
                let slots: Vec<_> = self
                    .session()
                    .thread_by_slot
                    .keys()
                    .filter(|slot| slot.role == role)
                    .filter(|slot| agent.is_none() || slot.agent == agent)
                    .filter(|slot| peer.is_none() || slot.peer == peer)
                    .map(|slot| ThreadKey::clone(slot))
                    .collect();
                for slot in slots {
                    let reason = "reset on request".to_owned();
                    self.record_event(Event::ThreadReset { slot, by: PhaseTransitionProposer::Operator, reason });
                }
                Ok(())
            }
            OperatorCommand::Rename { title } => {
                self.record_event(Event::SessionRenamed { title: shorten_to_title(&title) });
                Ok(())
            }
            OperatorCommand::Flow { command, arguments } => self.handle_flow_command(command, arguments),
            OperatorCommand::Close => {
                self.stop_turn("the session was closed", TurnOutcome::Cancelled);
                if self.session().closed_reason.is_none() {
                    self.record_event(Event::SessionClosed { reason: "closed on request".to_owned() });
                }
                Ok(())
            }
        }
    }
}

impl DecisionDraft<'_> {
    /// Runs a command of the flow, if the flow permits it. The flow then reacts to the event.
    fn handle_flow_command(&mut self, command: String, arguments: serde_json::Value) -> Result<(), InputRefusal> {
        if let Some(reason) = &self.session().closed_reason {
            return Err(InputRefusal::Closed { reason: reason.clone() });
        }
        let Some(known) = self.spec().commands.get(&command) else {
            let names: Vec<String> = self.spec().commands.keys().map(|name| format!("`{name}`")).collect();
            let known =
                if names.is_empty() { "it has no commands".to_owned() } else { format!("it has {}", names.join(", ")) };
            return Err(InputRefusal::NoSuchCommand { command, known });
        };
        if let Some(why) =
            command_argument_error(known, &arguments).or_else(|| super::steps::json_size_error(&arguments))
        {
            return Err(InputRefusal::FlowCommandRefused(format!("`{command}`: {why}")));
        }
        let subject = crate::flow::EventSubject::default();
        self.flow
            .check_command(self.flow_context(&subject), &command, &arguments)
            .map_err(InputRefusal::FlowCommandRefused)?;
        self.record_event(Event::CommandIssued { command, arguments });
        Ok(())
    }
}

/// Refuses a command that names another turn than the current one.
fn check_named_turn(named: Option<TurnId>, current: TurnId) -> Result<(), InputRefusal> {
    match named {
        Some(named) if named != current => Err(InputRefusal::StaleTurn { named, current }),
        Some(_) | None => Ok(()),
    }
}

/// Returns why the arguments do not fit a command, if they do not.
fn command_argument_error(command: &crate::flow::FlowCommandSpec, arguments: &serde_json::Value) -> Option<String> {
    let given = match arguments {
        serde_json::Value::Null => return None,
        serde_json::Value::Object(given) => given,
        _ => return Some("its arguments must be an object".to_owned()),
    };
    let unknown = given.keys().find(|name| !command.arguments.contains_key(*name))?;
    let known: Vec<String> = command.arguments.keys().map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "no arguments".to_owned() } else { known.join(", ") };
    Some(format!("`{unknown}` is not an argument; it takes {known}"))
}

/// Returns the vendor's token counts, or our own if there are none.
fn choose_usage(vendors: Option<TokenUsage>, prompt_tokens: u32, reply_tokens: u32) -> (TokenUsage, UsageSource) {
    let ours = TokenUsage { input_tokens: prompt_tokens, output_tokens: reply_tokens, ..TokenUsage::default() };
    vendors.map_or((ours, UsageSource::Estimated), |usage| (usage, UsageSource::Vendor))
}

fn check_message(text: &str) -> Result<(), InputRefusal> {
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(InputRefusal::MessageTooLong { bytes: text.len(), most: MESSAGE_BYTES_MAX });
    }
    if text.trim().is_empty() {
        return Err(InputRefusal::EmptyMessage);
    }
    let allowed = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    match text.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        Some((index, c)) => Err(InputRefusal::ControlCharacter { code: u32::from(c), position: index + 1 }),
        None => Ok(()),
    }
}

fn check_images(images: &[PromptImage]) -> Result<(), InputRefusal> {
    if images.len() > IMAGES_PER_MESSAGE_MAX {
        return Err(InputRefusal::TooManyImages { count: images.len(), most: IMAGES_PER_MESSAGE_MAX });
    }
    for (index, image) in images.iter().enumerate() {
        let number = index + 1;
        // Base64 has four characters for three bytes.
        let bytes = image.data.len() / 4 * 3;
        if bytes > IMAGE_BYTES_MAX {
            return Err(InputRefusal::ImageTooBig { number, bytes, most: IMAGE_BYTES_MAX });
        }
        let digits = image.data.trim_end_matches('=');
        let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
        if digits.is_empty() || !digits.bytes().all(allowed) {
            return Err(InputRefusal::InvalidImage { number });
        }
    }
    Ok(())
}

/// Returns the first line, shortened to the length of a title.
pub(super) fn shorten_to_title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= TITLE_CHARS_MAX {
        return line;
    }
    let mut short: String = line.chars().take(TITLE_CHARS_MAX - 1).collect();
    short.push('…');
    short
}

pub(super) fn truncate_to_bytes(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str(crate::context::CUT_MARK);
    }
}
