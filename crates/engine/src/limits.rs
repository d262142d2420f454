//! The engine's limits, in one place.

/// Messages that wait in one session's mailbox. A sender waits while it is full.
pub const MAILBOX_MESSAGES_MAX: usize = 256;
/// Updates buffered for a slow subscriber. After that it reads from the store.
pub const UPDATES_BUFFERED_MAX: usize = 1_024;
/// Parked sessions whose state stays in memory.
pub const PARKED_SESSIONS_MAX: usize = 64;
/// Sessions in memory from which on parked ones are evicted at once, not in the next maintenance round.
pub const EVICTION_SESSIONS_MIN: usize = 2 * PARKED_SESSIONS_MAX;
/// How long to collect sessions before such an eviction.
pub const EVICTION_DELAY_MS: u64 = 5;
/// Bytes of text cached for a parked session.
pub const PARKED_TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of text cached for an active session. Beyond that, texts that no prompt needs are evicted.
pub const CACHED_TEXT_BYTES_MAX: usize = 16 << 20;
/// How long a parked session keeps its lease.
pub const PARKED_LEASE_MS_MAX: u64 = 1_000;
/// Events after which a new snapshot is saved.
pub const SNAPSHOT_EVENTS_MIN: u64 = 256;
/// Events read from the store at a time.
pub const READ_EVENTS_MAX: usize = 1_024;
/// Concurrent calls to one model, unless configured otherwise.
pub const MODEL_CONCURRENT_CALLS_MAX: usize = 64;
/// Longest duration of one answer, even while it keeps streaming.
pub const ANSWER_MS_MAX: u64 = 30 * 60 * 1_000;
/// The end of a reply that is examined for endless repetition, in bytes. About 1,000 tokens.
pub const REPETITION_WINDOW_BYTES: usize = 4_096;
/// The longest passage whose endless repetition is recognised, in bytes.
pub const REPETITION_PASSAGE_BYTES_MAX: usize = 512;
/// How much text arrives between two such examinations, in bytes.
pub const REPETITION_CHECK_BYTES: usize = 256;
/// Consecutive failures after which a provider's circuit breaker opens.
pub const BREAKER_FAILURES_MAX: u32 = 5;
/// How long a circuit breaker stays open the first time.
pub const BREAKER_OPEN_MS_MIN: u64 = 5_000;
/// How long a circuit breaker stays open at most.
pub const BREAKER_OPEN_MS_MAX: u64 = 60_000;
/// Shortest wait between two attempts to write to a failing store.
pub const WRITE_RETRY_MS_MIN: u64 = 50;
/// Longest wait between two attempts to write to a failing store.
pub const WRITE_RETRY_MS_MAX: u64 = 5_000;
/// How often the store is polled for events written by other processes, once for all subscribers.
pub const HEAD_POLL_MS: u64 = 500;
/// Sessions polled with one query.
pub const HEAD_POLL_SESSIONS_MAX: usize = 1_024;
/// Longest wait for running turns at shutdown. What is unfinished then is left to recovery.
pub const SHUTDOWN_MS_MAX: u64 = 5_000;
/// Longest wait, at shutdown, for a session to record the results that have already arrived.
pub const DRAIN_MS_MAX: u64 = 1_000;
/// Wait after a tick that changed nothing, before the next one.
pub const TICK_RETRY_MS: u64 = 1_000;
/// Longest run of a tool.
pub const TOOL_RUN_MS_MAX: u64 = 10 * 60 * 1_000;
/// How often the engine looks for sessions that a dead process left unfinished.
pub const RECOVERY_POLL_MS: u64 = 30_000;
/// Sessions that are resumed at the same time. The others follow when these have been loaded and their work started.
pub const CONCURRENT_RESUMES_MAX: usize = 32;
/// Wait before a session whose task panicked is resumed, unless a message arrives earlier.
pub const PANIC_RESUME_MS: u64 = 5_000;
/// Ended calls that a subscription remembers, so that it drops text of theirs that arrives late.
pub const ENDED_CALLS_REMEMBERED_MAX: usize = 256;
/// Longest word whose token count is cached, in bytes.
pub(crate) const CACHED_WORD_BYTES_MAX: usize = 24;
