//! Resumes a session: acquires its lease, and takes its state from memory or from the store.

use std::sync::Arc;

use segue_core::flow::DynFlow;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};
use segue_store::{InboxEmptiness, Lease};

use crate::engine::EngineShared;
use crate::error::Error;
use crate::load::{load_state, read_events};
use crate::registry::CachedSession;
use crate::session_flow::read_session_flow;
use crate::text_cache::TextCache;

/// Where a resumed session's state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResumedFromMemoryOrStore {
    /// This process kept it, so none of its pending effects is running anywhere.
    Memory,
    /// The store. Its effects may have been running when another process lost the session.
    Store,
}

/// A session that this process holds.
pub(super) struct ResumedSession {
    pub source: ResumedFromMemoryOrStore,
    pub flow: Arc<dyn DynFlow>,
    pub cached: Box<CachedSession>,
    pub epoch: LeaseEpoch,
    /// Whether it has entries that arrived before this process held it. Later ones are found by polling.
    pub inbox: InboxEmptiness,
}

pub(super) async fn resume_session(
    shared: &EngineShared,
    session: &SessionId,
    parked: Option<Box<CachedSession>>,
) -> Result<ResumedSession, Error> {
    let parked = match parked {
        Some(cached) if cached.lease_epoch.is_some() => {
            let flow = find_parked_flow(shared, session, &cached).await?;
            let epoch = cached.lease_epoch.unwrap_or_default();
            let (source, inbox) = (ResumedFromMemoryOrStore::Memory, InboxEmptiness::Empty);
            return Ok(ResumedSession { source, flow, cached, epoch, inbox });
        }
        parked => parked,
    };
    shared.ensure_placed_here(session).await?;
    let lease = shared.store.acquire_lease(session, shared.leases.takeover_policy()).await;
    let lease = lease.map_err(|error| Error::from_store_error(session, error))?;
    tracing::debug!(%session, epoch = lease.epoch.0, head = lease.head.0, "lease acquired");
    if let Some(cached) = parked
        && cached.state.session.is_at_rest()
        && is_cache_current(shared, session, &cached, lease).await?
    {
        let flow = find_parked_flow(shared, session, &cached).await?;
        return Ok(ResumedSession {
            source: ResumedFromMemoryOrStore::Memory,
            flow,
            cached,
            epoch: lease.epoch,
            inbox: lease.inbox,
        });
    }
    let flow = read_session_flow(shared, session).await?;
    let (state, snapshot_seq) = load_state(&*shared.store, &*flow, session).await?;
    let cached = CachedSession { state, texts: TextCache::default(), lease_epoch: Some(lease.epoch), snapshot_seq };
    Ok(ResumedSession {
        source: ResumedFromMemoryOrStore::Store,
        flow,
        cached: Box::new(cached),
        epoch: lease.epoch,
        inbox: lease.inbox,
    })
}

/// Returns whether the cached state is current: no other process wrote to the session. Comparing the last event's time
/// detects another session of the same name and length.
async fn is_cache_current(
    shared: &EngineShared,
    session: &SessionId,
    cached: &CachedSession,
    lease: Lease,
) -> Result<bool, Error> {
    let session_state = &cached.state.session;
    if lease.head != session_state.last_seq {
        return Ok(false);
    }
    let last = read_events(&*shared.store, session, Seq(lease.head.0.saturating_sub(1)), 1).await?;
    Ok(last.first().is_some_and(|event| event.at == session_state.last_event_at))
}

async fn find_parked_flow(
    shared: &EngineShared,
    session: &SessionId,
    parked: &CachedSession,
) -> Result<Arc<dyn DynFlow>, Error> {
    match shared.find_cached_flow(&parked.state.session)? {
        Some(flow) => Ok(flow),
        None => read_session_flow(shared, session).await,
    }
}
