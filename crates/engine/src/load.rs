//! Sessions between memory and store: events as records and back, a state from snapshot and events, and what became of a
//! write whose end is not known.

use segue_core::body::BodyId;
use segue_core::codec;
use segue_core::event::Recorded;
use segue_core::flow::Rules;
use segue_core::ids::{Epoch, Seq, SessionId};
use segue_core::session::State;
use segue_store::{Record, Snapshot, Store, Takeover};

use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;

/// Events as the store takes them.
pub(crate) fn records(events: &[Recorded]) -> Vec<Record> {
    let record = |event: &Recorded| Record { seq: event.seq, at: event.at, bytes: codec::encode(&event.event) };
    events.iter().map(record).collect()
}

/// The texts that a record names; none if it cannot be read, and then nobody asks for them.
pub(crate) fn named(record: &Record) -> Vec<BodyId> {
    let event = codec::decode(record.seq, record.at, &record.bytes);
    event.map(|event| event.event.bodies().into_iter().map(|(id, _)| id).collect()).unwrap_or_default()
}

/// What a store knows of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// It took effect.
    There,
    /// It did not, and never will.
    Missing,
}

/// Whether a write of `events` took effect after which the store failed. Claims the session anew, so that it does not take
/// effect later.
pub(crate) async fn find_trace(
    store: &dyn Store,
    session: &SessionId,
    events: &[Recorded],
) -> Result<(Trace, Epoch), Error> {
    let fail = |error| Error::from_store(session, error);
    let claim = store.claim(session, Takeover::IfDead).await.map_err(fail)?;
    let Some((first, last)) = events.first().zip(events.last()) else { return Ok((Trace::There, claim.epoch)) };
    let before = Seq(first.seq.0.saturating_sub(1));
    if claim.head == before {
        return Ok((Trace::Missing, claim.epoch));
    }
    if claim.head == last.seq && store.read(session, before, events.len()).await.map_err(fail)? == records(events) {
        return Ok((Trace::There, claim.epoch));
    }
    Err(Error::TakenOver(session.clone()))
}

/// At most `limit` events after a place.
pub(crate) async fn read_events(
    store: &dyn Store,
    session: &SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<Recorded>, Error> {
    let records = store.read(session, after, limit).await.map_err(|error| Error::from_store(session, error))?;
    let unreadable = |source| Error::Unreadable { session: session.clone(), source };
    records.iter().map(|record| codec::decode(record.seq, record.at, &record.bytes).map_err(unreadable)).collect()
}

/// The state as it stands in the store, folded from the newest snapshot where that is of use. The second value is the place
/// of that snapshot.
pub(crate) async fn load_state(
    store: &dyn Store,
    rules: &dyn Rules,
    session: &SessionId,
) -> Result<(State, Seq), Error> {
    let snapshot = store.snapshot(session).await.map_err(|error| Error::from_store(session, error))?;
    let usable = snapshot.filter(|snapshot| snapshot.format == codec::SNAPSHOT_FORMAT);
    let usable = usable.and_then(|Snapshot { seq, bytes, .. }| {
        codec::decode_snapshot(rules, &bytes).filter(|state| state.session.seq == seq)
    });
    let mut state = usable.unwrap_or_else(|| State::fresh(rules));
    let snapshot_at = state.session.seq;
    loop {
        let events = read_events(store, session, state.session.seq, READ_EVENTS_MAX).await?;
        for event in &events {
            state.apply(rules, event);
        }
        if events.len() < READ_EVENTS_MAX {
            return Ok((state, snapshot_at));
        }
    }
}

/// The state right after a given event, folded from the beginning.
pub(crate) async fn state_at(
    store: &dyn Store,
    rules: &dyn Rules,
    session: &SessionId,
    at: Seq,
) -> Result<State, Error> {
    let mut state = State::fresh(rules);
    loop {
        let left = usize::try_from(at.0.saturating_sub(state.session.seq.0)).unwrap_or(usize::MAX);
        let events = read_events(store, session, state.session.seq, left.min(READ_EVENTS_MAX)).await?;
        for event in &events {
            state.apply(rules, event);
        }
        if events.is_empty() || state.session.seq >= at {
            return Ok(state);
        }
    }
}
