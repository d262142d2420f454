//! The tools of a domain's server as they may be used: as they are declared, and where nothing is declared, as the server
//! describes them. What the server does not have any more is not offered.

use super::super::domain::{McpServerConfig, McpToolConfig};
use super::super::facts::McpToolInfo;

/// A tool that may be used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AvailableTool<'o> {
    /// Its name.
    pub name: &'o str,
    /// What it does.
    pub description: &'o str,
    /// What it takes, as a JSON schema; nothing as long as the server has not said.
    pub input_schema: Option<&'o str>,
    /// Whether it changes something.
    pub is_write: bool,
    /// What is declared of it.
    pub config: Option<&'o McpToolConfig>,
}

/// The tools of a server, where it has described these; in the order in which they are declared.
#[must_use]
pub fn list_available_tools<'o>(server: &'o McpServerConfig, described: &'o [McpToolInfo]) -> Vec<AvailableTool<'o>> {
    let described_as = |name: &str| described.iter().find(|tool| tool.name == name);
    let names: Vec<&str> = match &server.tools {
        Some(tools) => tools.iter().map(|tool| tool.name.as_str()).collect(),
        None => described.iter().map(|tool| tool.name.as_str()).collect(),
    };
    let offer = |name: &'o str| {
        let (declared, says) = (server.find_tool(name), described_as(name));
        if says.is_none() && !described.is_empty() {
            return None;
        }
        let own_words = declared.map(|tool| tool.about.as_str()).filter(|about| !about.is_empty());
        Some(AvailableTool {
            name,
            description: own_words.or(says.map(|says| says.description.as_str())).unwrap_or_default(),
            input_schema: says.map(|says| says.input_schema.as_str()),
            is_write: server.tool_writes(name, says.and_then(|says| says.writes))?,
            config: declared,
        })
    };
    names.into_iter().filter_map(offer).collect()
}
