//! All limits of the domain tools.

/// Longest result, in bytes of JSON. The engine would cut a result of more than a megabyte, which makes it unreadable.
pub const RESULT_BYTES_MAX: usize = 900_000;
/// Most bytes of records that one read returns; the rest is only counted.
pub const READ_BYTES_MAX: usize = 400_000;
/// Most records fetched by id in one request.
pub const GET_ROWS_MAX: usize = 200;
/// Number of runs remembered, to recognize repeated ones.
pub const RUNS_KEPT_MAX: i64 = 10_000;
/// Most databases of owners that are kept open.
pub const OPEN_DATABASES_MAX: usize = 64;
/// How long a request waits for another process that is writing to the same file.
pub const DATABASE_BUSY_MS_MAX: u64 = 10_000;
/// How many links are followed to find a record's label.
pub const LABEL_DEPTH_MAX: u32 = 4;
/// Most labels listed in a refusal.
pub const BLOCKING_LABELS_MAX: usize = 5;
/// Most records passed on from one result of a server.
pub const MCP_ROWS_MAX: usize = 100;
