//! `cargo xtask test`: everything that must hold before a change is taken in, cheapest first. A stage is a line in
//! [`STAGES`]; this module decides which of them run and what became of each, not what they check.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{browser, checkout, clients, local_model, studio, tidy};

/// In the order they run: what fails fastest comes first.
const STAGES: &[Stage] = &[
    Stage { name: "format", work: Work::Cargo(&["fmt", "--all", "--check"]), needs: Some(RUSTFMT), pace: Pace::Quick },
    Stage { name: "tidy", work: Work::Tidy, needs: None, pace: Pace::Quick },
    Stage { name: "clippy", work: Work::Cargo(CLIPPY_ARGUMENTS), needs: Some(CLIPPY), pace: Pace::Quick },
    Stage { name: "tests", work: Work::Tests, needs: None, pace: Pace::Quick },
    Stage { name: "studio", work: Work::Studio, needs: None, pace: Pace::Quick },
    Stage { name: "browser", work: Work::Browser, needs: None, pace: Pace::Slow },
    Stage { name: "clients", work: Work::Clients, needs: None, pace: Pace::Slow },
    // It shares the machine with nothing else: beside a compiler, the model takes ten times as long.
    Stage { name: "model", work: Work::LocalModel, needs: None, pace: Pace::Slow },
    Stage { name: "docs", work: Work::Docs, needs: None, pace: Pace::Slow },
];

const CLIPPY_ARGUMENTS: &[&str] = &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
const TEST_ARGUMENTS: &[&str] = &["test", "--workspace", "--locked", "--no-fail-fast"];
const DOC_ARGUMENTS: &[&str] = &["doc", "--workspace", "--no-deps", "--locked"];

const RUSTFMT: Component = Component { name: "rustfmt", subcommand: "fmt" };
const CLIPPY: Component = Component { name: "clippy", subcommand: "clippy" };

/// One step of the whole check.
struct Stage {
    name: &'static str,
    work: Work,
    needs: Option<Component>,
    pace: Pace,
}

/// What a stage does.
enum Work {
    /// A cargo command that passes or fails.
    Cargo(&'static [&'static str]),
    /// The rules in [`tidy`].
    Tidy,
    /// The tests of all crates; the only work a filter applies to.
    Tests,
    /// The web studio's sources: types, tests, and whether what is committed is what they make.
    Studio,
    /// The studio in a real browser.
    Browser,
    /// The official OpenAI clients and a tester of APIs against the server.
    Clients,
    /// A conversation with a small real model.
    LocalModel,
    /// The documentation, in which a warning is an error.
    Docs,
}

/// A part of the toolchain that a minimal installation lacks.
struct Component {
    name: &'static str,
    subcommand: &'static str,
}

#[derive(PartialEq)]
enum Pace {
    Quick,
    Slow,
}

/// What the developer asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    filter: Option<String>,
    quick: bool,
    keep_going: bool,
}

impl Options {
    /// Reads the arguments behind `test`.
    pub fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--keep-going" => options.keep_going = true,
                flag if flag.starts_with('-') => {
                    bail!("`test` has no option `{flag}`; `cargo xtask help` lists them");
                }
                filter => {
                    ensure!(options.filter.is_none(), "`test` takes one FILTER, but was given a second: `{filter}`");
                    options.filter = Some(filter.to_owned());
                }
            }
        }
        Ok(options)
    }

    /// Whether this stage is among what was asked for.
    fn wants(&self, stage: &Stage) -> bool {
        match self.filter {
            Some(_) => matches!(stage.work, Work::Tests),
            None => !(self.quick && stage.pace == Pace::Slow),
        }
    }
}

/// What became of a stage.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All is well.
    Passed,
    /// Something is not.
    Failed,
    /// It could not run here; says why and what would help.
    Skipped(String),
    /// An earlier stage failed first.
    NotReached,
}

/// A stage's name, what became of it and how long that took.
type Row = (&'static str, Outcome, Duration);

/// Runs the stages, prints a line for each, and sums up.
pub fn run(options: &Options) -> Result<ExitCode> {
    let rows = run_each(STAGES, options, |stage| perform(stage, options))?;
    println!("\n{}", summary(&rows));
    let failed = rows.iter().any(|(_, outcome, _)| *outcome == Outcome::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_each(
    stages: &[Stage],
    options: &Options,
    mut perform: impl FnMut(&Stage) -> Result<Outcome>,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for stage in stages.iter().filter(|stage| options.wants(stage)) {
        let stopped = !options.keep_going && rows.iter().any(|(_, outcome, _)| *outcome == Outcome::Failed);
        if stopped {
            rows.push((stage.name, Outcome::NotReached, Duration::ZERO));
            continue;
        }
        println!("stage {}: {}", stage.name, command_line(stage, options));
        let start = Instant::now();
        let outcome = perform(stage)?;
        let took = start.elapsed();
        println!("stage {}: {} ({:.1} s)", stage.name, verdict(&outcome), took.as_secs_f64());
        rows.push((stage.name, outcome, took));
    }
    Ok(rows)
}

fn perform(stage: &Stage, options: &Options) -> Result<Outcome> {
    if let Some(component) = &stage.needs
        && !is_installed(component)?
    {
        return Ok(Outcome::Skipped(format!(
            "{0} is not installed; `rustup component add {0}` installs it",
            component.name
        )));
    }
    match stage.work {
        Work::Cargo(arguments) => succeeds(checkout::cargo().args(arguments)),
        Work::Tidy => {
            let report = tidy::report()?;
            print!("{report}");
            Ok(if report.is_empty() { Outcome::Passed } else { Outcome::Failed })
        }
        Work::Tests => match &options.filter {
            None => succeeds(checkout::cargo().args(TEST_ARGUMENTS)),
            Some(filter) => matching_tests(checkout::cargo().args(TEST_ARGUMENTS).arg(filter), filter),
        },
        Work::Studio => studio::check(),
        Work::Browser => browser::check(),
        Work::Clients => clients::check(),
        Work::LocalModel => local_model::check(),
        Work::Docs => succeeds(checkout::cargo().args(DOC_ARGUMENTS).env("RUSTDOCFLAGS", "-D warnings")),
    }
}

fn is_installed(component: &Component) -> Result<bool> {
    let status = checkout::cargo()
        .args([component.subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cargo could not be started")?;
    Ok(status.success())
}

fn succeeds(command: &mut Command) -> Result<Outcome> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// Runs tests and passes on what they print, but calls it a failure if there were none: a filter with a slip in it would
/// be green for ever.
fn matching_tests(command: &mut Command, filter: &str) -> Result<Outcome> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?} could not be started"))?;
    let output = child.stdout.take().context("the output of the tests cannot be read")?;
    let mut found = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("the output of the tests cannot be read")?;
        found += tests_announced(&line);
        println!("{line}");
    }
    let status = child.wait().context("the tests did not end")?;
    if found == 0 && status.success() {
        println!("no test has `{filter}` in its name");
        return Ok(Outcome::Failed);
    }
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// How many tests a test binary says it is about to run.
fn tests_announced(line: &str) -> u32 {
    line.strip_prefix("running ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn command_line(stage: &Stage, options: &Options) -> String {
    match stage.work {
        Work::Cargo(arguments) => format!("cargo {}", arguments.join(" ")),
        Work::Tidy => "cargo xtask tidy".to_owned(),
        Work::Tests => {
            let filter = options.filter.as_deref().map(|filter| format!(" {filter}")).unwrap_or_default();
            format!("cargo {}{filter}", TEST_ARGUMENTS.join(" "))
        }
        Work::Studio => "npm run check, test and build in web/".to_owned(),
        Work::Browser => "npm run browser in web/".to_owned(),
        Work::Clients => "OpenAI's clients and schemathesis against the server".to_owned(),
        Work::LocalModel => "a conversation with a model from `cargo xtask local-model`".to_owned(),
        Work::Docs => format!("RUSTDOCFLAGS=\"-D warnings\" cargo {}", DOC_ARGUMENTS.join(" ")),
    }
}

fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Failed => "FAILED".to_owned(),
        Outcome::Skipped(reason) => format!("SKIPPED: {reason}"),
        Outcome::NotReached => "not run".to_owned(),
    }
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::from("summary\n");
    for (name, outcome, took) in rows {
        let seconds = took.as_secs_f64();
        writeln!(text, "  {name:<8} {seconds:>7.1} s  {}", verdict(outcome)).expect("a string takes all text");
    }
    let count = |wanted: fn(&Outcome) -> bool| rows.iter().filter(|(_, outcome, _)| wanted(outcome)).count();
    let failed = count(|outcome| *outcome == Outcome::Failed);
    let passed = count(|outcome| *outcome == Outcome::Passed);
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let not_run = count(|outcome| *outcome == Outcome::NotReached);
    write!(text, "stages: {passed} passed, {failed} failed, {skipped} skipped, {not_run} not run")
        .expect("a string takes all text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Options::parse(&arguments).expect("these arguments are right")
    }

    /// Runs the real list of stages with made-up outcomes, and says what became of each.
    fn outcomes(arguments: &[&str], perform: impl Fn(&str) -> Outcome) -> Vec<(&'static str, String)> {
        let rows = run_each(STAGES, &options(arguments), |stage| Ok(perform(stage.name))).expect("nothing breaks");
        rows.into_iter().map(|(name, outcome, _)| (name, verdict(&outcome))).collect()
    }

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        outcomes(arguments, |_| Outcome::Passed).into_iter().map(|(name, _)| name).collect()
    }

    fn failing_clippy(name: &str) -> Outcome {
        if name == "clippy" { Outcome::Failed } else { Outcome::Passed }
    }

    #[test]
    fn quick_leaves_out_the_browser_the_clients_the_model_and_the_docs() {
        assert_eq!(names(&[]), ["format", "tidy", "clippy", "tests", "studio", "browser", "clients", "model", "docs"]);
        assert_eq!(names(&["--quick"]), ["format", "tidy", "clippy", "tests", "studio"]);
    }

    #[test]
    fn a_filter_runs_tests_and_nothing_else() {
        assert_eq!(names(&["ledger"]), ["tests"]);
    }

    #[test]
    fn a_second_filter_is_refused() {
        let arguments = ["one".to_owned(), "two".to_owned()];
        assert!(Options::parse(&arguments).expect_err("one is enough").to_string().contains("`two`"));
    }

    #[test]
    fn a_failure_stops_what_follows() {
        let became = outcomes(&[], failing_clippy);
        assert_eq!(became[2], ("clippy", "FAILED".to_owned()));
        assert_eq!(became[3], ("tests", "not run".to_owned()));
        assert_eq!(became.last().expect("stages"), &("docs", "not run".to_owned()));
    }

    #[test]
    fn keep_going_runs_the_rest_after_a_failure() {
        let became = outcomes(&["--keep-going"], failing_clippy);
        assert_eq!(became[2], ("clippy", "FAILED".to_owned()));
        assert_eq!(became[3], ("tests", "passed".to_owned()));
    }

    #[test]
    fn the_summary_tells_why_a_stage_was_skipped() {
        let rows = [
            ("format", Outcome::Skipped("rustfmt is not installed".to_owned()), Duration::ZERO),
            ("tests", Outcome::Passed, Duration::from_millis(1250)),
        ];
        let text = summary(&rows);
        assert!(text.contains("SKIPPED: rustfmt is not installed"), "{text}");
        assert!(text.ends_with("stages: 1 passed, 0 failed, 1 skipped, 0 not run"), "{text}");
    }

    #[test]
    fn announced_tests_are_counted() {
        assert_eq!(tests_announced("running 12 tests"), 12);
        assert_eq!(tests_announced("running 1 test"), 1);
        assert_eq!(tests_announced("running out of ideas"), 0);
        assert_eq!(tests_announced("test a ... ok"), 0);
    }

    #[test]
    fn a_component_nobody_has_is_missing() {
        let component = Component { name: "nonesuch", subcommand: "nonesuch-at-all" };
        assert!(!is_installed(&component).expect("cargo starts"));
    }
}
