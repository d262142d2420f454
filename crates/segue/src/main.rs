//! The program: configuration, wiring, commands, printing. It decides nothing about conversations.

mod cast;
mod cli;
mod commands;
mod config;
mod follow;
mod image;
mod journal;
mod limits;
mod lookup;
mod print;
mod remote;
mod settings;
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
pub struct Quiet(pub u8);

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&anyhow::Error::new(error).context("cannot start")),
    };
    let result = runtime.block_on(commands::run(cli));
    // A read from a terminal that nobody answers must not keep us.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Says what went wrong, and answers with the code to end with.
fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Quiet(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let paint = print::error_paint();
    print::note(&format!("{} {}", paint.bad("error:"), print::text::harmless(&error.to_string())));
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors quote their cause in their own words.
        if !said.contains(&cause) {
            print::note(&format!("  {} {}", paint.dim("because:"), print::text::harmless(&cause)));
        }
        said = cause;
    }
    ExitCode::FAILURE
}

/// Whether all that happened is that nobody reads on, as in `segue show | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    error.chain().any(pipe)
}
