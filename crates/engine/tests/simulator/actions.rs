//! What users, operators and listeners do, and what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::RecomputeOptions;
use segue_core::event::{Event, MidTurnPolicy};
use segue_core::ids::{CallId, IdempotencyKey, Seq, SessionId};
use segue_engine::clock::TokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, Error, RecoveryPolicy, SessionUpdate, UserMessage};
use segue_models::ModelRegistry;
use segue_store::Store;
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::WordCounter;

use crate::plan::{ListenFrom, SendMode, SimAction, TargetProcess};
use crate::store::expect_ready;
use crate::world::{ListenerLog, SendOutcome, SentMessage, SimWorld};

/// How a deed reaches the processes that live.
#[derive(Clone)]
pub struct SimClient {
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

    fn session(&self, place: u64) -> Option<SessionId> {
        let notes = self.world.observations();
        let there: Vec<&SessionId> = notes.sessions.difference(&notes.deleted).collect();
        let place = usize::try_from(place).expect("small") % there.len().max(1);
        there.get(place).map(|session| (*session).clone())
    }

    /// A name for a session that comes of another. No two have the same.
    fn name(&self, from: &SessionId, how: &str) -> SessionId {
        let mut notes = self.world.observations();
        notes.names += 1;
        SessionId::from(format!("{from}-{how}{}", notes.names))
    }

    fn add(&self, session: SessionId) {
        self.world.observations().sessions.insert(session);
    }

    /// Notes an error; those that cannot be explained are wrong.
    fn note(&self, what: &str, error: &Error) {
        let mut notes = self.world.observations();
        let explained = match error {
            Error::Refused(_) | Error::ShuttingDown | Error::SessionExists(_) => true,
            Error::InUse { .. } | Error::TakenOver(_) => self.rival.is_some(),
            Error::NoSuchSession(_) | Error::Stopped(_) => !notes.deleted.is_empty(),
            // A process that shuts down closes its store under those that still read.
            Error::Store(error) => matches!(
                **error,
                segue_store::Error::Io { .. } | segue_store::Error::DiskFull { .. } | segue_store::Error::Closed
            ),
            _ => false,
        };
        if !explained {
            notes.unexpected_errors.push(format!("{what}: {error}"));
        }
    }
}

/// Does it.
pub async fn run_action(hand: SimClient, deed: SimAction, number: u64) {
    let listens = matches!(deed, SimAction::Listen { .. });
    if !listens {
        hand.world.observations().pending.insert(number);
    }
    perform_action(&hand, deed).await;
    if !listens {
        hand.world.observations().pending.remove(&number);
    }
}

async fn perform_action(hand: &SimClient, deed: SimAction) {
    match deed {
        SimAction::SendMessage { session, text, key, busy, how, through } => {
            let Some(session) = hand.session(session) else { return };
            send_message(hand, session, (text, key, busy), how, through).await;
        }
        SimAction::Command { session, command } => {
            let Some(session) = hand.session(session) else { return };
            if let Err(error) = hand.first.apply_command(&session, command).await {
                hand.note("a command", &error);
            }
        }
        SimAction::Fork { session, at_percent } => {
            let Some(session) = hand.session(session) else { return };
            fork(hand, &session, at_percent).await;
        }
        SimAction::Copy { session } => {
            let Some(session) = hand.session(session) else { return };
            copy(hand, &session).await;
        }
        SimAction::Recompute { session, call, model } => {
            let Some(session) = hand.session(session) else { return };
            let change = RecomputeOptions { model: model.map(Into::into), ..RecomputeOptions::default() };
            match hand.first.recompute_call(&session, CallId(call), &change).await {
                Ok(_) | Err(Error::NoSuchCall { .. }) => {}
                Err(error) => hand.note("a call once more", &error),
            }
        }
        SimAction::Delete { session } => {
            let Some(session) = hand.session(session) else { return };
            hand.world.observations().deleted.insert(session.clone());
            if let Err(error) = hand.first.delete_session(&session).await {
                hand.note("a deletion", &error);
            }
        }
        SimAction::Listen { session, from, slow_ms, through } => {
            let Some(session) = hand.session(session) else { return };
            listen(hand, session, from, slow_ms, through).await;
        }
    }
}

type MessageArguments = (String, Option<String>, Option<MidTurnPolicy>);

async fn send_message(
    hand: &SimClient,
    session: SessionId,
    (text, key, busy): MessageArguments,
    how: SendMode,
    through: TargetProcess,
) {
    let key = key.map(IdempotencyKey::from);
    let head = read_head(&hand.world.disk, &session);
    let place = {
        let mut notes = hand.world.observations();
        let (session, text, key) = (session.clone(), text.clone(), key.clone());
        notes.sent.push(SentMessage { session, text, key, head, outcome: SendOutcome::Unknown });
        notes.sent.len() - 1
    };
    let message = UserMessage { idempotency_key: key, mid_turn_policy: busy, ..UserMessage::from(text) };
    let engine = hand.engine(through);
    let told = match how {
        SendMode::Send => engine.send_message(&session, message).await.map(SendOutcome::Accepted),
        SendMode::SendAndWait => {
            engine.send_and_wait(&session, message).await.map(|report| SendOutcome::Answered(Box::new(report)))
        }
    };
    let fate = told.unwrap_or_else(|error| {
        hand.note("a message", &error);
        SendOutcome::Refused(error.to_string())
    });
    hand.world.observations().sent[place].outcome = fate;
}

async fn fork(hand: &SimClient, session: &SessionId, at_percent: Option<u64>) {
    let to = hand.name(session, "f");
    let at = match at_percent {
        Some(percent) => match hand.first.load_session(session).await {
            Ok((_, state)) => Some(Seq((state.session.last_seq.0 * percent / 100).max(1))),
            Err(error) => return hand.note("a look before a fork", &error),
        },
        None => None,
    };
    // Half of those in the middle are made by a program that makes no calls, and left for others to take up.
    let forked = match at_percent {
        Some(percent) if percent % 2 == 0 => {
            let by_hand = by_hand(hand).await;
            let forked = by_hand.fork_session(session, at, Some(to)).await;
            by_hand.shutdown().await;
            forked
        }
        _ => hand.first.fork_session(session, at, Some(to)).await,
    };
    match forked {
        Ok(fork) => hand.add(fork),
        Err(error) => hand.note("a fork", &error),
    }
}

/// Another program on the same disk, which only writes down what it is told.
async fn by_hand(hand: &SimClient) -> Engine {
    let store = Arc::new(MemoryStore::open(&hand.world.disk));
    let flows = hand.first.flows().cloned().collect();
    let setup = EngineConfig {
        recovery: RecoveryPolicy::Never,
        clock: Arc::new(TokioClock::starting_at(hand.first.now())),
        random: RandomSource::from_seed(1),
        token_counter: Arc::new(WordCounter),
        ..EngineConfig::new(store, flows, ModelRegistry::new(), "nobody")
    };
    Engine::start(setup).await.expect("an engine starts")
}

async fn copy(hand: &SimClient, session: &SessionId) {
    let mut lines = String::new();
    let exported = hand.first.export_session(session, |line| -> Result<(), Error> {
        lines.push_str(line);
        Ok(())
    });
    if let Err(error) = exported.await {
        return hand.note("an export", &error);
    }
    let to = hand.name(session, "c");
    match hand.first.import_session(lines.lines().map(str::to_owned), Some(to)).await {
        Ok(copy) => hand.add(copy),
        Err(error) => hand.note("an import", &error),
    }
}

async fn listen(hand: &SimClient, session: SessionId, from: ListenFrom, slow_ms: u64, through: TargetProcess) {
    let engine = hand.engine(through);
    let after = match from {
        ListenFrom::Start => Seq(0),
        ListenFrom::Now => match engine.load_session(&session).await {
            Ok((_, state)) => state.session.last_seq,
            Err(error) => return hand.note("a look before listening", &error),
        },
    };
    let mut subscription = match engine.subscribe(&session, after).await {
        Ok(subscription) => subscription,
        Err(error) => return hand.note("listening", &error),
    };
    let joined = read_head(&hand.world.disk, &session);
    let place = {
        let mut notes = hand.world.observations();
        // What another process says is heard as events alone.
        let joined = if hand.rival.is_some() { Seq(u64::MAX) } else { joined };
        notes.listeners.push(ListenerLog {
            session,
            after,
            joined,
            is_slow: slow_ms > 0,
            events: Vec::new(),
            is_listening: true,
            call_texts: Vec::new(),
        });
        notes.listeners.len() - 1
    };
    let mut words: BTreeMap<CallId, (u32, String)> = BTreeMap::new();
    loop {
        let update = match subscription.next_update().await {
            Ok(update) => update,
            Err(error) if error.is_transient() => continue,
            Err(error) => {
                hand.world.observations().listeners[place].is_listening = false;
                return hand.note("listening", &error);
            }
        };
        hear(&mut hand.world.observations().listeners[place], &mut words, update);
        if slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(slow_ms)).await;
        }
    }
}

/// How much is recorded of a session at this moment.
pub fn read_head(disk: &MemoryDisk, session: &SessionId) -> Seq {
    let records = expect_ready(MemoryStore::open(disk).read_records(session, Seq(0), usize::MAX));
    Seq(records.map_or(0, |records| records.len() as u64))
}

fn hear(heard: &mut ListenerLog, words: &mut BTreeMap<CallId, (u32, String)>, update: SessionUpdate) {
    match update {
        SessionUpdate::TextDelta { call, attempt, offset: at, text } => {
            let (of_attempt, so_far) = words.entry(call).or_insert_with(|| (attempt, String::new()));
            if *of_attempt != attempt {
                (*of_attempt, *so_far) = (attempt, String::new());
            }
            assert_eq!(at, so_far.len(), "the words of {call} come without gap and without repetition");
            so_far.push_str(&text);
            let is_over = heard.events.iter().any(|event| ends(&event.event, (call, attempt)));
            assert!(!is_over, "words of {call} (try {attempt}) come after its end");
        }
        SessionUpdate::Event(event) => {
            if let Event::CallAnswered(answered) = &event.event {
                let (attempt, text) = words.remove(&answered.call).unwrap_or_default();
                heard.call_texts.push((answered.call, attempt, text));
            }
            // What a try said that came to nothing is taken back, whatever the next one says.
            words.retain(|call, (attempt, _)| !ends(&event.event, (*call, *attempt)));
            heard.events.push(*event);
        }
    }
}

/// Whether nothing more comes of a try.
fn ends(event: &Event, (ended, attempt): (CallId, u32)) -> bool {
    match event {
        Event::CallAnswered(answered) => answered.call == ended,
        Event::CallCancelled { call, .. } => *call == ended,
        Event::CallFailed { call, attempt: last, .. } | Event::CallOutcomeUnknown { call, attempt: last, .. } => {
            *call == ended && attempt <= *last
        }
        _ => false,
    }
}
