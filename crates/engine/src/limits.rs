//! Every limit of the engine, in one place.

/// Inputs that wait for one session's task; a sender waits when there are more.
pub const MAILBOX_MESSAGES_MAX: usize = 256;
/// Updates kept for a subscriber that reads slowly, after which it reads from the store.
pub const UPDATES_BUFFERED_MAX: usize = 1_024;
/// Sessions at rest whose state is kept at hand.
pub const PARKED_SESSIONS_MAX: usize = 64;
/// Sessions in memory from which on those at rest are looked through at once, and not at the next round.
pub const EVICTION_SESSIONS_MIN: usize = 2 * PARKED_SESSIONS_MAX;
/// How long sessions are then gathered before that is done.
pub const EVICTION_DELAY_MS: u64 = 5;
/// Bytes of texts kept at hand for one session at rest.
pub const PARKED_TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of texts kept at hand for a session at work, beyond which those no prompt needs are let go.
pub const CACHED_TEXT_BYTES_MAX: usize = 16 << 20;
/// How long a session at rest stays claimed.
pub const PARKED_LEASE_MS_MAX: u64 = 1_000;
/// Events after which a new snapshot is kept.
pub const SNAPSHOT_EVENTS_MIN: u64 = 256;
/// Events read from the store at a time.
pub const READ_EVENTS_MAX: usize = 1_024;
/// Calls to one model at once, where the configuration says nothing.
pub const MODEL_CONCURRENT_CALLS_MAX: usize = 64;
/// Longest an answer may take, however lively it is.
pub const ANSWER_MS_MAX: u64 = 30 * 60 * 1_000;
/// Failures in a row after which a provider is left alone for a while.
pub const BREAKER_FAILURES_MAX: u32 = 5;
/// How long it is left alone at first.
pub const BREAKER_OPEN_MS_MIN: u64 = 5_000;
/// How long it is left alone at the most.
pub const BREAKER_OPEN_MS_MAX: u64 = 60_000;
/// Shortest wait between two tries to write what the store did not take.
pub const WRITE_RETRY_MS_MIN: u64 = 50;
/// Longest wait between two tries to write what the store did not take.
pub const WRITE_RETRY_MS_MAX: u64 = 5_000;
/// How often the store is looked at, for all listeners together, for what another process wrote.
pub const HEAD_POLL_MS: u64 = 500;
/// Sessions asked about at one look.
pub const HEAD_POLL_SESSIONS_MAX: usize = 1_024;
/// Longest wait for running turns at shutdown, after which they are left to recovery.
pub const SHUTDOWN_MS_MAX: u64 = 5_000;
/// Longest wait, at shutdown, for a session to record the results that have already arrived.
pub const DRAIN_MS_MAX: u64 = 1_000;
/// Wait after a moment that was to change something and did not, before it is looked at again.
pub const TICK_RETRY_MS: u64 = 1_000;
/// Longest run of a tool.
pub const TOOL_RUN_MS_MAX: u64 = 10 * 60 * 1_000;
/// How often sessions are looked for that a dead process left undone.
pub const RECOVERY_POLL_MS: u64 = 30_000;
/// Calls a listener knows to be over, so that words that come late are not given out.
pub const ENDED_CALLS_REMEMBERED_MAX: usize = 256;
