//! The command line: what can be said to the program.

use clap::{Args, Parser, Subcommand};

/// A conversation engine in which memory has rules.
#[derive(Debug, Parser)]
#[command(name = "segue", version, about)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The configuration file; `segue.toml` here or in the user's configuration folder if not given.
    #[arg(long, global = true, env = "SEGUE_CONFIG")]
    pub config: Option<std::path::PathBuf>,
    /// The file that sessions are kept in.
    #[arg(long, global = true, env = "SEGUE_STORE")]
    pub store: Option<std::path::PathBuf>,
    /// Print JSON, for machines.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk.
    Chat(Chat),
}

#[derive(Debug, Clone, Default, Args)]
pub struct Chat {
    /// The kind of conversation.
    #[arg(long)]
    pub flow: Option<String>,
    /// Go on with this session; it is begun if there is none of that name.
    #[arg(long)]
    pub session: Option<String>,
    /// Answer from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<std::path::PathBuf>,
}
