//! The commands of the program, one module each. They parse arguments, ask the engine, and print; they decide nothing
//! about conversations.

mod backup;
mod chat;
mod completions;
mod config;
mod delete;
mod doctor;
mod eval;
pub(crate) mod explain;
mod flows;
mod keys;
mod migrate;
mod models;
pub(crate) mod phase;
pub(crate) mod recompute;
mod run;
mod send;
mod serve;
pub(crate) mod session_actions;
pub(crate) mod sessions;
mod show;
mod transfer;
mod trust;

use crate::cli::{Cli, CliCommand};

/// The warning printed before replies of the rehearsal model, if no model is configured.
pub(crate) const NO_MODEL_WARNING: &str =
    "no model is configured, so the built-in rehearsal model gives canned replies (see `segue doctor`)";
/// The warning printed before replies of the rehearsal model, if the configuration names it.
pub(crate) const REHEARSAL_WARNING: &str = "the built-in rehearsal model gives canned replies";

/// Runs the command that was given on the command line.
pub(crate) async fn dispatch_command(cli: Cli) -> anyhow::Result<()> {
    let global = &cli.global_args;
    match cli.command.unwrap_or_else(|| CliCommand::Serve(crate::cli::ServeArgs::default())) {
        CliCommand::Serve(arguments) => serve::run_serve(global, arguments).await,
        CliCommand::Keys(arguments) => keys::run_keys(global, arguments).await,
        CliCommand::Chat(arguments) => chat::run_chat(global, arguments).await,
        CliCommand::Send(arguments) => send::run_send(global, arguments).await,
        CliCommand::Run(arguments) => run::run_request(global, arguments).await,
        CliCommand::Sessions(arguments) => sessions::run_sessions(global, arguments).await,
        CliCommand::Show(arguments) => show::run_show(global, arguments).await,
        CliCommand::Explain(arguments) => explain::run_explain(global, arguments).await,
        CliCommand::Recompute(arguments) => recompute::run_recompute(global, arguments).await,
        CliCommand::Fork(arguments) => transfer::fork_session(global, arguments).await,
        CliCommand::Export(arguments) => transfer::export_session(global, arguments).await,
        CliCommand::Import(arguments) => transfer::import_session(global, arguments).await,
        CliCommand::Delete(arguments) => delete::run_delete(global, arguments).await,
        CliCommand::Rename(arguments) => session_actions::rename_session(global, arguments).await,
        CliCommand::Cancel(arguments) => session_actions::cancel_turn(global, arguments).await,
        CliCommand::Retry(arguments) => session_actions::retry_turn(global, arguments).await,
        CliCommand::Approve(arguments) => session_actions::approve_tool_run(global, arguments).await,
        CliCommand::Deny(arguments) => session_actions::deny_tool_run(global, arguments).await,
        CliCommand::Resolve(arguments) => session_actions::resolve_unknown_outcome(global, arguments).await,
        CliCommand::RunCommand(arguments) => session_actions::run_flow_command(global, arguments).await,
        CliCommand::Undo(arguments) => session_actions::undo_last_write(global, arguments).await,
        CliCommand::Phase(arguments) => phase::run_phase(global, arguments).await,
        CliCommand::Flows(arguments) => flows::run_flows(global, arguments).await,
        CliCommand::Config => config::run_show_config(global).await,
        CliCommand::Doctor(arguments) => doctor::run_doctor(global, &arguments).await,
        CliCommand::Backup(arguments) => backup::run_backup(global, &arguments),
        CliCommand::Migrate(arguments) => migrate::run_migrate(global, &arguments).await,
        CliCommand::Trust(arguments) => trust::run_trust(global, arguments),
        CliCommand::Eval(arguments) => eval::run_eval(global, arguments).await,
        CliCommand::Models(arguments) => models::run_models(global, &arguments).await,
        CliCommand::Completions(arguments) => completions::run_completions(&arguments),
    }
}
