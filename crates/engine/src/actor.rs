//! One session at work: decide, commit, apply, publish, dispatch, and again. The only loop there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::codec;
use segue_core::decide::{Decision, Env, Input, Undecided, decide};
use segue_core::event::{CallOpened, Event};
use segue_core::flow::{About, Lookup, Rules, Sight, Texts};
use segue_core::ids::{CallId, Epoch, FlowName, MessageId, Millis, SessionId, ToolRunId};
use segue_core::prompt::Prompt;
use segue_core::session::{Act, Session};
use segue_models::{Hints, Kind};
use segue_store::{Commit, Owes, Record, Snapshot, Summary, Takeover};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::count::Tokens;
use crate::engine::Shared;
use crate::error::Error;
use crate::limits::{PARKED_TEXT_BYTES_MAX, SNAPSHOT_EVENTS_MIN, WRITE_RETRY_MS_MAX};
use crate::load::{load_state, read_events};
use crate::registry::{Job, Place, Resident};
use crate::report::{TurnReport, Waiters};
use crate::shelf::Shelf;

pub(crate) struct Actor {
    shared: Arc<Shared>,
    session: SessionId,
    rules: Arc<dyn Rules>,
    resident: Box<Resident>,
    epoch: Epoch,
    jobs: mpsc::Receiver<Job>,
    sender: mpsc::Sender<Job>,
    waiters: Waiters,
    calls: BTreeMap<(CallId, u32), Flight>,
    tools: BTreeMap<ToolRunId, Flight>,
    wake: Option<Millis>,
    owes: Option<Owes>,
}

/// Why an actor ends other than by going to rest.
struct Lost(Error);

/// Brings a session to work: claims it, takes it up where it stood, and works until there is nothing left to do.
pub(crate) async fn work(
    shared: Arc<Shared>,
    session: SessionId,
    rested: Option<Box<Resident>>,
    sender: mpsc::Sender<Job>,
    mut jobs: mpsc::Receiver<Job>,
) {
    match take_up(&shared, &session, rested).await {
        Ok((rules, resident, epoch)) => {
            let actor = Actor {
                shared,
                session,
                rules,
                resident,
                epoch,
                jobs,
                sender,
                waiters: Waiters::default(),
                calls: BTreeMap::new(),
                tools: BTreeMap::new(),
                wake: None,
                owes: None,
            };
            actor.run().await;
        }
        Err(error) => {
            shared.registry.with(|places| places.remove(&session));
            jobs.close();
            while let Some(job) = jobs.recv().await {
                job.fail(&error);
            }
        }
    }
}

async fn take_up(
    shared: &Shared,
    session: &SessionId,
    rested: Option<Box<Resident>>,
) -> Result<(Arc<dyn Rules>, Box<Resident>, Epoch), Error> {
    if let Some(resident) = rested {
        let flow = resident.state.session.flow.clone();
        let rules = shared.rules(flow.as_ref())?;
        let epoch = match resident.claim {
            Some(epoch) => epoch,
            None => {
                let claim = shared.store.claim(session, Takeover::IfDead).await;
                let claim = claim.map_err(|error| Error::from_store(session, error))?;
                if claim.head != resident.state.session.seq {
                    return load(shared, session, claim.epoch).await;
                }
                claim.epoch
            }
        };
        return Ok((rules, resident, epoch));
    }
    let claim = shared.store.claim(session, Takeover::IfDead).await;
    let claim = claim.map_err(|error| Error::from_store(session, error))?;
    load(shared, session, claim.epoch).await
}

async fn load(
    shared: &Shared,
    session: &SessionId,
    epoch: Epoch,
) -> Result<(Arc<dyn Rules>, Box<Resident>, Epoch), Error> {
    let flow = flow_of(shared, session).await?;
    let rules = shared.rules(flow.as_ref())?;
    let (state, snapshot_at) = load_state(&*shared.store, &*rules, session).await?;
    let resident = Resident { state, shelf: Shelf::default(), claim: Some(epoch), snapshot_at };
    Ok((rules, Box::new(resident), epoch))
}

/// The flow a session was opened with: its first event says so.
pub(crate) async fn flow_of(shared: &Shared, session: &SessionId) -> Result<Option<FlowName>, Error> {
    let first = read_events(&*shared.store, session, segue_core::ids::Seq(0), 1).await?;
    Ok(first.first().and_then(|event| match &event.event {
        Event::SessionOpened(opened) => Some(opened.flow.clone()),
        _ => None,
    }))
}

impl Actor {
    async fn run(mut self) {
        if let Err(Lost(error)) = self.resume().await {
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
    async fn resume(&mut self) -> Result<(), Lost> {
        if self.session().id.as_ref().is_some_and(|id| *id != self.session) {
            let (from, at) = (self.session().id.clone(), self.session().seq);
            let from = from.unwrap_or_else(|| self.session.clone());
            self.insist(Input::Forked { session: self.session.clone(), from, at }).await?.map_err(Lost)?;
        } else if !self.session().is_idle() {
            self.insist(Input::Recovered).await?.map_err(Lost)?;
        }
        self.dispatch().await
    }

    /// The next thing to do; nothing if the session can go to rest.
    async fn next_job(&mut self) -> Option<Job> {
        if let Ok(job) = self.jobs.try_recv() {
            return Some(job);
        }
        if self.session().is_idle() {
            return None;
        }
        let wait = self.wake.map(|at| Duration::from_millis(at.since(self.shared.clock.now())));
        match wait {
            Some(wait) => match tokio::time::timeout(wait, self.jobs.recv()).await {
                Ok(job) => job,
                Err(_) => Some(Job::quiet(Input::Tick)),
            },
            None => self.jobs.recv().await,
        }
    }

    async fn handle(&mut self, job: Job) -> Result<(), Lost> {
        let Job { input, done, waiter } = job;
        // What came from a call or a tool was paid for: it is written down, however long that takes.
        let paid =
            matches!(input, Input::Answer { .. } | Input::Failure { .. } | Input::ToolResult { .. } | Input::Tick);
        let result = if paid { self.insist(input).await? } else { self.commit(input, waiter).await };
        match result {
            Err(error @ (Error::TakenOver(_) | Error::InUse { .. })) => {
                if let Some(done) = done {
                    let _ = done.send(Err(error.clone()));
                }
                Err(Lost(error))
            }
            result => {
                if let Some(done) = done {
                    let _ = done.send(result);
                }
                self.dispatch().await
            }
        }
    }

    /// Commits an input that must not be lost: what the store does not take now, it is offered again.
    async fn insist(&mut self, input: Input) -> Result<Result<Option<MessageId>, Error>, Lost> {
        let mut wait_ms = 50;
        loop {
            match self.commit(input.clone(), None).await {
                Err(error @ (Error::TakenOver(_) | Error::InUse { .. } | Error::Unreadable { .. })) => {
                    return Err(Lost(error));
                }
                Err(Error::Store(_)) => {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                result => return Ok(result),
            }
        }
    }

    /// Decide, append, apply, publish.
    async fn commit(
        &mut self,
        input: Input,
        waiter: Option<crate::report::Answered>,
    ) -> Result<Option<MessageId>, Error> {
        let decision = match self.decide(input).await {
            Ok(decision) => decision,
            Err(error) => {
                if let Some(waiter) = waiter {
                    let _ = waiter.send(Err(error.clone()));
                }
                return Err(error);
            }
        };
        if !decision.events.is_empty()
            && let Err(error) = self.append(&decision).await
        {
            if let Some(waiter) = waiter {
                let _ = waiter.send(Err(error.clone()));
            }
            return Err(error);
        }
        if let Some((message, waiter)) = decision.message.zip(waiter) {
            self.wait_for(message, waiter, decision.events.is_empty()).await;
        }
        self.resident.shelf.put_all(&decision.bodies);
        self.resident.state = decision.state;
        self.shared.hub.publish(&self.session, &decision.events);
        if !self.waiters.is_empty() {
            let shelf = &self.resident.shelf;
            let session = &self.resident.state.session;
            let words =
                |text: segue_core::body::Text| shelf.find(text.body).map(|text| text.to_string()).unwrap_or_default();
            let report = |turn, outcome: &_, said| TurnReport {
                turn,
                outcome: Clone::clone(outcome),
                said,
                phase: session.phase_label(),
                spent: session.ledger.turn,
            };
            self.waiters.follow(&decision.events, &words, &report);
        }
        self.resident.shelf.prune(&self.resident.state.session);
        self.keep_snapshot(SNAPSHOT_EVENTS_MIN);
        Ok(decision.message)
    }

    /// Somebody waits for the turn of a message: one that is under way, or one that was answered before.
    async fn wait_for(&mut self, message: MessageId, waiter: crate::report::Answered, known: bool) {
        let session = self.session();
        let waits = session.queue.iter().any(|waiting| waiting.message == message)
            || session.turn.as_ref().is_some_and(|turn| turn.messages.iter().any(|waiting| waiting.message == message));
        if known && !waits {
            let report = self.shared.past_report(&self.session, message).await;
            let _ = waiter.send(report);
        } else {
            self.waiters.add(message, waiter);
        }
    }

    async fn decide(&mut self, input: Input) -> Result<Decision, Error> {
        loop {
            let env = Env {
                now: self.shared.clock.now(),
                chance: self.shared.chance.next(),
                count: &Tokens,
                texts: &self.resident.shelf,
                catalog: &self.shared.casting,
            };
            match decide(&*self.rules, &self.resident.state, input.clone(), env) {
                Ok(decision) => return Ok(decision),
                Err(Undecided::Refused(refusal)) => return Err(refusal.into()),
                Err(Undecided::NeedTexts(ids)) => self.fetch(ids).await?,
            }
        }
    }

    async fn fetch(&mut self, ids: Vec<segue_core::body::BodyId>) -> Result<(), Error> {
        let texts = self.shared.store.bodies(&self.session, &ids).await;
        let texts = texts.map_err(|error| Error::from_store(&self.session, error))?;
        for (id, text) in ids.into_iter().zip(texts) {
            self.resident.shelf.put(id, text);
        }
        Ok(())
    }

    async fn append(&mut self, decision: &Decision) -> Result<(), Error> {
        let records = decision.events.iter();
        let records = records.map(|event| Record { seq: event.seq, at: event.at, bytes: codec::encode(&event.event) });
        let commit = Commit {
            session: self.session.clone(),
            epoch: self.epoch,
            expected: self.session().seq,
            records: records.collect(),
            bodies: decision.bodies.clone(),
            summary: self.summary(decision),
        };
        match self.shared.store.append(commit).await {
            Ok(_) => Ok(()),
            Err(segue_store::Error::Full { what }) => Err(Error::Store(Arc::new(segue_store::Error::Full { what }))),
            Err(error) => {
                let error = Error::from_store(&self.session, error);
                if matches!(error, Error::Store(_)) {
                    // Whether it took effect is not known: read what stands.
                    self.reload().await?;
                }
                Err(error)
            }
        }
    }

    async fn reload(&mut self) -> Result<(), Error> {
        let claim = self.shared.store.claim(&self.session, Takeover::IfDead).await;
        let claim = claim.map_err(|error| Error::from_store(&self.session, error))?;
        let (state, snapshot_at) = load_state(&*self.shared.store, &*self.rules, &self.session).await?;
        self.epoch = claim.epoch;
        self.resident.state = state;
        self.resident.snapshot_at = snapshot_at;
        Ok(())
    }

    /// The session's row in lists, if it says anything new.
    fn summary(&mut self, decision: &Decision) -> Option<Summary> {
        let session = &decision.state.session;
        let owes = owes(session, self.rules.spec());
        let notable = decision.events.iter().any(|event| {
            matches!(
                event.event,
                Event::SessionOpened(_)
                    | Event::SessionForked { .. }
                    | Event::SessionRenamed { .. }
                    | Event::SessionClosed { .. }
                    | Event::TurnEnded { .. }
                    | Event::MessageReceived(_)
                    | Event::PhaseEntered(_)
            )
        });
        if !notable && self.owes == Some(owes) {
            return None;
        }
        self.owes = Some(owes);
        Some(summary_of(session, owes))
    }

    /// Starts what is owed and not under way; stops what is under way and no longer owed.
    async fn dispatch(&mut self) -> Result<(), Lost> {
        let owed = self.session().owed(self.rules.spec());
        self.wake = None;
        let mut due = Vec::new();
        for act in &owed {
            match act {
                Act::Call { call, attempt, not_before } if !self.calls.contains_key(&(*call, *attempt)) => {
                    due.push((*call, *attempt, *not_before));
                }
                Act::Tool { run } if !self.tools.contains_key(run) => self.run_tool(*run),
                Act::Call { .. } | Act::Tool { .. } => {}
                Act::Wake { at } => self.wake = Some(*at),
            }
        }
        let wanted = |id: &(CallId, u32)| {
            owed.iter().any(|act| matches!(act, Act::Call { call, attempt, .. } if (*call, *attempt) == *id))
        };
        self.calls.retain(|id, _| wanted(id));
        self.tools.retain(|run, _| owed.contains(&Act::Tool { run: *run }));
        for (call, attempt, not_before) in due {
            self.make_call(call, attempt, not_before).await?;
        }
        Ok(())
    }

    async fn make_call(&mut self, call: CallId, attempt: u32, not_before: Millis) -> Result<(), Lost> {
        let Some(plan) = self.session().plan(call) else { return Ok(()) };
        let missing = self.resident.shelf.missing(plan.needs());
        if !missing.is_empty() {
            self.fetch(missing).await.map_err(Lost)?;
        }
        let Ok(prompt) = plan.fill(&self.resident.shelf) else { return Ok(()) };
        let hints = self.hints(&plan.opened, &prompt);
        let errand = crate::dispatch::CallErrand {
            shared: self.shared.clone(),
            session: self.session.clone(),
            flow: self.rules.spec().name.clone(),
            role: self.rules.spec().roles.get(&plan.opened.role).cloned(),
            opened: plan.opened.clone(),
            attempt,
            not_before,
            prompt: Arc::new(prompt),
            hints,
            back: self.sender.clone(),
        };
        let flight = Flight(tokio::spawn(crate::dispatch::make_call(errand)).abort_handle());
        self.calls.insert((call, attempt), flight);
        Ok(())
    }

    /// What the flow tells a stand-in about a call.
    fn hints(&self, opened: &CallOpened, prompt: &Prompt) -> Hints {
        let model = self.shared.models.get(&opened.model);
        if !model.is_ok_and(|model| model.describe().kind == Kind::Rehearsal) {
            return Hints::default();
        }
        let texts = Texts::new(&self.resident.shelf);
        let (state, about) = (&self.resident.state, About::default());
        let sight = Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about };
        Hints { rehearse: self.rules.rehearse(sight, opened, prompt) }
    }

    fn run_tool(&mut self, run: ToolRunId) {
        let Some(opened) = self.session().tools.get(&run).cloned() else { return };
        let (shared, session, back) = (self.shared.clone(), self.session.clone(), self.sender.clone());
        let flight = tokio::spawn(crate::dispatch::run_tool(shared, session, opened, back));
        self.tools.insert(run, Flight(flight.abort_handle()));
    }

    fn keep_snapshot(&mut self, events_min: u64) {
        let seq = self.session().seq;
        if seq.0 - self.resident.snapshot_at.0 < events_min || self.session().turn.is_some() {
            return;
        }
        self.resident.snapshot_at = seq;
        let Some(bytes) = codec::encode_snapshot(&*self.rules, &self.resident.state) else { return };
        let (store, session) = (self.shared.store.clone(), self.session.clone());
        let snapshot = Snapshot { seq, format: codec::SNAPSHOT_FORMAT, bytes };
        tokio::spawn(async move {
            // A cache: if it is not kept, opening takes longer, and nothing else.
            let _ = store.keep_snapshot(&session, snapshot).await;
        });
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
        shared.hub.tidy(&self.session);
        shared.registry.with(|places| {
            if !self.jobs.is_empty() {
                return Some(self);
            }
            let now = self.shared.clock.now();
            self.resident.claim = Some(self.epoch);
            places.insert(self.session, Place::AtRest(self.resident, now));
            None
        })
    }

    /// The session is another's now, or cannot be read: everything under way here is stopped.
    async fn lose(mut self, error: &Error) {
        self.calls.clear();
        self.tools.clear();
        self.waiters.fail(error);
        self.shared.registry.with(|places| places.remove(&self.session));
        self.jobs.close();
        while let Some(job) = self.jobs.recv().await {
            job.fail(error);
        }
    }
}

/// A task that ends when nobody wants it any more.
struct Flight(AbortHandle);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.abort();
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
