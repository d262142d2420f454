//! Every limit of the server, in one place.

/// Largest body of a request, in bytes; imports have their own.
pub const BODY_BYTES_MAX: usize = 2 << 20;
/// Largest body of a request that can hold images, in bytes; clients of the OpenAI-compatible door send all of them each time.
pub const IMAGE_BODY_BYTES_MAX: usize = 32 << 20;
/// Largest session taken by an import, in bytes.
pub const IMPORT_BYTES_MAX: usize = 256 << 20;
/// How long a client may take to send its headers.
pub const HEADERS_MS_MAX: u64 = 10_000;
/// How long a client may take to send its body.
pub const BODY_MS_MAX: u64 = 60_000;
/// How long nothing of what is ready may be taken by a client before it is cut off.
pub const WRITE_STALL_MS_MAX: u64 = 30_000;
/// Connections at once.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Requests a minute of one key, or of all who need none.
pub const REQUESTS_PER_MINUTE_MAX: u32 = 60_000;
/// Open streams of one key, or of all who need none.
pub const STREAMS_MAX: usize = 2_000;
/// Sessions that may be at work at once.
pub const TURNS_MAX: usize = 1_024;
/// How often a stream says that it is still there.
pub const HEARTBEAT_MS: u64 = 15_000;
/// How soon a client of a stream should come back.
pub const RECONNECT_MS: u64 = 500;
/// Longest wait for connections to end at shutdown, once everything was said.
pub const SHUTDOWN_MS_MAX: u64 = 2_000;
/// Sessions on a page of a list.
pub const SESSIONS_PAGE_MAX: usize = 200;
/// Sessions on a page where nothing is said.
pub const SESSIONS_PAGE_DEFAULT: usize = 50;
/// Events on a page.
pub const EVENTS_PAGE_MAX: usize = 1_000;
/// Events on a page where nothing is said.
pub const EVENTS_PAGE_DEFAULT: usize = 200;
/// Turns on a page.
pub const TURNS_PAGE_MAX: usize = 200;
/// Turns on a page where nothing is said.
pub const TURNS_PAGE_DEFAULT: usize = 50;
/// Calls on a page.
pub const CALLS_PAGE_MAX: usize = 1_000;
/// Calls on a page where nothing is said.
pub const CALLS_PAGE_DEFAULT: usize = 100;
/// Facts in one answer.
pub const FACTS_MAX: usize = 1_000;
/// Texts in one answer.
pub const TEXTS_MAX: usize = 200;
/// Events read from a journal at a time.
pub const READ_EVENTS_MAX: usize = 1_024;
/// Sessions whose account is kept at hand.
pub const HISTORIES_CACHED_MAX: usize = 64;
/// Characters of a text in an event's line.
pub const SUMMARY_TEXT_CHARS_MAX: usize = 200;
/// Tries to find a name for a session that nobody has.
pub const NAME_ATTEMPTS_MAX: usize = 8;
/// Longest name of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 24;
/// Longest name of a key, in characters.
pub const KEY_NAME_CHARS_MAX: usize = 80;
/// Keys at once.
pub const KEYS_MAX: usize = 1_000;
/// How long the keys in memory are trusted before the file is looked at again.
pub const KEYS_CACHE_MS: u64 = 500;
/// How often the list of sessions is looked through for changes, while somebody wants to know.
pub const CHANGES_POLL_MS: u64 = 500;
/// Sessions looked at for changes.
pub const CHANGES_SESSIONS_MAX: usize = 500;
/// Changes kept for a listener that reads slowly.
pub const CHANGES_BUFFERED_MAX: usize = 256;
/// Longest title, in characters; the engine keeps fewer.
pub const TITLE_CHARS_MAX: usize = 200;
/// Conversations of the OpenAI-compatible door that are remembered by what was said in them; others are searched for.
pub const CONVERSATIONS_CACHED_MAX: usize = 10_000;
/// Sessions looked through for a conversation that is not remembered.
pub const CANDIDATE_SESSIONS_MAX: usize = 20;
/// Characters of a reply that sessions are searched for.
pub const SEARCH_TEXT_CHARS_MAX: usize = 80;
/// Messages of a conversation that a client may send along.
pub const HISTORY_MESSAGES_MAX: usize = 10_000;
/// Webhooks at once.
pub const WEBHOOKS_MAX: usize = 100;
/// Longest address of a webhook, in bytes.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2_048;
/// How often the journal is looked at for webhooks.
pub const WEBHOOK_POLL_MS: u64 = 500;
/// How often a process that does not deliver asks whether it may.
pub const WEBHOOK_LOCK_POLL_MS: u64 = 5_000;
/// How long a webhook may take to answer.
pub const WEBHOOK_RESPONSE_MS_MAX: u64 = 10_000;
/// Deliveries under way at once.
pub const WEBHOOK_CONCURRENT_DELIVERIES_MAX: usize = 16;
/// Events of one session delivered in a row before others get their turn.
pub const WEBHOOK_BATCH_EVENTS_MAX: usize = 64;
/// Tries shown of one webhook.
pub const WEBHOOK_ATTEMPTS_KEPT_MAX: usize = 50;
/// Waits before each further try, after which an event is given up.
pub const WEBHOOK_RETRY_DELAYS_MS: [u64; 6] = [5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000];
/// How long a session that is quiet is remembered by webhooks.
pub const WEBHOOK_IDLE_MS_MAX: u64 = 3_600_000;
/// Sessions remembered for one conversation.
pub const SESSIONS_PER_CONVERSATION_MAX: usize = 8;
/// Answers shorter than this are not worth packing.
pub const COMPRESSED_BYTES_MIN: u64 = 860;
