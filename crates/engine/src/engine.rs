//! The engine's door: open, send, command, listen, look up. Everything here is safe to call from many tasks at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::body::{Body, BodyId};
use segue_core::codec;
use segue_core::context::Count;
use segue_core::decide::{Command, Doing, Env, Input, Refusal, Undecided, decide};
use segue_core::event::{Busy, Recorded, SessionOpened};
use segue_core::flow::settings::models_named;
use segue_core::flow::{FlowSpec, Rules};
use segue_core::ids::{Epoch, FlowName, IdempotencyKey, MessageId, Millis, ModelName, RoleName, Seq, SessionId};
use segue_core::limits::SESSION_ID_BYTES_MAX;
use segue_core::prompt::Image;
use segue_core::session::State;
use segue_models::Models;
use segue_store::{Commit, Owes, Page, Query, Store};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::actor::{flow_of, owes, summary_of, work};
use crate::breaker::Breaker;
use crate::casting::Casting;
use crate::chance::Chance;
use crate::clock::{Clock, SystemClock};
use crate::count::Tokens;
use crate::error::Error;
use crate::house::keep_house;
use crate::hub::{Hub, Subscription};
use crate::late::LateCalls;
use crate::limits::MAILBOX_INPUTS_MAX;
use crate::load::{Trace, find_trace, load_state, named, read_events, records, state_at};
use crate::pace::{ModelLimits, Pace};
use crate::registry::{Desk, Job, Place, Registry, Resident};
use crate::report::TurnReport;
use crate::shelf::Shelf;
use crate::tools::Tools;

/// What an engine is made of.
pub struct Setup {
    /// Where journals are kept.
    pub store: Arc<dyn Store>,
    /// The kinds of conversation it can hold.
    pub flows: Vec<Arc<dyn Rules>>,
    /// The models at hand.
    pub models: Arc<Models>,
    /// Which model plays whom.
    pub casting: Casting,
    /// The tools at hand.
    pub tools: Tools,
    /// What each model may be asked to bear.
    pub model_limits: BTreeMap<ModelName, ModelLimits>,
    /// The settings of new sessions, by flow, where whoever opens one says nothing else.
    pub settings: BTreeMap<FlowName, Value>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Chance,
    /// Counts tokens.
    pub count: Arc<dyn Count + Send + Sync>,
    /// When it takes up what an earlier engine left undone.
    pub recovery: Recovery,
}

/// When an engine takes up what is owed and was left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// At once, for every session.
    #[default]
    Now,
    /// For a session that is used, when it is used.
    OnUse,
    /// Never: what it is told is recorded, and nothing is begun. What is owed then is for another engine to do.
    Never,
}

impl Setup {
    /// An engine with the machine's clock, no tools, and every role played by `model`, that recovers at once.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, flows: Vec<Arc<dyn Rules>>, models: Models, model: &str) -> Self {
        let models = Arc::new(models);
        Self {
            store,
            flows,
            casting: Casting::new(models.clone(), model.into()),
            models,
            tools: Tools::default(),
            model_limits: BTreeMap::new(),
            settings: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            chance: Chance::unforeseen(),
            count: Arc::new(Tokens),
            recovery: Recovery::default(),
        }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What every task of the engine shares.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub flows: BTreeMap<FlowName, Arc<dyn Rules>>,
    pub models: Arc<Models>,
    pub casting: Casting,
    pub tools: Tools,
    pub settings: BTreeMap<FlowName, Value>,
    pub pace: Pace,
    pub breaker: Breaker,
    pub late: LateCalls,
    pub clock: Arc<dyn Clock>,
    pub chance: Chance,
    pub count: Arc<dyn Count + Send + Sync>,
    pub hub: Arc<Hub>,
    pub registry: Registry,
    /// Rung when more sessions rest than are kept at hand.
    pub crowded: Arc<Notify>,
    pub recovery: Recovery,
    pub closing: AtomicBool,
}

/// Runs sessions. Clones share.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("flows", &self.shared.flows.keys()).finish_non_exhaustive()
    }
}

/// How a session is to begin.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// Its name; one is made if there is none.
    pub session: Option<SessionId>,
    /// Its title; the beginning of the first message if there is none.
    pub title: Option<String>,
    /// What happens to a message while a turn runs.
    pub busy: Busy,
    /// The flow's settings for it; those not named are as the engine was set up with.
    pub settings: Value,
    /// Models that play roles in it, whatever is configured.
    pub cast: BTreeMap<RoleName, ModelName>,
}

/// Settings as they are given, and for what they do not name, as they are set up.
fn merged(set_up: Option<&Value>, given: Value) -> Value {
    match (set_up, given) {
        (Some(Value::Object(set_up)), Value::Object(given)) => {
            let mut all = set_up.clone();
            all.extend(given);
            Value::Object(all)
        }
        (Some(set_up), Value::Null) => set_up.clone(),
        (_, given) => given,
    }
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Message {
    /// What it says.
    pub text: String,
    /// What the client calls it: the same key again is the same message.
    pub key: Option<IdempotencyKey>,
    /// What happens to it while a turn runs; the session's own policy if not given.
    pub busy: Option<Busy>,
    /// What the user shows with it.
    pub images: Vec<Image>,
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self { text, key: None, busy: None, images: Vec::new() }
    }
}

impl Engine {
    /// Starts an engine and takes up what an earlier one left undone, as its setup says.
    ///
    /// # Errors
    /// A flow's data is broken, or the store cannot be read.
    pub async fn start(setup: Setup) -> Result<Self, Error> {
        let mut flows = BTreeMap::new();
        for rules in setup.flows {
            let (name, faults) = (rules.spec().name.clone(), rules.spec().faults());
            if !faults.is_empty() {
                return Err(Error::FaultyFlow { flow: name, faults });
            }
            flows.insert(name, rules);
        }
        let shared = Arc::new(Shared {
            store: setup.store,
            flows,
            models: setup.models,
            casting: setup.casting,
            tools: setup.tools,
            settings: setup.settings,
            pace: Pace::new(setup.model_limits),
            breaker: Breaker::default(),
            late: LateCalls::default(),
            clock: setup.clock,
            chance: setup.chance,
            count: setup.count,
            hub: Arc::new(Hub::default()),
            registry: Registry::default(),
            crowded: Arc::default(),
            recovery: setup.recovery,
            closing: AtomicBool::new(false),
        });
        let engine = Self { shared };
        if engine.shared.recovery == Recovery::Now {
            engine.take_up_owing().await.map_err(|error| Error::Store(Arc::new(error)))?;
        }
        tokio::spawn(keep_house(Arc::downgrade(&engine.shared)));
        Ok(engine)
    }

    /// The flows it can run.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<dyn Rules>> {
        self.shared.flows.values()
    }

    /// The models at hand.
    #[must_use]
    pub fn models(&self) -> &Models {
        &self.shared.models
    }

    /// Which model plays whom.
    #[must_use]
    pub fn casting(&self) -> &Casting {
        &self.shared.casting
    }

    /// Where journals are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// A name for a new session that people can say. By chance it may be taken.
    #[must_use]
    pub fn new_name(&self) -> String {
        self.shared.chance.name()
    }

    /// How many sessions are at work here.
    #[must_use]
    pub fn at_work(&self) -> usize {
        self.shared.registry.at_work().len()
    }

    /// Whether a session is at work here.
    #[must_use]
    pub fn is_at_work(&self, session: &SessionId) -> bool {
        self.shared.registry.with(|places| places.get(session).is_some_and(Place::is_at_work))
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.shared.clock.now()
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The flow is unknown, a setting does not fit, the name is taken or cannot be used, or the store failed.
    pub async fn open(&self, flow: &FlowName, opening: Opening) -> Result<SessionId, Error> {
        self.not_closing()?;
        let rules = self.shared.rules(Some(flow))?;
        let session = match opening.session {
            Some(session) => check_name(session)?,
            None => SessionId::from(self.shared.chance.name()),
        };
        let settings = merged(self.shared.settings.get(flow), opening.settings);
        self.check_settings(&*rules, &settings)?;
        self.check_cast(rules.spec(), &opening.cast)?;
        let opened = SessionOpened {
            format: codec::FORMAT,
            session: session.clone(),
            flow: flow.clone(),
            title: opening.title,
            busy: opening.busy,
            settings,
            cast: opening.cast,
        };
        let shelf = Shelf::default();
        let env = Env {
            now: self.shared.clock.now(),
            chance: 0,
            count: &*self.shared.count,
            texts: &shelf,
            catalog: &self.shared.casting,
            doing: self.shared.doing(),
        };
        let decision = match decide(&*rules, &State::fresh(&*rules), Input::Open(opened), env) {
            Ok(decision) => decision,
            Err(Undecided::Refused(refusal)) => return Err(refusal.into()),
            Err(Undecided::NeedTexts(_)) => return Err(Error::NoSuchSession(session)),
        };
        let epoch = self.write_new(&session, &decision.events, decision.bodies, &decision.state, &*rules).await?;
        let (is_idle, wake_at) = (decision.state.session.is_idle(), decision.state.session.wake_at(rules.spec()));
        let resident = Resident { state: decision.state, shelf, claim: Some(epoch), snapshot_at: Seq(0) };
        let place = Place::AtRest(Box::new(resident), self.shared.clock.now());
        // Whoever knew the name beforehand may have brought it to work already.
        self.shared.registry.with(|places| places.entry(session.clone()).or_insert(place).is_at_work());
        self.shared.hub.publish(&session, &decision.events);
        if let Some(at) = wake_at {
            self.shared.registry.set_alarm(at, &session);
        }
        if !is_idle {
            self.post(&session, Job::quiet(Input::Tick)).await;
        }
        Ok(session)
    }

    /// Whether a cast names roles that the flow has and models that there are.
    fn check_cast(&self, spec: &FlowSpec, cast: &BTreeMap<RoleName, ModelName>) -> Result<(), Error> {
        for (role, model) in cast {
            if !spec.roles.contains_key(role) {
                let known = spec.roles.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(Refusal::NoSuchRole { role: role.clone(), known }.into());
            }
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        Ok(())
    }

    /// Whether settings fit a flow, and the models they name are there.
    pub(crate) fn check_settings(&self, rules: &dyn Rules, settings: &Value) -> Result<(), Error> {
        let spec = rules.spec();
        let mut why: Vec<String> = spec.misfits(settings).iter().map(ToString::to_string).collect();
        if why.is_empty() {
            why = rules.unfit(settings);
        }
        for (at, model) in models_named(&spec.settings, settings) {
            why.extend(self.models().get(&model).err().map(|failure| format!("`{at}`: {}", failure.message)));
        }
        if why.is_empty() { Ok(()) } else { Err(Error::BadSettings { flow: spec.name.clone(), why }) }
    }

    /// Writes the first events of a session, all or nothing.
    pub(crate) async fn write_new(
        &self,
        session: &SessionId,
        events: &[Recorded],
        bodies: Vec<Body>,
        state: &State,
        rules: &dyn Rules,
    ) -> Result<Epoch, Error> {
        let store = &*self.shared.store;
        let fail = |error| Error::from_store(session, error);
        // Under another name it is a branch, and that is still to be recorded.
        let is_branch = state.session.id.as_ref().is_some_and(|id| id != session);
        let owes = if is_branch { Owes::Now } else { owes(&state.session, rules.spec()) };
        let claim = store.create(session).await.map_err(fail)?;
        let commit = Commit {
            session: session.clone(),
            epoch: claim.epoch,
            expected: claim.head,
            records: records(events),
            bodies,
            names: named,
            summary: Some(summary_of(&state.session, owes)),
        };
        let Err(error) = store.append(commit).await else { return Ok(claim.epoch) };
        // It may have taken effect nevertheless; if not, the name is free again.
        match find_trace(store, session, events).await {
            Ok((Trace::There, epoch)) => Ok(epoch),
            Ok((Trace::Missing, epoch)) => {
                let _ = store.release(session, epoch).await;
                Err(fail(error))
            }
            Err(_) => Err(fail(error)),
        }
    }

    /// Sends a message. When this returns it is durable, and will be answered whatever happens.
    ///
    /// # Errors
    /// It was not accepted, and says why.
    pub async fn send(&self, session: &SessionId, message: Message) -> Result<MessageId, Error> {
        let accepted = self.give(session, message_input(message)).await?;
        accepted.ok_or_else(|| Error::Stopped(session.clone()))
    }

    /// Sends a message and waits for the end of its turn.
    ///
    /// # Errors
    /// It was not accepted, or the session was lost to another process meanwhile.
    pub async fn ask(&self, session: &SessionId, message: Message) -> Result<TurnReport, Error> {
        self.not_closing()?;
        let (waiter, report) = oneshot::channel();
        self.post(session, Job { waiter: Some(waiter), ..Job::quiet(message_input(message)) }).await;
        report.await.map_err(|_| self.stopped(session))?
    }

    /// Does what a person at the controls wants.
    ///
    /// # Errors
    /// It was refused, and says why.
    pub async fn command(&self, session: &SessionId, command: Command) -> Result<(), Error> {
        self.give(session, Input::Operator(command)).await.map(|_| ())
    }

    pub(crate) async fn give(&self, session: &SessionId, input: Input) -> Result<Option<MessageId>, Error> {
        self.not_closing()?;
        let (done, result) = oneshot::channel();
        self.post(session, Job { done: Some(done), ..Job::quiet(input) }).await;
        result.await.map_err(|_| self.stopped(session))?
    }

    fn stopped(&self, session: &SessionId) -> Error {
        self.not_closing().err().unwrap_or_else(|| Error::Stopped(session.clone()))
    }

    /// Takes a session up if its state owes anything; a session that owes nothing stays at rest.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn wake(&self, session: &SessionId) -> Result<(), Error> {
        self.give(session, Input::Tick).await.map(|_| ())
    }

    /// Brings an input to its session, starting the session's task if it is at rest.
    pub(crate) async fn post(&self, session: &SessionId, mut job: Job) {
        loop {
            // Handed over under the same lock under which a session goes to rest: what is in the mailbox is seen there.
            let handed = self.shared.registry.with(|places| {
                if let Some(Place::AtWork(desk)) = places.get(session)
                    && !desk.jobs.is_closed()
                {
                    return desk.hand(job);
                }
                let (sender, jobs) = mpsc::channel(MAILBOX_INPUTS_MAX);
                let desk = Desk::new(sender);
                let handed = desk.hand(job);
                let rested = match places.insert(session.clone(), Place::AtWork(desk.clone())) {
                    Some(Place::AtRest(resident, _)) => Some(resident),
                    Some(Place::AtWork(_)) | None => None,
                };
                tokio::spawn(work(self.shared.clone(), session.clone(), rested, desk, jobs));
                handed
            });
            let Err(refused) = handed else { return };
            let (desk, returned) = *refused;
            job = returned;
            // Its mailbox is full, or its task went to rest just now.
            let _ = desk.jobs.reserve().await;
        }
    }

    /// Listens to a session from after a place on: first what was recorded since, then what happens.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn subscribe(&self, session: &SessionId, after: Seq) -> Result<Subscription, Error> {
        read_events(&*self.shared.store, session, after, 1).await?;
        Ok(Subscription::new(self.shared.hub.clone(), self.shared.store.clone(), session.clone(), after))
    }

    /// At most `limit` events after a place.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn events(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, Error> {
        read_events(&*self.shared.store, session, after, limit).await
    }

    /// A session's state as it stands in the store.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn state(&self, session: &SessionId) -> Result<(Arc<dyn Rules>, State), Error> {
        let rules = self.shared.rules(flow_of(&self.shared, session).await?.as_ref())?;
        let (state, _) = load_state(&*self.shared.store, &*rules, session).await?;
        Ok((rules, state))
    }

    /// A session's state right after an event.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn state_at(&self, session: &SessionId, at: Seq) -> Result<(Arc<dyn Rules>, State), Error> {
        let rules = self.shared.rules(flow_of(&self.shared, session).await?.as_ref())?;
        let state = state_at(&*self.shared.store, &*rules, session, at).await?;
        Ok((rules, state))
    }

    /// Why what a session has to record cannot be written now, if so: no room on disk, as a rule. It is kept and offered again
    /// until the store takes it, so nothing is lost; but somebody may want to know.
    #[must_use]
    pub fn trouble(&self, session: &SessionId) -> Option<Error> {
        self.shared.hub.trouble(session)
    }

    /// Texts of a session, in the order asked for.
    ///
    /// # Errors
    /// One of them is not there.
    pub async fn texts(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.shared.store.bodies(session, ids).await.map_err(|error| Error::from_store(session, error))
    }

    /// Sessions, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        self.shared.store.list(query).await.map_err(|error| Error::Store(Arc::new(error)))
    }

    fn not_closing(&self) -> Result<(), Error> {
        if self.shared.closing.load(Ordering::Acquire) { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    /// Who does what a decision leaves owed.
    pub fn doing(&self) -> Doing {
        match self.recovery {
            Recovery::Now | Recovery::OnUse => Doing::Here,
            Recovery::Never => Doing::Elsewhere,
        }
    }

    /// The rules of a flow.
    pub fn rules(&self, flow: Option<&FlowName>) -> Result<Arc<dyn Rules>, Error> {
        let found = flow.and_then(|flow| self.flows.get(flow));
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.flows.keys().map(|name| format!("`{name}`")).collect();
            Error::NoSuchFlow { name: flow.cloned().unwrap_or_else(|| "".into()), known: known.join(", ") }
        })
    }
}

fn message_input(message: Message) -> Input {
    Input::Message { text: message.text, key: message.key, busy: message.busy, images: message.images }
}

/// Whether a name can be used for a session.
///
/// # Errors
/// It cannot, and why.
pub fn check_name(session: SessionId) -> Result<SessionId, Error> {
    let name = session.as_str();
    let fitting = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let why = if name.is_empty() || name.len() > SESSION_ID_BYTES_MAX {
        format!("it must have 1 to {SESSION_ID_BYTES_MAX} characters")
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it must begin with a letter or a digit".to_owned()
    } else if !name.chars().all(fitting) {
        "it may hold letters, digits, `-`, `_` and `.`".to_owned()
    } else {
        return Ok(session);
    };
    Err(Error::BadSessionName { name: name.to_owned(), why })
}
