//! `segue completions`: a completion script for a shell.

use crate::cli::CompletionsArgs;
use crate::cli::help::build_command;
use crate::print;

pub(crate) fn run_completions(arguments: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut build_command(), "segue", &mut script);
    print::write_stdout(&String::from_utf8_lossy(&script))
}
