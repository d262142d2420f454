//! The declaration of the flow: its five roles, their recipes and token budgets, its tools, commands and settings. No role
//! remembers earlier turns; its prompts show what it needs of them.

use segue_core::context::{FragmentContentKind, FragmentOverflowPolicy, FragmentSpec};
use segue_core::flow::{FlowCommandSpec, FlowSpec, FlowToolDeclaration, RoleSpec, UnknownOutcomePolicy};
use segue_core::prompt::{ModelOutputFormat, ModelToolSpec};
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::signal::BlockSet;
use serde_json::json;

use super::answer_schema::{self, NamesAllowedInAnswer};
use super::settings::{self, ConfiguredDomains};
use super::tools::{MCP_TOOL, RECORDS_TOOL};
use crate::fragment_specs::{fragment_keeping_end, fragment_keeping_start, message_fragment};
use crate::limits::{ACT_TOKENS_MAX, DECISION_TOKENS_MAX, FOLDED_TOKENS_MAX};

/// The role that interprets the user's message.
pub const UNDERSTAND_ROLE: &str = "understand";
/// The role that decides what to do.
pub const THINK_ROLE: &str = "think";
/// The role that carries out one step.
pub const ACT_ROLE: &str = "act";
/// The role that answers the user.
pub const REPLY_ROLE: &str = "reply";
/// The role that compacts older turns.
pub const SUMMARIZE_ROLE: &str = "summarize";

/// The command that undoes a write.
pub const UNDO_COMMAND: &str = "undo";

pub(super) const ASK_START: &str = "go";
pub(super) const ASK_REPAIR: &str = "repair";
pub(super) const ASK_RESULT: &str = "result";
pub(super) const ASK_REASONING: &str = "reasoning";
pub(super) const ASK_CONVERSATION: &str = "conversation";

pub(super) const INSTRUCTION_FRAGMENT: &str = "instruction";
pub(super) const DOMAIN_FRAGMENT: &str = "domain";
pub(super) const STEP_GUIDE_FRAGMENT: &str = "guide";
pub(super) const ENTITIES_FRAGMENT: &str = "entities";
pub(super) const LOADED_FRAGMENT: &str = "loaded";
pub(super) const LOADED_RECORDS_FRAGMENT: &str = "records";
pub(super) const CONVERSATION_FRAGMENT: &str = "conversation";
pub(super) const PENDING_INPUT_FRAGMENT: &str = "pending";
pub(super) const PAST_DECISIONS_FRAGMENT: &str = "decisions";
pub(super) const REASONING_FRAGMENT: &str = "reasoning";
pub(super) const CURATION_FRAGMENT: &str = "curation";
pub(super) const TODAY_FRAGMENT: &str = "today";
pub(super) const STEP_FRAGMENT: &str = "step";
pub(super) const STEP_RESULTS_FRAGMENT: &str = "results";
pub(super) const TOOL_RESULT_FRAGMENT: &str = "result";
pub(super) const SNAPSHOT_FRAGMENT: &str = "snapshot";
pub(super) const PROGRESS_FRAGMENT: &str = "flow";
pub(super) const EXECUTION_FRAGMENT: &str = "happened";
pub(super) const UNCOMPACTED_FRAGMENT: &str = "older";
pub(super) const REPAIR_FRAGMENT: &str = "repair";

/// Returns the declaration of the flow.
#[must_use]
pub fn assistant_flow_spec(domains: &ConfiguredDomains) -> FlowSpec {
    let description = "works with your records over many turns: understand, think, act, reply, summarize";
    let run_argument = "the tool run whose write to undo; the last write if not given";
    let spec = FlowSpec::new("assistant", description)
        .with_role(understand_role_spec())
        .with_role(think_role_spec())
        .with_role(act_role_spec())
        .with_role(reply_role_spec())
        .with_role(summarize_role_spec())
        .with_tool(host_tool_declaration(
            RECORDS_TOOL,
            "reads and changes the records of the domain",
            UnknownOutcomePolicy::Retry,
        ))
        .with_tool(host_tool_declaration(
            MCP_TOOL,
            "calls a tool of the domain's MCP server",
            UnknownOutcomePolicy::Fail,
        ));
    let undo = FlowCommandSpec {
        description: "undoes a write".to_owned(),
        arguments: [("run".to_owned(), run_argument.to_owned())].into(),
    };
    FlowSpec {
        settings: settings::assistant_setting_specs(domains),
        commands: [(UNDO_COMMAND.to_owned(), undo)].into(),
        ..spec
    }
}

fn host_tool_declaration(name: &str, description: &str, unknown: UnknownOutcomePolicy) -> FlowToolDeclaration {
    let parameters = json!({"type": "object"});
    let spec = ModelToolSpec { name: name.into(), description: description.to_owned(), parameters };
    FlowToolDeclaration { unknown_outcome: unknown, ..FlowToolDeclaration::for_host(spec) }
}

fn snapshot_fragment() -> FragmentSpec {
    fragment_keeping_start(SNAPSHOT_FRAGMENT, FragmentContentKind::Knowledge, 1_500)
}

/// The parts that all nodes but Summarize share. Each turn starts a new thread; a repair continues it.
fn node_role_spec(name: &str) -> RoleSpec {
    let repair = fragment_keeping_start(REPAIR_FRAGMENT, FragmentContentKind::Task, 1_500);
    RoleSpec::new(name, Scope::per_session().ended_by(ThreadEndTrigger::Turn))
        .with_opening_fragment(FragmentSpec::stable(INSTRUCTION_FRAGMENT, FragmentContentKind::Instruction))
        .with_opening_fragment(
            FragmentSpec::stable(DOMAIN_FRAGMENT, FragmentContentKind::Knowledge)
                .with_budget(6_000, FragmentOverflowPolicy::KeepStart),
        )
        .with_ask(ASK_REPAIR, [repair])
}

fn understand_role_spec() -> RoleSpec {
    let mut role = node_role_spec(UNDERSTAND_ROLE).with_ask(
        ASK_START,
        [
            fragment_keeping_start(ENTITIES_FRAGMENT, FragmentContentKind::Entities, 1_500),
            fragment_keeping_end(CONVERSATION_FRAGMENT, FragmentContentKind::Conversation, 4_000),
            fragment_keeping_start(PAST_DECISIONS_FRAGMENT, FragmentContentKind::Reasoning, 800),
            fragment_keeping_start(PENDING_INPUT_FRAGMENT, FragmentContentKind::Conversation, 1_500),
            message_fragment(),
        ],
    );
    role.output = ModelOutputFormat::Json(answer_schema::understand_schema(&NamesAllowedInAnswer::default()));
    role.reply_tokens_max = DECISION_TOKENS_MAX;
    role
}

fn think_role_spec() -> RoleSpec {
    let mut role = node_role_spec(THINK_ROLE).with_ask(
        ASK_START,
        [
            snapshot_fragment(),
            fragment_keeping_start(ENTITIES_FRAGMENT, FragmentContentKind::Entities, 2_500),
            fragment_keeping_start(LOADED_FRAGMENT, FragmentContentKind::Entities, 2_500),
            fragment_keeping_end(CONVERSATION_FRAGMENT, FragmentContentKind::Conversation, 3_000),
            fragment_keeping_start(PENDING_INPUT_FRAGMENT, FragmentContentKind::Conversation, 1_500),
            fragment_keeping_end(REASONING_FRAGMENT, FragmentContentKind::Reasoning, 3_000),
            fragment_keeping_start(CURATION_FRAGMENT, FragmentContentKind::Reasoning, 800),
            fragment_keeping_start(TODAY_FRAGMENT, FragmentContentKind::Knowledge, 60),
            message_fragment(),
        ],
    );
    role.output = ModelOutputFormat::Json(answer_schema::think_schema(&NamesAllowedInAnswer::default()));
    role.reply_tokens_max = DECISION_TOKENS_MAX;
    role
}

fn act_role_spec() -> RoleSpec {
    let mut role = node_role_spec(ACT_ROLE)
        .with_opening_fragment(fragment_keeping_start(STEP_GUIDE_FRAGMENT, FragmentContentKind::Instruction, 5_000))
        .with_ask(
            ASK_START,
            [
                snapshot_fragment(),
                fragment_keeping_start(STEP_FRAGMENT, FragmentContentKind::Task, 1_500),
                fragment_keeping_start(LOADED_RECORDS_FRAGMENT, FragmentContentKind::Entities, 8_000),
                fragment_keeping_start(ENTITIES_FRAGMENT, FragmentContentKind::Entities, 2_000),
                fragment_keeping_start(STEP_RESULTS_FRAGMENT, FragmentContentKind::Reasoning, 4_000),
                fragment_keeping_start(TODAY_FRAGMENT, FragmentContentKind::Knowledge, 60),
                message_fragment(),
            ],
        )
        .with_ask(ASK_RESULT, [fragment_keeping_start(TOOL_RESULT_FRAGMENT, FragmentContentKind::Task, 8_000)]);
    role.output = ModelOutputFormat::Json(answer_schema::any_act_schema());
    role.reply_tokens_max = ACT_TOKENS_MAX;
    role
}

fn reply_role_spec() -> RoleSpec {
    node_role_spec(REPLY_ROLE)
        .with_ask(
            ASK_START,
            [
                snapshot_fragment(),
                fragment_keeping_start(PROGRESS_FRAGMENT, FragmentContentKind::Reasoning, 1_200),
                fragment_keeping_start(ENTITIES_FRAGMENT, FragmentContentKind::Entities, 1_500),
                fragment_keeping_end(CONVERSATION_FRAGMENT, FragmentContentKind::Conversation, 3_000),
                fragment_keeping_start(EXECUTION_FRAGMENT, FragmentContentKind::Reasoning, 6_000),
                message_fragment(),
            ],
        )
        .visible_to_user(BlockSet::default())
}

fn summarize_role_spec() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARIZE_ROLE, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::changing(INSTRUCTION_FRAGMENT, FragmentContentKind::Instruction))
        .with_ask(ASK_REASONING, [fragment_keeping_start(UNCOMPACTED_FRAGMENT, FragmentContentKind::Reasoning, 6_000)])
        .with_ask(
            ASK_CONVERSATION,
            [fragment_keeping_start(UNCOMPACTED_FRAGMENT, FragmentContentKind::Conversation, 6_000)],
        );
    role.reply_tokens_max = FOLDED_TOKENS_MAX;
    role
}
