//! A server that brings a domain's tools in place of tables, as it is declared: how it is reached, which of its tools may be
//! used, and what they mean. It speaks the Model Context Protocol; who talks to it is no matter of this module.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DomainSchema, ID_FIELD, duplicate_name_errors};
use crate::limits::{SERVER_TIMEOUT_S_MAX, SERVER_TOOLS_MAX};

/// A server, and which of its tools do what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerConfig {
    /// The program and its arguments, if it is started here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Names of environment variables the program is given; beside them it gets the path and the home, and no others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// Where it is, if it runs elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that holds the key it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Longest wait for an answer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The tools that may be used; all that the server has if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<McpToolConfig>>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpToolConfig {
    /// Its name at the server.
    pub name: String,
    /// What it does, for models; the server's own words if nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Whether it changes anything: then it is only used in a step that was planned as a write. If nothing is said, the server's
    /// word counts, and without that it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
    /// The type of record it returns, if it returns records.
    #[serde(default, rename = "returns", skip_serializing_if = "Option::is_none")]
    pub returned_type: Option<String>,
    /// Where in its result the records are, as a JSON pointer; the result itself if nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The field of a record that is its id.
    #[serde(default = "default_id_field")]
    pub id: String,
    /// The arguments that are ids, each with the type of what it identifies: there a reference is given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, String>,
}

fn default_id_field() -> String {
    ID_FIELD.to_owned()
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTransport<'s> {
    /// A program is started and talked to over its standard input and output.
    ChildProcess(&'s [String]),
    /// It is called over HTTP.
    Http(&'s str),
}

impl McpServerConfig {
    /// How it is reached.
    #[must_use]
    pub fn transport(&self) -> McpTransport<'_> {
        self.url.as_deref().map_or(McpTransport::ChildProcess(&self.command), McpTransport::Http)
    }

    /// What is declared of the tool of this name.
    #[must_use]
    pub fn find_tool(&self, name: &str) -> Option<&McpToolConfig> {
        self.tools.iter().flatten().find(|tool| tool.name == name)
    }

    /// Whether a tool changes something: as it is declared, else as the server says, else it does. Nothing if it may not be used.
    #[must_use]
    pub fn tool_writes(&self, name: &str, server_hint: Option<bool>) -> Option<bool> {
        if self.tools.is_none() {
            return Some(server_hint.unwrap_or(true));
        }
        self.find_tool(name).map(|tool| tool.writes.or(server_hint).unwrap_or(true))
    }

    /// What in the declaration contradicts itself.
    pub(super) fn validation_errors(&self, domain: &DomainSchema) -> Vec<String> {
        let mut faults = self.transport_errors();
        if self.timeout_s.is_some_and(|seconds| seconds == 0 || seconds > SERVER_TIMEOUT_S_MAX) {
            faults.push(format!("the server's `timeout_s` must be 1 to {SERVER_TIMEOUT_S_MAX}"));
        }
        let Some(tools) = &self.tools else { return faults };
        if tools.is_empty() {
            faults.push("the server's `tools` names none; leave it out to allow all that the server has".to_owned());
        }
        if tools.len() > SERVER_TOOLS_MAX {
            faults.push(format!("the server has {} tools; at most {SERVER_TOOLS_MAX} are taken", tools.len()));
        }
        faults.extend(duplicate_name_errors("tool of the server", tools.iter().map(|tool| tool.name.as_str())));
        for tool in tools {
            let named = tool.returned_type.iter().chain(tool.references.values());
            for kind in named.filter(|kind| domain.find_type(kind).is_none()) {
                faults.push(format!("tool `{}`: there is no type `{kind}`", tool.name));
            }
            if !tool.at.is_empty() && !tool.at.starts_with('/') {
                faults.push(format!("tool `{}`: `at` must be such as `/notes`, not `{}`", tool.name, tool.at));
            }
        }
        faults
    }

    /// What is wrong with how it is reached.
    fn transport_errors(&self) -> Vec<String> {
        let mut faults: Vec<&str> = Vec::new();
        match (&self.url, self.command.is_empty()) {
            (None, true) => {
                faults.push("the server needs a `command` that starts it, or the `url` under which it is reached")
            }
            (Some(_), false) => faults.push("the server has a `command` and a `url`; it is either started or called"),
            _ => {}
        }
        match &self.url {
            Some(url) => faults.extend(url_errors(url, self.key_env.is_some())),
            None if self.key_env.is_some() => {
                faults.push("`key_env` is for a server with a `url`; a program gets what `environment` names")
            }
            None => {}
        }
        if self.url.is_some() && !self.environment.is_empty() {
            faults.push("`environment` is for a server with a `command`");
        }
        faults.into_iter().map(str::to_owned).collect()
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
    let mut faults = Vec::new();
    if host.is_empty() {
        faults.push("the server's `url` names no host");
    }
    if authority.contains('@') {
        faults.push("the server's `url` holds a name or a password; name the variable that holds a key in `key_env`");
    }
    if has_key && scheme == "http" && !["localhost", "127.0.0.1", "::1"].contains(&host) {
        faults.push("a key is not sent over plain `http://`; use `https://`");
    }
    faults
}
