//! Which sessions are at work, which are at rest, and the way an input finds its session. A session at work has a task; one
//! at rest has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_core::decide::SessionInput;
use segue_core::ids::{LeaseEpoch, MessageId, Seq, SessionId, UnixMillis};
use segue_core::session::SessionState;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::Error;
use crate::text_cache::TextCache;
use crate::turn_report::TurnReportSender;

/// Something for a session to do.
#[derive(Debug)]
pub(crate) struct ActorMessage {
    pub input: SessionInput,
    pub reply_sender: Option<oneshot::Sender<Result<Option<MessageId>, Error>>>,
    pub turn_waiter: Option<TurnReportSender>,
    /// When the session was opened that is meant, where another may have taken its name meanwhile.
    pub session_opened_at: Option<UnixMillis>,
}

impl ActorMessage {
    /// An input that nobody waits for.
    pub fn without_reply(input: SessionInput) -> Self {
        Self { input, reply_sender: None, turn_waiter: None, session_opened_at: None }
    }

    /// Whether nobody waits for it.
    pub fn is_unawaited(&self) -> bool {
        self.reply_sender.is_none() && self.turn_waiter.is_none()
    }

    /// Tells whoever waits that it was not done.
    pub fn reply_with_error(self, error: &Error) {
        if let Some(done) = self.reply_sender {
            let _ = done.send(Err(error.clone()));
        }
        if let Some(waiter) = self.turn_waiter {
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

/// A session in memory.
#[derive(Debug)]
pub(crate) struct CachedSession {
    pub state: SessionState,
    pub texts: TextCache,
    /// The claim it is written under; nothing once it was given back.
    pub lease_epoch: Option<LeaseEpoch>,
    /// Where the newest snapshot stands.
    pub snapshot_seq: Seq,
}

#[derive(Debug)]
pub(crate) enum SessionSlot {
    Active(Mailbox),
    Parked(Box<CachedSession>, UnixMillis),
}

impl SessionSlot {
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active(_))
    }
}

/// The way to a session at work.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    pub sender: mpsc::Sender<ActorMessage>,
    signals: Arc<StopSignals>,
}

/// The two ways in which a session's task is asked to end.
#[derive(Debug, Default)]
struct StopSignals {
    /// End at once.
    stop: Notify,
    /// Record what is in the mailbox, then end.
    drain: Notify,
    is_draining: AtomicBool,
}

impl Mailbox {
    pub fn new(jobs: mpsc::Sender<ActorMessage>) -> Self {
        Self { sender: jobs, signals: Arc::default() }
    }

    /// Puts a job into the mailbox; gives it back if that is full or closed.
    pub fn try_send(&self, job: ActorMessage) -> Result<(), Box<(Self, ActorMessage)>> {
        self.sender.try_send(job).map_err(|refused| Box::new((self.clone(), refused.into_inner())))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.sender.same_channel(&other.sender)
    }

    /// Ends the session's task at once, as a crash of the process would, and waits until it has ended.
    pub async fn stop_and_wait(&self) {
        self.signals.stop.notify_one();
        self.sender.closed().await;
    }

    /// Lets the session's task record what is already in its mailbox, starts nothing new, and waits until it has ended.
    /// A task that does not end in time is stopped.
    pub async fn drain_and_wait(&self, ms_max: u64) {
        self.signals.is_draining.store(true, Ordering::Release);
        self.signals.drain.notify_one();
        if tokio::time::timeout(Duration::from_millis(ms_max), self.sender.closed()).await.is_err() {
            self.stop_and_wait().await;
        }
    }

    /// Whether the task should end once its mailbox is empty.
    pub fn is_draining(&self) -> bool {
        self.signals.is_draining.load(Ordering::Acquire)
    }

    /// Returns when the task should end at once.
    pub async fn wait_for_stop(&self) {
        self.signals.stop.notified().await;
    }

    /// Returns when the task should end once its mailbox is empty.
    pub async fn wait_for_drain(&self) {
        self.signals.drain.notified().await;
    }
}

/// Sessions in memory.
#[derive(Debug, Default)]
pub(crate) struct SessionRegistry {
    slots: Mutex<BTreeMap<SessionId, SessionSlot>>,
    alarms: Mutex<WakeAlarms>,
}

#[derive(Debug, Default)]
struct WakeAlarms {
    by_time: BTreeSet<(UnixMillis, SessionId)>,
    by_session: BTreeMap<SessionId, UnixMillis>,
}

impl SessionRegistry {
    pub fn with_slots<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, SessionSlot>) -> T) -> T {
        work(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a session's task out of the registry, unless its place is another's by now.
    pub fn remove_actor(&self, session: &SessionId, mailbox: &Mailbox) {
        self.with_slots(|places| {
            if matches!(places.get(session), Some(SessionSlot::Active(current)) if current.is_same(mailbox)) {
                places.remove(session);
            }
        });
    }

    /// Whether a desk is where the session's inputs go.
    pub fn is_current_mailbox(
        slots: &BTreeMap<SessionId, SessionSlot>,
        session: &SessionId,
        mailbox: &Mailbox,
    ) -> bool {
        matches!(slots.get(session), Some(SessionSlot::Active(current)) if current.is_same(mailbox))
    }

    /// The sessions at work, by name, with the way to each.
    pub fn active_mailboxes(&self) -> BTreeMap<SessionId, Mailbox> {
        self.with_slots(|places| {
            let at_work = places.iter().filter_map(|(session, place)| match place {
                SessionSlot::Active(desk) if !desk.sender.is_closed() => Some((session.clone(), desk.clone())),
                SessionSlot::Active(_) | SessionSlot::Parked(..) => None,
            });
            at_work.collect()
        })
    }

    /// Whether a session is this process's: at work here, or at rest and not given back. One that was given back may be in
    /// memory, and others may have written it since.
    pub fn holds_lease(&self, session: &SessionId) -> bool {
        self.with_slots(|places| match places.get(session) {
            Some(SessionSlot::Active(_)) => true,
            Some(SessionSlot::Parked(resident, _)) => resident.lease_epoch.is_some(),
            None => false,
        })
    }

    fn lock_alarms(&self) -> MutexGuard<'_, WakeAlarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a session at rest looked at when its time comes. It has one alarm: this one from now on.
    pub fn set_alarm(&self, at: UnixMillis, session: &SessionId) {
        let mut alarms = self.lock_alarms();
        if let Some(old) = alarms.by_session.insert(session.clone(), at) {
            alarms.by_time.remove(&(old, session.clone()));
        }
        alarms.by_time.insert((at, session.clone()));
    }

    /// The sessions whose time has come.
    pub fn take_due_sessions(&self, now: UnixMillis) -> Vec<SessionId> {
        let mut alarms = self.lock_alarms();
        let mut due = Vec::new();
        while let Some((at, session)) = alarms.by_time.pop_first() {
            if at > now {
                alarms.by_time.insert((at, session));
                break;
            }
            alarms.by_session.remove(&session);
            due.push(session);
        }
        due
    }

    /// Sessions at rest that should leave: those that rest since before `since` and are still claimed, and the oldest of
    /// more than `most`. They are taken out; the caller gives them back or puts them back.
    pub fn take_evictable(&self, since: UnixMillis, most: usize) -> Vec<(SessionId, Box<CachedSession>, UnixMillis)> {
        self.with_slots(|places| {
            let mut resting: Vec<(UnixMillis, SessionId, bool)> = places
                .iter()
                .filter_map(|(session, place)| match place {
                    SessionSlot::Parked(resident, at) => Some((*at, session.clone(), resident.lease_epoch.is_some())),
                    SessionSlot::Active(_) => None,
                })
                .collect();
            resting.sort();
            let extra = resting.len().saturating_sub(most);
            let chosen = resting.into_iter().enumerate();
            let chosen = chosen.filter(|(place, (at, _, claimed))| *place < extra || (*claimed && *at <= since));
            let mut leaving = Vec::new();
            for (_, (at, session, _)) in chosen {
                if let Some(SessionSlot::Parked(resident, _)) = places.remove(&session) {
                    leaving.push((session, resident, at));
                }
            }
            leaving
        })
    }

    /// Lets go of the oldest of more than `most` sessions at rest.
    pub fn evict_oldest_parked(&self, most: usize) {
        self.with_slots(|places| {
            let mut resting: Vec<(UnixMillis, SessionId)> = places
                .iter()
                .filter_map(|(session, place)| match place {
                    SessionSlot::Parked(resident, at) if resident.lease_epoch.is_none() => Some((*at, session.clone())),
                    SessionSlot::Parked(..) | SessionSlot::Active(_) => None,
                })
                .collect();
            resting.sort();
            for (_, session) in resting.iter().take(resting.len().saturating_sub(most)) {
                places.remove(session);
            }
        });
    }
}
