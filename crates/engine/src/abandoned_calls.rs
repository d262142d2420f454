//! Calls that a flow abandoned while they were in flight. The turn, the session and the engine do not wait for them,
//! but their answers are paid for: an answer that arrives is delivered to its session and recorded.
//!
//! Calls that a user cancelled are not here; they are aborted at once. An abandoned call ends when it is answered,
//! fails or times out. It is aborted earlier if its session is stopped, closed or deleted, if the state no longer
//! tracks it (so a session never has more of them than core remembers), or if another call needs its slot at the model.

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

/// A call and the number of one of its attempts.
pub(crate) type CallAttemptId = (CallId, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallAttemptStage {
    /// The model has not been called yet.
    NotStarted,
    InFlight,
    /// In flight, but the flow continued without it.
    Abandoned,
    /// Its result is being delivered to the session.
    Returned,
}

/// The progress of an attempt, shared by its task and its session.
#[derive(Debug)]
pub(crate) struct SharedCallAttemptState {
    stage: Mutex<CallAttemptStage>,
    /// Whether streamed text is still published.
    pub is_wanted: AtomicBool,
}

impl SharedCallAttemptState {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { stage: Mutex::new(CallAttemptStage::NotStarted), is_wanted: AtomicBool::new(true) })
    }

    fn with_stage<T>(&self, work: impl FnOnce(&mut CallAttemptStage) -> T) -> T {
        work(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that the model is being called.
    pub(crate) fn mark_in_flight(&self) {
        self.with_stage(|stage| *stage = CallAttemptStage::InFlight);
    }

    /// Records that the attempt has a result. Returns whether the session abandoned it meanwhile.
    pub(crate) fn mark_returned_and_check_abandoned(&self) -> bool {
        self.with_stage(|stage| std::mem::replace(stage, CallAttemptStage::Returned)) == CallAttemptStage::Abandoned
    }

    fn is_abandoned(&self) -> bool {
        self.with_stage(|stage| *stage == CallAttemptStage::Abandoned)
    }
}

/// An attempt in flight. Dropping it aborts the attempt.
#[derive(Debug)]
pub(crate) struct InFlightCallAttempt {
    pub task: JoinHandle<()>,
    pub progress: Arc<SharedCallAttemptState>,
    pub model: ModelName,
    /// Whether the session has received the result.
    pub has_returned: bool,
}

impl Drop for InFlightCallAttempt {
    fn drop(&mut self) {
        self.progress.is_wanted.store(false, Ordering::Release);
        self.task.abort();
    }
}

/// The result of abandoning an attempt.
#[derive(Debug, PartialEq, Eq)]
enum CallAttemptAbandonOutcome {
    /// The attempt's result is about to arrive at the session.
    ResultArriving,
    /// The attempt continues without its session.
    Continues,
    Aborted,
}

impl InFlightCallAttempt {
    fn abandon(&self, is_awaited: bool) -> CallAttemptAbandonOutcome {
        self.progress.with_stage(|stage| match *stage {
            CallAttemptStage::Returned if !self.has_returned => CallAttemptAbandonOutcome::ResultArriving,
            CallAttemptStage::InFlight if is_awaited => {
                *stage = CallAttemptStage::Abandoned;
                CallAttemptAbandonOutcome::Continues
            }
            CallAttemptStage::NotStarted
            | CallAttemptStage::InFlight
            | CallAttemptStage::Abandoned
            | CallAttemptStage::Returned => CallAttemptAbandonOutcome::Aborted,
        })
    }
}

/// The abandoned calls of all sessions.
#[derive(Debug, Default)]
pub(crate) struct AbandonedCalls {
    inner: Mutex<AbandonedCallsState>,
}

#[derive(Debug, Default)]
struct AbandonedCallsState {
    sessions: BTreeMap<SessionId, BTreeMap<CallAttemptId, (u64, InFlightCallAttempt)>>,
    /// Number of calls abandoned so far; orders the calls by age.
    sequence: u64,
}

impl AbandonedCalls {
    fn with_state<T>(&self, work: impl FnOnce(&mut AbandonedCallsState) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over an attempt that its session no longer needs. Gives it back if its result is about to arrive.
    pub(crate) fn take_over_unneeded_attempt(
        &self,
        session: &SessionId,
        id: CallAttemptId,
        in_flight: InFlightCallAttempt,
        is_awaited: bool,
    ) -> Option<InFlightCallAttempt> {
        self.with_state(|inner| match in_flight.abandon(is_awaited) {
            CallAttemptAbandonOutcome::ResultArriving => Some(in_flight),
            CallAttemptAbandonOutcome::Continues => {
                in_flight.progress.is_wanted.store(false, Ordering::Release);
                inner.sequence += 1;
                inner.sessions.entry(session.clone()).or_default().insert(id, (inner.sequence, in_flight));
                None
            }
            CallAttemptAbandonOutcome::Aborted => None,
        })
    }

    /// Aborts the calls of a session that are no longer awaited, unless their result is being delivered.
    pub(crate) fn abort_unawaited_calls(&self, session: &SessionId, is_awaited: impl Fn(CallId) -> bool) {
        self.with_state(|inner| {
            let Some(calls) = inner.sessions.get_mut(session) else { return };
            calls.retain(|(call, _), (_, in_flight)| is_awaited(*call) || !in_flight.progress.is_abandoned());
            inner.sessions.retain(|_, calls| !calls.is_empty());
        });
    }

    /// Aborts the oldest abandoned call of a model, because another call needs its slot.
    pub(crate) fn abort_oldest_on_model(&self, model: &ModelName) {
        self.with_state(|inner| {
            let all = inner.sessions.iter().flat_map(|(session, calls)| calls.iter().map(move |call| (session, call)));
            let on_model =
                all.filter(|(_, (_, (_, in_flight)))| in_flight.model == *model && in_flight.progress.is_abandoned());
            let oldest = on_model.min_by_key(|(_, (_, (sequence, _)))| *sequence);
            let oldest = oldest.map(|(session, (id, _))| (session.clone(), *id));
            if let Some((session, id)) = oldest {
                inner.remove_call(&session, id);
            }
        });
    }

    /// Aborts all calls of a session, even those whose result is being delivered.
    pub(crate) fn abort_session_calls(&self, session: &SessionId) {
        self.with_state(|inner| inner.sessions.remove(session));
    }

    /// Aborts all calls.
    pub(crate) fn abort_all_calls(&self) {
        self.with_state(|inner| inner.sessions.clear());
    }

    fn remove_call(&self, session: &SessionId, id: CallAttemptId) {
        self.with_state(|inner| inner.remove_call(session, id));
    }
}

impl AbandonedCallsState {
    fn remove_call(&mut self, session: &SessionId, id: CallAttemptId) {
        let Some(calls) = self.sessions.get_mut(session) else { return };
        calls.remove(&id);
        if calls.is_empty() {
            self.sessions.remove(session);
        }
    }
}

impl EngineShared {
    /// Waits until a model may be called. Abandoned calls count against the model's limits while they run, but they are
    /// aborted if another call has to wait, so that no turn waits for an answer that is not needed.
    pub(crate) async fn acquire_model_permit(&self, model: &ModelName) -> Option<OwnedSemaphorePermit> {
        self.rate_limiter.acquire(model, || self.abandoned_calls.abort_oldest_on_model(model)).await
    }
}

/// Delivers the result of an abandoned call to its session, active or parked. Retries while the store fails; gives up
/// if the session is gone or held by another process.
pub(crate) fn deliver_late_result(
    shared: Arc<EngineShared>,
    (session, opened_at): (SessionId, UnixMillis),
    id: CallAttemptId,
    input: SessionInput,
) -> BoxFuture<'static, ()> {
    // Boxed, because this may start a session's task, which starts calls, which end here.
    async move {
        let engine = Engine::from_shared(shared.clone());
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        while !shared.is_shutting_down.load(Ordering::Acquire) {
            let (reply_sender, reply_receiver) = oneshot::channel();
            let message = ActorMessage {
                reply_sender: Some(reply_sender),
                session_opened_at: Some(opened_at),
                ..ActorMessage::without_reply(input.clone())
            };
            engine.deliver_message(&session, message).await;
            match reply_receiver.await {
                Ok(Err(error)) if error.is_transient() => {
                    tracing::warn!(%session, call = %id.0, wait_ms, %error, "late answer not recorded; it is retried");
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
                Ok(Ok(_)) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%session, call = %id.0, code = error.code(), "late answer lost");
                    break;
                }
                Err(_) => {
                    tracing::warn!(%session, call = %id.0, "late answer lost: the task of the session ended");
                    break;
                }
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

    fn start_attempt() -> InFlightCallAttempt {
        let task = tokio::spawn(std::future::pending());
        InFlightCallAttempt { task, progress: SharedCallAttemptState::new(), model: "m".into(), has_returned: false }
    }

    #[tokio::test]
    async fn only_awaited_attempts_in_flight_continue() {
        assert_eq!(start_attempt().abandon(true), CallAttemptAbandonOutcome::Aborted, "the model was never called");
        let stopped = start_attempt();
        stopped.progress.mark_in_flight();
        assert_eq!(stopped.abandon(false), CallAttemptAbandonOutcome::Aborted, "its answer is not awaited");
        let late = start_attempt();
        late.progress.mark_in_flight();
        assert_eq!(late.abandon(true), CallAttemptAbandonOutcome::Continues);
        assert!(late.progress.mark_returned_and_check_abandoned(), "the task learns that it was abandoned");
    }

    #[tokio::test]
    async fn a_result_being_delivered_is_not_aborted() {
        let mut in_flight = start_attempt();
        in_flight.progress.mark_in_flight();
        assert!(!in_flight.progress.mark_returned_and_check_abandoned(), "it was not abandoned");
        assert_eq!(
            (in_flight.abandon(true), in_flight.abandon(false)),
            (CallAttemptAbandonOutcome::ResultArriving, CallAttemptAbandonOutcome::ResultArriving)
        );
        in_flight.has_returned = true;
        assert_eq!(in_flight.abandon(true), CallAttemptAbandonOutcome::Aborted);
        assert!(!in_flight.progress.is_abandoned(), "so it is not aborted for another call either");
    }
}
