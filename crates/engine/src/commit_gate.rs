//! Whether a session stands where it seems to stand: all that was decided is known to have been recorded or not, and was acted
//! upon. No call begins before that, since it may have been cancelled.
//!
//! Whoever waits is let through in the order in which they came, so that a run can be played again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitGateState {
    Clear,
    Blocked,
    /// The session is at work no longer.
    Ended,
}

/// What the calls of a session look at.
#[derive(Debug)]
pub(crate) struct CommitGate {
    state: Mutex<CommitGateState>,
    changed: Notify,
}

impl CommitGate {
    /// Runs `begin` once the session is settled, and before it can change. Says whether it came to that.
    pub async fn run_when_clear(&self, begin: impl FnOnce()) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From now on no change is missed.
            changed.as_mut().enable();
            {
                let stand = self.lock();
                match *stand {
                    CommitGateState::Clear => {
                        begin();
                        return true;
                    }
                    CommitGateState::Ended => return false,
                    CommitGateState::Blocked => {}
                }
            }
            changed.await;
        }
    }

    fn set_state(&self, stand: CommitGateState) {
        *self.lock() = stand;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, CommitGateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's own end of it; when this is dropped, no call begins any more.
#[derive(Debug)]
pub(crate) struct CommitGateOwner(Arc<CommitGate>);

impl CommitGateOwner {
    /// Of a session that is settled.
    pub fn new() -> Self {
        Self(Arc::new(CommitGate { state: Mutex::new(CommitGateState::Clear), changed: Notify::new() }))
    }

    pub fn set_clear(&self, is_clear: bool) {
        self.0.set_state(if is_clear { CommitGateState::Clear } else { CommitGateState::Blocked });
    }

    /// What a call looks at.
    pub fn gate(&self) -> Arc<CommitGate> {
        self.0.clone()
    }
}

impl Drop for CommitGateOwner {
    fn drop(&mut self) {
        self.0.set_state(CommitGateState::Ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_begin_in_their_order_once_it_is_settled() {
        let (settling, (begun, order)) = (CommitGateOwner::new(), mpsc::channel());
        assert!(settling.gate().run_when_clear(|| ()).await, "nothing is open");
        settling.set_clear(false);
        let waiting: Vec<_> = (0..20)
            .map(|number| {
                let (settled, begun) = (settling.gate(), begun.clone());
                tokio::spawn(async move { settled.run_when_clear(|| begun.send(number).expect("heard")).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(order.try_recv().is_err(), "nobody begins before");
        settling.set_clear(true);
        for one in waiting {
            assert!(one.await.expect("it lives"));
        }
        assert!(order.try_iter().eq(0..20));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_begins_when_the_session_is_at_work_no_longer() {
        let settling = CommitGateOwner::new();
        settling.set_clear(false);
        let settled = settling.gate();
        let waits = tokio::spawn(async move { settled.run_when_clear(|| panic!("it is over")).await });
        tokio::task::yield_now().await;
        drop(settling);
        assert!(!waits.await.expect("it lives"));
    }
}
