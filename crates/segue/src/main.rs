//! The program: configuration, wiring, commands, printing. It decides nothing about conversations.

mod cli;
mod commands;
mod config;
mod follow;
mod image;
mod journal_reader;
mod limits;
mod model_setup;
mod name_lookup;
mod print;
mod progress_text;
mod remote;
mod setting_values;
mod setup;
mod suggest;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

/// Much is allocated on one thread and freed on another, which the system's allocator takes long for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An end that needs no more words: they were said already.
#[derive(Debug, thiserror::Error)]
#[error("ended with code {0}")]
pub struct SilentExit(pub u8);

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&anyhow::Error::new(error).context("cannot start")),
    };
    let result = runtime.block_on(commands::dispatch_command(cli));
    // A read from a terminal that nobody answers must not keep us.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Says what went wrong, and answers with the code to end with.
fn report_error(error: &anyhow::Error) -> ExitCode {
    if let Some(SilentExit(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    if is_broken_stdout_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let paint = print::stderr_paint();
    print::write_stderr_line(&format!(
        "{} {}",
        paint.error("error:"),
        print::text::sanitize_for_terminal(&error.to_string())
    ));
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors quote their cause in their own words.
        if !said.contains(&cause) {
            print::write_stderr_line(&format!(
                "  {} {}",
                paint.dim("because:"),
                print::text::sanitize_for_terminal(&cause)
            ));
        }
        said = cause;
    }
    ExitCode::FAILURE
}

/// Whether all that happened is that nobody reads on, as in `segue show | head`.
fn is_broken_stdout_pipe(error: &anyhow::Error) -> bool {
    let pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    error.chain().any(pipe)
}
