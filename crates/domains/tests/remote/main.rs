//! Tests of the MCP tool, against real servers.

mod conversation;
mod notes_server;
mod protocol_versions;
mod requests;
