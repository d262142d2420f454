//! The task of one active session: decide, commit, apply, publish, dispatch effects, and repeat. There is no other
//! loop.

mod commit;
mod effects;
mod inbox;
mod resume;

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use segue_core::decide::SessionInput;
use segue_core::flow::DynFlow;
use segue_core::ids::{LeaseEpoch, SessionId, ToolRunId, TurnId, UnixMillis};
use segue_core::session::{Session, Turn};
use segue_store::{InboxEmptiness, PendingWorkStatus, SessionSummary};
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use crate::abandoned_calls::{CallAttemptId, InFlightCallAttempt};
use crate::commit_gate::CallStartGateHandle;
use crate::config::SessionResumePolicy;
use crate::engine::EngineShared;
use crate::error::Error;
use crate::limits::{EVICTION_SESSIONS_MIN, PANIC_RESUME_MS, PARKED_TEXT_BYTES_MAX, TICK_RETRY_MS, WRITE_RETRY_MS_MAX};
use crate::registry::{ActiveOrParkedSession, ActorMessage, CachedSession, SessionActorHandle, SessionRegistry};
use crate::turn_follower::{MessageWithAwaitedTurn, follow_turn_in_background};
use crate::turn_report::TurnWaiters;
use commit::UncertainCommit;
use effects::InFlightToolRun;
use resume::{ResumedFromMemoryOrStore, ResumedSession, resume_session};

pub(crate) struct SessionActor {
    shared: Arc<EngineShared>,
    session: SessionId,
    flow: Arc<dyn DynFlow>,
    cached: Box<CachedSession>,
    epoch: LeaseEpoch,
    mailbox: SessionActorHandle,
    inbox: mpsc::Receiver<ActorMessage>,
    /// Messages that arrived while the store could not be written.
    backlog: VecDeque<ActorMessage>,
    turn_waiters: TurnWaiters,
    calls: BTreeMap<CallAttemptId, InFlightCallAttempt>,
    tools: BTreeMap<ToolRunId, InFlightToolRun>,
    wake_at: Option<UnixMillis>,
    /// The pending work that the store knows of, if known.
    stored_pending_work: Option<PendingWorkStatus>,
    /// A commit with an unknown outcome.
    uncertain_commit: Option<UncertainCommit>,
    /// Clear when every decision is known to be written or not, and its effects were dispatched.
    commit_gate: CallStartGateHandle,
    /// The span of this task in the log.
    session_span: Span,
    /// The running turn, and its span in the log.
    turn_span: (Option<TurnId>, Span),
}

/// The error that ends a session's task.
struct FatalSessionError(Error);

/// Runs a session's task: acquires its lease, resumes it, and handles messages until nothing is left to do.
///
/// If the task panics, its callers get an error, its effects are aborted, and the session is resumed from the store: by
/// the next message, or after a while if it has pending work.
pub(crate) async fn run_session_actor(
    shared: Arc<EngineShared>,
    session: SessionId,
    parked: Option<Box<CachedSession>>,
    mailbox: SessionActorHandle,
    inbox: mpsc::Receiver<ActorMessage>,
) {
    let run = start_actor(shared.clone(), session.clone(), parked, mailbox.clone(), inbox);
    let ended = tokio::select! {
        biased;
        // Code that stops the task has already removed it from the registry.
        () = mailbox.wait_for_stop() => return,
        // Unwinding drops the whole actor, so nothing sees its state afterwards.
        ended = AssertUnwindSafe(run).catch_unwind() => ended,
    };
    if ended.is_err() {
        tracing::error!(%session, resume_ms = PANIC_RESUME_MS, "the task of the session panicked; it is resumed");
        shared.subscriptions.clear_channel_of_parked_session(&session);
        shared.registry.remove_actor(&session, &mailbox);
        shared.registry.set_alarm(shared.clock.now().plus_ms(PANIC_RESUME_MS), &session);
    }
}

async fn start_actor(
    shared: Arc<EngineShared>,
    session: SessionId,
    parked: Option<Box<CachedSession>>,
    mailbox: SessionActorHandle,
    mut inbox: mpsc::Receiver<ActorMessage>,
) {
    match resume_session(&shared, &session, parked).await {
        Ok(ResumedSession { source, flow, cached, epoch, inbox: stored_inbox }) => {
            Span::current().record("epoch", epoch.0);
            mailbox.set_lease_epoch(epoch);
            tracing::debug!(%session, epoch = epoch.0, ?source, head = cached.state.session.last_seq.0, "session active");
            let turn_waiters = TurnWaiters::from_session(&cached.state.session);
            let actor = SessionActor {
                shared,
                session,
                flow,
                cached,
                epoch,
                mailbox,
                inbox,
                backlog: VecDeque::new(),
                turn_waiters,
                calls: BTreeMap::new(),
                tools: BTreeMap::new(),
                wake_at: None,
                stored_pending_work: None,
                uncertain_commit: None,
                commit_gate: CallStartGateHandle::new(),
                session_span: Span::current(),
                turn_span: (None, Span::current()),
            };
            actor.run_loop(source, stored_inbox).await;
        }
        Err(error) => {
            log_session_stop(&session, &error);
            remove_actor_and_set_alarm(&shared, &session, &mailbox, &error);
            inbox.close();
            while let Some(message) = inbox.recv().await {
                message.reply_with_error(&error);
            }
        }
    }
}

/// Removes a session's task from the registry. If the store failed for the moment, the session is woken again later.
fn remove_actor_and_set_alarm(shared: &EngineShared, session: &SessionId, mailbox: &SessionActorHandle, error: &Error) {
    shared.registry.remove_actor(session, mailbox);
    if error.is_transient() {
        shared.registry.set_alarm(shared.clock.now().plus_ms(WRITE_RETRY_MS_MAX), session);
    }
}

/// Logs why the task of a session ends. The message of an unreadable event is left out, because it may quote the event.
fn log_session_stop(session: &SessionId, error: &Error) {
    let code = error.code();
    match error {
        Error::TakenOver(_) => tracing::warn!(%session, code, "lease lost to another process; the task ends"),
        Error::InUse { by, .. } => tracing::debug!(%session, code, by, "another process holds the lease"),
        Error::NoSuchSession(_) => tracing::debug!(%session, code, "there is no such session"),
        Error::Store(cause) if error.is_transient() => {
            tracing::warn!(%session, code, error = %cause, "the store failed for the moment; the session is resumed later");
        }
        Error::Store(error) => tracing::error!(%session, code, %error, "the store failed; the task ends"),
        _ => tracing::error!(%session, code, "the session cannot be resumed"),
    }
}

impl SessionActor {
    async fn run_loop(mut self, source: ResumedFromMemoryOrStore, stored_inbox: InboxEmptiness) {
        if let Err(FatalSessionError(error)) = self.recover_and_resume_pending_work(source, stored_inbox).await {
            return self.stop_with_error(&error).await;
        }
        loop {
            let message = match self.next_message().await {
                Some(message) => message,
                None if self.mailbox.is_lease_lost() => {
                    let error = Error::TakenOver(self.session.clone());
                    return self.stop_with_error(&error).await;
                }
                None if self.mailbox.is_draining() => return,
                None => {
                    if let Some(actor) = self.try_park_session() {
                        self = actor;
                        continue;
                    }
                    return;
                }
            };
            let span = self.current_turn_span();
            if let Err(FatalSessionError(error)) = self.handle_message(message).instrument(span).await {
                return self.stop_with_error(&error).await;
            }
        }
    }

    fn session(&self) -> &Session {
        &self.cached.state.session
    }

    /// Returns the span of the running turn, or that of the session between two turns.
    fn current_turn_span(&mut self) -> Span {
        let turn = self.session().current_turn.as_ref().map(|turn| turn.id);
        if self.turn_span.0 != turn {
            let session_span = self.session_span.clone();
            let span = turn.map_or_else(
                || session_span.clone(),
                |turn| tracing::debug_span!(parent: &session_span, "turn", %turn),
            );
            self.turn_span = (turn, span);
        }
        self.turn_span.1.clone()
    }

    /// Records a fork or a recovery if there is one, and dispatches pending effects.
    async fn recover_and_resume_pending_work(
        &mut self,
        source: ResumedFromMemoryOrStore,
        stored_inbox: InboxEmptiness,
    ) -> Result<(), FatalSessionError> {
        if let Some(from) = self.session().id.clone().filter(|id| *id != self.session) {
            let at = self.session().last_seq;
            self.commit_until_written(SessionInput::Forked { session: self.session.clone(), from, at })
                .await?
                .map_err(FatalSessionError)?;
        } else if source == ResumedFromMemoryOrStore::Store
            && !self.session().is_at_rest()
            && self.shared.recovery != SessionResumePolicy::Never
        {
            tracing::info!(session = %self.session, epoch = self.epoch.0, "recovering unfinished work");
            self.commit_until_written(SessionInput::Recovered).await?.map_err(FatalSessionError)?;
        }
        self.dispatch_effects().await?;
        match stored_inbox {
            // They were submitted before the inputs that wait in the mailbox.
            InboxEmptiness::HasEntries => self.drain_inbox().await,
            InboxEmptiness::Empty => Ok(()),
        }
    }

    /// Waits for the next message. Returns none if the session can be parked, or the task should end.
    async fn next_message(&mut self) -> Option<ActorMessage> {
        if self.mailbox.is_lease_lost() {
            return None;
        }
        if let Some(message) = self.backlog.pop_front() {
            return Some(message);
        }
        if let Ok(message) = self.inbox.try_recv() {
            return Some(message);
        }
        // A session at rest has no call in flight, so a call that is still listed is about to return its result.
        let can_park = self.session().is_at_rest() && self.uncertain_commit.is_none() && self.calls.is_empty();
        if can_park || self.shared.recovery == SessionResumePolicy::Never {
            return None;
        }
        let now = self.shared.clock.now();
        let wait_ms = match (self.wake_at, &self.uncertain_commit) {
            (_, Some(_)) => Some(WRITE_RETRY_MS_MAX),
            (Some(at), None) => Some(at.ms_since(now)),
            (None, None) => None,
        };
        let deadline = wait_ms.map(|ms| tokio::time::Instant::now() + Duration::from_millis(ms));
        let mailbox = self.mailbox.clone();
        while !mailbox.is_lease_lost() {
            // What is running was paid for, so its result is recorded before the task ends.
            if mailbox.is_draining() && self.calls.is_empty() && self.tools.is_empty() {
                return self.inbox.try_recv().ok();
            }
            let next = async {
                match deadline {
                    Some(deadline) => match tokio::time::timeout_at(deadline, self.inbox.recv()).await {
                        Ok(message) => message,
                        Err(_) => Some(ActorMessage::without_reply(SessionInput::Tick)),
                    },
                    None => self.inbox.recv().await,
                }
            };
            tokio::select! {
                biased;
                message = next => return message,
                () = mailbox.wait_for_drain_or_lease_loss() => {}
            }
        }
        None
    }

    async fn handle_message(&mut self, message: ActorMessage) -> Result<(), FatalSessionError> {
        let ActorMessage { input, reply_sender, turn_waiter, session_opened_at: opened_at, drains_inbox } = message;
        if opened_at.is_some_and(|opened_at| opened_at != self.session().opened_at) {
            tracing::debug!(session = %self.session, "input for an earlier session of this name dropped");
            // Another session of the same name. Dropping the message informs the caller.
            return Ok(());
        }
        if drains_inbox {
            self.drain_inbox().await?;
        }
        self.mark_call_returned(&input);
        let is_tick = matches!(input, SessionInput::Tick);
        let seq_before = self.session().last_seq;
        // Results of calls and tools are paid for: retry until they are written.
        let must_not_be_lost = matches!(
            input,
            SessionInput::Answer { .. }
                | SessionInput::CallFailure { .. }
                | SessionInput::ToolResult { .. }
                | SessionInput::Tick
        );
        let result = if must_not_be_lost {
            self.commit_until_written(input).await?
        } else {
            self.commit_input(input, turn_waiter).await
        };
        let fatal_error = result.as_ref().err().filter(|error| error.is_fatal_to_session()).cloned();
        if let Some(reply_sender) = reply_sender {
            // The caller may be gone.
            let _ = reply_sender.send(result);
        }
        if let Some(error) = fatal_error {
            return Err(FatalSessionError(error));
        }
        self.dispatch_effects().await?;
        if is_tick && self.session().last_seq == seq_before {
            self.delay_next_tick();
        }
        Ok(())
    }

    /// Delays the next tick, because this one changed nothing.
    fn delay_next_tick(&mut self) {
        let earliest = self.shared.clock.now().plus_ms(TICK_RETRY_MS);
        self.wake_at = self.wake_at.map(|at| at.max(earliest));
    }

    /// Parks the session, unless a message arrived meanwhile.
    fn try_park_session(mut self) -> Option<Self> {
        let shared = self.shared.clone();
        if let Some(at) = self.session().next_wake_at(self.flow.spec()) {
            shared.registry.set_alarm(at, &self.session);
        }
        if self.cached.texts.byte_len() > PARKED_TEXT_BYTES_MAX {
            self.cached.texts.clear();
        }
        shared.subscriptions.clear_channel_of_parked_session(&self.session);
        shared.registry.with_slots(|slots| {
            if !self.inbox.is_empty() {
                return Some(self);
            }
            tracing::trace!(session = %self.session, epoch = self.epoch.0, "session parked");
            self.hand_over_turn_waiters();
            if SessionRegistry::is_current_mailbox(slots, &self.session, &self.mailbox) {
                let now = self.shared.clock.now();
                self.cached.lease_epoch = Some(self.epoch);
                slots.insert(self.session, ActiveOrParkedSession::Parked(self.cached, now));
                if slots.len() > EVICTION_SESSIONS_MIN {
                    shared.eviction_needed.notify_one();
                }
            }
            None
        })
    }

    /// Lets the callers that wait for a turn follow the journal, because this task ends before the turn does.
    fn hand_over_turn_waiters(&mut self) {
        let session = &self.cached.state.session;
        for (message, waiter) in self.turn_waiters.take_all_waiters() {
            let answers = |turn: &&Turn| turn.messages.iter().any(|queued| queued.message == message);
            let turn = session.current_turn.as_ref().filter(answers).map(|turn| turn.id);
            let awaited = MessageWithAwaitedTurn { session: self.session.clone(), message, turn };
            follow_turn_in_background(&self.shared, awaited, session.last_seq, waiter);
        }
    }

    /// Stops all work of a session that was lost to another process or cannot be read.
    async fn stop_with_error(mut self, error: &Error) {
        log_session_stop(&self.session, error);
        self.calls.clear();
        self.tools.clear();
        let unhandled_error = match error {
            Error::TakenOver(session) => {
                // Their messages are recorded, so the process that has the session now answers them.
                self.hand_over_turn_waiters();
                // Inputs that were not decided on can be submitted to that process.
                Error::InUse { session: session.clone(), by: "another process".to_owned() }
            }
            error => {
                self.turn_waiters.fail_all_waiters(error);
                error.clone()
            }
        };
        self.shared.subscriptions.clear_channel_of_parked_session(&self.session);
        remove_actor_and_set_alarm(&self.shared, &self.session, &self.mailbox, error);
        self.inbox.close();
        for message in std::mem::take(&mut self.backlog) {
            message.reply_with_error(&unhandled_error);
        }
        while let Some(message) = self.inbox.recv().await {
            message.reply_with_error(&unhandled_error);
        }
    }
}

/// Returns what the session still has to do, for recovery.
pub(crate) fn find_pending_work(session: &Session, spec: &segue_core::flow::FlowSpec) -> PendingWorkStatus {
    match (session.is_at_rest(), session.next_wake_at(spec)) {
        (false, _) => PendingWorkStatus::Now,
        (true, Some(at)) => PendingWorkStatus::At(at),
        (true, None) => PendingWorkStatus::None,
    }
}

/// Returns the session's row for lists.
pub(crate) fn to_session_summary(session: &Session, pending_work: PendingWorkStatus) -> SessionSummary {
    SessionSummary {
        flow: session.flow.as_ref().map(ToString::to_string).unwrap_or_default(),
        title: session.title.clone(),
        phase: session.phases_label(),
        turns: session.last_ids.turn.0,
        calls: session.last_ids.call.0,
        cost_microusd: session.ledger.total.exact_cost_microusd(),
        created_at: session.opened_at,
        updated_at: session.last_event_at,
        pending_work,
    }
}
