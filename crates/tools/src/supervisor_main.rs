//! A supervisor as a program of its own, for tests of this crate. The program `segue` contains the same supervisor.

use std::process::ExitCode;

fn main() -> ExitCode {
    segue_tools::run_if_supervisor(std::env::args_os().skip(1)).unwrap_or(ExitCode::FAILURE)
}
