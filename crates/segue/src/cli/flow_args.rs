//! The arguments of the commands for flows and for runs without a person.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::SessionAndReplySourceArgs;

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FlowsArgs {
    #[command(subcommand)]
    pub action: Option<FlowsSubcommand>,
    /// Flow to describe [default: list all].
    pub name: Option<String>,
    /// Print the phase graphs as Mermaid diagrams.
    #[arg(long, requires = "name")]
    pub mermaid: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum FlowsSubcommand {
    /// Write a commented starter file for a flow of your own
    ///
    /// The name `project` writes a copy of the built-in project flow.
    #[command(after_help = "Example:\n  segue flows new support-desk\n  segue flows new project")]
    New {
        /// Name of the flow: lower-case letters, digits and hyphens.
        name: String,
        /// File to write [default: NAME.toml]; it must not exist.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Check a flow file, and report every mistake with its line
    #[command(after_help = "Example:\n  segue flows check support-desk.toml")]
    Check {
        /// Flow file to check.
        file: PathBuf,
    },
    /// Draw the phases, transitions and gates of a flow
    #[command(after_help = "Example:\n  segue flows show project\n  segue flows show support-desk.toml --mermaid")]
    Show {
        /// Name of a flow, or a flow file.
        flow: String,
        /// Print a Mermaid diagram.
        #[arg(long)]
        mermaid: bool,
    },
    /// Print the JSON schema of flow files, for editors
    #[command(after_help = "Example:\n  segue flows schema > flow.schema.json")]
    Schema,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UnattendedRunArgs {
    /// What to do; `-` reads it from standard input. Not needed with --spec, or to continue an unfinished run.
    #[arg(required_unless_present_any = ["spec", "session"])]
    pub message: Option<String>,
    /// A spec for the team flow: a TOML or JSON file with title, goal, requirements and acceptance.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub session_args: SessionAndReplySourceArgs,
    /// Maximum cost in dollars; the run is stopped when it has cost more.
    #[arg(long, value_name = "DOLLARS")]
    pub budget: Option<f64>,
    /// What happens to tool runs that need approval.
    #[arg(long, value_enum, default_value_t = UnattendedRunApprovalPolicy::Deny, value_name = "POLICY")]
    pub approvals: UnattendedRunApprovalPolicy,
}

/// What a run without a person does with tool runs that need approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnattendedRunApprovalPolicy {
    /// Approve all of them.
    Approve,
    /// Deny all of them.
    Deny,
}
