//! The `[mcp_servers]` table: servers whose tools the phases of flow files can list.

use std::collections::BTreeMap;

use segue_flows::assistant::domain::McpServerConfig;
use segue_flows::mcp_tools::is_mcp_server_name;
use segue_flows::project::definition::{FlowDefinition, FlowDefinitionErrors, FlowFileMistake};
use segue_mcp::McpServerWithAllowedOwners;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ConfigValueOrigin};
use crate::suggest::format_name_list;

pub(super) const MCP_SERVER_KEYS: [&str; 6] = ["command", "environment", "url", "key_env", "timeout_s", "owners"];

/// Reads `[mcp_servers]`.
pub(super) fn read_mcp_servers(servers: &ConfigTable<'_>, config: &mut Config) -> Result<(), ConfigError> {
    for named in servers.entries() {
        if !is_mcp_server_name(&named.name) {
            let message = format!(
                "`mcp_servers.{}`: a name has at most 32 lower-case letters, digits and hyphens, because it is a part of the \
                 names of tools",
                named.name
            );
            return Err(servers.error_at(named.offset, message));
        }
        let table = servers.entry_table(&named)?.deny_unknown_keys(&MCP_SERVER_KEYS)?;
        let strings = |key: &str| -> Result<Vec<String>, ConfigError> {
            Ok(table.string_list(key)?.into_iter().map(|item| item.value).collect())
        };
        let connection = McpServerConfig {
            command: strings("command")?,
            environment: strings("environment")?,
            url: table.string("url")?.map(|url| url.value),
            key_env: table.string("key_env")?.map(|name| name.value),
            timeout_s: table.integer("timeout_s", 1)?.map(|seconds| seconds.value),
            tools: None,
        };
        if let Some(problem) = connection.connection_errors().first() {
            return Err(table.table_error(format!("`mcp_servers.{}`: {problem}", named.name)));
        }
        let value = McpServerWithAllowedOwners { connection, owners: strings("owners")? };
        let origin = servers.origin_at(named.offset);
        config.mcp_servers.insert(named.name.clone(), ConfigValue { value, origin });
    }
    Ok(())
}

/// Checks that the servers exist whose tools the user's flow files list.
pub(super) fn check_listed_servers(top: &ConfigTable<'_>, config: &Config) -> Result<(), ConfigError> {
    for own in &config.flow_files {
        let errors = config.unknown_mcp_servers(&own.value.source);
        if errors.errors.is_empty() {
            continue;
        }
        let ConfigValueOrigin::File { line } = own.origin else { continue };
        let mistakes = errors.render_with_file_name(&own.value.file.display().to_string());
        let message = format!("`flows.{}.file`: the flow file has mistakes\n{mistakes}", own.value.name);
        return Err(ConfigError { line, ..top.table_error(message) });
    }
    Ok(())
}

impl Config {
    /// Returns the servers for the host of their tools.
    pub(crate) fn mcp_agent_servers(&self) -> BTreeMap<String, McpServerWithAllowedOwners> {
        self.mcp_servers.iter().map(|(name, server)| (name.clone(), server.value.clone())).collect()
    }

    /// Returns the places of a flow file that name a server which is not configured.
    pub(crate) fn unknown_mcp_servers(&self, flow_file: &str) -> FlowDefinitionErrors {
        let listed = FlowDefinition::locate_mcp_tools(flow_file);
        let unknown = listed.iter().filter(|tool| !self.mcp_servers.contains_key(tool.parsed().server));
        let errors = unknown.map(|tool| -> FlowFileMistake {
            let known = match self.mcp_servers.is_empty() {
                true => "the configuration has none; declare it in `[mcp_servers]`".to_owned(),
                false => format!("there are {}", format_name_list(self.mcp_servers.keys().map(String::as_str))),
            };
            tool.error(format!("`{}`: there is no MCP server `{}`; {known}", tool.name, tool.parsed().server))
        });
        FlowDefinitionErrors { errors: errors.collect() }
    }

    /// Returns the servers as rows for `segue config`.
    pub(super) fn mcp_server_rows(&self) -> Vec<(String, String, ConfigValueOrigin)> {
        let mut rows = Vec::new();
        for (name, ConfigValue { value, origin }) in &self.mcp_servers {
            let mut add = |key: &str, value: Option<String>| {
                rows.extend(value.map(|value| (format!("mcp_servers.{name}.{key}"), value, *origin)));
            };
            let joined = |items: &[String], separator: &str| (!items.is_empty()).then(|| items.join(separator));
            let connection = &value.connection;
            add("command", joined(&connection.command, " "));
            add("environment", joined(&connection.environment, ", "));
            add("url", connection.url.clone());
            add("key_env", connection.key_env.clone());
            add("timeout_s", connection.timeout_s.map(|seconds| seconds.to_string()));
            add("owners", joined(&value.owners, ", "));
        }
        rows
    }
}
