//! Calls that a flow went on without. Nobody waits for their answers: not the turn, which may have ended, not the session,
//! which may rest, not the engine, which may stop. But they are being paid for, so an answer that comes is brought to its
//! session and recorded there.
//!
//! What a person stopped is not here: it was ended at once. What is here ends when it is answered or fails, when its model
//! stays silent for too long, and before that when its session is stopped, closed or erased, when the state no longer knows
//! it (so there are never more of a session than core remembers), or when a call that is wanted needs its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use segue_core::decide::Input;
use segue_core::ids::{CallId, Millis, ModelName, SessionId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use crate::engine::{Engine, Shared};
use crate::limits::{WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::registry::Job;

/// A call and one of its tries.
pub(crate) type TryId = (CallId, u32);

/// How far a try has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its model has not been asked.
    Due,
    UnderWay,
    /// Under way, and gone on without.
    Late,
    /// What came of it is being brought to its session.
    Over,
}

/// What a try's task and its session know of each other.
#[derive(Debug)]
pub(crate) struct Course {
    stage: Mutex<Stage>,
    /// Whether anybody still wants to hear it.
    pub heard: AtomicBool,
}

impl Course {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { stage: Mutex::new(Stage::Due), heard: AtomicBool::new(true) })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Stage) -> T) -> T {
        work(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The model is asked from now on.
    pub fn begin(&self) {
        self.with(|stage| *stage = Stage::UnderWay);
    }

    /// Something came of it. Says whether the session went on without it meanwhile.
    pub fn end(&self) -> bool {
        self.with(|stage| std::mem::replace(stage, Stage::Over)) == Stage::Late
    }

    fn is_late(&self) -> bool {
        self.with(|stage| *stage == Stage::Late)
    }
}

/// A try under way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    pub task: JoinHandle<()>,
    pub course: Arc<Course>,
    pub model: ModelName,
    /// Whether the session has what came of it.
    pub is_back: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.course.heard.store(false, Ordering::Release);
        self.task.abort();
    }
}

/// What becomes of a try that is no longer owed.
#[derive(Debug, PartialEq, Eq)]
enum Parting {
    /// What came of it is about to arrive.
    Arrives,
    /// It goes on without its session.
    GoesOn,
    Ends,
}

impl Flight {
    fn part(&self, is_awaited: bool) -> Parting {
        self.course.with(|stage| match *stage {
            Stage::Over if !self.is_back => Parting::Arrives,
            Stage::UnderWay if is_awaited => {
                *stage = Stage::Late;
                Parting::GoesOn
            }
            Stage::Due | Stage::UnderWay | Stage::Late | Stage::Over => Parting::Ends,
        })
    }
}

/// The calls of all sessions that were gone on without and may still be answered.
#[derive(Debug, Default)]
pub(crate) struct LateCalls {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<SessionId, BTreeMap<TryId, (u64, Flight)>>,
    /// How many there have been: tells which is the oldest.
    count: u64,
}

impl LateCalls {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a try that its session no longer owes. If what came of it is about to arrive there it is given back.
    pub fn take(&self, session: &SessionId, id: TryId, flight: Flight, is_awaited: bool) -> Option<Flight> {
        self.with(|inner| match flight.part(is_awaited) {
            Parting::Arrives => Some(flight),
            Parting::GoesOn => {
                flight.course.heard.store(false, Ordering::Release);
                inner.count += 1;
                inner.sessions.entry(session.clone()).or_default().insert(id, (inner.count, flight));
                None
            }
            Parting::Ends => None,
        })
    }

    /// Ends those of a session that are not awaited any more, unless what came of them is on its way.
    pub fn keep(&self, session: &SessionId, is_awaited: impl Fn(CallId) -> bool) {
        self.with(|inner| {
            let Some(calls) = inner.sessions.get_mut(session) else { return };
            calls.retain(|(call, _), (_, flight)| is_awaited(*call) || !flight.course.is_late());
            inner.sessions.retain(|_, calls| !calls.is_empty());
        });
    }

    /// Ends the oldest on a model: a call that is wanted needs its place.
    pub fn give_way(&self, model: &ModelName) {
        self.with(|inner| {
            let all = inner.sessions.iter().flat_map(|(session, calls)| calls.iter().map(move |call| (session, call)));
            let on_model = all.filter(|(_, (_, (_, flight)))| flight.model == *model && flight.course.is_late());
            let oldest = on_model.min_by_key(|(_, (_, (count, _)))| *count);
            let oldest = oldest.map(|(session, (id, _))| (session.clone(), *id));
            if let Some((session, id)) = oldest {
                inner.forget(&session, id);
            }
        });
    }

    /// Ends all of a session, whatever is on its way.
    pub fn end(&self, session: &SessionId) {
        self.with(|inner| inner.sessions.remove(session));
    }

    /// Ends all there are.
    pub fn end_all(&self) {
        self.with(|inner| inner.sessions.clear());
    }

    fn forget(&self, session: &SessionId, id: TryId) {
        self.with(|inner| inner.forget(session, id));
    }
}

impl Inner {
    fn forget(&mut self, session: &SessionId, id: TryId) {
        let Some(calls) = self.sessions.get_mut(session) else { return };
        calls.remove(&id);
        if calls.is_empty() {
            self.sessions.remove(session);
        }
    }
}

impl Shared {
    /// Waits until a model may be called. A call that was gone on without counts like any other as long as it runs, since the
    /// model is busy with it; but it gives way, so that no turn ever waits for an answer that nobody waits for.
    pub async fn admit(&self, model: &ModelName) -> Option<OwnedSemaphorePermit> {
        self.pace.admit(model, || self.late.give_way(model)).await
    }
}

/// Brings what came of a late call to its session, at work or at rest. What the store does not take now is offered again; where
/// the session is gone, or another process's, it is of no use to anybody.
pub(crate) fn bring(
    shared: Arc<Shared>,
    (session, since): (SessionId, Millis),
    id: TryId,
    input: Input,
) -> BoxFuture<'static, ()> {
    // Boxed, since this may start a session's task, which makes calls, which end here.
    async move {
        let engine = Engine::of(shared.clone());
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        while !shared.closing.load(Ordering::Acquire) {
            let (done, result) = oneshot::channel();
            let job = Job { done: Some(done), since: Some(since), ..Job::quiet(input.clone()) };
            engine.post(&session, job).await;
            match result.await {
                Ok(Err(error)) if error.is_passing() => tokio::time::sleep(Duration::from_millis(wait_ms)).await,
                Ok(_) | Err(_) => break,
            }
            wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
        }
        shared.late.forget(&session, id);
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> Flight {
        let task = tokio::spawn(std::future::pending());
        Flight { task, course: Course::new(), model: "m".into(), is_back: false }
    }

    #[tokio::test]
    async fn only_what_is_under_way_and_awaited_goes_on() {
        assert_eq!(flight().part(true), Parting::Ends, "its model was never asked");
        let stopped = flight();
        stopped.course.begin();
        assert_eq!(stopped.part(false), Parting::Ends, "nobody awaits it");
        let late = flight();
        late.course.begin();
        assert_eq!(late.part(true), Parting::GoesOn);
        assert!(late.course.end(), "and it knows");
    }

    #[tokio::test]
    async fn what_came_of_a_call_is_not_stopped_on_its_way() {
        let mut flight = flight();
        flight.course.begin();
        assert!(!flight.course.end(), "it was wanted till its end");
        assert_eq!((flight.part(true), flight.part(false)), (Parting::Arrives, Parting::Arrives));
        flight.is_back = true;
        assert_eq!(flight.part(true), Parting::Ends);
        assert!(!flight.course.is_late(), "so nothing that came gives way either");
    }
}
