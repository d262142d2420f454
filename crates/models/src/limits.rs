//! All limits of this crate.

/// Longest reply accepted from a model: text, reasoning and tool arguments together.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// Most tool calls accepted in one reply.
pub const REPLY_TOOL_CALLS_MAX: usize = 64;

/// Context window assumed if nothing is known about a model.
pub const FALLBACK_WINDOW_TOKENS: u32 = 8_192;
/// Fewest published sources that a price of the catalog is compared with.
pub const PRICE_SOURCES_MIN: usize = 2;
/// Connect timeout for vendors.
pub const CONNECT_MS_MAX: u64 = 10_000;
/// Timeout for probing a server that may not exist.
pub const PROBE_MS_MAX: u64 = 400;
/// Timeout for listing a provider's models.
pub const MODEL_LISTING_MS_MAX: u64 = 10_000;
/// Secrets shorter than this are not redacted from texts.
pub const SECRET_BYTES_MIN: usize = 6;
/// Longest event of a stream. Some vendors repeat the whole reply in the last event, and JSON escapes make it longer.
pub const SSE_EVENT_BYTES_MAX: usize = 16 << 20;
/// Smallest output budget that is requested. If the prompt leaves less, the server's own error is clearer.
pub const ANSWER_TOKENS_MIN: u32 = 16;
/// Percentage by which a vendor may count more prompt tokens than we do.
pub const PROMPT_MARGIN_PERCENT: u32 = 25;
/// Smallest thinking budget that vendors accept as a number.
pub const THINKING_TOKENS_MIN: u32 = 1_024;
/// Longest response body of a vendor.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Longest error body that is read.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// Longest vendor error message that is kept.
pub const FAILURE_MESSAGE_CHARS_MAX: usize = 500;
/// Longest tool name that vendors accept.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Longest tool call id in OpenAI's chat completions.
pub const CHAT_CALL_ID_BYTES_MAX: usize = 40;
/// Longest tool call id in OpenAI's Responses API.
pub const RESPONSES_CALL_ID_BYTES_MAX: usize = 64;
/// Longest tool call id sent to Anthropic.
pub const ANTHROPIC_CALL_ID_BYTES_MAX: usize = 64;
/// Exact length of a tool call id for Mistral.
pub const MISTRAL_CALL_ID_BYTES: usize = 9;
/// Maximum depth when a schema is adapted to a vendor.
pub const SCHEMA_DEPTH_MAX: usize = 48;
/// Longest model listing accepted from a server.
pub const MODEL_LISTING_BYTES_MAX: usize = 8 << 20;
/// Most models accepted from one listing.
pub const MODELS_LISTED_MAX: usize = 2_000;
/// How long a replayed response waits for the next of the earlier ones to end.
pub(crate) const CASSETTE_ORDER_WAIT_MS_MAX: u64 = 1_000;
/// How long a replayed response that has waited for another one gives that one to be processed.
pub(crate) const CASSETTE_ORDER_PAUSE_MS: u64 = 200;
/// Differences shown between a request and the closest recorded one.
pub const REQUEST_DIFFERENCES_SHOWN_MAX: usize = 3;
/// Longest cassette file.
pub const CASSETTE_BYTES_MAX: u64 = 256 << 20;
/// Schema errors that are reported back to a model.
pub const SCHEMA_ERRORS_MAX: usize = 5;
/// Longest schema error that is reported back to a model.
pub const SCHEMA_ERROR_CHARS_MAX: usize = 300;

/// Most model names shown when a model is not found.
pub const MODEL_NAMES_SHOWN_MAX: usize = 12;

/// Longest scenario file.
pub const SCENARIO_BYTES_MAX: usize = 4 << 20;
/// Most `[[reply]]` entries, and most `[[say]]` entries, in one scenario.
pub const SCENARIO_ENTRIES_MAX: usize = 4096;
/// Longest glob pattern in a scenario; matching costs at most this times the length of the message.
pub const GLOB_BYTES_MAX: usize = 1024;
/// Requests a scripted model keeps by default; the oldest are dropped first.
pub const RECEIVED_REQUESTS_MAX: usize = 1024;
/// Entries shown when no scripted reply matches.
pub const UNMATCHED_REPLIES_SHOWN_MAX: usize = 3;
/// Longest quotation in an error message.
pub const QUOTED_CHARS_MAX: usize = 120;

/// Context window that the scripted and the rehearsal model report by default.
pub const SIMULATED_WINDOW_TOKENS: u32 = 128_000;

/// Bytes of one message that the rehearsal model reads.
pub const REHEARSAL_MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Messages per chat role that the rehearsal model reads: the first one and the newest.
pub const REHEARSAL_MESSAGES_MAX: usize = 500;
/// Bytes of instructions that the rehearsal model searches for block templates.
pub const REHEARSAL_INSTRUCTIONS_BYTES_MAX: usize = 256 << 10;
/// Block templates that the rehearsal model considers.
pub const REHEARSAL_TEMPLATES_MAX: usize = 16;
/// Maximum schema depth that the rehearsal model follows.
pub const REHEARSAL_SCHEMA_DEPTH_MAX: usize = 24;
/// Most values in one JSON reply of the rehearsal model.
pub const REHEARSAL_SCHEMA_VALUES_MAX: usize = 2000;
/// Longest string generated to satisfy a `minLength`.
pub const REHEARSAL_STRING_CHARS_MAX: usize = 10_000;
/// Bytes inserted into the placeholders of one reply template; further placeholders stay empty.
pub const REHEARSAL_HINT_BYTES_MAX: usize = 1 << 20;
/// Longest key of a block template that the rehearsal model recognises.
pub const BLOCK_KEY_BYTES_MAX: usize = 40;
/// Bytes before a block template that the rehearsal model searches for its condition.
pub const BLOCK_LEAD_BYTES_MAX: usize = 400;
/// A paragraph shorter than this (“Format:”) says too little; the one before it is used as well.
pub const BLOCK_LEAD_BYTES_MIN: usize = 25;
/// Longest line that the rehearsal model writes into a block.
pub const REHEARSAL_BLOCKS_LINE_CHARS_MAX: usize = 160;
/// Longest list item that the rehearsal model writes.
pub const REHEARSAL_LIST_ITEM_CHARS_MAX: usize = 60;
/// Longest quotation of the user in the rehearsal model's prose.
pub const REHEARSAL_PROSE_QUOTE_CHARS_MAX: usize = 80;
/// Longest quotation of a tool's result by the rehearsal model.
pub const TOOL_RESULT_QUOTE_CHARS_MAX: usize = 200;
/// Most items in a summary by the rehearsal model.
pub const SUMMARY_ITEMS_MAX: usize = 8;
/// A message of at most this many words can be a greeting.
pub const GREETING_WORDS_MAX: usize = 3;
/// Most words in a topic extracted by the rehearsal model.
pub const TOPIC_WORDS_MAX: usize = 6;
/// Most characters in a topic extracted by the rehearsal model.
pub const TOPIC_CHARS_MAX: usize = 60;
/// Most keywords that the rehearsal model extracts.
pub const KEYWORDS_MAX: usize = 8;
/// Longest quotation when the rehearsal model answers a question about the conversation.
pub const REHEARSAL_RECALL_QUOTE_CHARS_MAX: usize = 200;
/// Most earlier messages that the rehearsal model lists.
pub const RECALLED_MESSAGES_MAX: usize = 12;
/// Longest value that the rehearsal model recalls about the user (a name, a colour).
pub const RECALLED_VALUE_WORDS_MAX: usize = 10;
/// Most references and combinations followed in a schema; more than this is a cycle.
pub const SCHEMA_REF_HOPS_MAX: usize = 32;
/// Longest quotation of the conversation in a generated JSON field.
pub const REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX: usize = 120;
/// Length limit of `{{name|line}}`.
pub const TEMPLATE_LINE_CHARS_MAX: usize = 80;
/// Longest placeholder; bounds the search for its end.
pub const PLACEHOLDER_BYTES_MAX: usize = 64;
