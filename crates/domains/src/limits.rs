//! Every limit of the hosts, in one place.

/// Longest result, in bytes of JSON. The engine cuts what is longer than a megabyte, and half a result is none.
pub const RESULT_BYTES_MAX: usize = 900_000;
/// Most bytes of records that one read returns; the rest is counted and not returned.
pub const READ_BYTES_MAX: usize = 400_000;
/// Most records fetched by their ids at once.
pub const GET_ROWS_MAX: usize = 200;
/// Runs remembered, so that a repetition is recognised.
pub const RUNS_KEPT_MAX: i64 = 10_000;
/// How long a request waits for another process that writes to the same file.
pub const DATABASE_BUSY_MS_MAX: u64 = 10_000;
/// How far the name of a record is looked for, where a record is named by another.
pub const LABEL_DEPTH_MAX: u32 = 4;
/// Records that a refusal names.
pub const BLOCKING_LABELS_MAX: usize = 5;
/// Longest wait for a server to start and to agree on a style; the library itself waits ten seconds for the newer one.
pub const MCP_START_MS_MAX: u64 = 40_000;
/// Longest wait for a connection to a server elsewhere.
pub const MCP_CONNECT_MS_MAX: u64 = 10_000;
/// How long an answer of a server is waited for, where the domain does not say.
pub const MCP_CALL_MS: u64 = 120_000;
/// Most pages read of a server's list of tools.
pub const MCP_TOOL_PAGES_MAX: usize = 20;
/// Largest message taken from a server, in bytes; the library drops what is larger.
pub const MCP_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of a server's words that are passed on.
pub const MCP_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most records taken from one result of a server.
pub const MCP_ROWS_MAX: usize = 100;
