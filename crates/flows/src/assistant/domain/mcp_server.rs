//! The declaration of a domain's MCP server: how to reach it, which of its tools may be used, and what they return. Connecting to
//! it is not part of this module.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DomainSchema, ID_FIELD, duplicate_name_errors};
use crate::limits::{SERVER_TIMEOUT_S_MAX, SERVER_TOOLS_MAX};

/// The declaration of an MCP server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerConfig {
    /// The program to start, with its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The environment variables that the program receives, in addition to `PATH` and `HOME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The address of a server that runs elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that contains the server's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// The timeout of a request, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The tools that may be used; all tools of the server if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<McpToolConfig>>,
}

/// The declaration of one MCP tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpToolConfig {
    pub name: String,
    /// A description for models; the server's own if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Whether the tool changes data, so that only write steps may call it. If absent, the server's `readOnlyHint` counts, and a tool
    /// without one is treated as a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
    /// The type of the records that it returns, if it returns records.
    #[serde(default, rename = "returns", skip_serializing_if = "Option::is_none")]
    pub returned_type: Option<String>,
    /// The JSON pointer to the records in the result; the whole result if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The field of a returned record that contains its id.
    #[serde(default = "default_id_field")]
    pub id: String,
    /// The arguments that are record ids, with the type of each. Models give references for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, String>,
}

fn default_id_field() -> String {
    ID_FIELD.to_owned()
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTransport<'s> {
    /// A program that is started, over its standard input and output.
    ChildProcess(&'s [String]),
    /// An address, over HTTP.
    Http(&'s str),
}

impl McpServerConfig {
    /// Returns how the server is reached.
    #[must_use]
    pub fn transport(&self) -> McpTransport<'_> {
        self.url.as_deref().map_or(McpTransport::ChildProcess(&self.command), McpTransport::Http)
    }

    /// Returns the declaration of a tool.
    #[must_use]
    pub fn find_tool(&self, name: &str) -> Option<&McpToolConfig> {
        self.tools.iter().flatten().find(|tool| tool.name == name)
    }

    /// Returns whether a tool writes: as declared, else as the server says, else `true`. Returns `None` if the tool may not be used.
    #[must_use]
    pub fn tool_writes(&self, name: &str, server_hint: Option<bool>) -> Option<bool> {
        if self.tools.is_none() {
            return Some(server_hint.unwrap_or(true));
        }
        self.find_tool(name).map(|tool| tool.writes.or(server_hint).unwrap_or(true))
    }

    /// Returns everything that is wrong with the declaration.
    pub(super) fn validation_errors(&self, domain: &DomainSchema) -> Vec<String> {
        let mut errors = self.connection_errors();
        let Some(tools) = &self.tools else { return errors };
        if tools.is_empty() {
            errors.push("the server's `tools` is empty; leave it out to allow all tools of the server".to_owned());
        }
        if tools.len() > SERVER_TOOLS_MAX {
            errors.push(format!("the server declares {} tools; at most {SERVER_TOOLS_MAX} are allowed", tools.len()));
        }
        errors.extend(duplicate_name_errors("tool of the server", tools.iter().map(|tool| tool.name.as_str())));
        for tool in tools {
            let named = tool.returned_type.iter().chain(tool.references.values());
            for kind in named.filter(|kind| domain.find_type(kind).is_none()) {
                errors.push(format!("tool `{}`: there is no type `{kind}`", tool.name));
            }
            if !tool.at.is_empty() && !tool.at.starts_with('/') {
                errors.push(format!(
                    "tool `{}`: `at` must be a JSON pointer such as `/notes`, not `{}`",
                    tool.name, tool.at
                ));
            }
        }
        errors
    }

    /// Returns everything that is wrong with how the server is reached.
    #[must_use]
    pub fn connection_errors(&self) -> Vec<String> {
        let mut errors = self.transport_errors();
        if self.timeout_s.is_some_and(|seconds| seconds == 0 || seconds > SERVER_TIMEOUT_S_MAX) {
            errors.push(format!("the server's `timeout_s` must be 1 to {SERVER_TIMEOUT_S_MAX}"));
        }
        errors
    }

    fn transport_errors(&self) -> Vec<String> {
        let mut errors: Vec<&str> = Vec::new();
        match (&self.url, self.command.is_empty()) {
            (None, true) => errors.push("the server needs a `command` that starts it, or a `url`"),
            (Some(_), false) => errors.push("the server has both a `command` and a `url`; give only one"),
            _ => {}
        }
        match &self.url {
            Some(url) => errors.extend(url_errors(url, self.key_env.is_some())),
            None if self.key_env.is_some() => {
                errors.push("`key_env` is only for a server with a `url`; use `environment` for a program")
            }
            None => {}
        }
        if self.url.is_some() && !self.environment.is_empty() {
            errors.push("`environment` is only for a server with a `command`");
        }
        errors.into_iter().map(str::to_owned).collect()
    }
}

fn url_errors(url: &str, has_key: bool) -> Vec<&'static str> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme)) else {
        return vec!["the server's `url` must begin with `https://` or `http://`"];
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.strip_prefix('[').map_or_else(
        || authority.split(':').next().unwrap_or_default(),
        |rest| rest.split(']').next().unwrap_or_default(),
    );
    let mut errors = Vec::new();
    if host.is_empty() {
        errors.push("the server's `url` has no host");
    }
    if authority.contains('@') {
        errors.push("the server's `url` contains credentials; use `key_env` to name the variable that contains a key");
    }
    if has_key && scheme == "http" && !["localhost", "127.0.0.1", "::1"].contains(&host) {
        errors.push("the key would be sent unencrypted over `http://`; use `https://`");
    }
    errors
}
