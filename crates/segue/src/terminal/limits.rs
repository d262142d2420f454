//! Every limit of the conversation at the keyboard, in one place.

/// Lines kept for the next conversation's arrow keys.
pub const HISTORY_LINES_MAX: usize = 1_000;
/// Bytes of a message that is still kept there.
pub const HISTORY_MESSAGE_BYTES_MAX: usize = 4_096;
/// Characters of a word that mixes letters and digits before it is taken for a key.
pub const SECRET_WORD_CHARS_MIN: usize = 24;
/// Bytes of one message before we stop adding lines to it; the engine refuses it with the right words.
pub const DRAFT_BYTES_MAX: usize = 16 << 20;
/// Exchanges shown when a conversation is taken up again.
pub const RECAP_EXCHANGES_MAX: usize = 3;
/// Events looked through for them.
pub const RECAP_EVENTS_MAX: u64 = 1_024;
/// Characters of a message that is shown shortened.
pub const RECAP_CHARS_MAX: usize = 240;
/// Events looked through at a time when going back in a journal.
pub const LOOK_BACK_EVENTS_MAX: u64 = 1_024;
/// Sessions listed.
pub const SESSIONS_LISTED_MAX: usize = 20;
/// Columns of a terminal that does not say how many it has.
pub const COLUMNS_MIN: usize = 20;
