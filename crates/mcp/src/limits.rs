//! All limits of the connections to MCP servers.

/// Most connections to servers that are kept open, over all owners and servers.
pub const MCP_CONNECTIONS_MAX: usize = 64;
/// Longest wait for a server to start and negotiate the protocol; the library itself waits ten seconds for the newer version.
pub const MCP_START_MS_MAX: u64 = 40_000;
/// Longest wait for an HTTP connection to a server.
pub const MCP_CONNECT_MS_MAX: u64 = 10_000;
/// Longest wait for the list of a server's tools, with the start of the server. Less than the tool run that asks all servers has,
/// so that one server that hangs does not take the answers of the others along.
pub const MCP_LISTING_MS_MAX: u64 = 50_000;
/// Default timeout of a request to a server.
pub const MCP_CALL_MS: u64 = 120_000;
/// Most pages read from a server's list of tools.
pub const MCP_TOOL_PAGES_MAX: usize = 20;
/// Largest message accepted from a server, in bytes; the library drops larger ones.
pub const MCP_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest text passed on from a server, in bytes.
pub const MCP_TEXT_BYTES_MAX: usize = 64 * 1024;
