//! The connections to MCP servers, and requests over them. Each owner of sessions has connections of its own; a program is
//! started once for each owner. A request that may have been executed is never repeated, unless the tool only reads.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorCode, MetaObject, RequestMetaObject, Tool as McpTool};
use rmcp::service::ServiceError;
use segue_flows::assistant::domain::McpServerConfig;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::connect::{self, McpConnection};
use crate::limits::{MCP_CALL_MS, MCP_CONNECTIONS_MAX, MCP_TOOL_PAGES_MAX};

/// The open connections by owner and server, each with its own lock.
#[derive(Debug, Default)]
pub struct McpConnectionPool {
    connections: std::sync::Mutex<BTreeMap<(Option<String>, String), McpConnectionSlot>>,
}

type McpConnectionSlot = Arc<Mutex<Option<Arc<McpConnection>>>>;

/// A server, and the owner for whom it is called; `None` is the operator.
#[derive(Debug, Clone, Copy)]
pub struct McpServerForOwner<'t> {
    pub owner: Option<&'t str>,
    /// The name under which the connection is kept.
    pub name: &'t str,
    pub server: &'t McpServerConfig,
}

/// A request to call a tool.
#[derive(Debug, Clone, Copy)]
pub struct McpToolCall<'t> {
    pub tool: &'t str,
    pub arguments: &'t Map<String, Value>,
    /// What the server is told about the request besides its arguments (`_meta`).
    pub metadata: &'t Map<String, Value>,
    /// Whether the tool only reads, so that a request whose answer was lost can be repeated.
    pub only_reads: bool,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpCallError {
    /// The connection was lost.
    ConnectionLost(String),
    /// The server did not answer or failed, so it may or may not have executed the request.
    UnknownOutcome(String),
    /// The server did not execute the request.
    Refused(String),
}

impl McpCallError {
    #[must_use]
    pub fn into_message(self) -> String {
        match self {
            Self::ConnectionLost(why) | Self::UnknownOutcome(why) | Self::Refused(why) => why,
        }
    }
}

/// Returns whether a tool only reads, if the server says so.
#[must_use]
pub fn annotated_as_read_only(tool: &McpTool) -> Option<bool> {
    tool.annotations.as_ref().and_then(|hints| hints.read_only_hint)
}

impl McpConnectionPool {
    /// Returns the connection to a server, and reconnects if it was closed.
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
        let key = (target.owner.map(str::to_owned), target.name.to_owned());
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
    ///
    /// # Errors
    /// Fails with the reason if the server cannot be reached or does not answer.
    pub async fn list_tools(&self, target: McpServerForOwner<'_>) -> Result<Arc<Vec<McpTool>>, String> {
        match self.try_list_tools(target).await {
            Err(McpCallError::ConnectionLost(_)) => self.try_list_tools(target).await,
            other => other,
        }
        .map_err(McpCallError::into_message)
    }

    /// Returns the tools that a server listed last, or asks for them.
    ///
    /// # Errors
    /// Fails with the reason if the server cannot be reached or does not answer.
    pub async fn known_tools(&self, target: McpServerForOwner<'_>) -> Result<Arc<Vec<McpTool>>, String> {
        let connection = self.get_connection(target).await?;
        match connection.cached_tools() {
            Some(known) => Ok(known),
            None => self.list_tools(target).await,
        }
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

    /// Calls a tool. A tool that only reads is called again after a lost connection.
    ///
    /// # Errors
    /// Fails if the server refuses the request, or if there is no answer.
    pub async fn call_tool(
        &self,
        target: McpServerForOwner<'_>,
        call: McpToolCall<'_>,
    ) -> Result<CallToolResult, McpCallError> {
        match self.try_call_tool(target, call).await {
            Err(McpCallError::ConnectionLost(_)) if call.only_reads => self.try_call_tool(target, call).await,
            other => other,
        }
    }

    async fn try_call_tool(
        &self,
        target: McpServerForOwner<'_>,
        call: McpToolCall<'_>,
    ) -> Result<CallToolResult, McpCallError> {
        let connection = self.get_connection(target).await.map_err(McpCallError::UnknownOutcome)?;
        let mut params = CallToolRequestParams::new(call.tool.to_owned()).with_arguments(call.arguments.clone());
        if !call.metadata.is_empty() {
            params.meta = Some(RequestMetaObject(MetaObject(call.metadata.clone())));
        }
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

async fn with_call_timeout<T>(server: &McpServerConfig, future: impl Future<Output = T>) -> Result<T, String> {
    let wait = server.timeout_s.map_or(Duration::from_millis(MCP_CALL_MS), Duration::from_secs);
    let late = |_| format!("the server did not answer within {} s", wait.as_secs());
    tokio::time::timeout(wait, future).await.map_err(late)
}
