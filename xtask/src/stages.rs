//! `cargo xtask test`: the full test suite, as a sequence of stages from fast to slow. This module selects and runs the
//! stages in [`STAGES`] and prints a summary; the checks themselves are elsewhere.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{browser, checkout, clients, local_model, studio, tidy};

/// All stages, in the order in which they run.
const STAGES: &[TestStage] = &[
    TestStage {
        name: "format",
        work: TestStageWork::Cargo(&["fmt", "--all", "--check"]),
        required_component: Some(RUSTFMT),
        speed: TestStageSpeed::Quick,
    },
    TestStage { name: "tidy", work: TestStageWork::Tidy, required_component: None, speed: TestStageSpeed::Quick },
    TestStage {
        name: "clippy",
        work: TestStageWork::Cargo(CLIPPY_ARGUMENTS),
        required_component: Some(CLIPPY),
        speed: TestStageSpeed::Quick,
    },
    TestStage { name: "tests", work: TestStageWork::Tests, required_component: None, speed: TestStageSpeed::Quick },
    TestStage { name: "studio", work: TestStageWork::Studio, required_component: None, speed: TestStageSpeed::Quick },
    TestStage { name: "browser", work: TestStageWork::Browser, required_component: None, speed: TestStageSpeed::Slow },
    TestStage { name: "clients", work: TestStageWork::Clients, required_component: None, speed: TestStageSpeed::Slow },
    // Runs alone: next to a compiler, the model takes ten times as long.
    TestStage { name: "model", work: TestStageWork::LocalModel, required_component: None, speed: TestStageSpeed::Slow },
    TestStage { name: "docs", work: TestStageWork::Docs, required_component: None, speed: TestStageSpeed::Slow },
];

const CLIPPY_ARGUMENTS: &[&str] = &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
const TEST_ARGUMENTS: &[&str] = &["test", "--workspace", "--locked", "--no-fail-fast"];
const DOC_ARGUMENTS: &[&str] = &["doc", "--workspace", "--no-deps", "--locked"];

const RUSTFMT: ToolchainComponent = ToolchainComponent { name: "rustfmt", subcommand: "fmt" };
const CLIPPY: ToolchainComponent = ToolchainComponent { name: "clippy", subcommand: "clippy" };

/// One stage of the test suite.
struct TestStage {
    name: &'static str,
    work: TestStageWork,
    required_component: Option<ToolchainComponent>,
    speed: TestStageSpeed,
}

/// The work of a stage.
enum TestStageWork {
    /// A cargo command that passes or fails.
    Cargo(&'static [&'static str]),
    /// The rules in [`tidy`].
    Tidy,
    /// The tests of all crates. Only this stage can be filtered.
    Tests,
    /// The type checks, tests and build of the web studio, and a comparison with the committed build.
    Studio,
    /// The studio in a browser.
    Browser,
    /// The OpenAI clients and schemathesis against the server.
    Clients,
    /// A conversation with a small local model.
    LocalModel,
    /// The documentation; warnings are errors.
    Docs,
}

/// A component of the toolchain that a minimal installation lacks.
struct ToolchainComponent {
    name: &'static str,
    subcommand: &'static str,
}

#[derive(PartialEq)]
enum TestStageSpeed {
    Quick,
    Slow,
}

/// The options of `cargo xtask test`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestOptions {
    filter: Option<String>,
    quick: bool,
    keep_going: bool,
}

impl TestOptions {
    /// Parses the arguments after `test`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
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

    /// Whether the options include this stage.
    fn includes(&self, stage: &TestStage) -> bool {
        match self.filter {
            Some(_) => matches!(stage.work, TestStageWork::Tests),
            None => !(self.quick && stage.speed == TestStageSpeed::Slow),
        }
    }
}

/// The outcome of a stage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TestStageOutcome {
    Passed,
    Failed,
    /// The stage cannot run on this machine, for this reason.
    Skipped(String),
    /// An earlier stage failed.
    NotReached,
}

/// The name, outcome and duration of a stage.
type TestStageResult = (&'static str, TestStageOutcome, Duration);

/// Runs the stages and prints a summary.
pub(crate) fn run_test_stages(options: &TestOptions) -> Result<ExitCode> {
    let rows = run_stages(STAGES, options, |stage| run_stage(stage, options))?;
    println!("\n{}", render_summary(&rows));
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    Ok(if has_failed(&rows, is_ci) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether the suite has failed. On a developer's machine a stage may be skipped; in CI, a skipped stage checks nothing and
/// nobody would notice.
fn has_failed(rows: &[TestStageResult], is_ci: bool) -> bool {
    rows.iter().any(|(_, outcome, _)| match outcome {
        TestStageOutcome::Failed => true,
        TestStageOutcome::Skipped(_) => is_ci,
        TestStageOutcome::Passed | TestStageOutcome::NotReached => false,
    })
}

fn run_stages(
    stages: &[TestStage],
    options: &TestOptions,
    mut perform: impl FnMut(&TestStage) -> Result<TestStageOutcome>,
) -> Result<Vec<TestStageResult>> {
    let mut rows: Vec<TestStageResult> = Vec::new();
    for stage in stages.iter().filter(|stage| options.includes(stage)) {
        let stopped = !options.keep_going && rows.iter().any(|(_, outcome, _)| *outcome == TestStageOutcome::Failed);
        if stopped {
            rows.push((stage.name, TestStageOutcome::NotReached, Duration::ZERO));
            continue;
        }
        println!("stage {}: {}", stage.name, stage_command_line(stage, options));
        let start = Instant::now();
        let outcome = perform(stage)?;
        let took = start.elapsed();
        println!("stage {}: {} ({:.1} s)", stage.name, outcome_label(&outcome), took.as_secs_f64());
        rows.push((stage.name, outcome, took));
    }
    Ok(rows)
}

fn run_stage(stage: &TestStage, options: &TestOptions) -> Result<TestStageOutcome> {
    if let Some(component) = &stage.required_component
        && !is_component_installed(component)?
    {
        return Ok(TestStageOutcome::Skipped(format!(
            "{0} is not installed; `rustup component add {0}` installs it",
            component.name
        )));
    }
    match stage.work {
        TestStageWork::Cargo(arguments) => run_command(checkout::cargo_command().args(arguments)),
        TestStageWork::Tidy => {
            let report = tidy::tidy_report()?;
            print!("{report}");
            Ok(if report.is_empty() { TestStageOutcome::Passed } else { TestStageOutcome::Failed })
        }
        TestStageWork::Tests => match &options.filter {
            None => run_command(checkout::cargo_command().args(TEST_ARGUMENTS)),
            Some(filter) => run_matching_tests(checkout::cargo_command().args(TEST_ARGUMENTS).arg(filter), filter),
        },
        TestStageWork::Studio => studio::check_studio(),
        TestStageWork::Browser => browser::run_browser_tests(),
        TestStageWork::Clients => clients::run_client_tests(),
        TestStageWork::LocalModel => local_model::test_with_local_model(),
        TestStageWork::Docs => {
            run_command(checkout::cargo_command().args(DOC_ARGUMENTS).env("RUSTDOCFLAGS", "-D warnings"))
        }
    }
}

fn is_component_installed(component: &ToolchainComponent) -> Result<bool> {
    let status = checkout::cargo_command()
        .args([component.subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cargo could not be started")?;
    Ok(status.success())
}

fn run_command(command: &mut Command) -> Result<TestStageOutcome> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    Ok(if status.success() { TestStageOutcome::Passed } else { TestStageOutcome::Failed })
}

/// Runs the tests that match a filter. No matching test is a failure, because a misspelled filter would always pass.
fn run_matching_tests(command: &mut Command, filter: &str) -> Result<TestStageOutcome> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?} could not be started"))?;
    let output = child.stdout.take().context("the output of the tests cannot be read")?;
    let mut found = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("the output of the tests cannot be read")?;
        found += announced_test_count(&line);
        println!("{line}");
    }
    let status = child.wait().context("the tests did not end")?;
    if found == 0 && status.success() {
        println!("no test matches `{filter}`");
        return Ok(TestStageOutcome::Failed);
    }
    Ok(if status.success() { TestStageOutcome::Passed } else { TestStageOutcome::Failed })
}

/// Returns the number of tests in the first line of a test binary's output, or 0 for other lines.
fn announced_test_count(line: &str) -> u32 {
    line.strip_prefix("running ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn stage_command_line(stage: &TestStage, options: &TestOptions) -> String {
    match stage.work {
        TestStageWork::Cargo(arguments) => format!("cargo {}", arguments.join(" ")),
        TestStageWork::Tidy => "cargo xtask tidy".to_owned(),
        TestStageWork::Tests => {
            let filter = options.filter.as_deref().map(|filter| format!(" {filter}")).unwrap_or_default();
            format!("cargo {}{filter}", TEST_ARGUMENTS.join(" "))
        }
        TestStageWork::Studio => "npm run check, test and build in web/".to_owned(),
        TestStageWork::Browser => "npm run browser in web/".to_owned(),
        TestStageWork::Clients => "OpenAI's clients and schemathesis against the server".to_owned(),
        TestStageWork::LocalModel => "a conversation with a model from `cargo xtask local-model`".to_owned(),
        TestStageWork::Docs => format!("RUSTDOCFLAGS=\"-D warnings\" cargo {}", DOC_ARGUMENTS.join(" ")),
    }
}

fn outcome_label(outcome: &TestStageOutcome) -> String {
    match outcome {
        TestStageOutcome::Passed => "passed".to_owned(),
        TestStageOutcome::Failed => "FAILED".to_owned(),
        TestStageOutcome::Skipped(reason) => format!("SKIPPED: {reason}"),
        TestStageOutcome::NotReached => "not run".to_owned(),
    }
}

fn render_summary(rows: &[TestStageResult]) -> String {
    let mut text = String::from("summary\n");
    for (name, outcome, took) in rows {
        let seconds = took.as_secs_f64();
        writeln!(text, "  {name:<8} {seconds:>7.1} s  {}", outcome_label(outcome)).expect("a string takes all text");
    }
    let count = |wanted: fn(&TestStageOutcome) -> bool| rows.iter().filter(|(_, outcome, _)| wanted(outcome)).count();
    let failed = count(|outcome| *outcome == TestStageOutcome::Failed);
    let passed = count(|outcome| *outcome == TestStageOutcome::Passed);
    let skipped = count(|outcome| matches!(outcome, TestStageOutcome::Skipped(_)));
    let not_run = count(|outcome| *outcome == TestStageOutcome::NotReached);
    write!(text, "stages: {passed} passed, {failed} failed, {skipped} skipped, {not_run} not run")
        .expect("a string takes all text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> TestOptions {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        TestOptions::parse(&arguments).expect("these arguments are right")
    }

    /// Runs the real list of stages with simulated outcomes.
    fn outcomes(arguments: &[&str], perform: impl Fn(&str) -> TestStageOutcome) -> Vec<(&'static str, String)> {
        let rows = run_stages(STAGES, &options(arguments), |stage| Ok(perform(stage.name))).expect("nothing breaks");
        rows.into_iter().map(|(name, outcome, _)| (name, outcome_label(&outcome))).collect()
    }

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        outcomes(arguments, |_| TestStageOutcome::Passed).into_iter().map(|(name, _)| name).collect()
    }

    fn failing_clippy(name: &str) -> TestStageOutcome {
        if name == "clippy" { TestStageOutcome::Failed } else { TestStageOutcome::Passed }
    }

    #[test]
    fn quick_skips_the_browser_the_clients_the_model_and_the_docs() {
        assert_eq!(names(&[]), ["format", "tidy", "clippy", "tests", "studio", "browser", "clients", "model", "docs"]);
        assert_eq!(names(&["--quick"]), ["format", "tidy", "clippy", "tests", "studio"]);
    }

    #[test]
    fn a_filter_runs_only_tests() {
        assert_eq!(names(&["ledger"]), ["tests"]);
    }

    #[test]
    fn a_second_filter_is_refused() {
        let arguments = ["one".to_owned(), "two".to_owned()];
        assert!(TestOptions::parse(&arguments).expect_err("one is enough").to_string().contains("`two`"));
    }

    #[test]
    fn a_failure_stops_the_following_stages() {
        let outcomes = outcomes(&[], failing_clippy);
        assert_eq!(outcomes[2], ("clippy", "FAILED".to_owned()));
        assert_eq!(outcomes[3], ("tests", "not run".to_owned()));
        assert_eq!(outcomes.last().expect("stages"), &("docs", "not run".to_owned()));
    }

    #[test]
    fn keep_going_runs_the_rest_after_a_failure() {
        let outcomes = outcomes(&["--keep-going"], failing_clippy);
        assert_eq!(outcomes[2], ("clippy", "FAILED".to_owned()));
        assert_eq!(outcomes[3], ("tests", "passed".to_owned()));
    }

    #[test]
    fn the_summary_has_the_reason_of_a_skipped_stage() {
        let rows = [
            ("format", TestStageOutcome::Skipped("rustfmt is not installed".to_owned()), Duration::ZERO),
            ("tests", TestStageOutcome::Passed, Duration::from_millis(1250)),
        ];
        let text = render_summary(&rows);
        assert!(text.contains("SKIPPED: rustfmt is not installed"), "{text}");
        assert!(text.ends_with("stages: 1 passed, 0 failed, 1 skipped, 0 not run"), "{text}");
    }

    #[test]
    fn skipped_stage_fails_in_ci() {
        let rows = |outcome| [("clients", outcome, Duration::ZERO)];
        let skipped = rows(TestStageOutcome::Skipped("npm is missing".to_owned()));
        assert!(has_failed(&skipped, true) && !has_failed(&skipped, false));
        assert!(
            has_failed(&rows(TestStageOutcome::Failed), false) && !has_failed(&rows(TestStageOutcome::Passed), true)
        );
    }

    #[test]
    fn announced_tests_are_counted() {
        assert_eq!(announced_test_count("running 12 tests"), 12);
        assert_eq!(announced_test_count("running 1 test"), 1);
        assert_eq!(announced_test_count("running out of ideas"), 0);
        assert_eq!(announced_test_count("test a ... ok"), 0);
    }

    #[test]
    fn an_unknown_component_is_missing() {
        let component = ToolchainComponent { name: "nonesuch", subcommand: "nonesuch-at-all" };
        assert!(!is_component_installed(&component).expect("cargo starts"));
    }
}
