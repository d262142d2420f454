//! The `segue` program: configuration, wiring, commands and output. It decides nothing about conversations; the engine
//! and the flows do.

mod cli;
mod commands;
mod config;
mod evaluation_results;
mod follow;
mod image;
mod journal_pager;
mod limits;
mod logging;
mod model_setup;
mod name_lookup;
mod open_files;
mod print;
mod private_files;
mod progress_text;
mod remote;
mod setting_values;
mod setup;
mod store_location;
mod suggest;
mod terminal;
mod tool_run_lines;
mod trust;

use std::process::ExitCode;

use clap::FromArgMatches;

/// Many allocations are freed on another thread, which the system allocator handles slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An exit code without a message, because the error was already printed.
#[derive(Debug, thiserror::Error)]
#[error("exited with code {0}")]
pub(crate) struct SilentExit(pub u8);

fn main() -> ExitCode {
    // The program starts itself as the supervisor of a command that an agent runs.
    if let Some(code) = segue_tools::run_if_supervisor(std::env::args_os().skip(1)) {
        return code;
    }
    let matches = cli::help::build_command().get_matches();
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Err(error) = logging::start_logging(cli.global_args.log_format, cli.command.as_ref()) {
        return report_error(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&anyhow::Error::new(error).context("cannot start")),
    };
    let result = runtime.block_on(commands::dispatch_command(cli));
    // A thread that still waits for terminal input must not delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Prints an error and its causes, and returns the exit code.
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
    let mut printed = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors include the text of their cause.
        if !printed.contains(&cause) {
            print::write_stderr_line(&format!(
                "  {} {}",
                paint.dim("because:"),
                print::text::sanitize_for_terminal(&cause)
            ));
        }
        printed = cause;
    }
    ExitCode::FAILURE
}

/// Whether the only failure is that the reader of standard output went away, as in `segue show | head`.
fn is_broken_stdout_pipe(error: &anyhow::Error) -> bool {
    let pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    error.chain().any(pipe)
}
