//! Every limit of this crate, in one place.
/// The longest name a session may have.
pub const SESSION_ID_BYTES_MAX: usize = 256;
/// The last place a journal has: what every backend can count to.
pub const SEQ_MAX: u64 = i64::MAX as u64;
/// Connections that read at once.
pub const READER_CONNECTIONS_MAX: usize = 4;
/// Names tried for a new process before giving up.
pub const LOCK_NAME_ATTEMPTS_MAX: usize = 16;
/// Shorter than this, a frame's own header eats what it saves.
pub const COMPRESS_BYTES_MIN: usize = 64;
/// Shorter than this, a text is kept as it is: compressing it would be a tenth of all that a turn takes.
pub const COMPRESS_TEXT_BYTES_MIN: usize = 1_024;
/// Allocated at once on the word of a length read from disk; more only as bytes really come.
pub const PREALLOCATED_BYTES_MAX: usize = 1 << 20;
/// Records of one commit that are kept together, in bytes, so that whoever wants a few of them need not read all. One that is longer
/// is kept by itself.
pub const JOURNAL_ROW_BYTES_MAX: usize = 64 << 10;
/// The longest value SQLite takes.
pub const SQLITE_VALUE_BYTES_MAX: usize = 1_000_000_000;
/// Complaints taken from one integrity check.
pub const INTEGRITY_PROBLEMS_MAX: u32 = 20;
/// Commits written in one transaction.
pub const GROUP_COMMIT_JOBS_MAX: usize = 512;
/// Bytes written in one transaction.
pub const GROUP_COMMIT_BYTES_MAX: usize = 4 << 20;
/// From so many jobs in a group on, the writer lets others run once before it commits.
pub const WRITER_YIELD_JOBS_MIN: usize = 4;
/// Past this readers are waited for, and the file is cut short.
pub const WAL_BYTES_MAX: u64 = 64 << 20;
/// New addresses are listed until there are so many, or one for so many texts, before they are moved into the index.
pub const UNINDEXED_ADDRESSES_MIN: usize = 1_024;
/// See [`NEWS_MIN`].
pub const BODIES_PER_UNINDEXED_ADDRESS: i64 = 64;
/// So many are listed at most, however many texts there are.
pub const UNINDEXED_ADDRESSES_MAX: usize = 16_384;
/// So many waiting commits are written together; of more, half.
pub const UNSPLIT_QUEUE_JOBS_MAX: usize = 24;
/// Where so many commits wait, whoever brings another lets the writer run first.
pub const CALLER_YIELD_JOBS_MIN: usize = 6;
