//! The engine's public interface: open sessions, send messages and commands, subscribe, and read. All methods may be
//! called from many tasks at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::body::{BodyId, TextToStore};
use segue_core::codec;
use segue_core::context::TokenCounter;
use segue_core::decide::{
    DecideError, Decision, DecisionEnv, EffectDispatchMode, OperatorCommand, SessionInput, decide,
};
use segue_core::event::{RecordedEvent, SessionOpened};
use segue_core::flow::{DynFlow, OperatorToolApprovalRules, collect_named_models};
use segue_core::ids::{FlowName, LeaseEpoch, MessageId, Seq, SessionId, UnixMillis};
use segue_core::session::SessionState;
use segue_models::ModelRegistry;
use segue_store::{
    JournalCommit, PendingWorkStatus, SessionListChangeCursor, SessionListChangePage, SessionListPage, SessionQuery,
    Store,
};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tracing::Instrument;

use crate::abandoned_calls::AbandonedCalls;
use crate::actor::{find_pending_work, run_session_actor, to_session_summary};
use crate::call_policy::CallPolicy;
use crate::circuit_breaker::ProviderCircuitBreakers;
use crate::clock::Clock;
use crate::config::{
    EngineConfig, SessionOptions, SessionResumePolicy, UserMessage, describe_invalid_settings, merge_settings,
};
use crate::error::Error;
use crate::inbox::to_submission;
use crate::leases::{LeaseKeeper, run_lease_renewal};
use crate::limits::{CONCURRENT_RESUMES_MAX, LIST_PAGES_MAX, MAILBOX_MESSAGES_MAX};
use crate::live_updates::{SessionsWithRemoteUpdates, start_live_following};
use crate::load::{
    UncertainCommitOutcome, encode_events, find_commit_outcome, load_state, load_state_at, place_bodies_at_first_use,
    read_events,
};
use crate::maintenance::run_maintenance;
use crate::model_assignment::ModelAssignment;
use crate::placement::SessionPlacement;
use crate::random::RandomSource;
use crate::rate_limit::ModelRateLimiters;
use crate::registry::{ActiveOrParkedSession, ActorMessage, CachedSession, SessionActorHandle, SessionRegistry};
use crate::session_flow::{RecordedFlowCache, RecordedFlowLoader, read_session_flow};
use crate::session_name::validate_session_name;
use crate::subscriptions::{SessionSubscription, SubscriptionHub};
use crate::text_cache::TextCache;
use crate::tools::ToolRegistry;
use crate::turn_report::TurnReport;

/// The state that all tasks of an engine share.
pub(crate) struct EngineShared {
    pub store: Arc<dyn Store>,
    pub flows: BTreeMap<FlowName, Arc<dyn DynFlow>>,
    pub flow_loader: Option<Arc<dyn RecordedFlowLoader>>,
    pub loaded_flows: RecordedFlowCache,
    pub models: Arc<ModelRegistry>,
    pub model_assignment: ModelAssignment,
    pub tools: ToolRegistry,
    pub approval_rules: OperatorToolApprovalRules,
    pub default_settings: BTreeMap<FlowName, Value>,
    pub rate_limiter: ModelRateLimiters,
    pub circuit_breaker: ProviderCircuitBreakers,
    pub abandoned_calls: AbandonedCalls,
    pub call_policy: Arc<dyn CallPolicy>,
    pub placement: Option<Arc<dyn SessionPlacement>>,
    pub clock: Arc<dyn Clock>,
    pub random: RandomSource,
    pub token_counter: Arc<dyn TokenCounter + Send + Sync>,
    pub subscriptions: Arc<SubscriptionHub>,
    pub registry: SessionRegistry,
    pub leases: LeaseKeeper,
    pub followed_sessions: SessionsWithRemoteUpdates,
    /// Notified when too many sessions are in memory.
    pub eviction_needed: Arc<Notify>,
    /// Bounds the sessions that are resumed at the same time.
    pub resume_permits: Semaphore,
    pub recovery: SessionResumePolicy,
    pub is_shutting_down: AtomicBool,
    /// Longest wait, at shutdown, for what is running.
    pub drain_ms_max: u64,
    /// Held for reading while a session is being deleted.
    pub deletions: tokio::sync::RwLock<()>,
}

/// Runs sessions. Clones share one engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("flows", &self.shared.flows.keys()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine and resumes unfinished sessions according to its recovery policy.
    ///
    /// # Errors
    /// A flow is invalid, or the store cannot be read.
    pub async fn start(config: EngineConfig) -> Result<Self, Error> {
        let mut flows = BTreeMap::new();
        for flow in config.flows {
            let (name, faults) = (flow.spec().name.clone(), flow.spec().validation_errors());
            if !faults.is_empty() {
                return Err(Error::InvalidFlow { flow: name, faults });
            }
            flows.insert(name, flow);
        }
        let shared = Arc::new(EngineShared {
            leases: LeaseKeeper::new(config.store.lease_ms()),
            drain_ms_max: config.drain_ms_max,
            followed_sessions: SessionsWithRemoteUpdates::default(),
            store: config.store,
            flows,
            flow_loader: config.flow_loader,
            loaded_flows: RecordedFlowCache::default(),
            models: config.models,
            model_assignment: config.model_assignment,
            tools: config.tools,
            approval_rules: config.approval_rules,
            default_settings: config.default_settings,
            rate_limiter: ModelRateLimiters::new(config.model_limits),
            circuit_breaker: ProviderCircuitBreakers::default(),
            abandoned_calls: AbandonedCalls::default(),
            call_policy: config.call_policy,
            placement: config.placement,
            clock: config.clock,
            random: config.random,
            token_counter: config.token_counter,
            subscriptions: Arc::new(SubscriptionHub::default()),
            registry: SessionRegistry::default(),
            eviction_needed: Arc::default(),
            resume_permits: Semaphore::new(CONCURRENT_RESUMES_MAX),
            recovery: config.recovery,
            is_shutting_down: AtomicBool::new(false),
            deletions: tokio::sync::RwLock::default(),
        });
        let engine = Self { shared };
        if engine.shared.recovery == SessionResumePolicy::Immediate {
            engine.resume_pending_sessions().await.map_err(|error| Error::Store(Arc::new(error)))?;
        }
        tracing::debug!(flows = engine.shared.flows.len(), recovery = ?engine.shared.recovery, "engine started");
        tokio::spawn(run_maintenance(Arc::downgrade(&engine.shared)));
        tokio::spawn(run_lease_renewal(Arc::downgrade(&engine.shared)));
        start_live_following(&engine.shared, config.live_updates);
        Ok(engine)
    }

    /// Returns the settings of new sessions of a flow, if some are configured.
    #[must_use]
    pub fn default_settings(&self, flow: &FlowName) -> Option<&Value> {
        self.shared.default_settings.get(flow)
    }

    /// Returns the flows that sessions can run.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<dyn DynFlow>> {
        self.shared.flows.values()
    }

    #[must_use]
    pub fn models(&self) -> &ModelRegistry {
        &self.shared.models
    }

    /// Returns which model plays each role.
    #[must_use]
    pub fn model_assignment(&self) -> &ModelAssignment {
        &self.shared.model_assignment
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Generates a pronounceable name for a new session. It may be taken already, which is unlikely.
    #[must_use]
    pub fn generate_session_name(&self) -> String {
        self.shared.random.pronounceable_name()
    }

    /// Returns the number of sessions with a running task.
    #[must_use]
    pub fn active_session_count(&self) -> usize {
        self.shared.registry.active_mailboxes().len()
    }

    /// Returns the sessions that have a running task.
    #[must_use]
    pub fn active_sessions(&self) -> Vec<SessionId> {
        self.shared.registry.with_slots(|slots| {
            slots.iter().filter(|(_, slot)| slot.is_active()).map(|(session, _)| session.clone()).collect()
        })
    }

    /// Returns whether the session has a running task.
    #[must_use]
    pub fn is_session_active(&self, session: &SessionId) -> bool {
        self.shared.registry.with_slots(|slots| slots.get(session).is_some_and(ActiveOrParkedSession::is_active))
    }

    /// Returns the current time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.shared.clock.now()
    }

    /// Opens a new session.
    ///
    /// # Errors
    /// The flow is unknown, a setting is invalid, the name is taken or invalid, or the store failed.
    pub async fn open_session(&self, flow_name: &FlowName, options: SessionOptions) -> Result<SessionId, Error> {
        let session = match &options.session {
            Some(session) => validate_session_name(session.clone())?,
            None => SessionId::from(self.shared.random.pronounceable_name()),
        };
        self.open_session_with_name(flow_name, session.clone(), options).await?;
        Ok(session)
    }

    /// Opens a new session whose name users cannot always choose.
    pub(crate) async fn open_session_with_name(
        &self,
        flow_name: &FlowName,
        session: SessionId,
        options: SessionOptions,
    ) -> Result<(), Error> {
        self.ensure_not_shutting_down()?;
        let flow = self.shared.find_registered_flow(Some(flow_name))?;
        let settings = merge_settings(self.shared.default_settings.get(flow_name), options.settings);
        self.shared.validate_settings(&*flow, &settings)?;
        self.validate_role_models(flow.spec(), &options.role_models)?;
        let opened = SessionOpened {
            flow_definition: flow.definition().map(Arc::from),
            format: codec::EVENT_FORMAT,
            session: session.clone(),
            flow: flow_name.clone(),
            title: options.title,
            mid_turn_policy: options.mid_turn_policy,
            settings,
            model_overrides: options.role_models,
            child_origin: None,
        };
        let is_placed_here = self.shared.is_placed_here(&opened);
        let texts = TextCache::default();
        let state = SessionState::new(&*flow);
        let decision = self.shared.decide_new_session(&*flow, &state, SessionInput::Open(opened), &texts)?;
        let epoch =
            self.write_new_session(&session, &decision.events, decision.bodies, &decision.state, &*flow).await?;
        if !is_placed_here {
            self.release_new_session_lease(&session, epoch).await;
            return Ok(());
        }
        let (is_at_rest, wake_at) =
            (decision.state.session.is_at_rest(), decision.state.session.next_wake_at(flow.spec()));
        let cached = CachedSession { state: decision.state, texts, lease_epoch: Some(epoch), snapshot_seq: Seq(0) };
        let slot = ActiveOrParkedSession::Parked(Box::new(cached), self.shared.clock.now());
        // Another caller that knew the name may already have activated the session.
        self.shared.registry.with_slots(|slots| slots.entry(session.clone()).or_insert(slot).is_active());
        self.shared.subscriptions.publish_events(&session, &decision.events);
        if let Some(at) = wake_at {
            self.shared.registry.set_alarm(at, &session);
        }
        if !is_at_rest {
            self.deliver_message(&session, ActorMessage::without_reply(SessionInput::Tick)).await;
        }
        Ok(())
    }

    /// Creates a session with its first events, all or nothing.
    pub(crate) async fn write_new_session(
        &self,
        session: &SessionId,
        events: &[RecordedEvent],
        bodies: Vec<TextToStore>,
        state: &SessionState,
        flow: &dyn DynFlow,
    ) -> Result<LeaseEpoch, Error> {
        let store = &*self.shared.store;
        let to_error = |error| Error::from_store_error(session, error);
        // An imported session with another name is a fork, which still has to be recorded.
        let is_fork = state.session.id.as_ref().is_some_and(|id| id != session);
        let pending_work =
            if is_fork { PendingWorkStatus::Now } else { find_pending_work(&state.session, flow.spec()) };
        let lease = store.create_session(session).await.map_err(to_error)?;
        let commit = JournalCommit {
            bodies: place_bodies_at_first_use(events, &bodies),
            summary: Some(to_session_summary(&state.session, pending_work)),
            ..JournalCommit::of_records(session.clone(), lease.epoch, lease.head, encode_events(events))
        };
        let Err(error) = store.append_commit(commit).await else {
            crate::event_log::log_recorded_events(session, events);
            return Ok(lease.epoch);
        };
        tracing::warn!(%session, %error, "outcome of the first commit unknown");
        // The commit may have been written nevertheless. If not, the name is free again.
        match find_commit_outcome(store, session, events).await {
            Ok((UncertainCommitOutcome::Written, epoch)) => Ok(epoch),
            Ok((UncertainCommitOutcome::NotWritten, epoch)) => {
                if let Err(error) = store.release_lease(session, epoch).await {
                    tracing::warn!(%session, %error, "cannot release the lease of a session that was not created");
                }
                Err(to_error(error))
            }
            Err(unresolved) => {
                tracing::warn!(%session, error = %unresolved, "cannot find out whether the session was created");
                Err(to_error(error))
            }
        }
    }

    /// Sends a message. When this returns, the message is durable and will be answered, even after a crash.
    ///
    /// # Errors
    /// The message was not accepted.
    pub async fn send_message(&self, session: &SessionId, message: UserMessage) -> Result<MessageId, Error> {
        let message_id = self.submit_input(session, message.into()).await?;
        message_id.ok_or_else(|| Error::Stopped(session.clone()))
    }

    /// Sends a message and waits for the end of its turn.
    ///
    /// # Errors
    /// The message was not accepted, or another process took the session over.
    pub async fn send_and_wait(&self, session: &SessionId, message: UserMessage) -> Result<TurnReport, Error> {
        self.ensure_not_shutting_down()?;
        let (waiter, report) = oneshot::channel();
        let input = message.into();
        let submission = to_submission(&input);
        let message = ActorMessage { turn_waiter: Some(waiter), ..ActorMessage::without_reply(input) };
        self.deliver_message(session, message).await;
        match (report.await, submission) {
            // Another process holds the session, and nothing was decided here.
            (Ok(Err(Error::InUse { .. })), Some(submission)) => {
                let message = self.submit_and_wait(session, &submission).await?;
                let message = message.ok_or_else(|| Error::Stopped(session.clone()))?;
                self.follow_turn(session, message).await
            }
            (Ok(report), _) => report,
            // The sender was dropped together with the task.
            (Err(_), _) => Err(self.stopped_error(session).await),
        }
    }

    /// Applies an operator's command, such as cancel or retry.
    ///
    /// # Errors
    /// The command was refused.
    pub async fn apply_command(&self, session: &SessionId, command: OperatorCommand) -> Result<(), Error> {
        self.submit_input(session, SessionInput::Operator(command)).await.map(|_| ())
    }

    pub(crate) async fn submit_input(
        &self,
        session: &SessionId,
        input: SessionInput,
    ) -> Result<Option<MessageId>, Error> {
        self.ensure_not_shutting_down()?;
        let (reply_sender, reply) = oneshot::channel();
        let submission = to_submission(&input);
        self.deliver_message(
            session,
            ActorMessage { reply_sender: Some(reply_sender), ..ActorMessage::without_reply(input) },
        )
        .await;
        match (reply.await, submission) {
            // Another process holds the session, and nothing was decided here.
            (Ok(Err(Error::InUse { .. })), Some(submission)) => self.submit_and_wait(session, &submission).await,
            (Ok(result), _) => result,
            // The sender was dropped together with the task.
            (Err(_), _) => Err(self.stopped_error(session).await),
        }
    }

    /// Returns why a session's task ended without a result.
    async fn stopped_error(&self, session: &SessionId) -> Error {
        if let Err(error) = self.ensure_not_shutting_down() {
            return error;
        }
        // A delete stops the task first, so wait until it has finished.
        let _no_deletion = self.shared.deletions.write().await;
        match self.shared.store.read_heads(std::slice::from_ref(session)).await.as_deref() {
            Ok([None]) => Error::SessionDeleted(session.clone()),
            _ => Error::Stopped(session.clone()),
        }
    }

    /// Resumes a session if it has pending work.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn wake_session(&self, session: &SessionId) -> Result<(), Error> {
        self.submit_input(session, SessionInput::Tick).await.map(|_| ())
    }

    /// Delivers a message to its session, starting the session's task if it has none.
    pub(crate) async fn deliver_message(&self, session: &SessionId, mut message: ActorMessage) {
        loop {
            // Sent under the lock under which a session is parked, so that parking sees the message.
            let sent = self.shared.registry.with_slots(|slots| {
                if let Some(ActiveOrParkedSession::Active(mailbox)) = slots.get(session)
                    && !mailbox.sender.is_closed()
                {
                    return mailbox.try_send(message);
                }
                let (sender, inbox) = mpsc::channel(MAILBOX_MESSAGES_MAX);
                let mailbox = SessionActorHandle::new(sender);
                let sent = mailbox.try_send(message);
                let parked = match slots.insert(session.clone(), ActiveOrParkedSession::Active(mailbox.clone())) {
                    Some(ActiveOrParkedSession::Parked(cached, _)) => Some(cached),
                    Some(ActiveOrParkedSession::Active(_)) | None => None,
                };
                // Not a part of the request that happens to start it.
                let span = tracing::debug_span!(parent: None, "session", %session, epoch = tracing::field::Empty);
                let actor = run_session_actor(self.shared.clone(), session.clone(), parked, mailbox, inbox);
                tokio::spawn(actor.instrument(span));
                sent
            });
            let Err(refused) = sent else { return };
            let (mailbox, returned) = *refused;
            message = returned;
            // The mailbox is full, or the task has just ended; in both cases the message is delivered again.
            let _ = mailbox.sender.reserve().await;
        }
    }

    /// Subscribes to a session: first the events recorded after `after`, then updates as they happen.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn subscribe(&self, session: &SessionId, after: Seq) -> Result<SessionSubscription, Error> {
        read_events(&*self.shared.store, session, after, 1).await?;
        Ok(SessionSubscription::new(
            self.shared.subscriptions.clone(),
            self.shared.store.clone(),
            session.clone(),
            after,
        ))
    }

    /// Reads at most `limit` events after `after`.
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

    /// Rebuilds a session's current state from the store.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn load_session(&self, session: &SessionId) -> Result<(Arc<dyn DynFlow>, SessionState), Error> {
        let flow = read_session_flow(&self.shared, session).await?;
        let (state, _) = load_state(&*self.shared.store, &*flow, session).await?;
        Ok((flow, state))
    }

    /// Rebuilds a session's state right after event `at`.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn load_session_at(
        &self,
        session: &SessionId,
        at: Seq,
    ) -> Result<(Arc<dyn DynFlow>, SessionState), Error> {
        let flow = read_session_flow(&self.shared, session).await?;
        let state = load_state_at(&*self.shared.store, &*flow, session, at).await?;
        Ok((flow, state))
    }

    /// Reads texts of a session, in the order of `ids`.
    ///
    /// # Errors
    /// The session does not have one of them, or the store cannot be read.
    pub async fn read_texts(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.shared.store.read_bodies(session, ids).await.map_err(|error| Error::from_store_error(session, error))
    }

    /// Lists sessions, newest first. If very many sessions do not match the query, the page may be short although more
    /// sessions follow; then it has a cursor.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        let mut query = query.clone();
        let mut found = SessionListPage { entries: Vec::new(), next_cursor: None };
        for _ in 0..LIST_PAGES_MAX {
            let page = self.shared.store.list_sessions(&query).await.map_err(|error| Error::Store(Arc::new(error)))?;
            query.limit = query.limit.saturating_sub(page.entries.len());
            found.entries.extend(page.entries);
            found.next_cursor = page.next_cursor;
            if query.limit == 0 || found.next_cursor.is_none() {
                break;
            }
            query.after_cursor = found.next_cursor.clone();
        }
        Ok(found)
    }

    /// Returns at most `limit` changes of the session list after `after`, in the order in which they were committed by
    /// any process. Without a cursor it returns only the newest cursor.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn session_changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error> {
        self.shared.store.changes_after(after, limit).await.map_err(|error| Error::Store(Arc::new(error)))
    }

    fn ensure_not_shutting_down(&self) -> Result<(), Error> {
        if self.shared.is_shutting_down.load(Ordering::Acquire) { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    pub(crate) fn from_shared(shared: Arc<EngineShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared_arc(&self) -> &Arc<EngineShared> {
        &self.shared
    }

    pub(crate) fn shared(&self) -> &EngineShared {
        &self.shared
    }
}

impl EngineShared {
    /// Returns whether this engine performs the effects of its decisions.
    pub(crate) fn effects_mode(&self) -> EffectDispatchMode {
        match self.recovery {
            SessionResumePolicy::Immediate | SessionResumePolicy::OnUse => EffectDispatchMode::Immediate,
            SessionResumePolicy::Never => EffectDispatchMode::Deferred,
        }
    }

    /// Decides about an input of a session that is not stored yet. `texts` must contain all its texts.
    pub(crate) fn decide_new_session(
        &self,
        flow: &dyn DynFlow,
        state: &SessionState,
        input: SessionInput,
        texts: &TextCache,
    ) -> Result<Decision, Error> {
        let env = DecisionEnv {
            now: self.clock.now(),
            random: 0,
            token_counter: &*self.token_counter,
            texts,
            model_selector: &self.model_assignment,
            child_checker: self,
            approval_rules: &self.approval_rules,
            dispatch: self.effects_mode(),
            flow_error: None,
        };
        decide(flow, state, input, env).map_err(|error| match error {
            DecideError::Refused(refusal) => refusal.into(),
            DecideError::MissingTexts(_) => {
                Error::NoSuchSession(state.session.id.clone().unwrap_or_else(|| SessionId::from("")))
            }
        })
    }

    /// Checks settings against a flow, and the models they name against the registry.
    pub(crate) fn validate_settings(&self, flow: &dyn DynFlow, settings: &Value) -> Result<(), Error> {
        let spec = flow.spec();
        let mut problems = describe_invalid_settings(flow, settings);
        for (at, model) in collect_named_models(&spec.settings, settings) {
            problems.extend(self.models.get(&model).err().map(|failure| format!("`{at}`: {}", failure.message)));
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::BadSettings { flow: spec.name.clone(), why: problems }) }
    }

    /// Returns the flow of that name.
    pub(crate) fn find_registered_flow(&self, flow: Option<&FlowName>) -> Result<Arc<dyn DynFlow>, Error> {
        let found = flow.and_then(|flow| self.flows.get(flow));
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.flows.keys().map(|name| format!("`{name}`")).collect();
            Error::NoSuchFlow { name: flow.cloned().unwrap_or_else(|| "".into()), known: known.join(", ") }
        })
    }
}
