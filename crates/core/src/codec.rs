//! Encodes and decodes events and snapshots. Event formats are numbered: an event of an older format is converted while
//! it is read, and one of a newer format is rejected.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, RecordedEvent};
use crate::flow::DynFlow;
use crate::ids::{Seq, UnixMillis};
use crate::session::{Session, SessionState};

/// The format in which events are written.
pub const EVENT_FORMAT: u32 = 1;

/// The format of snapshots. Snapshots are a cache, so one of another format is discarded.
pub const SNAPSHOT_FORMAT: u32 = 4;

/// The reason why a stored event could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The event was written by a newer version of Segue.
    #[error(
        "event {seq} has format {found}, but this version reads formats up to {EVENT_FORMAT}; use a newer version of segue"
    )]
    NewerFormat { seq: Seq, found: u32 },
    /// The bytes are not a known event.
    #[error("event {seq} cannot be read: {why}")]
    Unreadable {
        seq: Seq,
        /// The decoder's error message.
        why: String,
    },
}

/// The first bytes of an event that states its format. Events of format 1 do not state it.
const FORMAT_PREFIX: &[u8] = b"{\"v\":";

/// Encodes an event as a JSON object.
#[must_use]
pub fn encode_event(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("events have string keys and no failing parts")
}

/// Decodes an event.
///
/// # Errors
/// Fails if the bytes are not a known event or the event has a newer format.
pub fn decode_event(seq: Seq, at: UnixMillis, bytes: &[u8]) -> Result<RecordedEvent, Error> {
    let unreadable = |why: String| Error::Unreadable { seq, why };
    if !bytes.starts_with(FORMAT_PREFIX) {
        let event = serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        return Ok(RecordedEvent { seq, at, event });
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
    let found = value.get("v").and_then(Value::as_u64).unwrap_or(1);
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > EVENT_FORMAT {
        return Err(Error::NewerFormat { seq, found });
    }
    let value = upcast_event(found, value);
    let event = serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
    Ok(RecordedEvent { seq, at, event })
}

/// Converts an event of an older format to the current one, one format at a time.
fn upcast_event(from_format: u32, value: Value) -> Value {
    UPCASTS.iter().skip((from_format as usize).saturating_sub(1)).fold(value, |value, cast| cast(value))
}

/// The conversions from format 1 to 2, from 2 to 3, and so on.
const UPCASTS: &[fn(Value) -> Value] = &[];

#[derive(Serialize)]
struct SessionSnapshotToEncode<'s> {
    session: &'s Session,
    flow: Option<Value>,
}

#[derive(Deserialize)]
struct DecodedSessionSnapshot {
    session: Session,
    flow: Value,
}

/// Encodes a state, so that a session can be opened without applying its whole journal.
#[must_use]
pub fn encode_snapshot(flow: &dyn DynFlow, state: &SessionState) -> Option<Vec<u8>> {
    let out = SessionSnapshotToEncode { session: &state.session, flow: flow.serialize_state(&state.flow) };
    serde_json::to_vec(&out).ok()
}

/// Decodes a snapshot; returns `None` if its bytes cannot be used.
#[must_use]
pub fn decode_snapshot(dyn_flow: &dyn DynFlow, bytes: &[u8]) -> Option<SessionState> {
    let DecodedSessionSnapshot { session, flow } = serde_json::from_slice(bytes).ok()?;
    Some(SessionState { session, flow: dyn_flow.deserialize_state(flow)? })
}
