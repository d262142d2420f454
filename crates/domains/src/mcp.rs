//! Calls the tools of MCP servers: a program that is started at first use, or a server elsewhere that is called over HTTP.
//!
//! Each owner of sessions has connections of its own; a program is started once for each owner. Only tools that the domain allows
//! are called, and tools that write only in steps that were planned as writes. A write is never
//! repeated, and cannot be undone from here.

mod connect;
mod tool_result;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, Tool as McpTool};
use rmcp::service::ServiceError;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::{DomainSchema, McpServerConfig};
use segue_flows::assistant::facts::AssistantPlanStepKind;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult};
use segue_flows::limits::SERVER_TOOLS_MAX;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::limits::{MCP_CALL_MS, MCP_CONNECTIONS_MAX, MCP_TOOL_PAGES_MAX};
use connect::McpConnection;

/// The tool that calls the MCP servers of domains.
#[derive(Clone)]
pub struct McpGatewayTool {
    inner: Arc<McpServersInner>,
}

struct McpServersInner {
    domains: ConfiguredDomains,
    /// The connections by owner and domain, each with its own lock.
    connections: std::sync::Mutex<BTreeMap<(Option<String>, String), McpConnectionSlot>>,
}

type McpConnectionSlot = Arc<Mutex<Option<Arc<McpConnection>>>>;

/// A domain's server, and the owner for whom it is called; `None` is the operator.
#[derive(Clone, Copy)]
struct McpServerForOwner<'t> {
    owner: Option<&'t str>,
    domain: &'t DomainSchema,
    server: &'t McpServerConfig,
}

impl std::fmt::Debug for McpGatewayTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpGatewayTool").finish_non_exhaustive()
    }
}

impl McpGatewayTool {
    /// Creates a tool for these domains. It starts and calls no server yet.
    #[must_use]
    pub fn new(domains: ConfiguredDomains) -> Self {
        Self { inner: Arc::new(McpServersInner { domains, connections: std::sync::Mutex::default() }) }
    }

    /// Checks a domain's server by listing its tools. Returns the number of usable ones.
    ///
    /// # Errors
    /// The server cannot be reached, or lacks a tool that the domain declares.
    pub async fn check_server(&self, domain: &DomainSchema) -> Result<usize, String> {
        let Some(server) = &domain.server else { return Err(format!("the domain `{}` has no server", domain.name)) };
        let found = self.inner.list_tools(McpServerForOwner { owner: None, domain, server }).await?;
        let missing = server.tools.iter().flatten().find(|tool| !found.iter().any(|known| known.name == tool.name));
        match missing {
            Some(tool) => Err(format!("the server has no tool `{}`, which the domain declares", tool.name)),
            None => Ok(found.iter().filter(|tool| server.tool_writes(&tool.name, None).is_some()).count()),
        }
    }
}

#[async_trait]
impl Tool for McpGatewayTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        self.handle_mcp_request(&request).await.into()
    }
}

impl McpGatewayTool {
    async fn handle_mcp_request(&self, request: &ToolInvocation) -> Result<String, String> {
        let domain_request = DomainToolRequest::parse(&request.opened.arguments)
            .ok_or_else(|| "the request is not a domain tool request".to_owned())?;
        let domain = self.inner.domains.resolve_session_domain(&request.settings)?;
        let Some(server) = domain.server.as_ref().filter(|_| domain.name == domain_request.domain) else {
            return Err(format!("the domain `{}` has no server", domain.name));
        };
        let target = McpServerForOwner { owner: request.owner(), domain: &domain, server };
        let result = match domain_request.operation {
            DomainOperation::ListTools => self.inner.describe_tools(target).await?,
            DomainOperation::CallTool => self.inner.call_tool(target, &domain_request).await?,
            operation => refused_tool_result(format!("a server does not support `{}`", operation.as_str())),
        };
        serde_json::to_string(&result).map_err(|error| error.to_string())
    }
}

fn refused_tool_result(why: String) -> DomainToolResult {
    DomainToolResult { refusal: Some(why), ..DomainToolResult::default() }
}

/// Returns whether a tool writes, if the server says so.
fn annotated_as_write(tool: &McpTool) -> Option<bool> {
    tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).map(|reads_only| !reads_only)
}

impl McpServersInner {
    /// Returns the connection to a domain's server, and reconnects if it was closed.
    async fn get_connection(&self, target: McpServerForOwner<'_>) -> Result<Arc<McpConnection>, String> {
        let slot = self.connection_slot(target);
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.client.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = Arc::new(connect::connect_server(target.server, target.owner).await?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    fn connection_slot(&self, target: McpServerForOwner<'_>) -> McpConnectionSlot {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (target.owner.map(str::to_owned), target.domain.name.clone());
        if connections.len() >= MCP_CONNECTIONS_MAX {
            // A request that is running keeps its connection until it ends.
            connections.retain(|known, slot| *known == key || Arc::strong_count(slot) > 1);
        }
        connections.entry(key).or_default().clone()
    }

    async fn drop_connection(&self, target: McpServerForOwner<'_>, lost: &Arc<McpConnection>) {
        let slot = self.connection_slot(target);
        let mut slot = slot.lock().await;
        // Another request may have reconnected already.
        if slot.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            *slot = None;
        }
    }

    /// Asks a server for its tools.
    async fn list_tools(&self, target: McpServerForOwner<'_>) -> Result<Arc<Vec<McpTool>>, String> {
        match self.try_list_tools(target).await {
            Err(McpCallError::ConnectionLost(_)) => self.try_list_tools(target).await,
            other => other,
        }
        .map_err(McpCallError::into_message)
    }

    async fn try_list_tools(&self, target: McpServerForOwner<'_>) -> Result<Arc<Vec<McpTool>>, McpCallError> {
        let connection = self.get_connection(target).await.map_err(McpCallError::UnknownOutcome)?;
        let listed = with_call_timeout(target.server, fetch_all_tools(&connection))
            .await
            .map_err(McpCallError::UnknownOutcome)?;
        match listed {
            Ok(tools) => {
                let tools = Arc::new(tools);
                connection.set_cached_tools(Some(tools.clone()));
                Ok(tools)
            }
            Err(error) => Err(self.classify_service_error(target, &connection, error).await),
        }
    }

    async fn classify_service_error(
        &self,
        target: McpServerForOwner<'_>,
        connection: &Arc<McpConnection>,
        error: ServiceError,
    ) -> McpCallError {
        match error {
            error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                self.drop_connection(target, connection).await;
                McpCallError::ConnectionLost(format!("the connection to the server was lost: {error}"))
            }
            ServiceError::McpError(error) if is_rejected_request(error.code) => {
                // Not every server announces that its tools changed.
                connection.set_cached_tools(None);
                McpCallError::Refused(error.message.into_owned())
            }
            error => McpCallError::UnknownOutcome(format!("the server failed: {error}")),
        }
    }

    async fn describe_tools(&self, target: McpServerForOwner<'_>) -> Result<DomainToolResult, String> {
        let found = self.list_tools(target).await?;
        let server = target.server;
        let is_allowed = |tool: &&McpTool| server.tool_writes(&tool.name, None).is_some();
        let allowed: Vec<&McpTool> = found.iter().filter(is_allowed).collect();
        if allowed.len() > SERVER_TOOLS_MAX {
            let count = allowed.len();
            return Err(format!(
                "the server has {count} tools, but at most {SERVER_TOOLS_MAX} are allowed; declare the ones to use under `tools`"
            ));
        }
        let tools = allowed.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": *tool.input_schema, "writes": annotated_as_write(tool)})
        });
        Ok(DomainToolResult { tools: tools.collect(), ..DomainToolResult::default() })
    }

    async fn call_tool(
        &self,
        target: McpServerForOwner<'_>,
        request: &DomainToolRequest,
    ) -> Result<DomainToolResult, String> {
        let McpServerForOwner { domain, server, .. } = target;
        let name = request.parameters.get("tool").and_then(Value::as_str).unwrap_or_default();
        if server.tools.is_some() && server.find_tool(name).is_none() {
            return Ok(refused_tool_result(format!("the domain declares no tool `{name}`")));
        }
        let connection = self.get_connection(target).await?;
        let known = match connection.cached_tools() {
            Some(known) => known,
            None => self.list_tools(target).await?,
        };
        let Some(tool) = known.iter().find(|tool| tool.name == name) else {
            return Ok(refused_tool_result(format!("the server has no tool `{name}`")));
        };
        let writes = server.tool_writes(name, annotated_as_write(tool)).unwrap_or(true);
        if writes && request.step_kind != Some(AssistantPlanStepKind::Write) {
            return Ok(refused_tool_result(format!("`{name}` changes data, but the step was not planned as a write")));
        }
        let mut arguments = request.parameters.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
        let ids = server.find_tool(name).into_iter().flat_map(|declared| declared.references.keys());
        tool_result::coerce_ids_to_schema(&mut arguments, ids, &tool.input_schema);
        let result = match self.try_call_tool(target, name, &arguments).await {
            // A read may be repeated after a lost connection.
            Err(McpCallError::ConnectionLost(_)) if !writes => self.try_call_tool(target, name, &arguments).await,
            other => other,
        };
        match result {
            Ok(result) => Ok(tool_result::convert_tool_result(domain, server.find_tool(name), &result)),
            Err(McpCallError::Refused(why)) => Ok(refused_tool_result(why)),
            Err(error) => Err(error.into_message()),
        }
    }

    async fn try_call_tool(
        &self,
        target: McpServerForOwner<'_>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<CallToolResult, McpCallError> {
        let connection = self.get_connection(target).await.map_err(McpCallError::UnknownOutcome)?;
        let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
        // After the timeout the future is dropped, which cancels the request at the server.
        match with_call_timeout(target.server, connection.client.call_tool(params))
            .await
            .map_err(McpCallError::UnknownOutcome)?
        {
            Ok(result) => Ok(result),
            Err(error) => Err(self.classify_service_error(target, &connection, error).await),
        }
    }
}

/// Returns all tools of a server, page by page.
async fn fetch_all_tools(connection: &McpConnection) -> Result<Vec<McpTool>, ServiceError> {
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

/// Returns whether an error code means that the request was not executed.
fn is_rejected_request(code: ErrorCode) -> bool {
    [ErrorCode::INVALID_PARAMS, ErrorCode::INVALID_REQUEST, ErrorCode::METHOD_NOT_FOUND, ErrorCode::PARSE_ERROR]
        .contains(&code)
}

/// Why a request has no result.
enum McpCallError {
    /// The connection was lost.
    ConnectionLost(String),
    /// The server did not answer or failed, so it may or may not have executed the request.
    UnknownOutcome(String),
    /// The server did not execute the request.
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
