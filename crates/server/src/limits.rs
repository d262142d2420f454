//! All limits of the server.

/// Maximum size of a request body in bytes; imports have their own limit.
pub(crate) const BODY_BYTES_MAX: usize = 2 << 20;
/// Maximum size of a request body that may contain images, in bytes. OpenAI clients send all images with every request.
pub(crate) const IMAGE_BODY_BYTES_MAX: usize = 32 << 20;
/// Maximum size of an import in bytes.
pub(crate) const IMPORT_BYTES_MAX: usize = 256 << 20;
/// Maximum number of imports at the same time.
pub(crate) const IMPORTS_MAX: usize = 4;
/// Maximum time to receive the headers of a request.
pub(crate) const HEADERS_MS_MAX: u64 = 10_000;
/// Maximum time to receive the body of a request.
pub(crate) const BODY_MS_MAX: u64 = 60_000;
/// Maximum time without progress while a client reads a response.
pub(crate) const WRITE_STALL_MS_MAX: u64 = 30_000;
/// Maximum number of connections.
pub(crate) const CONNECTIONS_MAX: usize = 10_000;
/// Maximum number of requests per minute, per key; callers without a key share one budget.
pub(crate) const REQUESTS_PER_MINUTE_MAX: u32 = 60_000;
/// Maximum number of open streams, per key; callers without a key share one budget.
pub(crate) const STREAMS_MAX: usize = 2_000;
/// Maximum number of sessions with a running turn.
pub(crate) const TURNS_MAX: usize = 1_024;
/// Interval of keep-alive comments in a stream.
pub(crate) const HEARTBEAT_MS: u64 = 15_000;
/// Delay after which a streaming client should reconnect.
pub(crate) const RECONNECT_MS: u64 = 500;
/// Maximum time for connections to close at shutdown.
pub(crate) const SHUTDOWN_MS_MAX: u64 = 2_000;
/// Time for which the result of a readiness check is reused.
pub(crate) const READINESS_CACHE_MS: u64 = 1_000;
/// Longest wait for the check of the store.
pub(crate) const READINESS_MS_MAX: u64 = 3_000;
/// Maximum number of sessions on a page.
pub(crate) const SESSIONS_PAGE_MAX: usize = 200;
/// Default number of sessions on a page.
pub(crate) const SESSIONS_PAGE_DEFAULT: usize = 50;
/// Maximum number of events on a page.
pub(crate) const EVENTS_PAGE_MAX: usize = 1_000;
/// Default number of events on a page.
pub(crate) const EVENTS_PAGE_DEFAULT: usize = 200;
/// Maximum number of turns on a page.
pub(crate) const TURNS_PAGE_MAX: usize = 200;
/// Default number of turns on a page.
pub(crate) const TURNS_PAGE_DEFAULT: usize = 50;
/// Maximum number of calls on a page.
pub(crate) const CALLS_PAGE_MAX: usize = 1_000;
/// Default number of calls on a page.
pub(crate) const CALLS_PAGE_DEFAULT: usize = 100;
/// Maximum number of facts in a response.
pub(crate) const FACTS_MAX: usize = 1_000;
/// Maximum number of texts in a response.
pub(crate) const TEXTS_MAX: usize = 200;
/// Maximum number of events read from a journal at once.
pub(crate) const READ_EVENTS_MAX: usize = 1_024;
/// Maximum number of cached histories.
pub(crate) const HISTORIES_CACHED_MAX: usize = 64;
/// Maximum characters of a text in an event's summary.
pub(crate) const SUMMARY_TEXT_CHARS_MAX: usize = 200;
/// Maximum attempts to generate an unused session name.
pub(crate) const NAME_ATTEMPTS_MAX: usize = 8;
/// Maximum length of an owner's name in bytes.
pub(crate) const OWNER_BYTES_MAX: usize = 24;
/// Maximum length of a key's name in characters.
pub(crate) const KEY_NAME_CHARS_MAX: usize = 80;
/// Maximum number of keys.
pub(crate) const KEYS_MAX: usize = 1_000;
/// Number of days for which the usage of keys is kept.
pub(crate) const USAGE_DAYS_KEPT: u64 = 8;
/// Delay before a call whose limits cannot be checked, because the database cannot be reached, is checked again.
pub(crate) const USAGE_READ_RETRY_MS: u64 = 500;
/// Attempts to check the limits of a call while the database cannot be reached.
pub(crate) const USAGE_READ_ATTEMPTS_MAX: usize = 1_200;
/// Longest wait for the limits of a call while the database cannot be reached.
pub(crate) const USAGE_READ_MS_MAX: u64 = 10 * 60 * 1_000;
/// Time for which cached keys are used before the file is checked again.
pub(crate) const KEYS_CACHE_MS: u64 = 500;
/// Attempts to change a record that other processes change at the same time.
pub(crate) const RECORD_ATTEMPTS_MAX: usize = 16;
/// Time for which a node is counted as running a turn after it last said so.
pub(crate) const TURN_SLOT_MS: u64 = 15_000;
/// Age of a turn's slot at which it is renewed.
pub(crate) const TURN_SLOT_RENEWAL_MS: u64 = 5_000;
/// Time for which an admitted turn is counted if this node makes no call for it; the node that does counts it from then on.
pub(crate) const TURN_SLOT_GRACE_MS: u64 = 1_500;
/// Interval at which a node tells others which turns it runs.
pub(crate) const TURN_REFRESH_MS: u64 = 500;
/// Requests that a node takes from a shared budget at once, as a part of those of a minute.
pub(crate) const REQUEST_BATCHES_PER_MINUTE: u32 = 60;
/// Time after which requests that a node took and did not use are dropped.
pub(crate) const REQUEST_BATCH_MS_MAX: u64 = 60_000;
/// Time after which a node asks again for requests of an empty budget.
pub(crate) const EMPTY_BUDGET_MS_MAX: u64 = 1_000;
/// Maximum number of sessions in one combined stream.
pub(crate) const STREAMED_SESSIONS_MAX: usize = 64;
/// Interval at which the session list is checked for changes while a client is subscribed.
pub(crate) const CHANGES_POLL_MS: u64 = 500;
/// Number of most recent sessions that are checked for changes.
pub(crate) const CHANGES_SESSIONS_MAX: usize = 500;
/// Maximum number of changes buffered for a slow subscriber.
pub(crate) const CHANGES_BUFFERED_MAX: usize = 256;
/// Maximum length of a title in characters.
pub(crate) const TITLE_CHARS_MAX: usize = 200;
/// Maximum number of OpenAI conversations whose session is cached; others are searched for.
pub(crate) const CONVERSATIONS_CACHED_MAX: usize = 10_000;
/// Tool calls of a conversation that are asked for their session.
pub(crate) const CALLED_SESSIONS_MAX: usize = 64;
/// Maximum number of sessions searched for a conversation that is not cached.
pub(crate) const CANDIDATE_SESSIONS_MAX: usize = 20;
/// Characters of a reply that are used as the search text.
pub(crate) const SEARCH_TEXT_CHARS_MAX: usize = 80;
/// Maximum number of searches of one owner at the same time. Fewer than the store has readers.
pub(crate) const SEARCHES_PER_OWNER_MAX: usize = 2;
/// Maximum number of messages in an OpenAI request.
pub(crate) const HISTORY_MESSAGES_MAX: usize = 10_000;
/// Maximum size of a conversation that is parsed without a thread of its own, in bytes.
pub(crate) const CONVERSATION_INLINE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of webhooks.
pub(crate) const WEBHOOKS_MAX: usize = 100;
/// Maximum length of a webhook URL in bytes.
pub(crate) const WEBHOOK_URL_BYTES_MAX: usize = 2_048;
/// Interval at which journals are checked for events to deliver.
pub(crate) const WEBHOOK_POLL_MS: u64 = 500;
/// Time for which a server may deliver webhooks after it last said so. Then another one continues.
pub(crate) const WEBHOOK_SLOT_MS: u64 = 10_000;
/// Interval at which a server renews its right to deliver webhooks, or tries to get it.
pub(crate) const WEBHOOK_SLOT_POLL_MS: u64 = 2_500;
/// The longest time for which a shutdown waits for the receivers of webhooks, so that it is known what they got.
pub(crate) const WEBHOOK_SHUTDOWN_MS_MAX: u64 = 5_000;
/// Maximum time for a webhook to respond.
pub(crate) const WEBHOOK_RESPONSE_MS_MAX: u64 = 10_000;
/// Maximum number of concurrent deliveries to one receiver.
pub(crate) const WEBHOOK_CONCURRENT_DELIVERIES_MAX: usize = 16;
/// Maximum number of events of one session delivered in a row.
pub(crate) const WEBHOOK_BATCH_EVENTS_MAX: usize = 64;
/// Number of delivery attempts kept per webhook.
pub(crate) const WEBHOOK_ATTEMPTS_KEPT_MAX: usize = 50;
/// Delays before each retry; after the last one the event is dropped.
pub(crate) const WEBHOOK_RETRY_DELAYS_MS: [u64; 6] = [5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000];
/// Maximum number of idle sessions whose deliveries a webhook remembers.
pub(crate) const WEBHOOK_IDLE_SESSIONS_MAX: usize = 10_000;
/// Maximum number of sessions from which a webhook delivers in one round.
pub(crate) const WEBHOOK_DUE_SESSIONS_MAX: usize = 200;
/// How far before its last change the events of a session are delivered if the clock was set back.
pub(crate) const WEBHOOK_CLOCK_JUMP_WINDOW_MS: u64 = 60_000;
/// Maximum number of cached sessions per conversation.
pub(crate) const SESSIONS_PER_CONVERSATION_MAX: usize = 8;
/// Minimum size of a response that is compressed.
pub(crate) const COMPRESSED_BYTES_MIN: u64 = 860;
/// Longest wait for a connection to another node.
pub(crate) const LIVE_CONNECT_MS_MAX: u64 = 1_000;
/// How often a stream of live words shows that its node is alive.
pub(crate) const LIVE_HEARTBEAT_MS: u64 = 1_000;
/// Longest silence of a stream of live words, after which its node counts as gone.
pub(crate) const LIVE_SILENCE_MS_MAX: u64 = 3_000;
/// Longest line of a stream of live words, in bytes.
pub(crate) const LIVE_LINE_BYTES_MAX: usize = 8 << 20;
