//! Records behind the tools of a server that speaks the Model Context Protocol: a program of the user's that is started when it
//! is first needed, or one that runs elsewhere and is called over HTTP.
//!
//! Only tools that the declaration allows are called, and those that write only for steps that were planned as writes. What a
//! server did cannot be taken back from here, and nothing that writes is ever asked for twice.

mod connect;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, Tool as Described};
use rmcp::service::ServiceError;
use segue_engine::tools::{Tool, ToolRequest};
use segue_flows::assistant::domain::{Domain, Server};
use segue_flows::assistant::facts::StepKind;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::{Operation, Reported, Told};
use segue_flows::limits::SERVER_TOOLS_MAX;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::limits::{REMOTE_CALL_MS, REMOTE_PAGES_MAX};
use connect::Connection;

/// The host of tools that servers bring.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    domains: Domains,
    /// The connection to each domain's server. One that is being made keeps nobody else waiting.
    connections: BTreeMap<String, Mutex<Option<Arc<Connection>>>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    /// A host for these domains. No server is started or called yet.
    #[must_use]
    pub fn new(domains: Domains) -> Self {
        let served = domains.iter().filter(|domain| domain.server.is_some());
        let connections = served.map(|domain| (domain.name.clone(), Mutex::default())).collect();
        Self { inner: Arc::new(Inner { domains, connections }) }
    }

    /// Asks a domain's server for its tools now, to find out whether it can be had. Says how many it offers.
    ///
    /// # Errors
    /// It cannot be reached, or does not have what the domain names.
    pub async fn check(&self, domain: &Domain) -> Result<usize, String> {
        let Some(server) = &domain.server else { return Err(format!("the domain `{}` has no server", domain.name)) };
        let found = self.inner.tools(domain, server).await?;
        let missing = server.tools.iter().flatten().find(|tool| !found.iter().any(|known| known.name == tool.name));
        match missing {
            Some(tool) => Err(format!("the server has no tool `{}`, which the domain names", tool.name)),
            None => Ok(found.iter().filter(|tool| server.writes(&tool.name, None).is_some()).count()),
        }
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
            op => refused(format!("a server knows nothing of `{}`", op.word())),
        };
        serde_json::to_string(&reported).map_err(|error| error.to_string())
    }
}

fn refused(why: String) -> Reported {
    Reported { refused: Some(why), ..Reported::default() }
}

/// Whether a server says that a tool changes something, or that it does not.
fn says_it_writes(tool: &Described) -> Option<bool> {
    tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).map(|reads_only| !reads_only)
}

impl Inner {
    /// The connection to a domain's server, made anew if the last one is gone.
    async fn connection(&self, domain: &Domain, server: &Server) -> Result<Arc<Connection>, String> {
        let slot = self.connections.get(&domain.name).ok_or_else(|| "the domain has no server".to_owned())?;
        let mut slot = slot.lock().await;
        if let Some(standing) = slot.as_ref().filter(|connection| !connection.client.is_closed()) {
            return Ok(standing.clone());
        }
        let made = Arc::new(connect::connect(server).await?);
        *slot = Some(made.clone());
        Ok(made)
    }

    async fn forget(&self, domain: &Domain, lost: &Arc<Connection>) {
        let Some(slot) = self.connections.get(&domain.name) else { return };
        let mut slot = slot.lock().await;
        // Somebody else may have made a new one since.
        if slot.as_ref().is_some_and(|standing| Arc::ptr_eq(standing, lost)) {
            *slot = None;
        }
    }

    /// What tools a server has now.
    async fn tools(&self, domain: &Domain, server: &Server) -> Result<Arc<Vec<Described>>, String> {
        match self.tools_once(domain, server).await {
            Err(Lost::Connection(_)) => self.tools_once(domain, server).await,
            other => other,
        }
        .map_err(Lost::words)
    }

    async fn tools_once(&self, domain: &Domain, server: &Server) -> Result<Arc<Vec<Described>>, Lost> {
        let connection = self.connection(domain, server).await.map_err(Lost::Answer)?;
        let listed = within(server, all_tools(&connection)).await.map_err(Lost::Answer)?;
        match listed {
            Ok(tools) => {
                let tools = Arc::new(tools);
                connection.know(Some(tools.clone()));
                Ok(tools)
            }
            Err(error) => Err(self.lost(domain, &connection, error).await),
        }
    }

    async fn lost(&self, domain: &Domain, connection: &Arc<Connection>, error: ServiceError) -> Lost {
        match error {
            error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                self.forget(domain, connection).await;
                Lost::Connection(format!("the server went away: {error}"))
            }
            ServiceError::McpError(error) if is_turned_down(error.code) => {
                // Not every server says that its tools changed.
                connection.know(None);
                Lost::Refused(error.message.into_owned())
            }
            error => Lost::Answer(format!("the server did not do it: {error}")),
        }
    }

    async fn describe(&self, domain: &Domain, server: &Server) -> Result<Reported, String> {
        let found = self.tools(domain, server).await?;
        let is_allowed = |tool: &&Described| server.writes(&tool.name, None).is_some();
        let allowed: Vec<&Described> = found.iter().filter(is_allowed).collect();
        if allowed.len() > SERVER_TOOLS_MAX {
            let count = allowed.len();
            return Err(format!(
                "the server has {count} tools, and at most {SERVER_TOOLS_MAX} are taken; name those to be used under `tools`"
            ));
        }
        let tools = allowed.iter().map(|tool| {
            json!({"name": tool.name, "about": tool.description, "arguments": *tool.input_schema, "writes": says_it_writes(tool)})
        });
        Ok(Reported { tools: tools.collect(), ..Reported::default() })
    }

    async fn call(&self, domain: &Domain, server: &Server, asked: &Told) -> Result<Reported, String> {
        let name = asked.rest.get("tool").and_then(Value::as_str).unwrap_or_default();
        if server.tools.is_some() && server.tool(name).is_none() {
            return Ok(refused(format!("the domain names no tool `{name}`")));
        }
        let connection = self.connection(domain, server).await?;
        let known = match connection.known() {
            Some(known) => known,
            None => self.tools(domain, server).await?,
        };
        let Some(tool) = known.iter().find(|tool| tool.name == name) else {
            return Ok(refused(format!("the server has no tool `{name}`")));
        };
        let writes = server.writes(name, says_it_writes(tool)).unwrap_or(true);
        if writes && asked.step_type != Some(StepKind::Write) {
            return Ok(refused(format!("`{name}` changes something, and the step was not planned as a write")));
        }
        let mut arguments = asked.rest.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
        let ids = server.tool(name).into_iter().flat_map(|declared| declared.references.keys());
        rows::fit_ids(&mut arguments, ids, &tool.input_schema);
        let result = match self.call_once(domain, server, name, &arguments).await {
            // What only reads may be asked again of a server that went away.
            Err(Lost::Connection(_)) if !writes => self.call_once(domain, server, name, &arguments).await,
            other => other,
        };
        match result {
            Ok(result) => Ok(rows::reported(domain, server.tool(name), &result)),
            Err(Lost::Refused(why)) => Ok(refused(why)),
            Err(lost) => Err(lost.words()),
        }
    }

    async fn call_once(
        &self,
        domain: &Domain,
        server: &Server,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<CallToolResult, Lost> {
        let connection = self.connection(domain, server).await.map_err(Lost::Answer)?;
        let wish = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
        // Whoever is not waited for any longer is told so: a request that is dropped is cancelled.
        match within(server, connection.client.call_tool(wish)).await.map_err(Lost::Answer)? {
            Ok(result) => Ok(result),
            Err(error) => Err(self.lost(domain, &connection, error).await),
        }
    }
}

/// Every tool of a server, page by page.
async fn all_tools(connection: &Connection) -> Result<Vec<Described>, ServiceError> {
    let mut tools = Vec::new();
    let mut page = connection.client.list_tools(None).await?;
    for _ in 1..REMOTE_PAGES_MAX {
        tools.append(&mut page.tools);
        let Some(cursor) = page.next_cursor.take() else { return Ok(tools) };
        let next = rmcp::model::PaginatedRequestParams::default().with_cursor(Some(cursor));
        page = connection.client.list_tools(Some(next)).await?;
    }
    tools.append(&mut page.tools);
    Ok(tools)
}

/// Whether an error says that nothing was begun.
fn is_turned_down(code: ErrorCode) -> bool {
    [ErrorCode::INVALID_PARAMS, ErrorCode::INVALID_REQUEST, ErrorCode::METHOD_NOT_FOUND, ErrorCode::PARSE_ERROR]
        .contains(&code)
}

/// Why a request brought no result.
enum Lost {
    /// The server went away.
    Connection(String),
    /// It did not answer, or with an error: nobody knows what was done.
    Answer(String),
    /// It did not begin.
    Refused(String),
}

impl Lost {
    fn words(self) -> String {
        match self {
            Self::Connection(why) | Self::Answer(why) | Self::Refused(why) => why,
        }
    }
}

async fn within<T>(server: &Server, future: impl Future<Output = T>) -> Result<T, String> {
    let wait = server.timeout_s.map_or(Duration::from_millis(REMOTE_CALL_MS), Duration::from_secs);
    let late = |_| format!("the server did not answer within {} s", wait.as_secs());
    tokio::time::timeout(wait, future).await.map_err(late)
}
