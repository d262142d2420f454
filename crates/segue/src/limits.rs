//! Every limit of the program, in one place.

/// Largest configuration file read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Most bytes taken from standard input as a message; the engine's own limit is lower and says so in its own words.
pub const STDIN_BYTES_MAX: u64 = 64 << 20;
/// Longest wait for the answer to a trial call.
pub const TRIAL_CALL_MS_MAX: u64 = 60_000;
/// Characters shown of it.
pub const TRIAL_REPLY_CHARS_MAX: usize = 60;
/// Sessions read from the list at a time.
pub const SESSIONS_PAGE_MAX: usize = 500;
/// Sessions, calls or names listed in an error.
pub const NAMES_SHOWN_MAX: usize = 8;
/// Events read from a journal at a time.
pub const EVENTS_PAGE_MAX: usize = 512;
/// Narrowest line a table is fitted to.
pub const TABLE_WIDTH_MIN: usize = 40;
/// Columns of output that goes to no terminal.
pub const PLAIN_WIDTH_MAX: usize = 100;
/// Lines of each list of a graph that are printed; of the rest only the number.
pub const GRAPH_LINES_MAX: usize = 40;
/// Characters of a text that a timeline shows without `--full`.
pub const SHORT_TEXT_CHARS_MAX: usize = 200;
/// Lines kept for the next conversation's arrow keys.
pub const HISTORY_LINES_MAX: usize = 1_000;
/// Bytes of a message that is still kept there.
pub const HISTORY_MESSAGE_BYTES_MAX: usize = 4_096;
/// Characters of a word that mixes letters and digits before it is taken for a key.
pub const SECRET_WORD_CHARS_MIN: usize = 24;
/// Most bytes of one message that is typed or piped in; the engine's own limit is lower and says so in its own words.
pub const DRAFT_BYTES_MAX: usize = 16 << 20;
/// Exchanges shown when a conversation is taken up again.
pub const RECAP_EXCHANGES_MAX: usize = 3;
/// Events looked through for them.
pub const RECAP_EVENTS_MAX: u64 = 1_024;
/// Columns of a message that is shown shortened.
pub const RECAP_COLUMNS_MAX: usize = 240;
/// Sessions listed in a conversation.
pub const SESSIONS_LISTED_MAX: usize = 20;
/// Columns of the narrowest terminal a conversation is fitted to.
pub const TERMINAL_COLUMNS_MIN: usize = 20;
/// The narrowest column that a text beside another is put into.
pub const COLUMN_WIDTH_MIN: usize = 36;
/// Events asked of a server at a time.
pub const REMOTE_EVENTS_MAX: usize = 1_000;
/// Texts, or sessions, asked of a server at a time.
pub const REMOTE_TEXTS_MAX: usize = 200;
/// Wait before a server is tried again.
pub const RECONNECT_DELAY_MS: u64 = 500;
/// Tries to reach a server again before that is told.
pub const RECONNECTS_MAX: usize = 60;
/// Events read from a journal at a time.
pub const EVENTS_BATCH_MAX: usize = 1_024;
