//! All limits of the workspace tools.

/// Longest path of a file in a workspace, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 1_024;
/// Largest file that the file tools read or write, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Largest part of a file that one `read_file` returns, in bytes.
pub(crate) const READ_TEXT_BYTES_MAX: usize = 48 * 1024;
/// Longest line that `read_file` shows, in bytes.
pub(crate) const READ_LINE_BYTES_MAX: usize = 4_096;
/// Bytes at the start of a file that are searched for a zero byte, which text files do not have.
pub(crate) const BINARY_PROBE_BYTES: usize = 8 * 1024;
/// Lines of context around the nearest match that a refused edit shows.
pub(crate) const EDIT_HINT_CONTEXT_LINES: usize = 2;
/// Most places that a refused edit names.
pub(crate) const EDIT_PLACES_MAX: usize = 10;
/// Most lines of a passage and of a file that are compared to find the nearest match.
pub(crate) const EDIT_NEAREST_CELLS_MAX: usize = 200_000;

/// Most files of a workspace, without the excluded ones.
pub(crate) const WORKSPACE_FILES_MAX: usize = 50_000;
/// Most bytes of all files of a workspace, without the excluded ones.
pub(crate) const WORKSPACE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Most levels of folders in a workspace.
pub(crate) const FOLDER_DEPTH_MAX: usize = 64;
/// Largest file with exclusion rules that is read, in bytes.
pub(crate) const IGNORE_FILE_BYTES_MAX: u64 = 256 * 1024;
/// Most files in a list for a model or in a result.
pub(crate) const LISTED_FILES_MAX: usize = 500;
/// Most changes in a result.
pub(crate) const LISTED_CHANGES_MAX: usize = 500;
/// Most lines that a search returns.
pub(crate) const SEARCH_MATCHES_MAX: usize = 200;
/// Longest matching line that a search returns, in bytes.
pub(crate) const SEARCH_LINE_BYTES_MAX: usize = 400;
/// Largest regular expression after compilation, in bytes.
pub(crate) const SEARCH_REGEX_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest search pattern, in bytes.
pub(crate) const SEARCH_PATTERN_BYTES_MAX: usize = 4 * 1024;
/// Longest text of `AGENTS.md` in a status, in bytes.
pub(crate) const AGENTS_MD_BYTES_MAX: usize = 16 * 1024;

/// Most artifacts with diffs of one run. The last one combines the rest.
pub(crate) const DIFF_ARTIFACTS_MAX: usize = 16;
/// Longest diff in an artifact, in bytes.
pub(crate) const DIFF_BYTES_MAX: usize = 256 * 1024;
/// Largest text that is compared line by line, in bytes.
pub(crate) const DIFF_INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Longest diff in the text of a result, in bytes.
pub(crate) const DIFF_TEXT_BYTES_MAX: usize = 24 * 1024;

/// Largest file that a checkpoint stores, in bytes. Of a larger one it only knows the digest.
pub(crate) const CHECKPOINT_FILE_BYTES_MAX: u64 = FILE_BYTES_MAX;
/// Most checkpoints of a workspace. The oldest is dropped.
pub(crate) const CHECKPOINTS_MAX: usize = 500;
/// Most bytes of stored files over all checkpoints and workspaces. The oldest checkpoints are dropped.
pub(crate) const CHECKPOINT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Newest checkpoints of a workspace that are never dropped.
pub(crate) const CHECKPOINTS_KEPT_MIN: usize = 5;
/// Longest label of a checkpoint, in bytes.
pub(crate) const CHECKPOINT_LABEL_BYTES_MAX: usize = 200;
/// Most isolated copies of a workspace.
pub(crate) const COPIES_MAX: usize = 64;
/// Longest name of a copy that a flow can choose, in bytes.
pub(crate) const COPY_NAME_BYTES_MAX: usize = 40;
/// Longest text with conflict markers in a result, in bytes.
pub(crate) const CONFLICT_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Most conflicts of a merge that are reported with their texts.
pub(crate) const CONFLICT_TEXTS_MAX: usize = 8;
/// Most sessions whose reads are remembered. The least recently used one is forgotten.
pub(crate) const SESSIONS_REMEMBERED_MAX: i64 = 10_000;
/// Longest wait for another process that writes to the state of workspaces.
pub(crate) const DATABASE_BUSY_MS_MAX: u64 = 10_000;

/// Commands of a workspace that run at the same time, unless it is configured.
pub(crate) const COMMANDS_AT_ONCE_MAX: usize = 2;
/// Longest command line, in bytes.
pub(crate) const COMMAND_LINE_BYTES_MAX: usize = 16 * 1024;
/// Most output of a command, in bytes. After that it is stopped.
pub(crate) const COMMAND_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest end of a command's output that is kept, in bytes.
pub(crate) const COMMAND_TAIL_BYTES_MAX: usize = 16 * 1024;
/// Most check commands of one run.
pub(crate) const CHECKS_MAX: usize = 32;
/// Longest end of a check's output that is kept, in bytes.
pub(crate) const CHECK_TAIL_BYTES_MAX: usize = 6 * 1024;
/// How often a command's supervisor is sent a heartbeat.
pub(crate) const HEARTBEAT_MS: u64 = 1_000;
/// Longest time without a heartbeat. After that the supervisor ends the command.
pub(crate) const HEARTBEAT_SILENCE_MS_MAX: u64 = 10_000;
/// How long a command may take to end after it was asked to.
pub(crate) const TERMINATION_GRACE_MS: u64 = 2_000;
/// How long the supervisor looks for processes that a command left behind.
pub(crate) const REAPING_MS_MAX: u64 = 5_000;
/// Longest request to a supervisor, in bytes.
pub(crate) const SUPERVISOR_REQUEST_BYTES_MAX: u64 = 1024 * 1024;
/// Longest report of a supervisor, in bytes.
pub(crate) const SUPERVISOR_REPORT_BYTES_MAX: u64 = 64 * 1024;
/// Largest file that a command can write, in bytes.
pub(crate) const COMMAND_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The free space below which no worktree is created, in KiB.
pub(crate) const GIT_DISK_SPACE_KIB_MIN: u64 = 200 * 1024;
/// The maximum size of a file that the team flow itself reads, in bytes.
pub(crate) const GIT_FILE_BYTES_MAX: usize = 4 << 20;
/// The maximum length of the name of a spec or a story in paths and branches, in bytes.
pub(crate) const GIT_NAME_BYTES_MAX: usize = 80;
