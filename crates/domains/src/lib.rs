//! The tools behind the assistant flow: records in SQLite tables ([`SqliteRecordsTool`]), or behind an MCP server
//! ([`DomainMcpServersTool`]).
//!
//! The tools execute the requests of the flow. They check every request against the domain's declaration again, write only for
//! steps that were planned as writes, execute no run twice, and return the previous values, so that a write can be undone from
//! the journal. They make no decisions about conversations.

pub mod limits;
mod mcp;
mod records;

pub use mcp::DomainMcpServersTool;
pub use records::{BackupRecordsError, OpenRecordsError, SqliteRecordsTool};
