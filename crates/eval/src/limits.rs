//! All limits of the crate.

/// Bytes of the file of a conversation.
pub const CONVERSATION_BYTES_MAX: usize = 64 * 1024;
/// Messages that a simulated user sends in one conversation.
pub const CONVERSATION_TURNS_MAX: usize = 40;
/// Rules, lines or expectations of a conversation.
pub const CONVERSATION_ITEMS_MAX: usize = 100;
/// Characters of a message of the simulated user.
pub const SIMULATED_MESSAGE_CHARS_MAX: usize = 8_000;
/// Conversations of one evaluation.
pub const CONVERSATIONS_MAX: usize = 500;
/// Files that the workspace of a conversation begins with.
pub const FIXTURE_FILES_MAX: usize = 50;
/// Checks, or allowed commands, of the workspace of a conversation.
pub const FIXTURE_COMMANDS_MAX: usize = 20;
/// How long a turn may take before the conversation is given up.
pub const EVALUATED_TURN_MS_MAX: u64 = 45 * 60 * 1_000;
/// The same for a turn in a workspace, which contains the whole work.
pub const EVALUATED_WORK_MS_MAX: u64 = 6 * 60 * 60 * 1_000;
/// Events read from a journal at a time.
pub(crate) const EVENTS_PAGE_MAX: usize = 1_000;
/// Notes about failures that are kept for each measure.
pub(crate) const FAILURE_NOTES_MAX: usize = 12;
/// Characters of a text that a note quotes.
pub(crate) const NOTE_CHARS_MAX: usize = 80;
/// Characters of a sentence from which a repetition of the prompt is recognised.
pub(crate) const ECHOED_SENTENCE_CHARS_MIN: usize = 50;
/// Results that are kept; the oldest is removed first.
pub const RESULTS_MAX: usize = 200;
/// Bytes of the file of results.
pub const RESULTS_BYTES_MAX: u64 = 16 << 20;
/// Words of a text below which its language is not judged.
pub(crate) const LANGUAGE_WORDS_MIN: usize = 6;
/// Lines that begin with a field of a handover, from which a reply counts as a handover.
pub(crate) const HANDOVER_FIELD_LINES_MIN: usize = 2;
