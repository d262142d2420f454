//! Which sessions this process may hold. A session that works in a folder may be held only where the folder is; other
//! processes put what they receive for it into its inbox, as if a process with the folder held it already.

use segue_core::event::{Event, SessionOpened};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::load::read_events;

/// Decides which sessions this process may hold.
pub trait SessionPlacement: Send + Sync {
    /// Returns which processes may hold a session, for people, if this process may not.
    fn describe_permitted_holders(&self, opened: &SessionOpened) -> Option<String>;
}

impl EngineShared {
    pub(crate) fn is_placed_here(&self, opened: &SessionOpened) -> bool {
        self.placement.as_ref().is_none_or(|placement| placement.describe_permitted_holders(opened).is_none())
    }

    /// Refuses to hold a session that belongs to other processes.
    ///
    /// # Errors
    /// [`Error::InUse`], or the session cannot be read.
    pub(crate) async fn ensure_placed_here(&self, session: &SessionId) -> Result<(), Error> {
        let Some(placement) = &self.placement else { return Ok(()) };
        let first = read_events(&*self.store, session, Seq(0), 1).await?;
        let Some(Event::SessionOpened(opened)) = first.first().map(|recorded| &recorded.event) else { return Ok(()) };
        match placement.describe_permitted_holders(opened) {
            None => Ok(()),
            Some(by) => Err(Error::InUse { session: session.clone(), by }),
        }
    }
}

impl Engine {
    /// Gives up a session that was just created, for the processes that may hold it.
    pub(crate) async fn release_new_session_lease(&self, session: &SessionId, epoch: LeaseEpoch) {
        // If the lease cannot be released now, it ends with this process or expires.
        if let Err(error) = self.store().release_lease(session, epoch).await {
            tracing::warn!(%session, epoch = epoch.0, %error, "lease not released");
        }
    }

    /// Wakes a session here, unless other processes may hold it and resume it by themselves.
    ///
    /// # Errors
    /// The session cannot be resumed.
    pub(crate) async fn wake_placed_session(&self, session: &SessionId) -> Result<(), Error> {
        match self.wake_session(session).await {
            Err(Error::InUse { .. }) if self.shared().placement.is_some() => Ok(()),
            woken => woken,
        }
    }
}
