//! The store's limits, in one place.

/// Longest name of a session, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 256;
/// Highest sequence number: the largest integer that every backend supports.
pub const SEQ_MAX: u64 = i64::MAX as u64;
/// Connections that read at the same time.
pub const READER_CONNECTIONS_MAX: usize = 4;
/// Attempts to create a lock file with an unused name.
pub const LOCK_NAME_ATTEMPTS_MAX: usize = 16;
/// Shorter values are not compressed: the frame header would cost more than is saved.
pub const COMPRESS_BYTES_MIN: usize = 64;
/// Shorter texts are not compressed: compressing them would take a tenth of the time of a turn.
pub const COMPRESS_TEXT_BYTES_MIN: usize = 1_024;
/// Bytes allocated at once because of a length read from disk. More is allocated only as data arrives.
pub const PREALLOCATED_BYTES_MAX: usize = 1 << 20;
/// Bytes of records that are stored in one row of the journal, so that a few records can be read without all others of
/// their commit. A longer record has a row of its own.
pub const JOURNAL_ROW_BYTES_MAX: usize = 64 << 10;
/// Longest value that SQLite accepts.
pub const SQLITE_VALUE_BYTES_MAX: usize = 1_000_000_000;
/// Problems reported by one integrity check.
pub const INTEGRITY_PROBLEMS_MAX: u32 = 20;
/// Commits written in one transaction.
pub const GROUP_COMMIT_JOBS_MAX: usize = 512;
/// Bytes written in one transaction.
pub const GROUP_COMMIT_BYTES_MAX: usize = 4 << 20;
/// From this many jobs in a transaction on, the writer yields once before it commits.
pub const WRITER_YIELD_JOBS_MIN: usize = 4;
/// Above this size of the write-ahead log, the writer waits for readers and truncates the log.
pub const WAL_BYTES_MAX: u64 = 64 << 20;
/// New addresses are listed until there are this many, or one for [`BODIES_PER_UNINDEXED_ADDRESS`] bodies. Then they
/// are moved into the index.
pub const UNINDEXED_ADDRESSES_MIN: usize = 1_024;
/// See [`UNINDEXED_ADDRESSES_MIN`].
pub const BODIES_PER_UNINDEXED_ADDRESS: i64 = 64;
/// Most addresses that are listed, however many bodies there are.
pub const UNINDEXED_ADDRESSES_MAX: usize = 16_384;
/// Up to this many waiting commits are written together; of more, half.
pub const UNSPLIT_QUEUE_JOBS_MAX: usize = 24;
/// From this many waiting commits on, a caller that adds one yields to the writer.
pub const CALLER_YIELD_JOBS_MIN: usize = 6;
/// Prepared statements that each connection keeps.
pub(crate) const CACHED_STATEMENTS_MAX: usize = 96;
/// Entries of an inbox that are not exempt from the limit.
pub const INBOX_ENTRIES_MAX: usize = 256;
/// Bytes of an inbox.
pub const INBOX_BYTES_MAX: usize = 4 << 20;
/// Entries of an inbox from which on a client's submissions are refused even if they are exempt.
pub const INBOX_EXEMPT_ENTRIES_MAX: usize = 1_024;
/// How long the outcome of a submission is kept.
pub const OUTCOME_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;
/// Outdated outcomes that are deleted with one commit.
pub const OUTCOMES_PRUNED_PER_COMMIT_MAX: usize = 64;
/// Takeovers without progress after which a session is quarantined.
pub const TAKEOVERS_WITHOUT_PROGRESS_MAX: u32 = 3;
/// Sessions that do not match a query and are skipped for one page of a list.
pub const LIST_SKIPPED_SESSIONS_MAX: usize = 1_000;
/// Deletions that the change feed remembers.
pub const REMEMBERED_DELETIONS_MAX: usize = 4_096;
/// How long the leases of a node last after its last heartbeat, unless configured otherwise.
pub const LEASE_MS_DEFAULT: u64 = 8_000;
/// The shortest lease that can be configured.
pub const LEASE_MS_MIN: u64 = 500;
/// Connections of a node to its database, except those that write groups of commits.
pub const OPERATION_CONNECTIONS_MAX: usize = 8;
/// Groups of commits that a node writes at the same time.
pub const CONCURRENT_GROUPS_MAX: usize = 2;
/// Up to this many commits are not collected while others are being written.
pub const UNGROUPED_COMMITS_MAX: usize = 8;
/// From this many waiting commits on, a group is written beside another one.
pub const FURTHER_GROUP_COMMITS_MIN: usize = 32;
/// Commits that wait for the writer. Further callers wait until there is room.
pub const WRITE_QUEUE_JOBS_MAX: usize = 4_096;
/// Attempts of a transaction that collides with others.
pub const CONFLICT_ATTEMPTS_MAX: u32 = 8;
/// How long to wait for a connection to the database.
pub const CONNECT_MS_MAX: u64 = 5_000;
/// How long to wait for the database when a node ends.
pub const SHUTDOWN_MS_MAX: u64 = 2_000;
/// Rows of the journal that are read at once.
pub const JOURNAL_ROWS_READ_MAX: usize = 256;
/// Sessions that are read at once for a list.
pub const LIST_SCAN_ROWS_MAX: usize = 128;
/// Changes of the session list that get their numbers at once.
pub const CHANGES_NUMBERED_MAX: usize = 10_000;
/// Heartbeats between two prunings of outdated rows.
pub const HEARTBEATS_PER_PRUNING: u64 = 30;
/// Outdated outcomes that are deleted at once.
pub const OUTCOMES_PRUNED_MAX: i64 = 1_000;
/// How long the row of a dead node is kept.
pub const DEAD_NODE_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;
/// Longest host name in the name of a node, in bytes.
pub const HOST_NAME_BYTES_MAX: usize = 64;
/// Time in which an empty token bucket becomes full, in milliseconds.
pub const BUCKET_FILL_MS: f64 = 60_000.0;
/// Outdated rows of each kind of shared state that are deleted at once.
pub const SHARED_ROWS_PRUNED_MAX: i64 = 1_000;
