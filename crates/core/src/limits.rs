//! All limits of this crate. Everything that grows, loops or repeats has one.

/// The maximum length of a message from a user or an agent, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The maximum number of images in a message.
pub(crate) const IMAGES_PER_MESSAGE_MAX: usize = 8;
/// The maximum size of an image, in bytes.
pub(crate) const IMAGE_BYTES_MAX: usize = 5 << 20;
/// The maximum length of the vendor state of an answer, in bytes. Longer state is dropped.
pub(crate) const VENDOR_STATE_BYTES_MAX: usize = 1 << 20;
/// If a vendor asks for a longer wait than this before a retry, a fallback model is used instead.
pub(crate) const FALLBACK_RETRY_AFTER_MS_MIN: u64 = 5_000;
/// The maximum length of a model's answer, in bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 4 << 20;
/// The maximum length of a tool's result, in bytes. A longer result is cut and marked.
pub(crate) const TOOL_RESULT_BYTES_MAX: usize = 1 << 20;
/// The maximum duration of a tool run, unless its declaration says otherwise.
pub(crate) const TOOL_RUN_MS_DEFAULT: u64 = 10 * 60 * 1_000;
/// The maximum duration that a declaration can allow a tool run.
pub(crate) const TOOL_RUN_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// The maximum size of a tool's value, in bytes of JSON. A larger value is not recorded.
pub(crate) const TOOL_VALUE_BYTES_MAX: usize = 256 << 10;
/// The maximum number of artifacts of a tool run. Further ones are not recorded.
pub(crate) const TOOL_ARTIFACTS_MAX: usize = 16;
/// The maximum length of an artifact, in bytes. A longer one is cut and marked.
pub(crate) const TOOL_ARTIFACT_BYTES_MAX: usize = 1 << 20;
/// The maximum length of the name or the media type of an artifact, in bytes.
pub(crate) const TOOL_ARTIFACT_NAME_BYTES_MAX: usize = 1_024;
/// The maximum number of queued messages in a session.
pub(crate) const QUEUED_MESSAGES_MAX: usize = 64;
/// The maximum number of messages in an agent's inbox.
pub(crate) const INBOX_MESSAGES_MAX: usize = 256;
/// The maximum number of steps that a flow may take for one input.
pub(crate) const STEPS_PER_INPUT_MAX: usize = 2_000;
/// The maximum number of calls of a role in one turn, unless the role says otherwise. It stops a flow that loops.
pub(crate) const CALLS_PER_TURN_DEFAULT: u32 = 200;
/// The maximum number of calls in one turn that a role can declare.
pub(crate) const CALLS_PER_TURN_MAX: u32 = 10_000;
/// The maximum number of calls of a role outside turns since the last message of the user, unless the role says otherwise.
/// It stops agents that keep each other busy while nobody watches.
pub(crate) const CALLS_OUTSIDE_TURNS_DEFAULT: u32 = 1_000;
/// The maximum number of calls outside turns that a role can declare.
pub(crate) const CALLS_OUTSIDE_TURNS_MAX: u32 = 100_000;
/// The maximum number of tool calls of a role in one turn, unless the role says otherwise.
pub(crate) const TOOL_CALLS_PER_TURN_DEFAULT: u32 = 1_000;
/// The maximum number of tool calls in one turn that a role can declare.
pub(crate) const TOOL_CALLS_PER_TURN_MAX: u32 = 100_000;
/// The maximum number of open calls in a session.
pub(crate) const OPEN_CALLS_MAX: usize = 64;
/// The maximum number of calls that wait for a thread or a compaction.
pub(crate) const DEFERRED_CALLS_MAX: usize = 64;
/// The maximum number of tool rounds after one call, unless the role says otherwise.
pub(crate) const TOOL_ROUNDS_DEFAULT: u32 = 16;
/// The maximum number of tool rounds after one call that a role can declare.
pub(crate) const TOOL_ROUNDS_MAX: u32 = 1_000;
/// The maximum length of the arguments of a tool call, in bytes of JSON.
pub(crate) const TOOL_ARGUMENTS_BYTES_MAX: usize = 256 << 10;
/// The maximum number of tool calls in one answer.
pub(crate) const TOOL_CALLS_PER_REPLY_MAX: usize = 32;
/// The maximum number of tools that a client may bring to a turn.
pub(crate) const CLIENT_TOOLS_MAX: usize = 128;
/// The maximum size of the tools that a client brings, in bytes of JSON.
pub(crate) const CLIENT_TOOLS_BYTES_MAX: usize = 256 << 10;
/// The maximum length of the name of a client's tool. Vendors accept no more.
pub(crate) const CLIENT_TOOL_NAME_CHARS_MAX: usize = 64;
/// The maximum size of the schema that a client requires of an answer, in bytes of JSON.
pub(crate) const CLIENT_SCHEMA_BYTES_MAX: usize = 64 << 10;
/// The maximum number of threads in a session. The least recently used one is closed.
pub(crate) const THREADS_MAX: usize = 512;
/// The maximum number of compactions for one call. After that the thread is trimmed without a summary.
pub(crate) const COMPACTIONS_PER_CALL_MAX: u32 = 3;
/// The minimum space for a summary by a model, in percent of its maximum length.
pub(crate) const SUMMARY_SPACE_PERCENT_MIN: u32 = 25;
/// The maximum size of other messages in a summarizing call that contains a message in part, in percent of its input.
pub(crate) const SUMMARIZER_CONTEXT_PERCENT_MAX: u32 = 50;
/// The share of the free space in the window that a thread may fill after a compaction, in percent.
pub(crate) const COMPACTED_FILL_PERCENT: u32 = 50;
/// Tokens that are left free in the window, because token counts are estimates.
pub(crate) const WINDOW_RESERVE_TOKENS: u32 = 256;
/// The minimum ratio of vendor tokens to our tokens, in thousandths.
pub(crate) const TOKEN_RATIO_PERMILLE_MIN: u32 = 500;
/// The maximum ratio of vendor tokens to our tokens, in thousandths.
pub(crate) const TOKEN_RATIO_PERMILLE_MAX: u32 = 3_000;
/// The weight of the initial ratio of 1, in tokens, so that the first report of a vendor does not decide alone.
pub(crate) const TOKEN_RATIO_PRIOR_TOKENS: u64 = 1_000;
/// The minimum size of a prompt for its report to count. In shorter prompts the vendor's overhead dominates.
pub(crate) const TOKEN_RATIO_PROMPT_TOKENS_MIN: u32 = 256;
/// The number of prompt tokens that are remembered for a ratio. Beyond it, older ones count half.
pub(crate) const TOKEN_RATIO_HISTORY_TOKENS_MAX: u64 = 100_000;
/// The maximum share of the user's own words that a compaction keeps, in percent of the target size.
pub(crate) const KEPT_USER_TEXT_PERCENT_MAX: u32 = 15;
/// The number of idempotency keys that a session remembers.
pub(crate) const IDEMPOTENCY_KEYS_MAX: usize = 256;
/// The maximum length of an idempotency key, in bytes.
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 200;
/// The maximum length of a title, in characters.
pub(crate) const TITLE_CHARS_MAX: usize = 80;
/// The maximum length of a text setting, in characters.
pub(crate) const SETTING_TEXT_CHARS_MAX: usize = 200;
/// The maximum number of invalid settings that are reported at once.
pub(crate) const INVALID_SETTINGS_MAX: usize = 16;
/// The maximum length of a session id, in bytes.
pub(crate) const SESSION_ID_BYTES_MAX: usize = 64;
/// The maximum size of a flow's fact, call metadata or handover, in bytes of JSON.
pub(crate) const FLOW_VALUE_BYTES_MAX: usize = 1 << 20;
/// The number of handovers in the state. All of them are in the journal.
pub(crate) const HANDOVERS_KEPT_MAX: usize = 64;
/// The maximum number of repair requests for one handover.
pub(crate) const HANDOVER_REPAIRS_MAX: u32 = 3;
/// The maximum number of timers in a session.
pub(crate) const TIMERS_MAX: usize = 128;
/// The maximum length of a failure message, in bytes. Some vendors answer with whole pages.
pub(crate) const FAILURE_MESSAGE_BYTES_MAX: usize = 4_096;
/// The maximum number of attempts of one call, whatever the failures. It stops a call that crashes the process each
/// time.
pub(crate) const ATTEMPTS_PER_CALL_MAX: u32 = 12;
/// The maximum wait that a vendor may ask for before a retry. If it is longer, the call fails.
pub(crate) const RETRY_AFTER_MS_MAX: u64 = 10 * 60 * 1_000;
/// The minimum context window. A smaller one in a model card is raised to this.
pub(crate) const WINDOW_TOKENS_MIN: u32 = 1_024;
/// The number of past phase states that are kept for rollback. Older ones are in the journal.
pub(crate) const PAST_PHASE_STATES_MAX: usize = 64;
/// The number of abandoned calls whose late answers are still recognised.
pub(crate) const ABANDONED_CALLS_MAX: usize = 64;
/// The number of prompts that are remembered for comparison with the next one.
pub(crate) const LAST_PROMPTS_MAX: usize = 512;
/// The maximum number of phases in a graph.
pub(crate) const PHASES_PER_GRAPH_MAX: usize = 64;
/// The maximum number of gates in a graph. The search for dead ends visits every reachable set of open gates.
pub(crate) const GATES_PER_GRAPH_MAX: usize = 8;
/// The maximum length of a block's content, in bytes. A longer block is not parsed.
pub(crate) const BLOCK_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of blocks that are parsed in one text. Further blocks are still hidden.
pub(crate) const BLOCKS_PER_TEXT_MAX: usize = 64;
/// The maximum length of a block's name, in bytes.
pub(crate) const BLOCK_NAME_BYTES_MAX: usize = 40;
/// The maximum number of spaces between a marker's brackets and its name, on each side.
pub(crate) const MARKER_SPACES_MAX: usize = 3;
/// The maximum length of text that is held back because it may become a marker that is not written exactly, in bytes.
pub(crate) const NEAR_MISS_BYTES_MAX: usize = 256;
/// The longest answer to a detached ask, which is a short private question. A small model may never end a list.
pub(crate) const DETACHED_REPLY_TOKENS_MAX: u32 = 1_536;
/// The maximum number of markers in the texts of others that a model's blocks are compared with.
pub(crate) const QUOTED_MARKERS_MAX: usize = 256;
/// The maximum amount of whitespace that is held back until it is clear whether a block follows.
pub(crate) const HELD_WHITESPACE_BYTES_MAX: usize = 256;
/// The maximum length of a field's key, in characters.
pub(crate) const FIELD_KEY_CHARS_MAX: usize = 40;
/// The maximum number of items that are parsed in one list.
pub(crate) const LIST_ITEMS_MAX: usize = 256;
/// The maximum number of complaints of one parse.
pub(crate) const COMPLAINTS_PER_PARSE_MAX: usize = 32;
/// The maximum length of an excerpt in a complaint, in characters.
pub(crate) const EXCERPT_CHARS_MAX: usize = 60;
/// The maximum nesting depth of JSON.
pub(crate) const JSON_DEPTH_MAX: usize = 100;
/// The maximum number of times that a byte of a long text is scanned on average in the search for JSON.
pub(crate) const JSON_SCANS_PER_BYTE_MAX: usize = 4;
/// The maximum extra indentation of a fence or a quote in its container.
pub(crate) const MARKDOWN_INDENT_MAX: usize = 3;
/// The minimum number of backticks or tildes in a code fence.
pub(crate) const FENCE_LENGTH_MIN: usize = 3;
/// The maximum number of digits of a numbered list item.
pub(crate) const LIST_NUMBER_DIGITS_MAX: u8 = 9;
/// The maximum length of an unquoted key in broken JSON, in bytes.
pub(crate) const UNQUOTED_KEY_BYTES_MAX: usize = 64;
/// The number of newest messages that each copy of a thread holds by itself. The others are shared.
pub(crate) const UNSHARED_ENTRIES_MAX: usize = 8;

/// The maximum length of a run of brackets in a near-miss marker.
pub(crate) const MARKER_BRACKETS_MAX: usize = 3;

/// The fewest letters that a near-miss marker has between its brackets.
pub(crate) const NEAR_MISS_LETTERS_MIN: usize = 3;

/// The maximum number of questions to other sessions that wait for a reply.
pub(crate) const OPEN_ASKS_MAX: usize = 64;
/// The maximum number of questions from other sessions that wait for this session's reply.
pub(crate) const RECEIVED_ASKS_MAX: usize = 256;
/// The maximum size of a question or a reply, in bytes of JSON.
pub(crate) const ASK_BYTES_MAX: usize = 256 * 1024;
/// The maximum time that a session waits for a reply, a claim or a child.
pub(crate) const WAIT_MS_MAX: u64 = 30 * 24 * 3_600 * 1_000;
/// What a session that no other session started may use for its children.
pub(crate) const ROOT_ALLOTMENT: crate::event::ChildSessionAllotment = crate::event::ChildSessionAllotment {
    cost_microusd_max: None,
    depth_max: 3,
    descendants_max: 256,
    children_at_once_max: 16,
};

/// The bounds of a session, as values. A session that reaches one refuses the next step with a recorded reason.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SessionLimits {
    pub message_bytes_max: usize,
    pub images_per_message_max: usize,
    pub image_bytes_max: usize,
    pub fallback_retry_after_ms_min: u64,
    pub reply_bytes_max: usize,
    /// The maximum duration of a tool run, unless its declaration says otherwise.
    pub tool_run_ms_default: u64,
    pub tool_result_bytes_max: usize,
    pub tool_value_bytes_max: usize,
    pub tool_artifacts_max: usize,
    pub tool_artifact_bytes_max: usize,
    pub queued_messages_max: usize,
    pub inbox_messages_max: usize,
    pub steps_per_input_max: usize,
    pub calls_per_turn_max: u32,
    pub calls_outside_turns_max: u32,
    pub open_calls_max: usize,
    pub deferred_calls_max: usize,
    pub tool_rounds_max: u32,
    pub tool_arguments_bytes_max: usize,
    pub tool_calls_per_reply_max: usize,
    pub threads_max: usize,
    pub compactions_per_call_max: u32,
    /// Tokens that are left free in the window, because token counts are estimates.
    pub window_reserve_tokens: u32,
    pub idempotency_key_bytes_max: usize,
    pub title_chars_max: usize,
    pub session_id_bytes_max: usize,
    pub flow_value_bytes_max: usize,
    pub handovers_kept_max: usize,
    pub timers_max: usize,
    pub failure_message_bytes_max: usize,
    pub attempts_per_call_max: u32,
    /// The maximum wait that a vendor may ask for before a retry. If it is longer, the call fails.
    pub retry_after_ms_max: u64,
    /// The number of past phase states that are kept for rollback. Older ones are in the journal.
    pub past_phase_states_max: usize,
    pub abandoned_calls_max: usize,
    pub last_prompts_max: usize,
}

/// The bounds that every session has.
pub const SESSION_LIMITS: SessionLimits = SessionLimits {
    message_bytes_max: MESSAGE_BYTES_MAX,
    images_per_message_max: IMAGES_PER_MESSAGE_MAX,
    image_bytes_max: IMAGE_BYTES_MAX,
    fallback_retry_after_ms_min: FALLBACK_RETRY_AFTER_MS_MIN,
    reply_bytes_max: REPLY_BYTES_MAX,
    tool_run_ms_default: TOOL_RUN_MS_DEFAULT,
    tool_result_bytes_max: TOOL_RESULT_BYTES_MAX,
    tool_value_bytes_max: TOOL_VALUE_BYTES_MAX,
    tool_artifacts_max: TOOL_ARTIFACTS_MAX,
    tool_artifact_bytes_max: TOOL_ARTIFACT_BYTES_MAX,
    queued_messages_max: QUEUED_MESSAGES_MAX,
    inbox_messages_max: INBOX_MESSAGES_MAX,
    steps_per_input_max: STEPS_PER_INPUT_MAX,
    calls_per_turn_max: CALLS_PER_TURN_DEFAULT,
    calls_outside_turns_max: CALLS_OUTSIDE_TURNS_DEFAULT,
    open_calls_max: OPEN_CALLS_MAX,
    deferred_calls_max: DEFERRED_CALLS_MAX,
    tool_rounds_max: TOOL_ROUNDS_DEFAULT,
    tool_arguments_bytes_max: TOOL_ARGUMENTS_BYTES_MAX,
    tool_calls_per_reply_max: TOOL_CALLS_PER_REPLY_MAX,
    threads_max: THREADS_MAX,
    compactions_per_call_max: COMPACTIONS_PER_CALL_MAX,
    window_reserve_tokens: WINDOW_RESERVE_TOKENS,
    idempotency_key_bytes_max: IDEMPOTENCY_KEY_BYTES_MAX,
    title_chars_max: TITLE_CHARS_MAX,
    session_id_bytes_max: SESSION_ID_BYTES_MAX,
    flow_value_bytes_max: FLOW_VALUE_BYTES_MAX,
    handovers_kept_max: HANDOVERS_KEPT_MAX,
    timers_max: TIMERS_MAX,
    failure_message_bytes_max: FAILURE_MESSAGE_BYTES_MAX,
    attempts_per_call_max: ATTEMPTS_PER_CALL_MAX,
    retry_after_ms_max: RETRY_AFTER_MS_MAX,
    past_phase_states_max: PAST_PHASE_STATES_MAX,
    abandoned_calls_max: ABANDONED_CALLS_MAX,
    last_prompts_max: LAST_PROMPTS_MAX,
};
