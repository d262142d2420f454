//! All limits of the flows.

/// Most claims read from one map.
pub const MAP_CLAIMS_MAX: usize = 10_000;
/// Most edges read from one map.
pub const MAP_EDGES_MAX: usize = 50_000;
/// Most gaps read from one map. A brief lists all of them.
pub const MAP_GAPS_MAX: usize = 50;
/// Longest id of a claim, in characters.
pub const CLAIM_ID_CHARS_MAX: usize = 64;
/// Longest label of a claim, in characters.
pub const CLAIM_LABEL_CHARS_MAX: usize = 120;
/// Longest text of a claim or a gap, in characters.
pub const CLAIM_TEXT_CHARS_MAX: usize = 2_000;
/// Longest narrative kept with a map, in characters.
pub const NARRATIVE_CHARS_MAX: usize = 20_000;
/// Most complaints about one map that are listed; the rest are only counted.
pub const MAP_COMPLAINTS_MAX: usize = 64;
/// Longest excerpt in a complaint, in characters.
pub const MAP_EXCERPT_CHARS_MAX: usize = 60;
/// Fewest answers that can be mapped.
pub const MAP_ANSWERS_MIN: u32 = 2;

/// Most positions that a brief describes in full.
pub const BRIEF_POSITIONS_MAX: usize = 24;
/// Most lines in any other list of a brief, except the gaps.
pub const BRIEF_LINES_MAX: usize = 12;
/// Most labels named in one line of a brief.
pub const BRIEF_LABELS_MAX: usize = 8;

/// Most internal terms reported for one reply.
pub const LEAKED_TERMS_MAX: usize = 64;

/// Most expert answers to one question, counting each sample.
pub const EXPERT_ANSWERS_MAX: usize = 32;
/// Longest `answer_timeout_ms` that can be set.
pub const ANSWER_TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Largest `handover_by_turn` that can be set.
pub const HANDOVER_BY_TURN_MAX: u64 = 100;
/// Largest `plan_by_request` that can be set.
pub const PLAN_BY_REQUEST_MAX: u64 = 100;
/// Largest map that is stored in a fact, in bytes of JSON. A larger one is parsed from the mapper's reply again.
pub const MAP_FACT_BYTES_MAX: usize = 256 * 1024;
/// Most tokens of a brief, or of the answers shown instead of one. Answers share this budget.
pub const BATCH_RESULT_TOKENS_MAX: u32 = 16_000;
/// Most tokens of the answers shown to a mapper. They share this budget.
pub const MAPPER_SOURCES_TOKENS_MAX: u32 = 64_000;
/// Longest question shown to a mapper, in characters.
pub const MAPPER_QUESTION_CHARS_MAX: usize = 16_000;
/// Most tokens of the text around the answers: question, headings and fences.
pub const SECTION_FRAME_TOKENS_MAX: u32 = 8_000;
/// Most tokens of a handover in a prompt.
pub const HANDOVER_TOKENS_MAX: u32 = 8_000;
/// Most steps of a plan.
pub const PLAN_STEPS_MAX: usize = 50;
/// Longest title of a step, in characters.
pub const STEP_TITLE_CHARS_MAX: usize = 160;
/// Longest description or done-when condition of a step, in characters.
pub const STEP_TEXT_CHARS_MAX: usize = 2_000;
/// Longest system prompt that a user can set, in characters.
pub const INSTRUCTION_CHARS_MAX: usize = 20_000;
/// Most messages with their replies that a reopened thread is shown.
pub const VISIT_EXCHANGES_MAX: usize = 6;
/// Longest text that shows a reopened thread the earlier conversation.
pub const VISIT_EXCHANGES_TOKENS_MAX: u32 = 3_000;
/// Most items of a list in the answer to a private question.
pub const QUESTION_LIST_ITEMS_MAX: usize = 24;
/// The most items that the schema of a private question allows in a list.
pub const QUESTION_LIST_ITEMS_ASKED: usize = 6;
/// The longest item of a list, text, and prompt for experts that the schema of a private question allows. A small model
/// may never end a text.
pub const QUESTION_ITEM_CHARS_ASKED: usize = 200;
pub const QUESTION_TEXT_CHARS_ASKED: usize = 400;
pub const EXPERT_PROMPT_CHARS_ASKED: usize = 1_200;
/// The most steps that the schema of a private question allows in a plan.
pub const PLAN_STEPS_ASKED: usize = 12;
/// Longest user message or unusable answer that a private question quotes, in characters.
pub const QUESTION_TEXT_CHARS_MAX: usize = 4_000;
/// Longest end of the reply before a message that a private question quotes, in characters. It may end with a question.
pub const QUESTION_EARLIER_REPLY_CHARS_MAX: usize = 240;
/// Longest beginning of the reply to a message that a private question quotes, in characters: about a sentence.
pub const QUESTION_REPLY_CHARS_MAX: usize = 100;
/// Most words of a message that may be clear only together with the reply before it.
pub const SHORT_MESSAGE_WORDS_MAX: usize = 12;
/// Longest thread of an expert, in tokens: about ten exchanges. Then the older ones are folded into a summary.
pub const EXPERT_THREAD_TOKENS_MAX: u32 = 3_200;
/// The size of an expert's thread after that, in tokens, with the longest summary.
pub const EXPERT_THREAD_TOKENS_KEPT: u32 = 1_600;
/// Most notices that are pending for the concierge.
pub const PENDING_NOTICES_MAX: usize = 8;
/// Longest text copied into a handover that is built by the flow, in characters.
pub const BUILT_HANDOVER_TEXT_CHARS_MAX: usize = 1_200;
/// Most user messages kept for a handover that is built by the flow. The latest are kept.
pub const HANDOVER_MESSAGES_MAX: usize = 12;
/// Most items of a list in a handover that is built by the flow.
pub const BUILT_HANDOVER_ITEMS_MAX: usize = 8;

/// Longest name of a domain, a type or a field, in characters.
pub const DOMAIN_NAME_CHARS_MAX: usize = 40;
/// Longest description of a domain, a type or a field, in characters.
pub const DOMAIN_DESCRIPTION_CHARS_MAX: usize = 1_000;
/// Most types of a domain. Prompts list all of them.
pub const DOMAIN_TYPES_MAX: usize = 24;
/// Most fields of a type.
pub const DOMAIN_FIELDS_MAX: usize = 40;
/// Most sample records of a domain.
pub const DOMAIN_SAMPLES_MAX: usize = 1_000;
/// Longest text in a field of a record, in characters.
pub const RECORD_TEXT_CHARS_MAX: usize = 20_000;
/// Most items of a list in a record.
pub const RECORD_LIST_ITEMS_MAX: usize = 200;
/// Most filters of one read.
pub const READ_FILTERS_MAX: usize = 12;
/// Conditions of a read step in a plan.
pub const PLANNED_FILTERS_MAX: usize = 4;
/// Most values of one filter.
pub const FILTER_VALUES_MAX: usize = 200;
/// Records returned by a read without a limit.
pub const READ_ROWS_DEFAULT: usize = 25;
/// Most records returned by one read.
pub const READ_ROWS_MAX: usize = 100;
/// Most records written by one tool call.
pub const WRITE_ROWS_MAX: usize = 50;

/// Most references remembered. The least recently used are forgotten first, and their numbers are never reused.
pub const ENTITIES_MAX: usize = 2_000;
/// Most references whose records are cached.
pub const ENTITIES_CACHED_MAX: usize = 150;
/// Most unsaved drafts kept.
pub const DRAFTS_MAX: usize = 30;
/// Longest label of an entity, in characters.
pub const ENTITY_LABEL_CHARS_MAX: usize = 80;
/// Longest reason, intent or note from a model, in characters.
pub const REMARK_CHARS_MAX: usize = 300;
/// Longest outcome, goal or description, in characters.
pub const OUTCOME_CHARS_MAX: usize = 600;
/// Longest question or proposal, in characters.
pub const PROPOSAL_CHARS_MAX: usize = 4_000;
/// Longest partial analysis stored with a question, in characters of JSON.
pub const PARTIAL_ANALYSIS_CHARS_MAX: usize = 4_000;
/// Bytes of one prompt template of a session.
pub const PROMPT_OVERRIDE_BYTES_MAX: usize = 32 * 1024;
/// Bytes of all prompt templates of a session.
pub const PROMPT_OVERRIDES_BYTES_MAX: usize = 128 * 1024;
/// Longest name of a tool of an MCP server in a flow file, in characters. Vendors accept no longer names.
pub const MCP_TOOL_NAME_CHARS_MAX: usize = 64;
/// Most tools of MCP servers that a flow file lists.
pub const DEFINITION_MCP_TOOLS_MAX: usize = 64;
/// Longest description of a tool by its server, in characters.
pub const MCP_DESCRIPTION_CHARS_MAX: usize = 2_000;
/// Longest schema of the arguments of a tool of an MCP server, in bytes of JSON.
pub const MCP_SCHEMA_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of JSON with which all listed tools are described.
pub const MCP_LISTING_BYTES_MAX: usize = 200 * 1024;
/// Longest list of files that could not be merged, as the router is told, in characters.
pub const MERGE_SUMMARY_CHARS_MAX: usize = 1_000;
/// Longest reason why a server could not be asked, in characters.
pub const MCP_PROBLEM_CHARS_MAX: usize = 400;
/// Longest text of a result of an MCP server that an agent is shown, in bytes. The host cuts the text before it is fenced.
pub const MCP_RESULT_TEXT_BYTES_MAX: usize = 80 * 1024;
/// Longest time in which servers describe their tools.
pub const MCP_LIST_RUN_MS_MAX: u64 = 60 * 1_000;
/// Most references listed in the schema of an answer; if more are known, any text is allowed there and checked later.
pub const SCHEMA_REFERENCES_MAX: usize = 300;
/// Most references read from one list of a model.
pub const REFERENCES_MAX: usize = 100;
/// How many turns a reference stays active.
pub const REFERENCE_ACTIVE_TURNS: u32 = 2;
/// Most registry rows in the Understand prompt.
pub const REGISTRY_ROWS_MAX: usize = 20;
/// Most references of each kind in the Think prompt.
pub const THINK_ROWS_MAX: usize = 40;
/// Past turns in the Understand prompt.
pub const UNDERSTAND_TURNS_SHOWN: usize = 5;
/// Past turns in the Think prompt.
pub const THINK_TURNS_SHOWN: usize = 2;
/// Past turns in the Reply prompt.
pub const REPLY_TURNS_SHOWN: usize = 3;
/// Turn summaries kept in full.
pub const FULL_SUMMARIES_MAX: usize = 2;
/// Most older summaries kept while their compaction keeps failing.
pub const SUMMARIES_AGED_MAX: usize = 12;
/// Most older exchanges kept while their compaction keeps failing.
pub const EXCHANGES_AGED_MAX: usize = 24;
/// Longest excerpt of a message shown to a role that did not receive it, in characters.
pub const MESSAGE_EXCERPT_CHARS_MAX: usize = 1_200;
/// Most tokens of compacted reasoning or conversation.
pub const FOLDED_TOKENS_MAX: u32 = 500;
/// Longest compacted reasoning or conversation, in characters. Longer text is cut.
pub const FOLDED_CHARS_MAX: usize = 3_000;
/// Most steps of an assistant plan.
pub const ASSISTANT_PLAN_STEPS_MAX: usize = 12;
/// Most tool calls of one step.
pub const STEP_TOOL_CALLS_MAX: u32 = 3;
/// Most results of earlier steps that one step may fetch.
pub const STEP_RETRIEVALS_MAX: u32 = 2;
/// How often a node is asked again after an unusable answer.
pub const NODE_REPAIRS_MAX: u32 = 1;
/// How often the same read may return nothing before its step ends.
pub const EMPTY_READS_MAX: u32 = 2;
/// Longest step result shown to other steps, in characters.
pub const STEP_RESULT_CHARS_MAX: usize = 6_000;
/// Most characters of all records shown to one step.
pub const STEP_RECORDS_CHARS_MAX: usize = 24_000;
/// Most queries of a domain's snapshot.
pub const SNAPSHOT_QUERIES_MAX: usize = 8;
/// Most records that one query of a snapshot returns.
pub const SNAPSHOT_ROWS_MAX: usize = 10;
/// Most records of a standing type that a snapshot contains.
pub const STANDING_ROWS_MAX: usize = 25;
/// Most writes that can be undone. Older ones remain in the journal.
pub const UNDOABLE_WRITES_MAX: usize = 64;
/// Most complaints about one answer that are reported.
pub const ANSWER_COMPLAINTS_MAX: usize = 8;
/// Most known references suggested for an unknown one.
pub const SUGGESTED_REFERENCES_MAX: usize = 12;
/// Most tokens of the user's message in a prompt.
pub const USER_MESSAGE_TOKENS_MAX: u32 = 8_000;
/// Most rows of an artifact.
pub const ARTIFACT_ROWS_MAX: usize = 100;
/// Largest declaration of a domain, in bytes: as a file, or as JSON in a session's settings.
pub const DOMAIN_BYTES_MAX: usize = 64 * 1024;
/// Largest UTC offset, in minutes.
pub const UTC_OFFSET_MINUTES_MAX: i64 = 14 * 60;
/// Longest input schema of a server tool, in characters of JSON.
pub const TOOL_SCHEMA_CHARS_MAX: usize = 1_500;
/// Shortest id that is searched for in a server's text, in characters.
pub const SCANNED_ID_CHARS_MIN: usize = 6;
/// Most tools of a server that prompts list.
pub const SERVER_TOOLS_MAX: usize = 40;
/// Longest server timeout that can be set, in seconds. The engine stops a tool after ten minutes.
pub const SERVER_TIMEOUT_S_MAX: u64 = 590;
/// Most ids in one server result that get references.
pub const MENTIONED_IDS_MAX: usize = 50;
/// Longest one-line description of a tool, in characters.
pub const TOOL_SUMMARY_CHARS_MAX: usize = 200;
/// Most characters of all tool schemas shown to one step.
pub const TOOL_SCHEMAS_CHARS_MAX: usize = 12_000;
/// Most records named in one line about a server's action.
pub const REFERENCES_NAMED_MAX: usize = 8;
/// The number of words that models are told a compacted text may have.
pub(crate) const COMPACTED_WORDS_MAX: u32 = FOLDED_TOKENS_MAX * 3 / 5;
/// Most records written in one step.
pub(crate) const RECORDS_WRITTEN_MAX: usize = 3;
/// Most labels listed in one line of a reply.
pub(crate) const LABELS_LISTED_MAX: usize = 12;
/// Longest answer of Understand and Think, in tokens.
pub(crate) const DECISION_TOKENS_MAX: u32 = 2_000;
/// Longest answer of Act, in tokens.
pub(crate) const ACT_TOKENS_MAX: u32 = 6_000;
/// Longest summary of a compacted chat, in tokens.
pub(crate) const CHAT_SUMMARY_TOKENS_MAX: u32 = 800;
/// The number of words that the summarizer of a chat is told to keep to.
pub(crate) const CHAT_SUMMARY_WORDS_MAX: u32 = 400;
/// Rounds of a client's tools in one turn of the chat flow.
pub(crate) const CHAT_TOOL_ROUNDS_MAX: u32 = 100;
/// Least confidence that is called firm.
pub(crate) const FIRM_CONFIDENCE_MIN: f64 = 0.65;
/// Least confidence that is called fair.
pub(crate) const FAIR_CONFIDENCE_MIN: f64 = 0.45;
/// Fewest other words in a message that says what the plan is for.
pub(crate) const DETAIL_WORDS_MIN: usize = 3;
/// The first turn in which the starter can hand over, because the user has replied by then.
pub(crate) const HANDOVER_TURN_MIN: u32 = 2;
/// Words from which on a reply that begins like the one before counts as a repetition.
pub(crate) const REPEATED_REPLY_WORDS_MIN: usize = 20;
/// The words of the shortest message of the user that a reply must not consist of.
pub(crate) const ECHOED_MESSAGE_WORDS_MIN: usize = 4;
/// The length from which on a sentence of the instruction in a reply shows that the model repeats its instruction.
pub(crate) const ECHOED_INSTRUCTION_CHARS_MIN: usize = 40;
/// The length from which on a sentence of the instruction is removed from such a reply.
pub(crate) const REMOVED_INSTRUCTION_CHARS_MIN: usize = 15;
/// Longest summary of a compacted thread.
pub(crate) const CONCIERGE_SUMMARY_TOKENS_MAX: u32 = 800;
/// Longest map. A claim takes about 80 tokens, an edge about 30.
pub(crate) const MAP_REPLY_TOKENS_MAX: u32 = 16_384;
/// Longest reply of the concierge: a plan with its STEPS block.
pub(crate) const CONCIERGE_REPLY_TOKENS_MAX: u32 = 8_192;
/// The fewest words with which a part of a sample counts as its repetition.
pub(crate) const PARTIAL_ECHO_WORDS_MIN: usize = 3;

/// Longest duration of a workspace tool that works on files.
pub const FILE_TOOL_RUN_MS_MAX: u64 = 2 * 60 * 1_000;
/// Longest duration of a command that an agent runs.
pub const COMMAND_RUN_MS_MAX: u64 = 30 * 60 * 1_000;
/// Longest duration of all checks of a workspace together.
pub const CHECKS_RUN_MS_MAX: u64 = 2 * 60 * 60 * 1_000;
/// Longest text that a file tool shows to a model, in bytes.
pub const FILE_TOOL_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Longest text that a command shows to a model, in bytes.
pub const COMMAND_TEXT_BYTES_MAX: usize = 32 * 1024;
/// Most lessons of one agent in a workspace; older ones are dropped.
pub(crate) const LESSONS_PER_AGENT_MAX: usize = 50;
/// Most agents with lessons in a workspace.
pub(crate) const LESSON_AGENTS_MAX: usize = 64;
/// Longest name of an agent in a workspace, in characters.
pub(crate) const AGENT_NAME_CHARS_MAX: usize = 64;
/// Longest title of a lesson, in characters.
pub(crate) const LESSON_TITLE_CHARS_MAX: usize = 200;
/// Longest lesson, in characters.
pub(crate) const LESSON_TEXT_CHARS_MAX: usize = 4_000;
/// Most entries of knowledge in a workspace.
pub(crate) const KNOWLEDGE_ENTRIES_MAX: usize = 2_000;
/// Most bytes of JSON in the knowledge of a workspace.
pub(crate) const KNOWLEDGE_BYTES_MAX: usize = 4 << 20;
/// Largest document of knowledge, in bytes of JSON.
pub(crate) const KNOWLEDGE_DOCUMENT_BYTES_MAX: usize = 32 << 10;
/// Most entries of knowledge that one request stores or removes.
pub(crate) const KNOWLEDGE_ENTRIES_PER_REQUEST_MAX: usize = 100;
/// Longest kind of an entry of knowledge, in characters.
pub(crate) const KNOWLEDGE_KIND_CHARS_MAX: usize = 64;
/// Longest key of an entry of knowledge, in characters.
pub(crate) const KNOWLEDGE_KEY_CHARS_MAX: usize = 200;
/// Largest list in a reply of a workspace, in bytes of JSON. The engine allows 256 KiB for the whole reply.
pub(crate) const WORKSPACE_REPLY_BYTES_MAX: usize = 200 << 10;
/// Most claims of a workspace that are in use at the same time.
pub(crate) const CLAIMS_MAX: usize = 64;
/// Longest name of a claim, in characters.
pub(crate) const CLAIM_NAME_CHARS_MAX: usize = 64;
/// Most rows of each table that shows a workspace.
pub(crate) const WORKSPACE_ROWS_SHOWN_MAX: usize = 500;

/// Largest flow file, in bytes.
pub const DEFINITION_BYTES_MAX: usize = 128 * 1024;
/// Most mistakes in a flow file that are reported.
pub const DEFINITION_ERRORS_MAX: usize = 50;
/// Most agents of a flow file.
pub const DEFINITION_AGENTS_MAX: usize = 32;
/// Most phases of a flow file.
pub const DEFINITION_PHASES_MAX: usize = 32;
/// Most checks of a flow file or of a session's settings.
pub const DEFINITION_CHECKS_MAX: usize = 16;
/// Longest name in a flow file, in characters.
pub const DEFINITION_NAME_CHARS_MAX: usize = 40;
/// Longest text in a flow file, in characters.
pub const DEFINITION_TEXT_CHARS_MAX: usize = 8_000;
/// Largest `routing_turns_max` of a flow file.
pub const ROUTING_TURNS_MAX: u32 = 200;
/// Largest `turns_max` of a phase.
pub const PHASE_TURNS_MAX: u32 = 200;
/// Largest `visits_max` of a phase.
pub const PHASE_VISITS_MAX: u32 = 100;
/// Largest `tool_rounds_max` of a flow file.
pub const AGENT_TOOL_ROUNDS_MAX: u32 = 200;
/// Most calls of an agent or of the router in one turn.
pub const AGENT_CALLS_PER_TURN_MAX: u32 = 2_000;
/// Longest answer of an agent, in tokens.
pub const AGENT_REPLY_TOKENS_MAX: u32 = 8_192;
/// Most tokens of a request for the content of a file, with its present content.
pub const CONTENT_TOKENS_MAX: u32 = 32_000;
/// Longest command line of a check, in characters.
pub const CHECK_COMMAND_CHARS_MAX: usize = 400;
/// Most checks that the user can name in a session.
pub const CONFIRMED_CHECKS_MAX: usize = 16;
/// Routing turns that the router is shown in full; older ones are counted.
pub const ROUTING_TURNS_IN_FULL: usize = 10;
/// Most different routings that are counted.
pub const ROUTING_TURN_KINDS_MAX: usize = 64;
/// Most agents in one routing decision.
pub const ROUTED_AGENTS_MAX: usize = 8;
/// Longest reason of a routing decision, in characters.
pub const ROUTING_REASON_CHARS_MAX: usize = 300;
/// How often the router is asked again after an unusable answer.
pub const ROUTING_REPAIRS_MAX: u32 = 1;
/// How often an agent may fail to reflect before it counts as having no lesson.
pub const REFLECTION_TRIES_MAX: u32 = 2;
/// How many decisions in a row may be refused before the default agent works.
pub const REFUSED_DECISIONS_MAX: u32 = 2;
/// Most complaints that the router is shown.
pub const FEEDBACK_LINES_MAX: usize = 8;
/// Most lessons that the router keeps from its own mistakes.
pub const ROUTER_LESSONS_MAX: usize = 16;
/// The last routing turns among which repetitions are counted.
pub const LOOP_WINDOW_TURNS: usize = 5;
/// Repetitions of which the router is informed.
pub const LOOP_TIMES_WARN: u32 = 2;
/// Repetitions without progress after which the user is asked.
pub const LOOP_TIMES_MAX: u32 = 3;
/// Equal tool calls with equal results of which an agent is warned.
pub const REPEATED_CALLS_WARN: u32 = 2;
/// Equal tool calls with equal results after which an agent's turn ends.
pub const REPEATED_CALLS_MAX: u32 = 3;
/// Unusable actions of an agent in a row after which it is not asked again.
pub const REFUSED_ACTIONS_MAX: u32 = 3;
/// The shortest run of backticks or tildes that is a code fence.
pub const FENCE_LENGTH_MIN: usize = 3;
/// How often a request to complete work is refused for the same agent and turn before it may insist.
pub const REFUSED_COMPLETIONS_MAX: u32 = 2;
/// How old the newest transition may be for its summary to be handed over, in milliseconds.
pub const HANDOFF_WINDOW_MS: u64 = 30_000;
/// Longest summary that is handed over, in characters.
pub const HANDOFF_SUMMARY_CHARS_MAX: usize = 4_000;
/// Longest summary of an agent's work, in characters.
pub const COMPLETION_SUMMARY_CHARS_MAX: usize = 2_000;
/// Most issues in one completion.
pub const ISSUES_MAX: usize = 20;
/// Longest text of an issue, in characters.
pub const ISSUE_TEXT_CHARS_MAX: usize = 1_000;
/// How long a session waits for an answer of its workspace.
pub const WORKSPACE_WAIT_MS: u64 = 30_000;
/// How long a session waits until it may work in its workspace.
pub const CLAIM_WAIT_MS: u64 = 30 * 60 * 1_000;
/// Lessons that a session keeps for each agent.
pub const PROJECT_LESSONS_MAX: usize = 50;
/// Longest title of a lesson that an agent records, in characters.
pub const PROJECT_LESSON_TITLE_CHARS_MAX: usize = 120;
/// Longest lesson that an agent records, in characters.
pub const PROJECT_LESSON_TEXT_CHARS_MAX: usize = 1_000;
/// Most entries of the log that agents are shown.
pub const PROJECT_LOG_ENTRIES_MAX: usize = 200;
/// Longest entry of the log in a prompt, in characters.
pub const LOG_ENTRY_CHARS_MAX: usize = 2_000;
/// Most files that the state keeps of a workspace.
pub const PROJECT_FILES_LISTED_MAX: usize = 500;
/// Most files that are listed in a prompt.
pub const PROMPT_FILES_MAX: usize = 100;
/// Most files per agent whose digest is kept after reading.
pub const READ_FILES_MAX: usize = 1_000;
/// Most checkpoints that are listed.
pub const CHECKPOINTS_LISTED_MAX: usize = 50;
/// Longest output of a failed check in a prompt, in characters.
pub const CHECK_OUTPUT_CHARS_MAX: usize = 4_000;
/// Most lines of an account of the work.
pub const ACCOUNT_LINES_MAX: usize = 12;
/// Longest summary in an account of the work, in characters.
pub const ACCOUNT_SUMMARY_CHARS_MAX: usize = 400;
/// Most files that an account of the work lists.
pub const ACCOUNT_FILES_MAX: usize = 20;
/// Most nodes of a knowledge graph.
pub const KNOWLEDGE_NODES_MAX: usize = 5_000;
/// Longest id of a knowledge node, in characters.
pub const KNOWLEDGE_ID_CHARS_MAX: usize = 80;
/// Longest description of a knowledge node, in characters.
pub const KNOWLEDGE_DESCRIPTION_CHARS_MAX: usize = 2_000;
/// Most relations from one knowledge node.
pub const KNOWLEDGE_RELATIONS_PER_NODE_MAX: usize = 64;
/// Longest knowledge file, in bytes.
pub const KNOWLEDGE_FILE_BYTES_MAX: usize = 4 << 20;
/// Most nested subgraphs in a knowledge file.
pub const KNOWLEDGE_FILE_DEPTH_MAX: u32 = 32;
/// Most terms of a story that are searched for in the knowledge graph.
pub const KNOWLEDGE_PACK_TERMS_MAX: usize = 20;
/// Most nodes of a knowledge pack that match the story.
pub const KNOWLEDGE_PACK_HITS_MAX: usize = 20;
/// Most nodes of a knowledge pack, with neighbours.
pub const KNOWLEDGE_PACK_NODES_MAX: usize = 60;
/// Most stories of a spec.
pub const STORIES_MAX: usize = 50;
/// Longest id of a story, in characters.
pub const STORY_ID_CHARS_MAX: usize = 40;
/// Longest title of a story, in characters.
pub const STORY_TITLE_CHARS_MAX: usize = 200;
/// Longest text of a story, in characters.
pub const STORY_TEXT_CHARS_MAX: usize = 20_000;
/// Most acceptance criteria of a story.
pub const STORY_CRITERIA_MAX: usize = 20;
/// Most files or folders that a story names.
pub const STORY_FILES_MAX: usize = 100;
/// Most problems of a diff that a coder is told at once.
pub const DIFF_PROBLEMS_MAX: usize = 20;
/// Most findings of one review.
pub const REVIEW_FINDINGS_MAX: usize = 50;
/// Longest text of a review or a finding, in characters.
pub const REVIEW_TEXT_CHARS_MAX: usize = 8_000;
/// Most coders of a team.
pub const TEAM_CODERS_MAX: u32 = 8;
/// Longest text of a field of a spec, in characters.
pub const PRODUCT_SPEC_TEXT_CHARS_MAX: usize = 4_000;
/// Most requirements, acceptance criteria or constraints of a spec.
pub const PRODUCT_SPEC_ITEMS_MAX: usize = 50;
/// Longest spec in a setting, in bytes.
pub const PRODUCT_SPEC_BYTES_MAX: usize = 64 * 1024;
/// Verdicts of one answer that are compared; the strictest counts.
pub const REVIEW_VERDICTS_MAX: usize = 8;
/// Longest duration of a tool that works on a repository.
pub const GIT_TOOL_RUN_MS_MAX: u64 = 30 * 60 * 1_000;
/// Longest duration of a project's tests.
pub const TEAM_TESTS_RUN_MS_MAX: u64 = 2 * 60 * 60 * 1_000;
/// Model calls of a coder for a plan, before the architect decides whether it may continue.
pub const CODER_PLANNING_ROUNDS: u32 = 10;
/// Model calls of a coder for its code, before the architect decides whether it may continue.
pub const CODER_CODING_ROUNDS: u32 = 12;
/// Most budget reviews in one attempt.
pub const BUDGET_REVIEWS_MAX: u32 = 8;
/// From this review in a row that asks for changes, both sides are warned.
pub const REVIEW_STREAK_WARNING: u32 = 3;
/// This review in a row that asks for changes counts as a rejection.
pub const REVIEW_STREAK_MAX: u32 = 6;
/// Most attempts of a story before a person is asked.
pub const STORY_ATTEMPTS_MAX: u32 = 4;
/// Most merge conflicts of a story before its attempt ends.
pub const STORY_CONFLICTS_MAX: u32 = 3;
/// Most reviews of a story that the state keeps.
pub const STORY_REVIEWS_KEPT_MAX: usize = 40;
/// Most ended specs that the state keeps.
pub const TEAM_SPECS_KEPT_MAX: usize = 20;
/// How long a suspended agent waits before it tries again.
pub const SUSPENDED_RETRY_MS: u64 = 60 * 1_000;
/// How long an agent is suspended before a person is asked.
pub const SUSPENDED_MS_MAX: u64 = 15 * 60 * 1_000;
/// Longest diff that is reviewed in one piece, in bytes. A longer one is reviewed file by file.
pub const REVIEW_DIFF_BYTES_MAX: usize = 48 * 1024;
/// Longest test output that a coder is shown, in bytes.
pub const TEST_OUTPUT_BYTES_MAX: usize = 12 * 1024;
/// Longest `AGENTS.md` that is kept, in bytes.
pub const PROJECT_INSTRUCTIONS_BYTES_MAX: usize = 32 * 1024;
/// Largest knowledge graph that is recorded, in bytes of JSON.
pub const KNOWLEDGE_FACT_BYTES_MAX: usize = 900 * 1024;
/// Longest answer of the architect, in tokens.
pub(crate) const ARCHITECT_REPLY_TOKENS_MAX: u32 = 8_192;
/// Longest answer of a coder, in tokens. It contains whole files.
pub(crate) const CODER_REPLY_TOKENS_MAX: u32 = 16_384;
/// Most calls of a role, in a turn or outside.
pub(crate) const TEAM_CALLS_MAX: u32 = 10_000;
/// Most tool rounds after one call. A coder's budget ends earlier.
pub(crate) const TEAM_TOOL_ROUNDS_MAX: u32 = 200;
