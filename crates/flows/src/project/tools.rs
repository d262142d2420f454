//! The tools of the flow: those that work on the workspace, in groups, and the two that the flow answers itself.

use segue_core::flow::{FlowToolDeclaration, ToolRunnerKind, UnknownOutcomePolicy};
use segue_core::prompt::ModelToolSpec;
use serde_json::json;

use super::definition::{CompletionMode, FlowDefinition, PhaseDefinition};
use crate::mcp_tools::McpToolName;
use crate::workspace_tools::WorkspaceTool;

/// The role that chooses the next phase and agents.
pub(super) const ROUTER_ROLE: &str = "router";
/// The tool with which an agent completes its work.
pub(super) const COMPLETE_TOOL: &str = "complete";
/// The tool with which an agent records a lesson.
pub(super) const LEARN_TOOL: &str = "learn";

/// Names that stand for several tools in a definition.
const TOOL_GROUPS: [(&str, &[WorkspaceTool]); 3] = [
    ("@read", &[WorkspaceTool::ReadFile, WorkspaceTool::ListFiles, WorkspaceTool::SearchFiles]),
    (
        "@write",
        &[WorkspaceTool::WriteFile, WorkspaceTool::EditFile, WorkspaceTool::DeleteFile, WorkspaceTool::MoveFile],
    ),
    ("@run", &[WorkspaceTool::RunCommand]),
];

/// Returns whether a definition may name this tool or group of tools.
pub(super) fn is_known_tool_name(name: &str) -> bool {
    TOOL_GROUPS.iter().any(|(group, _)| *group == name)
        || WorkspaceTool::from_name(name).is_some_and(WorkspaceTool::is_for_models)
        || McpToolName::parse(name).is_some()
}

/// Lists the names that a definition may use.
pub(super) fn tool_names_text() -> String {
    let groups = TOOL_GROUPS.iter().map(|(group, _)| format!("`{group}`"));
    let tools = WorkspaceTool::for_models().map(|tool| format!("`{}`", tool.name()));
    let of_servers = "and tools of MCP servers as `mcp__SERVER__TOOL`".to_owned();
    groups.chain(tools).chain([of_servers]).collect::<Vec<_>>().join(", ")
}

/// Returns the tools that the names stand for.
pub(super) fn expand_tool_names<'n>(names: impl IntoIterator<Item = &'n String>) -> Vec<&'n str> {
    let mut tools: Vec<&'n str> = Vec::new();
    for name in names {
        tools.extend(McpToolName::parse(name).map(|_| name.as_str()));
        let group = TOOL_GROUPS.iter().find(|(group, _)| group == name).map(|(_, tools)| *tools);
        let single = WorkspaceTool::from_name(name);
        let named = group.unwrap_or_default().iter().copied().chain(single);
        tools.extend(named.map(|tool| -> &'n str { tool.name() }));
    }
    tools.sort_unstable();
    tools.dedup();
    tools
}

/// Returns the tools that may be used in a phase.
pub(super) fn phase_tools(phase: &PhaseDefinition) -> Vec<&str> {
    let own = match phase.completion {
        CompletionMode::Answer => Vec::new(),
        CompletionMode::Complete => vec![COMPLETE_TOOL],
        CompletionMode::Reflection => vec![COMPLETE_TOOL, LEARN_TOOL],
    };
    expand_tool_names(&phase.tools).into_iter().chain(own).collect()
}

/// Returns the tools that an agent may use in a phase: those that the phase allows and the agent has.
pub(super) fn agent_tools<'d>(definition: &'d FlowDefinition, agent: &str, phase: &'d PhaseDefinition) -> Vec<&'d str> {
    let own = definition.find_agent(agent).and_then(|agent| agent.tools.as_ref()).map(expand_tool_names);
    let is_own =
        |tool: &&str| [COMPLETE_TOOL, LEARN_TOOL].contains(tool) || own.as_ref().is_none_or(|own| own.contains(tool));
    phase_tools(phase).into_iter().filter(is_own).collect()
}

/// Returns whether the workspace's content can change in a phase.
pub(super) fn phase_changes_files(phase: &PhaseDefinition) -> bool {
    let tools = expand_tool_names(&phase.tools);
    tools.into_iter().filter_map(WorkspaceTool::from_name).any(WorkspaceTool::may_change_files)
}

/// Returns the declaration of `complete`. What it must contain depends on the phase, and the flow checks it.
pub(super) fn complete_tool_declaration() -> FlowToolDeclaration {
    let text = |description: &str| json!({"type": "string", "description": description});
    let step = json!({
        "type": "object",
        "required": ["title", "done_when"],
        "properties": {
            "title": text("what to do, in a few words"),
            "detail": text("how to do it"),
            "done_when": text("how to tell that the step is done"),
        },
    });
    let issue = json!({
        "type": "object",
        "required": ["title", "steps_to_reproduce"],
        "properties": {
            "title": text("what is wrong"),
            "steps_to_reproduce": text("what to do to see it"),
        },
    });
    let parameters = json!({
        "type": "object",
        "required": ["summary"],
        "properties": {
            "summary": text("what was done and what the next agent must know"),
            "plan": {
                "type": "object",
                "description": "only in a phase that makes a plan",
                "required": ["goal", "steps"],
                "properties": {"goal": text("what the steps achieve"), "steps": {"type": "array", "items": step}},
            },
            "issues": {
                "type": "array",
                "description": "only in a phase that verifies work: every problem that you saw",
                "items": issue,
            },
        },
    });
    flow_tool_declaration(COMPLETE_TOOL, include_str!("../../prompts/project/tool_complete.md"), parameters)
}

/// Returns the declaration of `learn`.
pub(super) fn learn_tool_declaration() -> FlowToolDeclaration {
    let parameters = json!({
        "type": "object",
        "required": ["title", "lesson"],
        "properties": {
            "title": {"type": "string", "description": "the lesson in a few words"},
            "lesson": {"type": "string", "description": "what to do differently next time in this project, and why"},
        },
    });
    flow_tool_declaration(LEARN_TOOL, include_str!("../../prompts/project/tool_learn.md"), parameters)
}

fn flow_tool_declaration(name: &str, description: &str, parameters: serde_json::Value) -> FlowToolDeclaration {
    let spec = ModelToolSpec { name: name.into(), description: description.trim().to_owned(), parameters };
    FlowToolDeclaration {
        runner: ToolRunnerKind::Flow,
        unknown_outcome: UnknownOutcomePolicy::Retry,
        ..FlowToolDeclaration::for_host(spec)
    }
}
