//! Who listens to which session. A listener gets every event in order, and the words as they come; one that joins late
//! gets first what it missed, one that reads too slowly gets it from the store. Nothing is missed, nothing comes twice.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::event::Recorded;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_store::Store;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::error::Error;
use crate::limits::{FOLLOW_POLL_MS, READ_EVENTS_MAX, UPDATES_BUFFERED_MAX};
use crate::load::read_events;

/// What a listener gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// Something was recorded.
    Event(Box<Recorded>),
    /// More words of a call that is being answered, as the user may see them. The recorded text follows as an event.
    Words {
        /// Which call.
        call: CallId,
        /// Which try; the words of another try start over.
        attempt: u32,
        /// How many bytes of that try's words came before these.
        at: usize,
        /// The words.
        text: Arc<str>,
    },
}

/// The words of calls that are being answered now.
#[derive(Debug, Default)]
struct Live {
    words: BTreeMap<CallId, (u32, String)>,
}

#[derive(Debug, Default)]
struct Channel {
    /// There from when somebody first listens: its buffer is large.
    updates: Option<broadcast::Sender<Update>>,
    live: Live,
}

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: Mutex<HashMap<SessionId, Channel>>,
}

impl Hub {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<SessionId, Channel>) -> T) -> T {
        work(&mut self.channels.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells everybody what was recorded.
    pub fn publish(&self, session: &SessionId, events: &[Recorded]) {
        self.with(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            for event in events {
                if let Some(call) = closed_call(event) {
                    channel.live.words.remove(&call);
                }
                if let Some(updates) = channel.listened_to() {
                    // Nobody listening any more is no failure.
                    let _ = updates.send(Update::Event(Box::new(event.clone())));
                }
            }
        });
    }

    /// Tells everybody more words of a call.
    pub fn words(&self, session: &SessionId, call: CallId, attempt: u32, text: &str) {
        self.with(|channels| {
            // Words are kept even while nobody listens: somebody may join in the middle.
            let channel = channels.entry(session.clone()).or_default();
            let (of_attempt, so_far) = channel.live.words.entry(call).or_insert_with(|| (attempt, String::new()));
            if *of_attempt != attempt {
                *of_attempt = attempt;
                so_far.clear();
            }
            let at = so_far.len();
            so_far.push_str(text);
            if let Some(updates) = channel.listened_to() {
                let _ = updates.send(Update::Words { call, attempt, at, text: text.into() });
            }
        });
    }

    /// Forgets a session nobody listens to.
    pub fn tidy(&self, session: &SessionId) {
        self.with(|channels| {
            if channels.get(session).is_some_and(|channel| channel.listened_to().is_none()) {
                channels.remove(session);
            }
        });
    }

    /// The words so far, and the updates from this moment on.
    fn join(&self, session: &SessionId) -> (Vec<Update>, broadcast::Receiver<Update>) {
        self.with(|channels| {
            let channel = channels.entry(session.clone()).or_default();
            let updates = channel.updates.get_or_insert_with(|| broadcast::channel(UPDATES_BUFFERED_MAX).0);
            (channel.live.updates(), updates.subscribe())
        })
    }
}

impl Channel {
    /// Where updates go, if anybody listens.
    fn listened_to(&self) -> Option<&broadcast::Sender<Update>> {
        self.updates.as_ref().filter(|updates| updates.receiver_count() > 0)
    }
}

impl Live {
    fn updates(&self) -> Vec<Update> {
        let words = self.words.iter().filter(|(_, (_, text))| !text.is_empty());
        words
            .map(|(call, (attempt, text))| Update::Words {
                call: *call,
                attempt: *attempt,
                at: 0,
                text: text.as_str().into(),
            })
            .collect()
    }
}

fn closed_call(event: &Recorded) -> Option<CallId> {
    use segue_core::event::Event;
    match &event.event {
        Event::CallAnswered(answered) => Some(answered.call),
        Event::CallFailed { call, .. } | Event::CallCancelled { call, .. } | Event::CallUnknown { call, .. } => {
            Some(*call)
        }
        _ => None,
    }
}

/// A listener's end: updates of one session, without gap and without repetition.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    store: Arc<dyn Store>,
    session: SessionId,
    updates: broadcast::Receiver<Update>,
    /// The last event given out.
    seen: Seq,
    /// Bytes of words given out, by call and try.
    heard: BTreeMap<CallId, (u32, usize)>,
    ready: VecDeque<Update>,
    /// Whether the store may hold events that have not come through the channel.
    behind: bool,
}

impl Subscription {
    pub(crate) fn new(hub: Arc<Hub>, store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        let (words, updates) = hub.join(&session);
        Self { hub, store, session, updates, seen: after, heard: BTreeMap::new(), ready: words.into(), behind: true }
    }

    /// The next update. Waits as long as it takes; dropping the future loses nothing.
    ///
    /// # Errors
    /// The store cannot be read, or the session is gone.
    pub async fn next(&mut self) -> Result<Update, Error> {
        loop {
            // Events first: words belong to calls that were recorded before.
            if self.behind {
                self.catch_up().await?;
            }
            if let Some(update) = self.ready.pop_front()
                && let Some(update) = self.take(update)
            {
                return Ok(update);
            }
            if self.behind || !self.ready.is_empty() {
                continue;
            }
            match tokio::time::timeout(Duration::from_millis(FOLLOW_POLL_MS), self.updates.recv()).await {
                Ok(Ok(update)) => self.ready.push_back(update),
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => self.rejoin(),
                // Another process may have written.
                Err(_) => self.behind = true,
            }
        }
    }

    /// The place of the last event given out.
    #[must_use]
    pub fn seen(&self) -> Seq {
        self.seen
    }

    fn rejoin(&mut self) {
        let (words, updates) = self.hub.join(&self.session);
        self.updates = updates;
        self.ready.extend(words);
        self.behind = true;
    }

    async fn catch_up(&mut self) -> Result<(), Error> {
        let events = read_events(&*self.store, &self.session, self.seen, READ_EVENTS_MAX).await?;
        self.behind = events.len() == READ_EVENTS_MAX;
        let mut ready: VecDeque<Update> = events.into_iter().map(|event| Update::Event(Box::new(event))).collect();
        ready.append(&mut self.ready);
        self.ready = ready;
        Ok(())
    }

    /// Gives out an update unless it, or a part of it, was given out before.
    fn take(&mut self, update: Update) -> Option<Update> {
        match update {
            Update::Event(event) if event.seq <= self.seen => None,
            Update::Event(event) if event.seq > self.seen.next() => {
                // A gap: the store has what is missing, and this one too.
                self.behind = true;
                None
            }
            Update::Event(event) => {
                self.seen = event.seq;
                if let Some(call) = closed_call(&event) {
                    self.heard.remove(&call);
                }
                Some(Update::Event(event))
            }
            Update::Words { call, attempt, at, text } => {
                let (of_attempt, heard) = self.heard.entry(call).or_insert((attempt, 0));
                if *of_attempt != attempt {
                    (*of_attempt, *heard) = (attempt, 0);
                }
                let end = at + text.len();
                if at > *heard || end <= *heard {
                    return None;
                }
                let new: Arc<str> = if at == *heard { text } else { text[*heard - at..].into() };
                let at = *heard;
                *heard = end;
                Some(Update::Words { call, attempt, at, text: new })
            }
        }
    }
}
