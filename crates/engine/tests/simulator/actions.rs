//! Performs the actions of users, operators and subscribers, and records the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::{OperatorCommand, RecomputeCallOverrides};
use segue_core::event::{Event, MidTurnPolicy};
use segue_core::ids::{CallId, IdempotencyKey, Seq, SessionId, ToolRunId};
use segue_engine::clock::PausableTokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, Error, SessionResumePolicy, SessionUpdate, UserMessage};
use segue_models::ModelRegistry;
use segue_store::JournalReader;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::WordCounter;

use crate::plan::{ListenFrom, SendMode, SimAction, TargetProcess};
use crate::store::expect_ready;
use crate::world::{ListenerLog, RefusedInput, SendOutcome, SentInput, SentMessage, SimWorld};

/// Sends actions to the engines of the running processes.
#[derive(Clone)]
pub(crate) struct SimClient {
    pub world: Arc<SimWorld>,
    pub first: Engine,
    pub rival: Option<Engine>,
}

impl SimClient {
    fn engine(&self, through: TargetProcess) -> &Engine {
        match (through, &self.rival) {
            (TargetProcess::Rival, Some(rival)) => rival,
            _ => &self.first,
        }
    }

    fn session(&self, index: u64) -> Option<SessionId> {
        let observations = self.world.observations();
        let existing: Vec<&SessionId> = observations.sessions.difference(&observations.deleted).collect();
        let index = usize::try_from(index).expect("small") % existing.len().max(1);
        existing.get(index).map(|session| (*session).clone())
    }

    /// Returns a new, unique name for a copy of a session.
    fn unique_name(&self, from: &SessionId, prefix: &str) -> SessionId {
        let mut observations = self.world.observations();
        observations.names += 1;
        SessionId::from(format!("{from}-{prefix}{}", observations.names))
    }

    fn add_session(&self, session: SessionId) {
        self.world.observations().sessions.insert(session);
    }

    /// Notes where a session is when something is sent to it.
    fn track_input(&self, session: &SessionId) -> SentInput {
        let sent_at = read_head(&self.world.disk, session);
        SentInput { session: session.clone(), sent_at, run_to_undo: None }
    }

    /// Records a refusal, which the checks compare with the session's history, and any other error that nothing explains.
    fn record_error(&self, what: &str, sent: &SentInput, error: &Error) {
        let session = &sent.session;
        let refused_at = read_head(&self.world.disk, session);
        let mut observations = self.world.observations();
        let is_deleted = observations.deleted.contains(session);
        if let Error::Refused(refusal) = error {
            observations.refused.push(RefusedInput { sent: sent.clone(), refused_at, refusal: refusal.clone() });
        }
        let is_explained = match error {
            Error::Refused(_) | Error::ShuttingDown | Error::SessionExists(_) => true,
            Error::InUse { .. } | Error::TakenOver(_) => self.rival.is_some(),
            Error::NoSuchSession(_) | Error::SessionDeleted(_) | Error::Stopped(_) => is_deleted,
            // A process that shuts down closes its store while others still read.
            Error::Store(error) => matches!(
                **error,
                segue_store::Error::Io { .. } | segue_store::Error::DiskFull { .. } | segue_store::Error::Closed
            ),
            _ => false,
        };
        if !is_explained {
            observations.unexpected_errors.push(format!("{what} of {session}: {error}"));
        }
    }
}

/// Returns the run that a command names to be undone.
fn run_to_undo(command: &OperatorCommand) -> Option<ToolRunId> {
    let OperatorCommand::Flow { arguments, .. } = command else { return None };
    arguments.get("run").and_then(serde_json::Value::as_u64).and_then(|run| u32::try_from(run).ok()).map(ToolRunId)
}

/// Runs an action and tracks whether it has ended.
pub(crate) async fn run_action(client: SimClient, action: SimAction, number: u64) {
    let is_listener = matches!(action, SimAction::Listen { .. });
    if !is_listener {
        client.world.observations().pending.insert(number);
    }
    perform_action(&client, action).await;
    if !is_listener {
        client.world.observations().pending.remove(&number);
    }
}

async fn perform_action(client: &SimClient, action: SimAction) {
    match action {
        SimAction::SendMessage { session, text, key, mid_turn_policy, mode, through } => {
            let Some(session) = client.session(session) else { return };
            send_message(client, session, (text, key, mid_turn_policy), mode, through).await;
        }
        SimAction::Command { session, command } => {
            let Some(session) = client.session(session) else { return };
            let sent = client.track_input(&session);
            match client.first.apply_command(&session, command.clone()).await {
                Ok(_) => client.world.observations().accepted_commands.push((session, command)),
                Err(error) => {
                    let sent = SentInput { run_to_undo: run_to_undo(&command), ..sent };
                    client.record_error("a command", &sent, &error);
                }
            }
        }
        SimAction::Fork { session, at_percent } => {
            let Some(session) = client.session(session) else { return };
            fork_session_at(client, &session, at_percent).await;
        }
        SimAction::Copy { session } => {
            let Some(session) = client.session(session) else { return };
            copy_session(client, &session).await;
        }
        SimAction::Recompute { session, call, model } => {
            let Some(session) = client.session(session) else { return };
            let sent = client.track_input(&session);
            let change = RecomputeCallOverrides { model: model.map(Into::into), ..RecomputeCallOverrides::default() };
            match client.first.recompute_call(&session, CallId(call), &change).await {
                Ok(_) | Err(Error::NoSuchCall { .. }) => {}
                Err(error) => client.record_error("a rerun", &sent, &error),
            }
        }
        SimAction::Delete { session } => {
            let Some(session) = client.session(session) else { return };
            client.world.observations().deleted.insert(session.clone());
            let sent = client.track_input(&session);
            if let Err(error) = client.first.delete_session(&session).await {
                client.record_error("a deletion", &sent, &error);
            }
        }
        SimAction::Listen { session, from, slow_ms, through } => {
            let Some(session) = client.session(session) else { return };
            follow_session(client, session, from, slow_ms, through).await;
        }
    }
}

type MessageArguments = (String, Option<String>, Option<MidTurnPolicy>);

async fn send_message(
    client: &SimClient,
    session: SessionId,
    (text, key, mid_turn_policy): MessageArguments,
    mode: SendMode,
    through: TargetProcess,
) {
    let key = key.map(IdempotencyKey::from);
    let sent = client.track_input(&session);
    let head = sent.sent_at;
    let index = {
        let mut observations = client.world.observations();
        let (session, text, key) = (session.clone(), text.clone(), key.clone());
        observations.sent.push(SentMessage { session, text, key, head, outcome: SendOutcome::Unknown });
        observations.sent.len() - 1
    };
    let message = UserMessage { idempotency_key: key, mid_turn_policy, ..UserMessage::from(text) };
    let engine = client.engine(through);
    let result = match mode {
        SendMode::Send => engine.send_message(&session, message).await.map(SendOutcome::Accepted),
        SendMode::SendAndWait => {
            engine.send_and_wait(&session, message).await.map(|report| SendOutcome::Answered(Box::new(report)))
        }
    };
    let outcome = result.unwrap_or_else(|error| {
        client.record_error("a message", &sent, &error);
        SendOutcome::Refused(error.to_string())
    });
    client.world.observations().sent[index].outcome = outcome;
}

async fn fork_session_at(client: &SimClient, session: &SessionId, at_percent: Option<u64>) {
    let to = client.unique_name(session, "f");
    let sent = client.track_input(session);
    let at = match at_percent {
        Some(percent) => match client.first.load_session(session).await {
            Ok((_, state)) => Some(Seq((state.session.last_seq.0 * percent / 100).max(1))),
            Err(error) => return client.record_error("loading before a fork", &sent, &error),
        },
        None => None,
    };
    // Half of the forks at a given event are made by an engine without recovery and left for others to resume.
    let result_fork = match at_percent {
        Some(percent) if percent % 2 == 0 => {
            let engine = start_recording_engine(client).await;
            let result_fork = engine.fork_session(session, at, Some(to)).await;
            engine.shutdown().await;
            result_fork
        }
        _ => client.first.fork_session(session, at, Some(to)).await,
    };
    match result_fork {
        Ok(session) => client.add_session(session),
        Err(error) => client.record_error("a fork", &sent, &error),
    }
}

/// Starts another engine on the same disk that records inputs but starts no effects.
async fn start_recording_engine(client: &SimClient) -> Engine {
    let store = Arc::new(InMemoryStore::open(&client.world.disk));
    let flows = client.first.flows().cloned().collect();
    let config = EngineConfig {
        recovery: SessionResumePolicy::Never,
        clock: Arc::new(PausableTokioClock::starting_at(client.first.now())),
        random: RandomSource::from_seed(1),
        token_counter: Arc::new(WordCounter),
        ..EngineConfig::new(store, flows, ModelRegistry::new(), "nobody")
    };
    Engine::start(config).await.expect("an engine starts")
}

async fn copy_session(client: &SimClient, session: &SessionId) {
    let sent = client.track_input(session);
    let mut lines = String::new();
    let export = client.first.export_session(session, |line| -> Result<(), Error> {
        lines.push_str(line);
        Ok(())
    });
    if let Err(error) = export.await {
        return client.record_error("an export", &sent, &error);
    }
    let to = client.unique_name(session, "c");
    match client.first.import_session(lines.lines().map(str::to_owned), Some(to)).await {
        Ok(session) => client.add_session(session),
        Err(error) => client.record_error("an import", &sent, &error),
    }
}

async fn follow_session(
    client: &SimClient,
    session: SessionId,
    from: ListenFrom,
    slow_ms: u64,
    through: TargetProcess,
) {
    let engine = client.engine(through);
    let sent = client.track_input(&session);
    let after = match from {
        ListenFrom::Start => Seq(0),
        ListenFrom::Now => match engine.load_session(&session).await {
            Ok((_, state)) => state.session.last_seq,
            Err(error) => return client.record_error("loading before subscribing", &sent, &error),
        },
    };
    let mut subscription = match engine.subscribe(&session, after).await {
        Ok(subscription) => subscription,
        Err(error) => return client.record_error("subscribing", &sent, &error),
    };
    let joined = read_head(&client.world.disk, &session);
    let index = {
        let mut observations = client.world.observations();
        // Text streamed by another process arrives only as events.
        let joined = if client.rival.is_some() { Seq(u64::MAX) } else { joined };
        observations.listeners.push(ListenerLog {
            session: session.clone(),
            after,
            joined,
            is_slow: slow_ms > 0,
            events: Vec::new(),
            is_listening: true,
            call_texts: Vec::new(),
        });
        observations.listeners.len() - 1
    };
    let mut partial_texts: BTreeMap<CallId, (u32, String)> = BTreeMap::new();
    loop {
        let update = match subscription.next_update().await {
            Ok(update) => update,
            Err(error) if error.is_transient() => continue,
            Err(error) => {
                client.world.observations().listeners[index].is_listening = false;
                return client.record_error("subscribing", &sent, &error);
            }
        };
        apply_update(&mut client.world.observations().listeners[index], &mut partial_texts, update);
        if slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(slow_ms)).await;
        }
    }
}

/// Returns how many events of a session are recorded at this moment.
pub(crate) fn read_head(disk: &InMemoryStoreDisk, session: &SessionId) -> Seq {
    let records = expect_ready(InMemoryStore::open(disk).read_records(session, Seq(0), usize::MAX));
    Seq(records.map_or(0, |records| records.len() as u64))
}

fn apply_update(log: &mut ListenerLog, partial_texts: &mut BTreeMap<CallId, (u32, String)>, update: SessionUpdate) {
    match update {
        SessionUpdate::TextDelta { call, attempt, offset: at, text } => {
            let (text_attempt, text_so_far) = partial_texts.entry(call).or_insert_with(|| (attempt, String::new()));
            if *text_attempt != attempt {
                (*text_attempt, *text_so_far) = (attempt, String::new());
            }
            assert_eq!(at, text_so_far.len(), "the text of {call} has no gaps and no repetitions");
            text_so_far.push_str(&text);
            let is_over = log.events.iter().any(|event| ends_attempt(&event.event, (call, attempt)));
            assert!(!is_over, "text of {call} (attempt {attempt}) arrives after its end");
        }
        // The tool of the simulator reports no progress.
        SessionUpdate::ToolProgress { .. } => {}
        SessionUpdate::Event(event) => {
            if let Event::CallAnswered(answered) = &event.event {
                let (attempt, text) = partial_texts.remove(&answered.call).unwrap_or_default();
                log.call_texts.push((answered.call, attempt, text));
            }
            // Text of an attempt that ended without an answer is dropped.
            partial_texts.retain(|call, (attempt, _)| !ends_attempt(&event.event, (*call, *attempt)));
            log.events.push(*event);
        }
    }
}

/// Returns whether an event ends an attempt.
fn ends_attempt(event: &Event, (ended, attempt): (CallId, u32)) -> bool {
    match event {
        Event::CallAnswered(answered) => answered.call == ended,
        Event::CallCancelled { call, .. } => *call == ended,
        Event::CallFailed { call, attempt: last, .. } | Event::CallOutcomeUnknown { call, attempt: last, .. } => {
            *call == ended && attempt <= *last
        }
        _ => false,
    }
}
