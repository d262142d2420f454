//! Whether a session stands where it seems to stand: all that was decided is known to have been recorded or not, and was acted
//! upon. No call begins before that, since it may have been cancelled.
//!
//! Whoever waits is let through in the order in which they came, so that a run can be played again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Settled,
    Open,
    /// The session is at work no longer.
    Over,
}

/// What the calls of a session look at.
#[derive(Debug)]
pub(crate) struct Settled {
    stand: Mutex<Stand>,
    changed: Notify,
}

impl Settled {
    /// Runs `begin` once the session is settled, and before it can change. Says whether it came to that.
    pub async fn then(&self, begin: impl FnOnce()) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From now on no change is missed.
            changed.as_mut().enable();
            {
                let stand = self.lock();
                match *stand {
                    Stand::Settled => {
                        begin();
                        return true;
                    }
                    Stand::Over => return false,
                    Stand::Open => {}
                }
            }
            changed.await;
        }
    }

    fn set(&self, stand: Stand) {
        *self.lock() = stand;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Stand> {
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's own end of it; when this is dropped, no call begins any more.
#[derive(Debug)]
pub(crate) struct Settling(Arc<Settled>);

impl Settling {
    /// Of a session that is settled.
    pub fn new() -> Self {
        Self(Arc::new(Settled { stand: Mutex::new(Stand::Settled), changed: Notify::new() }))
    }

    pub fn set(&self, is_settled: bool) {
        self.0.set(if is_settled { Stand::Settled } else { Stand::Open });
    }

    /// What a call looks at.
    pub fn look(&self) -> Arc<Settled> {
        self.0.clone()
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.set(Stand::Over);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_begin_in_their_order_once_it_is_settled() {
        let (settling, (begun, order)) = (Settling::new(), mpsc::channel());
        assert!(settling.look().then(|| ()).await, "nothing is open");
        settling.set(false);
        let waiting: Vec<_> = (0..20)
            .map(|number| {
                let (settled, begun) = (settling.look(), begun.clone());
                tokio::spawn(async move { settled.then(|| begun.send(number).expect("heard")).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(order.try_recv().is_err(), "nobody begins before");
        settling.set(true);
        for one in waiting {
            assert!(one.await.expect("it lives"));
        }
        assert!(order.try_iter().eq(0..20));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_begins_when_the_session_is_at_work_no_longer() {
        let settling = Settling::new();
        settling.set(false);
        let settled = settling.look();
        let waits = tokio::spawn(async move { settled.then(|| panic!("it is over")).await });
        tokio::task::yield_now().await;
        drop(settling);
        assert!(!waits.await.expect("it lives"));
    }
}
