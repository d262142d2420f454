//! Which sessions are at work, which are at rest, and the way an input finds its session. A session at work has a task; one
//! at rest has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::decide::Input;
use segue_core::ids::{Epoch, MessageId, Millis, Seq, SessionId};
use segue_core::session::State;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::Error;
use crate::report::Answered;
use crate::shelf::Shelf;

/// Something for a session to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub input: Input,
    pub done: Option<oneshot::Sender<Result<Option<MessageId>, Error>>>,
    pub waiter: Option<Answered>,
    /// When the session was opened that is meant, where another may have taken its name meanwhile.
    pub since: Option<Millis>,
}

impl Job {
    /// An input that nobody waits for.
    pub fn quiet(input: Input) -> Self {
        Self { input, done: None, waiter: None, since: None }
    }

    /// Whether nobody waits for it.
    pub fn is_quiet(&self) -> bool {
        self.done.is_none() && self.waiter.is_none()
    }

    /// Tells whoever waits that it was not done.
    pub fn fail(self, error: &Error) {
        if let Some(done) = self.done {
            let _ = done.send(Err(error.clone()));
        }
        if let Some(waiter) = self.waiter {
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

/// A session in memory.
#[derive(Debug)]
pub(crate) struct Resident {
    pub state: State,
    pub shelf: Shelf,
    /// The claim it is written under; nothing once it was given back.
    pub claim: Option<Epoch>,
    /// Where the newest snapshot stands.
    pub snapshot_at: Seq,
}

#[derive(Debug)]
pub(crate) enum Place {
    AtWork(Desk),
    AtRest(Box<Resident>, Millis),
}

impl Place {
    pub fn is_at_work(&self) -> bool {
        matches!(self, Self::AtWork(_))
    }
}

/// The way to a session at work.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub jobs: mpsc::Sender<Job>,
    stop: Arc<Notify>,
}

impl Desk {
    pub fn new(jobs: mpsc::Sender<Job>) -> Self {
        Self { jobs, stop: Arc::default() }
    }

    /// Puts a job into the mailbox; gives it back if that is full or closed.
    pub fn hand(&self, job: Job) -> Result<(), Box<(Self, Job)>> {
        self.jobs.try_send(job).map_err(|refused| Box::new((self.clone(), refused.into_inner())))
    }

    fn is(&self, other: &Self) -> bool {
        self.jobs.same_channel(&other.jobs)
    }

    /// Ends the session's task wherever it stands, as the death of the process would, and waits until it is gone.
    pub async fn stop(&self) {
        self.stop.notify_one();
        self.jobs.closed().await;
    }

    /// Returns when the task is to end.
    pub async fn stopped(&self) {
        self.stop.notified().await;
    }
}

/// Sessions in memory.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    places: Mutex<BTreeMap<SessionId, Place>>,
    alarms: Mutex<Alarms>,
}

#[derive(Debug, Default)]
struct Alarms {
    by_time: BTreeSet<(Millis, SessionId)>,
    by_session: BTreeMap<SessionId, Millis>,
}

impl Registry {
    pub fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<SessionId, Place>) -> T) -> T {
        work(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a session's task out of the registry, unless its place is another's by now.
    pub fn leave(&self, session: &SessionId, desk: &Desk) {
        self.with(|places| {
            if matches!(places.get(session), Some(Place::AtWork(current)) if current.is(desk)) {
                places.remove(session);
            }
        });
    }

    /// Whether a desk is where the session's inputs go.
    pub fn is_at(places: &BTreeMap<SessionId, Place>, session: &SessionId, desk: &Desk) -> bool {
        matches!(places.get(session), Some(Place::AtWork(current)) if current.is(desk))
    }

    /// The sessions at work, by name, with the way to each.
    pub fn at_work(&self) -> BTreeMap<SessionId, Desk> {
        self.with(|places| {
            let at_work = places.iter().filter_map(|(session, place)| match place {
                Place::AtWork(desk) if !desk.jobs.is_closed() => Some((session.clone(), desk.clone())),
                Place::AtWork(_) | Place::AtRest(..) => None,
            });
            at_work.collect()
        })
    }

    /// Whether a session is this process's: at work here, or at rest and not given back. One that was given back may be in
    /// memory, and others may have written it since.
    pub fn holds(&self, session: &SessionId) -> bool {
        self.with(|places| match places.get(session) {
            Some(Place::AtWork(_)) => true,
            Some(Place::AtRest(resident, _)) => resident.claim.is_some(),
            None => false,
        })
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a session at rest looked at when its time comes. It has one alarm: this one from now on.
    pub fn set_alarm(&self, at: Millis, session: &SessionId) {
        let mut alarms = self.alarms();
        if let Some(old) = alarms.by_session.insert(session.clone(), at) {
            alarms.by_time.remove(&(old, session.clone()));
        }
        alarms.by_time.insert((at, session.clone()));
    }

    /// The sessions whose time has come.
    pub fn due(&self, now: Millis) -> Vec<SessionId> {
        let mut alarms = self.alarms();
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
    pub fn leaving(&self, since: Millis, most: usize) -> Vec<(SessionId, Box<Resident>, Millis)> {
        self.with(|places| {
            let mut resting: Vec<(Millis, SessionId, bool)> = places
                .iter()
                .filter_map(|(session, place)| match place {
                    Place::AtRest(resident, at) => Some((*at, session.clone(), resident.claim.is_some())),
                    Place::AtWork(_) => None,
                })
                .collect();
            resting.sort();
            let extra = resting.len().saturating_sub(most);
            let chosen = resting.into_iter().enumerate();
            let chosen = chosen.filter(|(place, (at, _, claimed))| *place < extra || (*claimed && *at <= since));
            let mut leaving = Vec::new();
            for (_, (at, session, _)) in chosen {
                if let Some(Place::AtRest(resident, _)) = places.remove(&session) {
                    leaving.push((session, resident, at));
                }
            }
            leaving
        })
    }

    /// Lets go of the oldest of more than `most` sessions at rest.
    pub fn forget_oldest(&self, most: usize) {
        self.with(|places| {
            let mut resting: Vec<(Millis, SessionId)> = places
                .iter()
                .filter_map(|(session, place)| match place {
                    Place::AtRest(resident, at) if resident.claim.is_none() => Some((*at, session.clone())),
                    Place::AtRest(..) | Place::AtWork(_) => None,
                })
                .collect();
            resting.sort();
            for (_, session) in resting.iter().take(resting.len().saturating_sub(most)) {
                places.remove(session);
            }
        });
    }
}
