//! Records behind the tools of a server that speaks the Model Context Protocol: a program of the user's that is started when it
//! is first needed, or one that runs elsewhere and is called over HTTP.
//!
//! Only tools that the declaration allows are called, and those that write only for steps that were planned as writes. What a
//! server did cannot be taken back from here, and nothing that writes is ever asked for twice.

mod connect;
mod tool_result;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, Tool as Described};
use rmcp::service::ServiceError;
use segue_engine::tools::{Tool, ToolRequest};
use segue_flows::assistant::domain::{DomainSchema, McpServerConfig};
use segue_flows::assistant::facts::StepKind;
use segue_flows::assistant::settings::DomainCatalog;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult};
use segue_flows::limits::SERVER_TOOLS_MAX;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::limits::{MCP_CALL_MS, MCP_TOOL_PAGES_MAX};
use connect::McpConnection;

/// The host of tools that servers bring.
#[derive(Clone)]
pub struct McpServersTool {
    inner: Arc<McpServersInner>,
}

struct McpServersInner {
    domains: DomainCatalog,
    /// The connection to each domain's server. One that is being made keeps nobody else waiting.
    connections: BTreeMap<String, Mutex<Option<Arc<McpConnection>>>>,
}

impl std::fmt::Debug for McpServersTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl McpServersTool {
    /// A host for these domains. No server is started or called yet.
    #[must_use]
    pub fn new(domains: DomainCatalog) -> Self {
        let served = domains.iter().filter(|domain| domain.server.is_some());
        let connections = served.map(|domain| (domain.name.clone(), Mutex::default())).collect();
        Self { inner: Arc::new(McpServersInner { domains, connections }) }
    }

    /// Asks a domain's server for its tools now, to find out whether it can be had. Says how many it offers.
    ///
    /// # Errors
    /// It cannot be reached, or does not have what the domain names.
    pub async fn check_server(&self, domain: &DomainSchema) -> Result<usize, String> {
        let Some(server) = &domain.server else { return Err(format!("the domain `{}` has no server", domain.name)) };
        let found = self.inner.list_tools(domain, server).await?;
        let missing = server.tools.iter().flatten().find(|tool| !found.iter().any(|known| known.name == tool.name));
        match missing {
            Some(tool) => Err(format!("the server has no tool `{}`, which the domain names", tool.name)),
            None => Ok(found.iter().filter(|tool| server.tool_writes(&tool.name, None).is_some()).count()),
        }
    }
}

#[async_trait]
impl Tool for McpServersTool {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let told = DomainToolRequest::parse(&request.opened.arguments)
            .ok_or_else(|| "the request is not understood".to_owned())?;
        let domain = self.inner.domains.resolve_session_domain(&request.settings)?;
        let Some(server) = domain.server.as_ref().filter(|_| domain.name == told.domain) else {
            return Err(format!("the domain `{}` has no server", domain.name));
        };
        let reported = match told.operation {
            DomainOperation::ListTools => self.inner.describe_tools(&domain, server).await?,
            DomainOperation::CallTool => self.inner.call_tool(&domain, server, &told).await?,
            op => refused_result(format!("a server knows nothing of `{}`", op.as_str())),
        };
        serde_json::to_string(&reported).map_err(|error| error.to_string())
    }
}

fn refused_result(why: String) -> DomainToolResult {
    DomainToolResult { refusal: Some(why), ..DomainToolResult::default() }
}

/// Whether a server says that a tool changes something, or that it does not.
fn annotated_as_write(tool: &Described) -> Option<bool> {
    tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).map(|reads_only| !reads_only)
}

impl McpServersInner {
    /// The connection to a domain's server, made anew if the last one is gone.
    async fn get_connection(
        &self,
        domain: &DomainSchema,
        server: &McpServerConfig,
    ) -> Result<Arc<McpConnection>, String> {
        let slot = self.connections.get(&domain.name).ok_or_else(|| "the domain has no server".to_owned())?;
        let mut slot = slot.lock().await;
        if let Some(standing) = slot.as_ref().filter(|connection| !connection.client.is_closed()) {
            return Ok(standing.clone());
        }
        let made = Arc::new(connect::connect_server(server).await?);
        *slot = Some(made.clone());
        Ok(made)
    }

    async fn drop_connection(&self, domain: &DomainSchema, lost: &Arc<McpConnection>) {
        let Some(slot) = self.connections.get(&domain.name) else { return };
        let mut slot = slot.lock().await;
        // Somebody else may have made a new one since.
        if slot.as_ref().is_some_and(|standing| Arc::ptr_eq(standing, lost)) {
            *slot = None;
        }
    }

    /// What tools a server has now.
    async fn list_tools(&self, domain: &DomainSchema, server: &McpServerConfig) -> Result<Arc<Vec<Described>>, String> {
        match self.try_list_tools(domain, server).await {
            Err(McpCallError::ConnectionLost(_)) => self.try_list_tools(domain, server).await,
            other => other,
        }
        .map_err(McpCallError::into_message)
    }

    async fn try_list_tools(
        &self,
        domain: &DomainSchema,
        server: &McpServerConfig,
    ) -> Result<Arc<Vec<Described>>, McpCallError> {
        let connection = self.get_connection(domain, server).await.map_err(McpCallError::UnknownOutcome)?;
        let listed =
            with_call_timeout(server, fetch_all_tools(&connection)).await.map_err(McpCallError::UnknownOutcome)?;
        match listed {
            Ok(tools) => {
                let tools = Arc::new(tools);
                connection.set_cached_tools(Some(tools.clone()));
                Ok(tools)
            }
            Err(error) => Err(self.classify_service_error(domain, &connection, error).await),
        }
    }

    async fn classify_service_error(
        &self,
        domain: &DomainSchema,
        connection: &Arc<McpConnection>,
        error: ServiceError,
    ) -> McpCallError {
        match error {
            error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                self.drop_connection(domain, connection).await;
                McpCallError::ConnectionLost(format!("the server went away: {error}"))
            }
            ServiceError::McpError(error) if is_rejected_request(error.code) => {
                // Not every server says that its tools changed.
                connection.set_cached_tools(None);
                McpCallError::Refused(error.message.into_owned())
            }
            error => McpCallError::UnknownOutcome(format!("the server did not do it: {error}")),
        }
    }

    async fn describe_tools(
        &self,
        domain: &DomainSchema,
        server: &McpServerConfig,
    ) -> Result<DomainToolResult, String> {
        let found = self.list_tools(domain, server).await?;
        let is_allowed = |tool: &&Described| server.tool_writes(&tool.name, None).is_some();
        let allowed: Vec<&Described> = found.iter().filter(is_allowed).collect();
        if allowed.len() > SERVER_TOOLS_MAX {
            let count = allowed.len();
            return Err(format!(
                "the server has {count} tools, and at most {SERVER_TOOLS_MAX} are taken; name those to be used under `tools`"
            ));
        }
        let tools = allowed.iter().map(|tool| {
            json!({"name": tool.name, "about": tool.description, "arguments": *tool.input_schema, "writes": annotated_as_write(tool)})
        });
        Ok(DomainToolResult { tools: tools.collect(), ..DomainToolResult::default() })
    }

    async fn call_tool(
        &self,
        domain: &DomainSchema,
        server: &McpServerConfig,
        request: &DomainToolRequest,
    ) -> Result<DomainToolResult, String> {
        let name = request.parameters.get("tool").and_then(Value::as_str).unwrap_or_default();
        if server.tools.is_some() && server.find_tool(name).is_none() {
            return Ok(refused_result(format!("the domain names no tool `{name}`")));
        }
        let connection = self.get_connection(domain, server).await?;
        let known = match connection.cached_tools() {
            Some(known) => known,
            None => self.list_tools(domain, server).await?,
        };
        let Some(tool) = known.iter().find(|tool| tool.name == name) else {
            return Ok(refused_result(format!("the server has no tool `{name}`")));
        };
        let writes = server.tool_writes(name, annotated_as_write(tool)).unwrap_or(true);
        if writes && request.step_kind != Some(StepKind::Write) {
            return Ok(refused_result(format!("`{name}` changes something, and the step was not planned as a write")));
        }
        let mut arguments = request.parameters.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
        let ids = server.find_tool(name).into_iter().flat_map(|declared| declared.references.keys());
        tool_result::coerce_ids_to_schema(&mut arguments, ids, &tool.input_schema);
        let result = match self.try_call_tool(domain, server, name, &arguments).await {
            // What only reads may be asked again of a server that went away.
            Err(McpCallError::ConnectionLost(_)) if !writes => {
                self.try_call_tool(domain, server, name, &arguments).await
            }
            other => other,
        };
        match result {
            Ok(result) => Ok(tool_result::convert_tool_result(domain, server.find_tool(name), &result)),
            Err(McpCallError::Refused(why)) => Ok(refused_result(why)),
            Err(lost) => Err(lost.into_message()),
        }
    }

    async fn try_call_tool(
        &self,
        domain: &DomainSchema,
        server: &McpServerConfig,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<CallToolResult, McpCallError> {
        let connection = self.get_connection(domain, server).await.map_err(McpCallError::UnknownOutcome)?;
        let wish = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
        // Whoever is not waited for any longer is told so: a request that is dropped is cancelled.
        match with_call_timeout(server, connection.client.call_tool(wish))
            .await
            .map_err(McpCallError::UnknownOutcome)?
        {
            Ok(result) => Ok(result),
            Err(error) => Err(self.classify_service_error(domain, &connection, error).await),
        }
    }
}

/// Every tool of a server, page by page.
async fn fetch_all_tools(connection: &McpConnection) -> Result<Vec<Described>, ServiceError> {
    let mut tools = Vec::new();
    let mut page = connection.client.list_tools(None).await?;
    for _ in 1..MCP_TOOL_PAGES_MAX {
        tools.append(&mut page.tools);
        let Some(cursor) = page.next_cursor.take() else { return Ok(tools) };
        let next = rmcp::model::PaginatedRequestParams::default().with_cursor(Some(cursor));
        page = connection.client.list_tools(Some(next)).await?;
    }
    tools.append(&mut page.tools);
    Ok(tools)
}

/// Whether an error says that nothing was begun.
fn is_rejected_request(code: ErrorCode) -> bool {
    [ErrorCode::INVALID_PARAMS, ErrorCode::INVALID_REQUEST, ErrorCode::METHOD_NOT_FOUND, ErrorCode::PARSE_ERROR]
        .contains(&code)
}

/// Why a request brought no result.
enum McpCallError {
    /// The server went away.
    ConnectionLost(String),
    /// It did not answer, or with an error: nobody knows what was done.
    UnknownOutcome(String),
    /// It did not begin.
    Refused(String),
}

impl McpCallError {
    fn into_message(self) -> String {
        match self {
            Self::ConnectionLost(why) | Self::UnknownOutcome(why) | Self::Refused(why) => why,
        }
    }
}

async fn with_call_timeout<T>(server: &McpServerConfig, future: impl Future<Output = T>) -> Result<T, String> {
    let wait = server.timeout_s.map_or(Duration::from_millis(MCP_CALL_MS), Duration::from_secs);
    let late = |_| format!("the server did not answer within {} s", wait.as_secs());
    tokio::time::timeout(wait, future).await.map_err(late)
}
