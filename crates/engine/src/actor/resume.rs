//! Getting hold of a session: the claim, and its state from memory or from the store.

use std::sync::Arc;

use segue_core::event::Event;
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, LeaseEpoch, Seq, SessionId};
use segue_store::{Lease, TakeoverPolicy};

use crate::engine::EngineShared;
use crate::error::Error;
use crate::load::{load_state, read_events};
use crate::registry::CachedSession;
use crate::text_cache::TextCache;

/// Where a state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateSource {
    /// This process kept it: nothing that it owes is under way anywhere.
    Memory,
    /// The store: what it owes may have been under way when another process let go of it.
    Store,
}

pub(super) type ResumedSession = (StateSource, Arc<dyn DynFlow>, Box<CachedSession>, LeaseEpoch);

pub(super) async fn resume_session(
    shared: &EngineShared,
    session: &SessionId,
    parked: Option<Box<CachedSession>>,
) -> Result<ResumedSession, Error> {
    let rested = match parked {
        Some(resident) if resident.lease_epoch.is_some() => {
            let rules = shared.find_flow(resident.state.session.flow.as_ref())?;
            let epoch = resident.lease_epoch.unwrap_or_default();
            return Ok((StateSource::Memory, rules, resident, epoch));
        }
        rested => rested,
    };
    let claim = shared.store.acquire_lease(session, TakeoverPolicy::IfHolderDead).await;
    let claim = claim.map_err(|error| Error::from_store_error(session, error))?;
    if let Some(resident) = rested
        && resident.state.session.is_idle()
        && is_cache_current(shared, session, &resident, claim).await?
    {
        let rules = shared.find_flow(resident.state.session.flow.as_ref())?;
        return Ok((StateSource::Memory, rules, resident, claim.epoch));
    }
    let rules = shared.find_flow(read_flow_name(shared, session).await?.as_ref())?;
    let (state, snapshot_at) = load_state(&*shared.store, &*rules, session).await?;
    let resident =
        CachedSession { state, texts: TextCache::default(), lease_epoch: Some(claim.epoch), snapshot_seq: snapshot_at };
    Ok((StateSource::Store, rules, Box::new(resident), claim.epoch))
}

/// Whether nobody wrote the session since it was let go of. Another one of its name and length has other times.
async fn is_cache_current(
    shared: &EngineShared,
    session: &SessionId,
    resident: &CachedSession,
    claim: Lease,
) -> Result<bool, Error> {
    let known = &resident.state.session;
    if claim.head != known.last_seq {
        return Ok(false);
    }
    let last = read_events(&*shared.store, session, Seq(claim.head.0.saturating_sub(1)), 1).await?;
    Ok(last.first().is_some_and(|event| event.at == known.last_event_at))
}

/// The flow a session was opened with: its first event says so.
pub(crate) async fn read_flow_name(shared: &EngineShared, session: &SessionId) -> Result<Option<FlowName>, Error> {
    let first = read_events(&*shared.store, session, Seq(0), 1).await?;
    Ok(first.first().and_then(|event| match &event.event {
        Event::SessionOpened(opened) => Some(opened.flow.clone()),
        _ => None,
    }))
}
