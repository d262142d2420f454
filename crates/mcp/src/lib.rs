//! Calls the tools of MCP servers: a program that is started at first use, or a server elsewhere that is called over HTTP.
//!
//! [`McpConnectionPool`] holds the connections. The assistant's records use it through `segue-domains`; the agents of flows
//! use it through [`McpToolHost`]. Which tool may be called is decided by those who call it.

mod agent_tools;
mod client;
mod connect;
pub mod limits;
mod result_text;

pub use agent_tools::{McpServerWithAllowedOwners, McpToolHost};
pub use client::{McpCallError, McpConnectionPool, McpServerForOwner, McpToolCall, annotated_as_read_only};
pub use result_text::{tool_result_text, truncate_server_text};
pub use rmcp::model::{CallToolResult, Tool as McpTool};
