//! The MCP tools that a session may use: the declared ones, or all that the server lists if none are declared. A tool that the
//! server no longer lists is left out.

use super::super::domain::{McpServerConfig, McpToolConfig};
use super::super::facts::RecordedMcpToolDescription;

/// An MCP tool that steps may call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AvailableMcpTool<'o> {
    pub name: &'o str,
    pub description: &'o str,
    /// The JSON schema of its arguments; `None` until the server has listed its tools.
    pub input_schema: Option<&'o str>,
    pub is_write: bool,
    /// Its declaration in the domain, if there is one.
    pub config: Option<&'o McpToolConfig>,
}

/// Returns the usable tools of a server, in the order of their declaration or of the server's list.
#[must_use]
pub fn list_available_tools<'o>(
    server: &'o McpServerConfig,
    listed: &'o [RecordedMcpToolDescription],
) -> Vec<AvailableMcpTool<'o>> {
    let find_listed = |name: &str| listed.iter().find(|tool| tool.name == name);
    let names: Vec<&str> = match &server.tools {
        Some(tools) => tools.iter().map(|tool| tool.name.as_str()).collect(),
        None => listed.iter().map(|tool| tool.name.as_str()).collect(),
    };
    let available = |name: &'o str| {
        let (declared, info) = (server.find_tool(name), find_listed(name));
        if info.is_none() && !listed.is_empty() {
            return None;
        }
        let declared_description = declared.map(|tool| tool.about.as_str()).filter(|about| !about.is_empty());
        Some(AvailableMcpTool {
            name,
            description: declared_description.or(info.map(|info| info.description.as_str())).unwrap_or_default(),
            input_schema: info.map(|info| info.input_schema.as_str()),
            is_write: server.tool_writes(name, info.and_then(|info| info.writes))?,
            config: declared,
        })
    };
    names.into_iter().filter_map(available).collect()
}
