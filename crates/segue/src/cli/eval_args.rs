//! The arguments of `segue eval`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EvalArgs {
    /// Flows to evaluate [default: all flows that have conversations].
    pub flows: Vec<String>,
    /// Model to evaluate: the name of a configured model, or PROVIDER/MODEL; may be repeated [default: the default model].
    #[arg(long, conflicts_with = "replay")]
    pub model: Vec<String>,
    /// Run only this conversation; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub conversation: Vec<String>,
    /// Add your own conversations: a file, or a folder with files; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub add: Vec<PathBuf>,
    /// Setting of all sessions; may be repeated. `segue flows FLOW` lists the settings.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Record all requests and responses of the model in this file, without API keys.
    #[arg(long, value_name = "CASSETTE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Replay the responses recorded in this file instead of calling the model.
    #[arg(long, value_name = "CASSETTE")]
    pub replay: Option<PathBuf>,
    /// Keep the sessions in this store, so that `segue --store FILE show NAME` shows them.
    #[arg(long, value_name = "FILE")]
    pub keep_sessions: Option<PathBuf>,
    /// List the conversations instead of running them.
    #[arg(long)]
    pub list: bool,
}
