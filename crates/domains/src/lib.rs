//! Keeps the records that the assistant works with: in tables of a person's own, or behind the tools of a server.
//!
//! Carries out what the flow asks for and nothing else. It checks everything against the declaration once more, writes only
//! for steps that were planned as writes, does nothing twice, and reports what stood there before, so that a write can be
//! taken back from the journal. It decides nothing about conversations.

pub mod limits;
pub mod mcp;
pub mod records;

pub use mcp::McpServersTool;
pub use records::SqliteRecordsTool;
