//! Every limit of this crate, in one place.

/// Longest answer taken from a model: text, reasoning and tool arguments together.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// Most tool calls taken from one answer.
pub const REPLY_TOOL_CALLS_MAX: usize = 64;

/// A window that every model worth talking to has.
pub const FALLBACK_WINDOW_TOKENS: u32 = 8_192;
/// Longest wait for a connection to a vendor.
pub const CONNECT_MS_MAX: u64 = 10_000;
/// Longest wait for somebody who may or may not be there.
pub const PROBE_MS_MAX: u64 = 400;
/// Longest wait for a list of what is served.
pub const MODEL_LISTING_MS_MAX: u64 = 10_000;
/// Keys shorter than this are none, and are not looked for in texts.
pub const SECRET_BYTES_MIN: usize = 6;
/// Longest event of a stream: some vendors end with the whole answer once more, and JSON makes it longer.
pub const SSE_EVENT_BYTES_MAX: usize = 16 << 20;
/// Fewest tokens an answer is given, however little room there is: a server says better why it cannot.
pub const ANSWER_TOKENS_MIN: u32 = 16;
/// By how much a vendor may count more tokens than we do.
pub const PROMPT_MARGIN_PERCENT: u32 = 25;
/// Fewest tokens of thought that a vendor takes as a number.
pub const THINKING_TOKENS_MIN: u32 = 1_024;
/// Most bytes a vendor may take to send one answer.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Bytes read of a refusal.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// Characters kept of what a vendor says about a refusal.
pub const FAILURE_MESSAGE_CHARS_MAX: usize = 500;
/// Longest name of a tool that vendors take.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Longest id of a tool call that OpenAI's chat completions take.
pub const CHAT_CALL_ID_BYTES_MAX: usize = 40;
/// Longest id of a tool call that OpenAI's responses take.
pub const RESPONSES_CALL_ID_BYTES_MAX: usize = 64;
/// Longest id of a tool call that Anthropic is sent.
pub const ANTHROPIC_CALL_ID_BYTES_MAX: usize = 64;
/// Length of the id of a tool call, as Mistral wants it.
pub const MISTRAL_CALL_ID_BYTES: usize = 9;
/// How deep a schema is looked into when it is made fit for a vendor.
pub const SCHEMA_DEPTH_MAX: usize = 48;
/// Longest list of models taken from a server.
pub const MODEL_LISTING_BYTES_MAX: usize = 8 << 20;
/// Most models taken from one list.
pub const MODELS_LISTED_MAX: usize = 2_000;
/// Differences told between a request and the nearest that was recorded.
pub const REQUEST_DIFFERENCES_SHOWN_MAX: usize = 3;
/// Longest cassette.
pub const CASSETTE_BYTES_MAX: u64 = 256 << 20;
/// Complaints about an answer that its model is told.
pub const SCHEMA_ERRORS_MAX: usize = 5;
/// Characters of one such complaint.
pub const SCHEMA_ERROR_CHARS_MAX: usize = 300;

/// Most names listed when a model is not found.
pub const MODEL_NAMES_SHOWN_MAX: usize = 12;

/// Longest scenario file.
pub const SCENARIO_BYTES_MAX: usize = 4 << 20;
/// Most `[[reply]]` entries, and most `[[say]]` entries, in one scenario.
pub const SCENARIO_ENTRIES_MAX: usize = 4096;
/// Longest glob pattern in a scenario; matching costs at most this times the length of the message.
pub const GLOB_BYTES_MAX: usize = 1024;
/// Requests a scripted model remembers unless told otherwise; the oldest are forgotten first.
pub const RECEIVED_REQUESTS_MAX: usize = 1024;
/// Entries named when no scripted reply fits.
pub const UNMATCHED_REPLIES_SHOWN_MAX: usize = 3;
/// Characters of a text quoted in an error.
pub const QUOTED_CHARS_MAX: usize = 120;

/// Window the scripted and the rehearsal model claim unless told otherwise.
pub const SIMULATED_WINDOW_TOKENS: u32 = 128_000;

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
/// Longest key of a block template the rehearsal model recognises.
pub const BLOCK_KEY_BYTES_MAX: usize = 40;
/// Bytes before a block template in which the rehearsal model looks for when it is due.
pub const BLOCK_LEAD_BYTES_MAX: usize = 400;
/// A paragraph shorter than this (“Format:”) says too little; the one before it counts too.
pub const BLOCK_LEAD_BYTES_MIN: usize = 25;
/// Longest line the rehearsal model writes into a block.
pub const REHEARSAL_BLOCKS_LINE_CHARS_MAX: usize = 160;
/// Longest item the rehearsal model writes into a list.
pub const REHEARSAL_LIST_ITEM_CHARS_MAX: usize = 60;
/// Longest quotation of the user in the rehearsal model's prose.
pub const REHEARSAL_PROSE_QUOTE_CHARS_MAX: usize = 80;
/// Longest piece of a tool's result that the rehearsal model repeats.
pub const TOOL_RESULT_QUOTE_CHARS_MAX: usize = 200;
/// Points in a summary by the rehearsal model.
pub const SUMMARY_ITEMS_MAX: usize = 8;
/// A message of at most this many words can be a greeting.
pub const GREETING_WORDS_MAX: usize = 3;
/// Words in what the rehearsal model takes for the topic.
pub const TOPIC_WORDS_MAX: usize = 6;
/// Characters in what the rehearsal model takes for the topic.
pub const TOPIC_CHARS_MAX: usize = 60;
/// Words the rehearsal model remembers of a message.
pub const KEYWORDS_MAX: usize = 8;
/// Longest quotation when the rehearsal model is asked what was said.
pub const REHEARSAL_RECALL_QUOTE_CHARS_MAX: usize = 200;
/// Earlier messages the rehearsal model lists when asked for all of them.
pub const RECALLED_MESSAGES_MAX: usize = 12;
/// Longest thing the rehearsal model recalls about the user (a name, a colour).
pub const RECALLED_VALUE_WORDS_MAX: usize = 10;
/// References and combinations followed in a row; more than this is a circle.
pub const SCHEMA_REF_HOPS_MAX: usize = 32;
/// Longest line of the conversation that the rehearsal model puts into a JSON field.
pub const REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX: usize = 120;
/// Length of `{{name|line}}`.
pub const TEMPLATE_LINE_CHARS_MAX: usize = 80;
/// No placeholder is longer than this, so looking for its end takes constant time.
pub const PLACEHOLDER_BYTES_MAX: usize = 64;
