//! How sessions are erased and engines stop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::ids::{Millis, SessionId};

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::SHUTDOWN_MS_MAX;
use crate::registry::Place;

impl Engine {
    /// Erases a session and all its texts that no other uses.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        // Nothing of it may be under way while it goes.
        self.shared().late.end(session);
        if let Some(Place::AtWork(desk)) = self.shared().registry.with(|places| places.remove(session)) {
            desk.stop().await;
            // Its last turn may have ended meanwhile.
            self.shared().late.end(session);
        }
        self.shared().store.delete(session).await.map_err(|error| Error::from_store(session, error))
    }

    /// Stops: no new input is taken, running turns get a little time, and what is not finished then is left to recovery.
    pub async fn shutdown(&self) {
        self.shared().closing.store(true, Ordering::Release);
        // Nobody waits for these, and what they cost is not known.
        self.shared().late.end_all();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(SHUTDOWN_MS_MAX);
        while !self.shared().registry.at_work().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for (session, desk) in self.shared().registry.at_work() {
            self.shared().registry.leave(&session, &desk);
            desk.stop().await;
        }
        // Turns that ended in that time may have left some more.
        self.shared().late.end_all();
        self.shared().give_back(Millis(u64::MAX), 0).await;
        // What is still queued there is written; what is still claimed is free once the process ends.
        let _ = self.shared().store.close().await;
    }
}
