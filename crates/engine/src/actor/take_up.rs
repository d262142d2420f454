//! Getting hold of a session: the claim, and its state from memory or from the store.

use std::sync::Arc;

use segue_core::event::Event;
use segue_core::flow::Rules;
use segue_core::ids::{Epoch, FlowName, Seq, SessionId};
use segue_store::{Claim, Takeover};

use crate::engine::Shared;
use crate::error::Error;
use crate::load::{load_state, read_events};
use crate::registry::Resident;
use crate::shelf::Shelf;

/// Where a state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// This process kept it: nothing that it owes is under way anywhere.
    FromMemory,
    /// The store: what it owes may have been under way when another process let go of it.
    FromStore,
}

pub(super) type TakenUp = (Known, Arc<dyn Rules>, Box<Resident>, Epoch);

pub(super) async fn take_up(
    shared: &Shared,
    session: &SessionId,
    rested: Option<Box<Resident>>,
) -> Result<TakenUp, Error> {
    let rested = match rested {
        Some(resident) if resident.claim.is_some() => {
            let rules = shared.rules(resident.state.session.flow.as_ref())?;
            let epoch = resident.claim.unwrap_or_default();
            return Ok((Known::FromMemory, rules, resident, epoch));
        }
        rested => rested,
    };
    let claim = shared.store.claim(session, Takeover::IfDead).await;
    let claim = claim.map_err(|error| Error::from_store(session, error))?;
    if let Some(resident) = rested
        && resident.state.session.is_idle()
        && is_unchanged(shared, session, &resident, claim).await?
    {
        let rules = shared.rules(resident.state.session.flow.as_ref())?;
        return Ok((Known::FromMemory, rules, resident, claim.epoch));
    }
    let rules = shared.rules(flow_of(shared, session).await?.as_ref())?;
    let (state, snapshot_at) = load_state(&*shared.store, &*rules, session).await?;
    let resident = Resident { state, shelf: Shelf::default(), claim: Some(claim.epoch), snapshot_at };
    Ok((Known::FromStore, rules, Box::new(resident), claim.epoch))
}

/// Whether nobody wrote the session since it was let go of. Another one of its name and length has other times.
async fn is_unchanged(shared: &Shared, session: &SessionId, resident: &Resident, claim: Claim) -> Result<bool, Error> {
    let known = &resident.state.session;
    if claim.head != known.seq {
        return Ok(false);
    }
    let last = read_events(&*shared.store, session, Seq(claim.head.0.saturating_sub(1)), 1).await?;
    Ok(last.first().is_some_and(|event| event.at == known.at))
}

/// The flow a session was opened with: its first event says so.
pub(crate) async fn flow_of(shared: &Shared, session: &SessionId) -> Result<Option<FlowName>, Error> {
    let first = read_events(&*shared.store, session, Seq(0), 1).await?;
    Ok(first.first().and_then(|event| match &event.event {
        Event::SessionOpened(opened) => Some(opened.flow.clone()),
        _ => None,
    }))
}
