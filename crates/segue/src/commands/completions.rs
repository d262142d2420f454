//! A completion script for a shell.

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::print;

pub fn run(arguments: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "segue", &mut script);
    print::out(&String::from_utf8_lossy(&script))
}
