//! Holds back new model calls while a commit of their session is being written or has an unknown outcome: the commit
//! may cancel them.
//!
//! Waiting calls start in the order in which they arrived, so that a run can be reproduced.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStartGateState {
    Clear,
    Blocked,
    /// The session's task has ended.
    Ended,
}

/// The gate that a session's calls pass before they start.
#[derive(Debug)]
pub(crate) struct CallStartGate {
    state: Mutex<CallStartGateState>,
    changed: Notify,
}

impl CallStartGate {
    /// Runs `start` once the gate is clear, and before it can close again. Returns whether `start` ran.
    pub(crate) async fn run_when_clear(&self, start: impl FnOnce()) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on, no change is missed.
            changed.as_mut().enable();
            {
                let state = self.lock();
                match *state {
                    CallStartGateState::Clear => {
                        start();
                        return true;
                    }
                    CallStartGateState::Ended => return false,
                    CallStartGateState::Blocked => {}
                }
            }
            changed.await;
        }
    }

    fn set_state(&self, state: CallStartGateState) {
        *self.lock() = state;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, CallStartGateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's handle to the gate. After it is dropped, no call starts any more.
#[derive(Debug)]
pub(crate) struct CallStartGateHandle(Arc<CallStartGate>);

impl CallStartGateHandle {
    /// Creates a clear gate.
    pub(crate) fn new() -> Self {
        Self(Arc::new(CallStartGate { state: Mutex::new(CallStartGateState::Clear), changed: Notify::new() }))
    }

    pub(crate) fn set_call_starts_allowed(&self, is_allowed: bool) {
        self.0.set_state(if is_allowed { CallStartGateState::Clear } else { CallStartGateState::Blocked });
    }

    /// Returns the gate for a call.
    pub(crate) fn call_start_gate(&self) -> Arc<CallStartGate> {
        self.0.clone()
    }
}

impl Drop for CallStartGateHandle {
    fn drop(&mut self) {
        self.0.set_state(CallStartGateState::Ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_calls_start_in_order_when_the_gate_clears() {
        let (owner, (started, order)) = (CallStartGateHandle::new(), mpsc::channel());
        assert!(owner.call_start_gate().run_when_clear(|| ()).await, "the gate is clear");
        owner.set_call_starts_allowed(false);
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (gate, started) = (owner.call_start_gate(), started.clone());
                tokio::spawn(
                    async move { gate.run_when_clear(|| started.send(number).expect("the receiver exists")).await },
                )
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(order.try_recv().is_err(), "none starts before");
        owner.set_call_starts_allowed(true);
        for task in tasks {
            assert!(task.await.expect("the task does not panic"));
        }
        assert!(order.try_iter().eq(0..20));
    }

    #[tokio::test(start_paused = true)]
    async fn no_call_starts_after_the_session_ended() {
        let owner = CallStartGateHandle::new();
        owner.set_call_starts_allowed(false);
        let gate = owner.call_start_gate();
        let task = tokio::spawn(async move { gate.run_when_clear(|| panic!("the session has ended")).await });
        tokio::task::yield_now().await;
        drop(owner);
        assert!(!task.await.expect("the task does not panic"));
    }
}
