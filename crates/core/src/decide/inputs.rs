//! What each input is worth: refused, or recorded.

use super::draft::Draft;
use super::{Command, Input, Refusal, Resolution};
use crate::body::{BodyKind, Picture};
use crate::event::{
    Busy, CallAnswered, CallWish, CountedBy, Event, MessageReceived, Next, Outcome, SessionOpened, ToolOutcome,
};
use crate::ids::{CallId, IdempotencyKey, MessageId, ModelName, TimerId, ToolRunId, TurnId};
use crate::limits::{
    FAILURE_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, IMAGE_BYTES_MAX, IMAGES_PER_MESSAGE_MAX, MESSAGE_BYTES_MAX,
    QUEUED_MESSAGES_MAX, REPLY_BYTES_MAX, RETRY_AFTER_MS_MAX, SEAL_BYTES_MAX, STEP_IN_MS_MIN, TITLE_CHARS_MAX,
    TOOL_ARGUMENTS_BYTES_MAX, TOOL_CALLS_PER_REPLY_MAX, TOOL_RESULT_BYTES_MAX, TOOL_ROUNDS_MAX, TRIES_MAX,
    WINDOW_RESERVE_TOKENS,
};
use crate::phase::guard::Proposer;
use crate::prompt::{Failure, FailureKind, Image, Reply, ToolCall, Usage};
use crate::scope::Slot;
use crate::session::{CallStatus, OpenCall, Waiting};

impl Draft<'_> {
    pub fn take_in(&mut self, input: Input) -> Result<(), Refusal> {
        let is_open = self.session().id.is_some();
        match input {
            Input::Open(_) if is_open => Err(Refusal::AlreadyOpen),
            Input::Open(opened) => {
                self.open(opened);
                Ok(())
            }
            _ if !is_open => Err(Refusal::NotOpen),
            Input::Forked { session, from, at } => {
                self.fork(session, from, at);
                Ok(())
            }
            Input::Message { text, key, busy, images } => self.message(text, key, busy, images),
            Input::Answer { call, attempt, reply, cost_microusd, ms } => {
                self.answer(call, attempt, reply, cost_microusd, ms)
            }
            Input::Failure { call, attempt, failure } => self.failure(call, attempt, failure),
            Input::ToolResult { run, result } => self.tool_result(run, result),
            Input::Tick => {
                self.fire_timers();
                Ok(())
            }
            Input::Recovered => {
                self.recover();
                Ok(())
            }
            Input::Operator(command) => self.command(command),
            Input::Recompute(again) => self.recompute(*again),
        }
    }

    fn open(&mut self, opened: SessionOpened) {
        let title = opened.title.map(|title| shorten(&title));
        self.record(Event::SessionOpened(SessionOpened { title, ..opened }));
    }

    fn message(
        &mut self,
        text: String,
        key: Option<IdempotencyKey>,
        busy: Option<Busy>,
        images: Vec<Image>,
    ) -> Result<(), Refusal> {
        let session = self.session();
        if let Some(key) = &key {
            let bytes = key.as_str().len();
            if bytes > IDEMPOTENCY_KEY_BYTES_MAX {
                return Err(Refusal::KeyTooLong { bytes, most: IDEMPOTENCY_KEY_BYTES_MAX });
            }
            if let Some((_, known)) = session.keys.iter().find(|(known, _)| known == key) {
                self.message = Some(*known);
                return Ok(());
            }
        }
        if let Some(reason) = &session.closed {
            return Err(Refusal::Closed { reason: reason.clone() });
        }
        check_message(&text)?;
        check_images(&images)?;
        let busy = busy.unwrap_or(session.busy);
        let runs = session.turn.is_some();
        if runs && busy == Busy::Reject {
            return Err(Refusal::Busy);
        }
        let waiting = session.queue.len();
        if waiting >= QUEUED_MESSAGES_MAX {
            return Err(Refusal::QueueFull { waiting });
        }
        if runs && busy == Busy::Interrupt {
            self.stop_turn("another message took its place", Outcome::Interrupted);
        }
        let message = MessageId(self.session().last.message.0 + 1);
        if self.session().title.is_empty() {
            self.record(Event::SessionRenamed { title: shorten(&text) });
        }
        let text = self.store(text, BodyKind::Said);
        let images = images.into_iter();
        let images =
            images.map(|image| Picture { body: self.store_body(image.data, BodyKind::Inner), media: image.media });
        let images = images.collect();
        self.record(Event::MessageReceived(MessageReceived { message, text, key, busy, images }));
        self.message = Some(message);
        Ok(())
    }

    /// Begins the next turn, if messages wait and none runs.
    pub fn start_turn(&mut self) -> bool {
        let session = self.session();
        if session.turn.is_some() || session.closed.is_some() {
            return false;
        }
        let Some(first) = session.queue.front() else { return false };
        let joins =
            |place: usize, next: &Waiting| place == 0 || (first.busy == Busy::Coalesce && next.busy == Busy::Coalesce);
        let together = session.queue.iter().enumerate().take_while(|(place, next)| joins(*place, next));
        let messages: Vec<MessageId> = together.map(|(_, waiting)| waiting.message).collect();
        let turn = TurnId(session.last.turn.0 + 1);
        self.record(Event::TurnStarted { turn, messages, again: None });
        true
    }

    fn owed(&self, call: CallId, attempt: u32) -> Result<&OpenCall, Refusal> {
        let open = self.session().calls.get(&call);
        open.filter(|open| open.attempt == attempt)
            .filter(|open| !matches!(open.status, CallStatus::Held | CallStatus::Left(_)))
            .ok_or(Refusal::NotOwed { call, attempt })
    }

    fn answer(
        &mut self,
        call: CallId,
        attempt: u32,
        mut reply: Reply,
        cost: Option<u64>,
        ms: u64,
    ) -> Result<(), Refusal> {
        cut_to(&mut reply.text, REPLY_BYTES_MAX);
        cut_to(&mut reply.reasoning, REPLY_BYTES_MAX);
        if let Some(given_up) = self.session().given_up.iter().find(|given_up| given_up.call == call) {
            let prompt_tokens = given_up.tokens;
            let text = self.store(reply.text, BodyKind::Inner);
            let (usage, counted_by) = used(reply.usage, prompt_tokens, text.tokens);
            self.record(Event::CallAnsweredLate { call, text, usage, counted_by, cost_microusd: cost });
            return Ok(());
        }
        let open = self.owed(call, attempt)?;
        let (opened, round) = (open.opened.clone(), open.round);
        let heard = self.spec().roles.get(&opened.role).is_some_and(|role| role.heard(&opened.ask).is_some())
            && opened.recomputes.is_none();
        if opened.compacts.is_some() || opened.recomputes.is_some() {
            reply.tool_calls.clear();
        }
        if !reply.tool_calls.is_empty() && round >= TOOL_ROUNDS_MAX {
            let why = format!("tools were used for {TOOL_ROUNDS_MAX} rounds already, the most one call may take");
            self.refuse_step("tool calls", why);
            reply.tool_calls.clear();
        }
        reply.tool_calls.truncate(TOOL_CALLS_PER_REPLY_MAX);
        self.leave_out_giants(&mut reply.tool_calls);
        let text = self.store(reply.text, if heard { BodyKind::Said } else { BodyKind::Inner });
        let reasoning = (!reply.reasoning.is_empty()).then(|| self.store(reply.reasoning, BodyKind::Inner));
        let seal = reply.seal.filter(|seal| seal.len() <= SEAL_BYTES_MAX);
        let seal = seal.map(|seal| self.store_body(seal.into(), BodyKind::Inner));
        let said = text.tokens + reasoning.map_or(0, |text| text.tokens);
        let (usage, counted_by) = used(reply.usage, self.session().sent_tokens(&opened), said);
        self.record(Event::CallAnswered(Box::new(CallAnswered {
            call,
            attempt,
            text,
            reasoning,
            tool_calls: reply.tool_calls,
            seal,
            stop: reply.stop,
            usage,
            sent_back: reply.sent_back,
            counted_by,
            cost_microusd: cost,
            ms,
        })));
        Ok(())
    }

    /// Nobody needs a tool call as long as a book, and the journal would keep it for ever.
    fn leave_out_giants(&mut self, wishes: &mut Vec<ToolCall>) {
        wishes.retain(|wish| {
            let bytes = wish.arguments.to_string().len();
            if bytes > TOOL_ARGUMENTS_BYTES_MAX {
                let why = format!("its arguments have {bytes} bytes; at most {TOOL_ARGUMENTS_BYTES_MAX} are taken");
                self.refuse_step(format!("call of tool `{}`", wish.name), why);
            }
            bytes <= TOOL_ARGUMENTS_BYTES_MAX
        });
    }

    fn failure(&mut self, call: CallId, attempt: u32, mut failure: Failure) -> Result<(), Refusal> {
        cut_to(&mut failure.message, FAILURE_BYTES_MAX);
        let given_up = self.session().given_up.iter().find(|given_up| given_up.call == call);
        if given_up.is_some_and(|given_up| given_up.in_flight || failure.spent.is_some()) {
            // Nobody waited for it, and what it took has to be paid; that it took nothing was not known before.
            self.record(Event::CallFailed { call, attempt, failure, next: Next::GiveUp });
            return Ok(());
        }
        let open = self.owed(call, attempt)?.clone();
        let retries = self.spec().roles.get(&open.opened.role).map(|role| role.retries).unwrap_or_default();
        let asked_ms = failure.retry_after_ms.unwrap_or(0);
        let on_model = attempt.saturating_sub(open.on_model_since) + 1;
        let may_try = attempt < TRIES_MAX;
        let tries_left = may_try && on_model < retries.attempts_max;
        let now = Next::Retry { at: self.env.now };
        let steps_in = may_try.then(|| self.steps_in(&open, failure.kind)).flatten();
        let shorter =
            (tries_left && failure.kind == FailureKind::ContextTooLong).then(|| self.shorter(&open)).flatten();
        let patient = failure.kind.is_passing() && tries_left && asked_ms <= RETRY_AFTER_MS_MAX;
        let (next, moves) = match steps_in {
            Some(_) if shorter.is_some() => (now, None),
            Some(to) if !patient || asked_ms > STEP_IN_MS_MIN => (now, Some(to)),
            _ if patient => {
                let wait = retries.wait_ms(on_model + 1, self.env.chance).max(asked_ms);
                (Next::Retry { at: self.env.now.after(wait) }, None)
            }
            _ if shorter.is_some() => (now, None),
            _ => (Next::GiveUp, None),
        };
        self.record(Event::CallFailed { call, attempt, failure, next });
        if let Some((plan, stands)) = shorter {
            self.fold(open.opened.receipt.thread.thread(), &plan, stands);
        }
        if let Some(to) = moves {
            self.record(Event::CallMoved { call, from: open.opened.model.clone(), to });
        }
        Ok(())
    }

    /// The model that may take over a call, if it is the role's own model that cannot answer, and that one can.
    fn steps_in(&self, open: &OpenCall, kind: FailureKind) -> Option<ModelName> {
        let opened = &open.opened;
        let could_another = match kind {
            FailureKind::BadKey
            | FailureKind::NoSuchModel
            | FailureKind::RateLimit
            | FailureKind::Overload
            | FailureKind::Network
            | FailureKind::Timeout
            | FailureKind::Malformed
            | FailureKind::Unusable
            | FailureKind::ContextTooLong => true,
            // It would be asked to do what another would not, or what is wrong everywhere.
            FailureKind::Refused | FailureKind::BadRequest => false,
        };
        if !could_another || open.on_model_since > 1 || opened.recomputes.is_some() {
            return None;
        }
        let flow = &self.spec().name;
        let role = self.spec().roles.get(&opened.role)?;
        let visit = self.session().visit(self.spec(), &opened.role, opened.agent.as_ref());
        // A model that the flow itself asked for is not exchanged behind its back.
        let wish = CallWish { model: None, ..crate::session::wish_of(opened) };
        if self.model_for(role, &wish, visit.as_ref()) != opened.model {
            return None;
        }
        let to = self.env.catalog.fallback_for(flow, &opened.role).filter(|to| *to != opened.model)?;
        let window = self.session().window(&to, self.env.catalog.window_tokens(&to));
        let prompt = self.session().weight(&to).theirs(opened.receipt.tokens);
        let needed = prompt.saturating_add(opened.reply_tokens_max.min(window / 4));
        (needed.saturating_add(WINDOW_RESERVE_TOKENS) <= window).then_some(to)
    }

    fn tool_result(&mut self, run: ToolRunId, result: Result<String, String>) -> Result<(), Refusal> {
        if !self.session().tools.contains_key(&run) {
            return Err(Refusal::ToolNotOwed { run });
        }
        let (outcome, text) = match result {
            Ok(text) => (ToolOutcome::Done, text),
            Err(text) => (ToolOutcome::Failed, text),
        };
        self.close_tool(run, outcome, text);
        Ok(())
    }

    /// Ends a tool run.
    pub fn close_tool(&mut self, run: ToolRunId, outcome: ToolOutcome, mut text: String) {
        cut_to(&mut text, TOOL_RESULT_BYTES_MAX);
        let text = self.store(text, BodyKind::Inner);
        let failed = outcome != ToolOutcome::Done;
        self.record(Event::ToolAnswered { run, outcome, text, failed });
    }

    pub fn fire_timers(&mut self) {
        let now = self.env.now;
        let mut due: Vec<(TimerId, String)> = Vec::new();
        for (timer, running) in self.session().timers.iter().filter(|(_, running)| running.at <= now) {
            due.push((*timer, running.name.clone()));
        }
        for (timer, name) in due {
            self.record(Event::TimerFired { timer, name });
        }
    }

    fn command(&mut self, command: Command) -> Result<(), Refusal> {
        match command {
            Command::Cancel => {
                if self.session().turn.is_none() {
                    return Err(Refusal::NothingRuns);
                }
                self.stop_turn("stopped by hand", Outcome::Cancelled);
                Ok(())
            }
            Command::Retry => {
                if self.session().turn.is_some() {
                    return Err(Refusal::Busy);
                }
                if let Some(reason) = &self.session().closed {
                    return Err(Refusal::Closed { reason: reason.clone() });
                }
                let failed = self.session().failed.as_ref().ok_or(Refusal::NothingFailed)?;
                let messages = failed.messages.iter().map(|waiting| waiting.message).collect();
                let turn = TurnId(self.session().last.turn.0 + 1);
                let again = Some(failed.id);
                self.record(Event::TurnStarted { turn, messages, again });
                Ok(())
            }
            Command::Resolve { call, how } => {
                let open = self.session().calls.get(&call).filter(|open| open.status == CallStatus::Held);
                open.ok_or(Refusal::NotHeld { call })?;
                let next = match how {
                    Resolution::Retry => Next::Retry { at: self.env.now },
                    Resolution::Fail => Next::GiveUp,
                };
                self.record(Event::CallResolved { call, next });
                Ok(())
            }
            Command::Grant { phase, to } => self.grant(phase, &to),
            Command::Propose { phase, to, reason } => self.propose_by_hand(phase, to, reason),
            Command::RollBack { phase, visit } => self.roll_back(phase, visit),
            Command::Forget { role, agent, peer } => {
                if !self.spec().roles.contains_key(&role) {
                    let known: Vec<String> = self.spec().roles.keys().map(|name| format!("`{name}`")).collect();
                    return Err(Refusal::NoSuchRole { role, known: known.join(", ") });
                }
                let slots: Vec<_> = self
                    .session()
                    .slots
                    .keys()
                    .filter(|slot| slot.role == role)
                    .filter(|slot| agent.is_none() || slot.agent == agent)
                    .filter(|slot| peer.is_none() || slot.peer == peer)
                    .map(|slot| Slot::clone(slot))
                    .collect();
                for slot in slots {
                    let reason = "asked for by hand".to_owned();
                    self.record(Event::ThreadReset { slot, by: Proposer::Operator, reason });
                }
                Ok(())
            }
            Command::Rename { title } => {
                self.record(Event::SessionRenamed { title: shorten(&title) });
                Ok(())
            }
            Command::Flow { command, arguments } => self.flow_command(command, arguments),
            Command::Close => {
                self.stop_turn("the session was closed", Outcome::Cancelled);
                if self.session().closed.is_none() {
                    self.record(Event::SessionClosed { reason: "closed by hand".to_owned() });
                }
                Ok(())
            }
        }
    }
}

impl Draft<'_> {
    /// What the flow offers is the flow's to permit; what comes of it is its reaction.
    fn flow_command(&mut self, command: String, arguments: serde_json::Value) -> Result<(), Refusal> {
        if let Some(reason) = &self.session().closed {
            return Err(Refusal::Closed { reason: reason.clone() });
        }
        let Some(known) = self.spec().commands.get(&command) else {
            let names: Vec<String> = self.spec().commands.keys().map(|name| format!("`{name}`")).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Refusal::NoSuchCommand { command, known });
        };
        if let Some(why) = unfit(known, &arguments).or_else(|| super::steps::too_big(&arguments)) {
            return Err(Refusal::Command(format!("`{command}`: {why}")));
        }
        let about = crate::flow::About::default();
        self.rules.permits(self.sight(&about), &command, &arguments).map_err(Refusal::Command)?;
        self.record(Event::Commanded { command, arguments });
        Ok(())
    }
}

/// Why arguments do not fit a command, if they do not.
fn unfit(command: &crate::flow::CommandSpec, arguments: &serde_json::Value) -> Option<String> {
    let given = match arguments {
        serde_json::Value::Null => return None,
        serde_json::Value::Object(given) => given,
        _ => return Some("its arguments must be an object".to_owned()),
    };
    let unknown = given.keys().find(|name| !command.arguments.contains_key(*name))?;
    let known: Vec<String> = command.arguments.keys().map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
    Some(format!("it takes no `{unknown}`; it takes {known}"))
}

/// The vendor's figures where it gave any, else our own.
fn used(vendors: Option<Usage>, prompt_tokens: u32, said_tokens: u32) -> (Usage, CountedBy) {
    let ours = Usage { input: prompt_tokens, output: said_tokens, ..Usage::default() };
    vendors.map_or((ours, CountedBy::Us), |usage| (usage, CountedBy::Vendor))
}

fn check_message(text: &str) -> Result<(), Refusal> {
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(Refusal::MessageTooLong { bytes: text.len(), most: MESSAGE_BYTES_MAX });
    }
    if text.trim().is_empty() {
        return Err(Refusal::EmptyMessage);
    }
    let allowed = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    match text.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        Some((place, c)) => Err(Refusal::ControlCharacter { code: u32::from(c), at: place + 1 }),
        None => Ok(()),
    }
}

fn check_images(images: &[Image]) -> Result<(), Refusal> {
    if images.len() > IMAGES_PER_MESSAGE_MAX {
        return Err(Refusal::TooManyImages { count: images.len(), most: IMAGES_PER_MESSAGE_MAX });
    }
    for (place, image) in images.iter().enumerate() {
        let place = place + 1;
        // Four letters for three bytes.
        let bytes = image.data.len() / 4 * 3;
        if bytes > IMAGE_BYTES_MAX {
            return Err(Refusal::ImageTooBig { place, bytes, most: IMAGE_BYTES_MAX });
        }
        let letters = image.data.trim_end_matches('=');
        let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
        if letters.is_empty() || !letters.bytes().all(allowed) {
            return Err(Refusal::NoImage { place });
        }
    }
    Ok(())
}

/// The first line, at most as long as a title may be.
pub(super) fn shorten(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= TITLE_CHARS_MAX {
        return line;
    }
    let mut short: String = line.chars().take(TITLE_CHARS_MAX - 1).collect();
    short.push('…');
    short
}

fn cut_to(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str(crate::context::CUT_MARK);
    }
}
