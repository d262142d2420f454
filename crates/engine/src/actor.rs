//! One session at work: decide, commit, apply, publish, dispatch, and again. The only loop there is.

mod acts;
mod take_up;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::Input;
use segue_core::flow::Rules;
use segue_core::ids::{Epoch, Millis, SessionId, ToolRunId};
use segue_core::session::Session;
use segue_store::{Owes, Summary};
use tokio::sync::mpsc;

use crate::engine::{Recovery, Shared};
use crate::error::Error;
use crate::late::{Flight, TryId};
use crate::limits::{CROWD_SESSIONS_MIN, PARKED_TEXT_BYTES_MAX, TICK_AGAIN_MS, WRITE_RETRY_MS_MAX};
use crate::registry::{Desk, Job, Place, Registry, Resident};
use crate::report::Waiters;
use crate::settled::Settling;
use acts::ToolFlight;
pub(crate) use take_up::flow_of;
use take_up::{Known, take_up};
use write::Doubt;

pub(crate) struct Actor {
    shared: Arc<Shared>,
    session: SessionId,
    rules: Arc<dyn Rules>,
    resident: Box<Resident>,
    epoch: Epoch,
    desk: Desk,
    jobs: mpsc::Receiver<Job>,
    /// What came in while something could not be written.
    backlog: VecDeque<Job>,
    waiters: Waiters,
    calls: BTreeMap<TryId, Flight>,
    tools: BTreeMap<ToolRunId, ToolFlight>,
    wake: Option<Millis>,
    /// What the store believes is owed, as far as we know.
    owes: Option<Owes>,
    /// A commit of which nobody knows whether it took effect.
    doubt: Option<Doubt>,
    /// Whether all that was decided is known to have been recorded or not, and acted upon. No call begins before that: it may
    /// have been cancelled.
    settled: Settling,
}

/// Why an actor ends other than by going to rest.
struct Lost(Error);

/// Brings a session to work: claims it, takes it up where it stood, and works until there is nothing left to do.
pub(crate) async fn work(
    shared: Arc<Shared>,
    session: SessionId,
    rested: Option<Box<Resident>>,
    desk: Desk,
    jobs: mpsc::Receiver<Job>,
) {
    let stopping = desk.clone();
    tokio::select! {
        biased;
        // Whoever stops it has taken it out of the registry.
        () = stopping.stopped() => {}
        () = begin(shared, session, rested, desk, jobs) => {}
    }
}

async fn begin(
    shared: Arc<Shared>,
    session: SessionId,
    rested: Option<Box<Resident>>,
    desk: Desk,
    mut jobs: mpsc::Receiver<Job>,
) {
    match take_up(&shared, &session, rested).await {
        Ok((known, rules, resident, epoch)) => {
            let waiters = Waiters::of(&resident.state.session);
            let actor = Actor {
                shared,
                session,
                rules,
                resident,
                epoch,
                desk,
                jobs,
                backlog: VecDeque::new(),
                waiters,
                calls: BTreeMap::new(),
                tools: BTreeMap::new(),
                wake: None,
                owes: None,
                doubt: None,
                settled: Settling::new(),
            };
            actor.run(known).await;
        }
        Err(error) => {
            leave(&shared, &session, &desk, &error);
            jobs.close();
            while let Some(job) = jobs.recv().await {
                job.fail(&error);
            }
        }
    }
}

/// Takes a session's task out of the registry. One that could not be read or written just now is tried again.
fn leave(shared: &Shared, session: &SessionId, desk: &Desk, error: &Error) {
    shared.registry.leave(session, desk);
    if error.is_passing() {
        shared.registry.set_alarm(shared.clock.now().after(WRITE_RETRY_MS_MAX), session);
    }
}

impl Actor {
    async fn run(mut self, known: Known) {
        if let Err(Lost(error)) = self.resume(known).await {
            return self.lose(&error).await;
        }
        loop {
            let job = match self.next_job().await {
                Some(job) => job,
                None => {
                    if let Some(actor) = self.rest() {
                        self = actor;
                        continue;
                    }
                    return;
                }
            };
            if let Err(Lost(error)) = self.handle(job).await {
                return self.lose(&error).await;
            }
        }
    }

    fn session(&self) -> &Session {
        &self.resident.state.session
    }

    /// Takes up what a fork or a dead process left.
    async fn resume(&mut self, known: Known) -> Result<(), Lost> {
        if let Some(from) = self.session().id.clone().filter(|id| *id != self.session) {
            let at = self.session().seq;
            self.insist(Input::Forked { session: self.session.clone(), from, at }).await?.map_err(Lost)?;
        } else if known == Known::FromStore && !self.session().is_idle() && self.shared.recovery != Recovery::Never {
            self.insist(Input::Recovered).await?.map_err(Lost)?;
        }
        self.dispatch().await
    }

    /// The next thing to do; nothing if the session can go to rest.
    async fn next_job(&mut self) -> Option<Job> {
        if let Some(job) = self.backlog.pop_front() {
            return Some(job);
        }
        if let Ok(job) = self.jobs.try_recv() {
            return Some(job);
        }
        // Nothing is owed by a session that is idle, so a call that it has not parted with is about to come back.
        let rests = self.session().is_idle() && self.doubt.is_none() && self.calls.is_empty();
        if rests || self.shared.recovery == Recovery::Never {
            return None;
        }
        let now = self.shared.clock.now();
        let wait_ms = match (self.wake, &self.doubt) {
            (_, Some(_)) => Some(WRITE_RETRY_MS_MAX),
            (Some(at), None) => Some(at.since(now)),
            (None, None) => None,
        };
        match wait_ms {
            Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), self.jobs.recv()).await {
                Ok(job) => job,
                Err(_) => Some(Job::quiet(Input::Tick)),
            },
            None => self.jobs.recv().await,
        }
    }

    async fn handle(&mut self, job: Job) -> Result<(), Lost> {
        let Job { input, done, waiter, since } = job;
        if since.is_some_and(|since| since != self.session().opened) {
            // Another session of the same name; whoever waits learns that nothing comes of it.
            return Ok(());
        }
        self.is_back(&input);
        let is_tick = matches!(input, Input::Tick);
        let before = self.session().seq;
        // What came from a call or a tool was paid for: it is written down, however long that takes.
        let paid =
            matches!(input, Input::Answer { .. } | Input::Failure { .. } | Input::ToolResult { .. } | Input::Tick);
        let result = if paid { self.insist(input).await? } else { self.commit(input, waiter).await };
        let lost = result.as_ref().err().filter(|error| error.ends_work()).cloned();
        if let Some(done) = done {
            // Whoever asked may have gone away.
            let _ = done.send(result);
        }
        if let Some(error) = lost {
            return Err(Lost(error));
        }
        self.dispatch().await?;
        if is_tick && self.session().seq == before {
            self.wait_before_next_tick();
        }
        Ok(())
    }

    /// A moment that came and changed nothing is not looked at again and again.
    fn wait_before_next_tick(&mut self) {
        let soon = self.shared.clock.now().after(TICK_AGAIN_MS);
        self.wake = self.wake.map(|at| at.max(soon));
    }

    /// Goes to rest, unless something came in meanwhile.
    fn rest(mut self) -> Option<Self> {
        let shared = self.shared.clone();
        if let Some(at) = self.session().wake_at(self.rules.spec()) {
            shared.registry.set_alarm(at, &self.session);
        }
        if self.resident.shelf.bytes() > PARKED_TEXT_BYTES_MAX {
            self.resident.shelf.clear();
        }
        shared.hub.rest(&self.session);
        shared.registry.with(|places| {
            if !self.jobs.is_empty() {
                return Some(self);
            }
            if Registry::is_at(places, &self.session, &self.desk) {
                let now = self.shared.clock.now();
                self.resident.claim = Some(self.epoch);
                places.insert(self.session, Place::AtRest(self.resident, now));
                if places.len() > CROWD_SESSIONS_MIN {
                    shared.crowded.notify_one();
                }
            }
            None
        })
    }

    /// The session is another's now, or cannot be read: everything under way here is stopped.
    async fn lose(mut self, error: &Error) {
        self.calls.clear();
        self.tools.clear();
        self.waiters.fail(error);
        self.shared.hub.rest(&self.session);
        leave(&self.shared, &self.session, &self.desk, error);
        self.jobs.close();
        for job in std::mem::take(&mut self.backlog) {
            job.fail(error);
        }
        while let Some(job) = self.jobs.recv().await {
            job.fail(error);
        }
    }
}

/// What a session owes, for recovery at the next start.
pub(crate) fn owes(session: &Session, spec: &segue_core::flow::FlowSpec) -> Owes {
    match (session.is_idle(), session.wake_at(spec)) {
        (false, _) => Owes::Now,
        (true, Some(at)) => Owes::At(at),
        (true, None) => Owes::Nothing,
    }
}

/// A session's row in lists.
pub(crate) fn summary_of(session: &Session, owes: Owes) -> Summary {
    Summary {
        flow: session.flow.as_ref().map(ToString::to_string).unwrap_or_default(),
        title: session.title.clone(),
        phase: session.phase_label(),
        turns: session.last.turn.0,
        calls: session.last.call.0,
        cost_microusd: session.ledger.total.cost(),
        created: session.opened,
        updated: session.at,
        owes,
    }
}
