//! Checks the tools of MCP servers that a flow file lists: whether the configuration has the server, and the server the tool.

use std::collections::{BTreeMap, BTreeSet};

use segue_flows::project::definition::{FlowDefinition, FlowDefinitionErrors};
use segue_mcp::McpToolHost;

use crate::config::Config;
use crate::suggest::suggestion_hint;

/// Whether the servers may be started and called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpServerAccess {
    Allowed,
    /// The configuration is not trusted.
    Untrusted,
}

/// What was found out about the listed tools.
#[derive(Debug)]
pub(crate) struct FlowToolListCheckReport {
    /// Servers and tools that do not exist, with their places.
    pub errors: FlowDefinitionErrors,
    /// Which tools could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// Checks the tools of MCP servers that a flow file lists. Servers that are not configured are not called.
pub(crate) async fn check_listed_tools(
    config: &Config,
    source: &str,
    access: McpServerAccess,
) -> FlowToolListCheckReport {
    let mut errors = config.unknown_mcp_servers(source);
    let mut unchecked = Vec::new();
    let listed = FlowDefinition::locate_mcp_tools(source);
    let servers: BTreeSet<&str> = listed.iter().map(|tool| tool.parsed().server).collect();
    let configured = servers.into_iter().filter(|server| config.mcp_servers.contains_key(*server));
    let host = McpToolHost::new(config.mcp_agent_servers());
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for server in configured {
        if access == McpServerAccess::Untrusted {
            unchecked.push(format!("the tools of server `{server}`, because the configuration is not trusted"));
            continue;
        }
        match host.list_tool_names(server).await {
            Ok(tools) => {
                found.insert(server, tools);
            }
            Err(why) => unchecked.push(format!("the tools of server `{server}`: {why}")),
        }
    }
    for tool in &listed {
        let name = tool.parsed();
        let Some(tools) = found.get(name.server).filter(|tools| !tools.contains(name.tool)) else { continue };
        let hint = suggestion_hint(name.tool, tools.iter().map(String::as_str));
        errors.errors.push(tool.error(format!("the server `{}` has no tool `{}`{hint}", name.server, name.tool)));
    }
    errors.errors.sort();
    FlowToolListCheckReport { errors, unchecked }
}
