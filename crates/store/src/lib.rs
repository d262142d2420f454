//! Stores session journals: ordered, durable, and with one writer per session at a time.
//!
//! A store decides who may write to a session and whether an append is up to date. It does not interpret what it
//! stores: a record is bytes with a sequence number and a time, a body is a text with its hash as its id, and a summary
//! is one row for lists and for recovery. All times that it stores come from the caller; only the expiry of leases and the
//! retention of outcomes follow the store's own clock.
//!
//! ```
//! use segue_core::ids::{Seq, SessionId, UnixMillis};
//! use segue_store::memory::InMemoryStore;
//! use segue_store::{JournalCommit, JournalReader, JournalRecord, JournalWriter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), segue_store::Error> {
//! let store = InMemoryStore::with_own_disk();
//! let session = SessionId::from("support-42");
//! let lease = store.create_session(&session).await?;
//! let record = JournalRecord { seq: Seq(1), at: UnixMillis(0), bytes: b"hello".to_vec() };
//! let commit = JournalCommit::of_records(session.clone(), lease.epoch, lease.head, vec![record.clone()]);
//! assert_eq!(store.append_commit(commit.clone()).await?, Seq(1));
//! assert!(store.append_commit(commit).await.is_err(), "the head is 1 by now");
//! assert_eq!(store.read_records(&session, Seq(0), 10).await?, [record]);
//! # Ok(())
//! # }
//! ```
//!
//! [`sqlite::SqliteStore`] keeps journals in a file, [`memory::InMemoryStore`] in memory, and `postgres::PostgresStore`
//! (with the feature `postgres`) in a database that several nodes share. All pass the same conformance suite.

use segue_core::ids::SessionId;

use crate::limits::SESSION_ID_BYTES_MAX;

mod capabilities;
mod catalog;
mod clock;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod encoding;
mod error;
mod inbox;
mod lease;
pub mod limits;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod search;
mod shared_state;
pub mod sqlite;

pub use capabilities::{InboxStore, JournalReader, JournalWriter, LeaseStore, SessionCatalog, Store, StoreMaintenance};
pub use catalog::{
    IntegrityReport, PendingWorkCursor, PendingWorkPage, PendingWorkQuery, PendingWorkStatus, SessionListChangeCursor,
    SessionListChangePage, SessionListCursor, SessionListPage, SessionQuery, SessionSummary, SessionWithPendingWork,
    StoreMetrics, StoredSessionListChange, StoredSessionListEntry,
};
pub use clock::StoreClock;
pub use commit::{CommittedTextBody, JournalCommit, JournalRecord, SessionForkSpec, Snapshot};
pub use error::Error;
pub use inbox::{
    HandledInboxEntry, InboxEmptiness, InboxEntry, InboxSubmissionStatus, NewInboxSubmission, OutgoingInboxSubmission,
    SessionNameAndUid, SpawnedSession,
};
pub use lease::{Lease, LeaseRenewalResult, LeaseTakeoverPolicy, LostLease};
pub use shared_state::{
    ConcurrencySlotLease, ConcurrencySlotRequest, RateLimitTokenGrant, RateLimitTokenRequest, SharedMeters,
    SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecordWriteOutcome, SharedRecords, SharedState, UsageAccountUpdate, UsageAmounts,
};

/// Rejects names that no store may accept.
pub(crate) fn validate_session_id(session: &SessionId) -> Result<(), Error> {
    let name = session.as_str();
    if name.is_empty() || name.len() > SESSION_ID_BYTES_MAX || name.contains('\0') {
        let detail = format!("a session name must have 1 to {SESSION_ID_BYTES_MAX} bytes and no NUL");
        return Err(Error::Malformed { session: session.clone(), detail });
    }
    Ok(())
}
