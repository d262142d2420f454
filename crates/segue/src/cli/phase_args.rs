//! The arguments of `segue phase`.

use clap::{Args, Subcommand};

#[derive(Debug, Clone, Args)]
pub(crate) struct PhaseArgs {
    /// Session whose phases are shown or changed.
    pub session: String,
    /// Print the phase graphs as Mermaid diagrams.
    #[arg(long)]
    pub mermaid: bool,
    #[command(subcommand)]
    pub action: Option<PhaseSubcommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum PhaseSubcommand {
    /// Propose a transition; the phase graph decides
    #[command(after_help = "Example:\n  segue phase home propose explorer --reason \"the goal is clear\"")]
    Propose {
        /// Phase to enter.
        to: String,
        /// Reason, recorded with the proposal.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        graph: PhaseGraphSelectorArgs,
    },
    /// Allow a phase to be entered once, despite guards and gates
    #[command(after_help = "Example:\n  segue phase home grant executor")]
    Grant {
        /// Phase that may be entered.
        to: String,
        #[command(flatten)]
        graph: PhaseGraphSelectorArgs,
    },
    /// Return to the state of an earlier visit; no event is deleted
    #[command(after_help = "Example:\n  segue phase home rollback 2")]
    Rollback {
        /// Number of the visit.
        visit: u32,
        #[command(flatten)]
        graph: PhaseGraphSelectorArgs,
    },
}

/// The phase graph a command applies to, for sessions with several graphs.
#[derive(Debug, Clone, Args)]
pub(crate) struct PhaseGraphSelectorArgs {
    /// Name of the phase graph, if the session has several.
    #[arg(long)]
    pub graph: Option<String>,
    /// Role or agent that owns the phase graph, if several have one.
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
}
