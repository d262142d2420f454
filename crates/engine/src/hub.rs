//! Who listens to which session. A listener gets every event in order, and the words as they come; one that joins late
//! gets first what it missed, one that reads too slowly gets it from the store. Nothing is missed, nothing comes twice.
//!
//! What other processes write is noticed by looking at the store from time to time: once for all listeners, however many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use segue_core::event::Recorded;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_store::Store;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::error::Error;
use crate::limits::{CALLS_OVER_MAX, FOLLOW_HEADS_MAX, FOLLOW_POLL_MS, READ_EVENTS_MAX, UPDATES_BUFFERED_MAX};
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

/// What listeners are told.
#[derive(Debug, Clone)]
enum Told {
    /// What happened here.
    Update(Update),
    /// The store holds events up to here.
    Head(Seq),
    /// The session is gone, or the store cannot be read: whoever reads will know.
    Look,
}

/// What is said and heard in one session now.
#[derive(Debug, Default)]
struct Channel {
    /// Made when somebody first listens.
    updates: Option<broadcast::Sender<Told>>,
    /// The last event listeners were told of.
    head: Seq,
    /// The words so far of calls that are being answered.
    words: BTreeMap<CallId, (u32, String)>,
}

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    /// Why sessions wait for their store.
    troubles: Mutex<BTreeMap<SessionId, Error>>,
}

#[derive(Debug, Default)]
struct Inner {
    channels: BTreeMap<SessionId, Channel>,
    /// Whether the store is being looked at.
    is_watched: bool,
}

impl Hub {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, Channel>) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).channels)
    }

    /// Tells everybody what was recorded.
    pub fn publish(&self, session: &SessionId, events: &[Recorded]) {
        self.with(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            for event in events {
                if let Some((call, _)) = over(event) {
                    channel.words.remove(&call);
                }
                channel.head = channel.head.max(event.seq);
                channel.send(|| Told::Update(Update::Event(Box::new(event.clone()))));
            }
        });
    }

    /// Tells everybody more words of a try, as long as it is wanted.
    pub fn words(&self, session: &SessionId, (call, attempt): (CallId, u32), text: &str, wanted: &AtomicBool) {
        self.with(|channels| {
            if !wanted.load(Ordering::Acquire) {
                return;
            }
            // Words are kept even while nobody listens: somebody may join in the middle.
            let channel = channels.entry(session.clone()).or_default();
            let (of_attempt, so_far) = channel.words.entry(call).or_insert_with(|| (attempt, String::new()));
            if *of_attempt != attempt {
                *of_attempt = attempt;
                so_far.clear();
            }
            let at = so_far.len();
            so_far.push_str(text);
            channel.send(|| Told::Update(Update::Words { call, attempt, at, text: text.into() }));
        });
    }

    /// Lets go of the words of tries that are not wanted any more.
    pub fn keep_words(&self, session: &SessionId, wanted: &dyn Fn(&(CallId, u32)) -> bool) {
        self.with(|channels| {
            if let Some(channel) = channels.get_mut(session) {
                channel.words.retain(|call, (attempt, _)| wanted(&(*call, *attempt)));
            }
        });
    }

    /// Says why what a session has to record cannot be written now, or that it can again.
    pub fn set_trouble(&self, session: &SessionId, trouble: Option<Error>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(error) => troubles.insert(session.clone(), error),
            None => troubles.remove(session),
        };
    }

    /// Why what a session has to record cannot be written now, if so.
    pub fn trouble(&self, session: &SessionId) -> Option<Error> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// A session goes to rest: no call is being answered, and a channel nobody listens to is not needed.
    pub fn rest(&self, session: &SessionId) {
        self.with(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            channel.words.clear();
            if channel.updates.as_ref().is_none_or(|updates| updates.receiver_count() == 0) {
                channels.remove(session);
            }
        });
    }

    /// The words so far, and the updates from this moment on.
    fn join(&self, session: &SessionId) -> (Vec<Update>, broadcast::Receiver<Told>) {
        self.with(|channels| {
            let channel = channels.entry(session.clone()).or_default();
            let so_far = channel.so_far();
            let updates = channel.updates.get_or_insert_with(|| broadcast::channel(UPDATES_BUFFERED_MAX).0);
            (so_far, updates.subscribe())
        })
    }

    /// The last listener of a session at rest takes its channel along.
    fn part(&self, session: &SessionId) {
        self.with(|channels| {
            let alone = channels.get(session).is_some_and(|channel| {
                let listeners = channel.updates.as_ref().map_or(0, broadcast::Sender::receiver_count);
                channel.words.is_empty() && listeners <= 1
            });
            if alone {
                channels.remove(session);
            }
        });
    }

    /// Has the store looked at as long as somebody listens.
    fn watch(self: &Arc<Self>, store: &Arc<dyn Store>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut inner.is_watched, true) {
            // Neither the hub nor the store lives longer for it.
            tokio::spawn(watch(Arc::downgrade(self), Arc::downgrade(store)));
        }
    }

    /// The sessions that are listened to, in order; none if the watch can end.
    fn listened_to(&self) -> Option<Vec<SessionId>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let channels = inner.channels.iter().filter(|(_, channel)| channel.is_heard());
        let mut sessions: Vec<SessionId> = channels.map(|(session, _)| session.clone()).collect();
        sessions.sort();
        inner.is_watched = !sessions.is_empty();
        inner.is_watched.then_some(sessions)
    }

    /// Tells listeners of a session how far the store is, if that is news.
    fn stands(&self, session: &SessionId, head: Option<Seq>) {
        self.with(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            match head {
                // One that is lower is told too: a session of the same name may have begun anew.
                Some(head) if head != channel.head => {
                    channel.head = head;
                    channel.send(|| Told::Head(head));
                }
                Some(_) => {}
                None => channel.send(|| Told::Look),
            }
        });
    }
}

/// Looks from time to time at what other processes wrote, until nobody listens.
async fn watch(hub: Weak<Hub>, store: Weak<dyn Store>) {
    loop {
        tokio::time::sleep(Duration::from_millis(FOLLOW_POLL_MS)).await;
        let (Some(hub), Some(store)) = (hub.upgrade(), store.upgrade()) else { return };
        let Some(sessions) = hub.listened_to() else { return };
        for some in sessions.chunks(FOLLOW_HEADS_MAX) {
            match store.heads(some).await {
                Ok(heads) => some.iter().zip(heads).for_each(|(session, head)| hub.stands(session, head)),
                Err(_) => some.iter().for_each(|session| hub.stands(session, None)),
            }
        }
    }
}

impl Channel {
    fn is_heard(&self) -> bool {
        self.updates.as_ref().is_some_and(|updates| updates.receiver_count() > 0)
    }

    fn send(&self, told: impl FnOnce() -> Told) {
        if let Some(updates) = self.updates.as_ref().filter(|updates| updates.receiver_count() > 0) {
            // Nobody listening any more is no failure.
            let _ = updates.send(told());
        }
    }

    fn so_far(&self) -> Vec<Update> {
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

/// The call of which an event ends a try, and the last try that is over with it.
fn over(event: &Recorded) -> Option<(CallId, u32)> {
    use segue_core::event::{Event, Next};
    match &event.event {
        Event::CallAnswered(answered) => Some((answered.call, u32::MAX)),
        Event::CallCancelled { call, .. } => Some((*call, u32::MAX)),
        Event::CallFailed { call, attempt, next, .. } | Event::CallUnknown { call, attempt, next } => match next {
            Next::Retry { .. } | Next::Ask => Some((*call, *attempt)),
            Next::GiveUp => Some((*call, u32::MAX)),
        },
        _ => None,
    }
}

/// A listener's end: updates of one session, without gap and without repetition.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    store: Arc<dyn Store>,
    session: SessionId,
    updates: broadcast::Receiver<Told>,
    /// The last event given out.
    seen: Seq,
    /// Bytes of words given out, by call and try.
    heard: BTreeMap<CallId, (u32, usize)>,
    /// The last try that is over of calls that ended lately. The store may be ahead of the channel: then words come after
    /// the event that made an end of them.
    over: BTreeMap<CallId, u32>,
    /// Events read from the store.
    missed: VecDeque<Recorded>,
    /// What came through the channel.
    ready: VecDeque<Update>,
    /// Whether the store may hold events that have not come through the channel.
    behind: bool,
}

impl Subscription {
    pub(crate) fn new(hub: Arc<Hub>, store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        let (words, updates) = hub.join(&session);
        hub.watch(&store);
        Self {
            hub,
            store,
            session,
            updates,
            seen: after,
            heard: BTreeMap::new(),
            over: BTreeMap::new(),
            missed: VecDeque::new(),
            ready: words.into(),
            behind: true,
        }
    }

    /// The next update. Waits as long as it takes; dropping the future loses nothing.
    ///
    /// # Errors
    /// The store cannot be read, or the session is gone.
    pub async fn next(&mut self) -> Result<Update, Error> {
        loop {
            // Events first: words belong to calls that were recorded before.
            let update = match self.missed.pop_front() {
                Some(event) => Some(self.words_or(event)),
                None if self.behind => {
                    self.catch_up().await?;
                    continue;
                }
                None => self.ready.pop_front(),
            };
            if let Some(update) = update {
                match self.take(update) {
                    Some(update) => return Ok(update),
                    None => continue,
                }
            }
            match self.updates.recv().await {
                Ok(told) => self.hear(told),
                Err(RecvError::Lagged(_) | RecvError::Closed) => self.rejoin(),
            }
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Update(update) => self.ready.push_back(update),
            Told::Head(head) => self.behind |= head > self.seen,
            Told::Look => self.behind = true,
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
        self.missed = events.into();
        // Words are told before the event that makes an end of them is recorded, so those of these events are there by now.
        loop {
            match self.updates.try_recv() {
                Ok(told) => self.hear(told),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => self.rejoin(),
            }
        }
    }

    /// An event from the store, or words that came before it and have not been given out.
    fn words_or(&mut self, event: Recorded) -> Update {
        let words = over(&event).and_then(|(ended, last)| {
            let before = |update: &Update| matches!(update, Update::Words { call, attempt, .. } if *call == ended && *attempt <= last);
            let place = self.ready.iter().position(before)?;
            self.ready.remove(place)
        });
        match words {
            Some(words) => {
                self.missed.push_front(event);
                words
            }
            None => Update::Event(Box::new(event)),
        }
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
                if let Some((call, attempt)) = over(&event) {
                    self.heard.remove(&call);
                    self.over.insert(call, attempt);
                    if self.over.len() > CALLS_OVER_MAX {
                        self.over.pop_first();
                    }
                }
                Some(Update::Event(event))
            }
            Update::Words { call, attempt, .. } if self.over.get(&call).is_some_and(|over| *over >= attempt) => None,
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

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.part(&self.session);
    }
}
