//! What each command does.

mod chat;

use crate::cli::{Cli, Command};

pub async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command.unwrap_or_else(|| Command::Chat(crate::cli::Chat::default())) {
        Command::Chat(arguments) => chat::run(&cli.global, arguments).await,
    }
}
