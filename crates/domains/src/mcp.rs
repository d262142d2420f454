//! Calls the tools of MCP servers: a program that is started at first use, or a server elsewhere that is called over HTTP.
//!
//! Each owner of sessions has connections of its own; a program is started once for each owner. Only tools that the domain allows
//! are called, and tools that write only in steps that were planned as writes. A write is never
//! repeated, and cannot be undone from here.

mod tool_result;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::{DomainSchema, McpServerConfig};
use segue_flows::assistant::facts::AssistantPlanStepKind;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult};
use segue_flows::limits::SERVER_TOOLS_MAX;
use segue_mcp::{McpCallError, McpConnectionPool, McpServerForOwner, McpTool, McpToolCall, annotated_as_read_only};
use serde_json::{Map, Value, json};

/// The tool that calls the MCP servers of domains.
#[derive(Clone)]
pub struct DomainMcpServersTool {
    inner: Arc<DomainMcpServersToolInner>,
}

struct DomainMcpServersToolInner {
    domains: ConfiguredDomains,
    pool: McpConnectionPool,
}

/// A domain's server, and the owner for whom it is called; `None` is the operator.
#[derive(Clone, Copy)]
struct DomainMcpServerForOwner<'t> {
    owner: Option<&'t str>,
    domain: &'t DomainSchema,
    server: &'t McpServerConfig,
}

impl<'t> DomainMcpServerForOwner<'t> {
    fn connection_target(self) -> McpServerForOwner<'t> {
        McpServerForOwner { owner: self.owner, name: &self.domain.name, server: self.server }
    }
}

impl std::fmt::Debug for DomainMcpServersTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DomainMcpServersTool").finish_non_exhaustive()
    }
}

impl DomainMcpServersTool {
    /// Creates a tool for these domains. It starts and calls no server yet.
    #[must_use]
    pub fn new(domains: ConfiguredDomains) -> Self {
        Self { inner: Arc::new(DomainMcpServersToolInner { domains, pool: McpConnectionPool::default() }) }
    }

    /// Checks a domain's server by listing its tools. Returns the number of usable ones.
    ///
    /// # Errors
    /// The server cannot be reached, or lacks a tool that the domain declares.
    pub async fn check_server(&self, domain: &DomainSchema) -> Result<usize, String> {
        let Some(server) = &domain.server else { return Err(format!("the domain `{}` has no server", domain.name)) };
        let target = DomainMcpServerForOwner { owner: None, domain, server };
        let found = self.inner.pool.list_tools(target.connection_target()).await?;
        let missing = server.tools.iter().flatten().find(|tool| !found.iter().any(|known| known.name == tool.name));
        match missing {
            Some(tool) => Err(format!("the server has no tool `{}`, which the domain declares", tool.name)),
            None => Ok(found.iter().filter(|tool| server.tool_writes(&tool.name, None).is_some()).count()),
        }
    }
}

#[async_trait]
impl Tool for DomainMcpServersTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        self.handle_mcp_request(&request).await.into()
    }
}

impl DomainMcpServersTool {
    async fn handle_mcp_request(&self, request: &ToolInvocation) -> Result<String, String> {
        let domain_request = DomainToolRequest::parse(&request.opened.arguments)
            .ok_or_else(|| "the request is not a domain tool request".to_owned())?;
        let domain = self.inner.domains.resolve_session_domain(&request.settings)?;
        let Some(server) = domain.server.as_ref().filter(|_| domain.name == domain_request.domain) else {
            return Err(format!("the domain `{}` has no server", domain.name));
        };
        let target = DomainMcpServerForOwner { owner: request.owner(), domain: &domain, server };
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
    annotated_as_read_only(tool).map(|only_reads| !only_reads)
}

impl DomainMcpServersToolInner {
    async fn describe_tools(&self, target: DomainMcpServerForOwner<'_>) -> Result<DomainToolResult, String> {
        let found = self.pool.list_tools(target.connection_target()).await?;
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
        target: DomainMcpServerForOwner<'_>,
        request: &DomainToolRequest,
    ) -> Result<DomainToolResult, String> {
        let DomainMcpServerForOwner { domain, server, .. } = target;
        let name = request.parameters.get("tool").and_then(Value::as_str).unwrap_or_default();
        if server.tools.is_some() && server.find_tool(name).is_none() {
            return Ok(refused_tool_result(format!("the domain declares no tool `{name}`")));
        }
        let known = self.pool.known_tools(target.connection_target()).await?;
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
        let call = McpToolCall { tool: name, arguments: &arguments, metadata: &Map::new(), only_reads: !writes };
        match self.pool.call_tool(target.connection_target(), call).await {
            Ok(result) => Ok(tool_result::convert_tool_result(domain, server.find_tool(name), &result)),
            Err(McpCallError::Refused(why)) => Ok(refused_tool_result(why)),
            Err(error) => Err(error.into_message()),
        }
    }
}
