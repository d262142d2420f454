//! The command line: what can be said to the program.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A conversation engine in which memory has rules.
#[derive(Debug, Parser)]
#[command(name = "segue", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global_args: GlobalArgs,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// The configuration file; `segue.toml` here or in the user's configuration folder if not given.
    #[arg(long, global = true, env = "SEGUE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file that sessions are kept in.
    #[arg(long, global = true, env = "SEGUE_STORE", value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Print JSON, for machines.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the engine behind HTTP, with the web studio; what `segue` alone does.
    Serve(ServeArgs),
    /// Talk.
    Chat(ChatArgs),
    /// Send one message and print the reply.
    Send(SendArgs),
    /// List sessions, newest first.
    Sessions(SessionsArgs),
    /// Show what happened in a session.
    Show(ShowArgs),
    /// Show what a model was shown in a call, and why.
    Explain(ExplainArgs),
    /// Make one past call once more, beside the conversation, and compare.
    Recompute(RecomputeArgs),
    /// Begin a new session with the first part of another.
    Fork(ForkArgs),
    /// Write a session as JSON lines.
    Export(ExportArgs),
    /// Read a session that was exported.
    Import(ImportArgs),
    /// Erase a session and all its texts.
    Delete(DeleteArgs),
    /// Give a session a title.
    Rename(RenameArgs),
    /// Stop the turn that a session is in.
    Cancel(CancelArgs),
    /// Try the last turn of a session again, which failed.
    Retry(RetryArgs),
    /// Decide about a call whose end is not known.
    Resolve(ResolveArgs),
    /// Do what a session's flow offers; `segue flows FLOW` lists it.
    RunCommand(RunCommandArgs),
    /// Take back what a session wrote last.
    Undo(UndoArgs),
    /// Show where a session's phase graphs stand, or move them.
    Phase(PhaseArgs),
    /// List the kinds of conversation, or show one.
    Flows(FlowsArgs),
    /// List the keys of the server, make one or revoke one.
    Keys(KeysArgs),
    /// Show what is configured, and where each value came from.
    Config,
    /// Check configuration, store and models.
    Doctor(DoctorArgs),
    /// List the models at hand, or all that a provider serves.
    Models(ModelsArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// The address to listen on; this machine only if not given. Any other needs a key.
    #[arg(long, env = "SEGUE_ADDRESS", value_name = "IP")]
    pub address: Option<IpAddr>,
    /// The port to listen on; 0 picks a free one.
    #[arg(long, env = "SEGUE_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Ask for a key on this machine too.
    #[arg(long)]
    pub require_key: bool,
    /// A name under which the server is reached, beside `localhost`.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A web site whose pages may ask from a browser.
    #[arg(long, value_name = "URL")]
    pub origin: Vec<String>,
    /// Answer from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    pub action: Option<KeyAction>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum KeyAction {
    /// Make a key. It is printed once, and nobody can tell it again.
    Add(AddKeyArgs),
    /// End a key, at once.
    Revoke {
        /// Its id, as `segue keys` lists it.
        id: String,
    },
}

#[derive(Debug, Clone, Args)]
pub struct AddKeyArgs {
    /// What you call it.
    pub name: String,
    /// Limit it to the sessions of this owner.
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Limit it to this flow; may be given several times.
    #[arg(long)]
    pub flow: Vec<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct ChatArgs {
    #[command(flatten)]
    pub session_args: SessionArgs,
    /// Talk to the server at this address instead of an engine of its own; a key for it is taken from SEGUE_KEY.
    #[arg(long, value_name = "URL", conflicts_with_all = ["script", "model", "record", "replay"])]
    pub server: Option<String>,
}

/// Which session to speak in, and who answers there.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionArgs {
    /// The kind of conversation, for a new session.
    #[arg(long)]
    pub flow: Option<String>,
    /// Go on with this session; it is begun if there is none of that name.
    #[arg(long)]
    pub session: Option<String>,
    /// How a new session is set; may be given several times. `segue flows FLOW` lists what can be set.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Answer from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub model_args: ModelArgs,
}

#[derive(Debug, Clone, Args)]
pub struct SendArgs {
    /// What to say; `-` reads it from standard input.
    pub message: String,
    #[command(flatten)]
    pub session_args: SessionArgs,
    /// What you call this message: sent again under the same key, it is not sent twice.
    #[arg(long)]
    pub key: Option<String>,
    /// Show this image with the message; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

/// Who answers.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// The model for everybody: one that is configured, or PROVIDER/MODEL.
    #[arg(long, conflicts_with_all = ["script", "replay"])]
    pub model: Option<String>,
    /// Keep what models are sent and answer in this file, without keys.
    #[arg(long, value_name = "CASSETTE", conflicts_with_all = ["script", "replay"])]
    pub record: Option<PathBuf>,
    /// Answer from this file instead of the models it was recorded from.
    #[arg(long, value_name = "CASSETTE", conflicts_with = "script")]
    pub replay: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct DoctorArgs {
    /// Make one short call to each model that plays a role, to see that it answers. It may be billed.
    #[arg(long = "try")]
    pub call_models: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub struct ModelsArgs {
    /// Ask this provider what it serves.
    pub provider: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct SessionsArgs {
    /// Only those in which this was said.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only those of this flow.
    #[arg(long)]
    pub flow: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
}

#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Its name, the beginning of its name, or `last`.
    #[arg(default_value = "last")]
    pub session: String,
    /// Show texts whole.
    #[arg(long)]
    pub full: bool,
    /// Show every event of the journal, one to a line.
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Clone, Args)]
#[command(override_usage = "segue explain [OPTIONS] [SESSION] <CALL>")]
pub struct ExplainArgs {
    /// The session (the newest if not given), and the call, such as `c3`.
    #[arg(required = true, num_args = 1..=2, value_names = ["SESSION", "CALL"])]
    pub session_and_call: Vec<String>,
    /// Print the exact prompt.
    #[arg(long)]
    pub bytes: bool,
    /// Compare the exact prompt with that of the same role's previous call.
    #[arg(long, conflicts_with = "bytes")]
    pub diff: bool,
}

#[derive(Debug, Clone, Args)]
#[command(override_usage = "segue recompute [OPTIONS] [SESSION] <CALL>")]
pub struct RecomputeArgs {
    /// The session (the newest if not given), and the call, such as `c3`.
    #[arg(required = true, num_args = 1..=2, value_names = ["SESSION", "CALL"])]
    pub session_and_call: Vec<String>,
    /// Ask this model instead.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Set the flow otherwise; may be given several times. `segue flows FLOW` lists what can be set.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Answer from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ForkArgs {
    /// The session to branch from.
    pub session: String,
    /// Up to the end of this turn (`t3`), or up to this event (`17`).
    #[arg(long, value_name = "TURN|EVENT")]
    pub at: Option<String>,
    /// What to call the branch.
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The session to write.
    pub session: String,
    /// Where to; standard output if not given.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// What to call the session; its own name if not given.
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    /// The session to erase.
    pub session: String,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RenameArgs {
    /// The session.
    pub session: String,
    /// Its new title.
    pub title: String,
}

#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    /// The session.
    pub session: String,
}

#[derive(Debug, Clone, Args)]
pub struct RetryArgs {
    /// The session.
    #[arg(default_value = "last")]
    pub session: String,
    /// Answer from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ResolveArgs {
    /// The session.
    pub session: String,
    /// The call, such as `c3`.
    pub call: String,
    /// Make the call again, though it may be billed twice, or take it as failed.
    pub resolution: CallResolutionArg,
}

#[derive(Debug, Clone, Args)]
pub struct RunCommandArgs {
    /// The session.
    pub session: String,
    /// What to do.
    pub command: String,
    /// How.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct UndoArgs {
    /// The session.
    #[arg(default_value = "last")]
    pub session: String,
    /// The run that wrote it, such as `x3`, as `segue show` lists it; the last one if not given.
    pub run: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CallResolutionArg {
    /// Make it again.
    Retry,
    /// Take it as failed.
    Fail,
}

#[derive(Debug, Clone, Args)]
pub struct PhaseArgs {
    /// The session.
    pub session: String,
    /// Print the graphs as Mermaid diagrams.
    #[arg(long)]
    pub mermaid: bool,
    #[command(subcommand)]
    pub action: Option<PhaseAction>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum PhaseAction {
    /// Propose a phase; the graph decides.
    Propose {
        /// The phase to enter.
        to: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Allow a phase to be entered once, whatever stands in the way.
    Grant {
        /// The phase that may be entered.
        to: String,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Go back to how things stood in an earlier visit; nothing is deleted.
    Rollback {
        /// The number of the visit.
        visit: u32,
        #[command(flatten)]
        graph: GraphArgs,
    },
}

/// Which of a session's graphs is meant, where it has several.
#[derive(Debug, Clone, Args)]
pub struct GraphArgs {
    /// Which graph, if there are several.
    #[arg(long)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct FlowsArgs {
    /// Which; all of them if not given.
    pub name: Option<String>,
    /// Print the phase graphs as Mermaid diagrams.
    #[arg(long, requires = "name")]
    pub mermaid: bool,
}

#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}
