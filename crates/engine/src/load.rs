//! Sessions between memory and store: events as records and back, a state from snapshot and events, and what became of a
//! write whose end is not known.

use segue_core::body::BodyId;
use segue_core::codec;
use segue_core::event::RecordedEvent;
use segue_core::flow::DynFlow;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};
use segue_core::session::SessionState;
use segue_store::{JournalRecord, Snapshot, Store, TakeoverPolicy};

use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;

/// Events as the store takes them.
pub(crate) fn encode_events(events: &[RecordedEvent]) -> Vec<JournalRecord> {
    let record = |event: &RecordedEvent| JournalRecord {
        seq: event.seq,
        at: event.at,
        bytes: codec::encode_event(&event.event),
    };
    events.iter().map(record).collect()
}

/// The texts that a record names; none if it cannot be read, and then nobody asks for them.
pub(crate) fn body_ids_in_record(record: &JournalRecord) -> Vec<BodyId> {
    let event = codec::decode_event(record.seq, record.at, &record.bytes);
    event.map(|event| event.event.referenced_bodies().into_iter().map(|(id, _)| id).collect()).unwrap_or_default()
}

/// What a store knows of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// It took effect.
    Written,
    /// It did not, and never will.
    NotWritten,
}

/// Whether a write of `events` took effect after which the store failed. Claims the session anew, so that it does not take
/// effect later.
pub(crate) async fn find_commit_outcome(
    store: &dyn Store,
    session: &SessionId,
    events: &[RecordedEvent],
) -> Result<(CommitOutcome, LeaseEpoch), Error> {
    let fail = |error| Error::from_store_error(session, error);
    let claim = store.acquire_lease(session, TakeoverPolicy::IfHolderDead).await.map_err(fail)?;
    let Some((first, last)) = events.first().zip(events.last()) else {
        return Ok((CommitOutcome::Written, claim.epoch));
    };
    let before = Seq(first.seq.0.saturating_sub(1));
    if claim.head == before {
        return Ok((CommitOutcome::NotWritten, claim.epoch));
    }
    if claim.head == last.seq
        && store.read_records(session, before, events.len()).await.map_err(fail)? == encode_events(events)
    {
        return Ok((CommitOutcome::Written, claim.epoch));
    }
    Err(Error::TakenOver(session.clone()))
}

/// At most `limit` events after a place.
pub(crate) async fn read_events(
    store: &dyn Store,
    session: &SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<RecordedEvent>, Error> {
    let records =
        store.read_records(session, after, limit).await.map_err(|error| Error::from_store_error(session, error))?;
    let unreadable = |source| Error::Unreadable { session: session.clone(), source };
    records.iter().map(|record| codec::decode_event(record.seq, record.at, &record.bytes).map_err(unreadable)).collect()
}

/// The state as it stands in the store, folded from the newest snapshot where that is of use. The second value is the place
/// of that snapshot.
pub(crate) async fn load_state(
    store: &dyn Store,
    flow: &dyn DynFlow,
    session: &SessionId,
) -> Result<(SessionState, Seq), Error> {
    let snapshot = store.load_snapshot(session).await.map_err(|error| Error::from_store_error(session, error))?;
    let usable = snapshot.filter(|snapshot| snapshot.format == codec::SNAPSHOT_FORMAT);
    let usable = usable.and_then(|Snapshot { seq, bytes, .. }| {
        codec::decode_snapshot(flow, &bytes).filter(|state| state.session.last_seq == seq)
    });
    let mut state = usable.unwrap_or_else(|| SessionState::new(flow));
    let snapshot_at = state.session.last_seq;
    loop {
        let events = read_events(store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
        for event in &events {
            state.apply(flow, event);
        }
        if events.len() < READ_EVENTS_MAX {
            return Ok((state, snapshot_at));
        }
    }
}

/// The state right after a given event, folded from the beginning.
pub(crate) async fn load_state_at(
    store: &dyn Store,
    flow: &dyn DynFlow,
    session: &SessionId,
    at: Seq,
) -> Result<SessionState, Error> {
    let mut state = SessionState::new(flow);
    loop {
        let left = usize::try_from(at.0.saturating_sub(state.session.last_seq.0)).unwrap_or(usize::MAX);
        let events = read_events(store, session, state.session.last_seq, left.min(READ_EVENTS_MAX)).await?;
        for event in &events {
            state.apply(flow, event);
        }
        if events.is_empty() || state.session.last_seq >= at {
            return Ok(state);
        }
    }
}
