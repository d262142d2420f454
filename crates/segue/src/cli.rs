//! The command line: every command, argument and help text. What the commands do is in [`crate::commands`].

mod eval_args;
mod flow_args;
pub(crate) mod help;
mod phase_args;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use segue_core::ids::{ToolRunId, TurnId};

pub(crate) use eval_args::EvalArgs;
pub(crate) use flow_args::{FlowsArgs, FlowsSubcommand, UnattendedRunApprovalPolicy, UnattendedRunArgs};
pub(crate) use phase_args::{PhaseArgs, PhaseGraphSelectorArgs, PhaseSubcommand};

/// A conversation engine that records what each model was sent, and why.
#[derive(Debug, Parser)]
#[command(name = "segue", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global_args: GlobalArgs,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

/// Options that every command accepts.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// Configuration file [default: `segue.toml` in the current folder or in your configuration folder].
    #[arg(long, global = true, env = "SEGUE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Database file that holds the sessions, or the URL of a PostgreSQL database (postgres://user@host/name).
    #[arg(long, global = true, env = "SEGUE_STORE", value_name = "FILE|URL", hide_env_values = true)]
    pub store: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Format of the log on standard error; SEGUE_LOG selects what is logged.
    #[arg(long, global = true, env = "SEGUE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each entry.
    #[default]
    Text,
    /// One JSON object for each entry.
    Json,
}

/// The commands. Each one has an example in its help and a place in a group of [`help::COMMAND_GROUPS`].
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the HTTP server and the web studio (the default command)
    #[command(after_help = "Example:\n  segue serve --port 8080")]
    Serve(ServeArgs),
    /// Chat in the terminal
    #[command(after_help = "Example:\n  segue chat --flow concierge --session home")]
    Chat(ChatArgs),
    /// Send one message and print the reply
    #[command(after_help = "Example:\n  segue send --session home \"Should we rent or buy?\"")]
    Send(SendMessageArgs),
    /// Carry out one request without questions, and exit with a code
    #[command(
        after_help = "Exit codes: 0 done and verified, 1 failed, 2 waits for you, 3 over budget, 4 not verified\n\n\
                      Example:\n  segue run \"add a --version flag\" --set workspace=app --json --budget 2.00\n  \
                      segue run --spec spec.toml --set workspace=app --session tea"
    )]
    Run(UnattendedRunArgs),
    /// List sessions, newest first
    #[command(after_help = "Example:\n  segue sessions --search \"rent or buy\"")]
    Sessions(ListSessionsArgs),
    /// Show the turns, calls and artifacts of a session
    #[command(after_help = "Example:\n  segue show home --full")]
    Show(ShowSessionArgs),
    /// Show which prompt a call was sent, and why
    #[command(after_help = "Example:\n  segue explain home c3 --diff")]
    Explain(ExplainCallArgs),
    /// Run a past call again and compare both answers
    #[command(after_help = "Example:\n  segue recompute home c3 --model anthropic/claude-sonnet-5-5")]
    Recompute(RecomputeCallArgs),
    /// Copy a session, or its first part, into a new session
    #[command(after_help = "Example:\n  segue fork home --at t3 --name home-2")]
    Fork(ForkSessionArgs),
    /// Write a session to a file of JSON lines
    #[command(after_help = "Example:\n  segue export home --output home.jsonl")]
    Export(ExportSessionArgs),
    /// Read a session from an exported file
    #[command(after_help = "Example:\n  segue import home.jsonl --name home-copy")]
    Import(ImportSessionArgs),
    /// Delete a session and its texts
    #[command(after_help = "Example:\n  segue delete home --yes")]
    Delete(DeleteSessionArgs),
    /// Change the title of a session
    #[command(after_help = "Example:\n  segue rename home \"Rent or buy\"")]
    Rename(RenameSessionArgs),
    /// Cancel the running turn of a session
    #[command(after_help = "Example:\n  segue cancel home")]
    Cancel(CancelTurnArgs),
    /// Retry the last turn if it failed
    #[command(after_help = "Example:\n  segue retry home")]
    Retry(RetryTurnArgs),
    /// Let a tool run that waits for approval start
    #[command(after_help = "Example:\n  segue approve kitchen x3 --always")]
    Approve(ApproveToolRunArgs),
    /// Refuse a tool run that waits for approval
    #[command(after_help = "Example:\n  segue deny kitchen x3 \"not before Monday\"")]
    Deny(DenyToolRunArgs),
    /// Decide what happens to a call or tool run with an unknown outcome
    #[command(
        after_help = "Example:\n  segue resolve home c3 retry\n  segue resolve home x2 done --text \"the mail was sent\""
    )]
    Resolve(ResolveUnknownOutcomeArgs),
    /// Run a command of the session's flow
    #[command(after_help = "`segue flows FLOW` lists the commands of a flow.\n\n\
                            Example:\n  segue run-command kitchen undo run=x3")]
    RunCommand(RunFlowCommandArgs),
    /// Undo the last write of a session
    #[command(after_help = "Example:\n  segue undo kitchen x3")]
    Undo(UndoWriteArgs),
    /// Show or change the phases of a session
    #[command(after_help = "Example:\n  segue phase home propose explorer --reason \"the goal is clear\"")]
    Phase(PhaseArgs),
    /// List the flows, describe one, or write one of your own
    #[command(after_help = "Example:\n  segue flows concierge\n  segue flows new support-desk")]
    Flows(FlowsArgs),
    /// List, add or revoke API keys of the server
    #[command(after_help = "Example:\n  segue keys add laptop --owner acme")]
    Keys(ApiKeysArgs),
    /// Show the configuration and the origin of each value
    #[command(after_help = "Example:\n  segue config --json")]
    Config,
    /// Check the configuration, the store and the models
    #[command(after_help = "Example:\n  segue doctor --call-models")]
    Doctor(DoctorArgs),
    /// Copy all sessions and records to a new file, and check the copy
    #[command(after_help = "Example:\n  segue backup monday.db")]
    Backup(BackupStoreArgs),
    /// Copy a store file into a PostgreSQL database, and verify the copy
    #[command(after_help = "Example:\n  segue migrate segue.db postgres://segue@db.internal/segue")]
    Migrate(MigrateStoreArgs),
    /// Show or change whether this folder's configuration is trusted
    #[command(after_help = "Example:\n  segue trust add")]
    Trust(FolderTrustArgs),
    /// List the available models, or all models of a provider
    #[command(after_help = "Example:\n  segue models anthropic")]
    Models(ListModelsArgs),
    /// Measure which flows and roles a model is good enough for
    #[command(after_help = "Example:\n  segue eval concierge --model ollama/qwen3")]
    Eval(EvalArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  segue completions bash > ~/.local/share/bash-completion/completions/segue")]
    Completions(CompletionsArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on [default: 127.0.0.1]. Any other address requires an API key.
    #[arg(long, env = "SEGUE_ADDRESS", value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Port to listen on; 0 picks a free one.
    #[arg(long, env = "SEGUE_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Require an API key from clients on this machine too.
    #[arg(long)]
    pub require_key: bool,
    /// Accept requests for this host name, in addition to `localhost`; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Accept browser requests from pages of this web site; may be repeated.
    #[arg(long, value_name = "URL")]
    pub origin: Vec<String>,
    /// With a PostgreSQL store: the URL at which the other nodes reach this one.
    #[arg(long, env = "SEGUE_ADVERTISE", value_name = "URL")]
    pub advertise: Option<String>,
    /// With a PostgreSQL store: how long this node keeps its sessions after its last heartbeat, in milliseconds.
    #[arg(long, env = "SEGUE_LEASE_MS", value_name = "MS")]
    pub lease_ms: Option<u64>,
    /// With a PostgreSQL store: hold sessions of workspaces with this placement label, too; may be repeated.
    #[arg(long, env = "SEGUE_PLACEMENT", value_name = "LABEL", value_delimiter = ',')]
    pub placement: Vec<String>,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ApiKeysArgs {
    #[command(subcommand)]
    pub action: Option<ApiKeySubcommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ApiKeySubcommand {
    /// Create an API key and print it once; it cannot be shown again
    #[command(
        after_help = "Example:\n  segue keys add laptop --owner acme --flow chat\n  segue keys add trial --usd-per-day 2.50 --turns 2"
    )]
    Add(AddApiKeyArgs),
    /// Change the limits of an API key; only the given limits change
    #[command(
        after_help = "Example:\n  segue keys limit k7f3 --usd-per-day 5\n  segue keys limit k7f3 --tokens-per-day none"
    )]
    Limit {
        /// Id of the key, as `segue keys` lists it.
        id: String,
        #[command(flatten)]
        limits: ApiKeyLimitArgs,
    },
    /// Revoke an API key, with immediate effect
    #[command(after_help = "Example:\n  segue keys revoke k7f3")]
    Revoke {
        /// Id of the key, as `segue keys` lists it.
        id: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AddApiKeyArgs {
    /// Name of the key.
    pub name: String,
    /// Limit the key to the sessions of this owner.
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Limit the key to this flow; may be repeated.
    #[arg(long)]
    pub flow: Vec<String>,
    #[command(flatten)]
    pub limits: ApiKeyLimitArgs,
}

/// Limits of an API key. `none` removes a limit.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ApiKeyLimitArgs {
    /// Maximum cost per day (UTC) in dollars, like 2.50.
    #[arg(long, value_name = "USD")]
    pub usd_per_day: Option<String>,
    /// Maximum input and output tokens per day (UTC).
    #[arg(long, value_name = "N")]
    pub tokens_per_day: Option<String>,
    /// Limit the key to these models, separated by commas.
    #[arg(long, value_name = "MODELS")]
    pub models: Option<String>,
    /// Maximum number of turns at the same time.
    #[arg(long, value_name = "N")]
    pub turns: Option<String>,
    /// Maximum number of requests per minute.
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub session_args: SessionAndReplySourceArgs,
    /// Use the server at this address instead of a local engine; its API key is read from SEGUE_KEY.
    #[arg(long, value_name = "URL", conflicts_with_all = ["script", "model", "record", "replay"])]
    pub server: Option<String>,
}

/// The session of a conversation, and the source of its replies.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SessionAndReplySourceArgs {
    /// Flow of a new session.
    #[arg(long)]
    pub flow: Option<String>,
    /// Continue this session, or create it if it does not exist.
    #[arg(long)]
    pub session: Option<String>,
    /// Setting of a new session; may be repeated. `segue flows FLOW` lists the settings.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub model_args: ModelAndCassetteArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SendMessageArgs {
    /// Text of the message; `-` reads it from standard input.
    pub message: String,
    #[command(flatten)]
    pub session_args: SessionAndReplySourceArgs,
    /// Send the message only if none was sent with this key; otherwise print the earlier reply.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Attach this image to the message; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

/// The models that answer.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ModelAndCassetteArgs {
    /// Default model of all roles: the name of a configured model, or PROVIDER/MODEL.
    #[arg(long, conflicts_with_all = ["script", "replay"])]
    pub model: Option<String>,
    /// Record all requests and responses of models in this file, without API keys.
    #[arg(long, value_name = "CASSETTE", conflicts_with_all = ["script", "replay"])]
    pub record: Option<PathBuf>,
    /// Replay the responses recorded in this file instead of calling the models.
    #[arg(long, value_name = "CASSETTE", conflicts_with = "script")]
    pub replay: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DoctorArgs {
    /// Make one short call to each model that a role uses. The calls may be billed.
    #[arg(long)]
    pub call_models: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BackupStoreArgs {
    /// File to write; it must not exist. The records are copied to a file next to it.
    pub file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateStoreArgs {
    /// Store file to copy from. No other process may use it.
    pub source: PathBuf,
    /// URL of the database to copy to. No node may be running on it.
    pub target: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct FolderTrustArgs {
    #[command(subcommand)]
    pub action: Option<FolderTrustSubcommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum FolderTrustSubcommand {
    /// Trust the configuration of this folder until it changes
    #[command(after_help = "Example:\n  segue trust add --yes")]
    Add {
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Revoke the trust in a folder
    #[command(after_help = "Example:\n  segue trust revoke")]
    Revoke {
        /// Folder [default: the current one].
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListModelsArgs {
    /// List all models of this provider, or of the server of this configured model.
    pub provider: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListSessionsArgs {
    /// Only sessions with this text in the title, a message or a reply.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only sessions of this flow.
    #[arg(long)]
    pub flow: Option<String>,
    /// Show the child sessions of each session below it, with the cost of all together.
    #[arg(long, conflicts_with_all = ["search", "flow", "all"])]
    pub tree: bool,
    /// Also list child sessions and workspaces, like any other session.
    #[arg(long)]
    pub all: bool,
    /// Maximum number of sessions.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShowSessionArgs {
    /// Name of the session, a unique beginning of it, or `last`.
    #[arg(default_value = "last")]
    pub session: String,
    /// Show texts in full.
    #[arg(long)]
    pub full: bool,
    /// Show every event of the journal, one per line.
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Clone, Args)]
#[command(override_usage = "segue explain [OPTIONS] [SESSION] <CALL>")]
pub(crate) struct ExplainCallArgs {
    /// Session (default: the one that changed last) and call id, such as `c3`.
    #[arg(required = true, num_args = 1..=2, value_names = ["SESSION", "CALL"])]
    pub session_and_call: Vec<String>,
    /// Print the exact prompt.
    #[arg(long)]
    pub prompt: bool,
    /// Compare the exact prompt with that of the same role's previous call.
    #[arg(long, conflicts_with = "prompt")]
    pub diff: bool,
}

#[derive(Debug, Clone, Args)]
#[command(override_usage = "segue recompute [OPTIONS] [SESSION] <CALL>")]
pub(crate) struct RecomputeCallArgs {
    /// Session (default: the one that changed last) and call id, such as `c3`.
    #[arg(required = true, num_args = 1..=2, value_names = ["SESSION", "CALL"])]
    pub session_and_call: Vec<String>,
    /// Use this model instead of the original one.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Change a setting of the flow for this call; may be repeated. `segue flows FLOW` lists the settings.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Take the reply from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ForkSessionArgs {
    /// Session to copy.
    pub session: String,
    /// Last turn (`t3`) or event (`17`) to copy [default: all].
    #[arg(long, value_name = "TURN|EVENT")]
    pub at: Option<String>,
    /// Name of the new session.
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportSessionArgs {
    /// Session to export.
    pub session: String,
    /// File to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportSessionArgs {
    /// File to read; `-` reads standard input.
    pub file: PathBuf,
    /// Name of the imported session [default: its original name].
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeleteSessionArgs {
    /// Session to delete.
    pub session: String,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RenameSessionArgs {
    /// Session to rename.
    pub session: String,
    /// New title.
    pub title: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CancelTurnArgs {
    /// Session with a running turn.
    pub session: String,
    /// Cancel only this turn, such as t3. Refused if another turn is running.
    #[arg(long)]
    pub turn: Option<TurnId>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RetryTurnArgs {
    /// Session whose last turn failed.
    #[arg(default_value = "last")]
    pub session: String,
    /// Retry only this turn, such as t3. Refused if it is not the last one.
    #[arg(long)]
    pub turn: Option<TurnId>,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ApproveToolRunArgs {
    /// Session with the tool run.
    pub session: String,
    /// Id of the tool run, such as `x3`.
    pub run: ToolRunId,
    /// Run the tool with these arguments instead of those that were requested.
    #[arg(long, value_name = "JSON")]
    pub edit: Option<String>,
    /// Do not ask again when the same role uses this tool in this session.
    #[arg(long)]
    pub always: bool,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DenyToolRunArgs {
    /// Session with the tool run.
    pub session: String,
    /// Id of the tool run, such as `x3`.
    pub run: ToolRunId,
    /// Why; the model is told.
    pub reason: Option<String>,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ResolveUnknownOutcomeArgs {
    /// Session with the call or tool run.
    pub session: String,
    /// Id of the call, such as `c3`, or of the tool run, such as `x2`.
    #[arg(value_name = "CALL_OR_RUN")]
    pub id: String,
    /// What to do with it.
    pub resolution: UnknownOutcomeResolutionArg,
    /// Result of a tool run that is done, or why it failed; the model is told.
    #[arg(long)]
    pub text: Option<String>,
    /// Take the replies from this scenario file instead of a model.
    #[arg(long, value_name = "SCENARIO")]
    pub script: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunFlowCommandArgs {
    /// Session to run the command in.
    pub session: String,
    /// Name of the command.
    pub command: String,
    /// Arguments of the command.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UndoWriteArgs {
    /// Session whose write is undone.
    #[arg(default_value = "last")]
    pub session: String,
    /// Tool run to undo, such as `x3`, as `segue show` lists it [default: the last write].
    pub run: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum UnknownOutcomeResolutionArg {
    /// Make the call or the run again; it may be billed or take effect twice.
    Retry,
    /// Treat it as failed.
    Fail,
    /// Treat a tool run as done, with the result after --text.
    Done,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for.
    pub shell: clap_complete::Shell,
}
