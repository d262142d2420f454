//! Every limit of the flows, in one place.

/// Most claims read from one map.
pub const MAP_CLAIMS_MAX: usize = 10_000;
/// Most edges read from one map.
pub const MAP_EDGES_MAX: usize = 50_000;
/// Most gaps read from one map; all of them are told one by one.
pub const MAP_GAPS_MAX: usize = 50;
/// Longest id of a claim, in characters.
pub const CLAIM_ID_CHARS_MAX: usize = 64;
/// Longest label of a claim, in characters.
pub const CLAIM_LABEL_CHARS_MAX: usize = 120;
/// Longest text of a claim or a gap, in characters.
pub const CLAIM_TEXT_CHARS_MAX: usize = 2_000;
/// Longest narrative kept beside a map, in characters.
pub const NARRATIVE_CHARS_MAX: usize = 20_000;
/// Complaints about one map that are told one by one; of the rest only the number is told.
pub const MAP_COMPLAINTS_MAX: usize = 64;
/// How much of a text a complaint cites, in characters.
pub const MAP_EXCERPT_CHARS_MAX: usize = 60;
/// Fewest answers a map can be made from.
pub const MAP_ANSWERS_MIN: u32 = 2;

/// Most positions a brief gives in full.
pub const BRIEF_POSITIONS_MAX: usize = 24;
/// Most lines in any other list of a brief, gaps apart.
pub const BRIEF_LINES_MAX: usize = 12;
/// Most labels named in one line of a brief.
pub const BRIEF_LABELS_MAX: usize = 8;

/// Most machinery terms reported from one reply.
pub const LEAKED_TERMS_MAX: usize = 64;

/// Most answers to one question: experts times their samples.
pub const EXPERT_ANSWERS_MAX: usize = 32;
/// Longest wait for an answer that can be set.
pub const ANSWER_TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Latest turn of the starter by which a handover can be set to be due.
pub const HANDOVER_BY_TURN_MAX: u64 = 100;
/// Latest request for a plan by which one can be set to be due.
pub const PLAN_BY_REQUEST_MAX: u64 = 100;
/// Largest map that is kept whole in a fact, in bytes of JSON; a larger one is in its mapper's answer.
pub const MAP_FACT_BYTES_MAX: usize = 256 * 1024;
/// Most tokens of a brief, or of answers shown in its place; each of these gets its share.
pub const BATCH_RESULT_TOKENS_MAX: u32 = 16_000;
/// Most tokens of the answers shown to a mapper; each gets its share.
pub const MAPPER_SOURCES_TOKENS_MAX: u32 = 64_000;
/// Longest question that a mapper is shown with the answers, in characters.
pub const MAPPER_QUESTION_CHARS_MAX: usize = 16_000;
/// Most tokens around such answers: the question they answer, headings, fences.
pub const SECTION_FRAME_TOKENS_MAX: u32 = 8_000;
/// Most tokens of a handover shown to the one who takes over.
pub const HANDOVER_TOKENS_MAX: u32 = 8_000;
/// Most steps of a plan.
pub const PLAN_STEPS_MAX: usize = 50;
/// Longest title of a step, in characters.
pub const STEP_TITLE_CHARS_MAX: usize = 160;
/// Longest description of a step, or how one knows that it is done, in characters.
pub const STEP_TEXT_CHARS_MAX: usize = 2_000;
/// Most notices that wait to be told.
pub const PENDING_NOTICES_MAX: usize = 8;
/// Longest part of what was said that a handover built by code takes over, in characters.
pub const BUILT_HANDOVER_TEXT_CHARS_MAX: usize = 1_200;
/// Most messages of the user's that such a handover takes over; of more, the latest.
pub const HANDOVER_MESSAGES_MAX: usize = 12;
/// Most items of a list in a handover built by code.
pub const BUILT_HANDOVER_ITEMS_MAX: usize = 8;

/// Longest name of a domain, a type or a field, in characters.
pub const DOMAIN_NAME_CHARS_MAX: usize = 40;
/// Longest account of what a domain, a type or a field is, in characters.
pub const DOMAIN_DESCRIPTION_CHARS_MAX: usize = 1_000;
/// Most types of a domain; a model is told all of them.
pub const DOMAIN_TYPES_MAX: usize = 24;
/// Most fields of a type.
pub const DOMAIN_FIELDS_MAX: usize = 40;
/// Most sample records of a domain.
pub const DOMAIN_SAMPLES_MAX: usize = 1_000;
/// Longest text in a field of a record, in characters.
pub const RECORD_TEXT_CHARS_MAX: usize = 20_000;
/// Most items of a list in a record.
pub const RECORD_LIST_ITEMS_MAX: usize = 200;
/// Most conditions of one read.
pub const READ_FILTERS_MAX: usize = 12;
/// Most values that one condition compares with.
pub const FILTER_VALUES_MAX: usize = 200;
/// Records of a read that does not say how many.
pub const READ_ROWS_DEFAULT: usize = 25;
/// Most records of a read.
pub const READ_ROWS_MAX: usize = 100;
/// Most records that one tool call writes.
pub const WRITE_ROWS_MAX: usize = 50;

/// References remembered; beyond that those not referred to for the longest are forgotten, their numbers never given again.
pub const ENTITIES_MAX: usize = 2_000;
/// References whose records are at hand.
pub const ENTITIES_CACHED_MAX: usize = 150;
/// Unsaved drafts kept.
pub const DRAFTS_MAX: usize = 30;
/// Longest label, in characters.
pub const ENTITY_LABEL_CHARS_MAX: usize = 80;
/// Longest reason, expression or note that a model gives, in characters.
pub const REMARK_CHARS_MAX: usize = 300;
/// Longest outcome, goal or description, in characters.
pub const OUTCOME_CHARS_MAX: usize = 600;
/// Longest question or proposal, in characters.
pub const PROPOSAL_CHARS_MAX: usize = 4_000;
/// Longest partial analysis kept with a question, in characters of JSON.
pub const PARTIAL_ANALYSIS_CHARS_MAX: usize = 4_000;
/// References read from one list of a model.
pub const REFERENCES_MAX: usize = 100;
/// Turns within which a reference is active.
pub const REFERENCE_ACTIVE_TURNS: u32 = 2;
/// Rows of the registry that Understand is shown.
pub const REGISTRY_ROWS_MAX: usize = 20;
/// References of each kind that Think is shown.
pub const THINK_ROWS_MAX: usize = 40;
/// Turns that Understand is shown.
pub const UNDERSTAND_TURNS_SHOWN: usize = 5;
/// Turns that Think is shown.
pub const THINK_TURNS_SHOWN: usize = 2;
/// Turns that Reply is shown.
pub const REPLY_TURNS_SHOWN: usize = 3;
/// Turn summaries kept in full.
pub const FULL_SUMMARIES_MAX: usize = 2;
/// Older summaries that wait to be folded, where folding fails again and again.
pub const SUMMARIES_AGED_MAX: usize = 12;
/// Older exchanges that wait to be folded, where folding fails again and again.
pub const EXCHANGES_AGED_MAX: usize = 24;
/// How much of one thing that was said is shown to those who were not spoken to, in characters.
pub const MESSAGE_EXCERPT_CHARS_MAX: usize = 1_200;
/// Tokens of a folded reasoning or conversation.
pub const FOLDED_TOKENS_MAX: u32 = 500;
/// Longest folded reasoning or conversation, in characters; what is longer is cut.
pub const FOLDED_CHARS_MAX: usize = 3_000;
/// Most steps that a plan of the assistant has.
pub const ASSISTANT_PLAN_STEPS_MAX: usize = 12;
/// Most tool calls of one step.
pub const STEP_TOOL_CALLS_MAX: u32 = 3;
/// How often the result of an earlier step is fetched for one step.
pub const STEP_RETRIEVALS_MAX: u32 = 2;
/// How often a node is asked again for what could not be used.
pub const NODE_REPAIRS_MAX: u32 = 1;
/// How often the same read may find nothing before its step ends.
pub const EMPTY_READS_MAX: u32 = 2;
/// Longest result of a step shown to others, in characters.
pub const STEP_RESULT_CHARS_MAX: usize = 6_000;
/// Most of all records shown to one step, in characters.
pub const STEP_RECORDS_CHARS_MAX: usize = 24_000;
/// Writes that can be undone; older ones are in the journal.
pub const UNDOABLE_WRITES_MAX: usize = 64;
/// Complaints about one answer that are told.
pub const ANSWER_COMPLAINTS_MAX: usize = 8;
/// Known references that a complaint about an unknown one names.
pub const SUGGESTED_REFERENCES_MAX: usize = 12;
/// Most tokens of the user's message that a node is shown.
pub const USER_MESSAGE_TOKENS_MAX: u32 = 8_000;
/// Most rows of what is put on show.
pub const ARTIFACT_ROWS_MAX: usize = 100;
/// Largest declaration of a domain, in bytes: as a file, or as JSON in a session's settings.
pub const DOMAIN_BYTES_MAX: usize = 64 * 1024;
/// Minutes by which a clock can differ from universal time.
pub const UTC_OFFSET_MINUTES_MAX: i64 = 14 * 60;
/// Longest account of what a server's tool takes, in characters of JSON.
pub const TOOL_SCHEMA_CHARS_MAX: usize = 1_500;
/// Shortest id that is looked for in what a server says, in characters.
pub const SCANNED_ID_CHARS_MIN: usize = 6;
/// Most tools of a server that models are told of.
pub const SERVER_TOOLS_MAX: usize = 40;
/// Longest wait for a server's answer that can be set, in seconds; the engine stops a tool after ten minutes.
pub const SERVER_TIMEOUT_S_MAX: u64 = 590;
/// Ids in the words of one result of a server that get references.
pub const MENTIONED_IDS_MAX: usize = 50;
/// Longest account of a tool in one line, in characters.
pub const TOOL_SUMMARY_CHARS_MAX: usize = 200;
/// Most of all accounts of what a server's tools take that one step is shown, in characters.
pub const TOOL_SCHEMAS_CHARS_MAX: usize = 12_000;
/// Records named in one line about what a server did.
pub const REFERENCES_NAMED_MAX: usize = 8;
