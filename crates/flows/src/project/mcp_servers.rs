//! The tools of MCP servers in a session: which ones its phases list, what their servers say about them, and which of them
//! cannot be used now.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use segue_core::event::{ToolRunOpened, ToolRunOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, TurnId};
use segue_core::prompt::ModelToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::FlowDefinition;
use super::project_context::ProjectFlowContext;
use super::text::truncate_chars;
use super::tools::agent_tools;
use crate::limits::MCP_PROBLEM_CHARS_MAX;
use crate::mcp_tools::{LIST_MCP_TOOLS, ListMcpToolsArguments, ListMcpToolsResult, McpToolName};

/// What is known about the tools of MCP servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KnownMcpServerTools {
    /// The descriptions for models, by name of the tool.
    described: BTreeMap<String, ModelToolSpec>,
    /// Why servers could not be asked last time, by name of the server.
    problems: BTreeMap<String, String>,
    /// The turn in which they were asked last.
    asked_in: Option<TurnId>,
}

/// Returns the names of all tools of MCP servers that a definition lists for a phase.
pub(super) fn listed_mcp_tools(definition: &FlowDefinition) -> BTreeSet<&str> {
    let names = definition.phases.iter().flat_map(|phase| &phase.tools).map(String::as_str);
    names.filter(|name| McpToolName::parse(name).is_some()).collect()
}

/// Asks the servers what their tools take, once in each turn. Tools and their descriptions may change between turns.
pub(super) fn request_listing(context: &ProjectFlowContext<'_>) -> Option<FlowStep> {
    let turn = context.view.session.current_turn.as_ref().map(|turn| turn.id);
    if turn.is_none() || context.state().mcp.asked_in == turn {
        return None;
    }
    let names = listed_mcp_tools(context.definition);
    (!names.is_empty()).then(|| ListMcpToolsArguments::from_names(names).into_step())
}

/// Describes a tool to a model; `None` if the server of the tool did not describe it.
pub(super) fn describe_mcp_tool<'t>(
    listed: &KnownMcpServerTools,
    declared: &'t ModelToolSpec,
) -> Option<Cow<'t, ModelToolSpec>> {
    match McpToolName::parse(declared.name.as_str()) {
        None => Some(Cow::Borrowed(declared)),
        Some(_) => listed.find(declared.name.as_str()).cloned().map(Cow::Owned),
    }
}

/// A tool that an agent has in this phase and that cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct UnavailableMcpToolForPrompt {
    name: String,
    /// The reason, which may be in the words of the server.
    why: String,
}

/// Returns the tools that an agent has in the current phase and that cannot be used now.
pub(super) fn unavailable_mcp_tools(
    context: &ProjectFlowContext<'_>,
    agent: &AgentName,
) -> Vec<UnavailableMcpToolForPrompt> {
    let listed = &context.state().mcp;
    let tools = agent_tools(context.definition, agent.as_str(), context.phase());
    let missing = tools.into_iter().filter_map(|name| Some((name, McpToolName::parse(name)?)));
    missing
        .filter(|(name, _)| listed.find(name).is_none())
        .map(|(name, parsed)| {
            let problem = listed.problems.get(parsed.server).cloned();
            let why =
                problem.unwrap_or_else(|| format!("the server `{}` has no tool `{}`", parsed.server, parsed.tool));
            UnavailableMcpToolForPrompt { name: name.to_owned(), why }
        })
        .collect()
}

/// Checks the arguments of a tool call that a model wrote, as far as that needs no server: it must be an object that has what
/// the tool requires.
///
/// # Errors
/// Returns what is wrong, in words for the model.
pub(crate) fn check_mcp_arguments(tool: &ModelToolSpec, arguments: &Value) -> Result<(), String> {
    let Some(given) = arguments.as_object() else {
        return Err(format!("`{}` needs `arguments` as a JSON object", tool.name));
    };
    let required = tool.parameters.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.filter_map(Value::as_str).find(|name| !given.contains_key(*name)) {
        Some(missing) => Err(format!("the arguments of `{}` lack `{missing}`", tool.name)),
        None => Ok(()),
    }
}

impl KnownMcpServerTools {
    /// Returns the description of a tool, if its server gave one.
    pub(super) fn find(&self, name: &str) -> Option<&ModelToolSpec> {
        self.described.get(name)
    }

    pub(super) fn apply_run_opened(&mut self, opened: &ToolRunOpened) {
        if opened.tool.as_str() == LIST_MCP_TOOLS {
            self.asked_in = opened.turn;
        }
    }

    /// Applies what the servers said. The tools of a server that could not be asked stay as they were.
    pub(super) fn apply_listing(&mut self, outcome: ToolRunOutcome, value: Option<&Value>) {
        let listing = value.and_then(|value| serde_json::from_value::<ListMcpToolsResult>(value.clone()).ok());
        let Some(listing) = listing.filter(|_| outcome == ToolRunOutcome::Done) else { return };
        self.problems.clear();
        for (server, listed) in listing.servers {
            if let Some(why) = listed.error {
                self.problems.insert(server, truncate_chars(&why, MCP_PROBLEM_CHARS_MAX));
                continue;
            }
            self.described.retain(|name, _| McpToolName::parse(name).is_none_or(|known| known.server != server));
            for tool in &listed.tools {
                let name = McpToolName { server: &server, tool: &tool.name }.to_string();
                let described = tool.to_model_tool(&name, &server);
                self.described.insert(name, described);
            }
        }
    }
}
