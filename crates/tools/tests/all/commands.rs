//! Commands: what is allowed, how they end, and what they leave behind.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_engine::tools::Tool;
use segue_flows::workspace_tools::WorkspaceTool::RunCommand;
use segue_flows::workspace_tools::{
    ChecksResult, FileChangeKind, RunChecksArguments, RunCommandResult, WorkspaceCommandEnd, WorkspaceToolRequest,
};
use segue_tools::{CommandSandboxPolicy, WorkspaceConfig, sandbox_is_available};
use serde_json::{Value, json};

use crate::support::{TestWorkspace, agent, flow, invocation, supervisor_program};

/// Longest wait for a process to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);

async fn run(shop: &TestWorkspace, command: &str) -> (String, RunCommandResult) {
    let result = shop.run(&agent("ann"), RunCommand, json!({"command": command})).await;
    let value = result.value.unwrap_or_else(|| panic!("{}", result.text));
    (result.text, serde_json::from_value(value).expect("typed"))
}

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::yield_now();
    }
}

fn is_running(pid: &str) -> bool {
    // A zombie has ended; it only waits to be reaped.
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z')))
}

/// Returns the ids of processes that wrote them to a file, one on each line.
fn written_pids(path: &Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until("the processes start", || read().len() >= count);
    read()
}

#[tokio::test]
async fn a_command_reports_exit_code_output_and_changed_files() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "old\n");
    let (text, result) = run(&shop, "sh -c 'echo out; echo err >&2; echo new > a.txt; echo b > b.txt; exit 3'").await;
    assert_eq!(result.run.end, WorkspaceCommandEnd::Exited { code: 3 });
    assert_eq!(result.run.output_tail, "out\nerr\n");
    let changes: Vec<(&str, FileChangeKind)> =
        result.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
    assert_eq!(changes, [("a.txt", FileChangeKind::Modified), ("b.txt", FileChangeKind::Created)]);
    assert!(text.contains("exit code 3") && text.contains("M a.txt (+1 -1)"), "{text}");
}

#[tokio::test]
async fn only_allowed_commands_run() {
    let shop =
        TestWorkspace::with_config(WorkspaceConfig { commands: vec!["echo".into()], ..WorkspaceConfig::default() });
    assert_eq!(run(&shop, "echo 'a  b' $HOME").await.1.run.output_tail, "a  b $HOME\n");
    let text = shop.refused(&agent("ann"), RunCommand, json!({"command": "sh -c 'touch x'"})).await;
    assert_eq!(text, "`sh` is not allowed; allowed are commands that begin with: echo");
    let text = shop.refused(&agent("ann"), RunCommand, json!({"command": "echo a && touch x"})).await;
    assert!(text.contains("without a shell"), "{text}");
    assert!(!shop.path("x").exists());
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let shop = TestWorkspace::new();
    let text = shop.refused(&agent("ann"), RunCommand, json!({"command": "no-such-program"})).await;
    assert!(text.starts_with("there is no program `no-such-program`"), "{text}");
}

#[tokio::test]
async fn a_command_sees_no_variables_but_the_configured_ones() {
    let config = WorkspaceConfig {
        commands: vec!["env".into()],
        environment: vec!["CARGO_MANIFEST_DIR".into(), "NOT_SET_ANYWHERE".into()],
        ..WorkspaceConfig::default()
    };
    let shop = TestWorkspace::with_config(config);
    // Cargo sets this variable for tests, so it stands for a secret of the program.
    assert!(std::env::var("CARGO_PKG_NAME").is_ok());
    let (_, result) = run(&shop, "env").await;
    let mut names: Vec<&str> = result.run.output_tail.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["CARGO_MANIFEST_DIR", "HOME", "LANG", "NO_COLOR", "PATH", "TERM", "TMPDIR"]);
}

#[tokio::test]
async fn the_environment_of_the_program_cannot_be_read_from_the_parents() {
    let shop = TestWorkspace::new();
    // The parents are the supervisor and this test. The supervisor has an empty environment.
    let (_, result) = run(&shop, "sh -c 'cat /proc/$PPID/environ; echo end'").await;
    assert_eq!(result.run.output_tail, "end\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_memory_of_the_program_is_closed_to_commands_of_the_same_user() {
    let shop = TestWorkspace::new();
    run(&shop, "true").await;
    let behavior = rustix::process::dumpable_behavior().expect("it can be asked");
    assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
}

#[tokio::test]
async fn a_command_that_prints_without_end_is_stopped() {
    let shop = TestWorkspace::new();
    let (text, result) = run(&shop, "yes").await;
    assert_eq!(result.run.end, WorkspaceCommandEnd::OutputLimit);
    assert!(result.run.output_tail.len() <= 16 * 1024);
    assert!(text.contains("it wrote too much output"), "{text}");
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed() {
    let shop = TestWorkspace::new();
    let command = "sh -c 'trap \"\" TERM; echo $$ > pid; while true; do sleep 0.05; done'";
    let result = shop.run(&agent("ann"), RunCommand, json!({"command": command, "timeout_s": 1})).await;
    let value: RunCommandResult = serde_json::from_value(result.value.expect("a value")).expect("typed");
    assert_eq!(value.run.end, WorkspaceCommandEnd::TimedOut);
    assert!(!is_running(shop.get("pid").trim()));
}

#[tokio::test]
async fn a_process_that_forks_and_detaches_does_not_survive() {
    let shop = TestWorkspace::new();
    // The first process leaves the group and the session; the second one forks twice, so that its parent is gone.
    let script = "setsid sh -c 'echo $$ >> ../pids; exec sleep 600' & ( ( sh -c 'echo $$ >> ../pids; exec sleep 600' & ) & ); \
                  while [ $(wc -l < ../pids) -lt 2 ]; do sleep 0.02; done; echo main ended";
    shop.put("work/run.sh", script);
    shop.put("pids", "");
    let (_, result) = run(&shop, "sh -c 'cd work && sh run.sh'").await;
    assert_eq!(result.run.end, WorkspaceCommandEnd::Exited { code: 0 });
    assert_eq!(result.run.output_tail, "main ended\n");
    let pids = written_pids(&shop.path("pids"), 2);
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(!is_running(&pid), "process {pid} survived");
    }
}

#[tokio::test]
async fn dropping_a_run_ends_its_command() {
    let shop = TestWorkspace::new();
    let request =
        invocation(&agent("ann"), RunCommand.name(), json!({"command": "sh -c 'echo $$ > pid; exec sleep 600'"}));
    let host = shop.host.clone();
    let running =
        tokio::spawn(async move { host.run(request, segue_engine::tools::ToolRunContext::for_tests()).await });
    let path = shop.path("pid");
    let pid = tokio::task::spawn_blocking(move || written_pids(&path, 1)).await.expect("it starts").remove(0);
    assert!(is_running(&pid));
    running.abort();
    let _ = running.await;
    tokio::task::spawn_blocking(move || wait_until("the command ends", || !is_running(&pid))).await.expect("it ends");
}

#[tokio::test]
async fn progress_shows_the_end_of_the_output() {
    let shop = TestWorkspace::new();
    let (text, result) = run(&shop, "seq 1 100000").await;
    assert!(result.run.output_tail.ends_with("99999\n100000\n"));
    assert_eq!(result.run.output_bytes, 588_895);
    assert!(text.contains("end of the output:"), "{text}");
}

#[tokio::test]
async fn checks_run_on_the_current_content_and_report_each_command() {
    let config = WorkspaceConfig {
        checks: vec!["test -f a.txt".into(), "sh -c 'echo lock > lock'".into()],
        ..WorkspaceConfig::default()
    };
    let shop = TestWorkspace::with_config(config);
    let request = |confirmed: &[&str]| {
        let confirmed = confirmed.iter().map(|command| (*command).to_owned()).collect();
        WorkspaceToolRequest::RunChecks(RunChecksArguments { confirmed })
    };
    let failed: ChecksResult = shop.run_for_flow(request(&[])).await;
    assert!(!failed.passed);
    assert_eq!(failed.commands[0].end, WorkspaceCommandEnd::Exited { code: 1 });
    assert!(failed.commands[1].has_passed(), "later checks run, too");
    shop.put("a.txt", "a");
    let passed: ChecksResult = shop.run_for_flow(request(&[])).await;
    assert!(passed.passed);
    assert_eq!(passed.content_digest, passed.content_digest_after);
    assert_ne!(passed.content_digest, failed.content_digest_after);
    assert_ne!(failed.content_digest, failed.content_digest_after, "a check wrote a lock file");
    let confirmed: ChecksResult = shop.run_for_flow(request(&["false"])).await;
    assert!(!confirmed.passed);
    assert_eq!(confirmed.commands.len(), 3);
}

#[tokio::test]
async fn a_workspace_without_checks_never_passes() {
    let shop = TestWorkspace::new();
    let result: ChecksResult = shop.run_for_flow(WorkspaceToolRequest::RunChecks(RunChecksArguments::default())).await;
    assert!(!result.passed && result.commands.is_empty());
    let result = shop.run_named(&flow(), "run_checks", json!({})).await;
    assert_eq!(result.text, "no checks are declared for this workspace\n");
}

#[tokio::test]
async fn a_sandboxed_command_reads_and_writes_only_what_it_may() {
    let outside = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(outside.path().join("secret.txt"), "secret").expect("written");
    let config = WorkspaceConfig {
        commands: vec!["*".into()],
        sandbox: CommandSandboxPolicy::Required,
        ..WorkspaceConfig::default()
    };
    let shop = TestWorkspace::with_config(config);
    let script =
        format!("sh -c 'cat {0}/secret.txt; echo x > {0}/new.txt; echo fine > inside.txt'", outside.path().display());
    let result = shop.run(&agent("ann"), RunCommand, json!({"command": script})).await;
    assert!(!result.text.contains("\nsecret"), "{}", result.text);
    assert!(!outside.path().join("new.txt").exists());
    if sandbox_is_available() {
        assert_eq!(shop.get("inside.txt"), "fine\n");
    } else {
        assert!(result.failed && result.text.contains("this kernel cannot confine commands"), "{}", result.text);
        assert!(!shop.path("inside.txt").exists(), "a required sandbox that is missing refuses the command");
    }
}

/// The request of a supervisor, as the host sends it.
fn supervisor_request(folder: &Path, script: &str, silence_ms_max: u64) -> String {
    let request: Value = json!({
        "program": "/bin/sh", "name": "sh", "arguments": ["-c", script], "folder": folder,
        "environment": {"PATH": "/usr/bin:/bin"}, "sandbox": null, "run_ms_max": 600_000, "silence_ms_max": silence_ms_max,
    });
    format!("{request}\n")
}

const TWO_SLEEPERS: &str = "setsid sh -c 'echo $$ >> pids; exec sleep 600' & echo $$ >> pids; exec sleep 600";

/// Starts a shell that starts a supervisor, as a program that can be killed or stopped without ending the test.
fn start_program_with_supervisor(folder: &Path, silence_ms_max: u64) -> std::process::Child {
    std::fs::write(folder.join("request"), supervisor_request(folder, TWO_SLEEPERS, silence_ms_max)).expect("written");
    let script = format!(
        "mkfifo in; {} supervise < in & exec 3> in; cat request >&3; echo ready; while true; do echo . >&3; sleep 0.05; done",
        supervisor_program().display()
    );
    let mut program = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the shell starts");
    let mut line = String::new();
    BufReader::new(program.stdout.take().expect("piped")).read_line(&mut line).expect("it is ready");
    program
}

#[test]
fn r12_killing_the_program_ends_its_commands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut program = start_program_with_supervisor(folder.path(), 600_000);
    let pids = written_pids(&folder.path().join("pids"), 2);
    program.kill().expect("kill -9");
    program.wait().expect("it ends");
    for pid in pids {
        wait_until("the command ends with the program", || !is_running(&pid));
    }
}

#[test]
fn r12_a_program_that_is_stopped_loses_its_commands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut program = start_program_with_supervisor(folder.path(), 1_000);
    let pids = written_pids(&folder.path().join("pids"), 2);
    assert!(pids.iter().all(|pid| is_running(pid)));
    let stopped = Command::new("kill").args(["-STOP", &program.id().to_string()]).status().expect("kill runs");
    assert!(stopped.success());
    for pid in pids {
        wait_until("the command ends without heartbeats", || !is_running(&pid));
    }
    program.kill().expect("killed");
    program.wait().expect("it ends");
}

#[test]
fn a_killed_supervisor_takes_the_command_with_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut supervisor = Command::new(supervisor_program())
        .arg("supervise")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let request = supervisor_request(folder.path(), "echo $$ >> pids; exec sleep 600", 600_000);
    supervisor.stdin.as_mut().expect("piped").write_all(request.as_bytes()).expect("written");
    let pid = written_pids(&folder.path().join("pids"), 1).remove(0);
    supervisor.kill().expect("killed");
    supervisor.wait().expect("it ends");
    wait_until("the command ends", || !is_running(&pid));
}

/// Starts a command that runs until the file `go` exists, and then runs another one with a second's time.
async fn run_beside_another(commands_at_once_max: usize) -> String {
    let config = WorkspaceConfig {
        commands: vec!["sh".into(), "echo".into()],
        commands_at_once_max: std::num::NonZeroUsize::new(commands_at_once_max),
        ..WorkspaceConfig::default()
    };
    let shop = std::sync::Arc::new(TestWorkspace::with_config(config));
    shop.put("wait.sh", "echo > started\nuntil [ -e go ]; do sleep 0.05; done\n");
    let of_first = shop.clone();
    let first =
        tokio::spawn(async move { of_first.ok(&agent("ann"), RunCommand, json!({"command": "sh wait.sh"})).await });
    tokio::task::block_in_place(|| wait_until("the first command starts", || shop.path("started").exists()));
    let second = shop.run(&agent("bob"), RunCommand, json!({"command": "echo second", "timeout_s": 1})).await;
    shop.put("go", "");
    first.await.expect("the first command ends");
    assert!(shop.ok(&agent("bob"), RunCommand, json!({"command": "echo third"})).await.contains("third"));
    second.text
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_beyond_the_limit_of_a_workspace_wait_for_others() {
    assert!(run_beside_another(2).await.contains("exit code 0"));
    let text = run_beside_another(1).await;
    assert_eq!(text, "other commands of the workspace `shop` ran the whole time; at most 1 run at once");
}
