//! Reads sessions from the store and encodes events for it. Rebuilds the state from a snapshot and the events after
//! it, and finds out whether a commit with an unknown outcome was written.

use std::collections::BTreeMap;

use segue_core::body::{BodyId, TextToStore};
use segue_core::codec;
use segue_core::event::RecordedEvent;
use segue_core::flow::DynFlow;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};
use segue_core::session::SessionState;
use segue_store::{CommittedTextBody, JournalRecord, LeaseTakeoverPolicy, Snapshot, Store};

use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;

/// Encodes events as journal records.
pub(crate) fn encode_events(events: &[RecordedEvent]) -> Vec<JournalRecord> {
    let record = |event: &RecordedEvent| JournalRecord {
        seq: event.seq,
        at: event.at,
        bytes: codec::encode_event(&event.event),
    };
    events.iter().map(record).collect()
}

/// Adds to each text the first of `events` that refers to it. A text that none refers to belongs to the last event.
pub(crate) fn place_bodies_at_first_use(events: &[RecordedEvent], texts: &[TextToStore]) -> Vec<CommittedTextBody> {
    let Some(last) = events.last().map(|event| event.seq).filter(|_| !texts.is_empty()) else { return Vec::new() };
    let mut first_used_by: BTreeMap<BodyId, Seq> = BTreeMap::new();
    for event in events {
        for (id, _) in event.event.referenced_bodies() {
            first_used_by.entry(id).or_insert(event.seq);
        }
    }
    let locate = |text: &TextToStore| CommittedTextBody {
        text: text.clone(),
        first_used_by: first_used_by.get(&text.id).copied().unwrap_or(last),
    };
    texts.iter().map(locate).collect()
}

/// Whether a commit whose append failed was written after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UncertainCommitOutcome {
    Written,
    /// Not written, and never will be: the lease it needs is gone.
    NotWritten,
}

/// Finds out whether a commit of `events` was written although the store returned an error. Acquires a new lease, so
/// that the commit cannot be written later.
pub(crate) async fn find_commit_outcome(
    store: &dyn Store,
    session: &SessionId,
    events: &[RecordedEvent],
) -> Result<(UncertainCommitOutcome, LeaseEpoch), Error> {
    let to_error = |error| Error::from_store_error(session, error);
    let lease = store.acquire_lease(session, LeaseTakeoverPolicy::IfHolderEnded).await;
    let lease = lease.map_err(|error| match to_error(error) {
        // The commit may have been written before the other process took over.
        Error::InUse { session, .. } => Error::TakenOver(session),
        error => error,
    })?;
    let Some((first, last)) = events.first().zip(events.last()) else {
        return Ok((UncertainCommitOutcome::Written, lease.epoch));
    };
    let previous_head = Seq(first.seq.0.saturating_sub(1));
    if lease.head == previous_head {
        return Ok((UncertainCommitOutcome::NotWritten, lease.epoch));
    }
    if lease.head == last.seq
        && store.read_records(session, previous_head, events.len()).await.map_err(to_error)? == encode_events(events)
    {
        return Ok((UncertainCommitOutcome::Written, lease.epoch));
    }
    Err(Error::TakenOver(session.clone()))
}

/// Reads at most `limit` events after `after`.
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

/// Rebuilds a session's current state, starting from the newest usable snapshot. Also returns the sequence number of
/// that snapshot (zero without one).
pub(crate) async fn load_state(
    store: &dyn Store,
    flow: &dyn DynFlow,
    session: &SessionId,
) -> Result<(SessionState, Seq), Error> {
    let snapshot = store.load_snapshot(session).await.map_err(|error| Error::from_store_error(session, error))?;
    let usable = snapshot.filter(|snapshot| snapshot.format == codec::SNAPSHOT_FORMAT);
    // An older format, or a snapshot of another state: the journal is folded instead.
    let usable = usable.and_then(|Snapshot { seq, bytes, .. }| {
        codec::decode_snapshot(flow, &bytes).filter(|state| state.session.last_seq == seq)
    });
    let mut state = usable.unwrap_or_else(|| SessionState::new(flow));
    let snapshot_seq = state.session.last_seq;
    loop {
        let events = read_events(store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
        for event in &events {
            state.apply(flow, event);
        }
        if events.len() < READ_EVENTS_MAX {
            return Ok((state, snapshot_seq));
        }
    }
}

/// Rebuilds the state right after event `at`, from the beginning of the journal.
pub(crate) async fn load_state_at(
    store: &dyn Store,
    flow: &dyn DynFlow,
    session: &SessionId,
    at: Seq,
) -> Result<SessionState, Error> {
    let mut state = SessionState::new(flow);
    loop {
        let remaining = usize::try_from(at.0.saturating_sub(state.session.last_seq.0)).unwrap_or(usize::MAX);
        let events = read_events(store, session, state.session.last_seq, remaining.min(READ_EVENTS_MAX)).await?;
        for event in &events {
            state.apply(flow, event);
        }
        if events.is_empty() || state.session.last_seq >= at {
            return Ok(state);
        }
    }
}
