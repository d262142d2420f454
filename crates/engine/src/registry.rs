//! The sessions in memory, and how a message finds its session. An active session has a task; a parked one has only its
//! state. Also keeps the wake-up times of sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_core::decide::SessionInput;
use segue_core::ids::{LeaseEpoch, MessageId, Seq, SessionId, UnixMillis};
use segue_core::session::SessionState;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::Error;
use crate::text_cache::TextCache;
use crate::turn_report::TurnReportSender;

/// A message to a session's task.
#[derive(Debug)]
pub(crate) struct ActorMessage {
    pub input: SessionInput,
    pub reply_sender: Option<oneshot::Sender<Result<Option<MessageId>, Error>>>,
    pub turn_waiter: Option<TurnReportSender>,
    /// When the intended session was opened, if another session may have taken its name meanwhile.
    pub session_opened_at: Option<UnixMillis>,
    /// Whether the session looks into its inbox first.
    pub drains_inbox: bool,
}

impl ActorMessage {
    /// Creates a message that no caller waits for.
    pub(crate) fn without_reply(input: SessionInput) -> Self {
        Self { input, reply_sender: None, turn_waiter: None, session_opened_at: None, drains_inbox: false }
    }

    /// Returns whether no caller waits for the message.
    pub(crate) fn is_unawaited(&self) -> bool {
        self.reply_sender.is_none() && self.turn_waiter.is_none()
    }

    /// Sends an error to the waiting callers.
    pub(crate) fn reply_with_error(self, error: &Error) {
        // The callers may be gone.
        if let Some(reply_sender) = self.reply_sender {
            let _ = reply_sender.send(Err(error.clone()));
        }
        if let Some(turn_waiter) = self.turn_waiter {
            let _ = turn_waiter.send(Err(error.clone()));
        }
    }
}

/// A session's state in memory.
#[derive(Debug)]
pub(crate) struct CachedSession {
    pub state: SessionState,
    pub texts: TextCache,
    /// The epoch of its lease; none once the lease was released.
    pub lease_epoch: Option<LeaseEpoch>,
    /// The sequence number of the newest snapshot.
    pub snapshot_seq: Seq,
}

#[derive(Debug)]
pub(crate) enum ActiveOrParkedSession {
    Active(SessionActorHandle),
    Parked(Box<CachedSession>, UnixMillis),
}

impl ActiveOrParkedSession {
    pub(crate) fn is_active(&self) -> bool {
        matches!(self, Self::Active(_))
    }
}

/// The address of an active session's task.
#[derive(Debug, Clone)]
pub(crate) struct SessionActorHandle {
    pub sender: mpsc::Sender<ActorMessage>,
    signals: Arc<ActorStopSignals>,
}

/// The ways in which a session's task is asked to end.
#[derive(Debug, Default)]
struct ActorStopSignals {
    /// End at once.
    stop: Notify,
    /// One of the flags was set.
    flagged: Notify,
    /// Record what is in the mailbox and what is running, then end.
    is_draining: AtomicBool,
    /// Another process holds the session.
    is_lease_lost: AtomicBool,
    /// The epoch of the session's lease; zero until it is acquired.
    epoch: AtomicU64,
}

impl SessionActorHandle {
    pub(crate) fn new(sender: mpsc::Sender<ActorMessage>) -> Self {
        Self { sender, signals: Arc::default() }
    }

    /// Puts a message into the mailbox. Gives it back if the mailbox is full or closed.
    pub(crate) fn try_send(&self, message: ActorMessage) -> Result<(), Box<(Self, ActorMessage)>> {
        self.sender.try_send(message).map_err(|refused| Box::new((self.clone(), refused.into_inner())))
    }

    fn is_same_mailbox(&self, other: &Self) -> bool {
        self.sender.same_channel(&other.sender)
    }

    /// Ends the session's task at once, as a crash of the process would, and waits until it has ended.
    pub(crate) async fn stop_and_wait(&self) {
        self.signals.stop.notify_one();
        self.sender.closed().await;
    }

    /// Lets the session's task record what is in its mailbox and the results of what is running, starts nothing new, and
    /// waits until it has ended. A task that does not end in time is stopped.
    pub(crate) async fn drain_and_wait(&self, ms_max: u64) {
        self.signals.is_draining.store(true, Ordering::Release);
        self.signals.flagged.notify_one();
        if tokio::time::timeout(Duration::from_millis(ms_max), self.sender.closed()).await.is_err() {
            self.stop_and_wait().await;
        }
    }

    /// Tells the task that another process holds the session, if this is its lease.
    fn mark_lease_lost(&self, epoch: LeaseEpoch) -> bool {
        if self.lease_epoch() != Some(epoch) || self.signals.is_lease_lost.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.signals.flagged.notify_one();
        true
    }

    /// Whether the task should end because another process holds the session.
    pub(crate) fn is_lease_lost(&self) -> bool {
        self.signals.is_lease_lost.load(Ordering::Acquire)
    }

    /// Sets the epoch of the session's lease.
    pub(crate) fn set_lease_epoch(&self, epoch: LeaseEpoch) {
        self.signals.epoch.store(epoch.0, Ordering::Release);
    }

    fn lease_epoch(&self) -> Option<LeaseEpoch> {
        Some(LeaseEpoch(self.signals.epoch.load(Ordering::Acquire))).filter(|epoch| epoch.0 > 0)
    }

    /// Whether the task should end once its mailbox is empty and nothing is running.
    pub(crate) fn is_draining(&self) -> bool {
        self.signals.is_draining.load(Ordering::Acquire)
    }

    /// Returns when the task should end at once.
    pub(crate) async fn wait_for_stop(&self) {
        self.signals.stop.notified().await;
    }

    /// Returns when the task should look whether it is draining or has lost its lease.
    pub(crate) async fn wait_for_drain_or_lease_loss(&self) {
        self.signals.flagged.notified().await;
    }
}

/// The sessions in memory.
#[derive(Debug, Default)]
pub(crate) struct SessionRegistry {
    slots: Mutex<BTreeMap<SessionId, ActiveOrParkedSession>>,
    alarms: Mutex<WakeAlarms>,
}

#[derive(Debug, Default)]
struct WakeAlarms {
    by_time: BTreeSet<(UnixMillis, SessionId)>,
    by_session: BTreeMap<SessionId, UnixMillis>,
}

impl SessionRegistry {
    pub(crate) fn with_slots<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, ActiveOrParkedSession>) -> T) -> T {
        work(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes a session's task, unless another task has taken its place.
    pub(crate) fn remove_actor(&self, session: &SessionId, mailbox: &SessionActorHandle) {
        self.with_slots(|slots| {
            if matches!(slots.get(session), Some(ActiveOrParkedSession::Active(current)) if current.is_same_mailbox(mailbox)) {
                slots.remove(session);
            }
        });
    }

    /// Returns whether messages for the session go to `mailbox`.
    pub(crate) fn is_current_mailbox(
        slots: &BTreeMap<SessionId, ActiveOrParkedSession>,
        session: &SessionId,
        mailbox: &SessionActorHandle,
    ) -> bool {
        matches!(slots.get(session), Some(ActiveOrParkedSession::Active(current)) if current.is_same_mailbox(mailbox))
    }

    /// Returns the mailboxes of all active sessions.
    pub(crate) fn active_mailboxes(&self) -> BTreeMap<SessionId, SessionActorHandle> {
        self.with_slots(|slots| {
            let active = slots.iter().filter_map(|(session, slot)| match slot {
                ActiveOrParkedSession::Active(mailbox) if !mailbox.sender.is_closed() => {
                    Some((session.clone(), mailbox.clone()))
                }
                ActiveOrParkedSession::Active(_) | ActiveOrParkedSession::Parked(..) => None,
            });
            active.collect()
        })
    }

    /// Returns whether this process holds the session's lease: the session is active, or parked with its lease. Without
    /// the lease, other processes may have written to it.
    pub(crate) fn holds_lease(&self, session: &SessionId) -> bool {
        self.with_slots(|slots| match slots.get(session) {
            Some(ActiveOrParkedSession::Active(_)) => true,
            Some(ActiveOrParkedSession::Parked(cached, _)) => cached.lease_epoch.is_some(),
            None => false,
        })
    }

    /// Returns the leases that this process holds.
    pub(crate) fn held_leases(&self) -> Vec<(SessionId, LeaseEpoch)> {
        self.with_slots(|slots| {
            let held = slots.iter().filter_map(|(session, slot)| {
                let epoch = match slot {
                    ActiveOrParkedSession::Active(mailbox) => mailbox.lease_epoch(),
                    ActiveOrParkedSession::Parked(cached, _) => cached.lease_epoch,
                };
                Some((session.clone(), epoch?))
            });
            held.collect()
        })
    }

    /// Ends the use of a lease that is lost. Returns whether it was still in use.
    pub(crate) fn mark_lease_lost(&self, session: &SessionId, epoch: LeaseEpoch) -> bool {
        self.with_slots(|slots| match slots.get_mut(session) {
            Some(ActiveOrParkedSession::Active(mailbox)) => mailbox.mark_lease_lost(epoch),
            Some(ActiveOrParkedSession::Parked(cached, _)) => {
                cached.lease_epoch.take_if(|held| *held == epoch).is_some()
            }
            None => false,
        })
    }

    fn lock_alarms(&self) -> MutexGuard<'_, WakeAlarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which a parked session is woken. A session has one alarm; a new one replaces it.
    pub(crate) fn set_alarm(&self, at: UnixMillis, session: &SessionId) {
        let mut alarms = self.lock_alarms();
        if let Some(old) = alarms.by_session.insert(session.clone(), at) {
            alarms.by_time.remove(&(old, session.clone()));
        }
        alarms.by_time.insert((at, session.clone()));
    }

    /// Removes and returns the sessions whose alarm is due.
    pub(crate) fn take_due_sessions(&self, now: UnixMillis) -> Vec<SessionId> {
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

    /// Removes and returns parked sessions: those that were parked before `parked_before` and still have their lease,
    /// and the oldest of more than `kept_max`. The caller releases their leases, and may put them back.
    pub(crate) fn take_evictable(
        &self,
        parked_before: UnixMillis,
        kept_max: usize,
    ) -> Vec<(SessionId, Box<CachedSession>, UnixMillis)> {
        self.with_slots(|slots| {
            let mut parked: Vec<(UnixMillis, SessionId, bool)> = slots
                .iter()
                .filter_map(|(session, slot)| match slot {
                    ActiveOrParkedSession::Parked(cached, at) => {
                        Some((*at, session.clone(), cached.lease_epoch.is_some()))
                    }
                    ActiveOrParkedSession::Active(_) => None,
                })
                .collect();
            parked.sort();
            let excess = parked.len().saturating_sub(kept_max);
            let chosen = parked.into_iter().enumerate();
            let chosen =
                chosen.filter(|(index, (at, _, has_lease))| *index < excess || (*has_lease && *at <= parked_before));
            let mut removed = Vec::new();
            for (_, (at, session, _)) in chosen {
                if let Some(ActiveOrParkedSession::Parked(cached, _)) = slots.remove(&session) {
                    removed.push((session, cached, at));
                }
            }
            removed
        })
    }

    /// Removes the oldest of more than `kept_max` parked sessions without a lease.
    pub(crate) fn evict_oldest_parked(&self, kept_max: usize) {
        self.with_slots(|slots| {
            let mut parked: Vec<(UnixMillis, SessionId)> = slots
                .iter()
                .filter_map(|(session, slot)| match slot {
                    ActiveOrParkedSession::Parked(cached, at) if cached.lease_epoch.is_none() => {
                        Some((*at, session.clone()))
                    }
                    ActiveOrParkedSession::Parked(..) | ActiveOrParkedSession::Active(_) => None,
                })
                .collect();
            parked.sort();
            for (_, session) in parked.iter().take(parked.len().saturating_sub(kept_max)) {
                slots.remove(session);
            }
        });
    }
}
