//! Leases: the right to write to a session.

use segue_core::ids::{LeaseEpoch, Seq, SessionUid, UnixMillis};

use crate::inbox::InboxStatus;

/// The right to write to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Sent with every append. Epochs rise across the whole store and are never reused.
    pub epoch: LeaseEpoch,
    /// The sequence number of the last record.
    pub head: Seq,
    /// The identity of the session, whatever its name.
    pub uid: SessionUid,
    /// The session that spawned this one.
    pub parent: Option<SessionUid>,
    /// When the lease expires unless it is renewed, by the store's clock. None if it lasts as long as the process.
    pub expires_at: Option<UnixMillis>,
    /// Whether the session has inbox entries, which it should handle before other inputs.
    pub inbox: InboxStatus,
}

/// When a lease may be taken from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverPolicy {
    /// Only if the process that holds the session is dead, or its lease has expired.
    IfHolderDead,
    Force,
}
