//! What each command does.

mod chat;
mod completions;
mod config;
mod delete;
mod doctor;
pub mod explain;
mod flows;
mod keys;
mod models;
pub mod operate;
pub mod phase;
pub mod recompute;
mod send;
mod serve;
pub mod sessions;
mod show;
mod transfer;

use crate::cli::{Cli, Command};

/// What whoever gets an answer from the rehearsal model must be told.
pub const REHEARSAL_NOTE: &str =
    "no model is configured: a rehearsal model answers, and only pretends (see `segue doctor`)";

pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let global = &cli.global;
    match cli.command.unwrap_or_else(|| Command::Serve(crate::cli::Serve::default())) {
        Command::Serve(arguments) => serve::run(global, arguments).await,
        Command::Keys(arguments) => keys::run(global, arguments),
        Command::Chat(arguments) => chat::run(global, arguments).await,
        Command::Send(arguments) => send::run(global, arguments).await,
        Command::Sessions(arguments) => sessions::run(global, arguments).await,
        Command::Show(arguments) => show::run(global, arguments).await,
        Command::Explain(arguments) => explain::run(global, arguments).await,
        Command::Recompute(arguments) => recompute::run(global, arguments).await,
        Command::Fork(arguments) => transfer::fork(global, arguments).await,
        Command::Export(arguments) => transfer::export(global, arguments).await,
        Command::Import(arguments) => transfer::import(global, arguments).await,
        Command::Delete(arguments) => delete::run(global, arguments).await,
        Command::Rename(arguments) => operate::rename(global, arguments).await,
        Command::Cancel(arguments) => operate::cancel(global, arguments).await,
        Command::Retry(arguments) => operate::retry(global, arguments).await,
        Command::Resolve(arguments) => operate::resolve(global, arguments).await,
        Command::Do(arguments) => operate::do_as_asked(global, arguments).await,
        Command::Undo(arguments) => operate::undo(global, arguments).await,
        Command::Phase(arguments) => phase::run(global, arguments).await,
        Command::Flows(arguments) => flows::run(global, arguments),
        Command::Config => config::run(global).await,
        Command::Doctor(arguments) => doctor::run(global, &arguments).await,
        Command::Models(arguments) => models::run(global, &arguments).await,
        Command::Completions(arguments) => completions::run(&arguments),
    }
}
