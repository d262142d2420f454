//! Follows a session while its turn runs: prints the reply as it streams in, and collects the replies and the outcome
//! of each call. Used by commands; the interactive chat has its own display.

mod live_reply;
mod progress_line;

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::event::{Event, RecordedEvent, RetryDecision, TurnOutcome, UsageSource};
use segue_core::ids::{CallId, MessageId, ModelName, RoleName, Seq, SessionId, ToolRunId, TurnId, UnixMillis};
use segue_core::prompt::{StopReason, TokenUsage};
use segue_core::session::{Session, UsageTotals};
use segue_engine::{Engine, SessionSubscription, SessionUpdate};

use crate::limits::EVENTS_BATCH_MAX;
use crate::print::{self, stderr_paint};
use crate::progress_text::{ProgressCallGroups, render_progress};
use crate::terminal::now_millis;
use crate::tool_run_lines::ToolRunLineBuilder;
use live_reply::LiveReplyPrinter;
pub(crate) use progress_line::ProgressLine;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// What is printed while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiveTurnOutputMode {
    /// Replies while they stream in, and the tool runs of agents on standard error.
    Stdout,
    /// Only the tool runs of agents, on standard error.
    Off,
    /// Nothing: the result is printed as JSON.
    Json,
}

/// A call of a followed turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowedCall {
    pub call: CallId,
    pub turn: Option<TurnId>,
    pub role: RoleName,
    pub model: ModelName,
    pub outcome: FollowedCallOutcome,
    /// The usage of attempts without a usable answer: failed, of unknown outcome, or answered too late.
    pub lost_attempts: UsageTotals,
}

impl FollowedCall {
    /// Records that a call which was cancelled in flight has a known outcome after all.
    fn mark_outcome_known(&mut self) {
        if let FollowedCallOutcome::Cancelled { in_flight, .. } = &mut self.outcome
            && std::mem::take(in_flight)
        {
            self.lost_attempts.unknown_attempts = self.lost_attempts.unknown_attempts.saturating_sub(1);
        }
    }

    /// Returns a warning if the answer is incomplete.
    pub(crate) fn truncation_warning(&self) -> Option<String> {
        let FollowedCallOutcome::Answered { stop_reason, usage, .. } = &self.outcome else { return None };
        answer_truncation_warning(&self.role, *stop_reason, usage.output_tokens)
    }
}

/// Returns a warning if an answer with this stop reason is incomplete.
pub(crate) fn answer_truncation_warning(
    role: &RoleName,
    stop_reason: StopReason,
    output_tokens: u32,
) -> Option<String> {
    match stop_reason {
        StopReason::Done | StopReason::ToolCalls => None,
        StopReason::Length => Some(format!("the answer of {role} was cut off at its limit of {output_tokens} tokens")),
        StopReason::ContentFilter => Some(format!("the vendor's content filter cut off the answer of {role}")),
        StopReason::Repetition => Some(format!("the answer of {role} repeated itself without end and was cut off")),
    }
}

/// The outcome of a call, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FollowedCallOutcome {
    Open,
    Answered {
        usage: TokenUsage,
        usage_source: UsageSource,
        cost_microusd: Option<u64>,
        duration_ms: u64,
        stop_reason: StopReason,
    },
    /// The reason of the last failure.
    Failed(String),
    Cancelled {
        reason: String,
        /// Whether the call was in flight and its outcome is still unknown.
        in_flight: bool,
    },
}

/// A turn that ended while it was followed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowedTurnResult {
    pub turn: TurnId,
    pub outcome: TurnOutcome,
    /// The replies to the user, in order.
    pub replies: Vec<String>,
    pub calls: Vec<FollowedCall>,
}

/// Why following a session ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SessionFollowOutcome {
    TurnFinished(FollowedTurnResult),
    /// An operator must decide about this call first.
    AwaitingOperator(CallId),
    /// A person must decide about this tool run first.
    AwaitingToolDecision(ToolRunId),
    /// The user pressed Ctrl-C while this turn, if any, was running.
    Interrupted(Option<TurnId>),
}

/// Follows the updates of one session.
#[derive(Debug)]
pub(crate) struct SessionFollower<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    updates: SessionSubscription,
    calls: BTreeMap<CallId, FollowedCall>,
    replies: Vec<String>,
    live: LiveTurnOutputMode,
    live_reply: LiveReplyPrinter,
    tool_runs: ToolRunLineBuilder,
    /// The lines of tool runs that ended while a reply was streaming in.
    waiting_lines: Vec<String>,
    progress: ProgressLine,
    call_groups: ProgressCallGroups,
    started_at: UnixMillis,
    frame: usize,
    /// Whether the warning about failing writes was printed.
    has_warned: bool,
}

impl<'e> SessionFollower<'e> {
    /// Subscribes to the session, beginning with the event after `after`.
    pub(crate) async fn start_after(
        engine: &'e Engine,
        session: &'e SessionId,
        after: Seq,
        live: LiveTurnOutputMode,
    ) -> anyhow::Result<Self> {
        let updates = engine.subscribe(session, after).await?;
        Ok(Self {
            engine,
            session,
            updates,
            calls: BTreeMap::new(),
            replies: Vec::new(),
            live,
            live_reply: LiveReplyPrinter::new(live),
            tool_runs: ToolRunLineBuilder::default(),
            waiting_lines: Vec::new(),
            progress: ProgressLine::new(),
            call_groups: ProgressCallGroups::default(),
            started_at: now_millis(),
            frame: 0,
            has_warned: false,
        })
    }

    /// Follows the session until the turn that answers `message` has ended.
    pub(crate) async fn follow_message(mut self, message: MessageId) -> anyhow::Result<SessionFollowOutcome> {
        let (mut message_turn, mut has_held_runs) = (None, false);
        loop {
            let Some(update) = self.next_update().await? else {
                return Ok(SessionFollowOutcome::Interrupted(message_turn));
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, text, .. } => {
                    let turn = self.calls.get(&call).and_then(|row| row.turn);
                    if turn.is_some() && turn == message_turn {
                        self.progress.clear();
                        print::write_stdout(&self.live_reply.push_chunk(call, attempt, &text))?;
                    }
                }
                SessionUpdate::ToolProgress { run, text } => self.call_groups.apply_tool_progress(run, &text),
                SessionUpdate::Event(event) => {
                    self.track_calls(&event);
                    match &event.event {
                        Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => {
                            message_turn = Some(*turn);
                        }
                        Event::ReplySent(reply) if reply.turn.is_some() && reply.turn == message_turn => {
                            self.print_reply(reply.call, reply.text.body).await?;
                        }
                        Event::TurnEnded { turn, outcome } if Some(*turn) == message_turn => {
                            if !self.is_message_retried(message).await? {
                                return self.finish_turn(*turn, outcome.clone());
                            }
                            self.replies.clear();
                        }
                        Event::CallOutcomeUnknown { call, next: RetryDecision::AwaitOperator, .. }
                            if self.is_awaiting_operator(*call).await? =>
                        {
                            return Ok(SessionFollowOutcome::AwaitingOperator(*call));
                        }
                        _ => {}
                    }
                    // A run may be held long before everything else has ended.
                    has_held_runs |= matches!(event.event, Event::ToolRunHeld { .. });
                    if has_held_runs && may_leave_session_at_rest(&event.event) {
                        let (_, state) = self.engine.load_session(self.session).await?;
                        if let Some(run) = blocking_tool_run(&state.session) {
                            self.progress.clear();
                            return Ok(SessionFollowOutcome::AwaitingToolDecision(run));
                        }
                    }
                }
            }
        }
    }

    /// Whether the journal already has a later turn that retries the same message.
    async fn is_message_retried(&self, message: MessageId) -> anyhow::Result<bool> {
        let mut after = self.updates.last_seq();
        loop {
            let events = self.engine.read_events(self.session, after, EVENTS_BATCH_MAX).await?;
            let Some(last) = events.last() else { return Ok(false) };
            after = last.seq;
            let answers = |event: &RecordedEvent| matches!(&event.event, Event::TurnStarted { messages, .. } if messages.contains(&message));
            if events.iter().any(answers) {
                return Ok(true);
            }
        }
    }

    /// Whether an operator must still decide about a call.
    async fn is_awaiting_operator(&self, call: CallId) -> anyhow::Result<bool> {
        let (_, state) = self.engine.load_session(self.session).await?;
        Ok(state.session.calls_awaiting_operator().any(|(waiting, _)| *waiting == call))
    }

    /// Follows the session until no work is pending, and collects every reply.
    pub(crate) async fn follow_until_idle(mut self) -> anyhow::Result<SessionFollowOutcome> {
        let mut last_turn = None;
        loop {
            let (_, state) = self.engine.load_session(self.session).await?;
            if let Some(call) = blocking_call(&state.session) {
                return Ok(SessionFollowOutcome::AwaitingOperator(call));
            }
            if let Some(run) = blocking_tool_run(&state.session) {
                self.progress.clear();
                return Ok(SessionFollowOutcome::AwaitingToolDecision(run));
            }
            let is_caught_up = self.updates.last_seq() >= state.session.last_seq;
            if state.session.is_idle() && is_caught_up {
                let (turn, outcome) = last_turn.unwrap_or((state.session.last_ids.turn, TurnOutcome::Done));
                return self.finish_turn(turn, outcome);
            }
            let Some(update) = self.next_update().await? else {
                return Ok(SessionFollowOutcome::Interrupted(state.session.current_turn.as_ref().map(|turn| turn.id)));
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, text, .. } => {
                    self.progress.clear();
                    print::write_stdout(&self.live_reply.push_chunk(call, attempt, &text))?;
                }
                SessionUpdate::ToolProgress { run, text } => self.call_groups.apply_tool_progress(run, &text),
                SessionUpdate::Event(event) => {
                    self.track_calls(&event);
                    match &event.event {
                        Event::ReplySent(reply) => self.print_reply(reply.call, reply.text.body).await?,
                        Event::TurnEnded { turn, outcome } => last_turn = Some((*turn, outcome.clone())),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Returns the next update, or `None` after Ctrl-C.
    async fn next_update(&mut self) -> anyhow::Result<Option<SessionUpdate>> {
        loop {
            let interrupt = tokio::signal::ctrl_c();
            tokio::select! {
                biased;
                update = self.updates.next_update() => return Ok(Some(update?)),
                _ = interrupt => {
                    self.progress.clear();
                    print::write_stdout(&self.live_reply.abandon_reply())?;
                    return Ok(None);
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    if let Some(error) = self.engine.pending_write_error(self.session).filter(|_| !self.has_warned) {
                        self.has_warned = true;
                        self.progress.clear();
                        print::write_stderr_line(&write_failure_message(&error));
                    }
                    if self.progress.is_enabled() && !self.live_reply.is_streaming() {
                        let (_, state) = self.engine.load_session(self.session).await?;
                        self.frame = self.frame.wrapping_add(1);
                        self.progress.show(&render_progress(&state.session, &self.call_groups, self.started_at, now_millis(), self.frame));
                    }
                }
            }
        }
    }

    async fn print_reply(&mut self, call: Option<CallId>, body: segue_core::body::BodyId) -> anyhow::Result<()> {
        let text: String = self.engine.read_texts(self.session, &[body]).await?.concat();
        self.progress.clear();
        print::write_stdout(&self.live_reply.finish_reply(call, &text))?;
        self.replies.push(text);
        self.print_tool_lines();
        Ok(())
    }

    /// Prints the lines of tool runs that have ended, unless a reply is streaming in.
    fn print_tool_lines(&mut self) {
        if self.waiting_lines.is_empty() || self.live_reply.is_streaming() {
            return;
        }
        self.progress.clear();
        for line in self.waiting_lines.drain(..) {
            print::write_stderr_line(&stderr_paint().dim(line));
        }
    }

    fn finish_turn(mut self, turn: TurnId, outcome: TurnOutcome) -> anyhow::Result<SessionFollowOutcome> {
        self.progress.clear();
        print::write_stdout(&self.live_reply.abandon_reply())?;
        self.print_tool_lines();
        let calls = self.calls.into_values().filter(|call| call.turn == Some(turn)).collect();
        Ok(SessionFollowOutcome::TurnFinished(FollowedTurnResult { turn, outcome, replies: self.replies, calls }))
    }

    /// Updates the calls with an event.
    fn track_calls(&mut self, event: &RecordedEvent) {
        self.call_groups.apply_event(&event.event);
        if let Event::CallOpened(opened) = &event.event {
            let call = FollowedCall {
                call: opened.call,
                turn: opened.turn,
                role: opened.role.clone(),
                model: opened.model.clone(),
                outcome: FollowedCallOutcome::Open,
                lost_attempts: UsageTotals::default(),
            };
            self.calls.insert(opened.call, call);
        }
        update_followed_calls(&event.event, &mut self.calls);
        let line = self.tool_runs.apply_event(event);
        self.waiting_lines.extend(line.filter(|_| self.live != LiveTurnOutputMode::Json));
        self.print_tool_lines();
    }
}

/// Returns the warning for a user who waits while writes to the store fail.
pub(crate) fn write_failure_message(error: &segue_engine::Error) -> String {
    format!("the journal cannot be written: {error}; still retrying (Ctrl-C gives up)")
}

/// Applies an event to the call it concerns.
fn update_followed_calls(event: &Event, calls: &mut BTreeMap<CallId, FollowedCall>) {
    let mut change = |call: &CallId, change: &dyn Fn(&mut FollowedCall)| {
        if let Some(row) = calls.get_mut(call) {
            change(row);
        }
    };
    match event {
        Event::CallAnswered(answered) => change(&answered.call, &|row| {
            row.outcome = FollowedCallOutcome::Answered {
                usage: answered.usage,
                usage_source: answered.usage_source,
                cost_microusd: answered.cost_microusd,
                duration_ms: answered.duration_ms,
                stop_reason: answered.stop_reason,
            };
        }),
        Event::CallFailed { call, failure, next, .. } => change(call, &|row| {
            row.mark_outcome_known();
            row.lost_attempts.record_call_event(event);
            if *next == RetryDecision::GiveUp && row.outcome == FollowedCallOutcome::Open {
                row.outcome = FollowedCallOutcome::Failed(failure.to_string());
            }
        }),
        Event::CallOutcomeUnknown { call, next, .. } => change(call, &|row| {
            row.lost_attempts.unknown_attempts += 1;
            if *next == RetryDecision::GiveUp {
                row.outcome = FollowedCallOutcome::Failed("its outcome is unknown".to_owned());
            }
        }),
        Event::CallFailedOver { call, to, .. } => change(call, &|row| row.model = to.clone()),
        Event::CallCancelled { call, reason, in_flight } => change(call, &|row| {
            row.outcome = FollowedCallOutcome::Cancelled { reason: reason.clone(), in_flight: *in_flight };
            row.lost_attempts.unknown_attempts += u32::from(*in_flight);
        }),
        Event::CallAnsweredLate { call, .. } => change(call, &|row| {
            row.mark_outcome_known();
            row.lost_attempts.record_call_event(event);
        }),
        _ => {}
    }
}

/// Returns a call that an operator must decide about, if the session waits for nothing else.
fn blocking_call(session: &Session) -> Option<CallId> {
    let (call, _) = session.calls_awaiting_operator().next()?;
    (session.calls_awaiting_operator().count() == session.open_calls.len() && session.open_tool_runs.is_empty())
        .then_some(*call)
}

/// Whether nothing may be running after this event.
fn may_leave_session_at_rest(event: &Event) -> bool {
    matches!(
        event,
        Event::ToolRunHeld { .. } | Event::ToolRunEnded { .. } | Event::CallAnswered(_) | Event::CallFailed { .. }
    )
}

/// Returns a tool run that a person must decide about, if the session waits for nothing else.
pub(crate) fn blocking_tool_run(session: &Session) -> Option<ToolRunId> {
    session.held_tool_runs.keys().next().copied().filter(|_| session.is_at_rest())
}

/// Returns the total usage of several calls, with their lost attempts.
pub(crate) fn sum_call_usage(calls: &[FollowedCall]) -> UsageTotals {
    let mut totals = UsageTotals::default();
    for call in calls {
        let lost = &call.lost_attempts;
        totals.failed_attempts += lost.failed_attempts;
        totals.unknown_attempts += lost.unknown_attempts;
        totals.late_answers += lost.late_answers;
        totals.input_tokens += lost.input_tokens;
        totals.output_tokens += lost.output_tokens;
        totals.cached_tokens += lost.cached_tokens;
        totals.cost_microusd = totals.cost_microusd.saturating_add(lost.cost_microusd);
        totals.unpriced_answers += lost.unpriced_answers;
        if let FollowedCallOutcome::Answered { usage, cost_microusd, .. } = &call.outcome {
            totals.answered_calls += 1;
            totals.input_tokens += u64::from(usage.input_tokens);
            totals.output_tokens += u64::from(usage.output_tokens);
            totals.cached_tokens += u64::from(usage.cached_tokens);
            match cost_microusd {
                Some(cost) => totals.cost_microusd += cost,
                None => totals.unpriced_answers += 1,
            }
        }
    }
    totals
}
