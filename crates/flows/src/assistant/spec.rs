//! The flow's data: five nodes, each with its own slice of the three layers and its own budgets; no node remembers a turn.

use segue_core::context::{FragmentSpec, Layer, Over};
use segue_core::flow::{FlowSpec, RoleSpec, Runs, ToolDef, UnknownPolicy};
use segue_core::prompt::{Output, ToolSpec};
use segue_core::scope::Scope;
use segue_core::signal::BlockNames;
use serde_json::{Value, json};

use super::answer::ACTIONS;
use super::facts::StepKind;
use super::settings::{self, Domains};
use super::tools::{RECORDS, REMOTE};
use crate::limits::{FOLDED_TOKENS_MAX, WORDS_TOKENS_MAX};

/// Takes the user's words against what is known.
pub const UNDERSTAND: &str = "understand";
/// Decides what to do.
pub const THINK: &str = "think";
/// Does one step.
pub const ACT: &str = "act";
/// Speaks to the user.
pub const REPLY: &str = "reply";
/// Folds what is older.
pub const SUMMARIZE: &str = "summarize";

/// The command that takes a write back.
pub const UNDO: &str = "undo";

pub(super) const ASK_GO: &str = "go";
pub(super) const ASK_REPAIR: &str = "repair";
pub(super) const ASK_RESULT: &str = "result";
pub(super) const ASK_REASONING: &str = "reasoning";
pub(super) const ASK_CONVERSATION: &str = "conversation";

pub(super) const INSTRUCTION: &str = "instruction";
pub(super) const DOMAIN: &str = "domain";
pub(super) const GUIDE: &str = "guide";
pub(super) const ENTITIES: &str = "entities";
pub(super) const LOADED: &str = "loaded";
pub(super) const RECORDS_AT_HAND: &str = "records";
pub(super) const CONVERSATION: &str = "conversation";
pub(super) const PENDING: &str = "pending";
pub(super) const DECISIONS: &str = "decisions";
pub(super) const REASONING: &str = "reasoning";
pub(super) const CURATION: &str = "curation";
pub(super) const TODAY: &str = "today";
pub(super) const STEP: &str = "step";
pub(super) const RESULTS: &str = "results";
pub(super) const RESULT: &str = "result";
pub(super) const FLOW: &str = "flow";
pub(super) const HAPPENED: &str = "happened";
pub(super) const OLDER: &str = "older";
pub(super) const REPAIR: &str = "repair";
pub(super) const MESSAGE: &str = "message";

/// Longest answer of a node that decides.
const DECISION_TOKENS: u32 = 2_000;
/// Longest answer of a step.
const ACT_TOKENS: u32 = 6_000;

/// The whole of it.
#[must_use]
pub fn spec(domains: &Domains) -> FlowSpec {
    let about = "a helper with a person's records: understand, think, act, reply, summarize";
    let undone = "which one, by the number of its tool run; the last one if not given";
    let spec = FlowSpec::new("assistant", about)
        .role(understand())
        .role(think())
        .role(act())
        .role(reply())
        .role(summarize())
        .tool(tool(RECORDS, "reads and changes the records of the domain", UnknownPolicy::Retry))
        .tool(tool(REMOTE, "runs a tool of the domain's server", UnknownPolicy::Fail))
        .command(UNDO, "takes a write back", &[("run", undone)]);
    settings::specs(domains).into_iter().fold(spec, FlowSpec::setting)
}

fn tool(name: &str, description: &str, unknown: UnknownPolicy) -> ToolDef {
    let parameters = json!({"type": "object"});
    let spec = ToolSpec { name: name.into(), description: description.to_owned(), parameters };
    ToolDef { spec, runs: Runs::Host, unknown }
}

fn within(name: &str, layer: Layer, tokens_max: u32) -> FragmentSpec {
    FragmentSpec::changing(name, layer).within(tokens_max, Over::KeepStart)
}

/// Older things stand first, so what is cut is older.
fn newest(name: &str, layer: Layer, tokens_max: u32) -> FragmentSpec {
    FragmentSpec::changing(name, layer).within(tokens_max, Over::KeepEnd)
}

fn message() -> FragmentSpec {
    within(MESSAGE, Layer::Words, WORDS_TOKENS_MAX)
}

/// A node begins anew with every turn, and goes on in its own words if it is asked again within one.
fn node(name: &str) -> RoleSpec {
    let repair = within(REPAIR, Layer::Task, 1_500);
    RoleSpec::new(name, Scope::turn())
        .opens_with(FragmentSpec::stable(INSTRUCTION, Layer::Instruction))
        .opens_with(FragmentSpec::stable(DOMAIN, Layer::Knowledge).within(6_000, Over::KeepStart))
        .ask(ASK_REPAIR, [repair])
}

fn understand() -> RoleSpec {
    let mut role = node(UNDERSTAND).ask(
        ASK_GO,
        [
            within(ENTITIES, Layer::Entities, 1_500),
            newest(CONVERSATION, Layer::Conversation, 4_000),
            within(DECISIONS, Layer::Reasoning, 800),
            within(PENDING, Layer::Conversation, 1_500),
            message(),
        ],
    );
    role.output = Output::Json(understand_schema());
    role.reply_tokens_max = DECISION_TOKENS;
    role
}

fn think() -> RoleSpec {
    let mut role = node(THINK).ask(
        ASK_GO,
        [
            within(ENTITIES, Layer::Entities, 2_500),
            within(LOADED, Layer::Entities, 2_500),
            newest(CONVERSATION, Layer::Conversation, 3_000),
            within(PENDING, Layer::Conversation, 1_500),
            newest(REASONING, Layer::Reasoning, 3_000),
            within(CURATION, Layer::Reasoning, 800),
            within(TODAY, Layer::Knowledge, 60),
            message(),
        ],
    );
    role.output = Output::Json(think_schema());
    role.reply_tokens_max = DECISION_TOKENS;
    role
}

fn act() -> RoleSpec {
    let mut role = node(ACT)
        .opens_with(within(GUIDE, Layer::Instruction, 5_000))
        .ask(
            ASK_GO,
            [
                within(STEP, Layer::Task, 1_500),
                within(RECORDS_AT_HAND, Layer::Entities, 8_000),
                within(ENTITIES, Layer::Entities, 2_000),
                within(RESULTS, Layer::Reasoning, 4_000),
                within(TODAY, Layer::Knowledge, 60),
                message(),
            ],
        )
        .ask(ASK_RESULT, [within(RESULT, Layer::Task, 8_000)]);
    role.output = Output::Json(act_schema());
    role.reply_tokens_max = ACT_TOKENS;
    role
}

fn reply() -> RoleSpec {
    node(REPLY)
        .ask(
            ASK_GO,
            [
                within(FLOW, Layer::Reasoning, 1_200),
                within(ENTITIES, Layer::Entities, 1_500),
                newest(CONVERSATION, Layer::Conversation, 3_000),
                within(HAPPENED, Layer::Reasoning, 6_000),
                message(),
            ],
        )
        .heard_by_user(BlockNames::new())
}

fn summarize() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARIZE, Scope::Fresh)
        .opens_with(FragmentSpec::changing(INSTRUCTION, Layer::Instruction))
        .ask(ASK_REASONING, [within(OLDER, Layer::Reasoning, 6_000)])
        .ask(ASK_CONVERSATION, [within(OLDER, Layer::Conversation, 6_000)]);
    role.reply_tokens_max = FOLDED_TOKENS_MAX;
    role
}

fn references() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn reasoned() -> Value {
    json!({"type": "array", "items": {"type": "object", "required": ["ref", "reason"],
        "properties": {"ref": {"type": "string"}, "reason": {"type": "string"}}}})
}

fn understand_schema() -> Value {
    json!({
        "type": "object",
        "required": ["expressed", "references", "retain", "demote", "drop", "clear", "pending"],
        "properties": {
            "expressed": {"type": "string"},
            "references": references(),
            "retain": reasoned(),
            "demote": reasoned(),
            "drop": references(),
            "clear": {"type": "boolean"},
            "pending": {"enum": ["accepted", "declined", "answered", "ignored", null]},
        },
    })
}

fn think_schema() -> Value {
    let kinds: Vec<&str> = StepKind::ALL.iter().map(|kind| kind.word()).collect();
    json!({
        "type": "object",
        "required": ["decision", "goal", "steps", "say"],
        "properties": {
            "decision": {"enum": ["plan_direct", "propose", "clarify"]},
            "goal": {"type": "string"},
            "steps": {"type": "array", "items": {
                "type": "object",
                "required": ["description", "type", "subdomain", "group", "refs"],
                "properties": {
                    "description": {"type": "string"},
                    "type": {"enum": kinds},
                    "subdomain": {"type": "string"},
                    "group": {"type": "integer"},
                    "refs": references(),
                },
            }},
            "say": {"type": ["string", "null"]},
        },
    })
}

fn act_schema() -> Value {
    json!({
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": {"enum": ACTIONS},
            "tool": {"type": "string"},
            "arguments": {"type": "object"},
            "outcome": {"type": "string"},
            "result": {},
            "refs": references(),
            "note_for_next_step": {"type": ["string", "null"]},
            "drafts": {"type": "array", "items": {"type": "object"}},
            "question": {"type": "string"},
            "partial": {},
            "turn": {"type": "integer"},
            "step": {"type": "integer"},
            "reason": {"type": "string"},
            "next": {"type": ["string", "null"]},
        },
    })
}
