//! Actions of agents whose models are not relied on for tool calls. A structured action is chosen by a small schema; the
//! content of a file follows as one fenced reply. A tool call that an agent writes in its text is run only if it is valid.
//!
//! The engine checks every run again, like a tool call: the role must have the tool, the phase must allow it, and it may
//! need approval.

mod action_fragments;
mod action_offer;
mod fenced_content;

use segue_core::event::{CallAnswered, CallOpened, CallRequest, ToolOfferPolicy, ToolRunOpened};
use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;
use segue_core::prompt::StopReason;
use serde_json::{Value, json};

use super::agents::done_step;
use super::definition::{ActionMode, CompletionMode};
use super::facts::{AgentTurnEndKind, ProjectFact};
use super::project_context::ProjectFlowContext;
use super::spec::{ASK_ACT, ASK_CONTENT, ASK_TALK};
use super::tools::agent_tools;
use crate::limits::REFUSED_ACTIONS_MAX;
use crate::template::fill_template;
use crate::text_tool_call::find_text_tool_call;
use crate::workspace_tools::WorkspaceTool;
use action_offer::{AgentAction, OfferedAgentActions};
use fenced_content::read_fenced_content;

pub(super) use crate::text_tool_call::{TextToolCall, text_before_tool_call};
pub(super) use action_fragments::{
    render_available_actions, render_content_request, render_text_run_result, render_workspace_status,
};

/// Returns the request of an agent's call in the form in which the agent chooses its actions.
pub(super) fn with_action_form(
    context: &ProjectFlowContext<'_>,
    agent: &AgentName,
    mut request: CallRequest,
) -> CallRequest {
    let mode = context.action_mode(agent);
    request.tool_offer = match (request.ask.as_str(), mode) {
        (ASK_CONTENT, _) | (ASK_TALK, ActionMode::Structured) => ToolOfferPolicy::Withheld,
        (_, ActionMode::Auto) => ToolOfferPolicy::IfSupported,
        (_, ActionMode::Native | ActionMode::Structured) => ToolOfferPolicy::Offered,
    };
    let is_plain = [ASK_CONTENT, ASK_TALK].contains(&request.ask.as_str());
    if mode != ActionMode::Native && !is_plain {
        request.output_schema = OfferedAgentActions::new(context, agent).choice_schema();
    }
    request
}

/// Finds a tool call in the text of an agent.
pub(super) fn find_text_call(context: &ProjectFlowContext<'_>, agent: &AgentName, text: &str) -> Option<TextToolCall> {
    let is_tool = |name: &str| context.spec.tools.keys().any(|tool| tool.as_str() == name);
    let offered = agent_tools(context.definition, agent.as_str(), context.phase());
    find_text_tool_call(text, is_tool, &offered, |name| context.state().mcp.find(name))
}

/// Returns whether an agent chooses an action before it answers the user.
pub(super) fn chooses_before_answer(context: &ProjectFlowContext<'_>, agent: &AgentName) -> bool {
    context.action_mode(agent) == ActionMode::Structured
        && !OfferedAgentActions::new(context, agent).has_only_answer_action()
}

/// Handles an answer in which an agent has chosen an action.
pub(super) fn handle_action(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    call: &CallOpened,
    text: &str,
) -> Vec<FlowStep> {
    let runs_max = context.definition.limits.tool_rounds_max;
    if context.state().current_work(agent).tool_runs >= runs_max {
        let summary = format!("stopped: {runs_max} actions were used, which is the maximum");
        return vec![done_step(turn, agent, AgentTurnEndKind::AutoCompleted, summary)];
    }
    match OfferedAgentActions::new(context, agent).parse(text) {
        Ok(AgentAction::Run { tool, arguments }) => vec![run_tool(call, &tool, arguments)],
        Ok(AgentAction::Write { path, exists }) => {
            let announced = ProjectFact::WriteAnnounced { turn, agent: agent.clone(), path: path.clone() }.into_step();
            // The agent replaces the whole file, so it is shown what the file contains now.
            let next = match exists {
                true => run_tool(call, WorkspaceTool::ReadFile.name(), json!({"path": path})),
                false => ask_for_content(context, (turn, agent), &path, None),
            };
            vec![announced, next]
        }
        Ok(AgentAction::Answer) => vec![context.agent_call(agent, ASK_TALK, json!({"turn": turn}))],
        Err(why) => refuse_action(context, (turn, agent), &why),
    }
}

/// Handles the answer that contains the content of a file.
pub(super) fn handle_content(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    call: &CallOpened,
    (answered, text): (&CallAnswered, &str),
) -> Vec<FlowStep> {
    let path = call.metadata.get("path").and_then(Value::as_str).unwrap_or_default();
    let is_complete = answered.stop_reason == StopReason::Done;
    match read_fenced_content(text, path, is_complete) {
        Ok(content) => {
            let arguments = json!({"path": path, "content": content});
            vec![run_tool(call, WorkspaceTool::WriteFile.name(), arguments)]
        }
        Err(why) => {
            refuse_and_ask(context, (turn, agent), why, ask_for_content(context, (turn, agent), path, Some(why)))
        }
    }
}

/// Runs a tool call that an agent wrote in its text.
pub(super) fn run_text_call(call: &CallOpened, tool: &str, arguments: Value) -> Vec<FlowStep> {
    vec![run_tool(call, tool, arguments)]
}

/// What the user is told in place of an answer that only consisted of a tool call.
pub(super) fn unusable_answer_text() -> String {
    fill_template(include_str!("../../prompts/project/unusable_answer.md"), &json!({}))
}

/// Continues after a run that was requested in a text. Its result is in the next prompt.
pub(super) fn continue_after_run(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    opened: &ToolRunOpened,
) -> Vec<FlowStep> {
    let is_read = opened.tool.as_str() == WorkspaceTool::ReadFile.name();
    let announced = context.state().current_work(agent).pending_write;
    match announced.filter(|write| is_read && opened.arguments["path"] == write.path.as_str()) {
        Some(write) if write.is_cut => {
            let why = format!("`{}` is too long, or not a text, so it cannot be replaced as a whole", write.path);
            refuse_action(context, (turn, agent), &why)
        }
        Some(write) => vec![ask_for_content(context, (turn, agent), &write.path, None)],
        None => {
            let answers = context.phase().completion == CompletionMode::Answer;
            let is_structured = context.action_mode(agent) == ActionMode::Structured;
            let ask = if answers && !is_structured { ASK_TALK } else { ASK_ACT };
            vec![context.agent_call(agent, ask, json!({"turn": turn}))]
        }
    }
}

fn run_tool(call: &CallOpened, tool: &str, arguments: Value) -> FlowStep {
    FlowStep::RunToolFromText {
        call: call.call,
        role: call.role.clone(),
        agent: call.agent.clone(),
        tool: tool.into(),
        arguments,
    }
}

fn ask_for_content(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    path: &str,
    complaint: Option<&str>,
) -> FlowStep {
    context.agent_call(agent, ASK_CONTENT, json!({"turn": turn, "path": path, "complaint": complaint}))
}

/// Tells an agent why its action is not usable, and asks for another one.
fn refuse_action(context: &ProjectFlowContext<'_>, (turn, agent): (u32, &AgentName), why: &str) -> Vec<FlowStep> {
    let again = context.agent_call(agent, ASK_ACT, json!({"turn": turn, "complaint": why}));
    refuse_and_ask(context, (turn, agent), why, again)
}

/// Records that an action is not usable, and asks again. After several in a row, the agent's part is over.
fn refuse_and_ask(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    why: &str,
    again: FlowStep,
) -> Vec<FlowStep> {
    let refused = ProjectFact::ActionRefused { turn, agent: agent.clone(), why: why.to_owned() }.into_step();
    if context.state().current_work(agent).refused_actions < REFUSED_ACTIONS_MAX {
        return vec![refused, again];
    }
    let summary = format!("stopped: it chose no usable action; the last problem was: {why}");
    vec![refused, done_step(turn, agent, AgentTurnEndKind::AutoCompleted, summary)]
}
