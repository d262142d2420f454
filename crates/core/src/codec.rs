//! How events and snapshots are written down. Formats are numbered; a journal of an older format is brought up to date
//! while it is read, one of a newer format is refused by name.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, RecordedEvent};
use crate::flow::DynFlow;
use crate::ids::{Seq, UnixMillis};
use crate::session::{Session, SessionState};

/// The format events are written in.
pub const EVENT_FORMAT: u32 = 1;

/// The format of snapshots. They are a cache: one of another format is thrown away.
pub const SNAPSHOT_FORMAT: u32 = 3;

/// Why something written down could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It was written by a newer version.
    #[error(
        "event {seq} is of format {found}, and this version reads up to format {EVENT_FORMAT}; use a newer version of segue"
    )]
    NewerFormat {
        /// Which event.
        seq: Seq,
        /// Its format.
        found: u32,
    },
    /// It is no event we know.
    #[error("event {seq} cannot be read: {why}")]
    Unreadable {
        /// Which event.
        seq: Seq,
        /// What is wrong with it.
        why: String,
    },
}

/// What the bytes of an event begin with if it is not of format 1. Format 1 has no mark.
const FORMAT_PREFIX: &[u8] = b"{\"v\":";

/// An event as bytes: a JSON object.
#[must_use]
pub fn encode_event(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("events have string keys and no failing parts")
}

/// An event from its bytes.
///
/// # Errors
/// The bytes are no event, or one of a newer format.
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

/// Brings an event of an older format up to date, one format at a time.
fn upcast_event(from_format: u32, value: Value) -> Value {
    UPCASTS.iter().skip((from_format as usize).saturating_sub(1)).fold(value, |value, cast| cast(value))
}

/// From format 1 to 2, from 2 to 3, and so on; there is one less than there are formats.
const UPCASTS: &[fn(Value) -> Value] = &[];

#[derive(Serialize)]
struct SnapshotRef<'s> {
    session: &'s Session,
    flow: Option<Value>,
}

#[derive(Deserialize)]
struct OwnedSnapshot {
    session: Session,
    flow: Value,
}

/// A state as bytes, to be opened without folding the whole journal.
#[must_use]
pub fn encode_snapshot(flow: &dyn DynFlow, state: &SessionState) -> Option<Vec<u8>> {
    let out = SnapshotRef { session: &state.session, flow: flow.serialize_state(&state.flow) };
    serde_json::to_vec(&out).ok()
}

/// A state from a snapshot's bytes; nothing if they are of no use.
#[must_use]
pub fn decode_snapshot(dyn_flow: &dyn DynFlow, bytes: &[u8]) -> Option<SessionState> {
    let OwnedSnapshot { session, flow } = serde_json::from_slice(bytes).ok()?;
    Some(SessionState { session, flow: dyn_flow.deserialize_state(flow)? })
}
