//! Reading sessions back: events from the store, and a state from snapshot and events.

use segue_core::codec;
use segue_core::event::Recorded;
use segue_core::flow::Rules;
use segue_core::ids::{Seq, SessionId};
use segue_core::session::State;
use segue_store::{Snapshot, Store};

use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;

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
