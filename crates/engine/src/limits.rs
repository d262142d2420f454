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
/// The longest passage whose endless repetition is recognised in any text, in bytes.
pub const REPETITION_PASSAGE_BYTES_MAX: usize = 512;
/// The shortest passage of prose that may not be said twice and then begun again, in bytes. About two sentences.
pub const REPEATED_PROSE_BYTES_MIN: usize = 192;
/// How much of such a passage must be said for the third time, in bytes.
pub const REPEATED_PROSE_BEGINNING_BYTES: usize = 64;
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
/// Longest wait, at shutdown, for a session to record the results of what is running, unless configured otherwise.
pub const DRAIN_MS_MAX: u64 = 1_000;
/// Wait after a tick that changed nothing, before the next one.
pub const TICK_RETRY_MS: u64 = 1_000;
/// Shortest time between two progress updates of a tool run. Of the reports in between, only the newest is published.
pub const TOOL_PROGRESS_MS_MIN: u64 = 200;
/// Longest progress text of a tool run, in bytes. Only the end of a longer text is published.
pub const TOOL_PROGRESS_BYTES_MAX: usize = 4 << 10;
/// How often the engine looks for the nodes that hold sessions with subscribers here.
pub const HOLDER_POLL_MS: u64 = 100;
/// Sessions whose nodes are looked for at once.
pub const LIVE_SESSIONS_MAX: usize = 256;
/// How often a stream of live updates checks that the session is still held here.
pub const LIVE_STREAM_CHECK_MS: u64 = 500;
/// How often leases that expire are renewed within the length of a lease.
pub const RENEWALS_PER_LEASE: u64 = 4;
/// How often the engine looks for sessions of dead processes within the length of a lease, if leases expire.
pub const RECOVERIES_PER_LEASE: u64 = 8;
/// How often the engine looks for sessions that a dead process left unfinished.
pub const RECOVERY_POLL_MS: u64 = 30_000;
/// Children of a session, or unfinished deletions, that are read at once.
pub const DELETIONS_PAGE_MAX: usize = 64;
/// How long a session that is about to be deleted may take to close.
pub const CLOSE_MS_MAX: u64 = 5_000;
/// Sessions with inbox entries that are read at once.
pub const INBOX_SESSIONS_PAGE_MAX: usize = 64;
/// Inbox entries that a session reads at once.
pub const INBOX_ENTRIES_PAGE_MAX: usize = 16;
/// First wait for the outcome of a submission; it doubles.
pub const OUTCOME_POLL_MS_MIN: u64 = 20;
/// Longest wait between two looks for the outcome of a submission.
pub const OUTCOME_POLL_MS_MAX: u64 = 500;
/// How long a caller waits for the outcome of a submission before it gets the submission's id instead.
pub const OUTCOME_WAIT_MS_MAX: u64 = 10_000;
/// Pages of the store that are read for one list, if many sessions do not match.
pub const LIST_PAGES_MAX: usize = 16;
/// Sessions with pending work that are read at once.
pub const PENDING_SESSIONS_PAGE_MAX: usize = 256;
/// Sessions that are resumed at the same time. The others follow when these have been loaded and their work started.
pub const CONCURRENT_RESUMES_MAX: usize = 32;
/// Wait before a session whose task panicked is resumed, unless a message arrives earlier.
pub const PANIC_RESUME_MS: u64 = 5_000;
/// Ended calls and tool runs that a subscription remembers, so that it drops text and progress that arrive late.
pub const ENDED_CALLS_REMEMBERED_MAX: usize = 256;
/// Longest word whose token count is cached, in bytes.
pub(crate) const CACHED_WORD_BYTES_MAX: usize = 24;
/// The maximum number of line pairs that a diff compares. Beyond it the rest is shown as replaced.
pub(crate) const DIFF_CELLS_MAX: usize = 4_000_000;
/// How often a process looks whether another one has opened a session on demand.
pub(crate) const ON_DEMAND_POLLS_MAX: u32 = 40;
/// Wait between two looks at a session that another process opens on demand.
pub(crate) const ON_DEMAND_POLL_MS: u64 = 50;

/// Most flows that are kept in memory for sessions with a recorded definition of their own.
pub const LOADED_FLOWS_MAX: usize = 256;
