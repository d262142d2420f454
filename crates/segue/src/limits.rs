//! All limits of the program.

/// Bytes of a configuration file.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Folders whose configuration is remembered as trusted; the oldest is forgotten first.
pub(crate) const TRUSTED_FOLDERS_MAX: usize = 1_000;
/// Bytes of a message read from standard input. The engine has a lower limit with an error of its own.
pub(crate) const STDIN_BYTES_MAX: u64 = 64 << 20;
/// Time to wait for the answer to a trial call of `segue doctor`.
pub(crate) const TRIAL_CALL_MS_MAX: u64 = 60_000;
/// Characters shown of the answer to a trial call.
pub(crate) const TRIAL_REPLY_CHARS_MAX: usize = 60;
/// Failures listed after an evaluation.
pub(crate) const FAILURES_SHOWN_MAX: usize = 20;
/// Sessions read from the store at a time.
pub(crate) const SESSIONS_PAGE_MAX: usize = 500;
/// Sessions, calls or names listed in an error.
pub(crate) const NAMES_SHOWN_MAX: usize = 8;
/// Events read from a journal at a time.
pub(crate) const EVENTS_PAGE_MAX: usize = 512;
/// Columns of the narrowest table.
pub(crate) const TABLE_WIDTH_MIN: usize = 40;
/// Columns of output that does not go to a terminal.
pub(crate) const PLAIN_WIDTH_MAX: usize = 100;
/// Lines printed of each list of a graph artifact.
pub(crate) const GRAPH_LINES_MAX: usize = 40;
/// Characters of a text that a timeline shows without `--full`.
pub(crate) const SHORT_TEXT_CHARS_MAX: usize = 200;
/// Lines in the input history.
pub(crate) const HISTORY_LINES_MAX: usize = 1_000;
/// Bytes of a message that is saved in the input history.
pub(crate) const HISTORY_MESSAGE_BYTES_MAX: usize = 4_096;
/// Characters from which a word of letters and digits is taken for an API key.
pub(crate) const SECRET_WORD_CHARS_MIN: usize = 24;
/// Bytes of one message that is typed or piped in. The engine has a lower limit with an error of its own.
pub(crate) const DRAFT_BYTES_MAX: usize = 16 << 20;
/// Exchanges shown when a conversation is resumed.
pub(crate) const RECAP_EXCHANGES_MAX: usize = 3;
/// Events searched for these exchanges.
pub(crate) const RECAP_EVENTS_MAX: u64 = 1_024;
/// Columns of each message in them.
pub(crate) const RECAP_COLUMNS_MAX: usize = 240;
/// Sessions listed by `/sessions`.
pub(crate) const SESSIONS_LISTED_MAX: usize = 20;
/// Columns of the narrowest terminal that a conversation is formatted for.
pub(crate) const TERMINAL_COLUMNS_MIN: usize = 20;
/// Columns of the narrowest text in a side-by-side view.
pub(crate) const COLUMN_WIDTH_MIN: usize = 36;
/// Events requested from a server at a time.
pub(crate) const REMOTE_EVENTS_MAX: usize = 1_000;
/// Texts or sessions requested from a server at a time.
pub(crate) const REMOTE_TEXTS_MAX: usize = 200;
/// Delay before reconnecting to a server.
pub(crate) const RECONNECT_DELAY_MS: u64 = 500;
/// Attempts to reconnect to a server.
pub(crate) const RECONNECTS_MAX: usize = 60;
/// Events read at a time while a session is followed.
pub(crate) const EVENTS_BATCH_MAX: usize = 1_024;
/// Sessions with pending work that are counted for a message.
pub(crate) const PENDING_SESSIONS_SHOWN_MAX: usize = 1_000;
/// The arguments of a tool run in its line, in columns.
pub(crate) const TOOL_ARGUMENTS_CHARS_MAX: usize = 60;
/// Changed files in the line of a tool run.
pub(crate) const TOOL_CHANGES_SHOWN_MAX: usize = 3;
/// The progress of a tool in the progress line, in characters.
pub(crate) const TOOL_PROGRESS_CHARS_MAX: usize = 60;
/// How long a node of a cluster waits at shutdown for the calls and tools that are running, in milliseconds.
pub(crate) const NODE_DRAIN_MS_MAX: u64 = 20_000;

/// Open files of a server besides connections of clients: calls of models, tools and webhooks, the store, and the system.
pub(crate) const OPEN_FILES_BESIDES_CONNECTIONS: u64 = 2_048;
/// Longest name of a workspace, in characters.
pub(crate) const WORKSPACE_NAME_CHARS_MAX: usize = 64;
/// Most descendants of a session that a tree of sessions shows.
pub(crate) const TREE_SESSIONS_MAX: usize = 1_000;
/// Sessions listed at a time by a migration.
pub(crate) const MIGRATED_SESSIONS_PAGE: usize = 200;
/// Events copied with one commit by a migration.
pub(crate) const MIGRATED_RECORDS_MAX: usize = 512;
/// Inbox entries of a session that a migration copies; more than an inbox can have.
pub(crate) const MIGRATED_INBOX_ENTRIES_MAX: usize = 100_000;
