//! Tests of the tools of MCP servers for agents, against a real server over both transports.

mod conversation;
mod requests;
mod ticket_server;
