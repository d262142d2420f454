//! The declaration of the flow: its roles, their recipes and tools, the graphs of its agents, commands and settings.
//!
//! The architect's thread with a coder is partitioned by the coder and ends with the coder's work item, which the
//! dispatcher alone assigns. So a review sees the earlier reviews of the same assignment and nothing else.

use segue_core::context::{FragmentContentKind, FragmentOverflowPolicy, FragmentSpec};
use segue_core::flow::{
    FlowCommandSpec, FlowSpec, FlowToolDeclaration, RoleCallLimits, RoleSpec, SummarizerRole, ToolRunnerKind,
};
use segue_core::phase::{PhaseAllowedTools, PhaseGraph};
use segue_core::prompt::{ModelOutputFormat, ModelToolSpec};
use segue_core::scope::{Scope, ThreadEndTrigger};
use serde_json::{Value, json};

use super::graphs::{self, architect_graph, coder_graph, product_manager_graph};
use super::knowledge::knowledge_add_schema;
use super::repository_tools::RepositoryTool;
use super::settings::team_setting_specs;
use crate::limits::{
    ARCHITECT_REPLY_TOKENS_MAX, CHAT_SUMMARY_TOKENS_MAX, CODER_REPLY_TOKENS_MAX, TEAM_CALLS_MAX, TEAM_TOOL_ROUNDS_MAX,
};
use crate::workspace_tools::WorkspaceTool;

pub const PRODUCT_MANAGER_ROLE: &str = "product_manager";
pub const ARCHITECT_ROLE: &str = "architect";
/// The architect with a single context, for comparison.
pub const SINGLE_CONTEXT_ARCHITECT_ROLE: &str = "architect_single";
pub const CODER_ROLE: &str = "coder";
const SUMMARISER_ROLE: &str = "summariser";

pub const ARCHITECT_AGENT: &str = "architect";
pub const PRODUCT_MANAGER_AGENT: &str = "pm";

/// The asks of the roles.
pub const INTERVIEW_ASK: &str = "interview";
pub const STORIES_ASK: &str = "stories";
pub const REQUEST_ASK: &str = "request";
pub const REPAIR_ASK: &str = "repair";
pub const TASK_ASK: &str = "task";

pub const KNOWLEDGE_ADD_TOOL: &str = "knowledge_add";
pub const HOT_FIX_TOOL: &str = "hot_fix";

pub(super) const ROLE_FRAGMENT: &str = "role";
pub(super) const STORY_FRAGMENT: &str = "story";
pub(super) const SPEC_FRAGMENT: &str = "spec";
pub(super) const KNOWLEDGE_FRAGMENT: &str = "knowledge";
pub(super) const PROJECT_FRAGMENT: &str = "project_instructions";
pub(super) const HISTORY_FRAGMENT: &str = "history";
pub(super) const REQUEST_FRAGMENT: &str = "request";
pub(super) const REPAIR_FRAGMENT: &str = "repair";
pub(super) const TASK_FRAGMENT: &str = "task";
pub(super) const STATUS_FRAGMENT: &str = "status";
pub(super) const MESSAGE_FRAGMENT: &str = "message";
pub(super) const DRAFT_FRAGMENT: &str = "draft";

/// The tools that only read files.
const READING_TOOLS: [WorkspaceTool; 3] =
    [WorkspaceTool::ReadFile, WorkspaceTool::ListFiles, WorkspaceTool::SearchFiles];

/// Returns the declaration of the flow.
#[must_use]
pub fn team_flow_spec() -> FlowSpec {
    let description = "a product manager, an architect and coders build a spec in a git repository";
    let mut spec = FlowSpec::new("team", description)
        .with_role(product_manager_role_spec())
        .with_role(architect_role_spec(ARCHITECT_ROLE, Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem)))
        .with_role(architect_role_spec(SINGLE_CONTEXT_ARCHITECT_ROLE, Scope::per_session()))
        .with_role(coder_role_spec())
        .with_role(summariser_role_spec())
        .with_graph(coder_graph_with_tools())
        .with_graph(architect_graph())
        .with_graph(product_manager_graph())
        .with_tool(flow_tool_declaration(
            KNOWLEDGE_ADD_TOOL,
            include_str!("../../prompts/team/knowledge_add.md"),
            knowledge_add_schema(),
        ))
        .with_tool(flow_tool_declaration(
            HOT_FIX_TOOL,
            include_str!("../../prompts/team/hot_fix.md"),
            hot_fix_schema(),
        ));
    for tool in WorkspaceTool::for_models() {
        spec = spec.with_tool(tool.declaration());
    }
    for tool in RepositoryTool::ALL {
        spec = spec.with_tool(tool.declaration());
    }
    spec.settings = team_setting_specs();
    spec.commands = team_commands();
    spec
}

fn flow_tool_declaration(name: &str, description: &str, parameters: Value) -> FlowToolDeclaration {
    let spec = ModelToolSpec { name: name.into(), description: description.trim().to_owned(), parameters };
    FlowToolDeclaration { runner: ToolRunnerKind::Flow, ..FlowToolDeclaration::for_host(spec) }
}

fn hot_fix_schema() -> Value {
    json!({
        "type": "object",
        "required": ["title", "description", "files"],
        "properties": {
            "title": {"type": "string"},
            "description": {"type": "string"},
            "files": {"type": "array", "items": {"type": "string"}},
        },
    })
}

/// Returns the tools of a coder in a phase. While it plans, it only reads.
pub(super) fn coder_tools(phase: &str) -> Vec<&'static str> {
    let own = [KNOWLEDGE_ADD_TOOL];
    match phase {
        graphs::PLANNING => READING_TOOLS.iter().map(|tool| tool.name()).chain(own).collect(),
        _ => WorkspaceTool::for_models().map(WorkspaceTool::name).chain(own).collect(),
    }
}

fn coder_graph_with_tools() -> PhaseGraph {
    let mut graph = coder_graph();
    let reading = coder_tools(graphs::PLANNING).into_iter().map(Into::into).collect();
    let reading = PhaseAllowedTools::Only(reading);
    for phase in &mut graph.phases {
        if phase.name == *graphs::PLANNING {
            phase.tools = reading.clone();
        }
    }
    graph
}

fn team_role_limits() -> RoleCallLimits {
    RoleCallLimits {
        tool_rounds_max: TEAM_TOOL_ROUNDS_MAX,
        calls_per_turn_max: TEAM_CALLS_MAX,
        tool_calls_per_turn_max: TEAM_CALLS_MAX,
        calls_outside_turns_max: TEAM_CALLS_MAX,
    }
}

fn text_fragment(name: &str, layer: FragmentContentKind, tokens_max: u32) -> FragmentSpec {
    FragmentSpec::changing(name, layer).with_budget(tokens_max, FragmentOverflowPolicy::KeepStart)
}

fn with_compaction(mut role: RoleSpec) -> RoleSpec {
    role.compaction.summarizer = Some(SummarizerRole { role: SUMMARISER_ROLE.into(), ask: "summarise".into() });
    role.compaction.summary_tokens_max = CHAT_SUMMARY_TOKENS_MAX;
    role.limits = team_role_limits();
    role
}

fn product_manager_role_spec() -> RoleSpec {
    let mut role = RoleSpec::new(PRODUCT_MANAGER_ROLE, Scope::per_session())
        .with_opening_fragment(FragmentSpec::stable(ROLE_FRAGMENT, FragmentContentKind::Instruction))
        .with_ask(
            INTERVIEW_ASK,
            [
                text_fragment(DRAFT_FRAGMENT, FragmentContentKind::Task, 8_000),
                text_fragment(STATUS_FRAGMENT, FragmentContentKind::Knowledge, 4_000),
                text_fragment(MESSAGE_FRAGMENT, FragmentContentKind::UserWords, 16_000),
            ],
        );
    role.output = ModelOutputFormat::Json(product_manager_schema());
    with_compaction(role)
}

fn product_manager_schema() -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "type": "object",
        "required": ["say", "spec"],
        "properties": {
            "say": {"type": "string"},
            "spec": {"type": ["object", "null"], "properties": {
                "title": {"type": "string"},
                "goal": {"type": "string"},
                "requirements": texts,
                "acceptance": texts,
                "constraints": texts,
            }},
            "hot_fix": {"type": ["object", "null"], "properties": {
                "title": {"type": "string"},
                "description": {"type": "string"},
                "files": texts,
            }},
        },
    })
}

/// The system prompt of a story: whom the architect talks to, the story, the spec, what is known, and the rules.
fn with_story_opening(role: RoleSpec) -> RoleSpec {
    role.with_opening_fragment(FragmentSpec::stable(ROLE_FRAGMENT, FragmentContentKind::Instruction))
        .with_opening_fragment(text_fragment(SPEC_FRAGMENT, FragmentContentKind::Knowledge, 8_000))
        .with_opening_fragment(text_fragment(PROJECT_FRAGMENT, FragmentContentKind::Knowledge, 6_000))
        .with_opening_fragment(text_fragment(STORY_FRAGMENT, FragmentContentKind::Task, 6_000))
        .with_opening_fragment(text_fragment(KNOWLEDGE_FRAGMENT, FragmentContentKind::Knowledge, 6_000))
        .with_opening_fragment(text_fragment(HISTORY_FRAGMENT, FragmentContentKind::Handover, 6_000))
}

fn architect_role_spec(name: &str, scope: Scope) -> RoleSpec {
    let mut role = with_story_opening(RoleSpec::new(name, scope))
        .with_ask(STORIES_ASK, [text_fragment(REQUEST_FRAGMENT, FragmentContentKind::Task, 12_000)])
        .with_ask(REQUEST_ASK, [text_fragment(REQUEST_FRAGMENT, FragmentContentKind::Task, 60_000)])
        .with_ask(REPAIR_ASK, [text_fragment(REPAIR_FRAGMENT, FragmentContentKind::Task, 4_000)]);
    for tool in READING_TOOLS.iter().map(|tool| tool.name()).chain([KNOWLEDGE_ADD_TOOL, HOT_FIX_TOOL]) {
        role = role.with_tool(tool);
    }
    role.reply_tokens_max = ARCHITECT_REPLY_TOKENS_MAX;
    with_compaction(role)
}

fn coder_role_spec() -> RoleSpec {
    let scope = Scope::per_session().ended_by(ThreadEndTrigger::WorkItem);
    let mut role = with_story_opening(RoleSpec::new(CODER_ROLE, scope))
        .with_ask(TASK_ASK, [text_fragment(TASK_FRAGMENT, FragmentContentKind::Task, 24_000)])
        .with_phase_graph(graphs::CODER_GRAPH);
    for tool in coder_tools(graphs::CODING) {
        role = role.with_tool(tool);
    }
    role.reply_tokens_max = CODER_REPLY_TOKENS_MAX;
    with_compaction(role)
}

fn summariser_role_spec() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARISER_ROLE, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::stable("summarise", FragmentContentKind::Instruction))
        .with_ask("summarise", [FragmentSpec::changing("folded", FragmentContentKind::Conversation)]);
    role.reply_tokens_max = CHAT_SUMMARY_TOKENS_MAX;
    role.limits = team_role_limits();
    role
}

fn team_commands() -> std::collections::BTreeMap<String, FlowCommandSpec> {
    let story = ("story", "the id of the story");
    /// Name, description, and arguments with their meaning.
    type CommandRow<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let commands: &[CommandRow<'_>] = &[
        ("start", "starts the team on the spec that the product manager shows", &[]),
        (
            "edit_spec",
            "changes fields of the spec that the product manager shows",
            &[("spec", "the fields to change: title, goal, requirements, acceptance, constraints")],
        ),
        ("pause", "gives out no more work; work in progress ends", &[]),
        ("resume", "continues after a pause", &[]),
        (
            "edit_story",
            "changes a story; a coder that works on it starts again",
            &[
                story,
                ("title", "the new title"),
                ("description", "the new description"),
                ("acceptance", "the new acceptance criteria, as a list"),
                ("files", "the files that it may touch, as a list"),
            ],
        ),
        ("skip_story", "ends a story without merging it", &[story]),
        (
            "retry_story",
            "gives a story that needs you to a coder again",
            &[story, ("note", "what the coder should know")],
        ),
        ("take_over", "lets you work in the worktree of a story yourself", &[story]),
        ("give_back", "gives a story that you took over back to its tests", &[story]),
        (
            "hot_fix",
            "starts a small change without a plan",
            &[
                ("title", "what to fix"),
                ("description", "the details"),
                ("files", "the files that it may touch, as a list"),
            ],
        ),
        (
            "update_knowledge",
            "writes entries to the knowledge file",
            &[
                ("entries", "a list of entries"),
                ("file_path", "the knowledge file"),
                ("action", "`append` or `replace`"),
            ],
        ),
        ("reset_context", "lets the architect forget what it discussed with an agent", &[("agent", "the agent")]),
        (
            "land",
            "merges the integration branch into a branch of yours that is not checked out",
            &[("branch", "the branch")],
        ),
        ("undo_landing", "sets that branch back to where it was", &[]),
    ];
    let owned = |(name, description, arguments): &(&str, &str, &[(&str, &str)])| {
        let arguments = arguments.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect();
        ((*name).to_owned(), FlowCommandSpec { description: (*description).to_owned(), arguments })
    };
    commands.iter().map(owned).collect()
}
