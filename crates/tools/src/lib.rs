//! The tools that agents use in a workspace: files ([`WorkspaceToolHost`]) and commands, with checkpoints and isolated copies.
//!
//! The tools execute requests of models, which are not trusted. No path, link or race leads out of the workspace folder; commands run
//! without a shell, in an empty environment, under a supervisor process that ends them with everything that they started, and in a
//! sandbox where the kernel has one. The declarations of the tools are in `segue_flows::workspace_tools`.

#[cfg(not(unix))]
compile_error!("the workspace tools need a Unix system");

mod checkpoint;
mod command;
mod command_line;
mod confined_folder;
mod content;
mod copies;
mod exact_edit;
mod file_diff;
mod file_tools;
mod find_tools;
mod git;
mod host;
mod limits;
mod sandbox;
mod scan;
mod state;
mod supervisor;
mod workspace;
mod workspace_path;

pub use command::CommandSupervisorProgram;
pub use host::WorkspaceToolHost;
pub use sandbox::sandbox_is_available;
pub use supervisor::{SUPERVISE_COMMAND, run_if_supervisor};
pub use workspace::{CommandNetworkPolicy, CommandSandboxPolicy, WorkspaceConfig, WorkspaceRegistry};
