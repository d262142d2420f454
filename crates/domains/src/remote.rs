//! Records behind the tools of a server that speaks the Model Context Protocol: a program of the user's, started when it is
//! first needed and talked to over its standard input and output, in whichever of the protocol's two styles it knows (with
//! `initialize`, or with `server/discover`).
//!
//! Only tools that the declaration names are called, and those that write only for steps that were planned as writes. What a
//! server did cannot be taken back from here.

mod rows;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientLifecycleMode, ClientServiceExt};
use segue_engine::tools::{Tool, ToolRequest};
use segue_flows::assistant::domain::{Domain, Server, ServerTool};
use segue_flows::assistant::facts::StepKind;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::{Operation, Reported, Told};
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::limits::{REMOTE_CALL_MS_MAX, REMOTE_START_MS_MAX, REMOTE_TEXT_BYTES_MAX};

type Client = Arc<RunningService<RoleClient, ()>>;

/// The host of tools that servers bring.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    domains: Domains,
    clients: Mutex<BTreeMap<String, Client>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    /// A host for these domains. No server is started yet.
    #[must_use]
    pub fn new(domains: Domains) -> Self {
        Self { inner: Arc::new(Inner { domains, clients: Mutex::default() }) }
    }
}

#[async_trait]
impl Tool for Remote {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let told = Told::of(&request.opened.arguments).ok_or_else(|| "the request is not understood".to_owned())?;
        let domain = self.inner.domains.of(&request.settings)?;
        let Some(server) = domain.server.as_ref().filter(|_| domain.name == told.domain) else {
            return Err(format!("the domain `{}` has no server", domain.name));
        };
        let reported = match told.op {
            Operation::Describe => self.inner.describe(&domain, server).await?,
            Operation::Call => self.inner.call(&domain, server, &told).await?,
            op => {
                Reported { refused: Some(format!("a server knows nothing of `{}`", op.word())), ..Reported::default() }
            }
        };
        serde_json::to_string(&reported).map_err(|error| error.to_string())
    }
}

impl Inner {
    /// The connection to a domain's server, made anew if the last one is gone.
    async fn client(&self, domain: &Domain, server: &Server) -> Result<Client, String> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&domain.name).filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = Arc::new(start(server).await?);
        clients.insert(domain.name.clone(), client.clone());
        Ok(client)
    }

    async fn forget(&self, domain: &Domain) {
        self.clients.lock().await.remove(&domain.name);
    }

    async fn describe(&self, domain: &Domain, server: &Server) -> Result<Reported, String> {
        let client = self.client(domain, server).await?;
        let found = within(REMOTE_CALL_MS_MAX, client.list_all_tools()).await?.map_err(told)?;
        let mut tools = Vec::new();
        for tool in &server.tools {
            let Some(known) = found.iter().find(|known| known.name == tool.name) else {
                return Err(format!("the server has no tool `{}`, which the domain names", tool.name));
            };
            tools.push(json!({"name": tool.name, "about": known.description, "arguments": *known.input_schema}));
        }
        Ok(Reported { tools, ..Reported::default() })
    }

    async fn call(&self, domain: &Domain, server: &Server, asked: &Told) -> Result<Reported, String> {
        let refused = |why: String| Ok(Reported { refused: Some(why), ..Reported::default() });
        let name = asked.rest.get("tool").and_then(Value::as_str).unwrap_or_default();
        let Some(tool) = server.tool(name) else { return refused(format!("the domain names no tool `{name}`")) };
        if tool.writes && asked.step_type != Some(StepKind::Write) {
            return refused(format!("`{name}` changes something, and the step was not planned as a write"));
        }
        let arguments = asked.rest.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
        let result = match self.once(domain, server, tool, &arguments).await {
            // What only reads may be asked again of a server that went away.
            Err(Lost::Connection(_)) if !tool.writes => self.once(domain, server, tool, &arguments).await,
            other => other,
        };
        match result {
            Ok(result) => Ok(rows::reported(domain, tool, &result)),
            Err(Lost::Connection(why) | Lost::Answer(why)) => Err(why),
        }
    }

    async fn once(
        &self,
        domain: &Domain,
        server: &Server,
        tool: &ServerTool,
        arguments: &Map<String, Value>,
    ) -> Result<CallToolResult, Lost> {
        let client = self.client(domain, server).await.map_err(Lost::Answer)?;
        let wish = CallToolRequestParams::new(tool.name.clone()).with_arguments(arguments.clone());
        match within(REMOTE_CALL_MS_MAX, client.call_tool(wish)).await.map_err(Lost::Answer)? {
            Ok(result) => Ok(result),
            Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => {
                self.forget(domain).await;
                Err(Lost::Connection(told(error)))
            }
            Err(error) => Err(Lost::Answer(told(error))),
        }
    }
}

/// Why a call brought no result.
enum Lost {
    /// The server went away.
    Connection(String),
    /// It did not answer, or with an error.
    Answer(String),
}

fn told(error: ServiceError) -> String {
    format!("the server did not do it: {error}")
}

async fn within<T>(ms: u64, future: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("the server did not answer within {} s", ms / 1_000);
    tokio::time::timeout(Duration::from_millis(ms), future).await.map_err(late)
}

/// Starts a server and agrees with it on a style.
async fn start(server: &Server) -> Result<RunningService<RoleClient, ()>, String> {
    let [program, arguments @ ..] = server.command.as_slice() else {
        return Err("the server has no command".to_owned());
    };
    let mut command = Command::new(program);
    // It gets what it is named and no more: secrets of others are not its business.
    command.args(arguments).env_clear().kill_on_drop(true);
    let named = server.environment.iter().map(String::as_str).chain(["PATH", "HOME"]);
    for (name, value) in named.filter_map(|name| Some((name, std::env::var_os(name)?))) {
        command.env(name, value);
    }
    let cannot = |why: String| format!("the server `{program}` cannot be started: {why}");
    let (transport, _) =
        TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().map_err(|error| cannot(error.to_string()))?;
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None };
    let started = within(REMOTE_START_MS_MAX, ().serve_with_lifecycle(transport, lifecycle)).await?;
    started.map_err(|error| cannot(error.to_string()))
}

/// The words of a result, as long as they may be.
fn words(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text().map(|text| text.text.as_str()));
    let mut words = texts.collect::<Vec<_>>().join("\n");
    if words.len() > REMOTE_TEXT_BYTES_MAX {
        words.truncate(words.floor_char_boundary(REMOTE_TEXT_BYTES_MAX));
        words.push('…');
    }
    words
}
