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
use segue_core::decide::SessionInput;
use segue_core::ids::{CallId, ModelName, SessionId, UnixMillis};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use crate::engine::{Engine, EngineShared};
use crate::limits::{WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::registry::ActorMessage;

/// A call and one of its tries.
pub(crate) type AttemptId = (CallId, u32);

/// How far a try has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    /// Its model has not been asked.
    NotStarted,
    InFlight,
    /// Under way, and gone on without.
    Abandoned,
    /// What came of it is being brought to its session.
    Returned,
}

/// What a try's task and its session know of each other.
#[derive(Debug)]
pub(crate) struct AttemptProgress {
    stage: Mutex<AttemptStage>,
    /// Whether anybody still wants to hear it.
    pub is_wanted: AtomicBool,
}

impl AttemptProgress {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { stage: Mutex::new(AttemptStage::NotStarted), is_wanted: AtomicBool::new(true) })
    }

    fn with_stage<T>(&self, work: impl FnOnce(&mut AttemptStage) -> T) -> T {
        work(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The model is asked from now on.
    pub fn mark_started(&self) {
        self.with_stage(|stage| *stage = AttemptStage::InFlight);
    }

    /// Something came of it. Says whether the session went on without it meanwhile.
    pub fn mark_returned(&self) -> bool {
        self.with_stage(|stage| std::mem::replace(stage, AttemptStage::Returned)) == AttemptStage::Abandoned
    }

    fn is_abandoned(&self) -> bool {
        self.with_stage(|stage| *stage == AttemptStage::Abandoned)
    }
}

/// A try under way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightCall {
    pub task: JoinHandle<()>,
    pub progress: Arc<AttemptProgress>,
    pub model: ModelName,
    /// Whether the session has what came of it.
    pub has_returned: bool,
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.progress.is_wanted.store(false, Ordering::Release);
        self.task.abort();
    }
}

/// What becomes of a try that is no longer owed.
#[derive(Debug, PartialEq, Eq)]
enum AbandonOutcome {
    /// What came of it is about to arrive.
    ResultArriving,
    /// It goes on without its session.
    Continues,
    Aborted,
}

impl InFlightCall {
    fn abandon(&self, is_awaited: bool) -> AbandonOutcome {
        self.progress.with_stage(|stage| match *stage {
            AttemptStage::Returned if !self.has_returned => AbandonOutcome::ResultArriving,
            AttemptStage::InFlight if is_awaited => {
                *stage = AttemptStage::Abandoned;
                AbandonOutcome::Continues
            }
            AttemptStage::NotStarted | AttemptStage::InFlight | AttemptStage::Abandoned | AttemptStage::Returned => {
                AbandonOutcome::Aborted
            }
        })
    }
}

/// The calls of all sessions that were gone on without and may still be answered.
#[derive(Debug, Default)]
pub(crate) struct AbandonedCalls {
    inner: Mutex<AbandonedCallsState>,
}

#[derive(Debug, Default)]
struct AbandonedCallsState {
    sessions: BTreeMap<SessionId, BTreeMap<AttemptId, (u64, InFlightCall)>>,
    /// How many there have been: tells which is the oldest.
    count: u64,
}

impl AbandonedCalls {
    fn with_state<T>(&self, work: impl FnOnce(&mut AbandonedCallsState) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a try that its session no longer owes. If what came of it is about to arrive there it is given back.
    pub fn take_over_call(
        &self,
        session: &SessionId,
        id: AttemptId,
        flight: InFlightCall,
        is_awaited: bool,
    ) -> Option<InFlightCall> {
        self.with_state(|inner| match flight.abandon(is_awaited) {
            AbandonOutcome::ResultArriving => Some(flight),
            AbandonOutcome::Continues => {
                flight.progress.is_wanted.store(false, Ordering::Release);
                inner.count += 1;
                inner.sessions.entry(session.clone()).or_default().insert(id, (inner.count, flight));
                None
            }
            AbandonOutcome::Aborted => None,
        })
    }

    /// Ends those of a session that are not awaited any more, unless what came of them is on its way.
    pub fn retain_awaited(&self, session: &SessionId, is_awaited: impl Fn(CallId) -> bool) {
        self.with_state(|inner| {
            let Some(calls) = inner.sessions.get_mut(session) else { return };
            calls.retain(|(call, _), (_, flight)| is_awaited(*call) || !flight.progress.is_abandoned());
            inner.sessions.retain(|_, calls| !calls.is_empty());
        });
    }

    /// Ends the oldest on a model: a call that is wanted needs its place.
    pub fn abort_oldest_on_model(&self, model: &ModelName) {
        self.with_state(|inner| {
            let all = inner.sessions.iter().flat_map(|(session, calls)| calls.iter().map(move |call| (session, call)));
            let on_model = all.filter(|(_, (_, (_, flight)))| flight.model == *model && flight.progress.is_abandoned());
            let oldest = on_model.min_by_key(|(_, (_, (count, _)))| *count);
            let oldest = oldest.map(|(session, (id, _))| (session.clone(), *id));
            if let Some((session, id)) = oldest {
                inner.remove_call(&session, id);
            }
        });
    }

    /// Ends all of a session, whatever is on its way.
    pub fn abort_session_calls(&self, session: &SessionId) {
        self.with_state(|inner| inner.sessions.remove(session));
    }

    /// Ends all there are.
    pub fn abort_all(&self) {
        self.with_state(|inner| inner.sessions.clear());
    }

    fn remove_call(&self, session: &SessionId, id: AttemptId) {
        self.with_state(|inner| inner.remove_call(session, id));
    }
}

impl AbandonedCallsState {
    fn remove_call(&mut self, session: &SessionId, id: AttemptId) {
        let Some(calls) = self.sessions.get_mut(session) else { return };
        calls.remove(&id);
        if calls.is_empty() {
            self.sessions.remove(session);
        }
    }
}

impl EngineShared {
    /// Waits until a model may be called. A call that was gone on without counts like any other as long as it runs, since the
    /// model is busy with it; but it gives way, so that no turn ever waits for an answer that nobody waits for.
    pub async fn acquire_model_permit(&self, model: &ModelName) -> Option<OwnedSemaphorePermit> {
        self.rate_limiter.acquire(model, || self.abandoned_calls.abort_oldest_on_model(model)).await
    }
}

/// Brings what came of a late call to its session, at work or at rest. What the store does not take now is offered again; where
/// the session is gone, or another process's, it is of no use to anybody.
pub(crate) fn deliver_late_result(
    shared: Arc<EngineShared>,
    (session, since): (SessionId, UnixMillis),
    id: AttemptId,
    input: SessionInput,
) -> BoxFuture<'static, ()> {
    // Boxed, since this may start a session's task, which makes calls, which end here.
    async move {
        let engine = Engine::from_shared(shared.clone());
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        while !shared.is_shutting_down.load(Ordering::Acquire) {
            let (done, result) = oneshot::channel();
            let job = ActorMessage {
                reply_sender: Some(done),
                session_opened_at: Some(since),
                ..ActorMessage::without_reply(input.clone())
            };
            engine.deliver_message(&session, job).await;
            match result.await {
                Ok(Err(error)) if error.is_transient() => tokio::time::sleep(Duration::from_millis(wait_ms)).await,
                Ok(_) | Err(_) => break,
            }
            wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
        }
        shared.abandoned_calls.remove_call(&session, id);
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> InFlightCall {
        let task = tokio::spawn(std::future::pending());
        InFlightCall { task, progress: AttemptProgress::new(), model: "m".into(), has_returned: false }
    }

    #[tokio::test]
    async fn only_what_is_under_way_and_awaited_goes_on() {
        assert_eq!(flight().abandon(true), AbandonOutcome::Aborted, "its model was never asked");
        let stopped = flight();
        stopped.progress.mark_started();
        assert_eq!(stopped.abandon(false), AbandonOutcome::Aborted, "nobody awaits it");
        let late = flight();
        late.progress.mark_started();
        assert_eq!(late.abandon(true), AbandonOutcome::Continues);
        assert!(late.progress.mark_returned(), "and it knows");
    }

    #[tokio::test]
    async fn what_came_of_a_call_is_not_stopped_on_its_way() {
        let mut flight = flight();
        flight.progress.mark_started();
        assert!(!flight.progress.mark_returned(), "it was wanted till its end");
        assert_eq!(
            (flight.abandon(true), flight.abandon(false)),
            (AbandonOutcome::ResultArriving, AbandonOutcome::ResultArriving)
        );
        flight.has_returned = true;
        assert_eq!(flight.abandon(true), AbandonOutcome::Aborted);
        assert!(!flight.progress.is_abandoned(), "so nothing that came gives way either");
    }
}
