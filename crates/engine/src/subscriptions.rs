//! Who listens to which session. A listener gets every event in order, and the words as they come; one that joins late
//! gets first what it missed, one that reads too slowly gets it from the store. Nothing is missed, nothing comes twice.
//!
//! What other processes write is noticed by looking at the store from time to time: once for all listeners, however many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_store::Store;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::error::Error;
use crate::limits::{
    ENDED_CALLS_REMEMBERED_MAX, HEAD_POLL_MS, HEAD_POLL_SESSIONS_MAX, READ_EVENTS_MAX, UPDATES_BUFFERED_MAX,
};
use crate::load::read_events;

/// What a listener gets.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionUpdate {
    /// Something was recorded.
    Event(Box<RecordedEvent>),
    /// More words of a call that is being answered, as the user may see them. The recorded text follows as an event.
    TextDelta {
        /// Which call.
        call: CallId,
        /// Which try; the words of another try start over.
        attempt: u32,
        /// How many bytes of that try's words came before these.
        offset: usize,
        /// The words.
        text: Arc<str>,
    },
}

/// What listeners are told.
#[derive(Debug, Clone)]
enum ChannelMessage {
    /// What happened here.
    Update(SessionUpdate),
    /// The store holds events up to here.
    Head(Seq),
    /// The session is gone, or the store cannot be read: whoever reads will know.
    CheckStore,
}

/// What is said and heard in one session now.
#[derive(Debug, Default)]
struct SessionChannel {
    /// Made when somebody first listens.
    updates: Option<broadcast::Sender<ChannelMessage>>,
    /// The last event listeners were told of.
    head: Seq,
    /// The words so far of calls that are being answered.
    partial_texts: BTreeMap<CallId, (u32, String)>,
}

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionHub {
    inner: Mutex<SubscriptionHubState>,
    /// Why sessions wait for their store.
    write_errors: Mutex<BTreeMap<SessionId, Error>>,
}

#[derive(Debug, Default)]
struct SubscriptionHubState {
    channels: BTreeMap<SessionId, SessionChannel>,
    /// Whether the store is being looked at.
    is_polling: bool,
}

impl SubscriptionHub {
    fn with_channels<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, SessionChannel>) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).channels)
    }

    /// Tells everybody what was recorded.
    pub fn publish_events(&self, session: &SessionId, events: &[RecordedEvent]) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            for event in events {
                if let Some((call, _)) = find_ended_attempt(event) {
                    channel.partial_texts.remove(&call);
                }
                channel.head = channel.head.max(event.seq);
                channel.broadcast(|| ChannelMessage::Update(SessionUpdate::Event(Box::new(event.clone()))));
            }
        });
    }

    /// Tells everybody more words of a try, as long as it is wanted.
    pub fn publish_text(&self, session: &SessionId, (call, attempt): (CallId, u32), text: &str, wanted: &AtomicBool) {
        self.with_channels(|channels| {
            if !wanted.load(Ordering::Acquire) {
                return;
            }
            // Words are kept even while nobody listens: somebody may join in the middle.
            let channel = channels.entry(session.clone()).or_default();
            let (of_attempt, so_far) = channel.partial_texts.entry(call).or_insert_with(|| (attempt, String::new()));
            if *of_attempt != attempt {
                *of_attempt = attempt;
                so_far.clear();
            }
            let at = so_far.len();
            so_far.push_str(text);
            channel.broadcast(|| {
                ChannelMessage::Update(SessionUpdate::TextDelta { call, attempt, offset: at, text: text.into() })
            });
        });
    }

    /// Lets go of the words of tries that are not wanted any more.
    pub fn retain_partial_texts(&self, session: &SessionId, wanted: &dyn Fn(&(CallId, u32)) -> bool) {
        self.with_channels(|channels| {
            if let Some(channel) = channels.get_mut(session) {
                channel.partial_texts.retain(|call, (attempt, _)| wanted(&(*call, *attempt)));
            }
        });
    }

    /// Says why what a session has to record cannot be written now, or that it can again.
    pub fn set_write_error(&self, session: &SessionId, trouble: Option<Error>) {
        let mut troubles = self.write_errors.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(error) => troubles.insert(session.clone(), error),
            None => troubles.remove(session),
        };
    }

    /// Why what a session has to record cannot be written now, if so.
    pub fn write_error(&self, session: &SessionId) -> Option<Error> {
        self.write_errors.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// A session goes to rest: no call is being answered, and a channel nobody listens to is not needed.
    pub fn clear_parked_session(&self, session: &SessionId) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            channel.partial_texts.clear();
            if channel.updates.as_ref().is_none_or(|updates| updates.receiver_count() == 0) {
                channels.remove(session);
            }
        });
    }

    /// The words so far, and the updates from this moment on.
    fn join_channel(&self, session: &SessionId) -> (Vec<SessionUpdate>, broadcast::Receiver<ChannelMessage>) {
        self.with_channels(|channels| {
            let channel = channels.entry(session.clone()).or_default();
            let so_far = channel.partial_text_updates();
            let updates = channel.updates.get_or_insert_with(|| broadcast::channel(UPDATES_BUFFERED_MAX).0);
            (so_far, updates.subscribe())
        })
    }

    /// The last listener of a session at rest takes its channel along.
    fn leave_channel(&self, session: &SessionId) {
        self.with_channels(|channels| {
            let alone = channels.get(session).is_some_and(|channel| {
                let listeners = channel.updates.as_ref().map_or(0, broadcast::Sender::receiver_count);
                channel.partial_texts.is_empty() && listeners <= 1
            });
            if alone {
                channels.remove(session);
            }
        });
    }

    /// Has the store looked at as long as somebody listens.
    fn ensure_polling(self: &Arc<Self>, store: &Arc<dyn Store>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut inner.is_polling, true) {
            // Neither the hub nor the store lives longer for it.
            tokio::spawn(poll_store_heads(Arc::downgrade(self), Arc::downgrade(store)));
        }
    }

    /// The sessions that are listened to, in order; none if the watch can end.
    fn subscribed_sessions(&self) -> Option<Vec<SessionId>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let channels = inner.channels.iter().filter(|(_, channel)| channel.has_subscribers());
        let mut sessions: Vec<SessionId> = channels.map(|(session, _)| session.clone()).collect();
        sessions.sort();
        inner.is_polling = !sessions.is_empty();
        inner.is_polling.then_some(sessions)
    }

    /// Tells listeners of a session how far the store is, if that is news.
    fn announce_head(&self, session: &SessionId, head: Option<Seq>) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            match head {
                // One that is lower is told too: a session of the same name may have begun anew.
                Some(head) if head != channel.head => {
                    channel.head = head;
                    channel.broadcast(|| ChannelMessage::Head(head));
                }
                Some(_) => {}
                None => channel.broadcast(|| ChannelMessage::CheckStore),
            }
        });
    }
}

/// Looks from time to time at what other processes wrote, until nobody listens.
async fn poll_store_heads(hub: Weak<SubscriptionHub>, store: Weak<dyn Store>) {
    loop {
        tokio::time::sleep(Duration::from_millis(HEAD_POLL_MS)).await;
        let (Some(hub), Some(store)) = (hub.upgrade(), store.upgrade()) else { return };
        let Some(sessions) = hub.subscribed_sessions() else { return };
        for some in sessions.chunks(HEAD_POLL_SESSIONS_MAX) {
            match store.read_heads(some).await {
                Ok(heads) => some.iter().zip(heads).for_each(|(session, head)| hub.announce_head(session, head)),
                Err(_) => some.iter().for_each(|session| hub.announce_head(session, None)),
            }
        }
    }
}

impl SessionChannel {
    fn has_subscribers(&self) -> bool {
        self.updates.as_ref().is_some_and(|updates| updates.receiver_count() > 0)
    }

    fn broadcast(&self, told: impl FnOnce() -> ChannelMessage) {
        if let Some(updates) = self.updates.as_ref().filter(|updates| updates.receiver_count() > 0) {
            // Nobody listening any more is no failure.
            let _ = updates.send(told());
        }
    }

    fn partial_text_updates(&self) -> Vec<SessionUpdate> {
        let words = self.partial_texts.iter().filter(|(_, (_, text))| !text.is_empty());
        words
            .map(|(call, (attempt, text))| SessionUpdate::TextDelta {
                call: *call,
                attempt: *attempt,
                offset: 0,
                text: text.as_str().into(),
            })
            .collect()
    }
}

/// The call of which an event ends a try, and the last try that is over with it.
fn find_ended_attempt(event: &RecordedEvent) -> Option<(CallId, u32)> {
    use segue_core::event::{Event, RetryDecision};
    match &event.event {
        Event::CallAnswered(answered) => Some((answered.call, u32::MAX)),
        Event::CallCancelled { call, .. } => Some((*call, u32::MAX)),
        Event::CallFailed { call, attempt, next, .. } | Event::CallOutcomeUnknown { call, attempt, next } => match next
        {
            RetryDecision::Retry { .. } | RetryDecision::AwaitOperator => Some((*call, *attempt)),
            RetryDecision::GiveUp => Some((*call, u32::MAX)),
        },
        _ => None,
    }
}

/// A listener's end: updates of one session, without gap and without repetition.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<SubscriptionHub>,
    store: Arc<dyn Store>,
    session: SessionId,
    updates: broadcast::Receiver<ChannelMessage>,
    /// The last event given out.
    last_seq: Seq,
    /// Bytes of words given out, by call and try.
    delivered_bytes: BTreeMap<CallId, (u32, usize)>,
    /// The last try that is over of calls that ended lately. The store may be ahead of the channel: then words come after
    /// the event that made an end of them.
    ended_attempts: BTreeMap<CallId, u32>,
    /// Events read from the store.
    missed: VecDeque<RecordedEvent>,
    /// What came through the channel.
    ready: VecDeque<SessionUpdate>,
    /// Whether the store may hold events that have not come through the channel.
    is_behind: bool,
}

impl Subscription {
    pub(crate) fn new(hub: Arc<SubscriptionHub>, store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        let (words, updates) = hub.join_channel(&session);
        hub.ensure_polling(&store);
        Self {
            hub,
            store,
            session,
            updates,
            last_seq: after,
            delivered_bytes: BTreeMap::new(),
            ended_attempts: BTreeMap::new(),
            missed: VecDeque::new(),
            ready: words.into(),
            is_behind: true,
        }
    }

    /// The next update. Waits as long as it takes; dropping the future loses nothing.
    ///
    /// # Errors
    /// The store cannot be read, or the session is gone.
    pub async fn next_update(&mut self) -> Result<SessionUpdate, Error> {
        loop {
            // Events first: words belong to calls that were recorded before.
            let update = match self.missed.pop_front() {
                Some(event) => Some(self.pending_text_or_event(event)),
                None if self.is_behind => {
                    self.read_missed_events().await?;
                    continue;
                }
                None => self.ready.pop_front(),
            };
            if let Some(update) = update {
                match self.deduplicate(update) {
                    Some(update) => return Ok(update),
                    None => continue,
                }
            }
            match self.updates.recv().await {
                Ok(told) => self.handle_channel_message(told),
                Err(RecvError::Lagged(_) | RecvError::Closed) => self.rejoin_channel(),
            }
        }
    }

    fn handle_channel_message(&mut self, told: ChannelMessage) {
        match told {
            ChannelMessage::Update(update) => self.ready.push_back(update),
            ChannelMessage::Head(head) => self.is_behind |= head > self.last_seq,
            ChannelMessage::CheckStore => self.is_behind = true,
        }
    }

    /// The place of the last event given out.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    fn rejoin_channel(&mut self) {
        let (words, updates) = self.hub.join_channel(&self.session);
        self.updates = updates;
        self.ready.extend(words);
        self.is_behind = true;
    }

    async fn read_missed_events(&mut self) -> Result<(), Error> {
        let events = read_events(&*self.store, &self.session, self.last_seq, READ_EVENTS_MAX).await?;
        self.is_behind = events.len() == READ_EVENTS_MAX;
        self.missed = events.into();
        // Words are told before the event that makes an end of them is recorded, so those of these events are there by now.
        loop {
            match self.updates.try_recv() {
                Ok(told) => self.handle_channel_message(told),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => self.rejoin_channel(),
            }
        }
    }

    /// An event from the store, or words that came before it and have not been given out.
    fn pending_text_or_event(&mut self, event: RecordedEvent) -> SessionUpdate {
        let words = find_ended_attempt(&event).and_then(|(ended, last)| {
            let before = |update: &SessionUpdate| matches!(update, SessionUpdate::TextDelta { call, attempt, .. } if *call == ended && *attempt <= last);
            let place = self.ready.iter().position(before)?;
            self.ready.remove(place)
        });
        match words {
            Some(words) => {
                self.missed.push_front(event);
                words
            }
            None => SessionUpdate::Event(Box::new(event)),
        }
    }

    /// Gives out an update unless it, or a part of it, was given out before.
    fn deduplicate(&mut self, update: SessionUpdate) -> Option<SessionUpdate> {
        match update {
            SessionUpdate::Event(event) if event.seq <= self.last_seq => None,
            SessionUpdate::Event(event) if event.seq > self.last_seq.next() => {
                // A gap: the store has what is missing, and this one too.
                self.is_behind = true;
                None
            }
            SessionUpdate::Event(event) => {
                self.last_seq = event.seq;
                if let Some((call, attempt)) = find_ended_attempt(&event) {
                    self.delivered_bytes.remove(&call);
                    self.ended_attempts.insert(call, attempt);
                    if self.ended_attempts.len() > ENDED_CALLS_REMEMBERED_MAX {
                        self.ended_attempts.pop_first();
                    }
                }
                Some(SessionUpdate::Event(event))
            }
            SessionUpdate::TextDelta { call, attempt, .. }
                if self.ended_attempts.get(&call).is_some_and(|over| *over >= attempt) =>
            {
                None
            }
            SessionUpdate::TextDelta { call, attempt, offset: at, text } => {
                let (of_attempt, heard) = self.delivered_bytes.entry(call).or_insert((attempt, 0));
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
                Some(SessionUpdate::TextDelta { call, attempt, offset: at, text: new })
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.leave_channel(&self.session);
    }
}
