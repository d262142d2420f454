//! Leases: the right to write to a session.

use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, UnixMillis};

use crate::inbox::InboxEmptiness;

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
    pub inbox: InboxEmptiness,
}

/// When a lease may be taken from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTakeoverPolicy {
    /// Only if the process that holds the session has ended for certain. A lease that has merely expired is left alone:
    /// its holder may be unable to reach the store for the moment, as everybody else was.
    IfHolderEnded,
    /// Only if the process that holds the session is dead, or its lease has expired.
    IfHolderDead,
    Force,
}

/// The result of renewing the leases of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRenewalResult {
    /// When the leases expire now, by the store's clock. None if they last as long as their process.
    pub expires_at: Option<UnixMillis>,
    /// The leases that are lost.
    pub lost: Vec<LostLease>,
}

/// A lease that another process has taken, or whose session is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLease {
    pub session: SessionId,
    /// The epoch of the lost lease.
    pub epoch: LeaseEpoch,
    /// The current epoch; none if there is no such session any more.
    pub current: Option<LeaseEpoch>,
}
