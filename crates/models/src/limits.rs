//! Every limit of this crate, in one place.

/// Longest answer taken from a model: text, reasoning and tool arguments together.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// Most tool calls taken from one answer.
pub const REPLY_TOOL_CALLS_MAX: usize = 64;

/// Most names listed when a model is not found.
pub const NAMES_SHOWN_MAX: usize = 12;

/// Longest scenario file.
pub const SCENARIO_BYTES_MAX: usize = 4 << 20;
/// Most `[[reply]]` entries, and most `[[say]]` entries, in one scenario.
pub const SCENARIO_ENTRIES_MAX: usize = 4096;
/// Longest glob pattern in a scenario; matching costs at most this times the length of the message.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Requests a scripted model remembers unless told otherwise; the oldest are forgotten first.
pub const SEEN_MAX: usize = 1024;
/// Entries named when no scripted reply fits.
pub const MISS_ENTRIES_SHOWN_MAX: usize = 3;
/// Characters of a text quoted in an error.
pub const QUOTED_CHARS_MAX: usize = 120;

/// Window the scripted and the rehearsal model claim unless told otherwise.
pub const STAND_IN_WINDOW_TOKENS: u32 = 128_000;

/// Bytes of one message the rehearsal model reads.
pub const REHEARSAL_MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Messages of one speaker the rehearsal model reads: the first, and the newest up to this many.
pub const REHEARSAL_MESSAGES_MAX: usize = 500;
/// Bytes of instructions the rehearsal model searches for block templates.
pub const REHEARSAL_INSTRUCTIONS_BYTES_MAX: usize = 256 << 10;
/// Block templates the rehearsal model takes notice of.
pub const REHEARSAL_TEMPLATES_MAX: usize = 16;
/// How deep the rehearsal model follows a schema.
pub const REHEARSAL_SCHEMA_DEPTH_MAX: usize = 24;
/// Values the rehearsal model puts into one JSON answer.
pub const REHEARSAL_SCHEMA_VALUES_MAX: usize = 2000;
/// Longest string it writes to please a `minLength`.
pub const REHEARSAL_STRING_CHARS_MAX: usize = 10_000;
/// Bytes filled into the placeholders of one hint; those beyond stay empty.
pub const REHEARSAL_HINT_BYTES_MAX: usize = 1 << 20;
