//! The program: configuration, wiring, commands, printing. It decides nothing about conversations.

mod cli;
mod commands;
mod setup;
mod terminal;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = cli::Cli::parse();
    commands::run(cli).await
}
