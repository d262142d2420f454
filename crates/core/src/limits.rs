//! All limits of this crate. Everything that grows, loops or repeats has one.

/// The maximum length of a message from a user or an agent, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The maximum number of images in a message.
pub const IMAGES_PER_MESSAGE_MAX: usize = 8;
/// The maximum size of an image, in bytes.
pub const IMAGE_BYTES_MAX: usize = 5 << 20;
/// The maximum length of the vendor state of an answer, in bytes. Longer state is dropped.
pub const VENDOR_STATE_BYTES_MAX: usize = 1 << 20;
/// If a vendor asks for a longer wait than this before a retry, a fallback model is used instead.
pub const FALLBACK_RETRY_AFTER_MS_MIN: u64 = 5_000;
/// The maximum length of a model's answer, in bytes.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// The maximum length of a tool's result, in bytes. A longer result is cut and marked.
pub const TOOL_RESULT_BYTES_MAX: usize = 1 << 20;
/// The maximum number of queued messages in a session.
pub const QUEUED_MESSAGES_MAX: usize = 64;
/// The maximum number of messages in an agent's inbox.
pub const INBOX_MESSAGES_MAX: usize = 256;
/// The maximum number of steps that a flow may take for one input.
pub const STEPS_PER_INPUT_MAX: usize = 2_000;
/// The maximum number of calls in one turn. It stops a flow that loops.
pub const CALLS_PER_TURN_MAX: u32 = 200;
/// The maximum number of open calls in a session.
pub const OPEN_CALLS_MAX: usize = 64;
/// The maximum number of calls that wait for a thread or a compaction.
pub const DEFERRED_CALLS_MAX: usize = 64;
/// The maximum number of tool rounds after one call.
pub const TOOL_ROUNDS_MAX: u32 = 16;
/// The maximum length of the arguments of a tool call, in bytes of JSON.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 256 << 10;
/// The maximum number of tool calls in one answer.
pub const TOOL_CALLS_PER_REPLY_MAX: usize = 32;
/// The maximum number of threads in a session. The least recently used one is closed.
pub const THREADS_MAX: usize = 512;
/// The maximum number of compactions for one call. After that the thread is trimmed without a summary.
pub const COMPACTIONS_PER_CALL_MAX: u32 = 3;
/// The minimum space for a summary by a model, in percent of its maximum length.
pub const SUMMARY_SPACE_PERCENT_MIN: u32 = 25;
/// The maximum size of other messages in a summarizing call that contains a message in part, in percent of its input.
pub const SUMMARIZER_CONTEXT_PERCENT_MAX: u32 = 50;
/// The share of the window that is filled after a compaction, in percent.
pub const COMPACTED_FILL_PERCENT: u32 = 50;
/// Tokens that are left free in the window, because token counts are estimates.
pub const WINDOW_RESERVE_TOKENS: u32 = 256;
/// The minimum ratio of vendor tokens to our tokens, in thousandths.
pub const TOKEN_RATIO_PERMILLE_MIN: u32 = 500;
/// The maximum ratio of vendor tokens to our tokens, in thousandths.
pub const TOKEN_RATIO_PERMILLE_MAX: u32 = 3_000;
/// The weight of the initial ratio of 1, in tokens, so that the first report of a vendor does not decide alone.
pub const TOKEN_RATIO_PRIOR_TOKENS: u64 = 1_000;
/// The minimum size of a prompt for its report to count. In shorter prompts the vendor's overhead dominates.
pub const TOKEN_RATIO_PROMPT_TOKENS_MIN: u32 = 256;
/// The number of prompt tokens that are remembered for a ratio. Beyond it, older ones count half.
pub const TOKEN_RATIO_HISTORY_TOKENS_MAX: u64 = 100_000;
/// The maximum share of the user's own words that a compaction keeps, in percent of the target size.
pub const KEPT_USER_TEXT_PERCENT_MAX: u32 = 15;
/// The number of idempotency keys that a session remembers.
pub const IDEMPOTENCY_KEYS_MAX: usize = 256;
/// The maximum length of an idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 200;
/// The maximum length of a title, in characters.
pub const TITLE_CHARS_MAX: usize = 80;
/// The maximum length of a text setting, in characters.
pub const SETTING_TEXT_CHARS_MAX: usize = 200;
/// The maximum number of invalid settings that are reported at once.
pub const INVALID_SETTINGS_MAX: usize = 16;
/// The maximum length of a session id, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 64;
/// The maximum size of a flow's fact, call metadata or handover, in bytes of JSON.
pub const FLOW_VALUE_BYTES_MAX: usize = 1 << 20;
/// The number of handovers in the state. All of them are in the journal.
pub const HANDOVERS_KEPT_MAX: usize = 64;
/// The maximum number of repair requests for one handover.
pub const HANDOVER_REPAIRS_MAX: u32 = 3;
/// The maximum number of timers in a session.
pub const TIMERS_MAX: usize = 128;
/// The maximum length of a failure message, in bytes. Some vendors answer with whole pages.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 4_096;
/// The maximum number of attempts of one call, whatever the failures. It stops a call that crashes the process each
/// time.
pub const ATTEMPTS_PER_CALL_MAX: u32 = 12;
/// The maximum wait that a vendor may ask for before a retry. If it is longer, the call fails.
pub const RETRY_AFTER_MS_MAX: u64 = 10 * 60 * 1_000;
/// The minimum context window. A smaller one in a model card is raised to this.
pub const WINDOW_TOKENS_MIN: u32 = 1_024;
/// The number of past phase states that are kept for rollback. Older ones are in the journal.
pub const PAST_PHASE_STATES_MAX: usize = 64;
/// The number of abandoned calls whose late answers are still recognised.
pub const ABANDONED_CALLS_MAX: usize = 64;
/// The number of prompts that are remembered for comparison with the next one.
pub const LAST_PROMPTS_MAX: usize = 512;
/// The maximum number of phases in a graph.
pub const PHASES_PER_GRAPH_MAX: usize = 64;
/// The maximum number of gates in a graph. The search for dead ends visits every reachable set of open gates.
pub const GATES_PER_GRAPH_MAX: usize = 8;
/// The maximum length of a block's content, in bytes. A longer block is not parsed.
pub const BLOCK_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of blocks that are parsed in one text. Further blocks are still hidden.
pub const BLOCKS_PER_TEXT_MAX: usize = 64;
/// The maximum length of a block's name, in bytes.
pub const BLOCK_NAME_BYTES_MAX: usize = 40;
/// The maximum number of spaces between a marker's brackets and its name, on each side.
pub const MARKER_SPACES_MAX: usize = 3;
/// The maximum number of markers in the user's words that a model's blocks are compared with.
pub const QUOTED_MARKERS_MAX: usize = 64;
/// The maximum amount of whitespace that is held back until it is clear whether a block follows.
pub const HELD_WHITESPACE_BYTES_MAX: usize = 256;
/// The maximum length of a field's key, in characters.
pub const FIELD_KEY_CHARS_MAX: usize = 40;
/// The maximum number of items that are parsed in one list.
pub const LIST_ITEMS_MAX: usize = 256;
/// The maximum number of complaints of one parse.
pub const COMPLAINTS_PER_PARSE_MAX: usize = 32;
/// The maximum length of an excerpt in a complaint, in characters.
pub const EXCERPT_CHARS_MAX: usize = 60;
/// The maximum nesting depth of JSON.
pub const JSON_DEPTH_MAX: usize = 100;
/// The maximum number of times that a byte of a long text is scanned on average in the search for JSON.
pub const JSON_SCANS_PER_BYTE_MAX: usize = 4;
/// The maximum extra indentation of a fence or a quote in its container.
pub const MARKDOWN_INDENT_MAX: usize = 3;
/// The minimum number of backticks or tildes in a code fence.
pub const FENCE_LENGTH_MIN: usize = 3;
/// The maximum number of digits of a numbered list item.
pub const LIST_NUMBER_DIGITS_MAX: u8 = 9;
/// The maximum length of an unquoted key in broken JSON, in bytes.
pub const UNQUOTED_KEY_BYTES_MAX: usize = 64;
/// The maximum number of line pairs that a diff compares. Beyond it the rest is shown as replaced.
pub const DIFF_CELLS_MAX: usize = 4_000_000;
/// The number of newest messages that each copy of a thread holds by itself. The others are shared.
pub const UNSHARED_ENTRIES_MAX: usize = 8;
