//! Every limit of core, in one place. Nothing that grows, loops or repeats is without one.

/// Longest message a user or an agent may send, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Most images a message may show.
pub const IMAGES_PER_MESSAGE_MAX: usize = 8;
/// Largest image a message may show, in bytes.
pub const IMAGE_BYTES_MAX: usize = 5 << 20;
/// Longest seal of an answer we keep, in bytes; a longer one is dropped.
pub const VENDOR_STATE_BYTES_MAX: usize = 1 << 20;
/// Longest wait a vendor may ask for before another model steps in, where there is one.
pub const FALLBACK_RETRY_AFTER_MS_MIN: u64 = 5_000;
/// Longest answer of a model we keep, in bytes.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// Longest result of a tool we keep, in bytes; what is longer is cut and marked.
pub const TOOL_RESULT_BYTES_MAX: usize = 1 << 20;
/// Most messages that wait for their turn in one session.
pub const QUEUED_MESSAGES_MAX: usize = 64;
/// Most messages that wait in one agent's inbox.
pub const INBOX_MESSAGES_MAX: usize = 256;
/// Most steps a flow may take in answer to one input.
pub const STEPS_PER_INPUT_MAX: usize = 2_000;
/// Most calls one turn may open; a flow that loops ends here.
pub const CALLS_PER_TURN_MAX: u32 = 200;
/// Most calls open at once in one session.
pub const OPEN_CALLS_MAX: usize = 64;
/// Most calls that wait for a thread or for a compaction.
pub const DEFERRED_CALLS_MAX: usize = 64;
/// Most rounds of tool use that follow one call.
pub const TOOL_ROUNDS_MAX: u32 = 16;
/// Longest arguments of a tool call we take, in bytes of JSON.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 256 << 10;
/// Most tool runs one answer may ask for.
pub const TOOL_CALLS_PER_REPLY_MAX: usize = 32;
/// Most threads kept in memory for one session; the least recently used is closed.
pub const THREADS_MAX: usize = 512;
/// Most compactions tried before one call, after which the thread is trimmed without a summary.
pub const COMPACTIONS_PER_CALL_MAX: u32 = 3;
/// Least room there must be for a summary that a model is asked for, in percent of the longest it may be.
pub const SUMMARY_SPACE_PERCENT_MIN: u32 = 25;
/// Most that a summariser is shown beside a message it can only be shown a part of, in percent of what it can be shown.
pub const SUMMARIZER_CONTEXT_PERCENT_MAX: u32 = 50;
/// Share of the window, in percent, that a compaction leaves filled.
pub const COMPACTED_FILL_PERCENT: u32 = 50;
/// Tokens kept free beside prompt and answer, since our count is an estimate.
pub const WINDOW_RESERVE_TOKENS: u32 = 256;
/// Least that one of our tokens is taken to weigh with a model, in thousandths.
pub const TOKEN_RATIO_PERMILLE_MIN: u32 = 500;
/// Most that one of our tokens is taken to weigh with a model, in thousandths.
pub const TOKEN_RATIO_PERMILLE_MAX: u32 = 3_000;
/// Tokens of even weight that a model's reports are weighed against, so that the first of them is not believed outright.
pub const TOKEN_RATIO_PRIOR_TOKENS: u64 = 1_000;
/// Shortest prompt whose report is learnt from: with a shorter one, what vendors put around it is most of it.
pub const TOKEN_RATIO_PROMPT_TOKENS_MIN: u32 = 256;
/// Tokens of prompts that are remembered for a model's weight; beyond that the older count half, and half again.
pub const TOKEN_RATIO_HISTORY_TOKENS_MAX: u64 = 100_000;
/// Most tokens of the user's own words that a compaction keeps verbatim, in percent of the window.
pub const KEPT_USER_TEXT_PERCENT_MAX: u32 = 15;
/// Idempotency keys remembered in a session.
pub const IDEMPOTENCY_KEYS_MAX: usize = 256;
/// Longest idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 200;
/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 80;
/// Longest text that a setting takes, in characters.
pub const SETTING_TEXT_CHARS_MAX: usize = 200;
/// Most things in settings that are complained of at once.
pub const INVALID_SETTINGS_MAX: usize = 16;
/// Longest name of a session, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 64;
/// Largest fact, note on a call or handover of a flow, in bytes of JSON.
pub const FLOW_VALUE_BYTES_MAX: usize = 1 << 20;
/// Handovers remembered in state; all of them are in the journal.
pub const HANDOVERS_KEPT_MAX: usize = 64;
/// Most private requests to repair one handover.
pub const HANDOVER_REPAIRS_MAX: u32 = 3;
/// Timers running at once in one session.
pub const TIMERS_MAX: usize = 128;
/// Longest account of a failure we keep, in bytes; vendors are known to answer with whole pages.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 4_096;
/// Most tries of one call, whatever ended the earlier ones; a call that kills the process each time ends here.
pub const ATTEMPTS_PER_CALL_MAX: u32 = 12;
/// Longest wait that a vendor may ask for before another try; asked to wait longer, we give up and say so.
pub const RETRY_AFTER_MS_MAX: u64 = 10 * 60 * 1_000;
/// Smallest window we will plan for; a model card that says less is taken to mean this.
pub const WINDOW_TOKENS_MIN: u32 = 1_024;
/// Past stands of a phase graph kept for rollback; older ones are in the journal.
pub const PAST_PHASE_STATES_MAX: usize = 64;
/// Calls given up whose late answer is still recognised, and so waited for.
pub const ABANDONED_CALLS_MAX: usize = 64;
/// Prompts remembered to compare the next one with.
pub const LAST_PROMPTS_MAX: usize = 512;
/// The most phases a graph may have.
pub const PHASES_PER_GRAPH_MAX: usize = 64;
/// The most gates a graph may have. The search for dead ends looks at every set of open gates that can be met.
pub const GATES_PER_GRAPH_MAX: usize = 8;
/// The longest content a block may have. A longer one is not read.
pub const BLOCK_BYTES_MAX: usize = 256 * 1024;
/// How many blocks of one text are read. Further ones are hidden all the same.
pub const BLOCKS_PER_TEXT_MAX: usize = 64;
/// The longest name a block may have.
pub const BLOCK_NAME_BYTES_MAX: usize = 40;
/// How many blanks may stand between a marker's brackets and its name, on either side.
pub const MARKER_SPACES_MAX: usize = 3;
/// Markers in the user's words that a model's blocks are compared with.
pub const QUOTED_MARKERS_MAX: usize = 64;
/// How much white space is held back until it is known whether a block follows.
pub const HELD_WHITESPACE_BYTES_MAX: usize = 256;
/// The longest key of a field.
pub const FIELD_KEY_CHARS_MAX: usize = 40;
/// How many items of one list are read.
pub const LIST_ITEMS_MAX: usize = 256;
/// How many complaints one reading makes.
pub const COMPLAINTS_PER_PARSE_MAX: usize = 32;
/// How much of a text a complaint cites.
pub const EXCERPT_CHARS_MAX: usize = 60;
/// How deep JSON may nest.
pub const JSON_DEPTH_MAX: usize = 100;
/// How often, on average, a byte of a longer text may be looked at in a vain search for JSON.
pub const JSON_SCANS_PER_BYTE_MAX: usize = 4;
/// How far a fence or a quote may be indented beyond its container.
pub const MARKDOWN_INDENT_MAX: usize = 3;
/// The fewest backticks or tildes that make a code fence.
pub const FENCE_LENGTH_MIN: usize = 3;
/// Digits in the number of a numbered list item.
pub const LIST_NUMBER_DIGITS_MAX: u8 = 9;
/// The longest key without quotes that broken JSON may have.
pub const UNQUOTED_KEY_BYTES_MAX: usize = 64;
/// Pairs of lines a diff compares; what is left beyond is shown as replaced.
pub const DIFF_CELLS_MAX: usize = 4_000_000;
/// Of the messages of a thread, every copy holds as many of the newest on its own; the others are shared.
pub const UNSHARED_ENTRIES_MAX: usize = 8;
