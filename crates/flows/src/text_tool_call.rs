//! Tool calls that a model writes in the text of its answer, instead of making them.

use segue_core::prompt::ModelToolSpec;
use segue_core::signal::find_json_where;
use serde_json::Value;

use crate::project::mcp_servers::check_mcp_arguments;
use crate::workspace_tools::{WorkspaceTool, WorkspaceToolRequest};

/// A tool call in a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TextToolCall {
    /// The agent may make it now.
    Valid { tool: String, arguments: Value },
    Invalid {
        /// What is wrong, in words for the agent.
        why: String,
    },
}

/// Keys that models use for the arguments of a call.
const ARGUMENT_KEYS: [&str; 4] = ["arguments", "parameters", "args", "input"];
/// Keys that models use for the name of a tool.
const NAME_KEYS: [&str; 4] = ["name", "tool", "action", "function"];

/// Returns the name and the arguments, if the value has the form of a tool call.
fn read_call(value: &Value) -> Option<(&str, Option<Value>)> {
    let value = value.as_array().and_then(|calls| calls.first()).unwrap_or(value);
    let value = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let name = NAME_KEYS.iter().find_map(|key| value.get(key)?.as_str())?;
    let arguments = ARGUMENT_KEYS.iter().find_map(|key| value.get(key)).and_then(|arguments| match arguments {
        Value::Object(_) => Some(arguments.clone()),
        Value::String(text) => find_json_where(text, |_| true).value.filter(Value::is_object),
        _ => None,
    });
    Some((name, arguments))
}

/// Finds a tool call in a text. `is_tool` says which names are tools of the flow, `offered` which of them the agent has now,
/// and `find_server_tool` how an MCP server describes one.
pub(crate) fn find_text_tool_call<'a>(
    text: &str,
    is_tool: impl Fn(&str) -> bool,
    offered: &[&str],
    find_server_tool: impl Fn(&str) -> Option<&'a ModelToolSpec>,
) -> Option<TextToolCall> {
    let is_call =
        |value: &Value| read_call(value).is_some_and(|(name, arguments)| is_tool(name) || arguments.is_some());
    let found = find_json_where(text, is_call).value?;
    let (name, arguments) = read_call(&found)?;
    Some(match check_call(name, arguments, offered, find_server_tool(name)) {
        Ok(arguments) => TextToolCall::Valid { tool: name.to_owned(), arguments },
        Err(why) => TextToolCall::Invalid { why },
    })
}

fn check_call(
    name: &str,
    arguments: Option<Value>,
    offered: &[&str],
    server_tool: Option<&ModelToolSpec>,
) -> Result<Value, String> {
    if !offered.contains(&name) {
        let why = format!("the tool call in your text was not run: you have no tool `{name}` in this phase");
        return Err(why);
    }
    let Some(arguments) = arguments else {
        return Err(format!("the tool call in your text was not run: `{name}` needs `arguments`"));
    };
    let of_workspace =
        WorkspaceTool::from_name(name).map(|tool| WorkspaceToolRequest::parse(tool, &arguments).map(drop));
    let checked = of_workspace.or_else(|| server_tool.map(|tool| check_mcp_arguments(tool, &arguments)));
    match checked {
        Some(Err(why)) => Err(format!("the tool call in your text was not run: {why}")),
        Some(Ok(())) | None => Ok(arguments),
    }
}

/// Returns what precedes the tool call in a text: the part that may be shown to people.
pub(crate) fn text_before_tool_call(text: &str) -> &str {
    let starts = ["{", "[{", "```", "<tool"].iter().filter_map(|start| text.find(start));
    text[..starts.min().unwrap_or(text.len())].trim()
}
