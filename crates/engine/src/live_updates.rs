//! Live words between nodes: what subscribers see before it is recorded. The node that holds a session sends them; a node
//! with subscribers of that session receives them. Without them everything works, a little later, from the journal.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use segue_core::ids::{CallId, Seq, SessionId, ToolRunId};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use crate::engine::{Engine, EngineShared};
use crate::limits::{HOLDER_POLL_MS, LIVE_SESSIONS_MAX, LIVE_STREAM_CHECK_MS};

/// What a subscriber at another node should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CrossNodeSessionUpdate {
    /// Events up to this one are recorded.
    Head { seq: Seq },
    /// More text of a call that is being answered.
    Text { call: CallId, attempt: u32, offset: usize, text: String },
    /// The progress of a tool run.
    Progress { run: ToolRunId, text: String },
    /// An attempt of the call has ended; its text is in the journal, or void.
    CallEnded { call: CallId },
    /// The tool run has ended.
    RunEnded { run: ToolRunId },
}

/// Receives live updates from another node.
#[async_trait]
pub trait CrossNodeSessionUpdateSource: Send + Sync {
    /// Follows a session at the node with this address. The stream ends when that node no longer holds the session.
    ///
    /// # Errors
    /// The node cannot be reached, or refuses.
    async fn follow_session(
        &self,
        address: &str,
        session: &SessionId,
    ) -> Result<BoxStream<'static, CrossNodeSessionUpdate>, String>;
}

impl Engine {
    /// Returns the live updates of a session for a subscriber at another node: what is known now, and what follows. Ends
    /// when this process no longer holds the session, or the receiver is too slow.
    #[must_use]
    pub fn live_updates(&self, session: &SessionId) -> BoxStream<'static, CrossNodeSessionUpdate> {
        let (known, channel) = self.shared().subscriptions.join_live(session);
        let state = (self.clone(), session.clone(), std::collections::VecDeque::from(known), channel);
        futures_util::stream::unfold(state, |(engine, session, mut ready, mut channel)| async move {
            loop {
                if let Some(update) = ready.pop_front() {
                    return Some((update, (engine, session, ready, channel)));
                }
                if engine.shared().is_shutting_down.load(Ordering::Acquire) {
                    return None;
                }
                let check = Duration::from_millis(LIVE_STREAM_CHECK_MS);
                match tokio::time::timeout(check, channel.recv()).await {
                    Ok(Ok(message)) => ready.extend(message.to_live_updates()),
                    Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => return None,
                    Err(_) if engine.shared().registry.holds_lease(&session) => {}
                    Err(_) => return None,
                }
            }
        })
        .boxed()
    }
}

/// The sessions whose live updates are being received.
#[derive(Debug, Default)]
pub(crate) struct SessionsWithRemoteUpdates(Mutex<BTreeSet<SessionId>>);

impl SessionsWithRemoteUpdates {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeSet<SessionId>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Starts the task that receives live updates, if there is a source.
pub(crate) fn start_live_following(shared: &Arc<EngineShared>, source: Option<Arc<dyn CrossNodeSessionUpdateSource>>) {
    if let Some(source) = source {
        tokio::spawn(run_live_following(Arc::downgrade(shared), source));
    }
}

/// Looks for the nodes that hold sessions with subscribers here, and follows them, as long as the engine exists.
async fn run_live_following(shared: Weak<EngineShared>, source: Arc<dyn CrossNodeSessionUpdateSource>) {
    loop {
        tokio::time::sleep(Duration::from_millis(HOLDER_POLL_MS)).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut sessions = shared.subscriptions.sessions_with_subscribers();
        sessions.retain(|session| !shared.registry.holds_lease(session));
        shared.followed_sessions.with(|followed| sessions.retain(|session| !followed.contains(session)));
        sessions.truncate(LIVE_SESSIONS_MAX);
        if sessions.is_empty() {
            continue;
        }
        // A store that cannot be read now is asked again.
        let Ok(addresses) = shared.store.find_holder_addresses(&sessions).await else { continue };
        for (session, address) in sessions.into_iter().zip(addresses) {
            let Some(address) = address else { continue };
            shared.followed_sessions.with(|followed| followed.insert(session.clone()));
            tokio::spawn(follow_session(Arc::downgrade(&shared), source.clone(), address, session));
        }
    }
}

async fn follow_session(
    shared: Weak<EngineShared>,
    source: Arc<dyn CrossNodeSessionUpdateSource>,
    address: String,
    session: SessionId,
) {
    match source.follow_session(&address, &session).await {
        Ok(mut updates) => {
            while let Some(update) = updates.next().await {
                let Some(shared) = shared.upgrade() else { return };
                if shared.registry.holds_lease(&session) || !shared.subscriptions.has_subscribers(&session) {
                    break;
                }
                shared.subscriptions.apply_live_update(&session, update);
            }
        }
        Err(error) => tracing::debug!(%session, address, error, "no live updates from the node that holds the session"),
    }
    let Some(shared) = shared.upgrade() else { return };
    if !shared.registry.holds_lease(&session) {
        // The other node may be gone. What it sent is void until the journal says more.
        shared.subscriptions.clear_channel_of_parked_session(&session);
    }
    shared.followed_sessions.with(|followed| followed.remove(&session));
}
