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
pub const LEAKS_MAX: usize = 64;

/// Most answers to one question: experts times their samples.
pub const EXPERTS_MAX: usize = 32;
/// Longest wait for an answer that can be set.
pub const ANSWER_TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Latest turn of the starter by which a handover can be set to be due.
pub const HANDOVER_BY_TURN_MAX: u64 = 100;
/// Largest map that is kept whole in a fact, in bytes of JSON; a larger one is in its mapper's answer.
pub const MAP_FACT_BYTES_MAX: usize = 256 * 1024;
/// Most tokens of a brief, or of answers shown in its place.
pub const KNOWN_TOKENS_MAX: u32 = 16_000;
/// Most tokens of the answers shown to a mapper.
pub const SOURCES_TOKENS_MAX: u32 = 64_000;
/// Most tokens of a handover shown to the one who takes over.
pub const HANDOVER_TOKENS_MAX: u32 = 8_000;
/// Most steps of a plan.
pub const PLAN_STEPS_MAX: usize = 50;
/// Longest title of a step, in characters.
pub const STEP_TITLE_CHARS_MAX: usize = 160;
/// Longest description of a step, or how one knows that it is done, in characters.
pub const STEP_TEXT_CHARS_MAX: usize = 2_000;
/// Most notices that wait to be told.
pub const NOTICES_MAX: usize = 8;
/// Longest part of what was said that a handover built by code takes over, in characters.
pub const BUILT_TEXT_CHARS_MAX: usize = 1_200;
/// Most items of a list in a handover built by code.
pub const BUILT_ITEMS_MAX: usize = 8;
