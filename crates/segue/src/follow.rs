//! Follows a session while it works: words on the terminal as they come, what was said, and what each call came to.

mod live_reply;
mod progress_line;

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::event::{Event, RecordedEvent, RetryDecision, TurnResult, UsageSource};
use segue_core::ids::{CallId, MessageId, ModelName, RoleName, Seq, SessionId, TurnId, UnixMillis};
use segue_core::ledger::UsageTotals;
use segue_core::prompt::{StopReason, TokenUsage};
use segue_core::session::Session;
use segue_engine::{Engine, SessionUpdate, Subscription};

use crate::limits::EVENTS_BATCH_MAX;
use crate::print;
use crate::progress_text::{CallGroups, render_progress};
use crate::terminal::now_millis;
use live_reply::LiveReplyPrinter;
use progress_line::ProgressLine;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Whether words are shown as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveOutput {
    /// On standard output.
    Stdout,
    /// Not at all.
    Off,
}

/// A call that was followed.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowedCall {
    pub call: CallId,
    pub turn: Option<TurnId>,
    pub role: RoleName,
    pub model: ModelName,
    pub outcome: FollowedCallOutcome,
    /// Tries that brought no answer in time, and what they took all the same: those that failed, those of unknown end, a late answer.
    pub lost_attempts: UsageTotals,
}

impl FollowedCall {
    /// A call that was cancelled while it was under way has a known end after all.
    fn mark_end_known(&mut self) {
        if let FollowedCallOutcome::Cancelled { in_flight, .. } = &mut self.outcome
            && std::mem::take(in_flight)
        {
            self.lost_attempts.resolve_unknown_outcome();
        }
    }

    /// What is to be said about an answer that is not whole.
    pub fn truncation_warning(&self) -> Option<String> {
        let FollowedCallOutcome::Answered { stop, usage, .. } = &self.outcome else { return None };
        answer_truncation_warning(&self.role, *stop, usage.output_tokens)
    }
}

/// What is to be said about an answer that ended in this way, if it is not whole.
pub fn answer_truncation_warning(role: &RoleName, stop: StopReason, output_tokens: u32) -> Option<String> {
    match stop {
        StopReason::Done | StopReason::ToolCalls => None,
        StopReason::Length => {
            Some(format!("the answer of {role} was cut off after {output_tokens} tokens, the most it may have"))
        }
        StopReason::ContentFilter => Some(format!("the vendor's filter cut the answer of {role}")),
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowedCallOutcome {
    /// It has not.
    Open,
    /// With an answer.
    Answered { usage: TokenUsage, counted_by: UsageSource, cost_microusd: Option<u64>, ms: u64, stop: StopReason },
    /// Without.
    Failed(String),
    /// It was no longer wanted.
    Cancelled {
        reason: String,
        /// Whether it was under way then and was not heard of since.
        in_flight: bool,
    },
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTurn {
    pub turn: TurnId,
    pub outcome: TurnResult,
    /// What was said to the user, in order.
    pub replies: Vec<String>,
    /// Its calls.
    pub calls: Vec<FollowedCall>,
}

/// How following ended.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowOutcome {
    /// The turn is over.
    TurnFinished(FinishedTurn),
    /// A person must decide about this call first.
    AwaitingOperator(CallId),
    /// Whoever looks on wants to stop; this turn was running, if any.
    Interrupted(Option<TurnId>),
}

/// Somebody who follows one session.
#[derive(Debug)]
pub struct SessionFollower<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    updates: Subscription,
    calls: BTreeMap<CallId, FollowedCall>,
    replies: Vec<String>,
    live_reply: LiveReplyPrinter,
    progress: ProgressLine,
    call_groups: CallGroups,
    started_at: UnixMillis,
    frame: usize,
    /// Whether it was said that nothing can be written.
    has_warned: bool,
}

impl<'e> SessionFollower<'e> {
    /// From after a place in the journal on.
    pub async fn start_after(
        engine: &'e Engine,
        session: &'e SessionId,
        after: Seq,
        live: LiveOutput,
    ) -> anyhow::Result<Self> {
        let updates = engine.subscribe(session, after).await?;
        Ok(Self {
            engine,
            session,
            updates,
            calls: BTreeMap::new(),
            replies: Vec::new(),
            live_reply: LiveReplyPrinter::new(live),
            progress: ProgressLine::new(),
            call_groups: CallGroups::default(),
            started_at: now_millis(),
            frame: 0,
            has_warned: false,
        })
    }

    /// Until the turn that answers `message` is over.
    pub async fn follow_message(mut self, message: MessageId) -> anyhow::Result<FollowOutcome> {
        let mut ours = None;
        loop {
            let Some(update) = self.next_update().await? else { return Ok(FollowOutcome::Interrupted(ours)) };
            match update {
                SessionUpdate::TextDelta { call, attempt, text, .. } => {
                    let turn = self.calls.get(&call).and_then(|row| row.turn);
                    if turn.is_some() && turn == ours {
                        self.progress.clear();
                        print::write_stdout(&self.live_reply.push_chunk(call, attempt, &text))?;
                    }
                }
                SessionUpdate::Event(event) => {
                    self.track_calls(&event);
                    match &event.event {
                        Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => ours = Some(*turn),
                        Event::ReplySent(said) if said.turn.is_some() && said.turn == ours => {
                            self.print_reply(said.call, said.text.body).await?;
                        }
                        Event::TurnEnded { turn, outcome } if Some(*turn) == ours => {
                            if !self.is_message_retried(message).await? {
                                return self.finish_turn(*turn, outcome.clone());
                            }
                            self.replies.clear();
                        }
                        Event::CallOutcomeUnknown { call, next: RetryDecision::AwaitOperator, .. }
                            if self.is_awaiting_operator(*call).await? =>
                        {
                            return Ok(FollowOutcome::AwaitingOperator(*call));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Whether a later turn, which the journal has already, answers the same message: one that failed was tried again.
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

    /// Whether a person must still decide about a call.
    async fn is_awaiting_operator(&self, call: CallId) -> anyhow::Result<bool> {
        let (_, state) = self.engine.load_session(self.session).await?;
        Ok(state.session.calls_awaiting_operator().any(|(held, _)| *held == call))
    }

    /// Until nothing is owed at once; everything said is heard.
    pub async fn follow_until_idle(mut self) -> anyhow::Result<FollowOutcome> {
        let mut last = None;
        loop {
            let (_, state) = self.engine.load_session(self.session).await?;
            if let Some(call) = blocking_call(&state.session) {
                return Ok(FollowOutcome::AwaitingOperator(call));
            }
            let seen = self.updates.last_seq() >= state.session.last_seq;
            if state.session.is_idle() && seen {
                let (turn, outcome) = last.unwrap_or((state.session.last_ids.turn, TurnResult::Done));
                return self.finish_turn(turn, outcome);
            }
            let Some(update) = self.next_update().await? else {
                return Ok(FollowOutcome::Interrupted(state.session.current_turn.as_ref().map(|turn| turn.id)));
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, text, .. } => {
                    self.progress.clear();
                    print::write_stdout(&self.live_reply.push_chunk(call, attempt, &text))?;
                }
                SessionUpdate::Event(event) => {
                    self.track_calls(&event);
                    match &event.event {
                        Event::ReplySent(said) => self.print_reply(said.call, said.text.body).await?,
                        Event::TurnEnded { turn, outcome } => last = Some((*turn, outcome.clone())),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The next update; nothing if somebody wants to stop.
    async fn next_update(&mut self) -> anyhow::Result<Option<SessionUpdate>> {
        loop {
            let stop = tokio::signal::ctrl_c();
            tokio::select! {
                biased;
                update = self.updates.next_update() => return Ok(Some(update?)),
                _ = stop => {
                    self.progress.clear();
                    print::write_stdout(&self.live_reply.abandon_reply())?;
                    return Ok(None);
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    if let Some(trouble) = self.engine.pending_write_error(self.session).filter(|_| !self.has_warned) {
                        self.has_warned = true;
                        self.progress.clear();
                        print::write_stderr_line(&write_failure_message(&trouble));
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
        Ok(())
    }

    fn finish_turn(mut self, turn: TurnId, outcome: TurnResult) -> anyhow::Result<FollowOutcome> {
        self.progress.clear();
        print::write_stdout(&self.live_reply.abandon_reply())?;
        let calls = self.calls.into_values().filter(|row| row.turn == Some(turn)).collect();
        Ok(FollowOutcome::TurnFinished(FinishedTurn { turn, outcome, replies: self.replies, calls }))
    }

    /// Keeps account of calls.
    fn track_calls(&mut self, event: &RecordedEvent) {
        self.call_groups.apply_event(&event.event);
        if let Event::CallOpened(opened) = &event.event {
            let row = FollowedCall {
                call: opened.call,
                turn: opened.turn,
                role: opened.role.clone(),
                model: opened.model.clone(),
                outcome: FollowedCallOutcome::Open,
                lost_attempts: UsageTotals::default(),
            };
            self.calls.insert(opened.call, row);
        }
        update_followed_calls(&event.event, &mut self.calls);
    }
}

/// What is said to somebody who waits while nothing can be written.
pub fn write_failure_message(trouble: &segue_engine::Error) -> String {
    format!("what came cannot be written: {trouble}; it is kept and tried again, and Ctrl-C gives it up")
}

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
                counted_by: answered.usage_source,
                cost_microusd: answered.cost_microusd,
                ms: answered.duration_ms,
                stop: answered.stop_reason,
            };
        }),
        Event::CallFailed { call, failure, next, .. } => change(call, &|row| {
            row.mark_end_known();
            row.lost_attempts.record_failure(failure.cost);
            if *next == RetryDecision::GiveUp && row.outcome == FollowedCallOutcome::Open {
                row.outcome = FollowedCallOutcome::Failed(failure.to_string());
            }
        }),
        Event::CallOutcomeUnknown { call, next, .. } => change(call, &|row| {
            row.lost_attempts.unknown_attempts += 1;
            if *next == RetryDecision::GiveUp {
                row.outcome = FollowedCallOutcome::Failed("its end is not known".to_owned());
            }
        }),
        Event::CallFailedOver { call, to, .. } => change(call, &|row| row.model = to.clone()),
        Event::CallCancelled { call, reason, in_flight } => change(call, &|row| {
            row.outcome = FollowedCallOutcome::Cancelled { reason: reason.clone(), in_flight: *in_flight };
            row.lost_attempts.unknown_attempts += u32::from(*in_flight);
        }),
        Event::CallAnsweredLate { call, usage, cost_microusd, .. } => change(call, &|row| {
            row.mark_end_known();
            row.lost_attempts.record_late_answer(*usage, *cost_microusd);
        }),
        _ => {}
    }
}

/// The call a person must decide about, if nothing else goes on.
fn blocking_call(session: &Session) -> Option<CallId> {
    let (held, _) = session.calls_awaiting_operator().next()?;
    (session.calls_awaiting_operator().count() == session.open_calls.len() && session.open_tool_runs.is_empty())
        .then_some(*held)
}

/// What some calls came to.
pub fn sum_call_usage(calls: &[FollowedCall]) -> UsageTotals {
    let mut tally = UsageTotals::default();
    for row in calls {
        tally.failed_attempts += row.lost_attempts.failed_attempts;
        tally.unknown_attempts += row.lost_attempts.unknown_attempts;
        tally.late_answers += row.lost_attempts.late_answers;
        tally.input_tokens += row.lost_attempts.input_tokens;
        tally.output_tokens += row.lost_attempts.output_tokens;
        tally.cached_tokens += row.lost_attempts.cached_tokens;
        tally.cost_microusd = tally.cost_microusd.saturating_add(row.lost_attempts.cost_microusd);
        tally.unpriced_answers += row.lost_attempts.unpriced_answers;
        if let FollowedCallOutcome::Answered { usage, cost_microusd, .. } = &row.outcome {
            tally.answered_calls += 1;
            tally.input_tokens += u64::from(usage.input_tokens);
            tally.output_tokens += u64::from(usage.output_tokens);
            tally.cached_tokens += u64::from(usage.cached_tokens);
            match cost_microusd {
                Some(cost) => tally.cost_microusd += cost,
                None => tally.unpriced_answers += 1,
            }
        }
    }
    tally
}
