//! The engine's door: open, send, command, listen, look up. Everything here is safe to call from many tasks at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::body::{BodyId, TextBody};
use segue_core::codec;
use segue_core::context::TokenCounter;
use segue_core::decide::{DecideError, DecisionEnv, Dispatch, InputRefusal, OperatorCommand, SessionInput, decide};
use segue_core::event::{MidTurnPolicy, RecordedEvent, SessionOpened};
use segue_core::flow::settings::collect_named_models;
use segue_core::flow::{DynFlow, FlowSpec};
use segue_core::ids::{
    FlowName, IdempotencyKey, LeaseEpoch, MessageId, ModelName, RoleName, Seq, SessionId, UnixMillis,
};
use segue_core::limits::SESSION_ID_BYTES_MAX;
use segue_core::prompt::PromptImage;
use segue_core::session::SessionState;
use segue_models::ModelRegistry;
use segue_store::{Commit, PendingWork, SessionListPage, SessionQuery, Store};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::abandoned_calls::AbandonedCalls;
use crate::actor::{find_pending_work, read_flow_name, run_session_actor, summarize_session};
use crate::circuit_breaker::CircuitBreaker;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::limits::MAILBOX_MESSAGES_MAX;
use crate::load::{
    CommitOutcome, body_ids_in_record, encode_events, find_commit_outcome, load_state, load_state_at, read_events,
};
use crate::maintenance::run_maintenance;
use crate::model_assignment::ModelAssignment;
use crate::random::RandomSource;
use crate::rate_limit::{ModelCallLimits, ModelRateLimiter};
use crate::registry::{ActorMessage, CachedSession, Mailbox, SessionRegistry, SessionSlot};
use crate::subscriptions::{Subscription, SubscriptionHub};
use crate::text_cache::TextCache;
use crate::token_counter::O200kTokenCounter;
use crate::tools::ToolRegistry;
use crate::turn_report::TurnReport;

/// What an engine is made of.
pub struct EngineConfig {
    /// Where journals are kept.
    pub store: Arc<dyn Store>,
    /// The kinds of conversation it can hold.
    pub flows: Vec<Arc<dyn DynFlow>>,
    /// The models at hand.
    pub models: Arc<ModelRegistry>,
    /// Which model plays whom.
    pub model_assignment: ModelAssignment,
    /// The tools at hand.
    pub tools: ToolRegistry,
    /// What each model may be asked to bear.
    pub model_limits: BTreeMap<ModelName, ModelCallLimits>,
    /// The settings of new sessions, by flow, where whoever opens one says nothing else.
    pub default_settings: BTreeMap<FlowName, Value>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: RandomSource,
    /// Counts tokens.
    pub token_counter: Arc<dyn TokenCounter + Send + Sync>,
    /// When it takes up what an earlier engine left undone.
    pub recovery: RecoveryPolicy,
}

/// When an engine takes up what is owed and was left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecoveryPolicy {
    /// At once, for every session.
    #[default]
    Immediate,
    /// For a session that is used, when it is used.
    OnUse,
    /// Never: what it is told is recorded, and nothing is begun. What is owed then is for another engine to do.
    Never,
}

impl EngineConfig {
    /// An engine with the machine's clock, no tools, and every role played by `model`, that recovers at once.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, flows: Vec<Arc<dyn DynFlow>>, models: ModelRegistry, model: &str) -> Self {
        let models = Arc::new(models);
        Self {
            store,
            flows,
            model_assignment: ModelAssignment::new(models.clone(), model.into()),
            models,
            tools: ToolRegistry::default(),
            model_limits: BTreeMap::new(),
            default_settings: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            random: RandomSource::from_entropy(),
            token_counter: Arc::new(O200kTokenCounter),
            recovery: RecoveryPolicy::default(),
        }
    }
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What every task of the engine shares.
pub(crate) struct EngineShared {
    pub store: Arc<dyn Store>,
    pub flows: BTreeMap<FlowName, Arc<dyn DynFlow>>,
    pub models: Arc<ModelRegistry>,
    pub model_assignment: ModelAssignment,
    pub tools: ToolRegistry,
    pub default_settings: BTreeMap<FlowName, Value>,
    pub rate_limiter: ModelRateLimiter,
    pub circuit_breaker: CircuitBreaker,
    pub abandoned_calls: AbandonedCalls,
    pub clock: Arc<dyn Clock>,
    pub random: RandomSource,
    pub token_counter: Arc<dyn TokenCounter + Send + Sync>,
    pub subscriptions: Arc<SubscriptionHub>,
    pub registry: SessionRegistry,
    /// Rung when more sessions rest than are kept at hand.
    pub eviction_needed: Arc<Notify>,
    pub recovery: RecoveryPolicy,
    pub is_shutting_down: AtomicBool,
}

/// Runs sessions. Clones share.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("flows", &self.shared.flows.keys()).finish_non_exhaustive()
    }
}

/// How a session is to begin.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Its name; one is made if there is none.
    pub session: Option<SessionId>,
    /// Its title; the beginning of the first message if there is none.
    pub title: Option<String>,
    /// What happens to a message while a turn runs.
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for it; those not named are as the engine was set up with.
    pub settings: Value,
    /// Models that play roles in it, whatever is configured.
    pub role_models: BTreeMap<RoleName, ModelName>,
}

/// Settings as they are given, and for what they do not name, as they are set up.
fn merge_settings(set_up: Option<&Value>, given: Value) -> Value {
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
pub struct UserMessage {
    /// What it says.
    pub text: String,
    /// What the client calls it: the same key again is the same message.
    pub idempotency_key: Option<IdempotencyKey>,
    /// What happens to it while a turn runs; the session's own policy if not given.
    pub mid_turn_policy: Option<MidTurnPolicy>,
    /// What the user shows with it.
    pub images: Vec<PromptImage>,
}

impl From<&str> for UserMessage {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for UserMessage {
    fn from(text: String) -> Self {
        Self { text, idempotency_key: None, mid_turn_policy: None, images: Vec::new() }
    }
}

impl Engine {
    /// Starts an engine and takes up what an earlier one left undone, as its setup says.
    ///
    /// # Errors
    /// A flow's data is broken, or the store cannot be read.
    pub async fn start(setup: EngineConfig) -> Result<Self, Error> {
        let mut flows = BTreeMap::new();
        for rules in setup.flows {
            let (name, faults) = (rules.spec().name.clone(), rules.spec().validation_errors());
            if !faults.is_empty() {
                return Err(Error::InvalidFlow { flow: name, faults });
            }
            flows.insert(name, rules);
        }
        let shared = Arc::new(EngineShared {
            store: setup.store,
            flows,
            models: setup.models,
            model_assignment: setup.model_assignment,
            tools: setup.tools,
            default_settings: setup.default_settings,
            rate_limiter: ModelRateLimiter::new(setup.model_limits),
            circuit_breaker: CircuitBreaker::default(),
            abandoned_calls: AbandonedCalls::default(),
            clock: setup.clock,
            random: setup.random,
            token_counter: setup.token_counter,
            subscriptions: Arc::new(SubscriptionHub::default()),
            registry: SessionRegistry::default(),
            eviction_needed: Arc::default(),
            recovery: setup.recovery,
            is_shutting_down: AtomicBool::new(false),
        });
        let engine = Self { shared };
        if engine.shared.recovery == RecoveryPolicy::Immediate {
            engine.resume_pending_sessions().await.map_err(|error| Error::Store(Arc::new(error)))?;
        }
        tokio::spawn(run_maintenance(Arc::downgrade(&engine.shared)));
        Ok(engine)
    }

    /// The flows it can run.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<dyn DynFlow>> {
        self.shared.flows.values()
    }

    /// The models at hand.
    #[must_use]
    pub fn models(&self) -> &ModelRegistry {
        &self.shared.models
    }

    /// Which model plays whom.
    #[must_use]
    pub fn model_assignment(&self) -> &ModelAssignment {
        &self.shared.model_assignment
    }

    /// Where journals are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// A name for a new session that people can say. By chance it may be taken.
    #[must_use]
    pub fn generate_session_name(&self) -> String {
        self.shared.random.pronounceable_name()
    }

    /// How many sessions are at work here.
    #[must_use]
    pub fn active_session_count(&self) -> usize {
        self.shared.registry.active_mailboxes().len()
    }

    /// Whether a session is at work here.
    #[must_use]
    pub fn is_session_active(&self, session: &SessionId) -> bool {
        self.shared.registry.with_slots(|places| places.get(session).is_some_and(SessionSlot::is_active))
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.shared.clock.now()
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The flow is unknown, a setting does not fit, the name is taken or cannot be used, or the store failed.
    pub async fn open_session(&self, flow: &FlowName, opening: SessionOptions) -> Result<SessionId, Error> {
        self.ensure_not_shutting_down()?;
        let rules = self.shared.find_flow(Some(flow))?;
        let session = match opening.session {
            Some(session) => validate_session_name(session)?,
            None => SessionId::from(self.shared.random.pronounceable_name()),
        };
        let settings = merge_settings(self.shared.default_settings.get(flow), opening.settings);
        self.validate_settings(&*rules, &settings)?;
        self.validate_role_models(rules.spec(), &opening.role_models)?;
        let opened = SessionOpened {
            format: codec::EVENT_FORMAT,
            session: session.clone(),
            flow: flow.clone(),
            title: opening.title,
            mid_turn_policy: opening.mid_turn_policy,
            settings,
            model_overrides: opening.role_models,
        };
        let shelf = TextCache::default();
        let env = DecisionEnv {
            now: self.shared.clock.now(),
            random: 0,
            token_counter: &*self.shared.token_counter,
            texts: &shelf,
            model_selector: &self.shared.model_assignment,
            dispatch: self.shared.dispatch_mode(),
        };
        let decision = match decide(&*rules, &SessionState::new(&*rules), SessionInput::Open(opened), env) {
            Ok(decision) => decision,
            Err(DecideError::Refused(refusal)) => return Err(refusal.into()),
            Err(DecideError::MissingTexts(_)) => return Err(Error::NoSuchSession(session)),
        };
        let epoch =
            self.write_new_session(&session, &decision.events, decision.bodies, &decision.state, &*rules).await?;
        let (is_idle, wake_at) = (decision.state.session.is_idle(), decision.state.session.next_wake_at(rules.spec()));
        let resident =
            CachedSession { state: decision.state, texts: shelf, lease_epoch: Some(epoch), snapshot_seq: Seq(0) };
        let place = SessionSlot::Parked(Box::new(resident), self.shared.clock.now());
        // Whoever knew the name beforehand may have brought it to work already.
        self.shared.registry.with_slots(|places| places.entry(session.clone()).or_insert(place).is_active());
        self.shared.subscriptions.publish_events(&session, &decision.events);
        if let Some(at) = wake_at {
            self.shared.registry.set_alarm(at, &session);
        }
        if !is_idle {
            self.deliver_message(&session, ActorMessage::without_reply(SessionInput::Tick)).await;
        }
        Ok(session)
    }

    /// Whether a cast names roles that the flow has and models that there are.
    fn validate_role_models(&self, spec: &FlowSpec, cast: &BTreeMap<RoleName, ModelName>) -> Result<(), Error> {
        for (role, model) in cast {
            if !spec.roles.contains_key(role) {
                let known = spec.roles.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(InputRefusal::NoSuchRole { role: role.clone(), known }.into());
            }
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        Ok(())
    }

    /// Whether settings fit a flow, and the models they name are there.
    pub(crate) fn validate_settings(&self, flow: &dyn DynFlow, settings: &Value) -> Result<(), Error> {
        let spec = flow.spec();
        let mut why: Vec<String> = spec.invalid_settings(settings).iter().map(ToString::to_string).collect();
        if why.is_empty() {
            why = flow.validate_settings(settings);
        }
        for (at, model) in collect_named_models(&spec.settings, settings) {
            why.extend(self.models().get(&model).err().map(|failure| format!("`{at}`: {}", failure.message)));
        }
        if why.is_empty() { Ok(()) } else { Err(Error::BadSettings { flow: spec.name.clone(), why }) }
    }

    /// Writes the first events of a session, all or nothing.
    pub(crate) async fn write_new_session(
        &self,
        session: &SessionId,
        events: &[RecordedEvent],
        bodies: Vec<TextBody>,
        state: &SessionState,
        flow: &dyn DynFlow,
    ) -> Result<LeaseEpoch, Error> {
        let store = &*self.shared.store;
        let fail = |error| Error::from_store_error(session, error);
        // Under another name it is a branch, and that is still to be recorded.
        let is_branch = state.session.id.as_ref().is_some_and(|id| id != session);
        let owes = if is_branch { PendingWork::Now } else { find_pending_work(&state.session, flow.spec()) };
        let claim = store.create_session(session).await.map_err(fail)?;
        let commit = Commit {
            session: session.clone(),
            epoch: claim.epoch,
            expected_head: claim.head,
            records: encode_events(events),
            bodies,
            extract_body_ids: body_ids_in_record,
            summary: Some(summarize_session(&state.session, owes)),
        };
        let Err(error) = store.append_commit(commit).await else { return Ok(claim.epoch) };
        // It may have taken effect nevertheless; if not, the name is free again.
        match find_commit_outcome(store, session, events).await {
            Ok((CommitOutcome::Written, epoch)) => Ok(epoch),
            Ok((CommitOutcome::NotWritten, epoch)) => {
                let _ = store.release_lease(session, epoch).await;
                Err(fail(error))
            }
            Err(_) => Err(fail(error)),
        }
    }

    /// Sends a message. When this returns it is durable, and will be answered whatever happens.
    ///
    /// # Errors
    /// It was not accepted, and says why.
    pub async fn send_message(&self, session: &SessionId, message: UserMessage) -> Result<MessageId, Error> {
        let accepted = self.submit_input(session, to_message_input(message)).await?;
        accepted.ok_or_else(|| Error::Stopped(session.clone()))
    }

    /// Sends a message and waits for the end of its turn.
    ///
    /// # Errors
    /// It was not accepted, or the session was lost to another process meanwhile.
    pub async fn send_and_wait(&self, session: &SessionId, message: UserMessage) -> Result<TurnReport, Error> {
        self.ensure_not_shutting_down()?;
        let (waiter, report) = oneshot::channel();
        self.deliver_message(
            session,
            ActorMessage { turn_waiter: Some(waiter), ..ActorMessage::without_reply(to_message_input(message)) },
        )
        .await;
        report.await.map_err(|_| self.stopped_error(session))?
    }

    /// Does what a person at the controls wants.
    ///
    /// # Errors
    /// It was refused, and says why.
    pub async fn apply_command(&self, session: &SessionId, command: OperatorCommand) -> Result<(), Error> {
        self.submit_input(session, SessionInput::Operator(command)).await.map(|_| ())
    }

    pub(crate) async fn submit_input(
        &self,
        session: &SessionId,
        input: SessionInput,
    ) -> Result<Option<MessageId>, Error> {
        self.ensure_not_shutting_down()?;
        let (done, result) = oneshot::channel();
        self.deliver_message(session, ActorMessage { reply_sender: Some(done), ..ActorMessage::without_reply(input) })
            .await;
        result.await.map_err(|_| self.stopped_error(session))?
    }

    fn stopped_error(&self, session: &SessionId) -> Error {
        self.ensure_not_shutting_down().err().unwrap_or_else(|| Error::Stopped(session.clone()))
    }

    /// Takes a session up if its state owes anything; a session that owes nothing stays at rest.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn wake_session(&self, session: &SessionId) -> Result<(), Error> {
        self.submit_input(session, SessionInput::Tick).await.map(|_| ())
    }

    /// Brings an input to its session, starting the session's task if it is at rest.
    pub(crate) async fn deliver_message(&self, session: &SessionId, mut job: ActorMessage) {
        loop {
            // Handed over under the same lock under which a session goes to rest: what is in the mailbox is seen there.
            let handed = self.shared.registry.with_slots(|places| {
                if let Some(SessionSlot::Active(desk)) = places.get(session)
                    && !desk.sender.is_closed()
                {
                    return desk.try_send(job);
                }
                let (sender, jobs) = mpsc::channel(MAILBOX_MESSAGES_MAX);
                let desk = Mailbox::new(sender);
                let handed = desk.try_send(job);
                let rested = match places.insert(session.clone(), SessionSlot::Active(desk.clone())) {
                    Some(SessionSlot::Parked(resident, _)) => Some(resident),
                    Some(SessionSlot::Active(_)) | None => None,
                };
                tokio::spawn(run_session_actor(self.shared.clone(), session.clone(), rested, desk, jobs));
                handed
            });
            let Err(refused) = handed else { return };
            let (desk, returned) = *refused;
            job = returned;
            // Its mailbox is full, or its task went to rest just now.
            let _ = desk.sender.reserve().await;
        }
    }

    /// Listens to a session from after a place on: first what was recorded since, then what happens.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn subscribe(&self, session: &SessionId, after: Seq) -> Result<Subscription, Error> {
        read_events(&*self.shared.store, session, after, 1).await?;
        Ok(Subscription::new(self.shared.subscriptions.clone(), self.shared.store.clone(), session.clone(), after))
    }

    /// At most `limit` events after a place.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn read_events(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, Error> {
        read_events(&*self.shared.store, session, after, limit).await
    }

    /// A session's state as it stands in the store.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn load_session(&self, session: &SessionId) -> Result<(Arc<dyn DynFlow>, SessionState), Error> {
        let rules = self.shared.find_flow(read_flow_name(&self.shared, session).await?.as_ref())?;
        let (state, _) = load_state(&*self.shared.store, &*rules, session).await?;
        Ok((rules, state))
    }

    /// A session's state right after an event.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn load_session_at(
        &self,
        session: &SessionId,
        at: Seq,
    ) -> Result<(Arc<dyn DynFlow>, SessionState), Error> {
        let rules = self.shared.find_flow(read_flow_name(&self.shared, session).await?.as_ref())?;
        let state = load_state_at(&*self.shared.store, &*rules, session, at).await?;
        Ok((rules, state))
    }

    /// Why what a session has to record cannot be written now, if so: no room on disk, as a rule. It is kept and offered again
    /// until the store takes it, so nothing is lost; but somebody may want to know.
    #[must_use]
    pub fn pending_write_error(&self, session: &SessionId) -> Option<Error> {
        self.shared.subscriptions.write_error(session)
    }

    /// Texts of a session, in the order asked for.
    ///
    /// # Errors
    /// One of them is not there.
    pub async fn read_texts(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.shared.store.read_bodies(session, ids).await.map_err(|error| Error::from_store_error(session, error))
    }

    /// Sessions, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        self.shared.store.list_sessions(query).await.map_err(|error| Error::Store(Arc::new(error)))
    }

    fn ensure_not_shutting_down(&self) -> Result<(), Error> {
        if self.shared.is_shutting_down.load(Ordering::Acquire) { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    pub(crate) fn from_shared(shared: Arc<EngineShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &EngineShared {
        &self.shared
    }
}

impl EngineShared {
    /// Who does what a decision leaves owed.
    pub fn dispatch_mode(&self) -> Dispatch {
        match self.recovery {
            RecoveryPolicy::Immediate | RecoveryPolicy::OnUse => Dispatch::Immediate,
            RecoveryPolicy::Never => Dispatch::Deferred,
        }
    }

    /// The rules of a flow.
    pub fn find_flow(&self, flow: Option<&FlowName>) -> Result<Arc<dyn DynFlow>, Error> {
        let found = flow.and_then(|flow| self.flows.get(flow));
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.flows.keys().map(|name| format!("`{name}`")).collect();
            Error::NoSuchFlow { name: flow.cloned().unwrap_or_else(|| "".into()), known: known.join(", ") }
        })
    }
}

fn to_message_input(message: UserMessage) -> SessionInput {
    SessionInput::Message {
        text: message.text,
        idempotency_key: message.idempotency_key,
        mid_turn_policy: message.mid_turn_policy,
        images: message.images,
    }
}

/// Whether a name can be used for a session.
///
/// # Errors
/// It cannot, and why.
pub fn validate_session_name(session: SessionId) -> Result<SessionId, Error> {
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
