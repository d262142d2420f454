//! A completion script for a shell.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::print;

pub fn run_completions(arguments: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "segue", &mut script);
    print::write_stdout(&String::from_utf8_lossy(&script))
}
