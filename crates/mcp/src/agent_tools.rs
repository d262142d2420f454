//! The tools of MCP servers for agents: runs of `mcp__SERVER__TOOL`, and the descriptions that a flow asks for.
//!
//! Which tool an agent may use in which phase is decided by its flow, before a run gets here. The server is told the phase and
//! the agent. What it answers reaches a model only in a fence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::event::ToolRunOpened;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_flows::assistant::domain::McpServerConfig;
use segue_flows::limits::{MCP_DESCRIPTION_CHARS_MAX, MCP_LISTING_BYTES_MAX, MCP_SCHEMA_BYTES_MAX};
use segue_flows::mcp_tools::{
    AGENT_METADATA_KEY, LIST_MCP_TOOLS, ListMcpToolsArguments, ListMcpToolsResult, MCP_TOOL_PREFIX, McpCallOutcome,
    McpServerToolListing, McpToolDescription, McpToolName, PHASE_METADATA_KEY, PROPOSED_PHASE_METADATA_KEY,
    RUN_METADATA_KEY, fence_server_text,
};
use serde_json::{Map, Value, json};

use crate::client::{McpCallError, McpConnectionPool, McpServerForOwner, McpToolCall, annotated_as_read_only};
use crate::limits::MCP_LISTING_MS_MAX;
use crate::result_text::{tool_result_text, truncate_server_text};
use crate::{CallToolResult, McpTool};

/// A server whose tools agents use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct McpServerWithAllowedOwners {
    pub connection: McpServerConfig,
    /// The owners of sessions that may use it, besides the operator. `*` stands for all.
    pub owners: Vec<String>,
}

/// The host of the tools of MCP servers.
#[derive(Debug, Clone)]
pub struct McpToolHost {
    inner: Arc<McpToolHostInner>,
}

#[derive(Debug)]
struct McpToolHostInner {
    servers: BTreeMap<String, McpServerWithAllowedOwners>,
    pool: McpConnectionPool,
}

impl McpToolHost {
    /// Creates a host for these servers. It starts and calls none of them yet.
    #[must_use]
    pub fn new(servers: BTreeMap<String, McpServerWithAllowedOwners>) -> Self {
        Self { inner: Arc::new(McpToolHostInner { servers, pool: McpConnectionPool::default() }) }
    }

    /// Adds the tools of all servers to a registry.
    #[must_use]
    pub fn add_to(&self, registry: ToolRegistry) -> ToolRegistry {
        let host: Arc<dyn Tool> = Arc::new(self.clone());
        registry.with_tool(LIST_MCP_TOOLS, host.clone()).with_tool_prefix(MCP_TOOL_PREFIX, host)
    }

    /// Returns the names of the tools of a server, which is asked on behalf of the operator.
    ///
    /// # Errors
    /// Fails with the reason if there is no such server, or if it cannot be reached.
    pub async fn list_tool_names(&self, server: &str) -> Result<BTreeSet<String>, String> {
        let tools = self.inner.pool.list_tools(self.inner.find_server(None, server)?).await?;
        Ok(tools.iter().map(|tool| tool.name.to_string()).collect())
    }
}

#[async_trait]
impl Tool for McpToolHost {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        let run = &request.opened;
        let result = match (run.tool.as_str(), McpToolName::parse(run.tool.as_str())) {
            (LIST_MCP_TOOLS, _) if run.requested_by.is_none() => self.inner.describe_tools(&request).await,
            (_, Some(name)) => {
                context.progress.report(&format!("waiting for the server `{}`", name.server));
                self.inner.call_tool(&request, name).await
            }
            (name, None) => Err(format!("`{name}` is not a tool of an MCP server")),
        };
        result.unwrap_or_else(ToolResult::failed)
    }
}

impl McpToolHostInner {
    fn find_server<'t>(&'t self, owner: Option<&'t str>, name: &'t str) -> Result<McpServerForOwner<'t>, String> {
        // An owner is told the same in both cases, because the configuration is not for it to know.
        let may_use = |server: &&McpServerWithAllowedOwners| {
            owner.is_none_or(|owner| server.owners.iter().any(|allowed| allowed == owner || allowed == "*"))
        };
        match self.servers.get(name).filter(may_use) {
            Some(server) => Ok(McpServerForOwner { owner, name, server: &server.connection }),
            None => Err(format!("there is no MCP server `{name}` in the configuration")),
        }
    }

    /// Asks all servers at the same time, so that a slow one does not delay the others.
    async fn describe_tools(self: &Arc<Self>, request: &ToolInvocation) -> Result<ToolResult, String> {
        let wanted: ListMcpToolsArguments = serde_json::from_value(request.opened.arguments.clone())
            .map_err(|error| format!("the arguments of `{LIST_MCP_TOOLS}` are wrong: {error}"))?;
        let mut asked = tokio::task::JoinSet::new();
        for (server, tools) in wanted.servers {
            let (servers, owner) = (self.clone(), request.owner().map(str::to_owned));
            asked.spawn(async move {
                let listing = servers.describe_server_tools(owner.as_deref(), &server, &tools).await;
                (server, listing)
            });
        }
        let mut listing = ListMcpToolsResult::default();
        while let Some(answered) = asked.join_next().await {
            let (server, answered) = answered.map_err(|error| format!("a server could not be asked: {error}"))?;
            listing.servers.insert(server, answered);
        }
        limit_listing(&mut listing);
        let count: usize = listing.servers.values().map(|server| server.tools.len()).sum();
        let failed: Vec<&str> = listing.servers.values().filter_map(|server| server.error.as_deref()).collect();
        let text = [format!("{count} tools were described")].into_iter().chain(failed.into_iter().map(str::to_owned));
        let text = text.collect::<Vec<_>>().join("\n");
        Ok(ToolResult { value: serde_json::to_value(&listing).ok(), ..ToolResult::done(text) })
    }

    async fn describe_server_tools(
        &self,
        owner: Option<&str>,
        server: &str,
        wanted: &BTreeSet<String>,
    ) -> McpServerToolListing {
        let found = match self.find_server(owner, server) {
            Ok(target) => {
                let timeout = Duration::from_millis(MCP_LISTING_MS_MAX);
                let listed = tokio::time::timeout(timeout, self.pool.list_tools(target)).await;
                listed.unwrap_or_else(|_| Err(format!("the server `{server}` did not list its tools in time")))
            }
            Err(why) => Err(why),
        };
        match found {
            Ok(tools) => {
                let wanted = tools.iter().filter(|tool| wanted.contains(tool.name.as_ref()));
                McpServerToolListing { tools: wanted.filter_map(describe_tool).collect(), error: None }
            }
            Err(why) => McpServerToolListing { tools: Vec::new(), error: Some(truncate_server_text(why)) },
        }
    }

    async fn call_tool(&self, request: &ToolInvocation, name: McpToolName<'_>) -> Result<ToolResult, String> {
        let target = self.find_server(request.owner(), name.server)?;
        let arguments = match &request.opened.arguments {
            Value::Object(arguments) => arguments.clone(),
            Value::Null => Map::new(),
            _ => return Err(format!("the arguments of `{name}` must be an object")),
        };
        let fenced = |outcome, text: String| fence_server_text(name.server, outcome, &truncate_server_text(text));
        let known = self.pool.known_tools(target).await;
        let known = known.map_err(|why| fenced(McpCallOutcome::Failed, why))?;
        let Some(tool) = known.iter().find(|tool| tool.name == name.tool) else {
            return Err(format!("the server `{}` has no tool `{}`", name.server, name.tool));
        };
        let call = McpToolCall {
            tool: name.tool,
            arguments: &arguments,
            metadata: &request_metadata(&request.opened),
            only_reads: annotated_as_read_only(tool) == Some(true),
        };
        match self.pool.call_tool(target, call).await {
            Ok(result) => Ok(convert_result(&result, &fenced)),
            Err(McpCallError::Refused(why)) => Err(fenced(McpCallOutcome::Failed, why)),
            Err(error) if call.only_reads => Err(fenced(McpCallOutcome::Failed, error.into_message())),
            Err(error) => Err(fenced(McpCallOutcome::Unknown, error.into_message())),
        }
    }
}

/// What the server is told besides the arguments.
fn request_metadata(opened: &ToolRunOpened) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert(RUN_METADATA_KEY.to_owned(), json!(opened.run.0));
    metadata.extend(opened.phase.as_ref().map(|phase| (PHASE_METADATA_KEY.to_owned(), json!(phase))));
    metadata.extend(opened.agent.as_ref().map(|agent| (AGENT_METADATA_KEY.to_owned(), json!(agent))));
    metadata
}

/// Returns the description of a tool, unless its schema cannot be passed on.
fn describe_tool(tool: &McpTool) -> Option<McpToolDescription> {
    let input_schema = Value::Object((*tool.input_schema).clone());
    let is_usable = input_schema.get("type").and_then(Value::as_str) == Some("object")
        && input_schema.to_string().len() <= MCP_SCHEMA_BYTES_MAX;
    let description = tool.description.as_deref().unwrap_or_default().trim();
    let description = description.chars().take(MCP_DESCRIPTION_CHARS_MAX).collect();
    is_usable.then(|| McpToolDescription { name: tool.name.to_string(), description, input_schema })
}

/// Drops descriptions that would make the listing larger than the journal accepts.
fn limit_listing(listing: &mut ListMcpToolsResult) {
    let mut bytes = 0;
    for server in listing.servers.values_mut() {
        server.tools.retain(|tool| {
            bytes += serde_json::to_string(tool).map_or(0, |text| text.len());
            bytes <= MCP_LISTING_BYTES_MAX
        });
    }
}

fn convert_result(result: &CallToolResult, fenced: &dyn Fn(McpCallOutcome, String) -> String) -> ToolResult {
    let failed = result.is_error == Some(true);
    let text = match tool_result_text(result) {
        text if text.trim().is_empty() => result.structured_content.as_ref().map(Value::to_string).unwrap_or_default(),
        text => text,
    };
    let outcome = if failed { McpCallOutcome::Failed } else { McpCallOutcome::Done };
    let proposed = result.meta.as_ref().and_then(|meta| meta.0.get(PROPOSED_PHASE_METADATA_KEY)?.as_str());
    let value = proposed.map(|phase| json!({PROPOSED_PHASE_METADATA_KEY: phase}));
    ToolResult { text: fenced(outcome, text), value, failed, ..ToolResult::default() }
}
