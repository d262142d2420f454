//! One session at work: decide, commit, apply, publish, dispatch, and again. The only loop there is.

mod commit;
mod effects;
mod resume;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::SessionInput;
use segue_core::flow::DynFlow;
use segue_core::ids::{LeaseEpoch, SessionId, ToolRunId, UnixMillis};
use segue_core::session::Session;
use segue_store::{PendingWork, SessionSummary};
use tokio::sync::mpsc;

use crate::abandoned_calls::{AttemptId, InFlightCall};
use crate::commit_gate::CommitGateOwner;
use crate::engine::{EngineShared, RecoveryPolicy};
use crate::error::Error;
use crate::limits::{EVICTION_SESSIONS_MIN, PARKED_TEXT_BYTES_MAX, TICK_RETRY_MS, WRITE_RETRY_MS_MAX};
use crate::registry::{ActorMessage, CachedSession, Mailbox, SessionRegistry, SessionSlot};
use crate::turn_report::TurnWaiters;
use commit::UncertainCommit;
use effects::InFlightTool;
pub(crate) use resume::read_flow_name;
use resume::{StateSource, resume_session};

pub(crate) struct SessionActor {
    shared: Arc<EngineShared>,
    session: SessionId,
    flow: Arc<dyn DynFlow>,
    cached: Box<CachedSession>,
    epoch: LeaseEpoch,
    mailbox: Mailbox,
    inbox: mpsc::Receiver<ActorMessage>,
    /// What came in while something could not be written.
    backlog: VecDeque<ActorMessage>,
    turn_waiters: TurnWaiters,
    calls: BTreeMap<AttemptId, InFlightCall>,
    tools: BTreeMap<ToolRunId, InFlightTool>,
    wake_at: Option<UnixMillis>,
    /// What the store believes is owed, as far as we know.
    stored_pending_work: Option<PendingWork>,
    /// A commit of which nobody knows whether it took effect.
    uncertain_commit: Option<UncertainCommit>,
    /// Whether all that was decided is known to have been recorded or not, and acted upon. No call begins before that: it may
    /// have been cancelled.
    commit_gate: CommitGateOwner,
}

/// Why an actor ends other than by going to rest.
struct SessionLost(Error);

/// Brings a session to work: claims it, takes it up where it stood, and works until there is nothing left to do.
pub(crate) async fn run_session_actor(
    shared: Arc<EngineShared>,
    session: SessionId,
    parked: Option<Box<CachedSession>>,
    mailbox: Mailbox,
    inbox: mpsc::Receiver<ActorMessage>,
) {
    let stopping = mailbox.clone();
    tokio::select! {
        biased;
        // Whoever stops it has taken it out of the registry.
        () = stopping.wait_for_stop() => {}
        () = start_actor(shared, session, parked, mailbox, inbox) => {}
    }
}

async fn start_actor(
    shared: Arc<EngineShared>,
    session: SessionId,
    parked: Option<Box<CachedSession>>,
    mailbox: Mailbox,
    mut inbox: mpsc::Receiver<ActorMessage>,
) {
    match resume_session(&shared, &session, parked).await {
        Ok((known, rules, resident, epoch)) => {
            let waiters = TurnWaiters::from_session(&resident.state.session);
            let actor = SessionActor {
                shared,
                session,
                flow: rules,
                cached: resident,
                epoch,
                mailbox,
                inbox,
                backlog: VecDeque::new(),
                turn_waiters: waiters,
                calls: BTreeMap::new(),
                tools: BTreeMap::new(),
                wake_at: None,
                stored_pending_work: None,
                uncertain_commit: None,
                commit_gate: CommitGateOwner::new(),
            };
            actor.run_loop(known).await;
        }
        Err(error) => {
            deregister_actor(&shared, &session, &mailbox, &error);
            inbox.close();
            while let Some(job) = inbox.recv().await {
                job.reply_with_error(&error);
            }
        }
    }
}

/// Takes a session's task out of the registry. One that could not be read or written just now is tried again.
fn deregister_actor(shared: &EngineShared, session: &SessionId, mailbox: &Mailbox, error: &Error) {
    shared.registry.remove_actor(session, mailbox);
    if error.is_transient() {
        shared.registry.set_alarm(shared.clock.now().plus_ms(WRITE_RETRY_MS_MAX), session);
    }
}

impl SessionActor {
    async fn run_loop(mut self, known: StateSource) {
        if let Err(SessionLost(error)) = self.resume_pending_work(known).await {
            return self.stop_with_error(&error).await;
        }
        loop {
            let job = match self.next_message().await {
                Some(job) => job,
                None if self.mailbox.is_draining() => return,
                None => {
                    if let Some(actor) = self.try_park() {
                        self = actor;
                        continue;
                    }
                    return;
                }
            };
            if let Err(SessionLost(error)) = self.handle_message(job).await {
                return self.stop_with_error(&error).await;
            }
        }
    }

    fn session(&self) -> &Session {
        &self.cached.state.session
    }

    /// Takes up what a fork or a dead process left.
    async fn resume_pending_work(&mut self, known: StateSource) -> Result<(), SessionLost> {
        if let Some(from) = self.session().id.clone().filter(|id| *id != self.session) {
            let at = self.session().last_seq;
            self.commit_until_written(SessionInput::Forked { session: self.session.clone(), from, at })
                .await?
                .map_err(SessionLost)?;
        } else if known == StateSource::Store
            && !self.session().is_idle()
            && self.shared.recovery != RecoveryPolicy::Never
        {
            self.commit_until_written(SessionInput::Recovered).await?.map_err(SessionLost)?;
        }
        self.dispatch_effects().await
    }

    /// The next thing to do; nothing if the session can go to rest.
    async fn next_message(&mut self) -> Option<ActorMessage> {
        if let Some(job) = self.backlog.pop_front() {
            return Some(job);
        }
        if let Ok(job) = self.inbox.try_recv() {
            return Some(job);
        }
        // Nothing is owed by a session that is idle, so a call that it has not parted with is about to come back.
        let rests = self.session().is_idle() && self.uncertain_commit.is_none() && self.calls.is_empty();
        if rests || self.shared.recovery == RecoveryPolicy::Never {
            return None;
        }
        let now = self.shared.clock.now();
        let wait_ms = match (self.wake_at, &self.uncertain_commit) {
            (_, Some(_)) => Some(WRITE_RETRY_MS_MAX),
            (Some(at), None) => Some(at.ms_since(now)),
            (None, None) => None,
        };
        if self.mailbox.is_draining() {
            return None;
        }
        let drain = self.mailbox.clone();
        let next = async {
            match wait_ms {
                Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), self.inbox.recv()).await {
                    Ok(message) => message,
                    Err(_) => Some(ActorMessage::without_reply(SessionInput::Tick)),
                },
                None => self.inbox.recv().await,
            }
        };
        tokio::select! {
            biased;
            // A result that has arrived was paid for, so it is recorded before the task ends.
            message = next => message,
            () = drain.wait_for_drain() => self.inbox.try_recv().ok(),
        }
    }

    async fn handle_message(&mut self, job: ActorMessage) -> Result<(), SessionLost> {
        let ActorMessage { input, reply_sender: done, turn_waiter: waiter, session_opened_at: since } = job;
        if since.is_some_and(|since| since != self.session().opened_at) {
            // Another session of the same name; whoever waits learns that nothing comes of it.
            return Ok(());
        }
        self.mark_call_returned(&input);
        let is_tick = matches!(input, SessionInput::Tick);
        let before = self.session().last_seq;
        // What came from a call or a tool was paid for: it is written down, however long that takes.
        let paid = matches!(
            input,
            SessionInput::Answer { .. }
                | SessionInput::CallFailure { .. }
                | SessionInput::ToolResult { .. }
                | SessionInput::Tick
        );
        let result =
            if paid { self.commit_until_written(input).await? } else { self.commit_input(input, waiter).await };
        let lost = result.as_ref().err().filter(|error| error.is_fatal_to_session()).cloned();
        if let Some(done) = done {
            // Whoever asked may have gone away.
            let _ = done.send(result);
        }
        if let Some(error) = lost {
            return Err(SessionLost(error));
        }
        self.dispatch_effects().await?;
        if is_tick && self.session().last_seq == before {
            self.delay_next_tick();
        }
        Ok(())
    }

    /// A moment that came and changed nothing is not looked at again and again.
    fn delay_next_tick(&mut self) {
        let soon = self.shared.clock.now().plus_ms(TICK_RETRY_MS);
        self.wake_at = self.wake_at.map(|at| at.max(soon));
    }

    /// Goes to rest, unless something came in meanwhile.
    fn try_park(mut self) -> Option<Self> {
        let shared = self.shared.clone();
        if let Some(at) = self.session().next_wake_at(self.flow.spec()) {
            shared.registry.set_alarm(at, &self.session);
        }
        if self.cached.texts.byte_len() > PARKED_TEXT_BYTES_MAX {
            self.cached.texts.clear();
        }
        shared.subscriptions.clear_parked_session(&self.session);
        shared.registry.with_slots(|places| {
            if !self.inbox.is_empty() {
                return Some(self);
            }
            if SessionRegistry::is_current_mailbox(places, &self.session, &self.mailbox) {
                let now = self.shared.clock.now();
                self.cached.lease_epoch = Some(self.epoch);
                places.insert(self.session, SessionSlot::Parked(self.cached, now));
                if places.len() > EVICTION_SESSIONS_MIN {
                    shared.eviction_needed.notify_one();
                }
            }
            None
        })
    }

    /// The session is another's now, or cannot be read: everything under way here is stopped.
    async fn stop_with_error(mut self, error: &Error) {
        self.calls.clear();
        self.tools.clear();
        self.turn_waiters.fail_all(error);
        self.shared.subscriptions.clear_parked_session(&self.session);
        deregister_actor(&self.shared, &self.session, &self.mailbox, error);
        self.inbox.close();
        for job in std::mem::take(&mut self.backlog) {
            job.reply_with_error(error);
        }
        while let Some(job) = self.inbox.recv().await {
            job.reply_with_error(error);
        }
    }
}

/// What a session owes, for recovery at the next start.
pub(crate) fn find_pending_work(session: &Session, spec: &segue_core::flow::FlowSpec) -> PendingWork {
    match (session.is_idle(), session.next_wake_at(spec)) {
        (false, _) => PendingWork::Now,
        (true, Some(at)) => PendingWork::At(at),
        (true, None) => PendingWork::None,
    }
}

/// A session's row in lists.
pub(crate) fn summarize_session(session: &Session, owes: PendingWork) -> SessionSummary {
    SessionSummary {
        flow: session.flow.as_ref().map(ToString::to_string).unwrap_or_default(),
        title: session.title.clone(),
        phase: session.phases_label(),
        turns: session.last_ids.turn.0,
        calls: session.last_ids.call.0,
        cost_microusd: session.ledger.total.exact_cost_microusd(),
        created_at: session.opened_at,
        updated_at: session.last_event_at,
        pending_work: owes,
    }
}
