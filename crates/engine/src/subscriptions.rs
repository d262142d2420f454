//! Subscriptions to sessions. A subscriber gets every event in order, and reply text while it is streamed. One that
//! joins late or reads slowly gets missed events from the store. No event is missed, and none comes twice.
//!
//! Events that other processes write are noticed by polling the store, once for all subscribers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use segue_core::event::RecordedEvent;
use segue_core::ids::{CallId, Seq, SessionId, ToolRunId};
use segue_store::Store;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::error::Error;
use crate::limits::{
    ENDED_CALLS_REMEMBERED_MAX, HEAD_POLL_MS, HEAD_POLL_SESSIONS_MAX, READ_EVENTS_MAX, UPDATES_BUFFERED_MAX,
};
use crate::live_updates::CrossNodeSessionUpdate;
use crate::load::read_events;

/// An update that a subscriber receives.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionUpdate {
    /// An event was recorded.
    Event(Box<RecordedEvent>),
    /// More text of a call that is being answered, as far as the user may see it. The complete text follows as an
    /// event.
    TextDelta {
        call: CallId,
        /// The attempt; the text of another attempt starts again at offset 0.
        attempt: u32,
        /// Bytes of this attempt's text before this part.
        offset: usize,
        text: Arc<str>,
    },
    /// The progress of a tool run, which replaces the progress that it reported before. It is not recorded.
    ToolProgress { run: ToolRunId, text: Arc<str> },
}

/// A message in a session's broadcast channel.
#[derive(Debug, Clone)]
pub(crate) enum SessionBroadcastMessage {
    /// An update from this process.
    Update(SessionUpdate),
    /// The sequence number of the last event in the store.
    Head(Seq),
    /// The session is gone or the store cannot be read; reading it will return the error.
    CheckStore,
}

/// The subscribers and partial texts of one session.
#[derive(Debug, Default)]
struct SessionBroadcast {
    /// Created for the first subscriber.
    updates: Option<broadcast::Sender<SessionBroadcastMessage>>,
    /// The last event that subscribers know of.
    head: Seq,
    /// The text so far of calls that are being answered, with the number of the attempt.
    partial_texts: BTreeMap<CallId, (u32, String)>,
    /// The latest progress of tools that are running.
    tool_progress: BTreeMap<ToolRunId, Arc<str>>,
}

/// All subscriptions of an engine.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionHub {
    inner: Mutex<SubscriptionHubState>,
    /// The errors because of which sessions cannot write at the moment.
    write_errors: Mutex<BTreeMap<SessionId, Error>>,
}

#[derive(Debug, Default)]
struct SubscriptionHubState {
    channels: BTreeMap<SessionId, SessionBroadcast>,
    /// Whether the polling task is running.
    is_polling: bool,
}

impl SubscriptionHub {
    fn with_channels<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, SessionBroadcast>) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).channels)
    }

    /// Publishes recorded events.
    pub(crate) fn publish_events(&self, session: &SessionId, events: &[RecordedEvent]) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            for event in events {
                if let Some((call, _)) = find_ended_attempt(event) {
                    channel.partial_texts.remove(&call);
                }
                if let Some(run) = find_ended_tool_run(event) {
                    channel.tool_progress.remove(&run);
                }
                channel.head = channel.head.max(event.seq);
                channel.broadcast(|| SessionBroadcastMessage::Update(SessionUpdate::Event(Box::new(event.clone()))));
            }
        });
    }

    /// Publishes more text of an attempt, unless it is no longer wanted.
    pub(crate) fn publish_text(
        &self,
        session: &SessionId,
        (call, attempt): (CallId, u32),
        text: &str,
        is_wanted: &AtomicBool,
    ) {
        self.with_channels(|channels| {
            if !is_wanted.load(Ordering::Acquire) {
                return;
            }
            // Text is kept even without subscribers: one may join in the middle.
            let channel = channels.entry(session.clone()).or_default();
            let (text_attempt, partial_text) =
                channel.partial_texts.entry(call).or_insert_with(|| (attempt, String::new()));
            if *text_attempt != attempt {
                *text_attempt = attempt;
                partial_text.clear();
            }
            let offset = partial_text.len();
            partial_text.push_str(text);
            channel.broadcast(|| {
                SessionBroadcastMessage::Update(SessionUpdate::TextDelta { call, attempt, offset, text: text.into() })
            });
        });
    }

    /// Publishes the progress of a tool run.
    pub(crate) fn publish_tool_progress(&self, session: &SessionId, run: ToolRunId, text: Arc<str>) {
        self.with_channels(|channels| {
            // Kept even without subscribers: one may join in the middle.
            let channel = channels.entry(session.clone()).or_default();
            channel.tool_progress.insert(run, text.clone());
            channel.broadcast(|| SessionBroadcastMessage::Update(SessionUpdate::ToolProgress { run, text }));
        });
    }

    /// Drops the partial texts of attempts that are no longer wanted.
    pub(crate) fn drop_unwanted_partial_texts(&self, session: &SessionId, is_wanted: &dyn Fn(&(CallId, u32)) -> bool) {
        self.with_channels(|channels| {
            if let Some(channel) = channels.get_mut(session) {
                channel.partial_texts.retain(|call, (attempt, _)| is_wanted(&(*call, *attempt)));
            }
        });
    }

    /// Sets or clears the error because of which a session cannot write.
    pub(crate) fn set_write_error(&self, session: &SessionId, error: Option<Error>) {
        let mut write_errors = self.write_errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => write_errors.insert(session.clone(), error),
            None => write_errors.remove(session),
        };
    }

    /// Returns the error because of which a session cannot write, if any.
    pub(crate) fn current_write_error(&self, session: &SessionId) -> Option<Error> {
        self.write_errors.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// Cleans up when a session is parked: no call is being answered, and a channel without subscribers is not needed.
    pub(crate) fn clear_channel_of_parked_session(&self, session: &SessionId) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            channel.partial_texts.clear();
            channel.tool_progress.clear();
            if channel.updates.as_ref().is_none_or(|updates| updates.receiver_count() == 0) {
                channels.remove(session);
            }
        });
    }

    /// Subscribes to a session's channel. Also returns the texts so far.
    fn join_channel(&self, session: &SessionId) -> (Vec<SessionUpdate>, broadcast::Receiver<SessionBroadcastMessage>) {
        self.with_channels(|channels| {
            let channel = channels.entry(session.clone()).or_default();
            let partial_texts = channel.unrecorded_updates();
            let updates = channel.updates.get_or_insert_with(|| broadcast::channel(UPDATES_BUFFERED_MAX).0);
            (partial_texts, updates.subscribe())
        })
    }

    /// Subscribes to what a subscriber at another node should know. Also returns what is known already.
    pub(crate) fn join_live(
        &self,
        session: &SessionId,
    ) -> (Vec<CrossNodeSessionUpdate>, broadcast::Receiver<SessionBroadcastMessage>) {
        let (updates, receiver) = self.join_channel(session);
        (updates.into_iter().flat_map(|update| to_live_updates(&update)).collect(), receiver)
    }

    /// Returns the sessions that have subscribers.
    pub(crate) fn sessions_with_subscribers(&self) -> Vec<SessionId> {
        self.with_channels(|channels| {
            let subscribed = channels.iter().filter(|(_, channel)| channel.has_subscribers());
            subscribed.map(|(session, _)| session.clone()).collect()
        })
    }

    pub(crate) fn has_subscribers(&self, session: &SessionId) -> bool {
        self.with_channels(|channels| channels.get(session).is_some_and(SessionBroadcast::has_subscribers))
    }

    /// Passes on what another node, which holds the session, has sent.
    pub(crate) fn apply_live_update(&self, session: &SessionId, update: CrossNodeSessionUpdate) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            match update {
                CrossNodeSessionUpdate::Head { seq } if seq > channel.head => {
                    channel.head = seq;
                    channel.broadcast(|| SessionBroadcastMessage::Head(seq));
                }
                CrossNodeSessionUpdate::Head { .. } => {}
                CrossNodeSessionUpdate::Text { call, attempt, offset, text } => {
                    let (text_attempt, partial_text) =
                        channel.partial_texts.entry(call).or_insert_with(|| (attempt, String::new()));
                    if *text_attempt != attempt {
                        *text_attempt = attempt;
                        partial_text.clear();
                    }
                    // A gap cannot be filled; the complete text follows as an event.
                    let Some(new) = partial_text.len().checked_sub(offset).and_then(|known| text.get(known..)) else {
                        return;
                    };
                    let offset = partial_text.len();
                    partial_text.push_str(new);
                    let text: Arc<str> = new.into();
                    channel.broadcast(|| {
                        SessionBroadcastMessage::Update(SessionUpdate::TextDelta { call, attempt, offset, text })
                    });
                }
                CrossNodeSessionUpdate::Progress { run, text } => {
                    let text: Arc<str> = text.into();
                    channel.tool_progress.insert(run, text.clone());
                    channel.broadcast(|| SessionBroadcastMessage::Update(SessionUpdate::ToolProgress { run, text }));
                }
                CrossNodeSessionUpdate::CallEnded { call } => drop(channel.partial_texts.remove(&call)),
                CrossNodeSessionUpdate::RunEnded { run } => drop(channel.tool_progress.remove(&run)),
            }
        });
    }

    /// Removes the channel together with its last subscriber, unless a call is being answered.
    fn leave_channel(&self, session: &SessionId) {
        self.with_channels(|channels| {
            let is_last = channels.get(session).is_some_and(|channel| {
                let subscribers = channel.updates.as_ref().map_or(0, broadcast::Sender::receiver_count);
                channel.partial_texts.is_empty() && channel.tool_progress.is_empty() && subscribers <= 1
            });
            if is_last {
                channels.remove(session);
            }
        });
    }

    /// Starts the polling task if it is not running.
    fn ensure_polling(self: &Arc<Self>, store: &Arc<dyn Store>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut inner.is_polling, true) {
            // The task keeps neither the hub nor the store alive.
            tokio::spawn(poll_store_heads(Arc::downgrade(self), Arc::downgrade(store)));
        }
    }

    /// Returns the sessions that have subscribers, in order. Returns none, and ends polling, if there are none.
    fn subscribed_sessions_or_stop_polling(&self) -> Option<Vec<SessionId>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let channels = inner.channels.iter().filter(|(_, channel)| channel.has_subscribers());
        let mut sessions: Vec<SessionId> = channels.map(|(session, _)| session.clone()).collect();
        sessions.sort();
        inner.is_polling = !sessions.is_empty();
        inner.is_polling.then_some(sessions)
    }

    /// Informs a session's subscribers about the last event in the store, if it changed.
    fn announce_head(&self, session: &SessionId, head: Option<Seq>) {
        self.with_channels(|channels| {
            let Some(channel) = channels.get_mut(session) else { return };
            match head {
                // A lower number counts as well: the session may have been deleted and created again.
                Some(head) if head != channel.head => {
                    channel.head = head;
                    channel.broadcast(|| SessionBroadcastMessage::Head(head));
                }
                Some(_) => {}
                None => channel.broadcast(|| SessionBroadcastMessage::CheckStore),
            }
        });
    }
}

/// Polls the store for events of other processes, until there are no subscribers.
async fn poll_store_heads(hub: Weak<SubscriptionHub>, store: Weak<dyn Store>) {
    loop {
        tokio::time::sleep(Duration::from_millis(HEAD_POLL_MS)).await;
        let (Some(hub), Some(store)) = (hub.upgrade(), store.upgrade()) else { return };
        let Some(sessions) = hub.subscribed_sessions_or_stop_polling() else { return };
        for batch in sessions.chunks(HEAD_POLL_SESSIONS_MAX) {
            match store.read_heads(batch).await {
                Ok(heads) => batch.iter().zip(heads).for_each(|(session, head)| hub.announce_head(session, head)),
                Err(error) => {
                    tracing::warn!(sessions = batch.len(), %error, "cannot look for new events of other processes");
                    batch.iter().for_each(|session| hub.announce_head(session, None));
                }
            }
        }
    }
}

impl SessionBroadcastMessage {
    /// Returns what a subscriber at another node should know of the message.
    pub(crate) fn to_live_updates(&self) -> Vec<CrossNodeSessionUpdate> {
        match self {
            Self::Update(update) => to_live_updates(update),
            Self::Head(seq) => vec![CrossNodeSessionUpdate::Head { seq: *seq }],
            Self::CheckStore => Vec::new(),
        }
    }
}

fn to_live_updates(update: &SessionUpdate) -> Vec<CrossNodeSessionUpdate> {
    match update {
        SessionUpdate::Event(event) => {
            let call_ended = find_ended_attempt(event).map(|(call, _)| CrossNodeSessionUpdate::CallEnded { call });
            let run_ended = find_ended_tool_run(event).map(|run| CrossNodeSessionUpdate::RunEnded { run });
            let head = CrossNodeSessionUpdate::Head { seq: event.seq };
            call_ended.into_iter().chain(run_ended).chain([head]).collect()
        }
        SessionUpdate::TextDelta { call, attempt, offset, text } => {
            let (call, attempt, offset, text) = (*call, *attempt, *offset, text.to_string());
            vec![CrossNodeSessionUpdate::Text { call, attempt, offset, text }]
        }
        SessionUpdate::ToolProgress { run, text } => {
            vec![CrossNodeSessionUpdate::Progress { run: *run, text: text.to_string() }]
        }
    }
}

impl SessionBroadcast {
    fn has_subscribers(&self) -> bool {
        self.updates.as_ref().is_some_and(|updates| updates.receiver_count() > 0)
    }

    fn broadcast(&self, make_message: impl FnOnce() -> SessionBroadcastMessage) {
        if let Some(updates) = self.updates.as_ref().filter(|updates| updates.receiver_count() > 0) {
            // Having no subscribers is not an error.
            let _ = updates.send(make_message());
        }
    }

    /// Returns what subscribers have seen beyond the recorded events.
    fn unrecorded_updates(&self) -> Vec<SessionUpdate> {
        let progress = self.tool_progress.iter();
        let progress = progress.map(|(run, text)| SessionUpdate::ToolProgress { run: *run, text: text.clone() });
        let texts = self.partial_texts.iter().filter(|(_, (_, text))| !text.is_empty());
        texts
            .map(|(call, (attempt, text))| SessionUpdate::TextDelta {
                call: *call,
                attempt: *attempt,
                offset: 0,
                text: text.as_str().into(),
            })
            .chain(progress)
            .collect()
    }
}

/// Returns the call of which the event ends an attempt, and the last attempt that has ended.
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

fn find_ended_tool_run(event: &RecordedEvent) -> Option<ToolRunId> {
    match &event.event {
        segue_core::event::Event::ToolRunEnded { run, .. } => Some(*run),
        _ => None,
    }
}

/// A stream of one session's updates, without gaps and repetitions.
#[derive(Debug)]
pub struct SessionSubscription {
    hub: Arc<SubscriptionHub>,
    store: Arc<dyn Store>,
    session: SessionId,
    updates: broadcast::Receiver<SessionBroadcastMessage>,
    /// The last event that was delivered.
    last_seq: Seq,
    /// Bytes of text delivered, by call and attempt.
    delivered_bytes: BTreeMap<CallId, (u32, usize)>,
    /// The last ended attempt of calls that ended recently. The store may be ahead of the channel; then text arrives
    /// after the event that ended its call.
    ended_attempts: BTreeMap<CallId, u32>,
    /// The tool runs that ended recently.
    ended_tool_runs: BTreeSet<ToolRunId>,
    /// Events read from the store.
    missed: VecDeque<RecordedEvent>,
    /// Updates received from the channel.
    ready: VecDeque<SessionUpdate>,
    /// Whether the store may have events that did not come through the channel.
    is_behind: bool,
}

impl SessionSubscription {
    pub(crate) fn new(hub: Arc<SubscriptionHub>, store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        let (partial_texts, updates) = hub.join_channel(&session);
        hub.ensure_polling(&store);
        Self {
            hub,
            store,
            session,
            updates,
            last_seq: after,
            delivered_bytes: BTreeMap::new(),
            ended_attempts: BTreeMap::new(),
            ended_tool_runs: BTreeSet::new(),
            missed: VecDeque::new(),
            ready: partial_texts.into(),
            is_behind: true,
        }
    }

    /// Returns the next update, waiting for it if necessary. Cancel-safe.
    ///
    /// # Errors
    /// The store cannot be read, or the session was deleted.
    pub async fn next_update(&mut self) -> Result<SessionUpdate, Error> {
        loop {
            // Events first: text belongs to calls that were recorded before it.
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
                Ok(message) => self.handle_channel_message(message),
                Err(RecvError::Lagged(missed)) => self.rejoin_after_lag(missed),
                Err(RecvError::Closed) => self.rejoin_channel(),
            }
        }
    }

    fn handle_channel_message(&mut self, message: SessionBroadcastMessage) {
        match message {
            SessionBroadcastMessage::Update(update) => self.ready.push_back(update),
            SessionBroadcastMessage::Head(head) => self.is_behind |= head > self.last_seq,
            SessionBroadcastMessage::CheckStore => self.is_behind = true,
        }
    }

    /// Returns the sequence number of the last delivered event.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Continues from the store, because this subscriber read too slowly for the channel.
    fn rejoin_after_lag(&mut self, missed_updates: u64) {
        let session = &self.session;
        tracing::warn!(%session, missed_updates, "slow subscriber dropped from the channel; it continues from the store");
        self.rejoin_channel();
    }

    fn rejoin_channel(&mut self) {
        let (partial_texts, updates) = self.hub.join_channel(&self.session);
        self.updates = updates;
        self.ready.extend(partial_texts);
        self.is_behind = true;
    }

    async fn read_missed_events(&mut self) -> Result<(), Error> {
        let events = read_events(&*self.store, &self.session, self.last_seq, READ_EVENTS_MAX).await?;
        self.is_behind = events.len() == READ_EVENTS_MAX;
        self.missed = events.into();
        // Text is published before the event that ends its call is recorded, so the text of these events is in the
        // channel by now.
        loop {
            match self.updates.try_recv() {
                Ok(message) => self.handle_channel_message(message),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Lagged(missed)) => self.rejoin_after_lag(missed),
                Err(TryRecvError::Closed) => self.rejoin_channel(),
            }
        }
    }

    /// Returns text that belongs before the event and was not delivered yet, or else the event.
    fn pending_text_or_event(&mut self, event: RecordedEvent) -> SessionUpdate {
        let text = find_ended_attempt(&event).and_then(|(ended, last_attempt)| {
            let before = |update: &SessionUpdate| matches!(update, SessionUpdate::TextDelta { call, attempt, .. } if *call == ended && *attempt <= last_attempt);
            let index = self.ready.iter().position(before)?;
            self.ready.remove(index)
        });
        match text {
            Some(text) => {
                self.missed.push_front(event);
                text
            }
            None => SessionUpdate::Event(Box::new(event)),
        }
    }

    /// Returns the part of an update that was not delivered before, if any.
    fn deduplicate(&mut self, update: SessionUpdate) -> Option<SessionUpdate> {
        match update {
            SessionUpdate::Event(event) if event.seq <= self.last_seq => None,
            SessionUpdate::Event(event) if event.seq > self.last_seq.next() => {
                // A gap: the store has the missing events, and this one too.
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
                if let Some(run) = find_ended_tool_run(&event) {
                    self.ended_tool_runs.insert(run);
                    if self.ended_tool_runs.len() > ENDED_CALLS_REMEMBERED_MAX {
                        self.ended_tool_runs.pop_first();
                    }
                }
                Some(SessionUpdate::Event(event))
            }
            SessionUpdate::ToolProgress { run, .. } if self.ended_tool_runs.contains(&run) => None,
            progress @ SessionUpdate::ToolProgress { .. } => Some(progress),
            SessionUpdate::TextDelta { call, attempt, .. }
                if self.ended_attempts.get(&call).is_some_and(|last_ended| *last_ended >= attempt) =>
            {
                None
            }
            SessionUpdate::TextDelta { call, attempt, offset: at, text } => {
                let (text_attempt, delivered) = self.delivered_bytes.entry(call).or_insert((attempt, 0));
                if *text_attempt != attempt {
                    (*text_attempt, *delivered) = (attempt, 0);
                }
                let end = at + text.len();
                if at > *delivered || end <= *delivered {
                    return None;
                }
                let new: Arc<str> = if at == *delivered { text } else { text[*delivered - at..].into() };
                let at = *delivered;
                *delivered = end;
                Some(SessionUpdate::TextDelta { call, attempt, offset: at, text: new })
            }
        }
    }
}

impl Drop for SessionSubscription {
    fn drop(&mut self) {
        self.hub.leave_channel(&self.session);
    }
}
