//! The fragments that an agent with structured actions is shown: the result of its last action, the situation in the
//! workspace, and what it can choose.

use segue_core::context::{FragmentSource, RenderedFragment};
use segue_core::flow::FragmentRenderContext;
use segue_core::ids::AgentName;
use segue_core::signal::{canonical_json, wrap_in_code_fence};
use serde_json::{Value, json};

use super::action_offer::OfferedAgentActions;
use crate::limits::CHECK_OUTPUT_CHARS_MAX;
use crate::project::project_context::ProjectFlowContext;
use crate::project::text::last_chars;
use crate::template::fill_template;
use crate::workspace_tools::WorkspaceCommandRun;

fn omit_fragment(why: &str) -> RenderedFragment {
    RenderedFragment::Omitted(why.to_owned())
}

fn rendered_fragment(text: String, source: FragmentSource, why: &str) -> RenderedFragment {
    RenderedFragment::New { text, source, why: why.to_owned() }
}

fn is_structured(request: &FragmentRenderContext<'_>) -> bool {
    !request.call_request.output_schema.is_null()
}

/// The result of a run that the agent requested in its text. Results of tool calls are messages of their own.
pub(in crate::project) fn render_text_run_result(
    context: &ProjectFlowContext<'_>,
    agent: &AgentName,
) -> RenderedFragment {
    let Some(result) = context.state().current_work(agent).last_result else {
        return omit_fragment("the agent has seen all results");
    };
    let text = context.view.read_text(result.text);
    let arguments = json!({"tool": result.tool, "failed": result.failed, "text": wrap_in_code_fence(&text)});
    let text = fill_template(include_str!("../../../prompts/project/action_result.md"), &arguments);
    rendered_fragment(text, FragmentSource::State, "the result of the agent's last action")
}

/// The files, what changed, and what failed last.
pub(in crate::project) fn render_workspace_status(
    context: &ProjectFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    agent: &AgentName,
) -> RenderedFragment {
    if !is_structured(request) || !context.has_workspace() {
        return omit_fragment("the agent can look itself");
    }
    let state = context.state();
    let changed: Vec<Value> =
        state.changed_files.values().map(|change| json!({"path": change.path, "kind": change.kind})).collect();
    let failed_checks = state.last_checks.iter().flat_map(|checks| &checks.commands).filter(|run| !run.has_passed());
    let failed_command = state.current_work(agent).failed_command;
    let failed: Vec<Value> = failed_command.iter().chain(failed_checks).map(describe_failed_command).collect();
    let arguments =
        json!({"files": OfferedAgentActions::new(context, agent).paths, "changed": changed, "failed": failed});
    let text = fill_template(include_str!("../../../prompts/project/situation.md"), &arguments);
    rendered_fragment(text, FragmentSource::State, "the files, what changed, and what failed last")
}

fn describe_failed_command(run: &WorkspaceCommandRun) -> Value {
    let output = last_chars(&run.output_tail, CHECK_OUTPUT_CHARS_MAX);
    json!({"command": run.command, "output": wrap_in_code_fence(&output)})
}

/// What the agent can choose.
pub(in crate::project) fn render_available_actions(
    context: &ProjectFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    agent: &AgentName,
) -> RenderedFragment {
    if !is_structured(request) {
        return omit_fragment("the agent's model has tool calls");
    }
    let complaint = &request.call_request.metadata["complaint"];
    let offer = OfferedAgentActions::new(context, agent);
    let server_tools = offer.server_tools.iter().map(|tool| {
        json!({"name": tool.name, "description": tool.description, "parameters": canonical_json(&tool.parameters)})
    });
    let server_tools: Vec<Value> = server_tools.collect();
    let arguments = json!({"actions": offer.actions, "complaint": complaint, "server_tools": server_tools});
    let text = fill_template(include_str!("../../../prompts/project/action.md"), &arguments);
    rendered_fragment(text, FragmentSource::Template("project/action".to_owned()), "what the agent can choose")
}

/// Asks for the content of a file.
pub(in crate::project) fn render_content_request(
    context: &ProjectFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    agent: &AgentName,
) -> RenderedFragment {
    let metadata = &request.call_request.metadata;
    let read = context.state().current_work(agent).last_result.filter(|read| !read.failed);
    let current = read.map(|read| wrap_in_code_fence(&without_line_numbers(&context.view.read_text(read.text))));
    let arguments = json!({"path": metadata["path"], "complaint": metadata["complaint"], "current": current});
    let text = fill_template(include_str!("../../../prompts/project/content.md"), &arguments);
    rendered_fragment(
        text,
        FragmentSource::Template("project/content".to_owned()),
        "the file whose content is asked for",
    )
}

/// Returns a file's content from the result of reading it.
fn without_line_numbers(result: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let lines = result.split_inclusive('\n').map(|line| match line.split_once('\t') {
        Some((number, content)) if is_number(number) => content,
        _ => line,
    });
    lines.collect()
}
