//! What users, operators and listeners do, and what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::Change;
use segue_core::event::{Busy, Event};
use segue_core::ids::{CallId, IdempotencyKey, Seq, SessionId};
use segue_engine::chance::Chance;
use segue_engine::clock::RuntimeClock;
use segue_engine::{Engine, Error, Message, Recovery, Setup, Update};
use segue_models::Models;
use segue_store::Store;
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::Words;

use crate::plan::{Deed, From, How, Through};
use crate::store::now;
use crate::world::{Fate, Heard, Sent, World};

/// How a deed reaches the processes that live.
#[derive(Clone)]
pub struct Hand {
    pub world: Arc<World>,
    pub first: Engine,
    pub rival: Option<Engine>,
}

impl Hand {
    fn engine(&self, through: Through) -> &Engine {
        match (through, &self.rival) {
            (Through::Rival, Some(rival)) => rival,
            _ => &self.first,
        }
    }

    fn session(&self, place: u64) -> Option<SessionId> {
        let notes = self.world.notes();
        let there: Vec<&SessionId> = notes.sessions.difference(&notes.deleted).collect();
        let place = usize::try_from(place).expect("small") % there.len().max(1);
        there.get(place).map(|session| (*session).clone())
    }

    /// A name for a session that comes of another. No two have the same.
    fn name(&self, from: &SessionId, how: &str) -> SessionId {
        let mut notes = self.world.notes();
        notes.names += 1;
        SessionId::from(format!("{from}-{how}{}", notes.names))
    }

    fn add(&self, session: SessionId) {
        self.world.notes().sessions.insert(session);
    }

    /// Notes an error; those that cannot be explained are wrong.
    fn note(&self, what: &str, error: &Error) {
        let mut notes = self.world.notes();
        let explained = match error {
            Error::Refused(_) | Error::ShuttingDown | Error::SessionExists(_) => true,
            Error::InUse { .. } | Error::TakenOver(_) => self.rival.is_some(),
            Error::NoSuchSession(_) | Error::Stopped(_) => !notes.deleted.is_empty(),
            // A process that shuts down closes its store under those that still read.
            Error::Store(error) => matches!(
                **error,
                segue_store::Error::Io { .. } | segue_store::Error::Full { .. } | segue_store::Error::Closed
            ),
            _ => false,
        };
        if !explained {
            notes.wrong.push(format!("{what}: {error}"));
        }
    }
}

/// Does it.
pub async fn act(hand: Hand, deed: Deed, number: u64) {
    let listens = matches!(deed, Deed::Listen { .. });
    if !listens {
        hand.world.notes().pending.insert(number);
    }
    perform(&hand, deed).await;
    if !listens {
        hand.world.notes().pending.remove(&number);
    }
}

async fn perform(hand: &Hand, deed: Deed) {
    match deed {
        Deed::Say { session, text, key, busy, how, through } => {
            let Some(session) = hand.session(session) else { return };
            say(hand, session, (text, key, busy), how, through).await;
        }
        Deed::Command { session, command } => {
            let Some(session) = hand.session(session) else { return };
            if let Err(error) = hand.first.command(&session, command).await {
                hand.note("a command", &error);
            }
        }
        Deed::Fork { session, at_percent } => {
            let Some(session) = hand.session(session) else { return };
            fork(hand, &session, at_percent).await;
        }
        Deed::Copy { session } => {
            let Some(session) = hand.session(session) else { return };
            copy(hand, &session).await;
        }
        Deed::Recompute { session, call, model } => {
            let Some(session) = hand.session(session) else { return };
            let change = Change { model: model.map(Into::into), ..Change::default() };
            match hand.first.recompute(&session, CallId(call), &change).await {
                Ok(_) | Err(Error::NoSuchCall { .. }) => {}
                Err(error) => hand.note("a call once more", &error),
            }
        }
        Deed::Delete { session } => {
            let Some(session) = hand.session(session) else { return };
            hand.world.notes().deleted.insert(session.clone());
            if let Err(error) = hand.first.delete(&session).await {
                hand.note("a deletion", &error);
            }
        }
        Deed::Listen { session, from, slow_ms, through } => {
            let Some(session) = hand.session(session) else { return };
            listen(hand, session, from, slow_ms, through).await;
        }
    }
}

type Said = (String, Option<String>, Option<Busy>);

async fn say(hand: &Hand, session: SessionId, (text, key, busy): Said, how: How, through: Through) {
    let key = key.map(IdempotencyKey::from);
    let head = head(&hand.world.disk, &session);
    let place = {
        let mut notes = hand.world.notes();
        let (session, text, key) = (session.clone(), text.clone(), key.clone());
        notes.sent.push(Sent { session, text, key, head, came_of_it: Fate::Untold });
        notes.sent.len() - 1
    };
    let message = Message { key, busy, ..Message::from(text) };
    let engine = hand.engine(through);
    let told = match how {
        How::Send => engine.send(&session, message).await.map(Fate::Accepted),
        How::Ask => engine.ask(&session, message).await.map(|report| Fate::Answered(Box::new(report))),
    };
    let fate = told.unwrap_or_else(|error| {
        hand.note("a message", &error);
        Fate::Refused(error.to_string())
    });
    hand.world.notes().sent[place].came_of_it = fate;
}

async fn fork(hand: &Hand, session: &SessionId, at_percent: Option<u64>) {
    let to = hand.name(session, "f");
    let at = match at_percent {
        Some(percent) => match hand.first.state(session).await {
            Ok((_, state)) => Some(Seq((state.session.seq.0 * percent / 100).max(1))),
            Err(error) => return hand.note("a look before a fork", &error),
        },
        None => None,
    };
    // Half of those in the middle are made by a program that makes no calls, and left for others to take up.
    let forked = match at_percent {
        Some(percent) if percent % 2 == 0 => {
            let by_hand = by_hand(hand).await;
            let forked = by_hand.fork(session, at, Some(to)).await;
            by_hand.shutdown().await;
            forked
        }
        _ => hand.first.fork(session, at, Some(to)).await,
    };
    match forked {
        Ok(fork) => hand.add(fork),
        Err(error) => hand.note("a fork", &error),
    }
}

/// Another program on the same disk, which only writes down what it is told.
async fn by_hand(hand: &Hand) -> Engine {
    let store = Arc::new(MemoryStore::open(&hand.world.disk));
    let flows = hand.first.flows().cloned().collect();
    let setup = Setup {
        recovery: Recovery::Never,
        clock: Arc::new(RuntimeClock::starting(hand.first.now())),
        chance: Chance::seeded(1),
        count: Arc::new(Words),
        ..Setup::new(store, flows, Models::new(), "nobody")
    };
    Engine::start(setup).await.expect("an engine starts")
}

async fn copy(hand: &Hand, session: &SessionId) {
    let mut lines = String::new();
    let exported = hand.first.export(session, |line| -> Result<(), Error> {
        lines.push_str(line);
        Ok(())
    });
    if let Err(error) = exported.await {
        return hand.note("an export", &error);
    }
    let to = hand.name(session, "c");
    match hand.first.import(lines.lines().map(str::to_owned), Some(to)).await {
        Ok(copy) => hand.add(copy),
        Err(error) => hand.note("an import", &error),
    }
}

async fn listen(hand: &Hand, session: SessionId, from: From, slow_ms: u64, through: Through) {
    let engine = hand.engine(through);
    let after = match from {
        From::Start => Seq(0),
        From::Now => match engine.state(&session).await {
            Ok((_, state)) => state.session.seq,
            Err(error) => return hand.note("a look before listening", &error),
        },
    };
    let mut subscription = match engine.subscribe(&session, after).await {
        Ok(subscription) => subscription,
        Err(error) => return hand.note("listening", &error),
    };
    let joined = head(&hand.world.disk, &session);
    let place = {
        let mut notes = hand.world.notes();
        // What another process says is heard as events alone.
        let joined = if hand.rival.is_some() { Seq(u64::MAX) } else { joined };
        notes.heard.push(Heard { session, after, joined, events: Vec::new(), listens: true, words: Vec::new() });
        notes.heard.len() - 1
    };
    let mut words: BTreeMap<CallId, (u32, String)> = BTreeMap::new();
    loop {
        let update = match subscription.next().await {
            Ok(update) => update,
            Err(error) if error.is_passing() => continue,
            Err(error) => {
                hand.world.notes().heard[place].listens = false;
                return hand.note("listening", &error);
            }
        };
        hear(&mut hand.world.notes().heard[place], &mut words, update);
        if slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(slow_ms)).await;
        }
    }
}

/// How much is recorded of a session at this moment.
pub fn head(disk: &MemoryDisk, session: &SessionId) -> Seq {
    let records = now(MemoryStore::open(disk).read(session, Seq(0), usize::MAX));
    Seq(records.map_or(0, |records| records.len() as u64))
}

fn hear(heard: &mut Heard, words: &mut BTreeMap<CallId, (u32, String)>, update: Update) {
    match update {
        Update::Words { call, attempt, at, text } => {
            let (of_attempt, so_far) = words.entry(call).or_insert_with(|| (attempt, String::new()));
            if *of_attempt != attempt {
                (*of_attempt, *so_far) = (attempt, String::new());
            }
            assert_eq!(at, so_far.len(), "the words of {call} come without gap and without repetition");
            so_far.push_str(&text);
            let is_over = heard.events.iter().any(|event| ends(&event.event, (call, attempt)));
            assert!(!is_over, "words of {call} (try {attempt}) come after its end");
        }
        Update::Event(event) => {
            if let Event::CallAnswered(answered) = &event.event {
                let (attempt, text) = words.remove(&answered.call).unwrap_or_default();
                heard.words.push((answered.call, attempt, text));
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
        Event::CallFailed { call, attempt: last, .. } | Event::CallUnknown { call, attempt: last, .. } => {
            *call == ended && attempt <= *last
        }
        _ => false,
    }
}
