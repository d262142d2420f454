//! The supervisor: a process of its own between this program and a command. It ends the command and all processes that the command
//! started if this program ends the run, is killed, or stops sending heartbeats.
//!
//! The program starts itself as a supervisor. The supervisor reads one line of JSON from its input, the [`CommandSupervisorRequest`], and after
//! it heartbeats: single bytes. The end of the input or a missing heartbeat ends the command. The command writes to the output of the
//! supervisor. Its last act is to write a [`CommandExitStatus`] to its error output.
//!
//! The command is started by a third process, the launcher, which confines itself and then becomes the command.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::limits::{COMMAND_FILE_BYTES_MAX, REAPING_MS_MAX, SUPERVISOR_REQUEST_BYTES_MAX, TERMINATION_GRACE_MS};
use crate::sandbox::{SandboxRules, confine_this_process};

/// The hidden command of the program that starts a supervisor.
pub const SUPERVISE_COMMAND: &str = "supervise";
/// The argument after [`SUPERVISE_COMMAND`] that starts a launcher.
const LAUNCH_ARGUMENT: &str = "launch";
/// The byte that asks for the end of the command. Other bytes are heartbeats.
pub(crate) const STOP_BYTE: u8 = b'k';
pub(crate) const HEARTBEAT_BYTE: u8 = b'.';
/// The exit code of a launcher that cannot start its command.
const LAUNCH_FAILED: u8 = 126;

/// A command, as the supervisor gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandSupervisorRequest {
    pub program: PathBuf,
    /// The name by which the command was called.
    pub name: String,
    pub arguments: Vec<String>,
    pub folder: PathBuf,
    /// The complete environment.
    pub environment: BTreeMap<String, String>,
    pub sandbox: Option<SandboxRules>,
    pub run_ms_max: u64,
    pub silence_ms_max: u64,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandExitStatus {
    pub reason: CommandEndReason,
    /// The exit code of the command, if it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandEndReason {
    /// It ended by itself.
    Ended,
    /// It ran for too long.
    TimedOut,
    /// The program asked for it.
    Requested,
    /// The program is gone or does not respond.
    Abandoned,
    /// It could not be started.
    NotStarted,
}

/// Runs this process as a supervisor if the arguments ask for it.
///
/// A program calls this first, before it starts threads.
#[must_use]
pub fn run_if_supervisor(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    if arguments.next()? != SUPERVISE_COMMAND {
        return None;
    }
    Some(match arguments.next() {
        Some(argument) if argument == LAUNCH_ARGUMENT => exec_command(),
        _ => supervise_command(),
    })
}

enum CommandSupervisorInputEvent {
    Heartbeat,
    StopRequested,
    ProgramGone,
    /// A child of the supervisor ended: the command, or a process that it left behind.
    ChildEnded(Pid, WaitStatus),
    NoChildrenLeft,
}

fn supervise_command() -> ExitCode {
    // An own session, so that signals of a terminal do not end the supervisor before the command.
    let _ = rustix::process::setsid();
    // Processes that detach from the command become children of the supervisor.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    let read = input.by_ref().take(SUPERVISOR_REQUEST_BYTES_MAX).read_line(&mut line);
    let Ok(command) =
        read.map_err(|_| ()).and_then(|_| serde_json::from_str::<CommandSupervisorRequest>(&line).map_err(|_| ()))
    else {
        return write_report(&not_started_report());
    };
    let Ok(main) = start_launcher(&line) else { return write_report(&not_started_report()) };
    let (sender, events) = mpsc::channel();
    let heartbeats = sender.clone();
    std::thread::spawn(move || forward_program_input(input, &heartbeats));
    std::thread::spawn(move || forward_child_exits(&sender));
    let finished = wait_for_command(&command, main, &events);
    kill_descendants(main);
    let deadline = Instant::now() + Duration::from_millis(REAPING_MS_MAX);
    // A process that forks at the right moment is found by the next round.
    while Instant::now() < deadline {
        match events.recv_timeout(Duration::from_millis(20)) {
            Ok(CommandSupervisorInputEvent::NoChildrenLeft) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => kill_descendants(main),
        }
    }
    write_report(&finished)
}

fn not_started_report() -> CommandExitStatus {
    CommandExitStatus { reason: CommandEndReason::NotStarted, exit_code: None, signal: None }
}

fn write_report(finished: &CommandExitStatus) -> ExitCode {
    // If nobody reads the report, the program is gone, and nobody needs it.
    let _ = writeln!(std::io::stderr(), "{}", serde_json::to_string(finished).unwrap_or_default());
    ExitCode::SUCCESS
}

/// Starts the launcher in a process group of its own, and sends it the command.
fn start_launcher(request: &str) -> std::io::Result<Pid> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let mut child = Command::new(own_program())
        .args([SUPERVISE_COMMAND, LAUNCH_ARGUMENT])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output))
        .process_group(0)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(request.as_bytes())?;
    }
    Ok(Pid::from_child(&child))
}

/// Returns the file of this program. On Linux it is found even if the file was replaced meanwhile.
pub(crate) fn own_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

fn forward_program_input(mut input: impl Read, events: &mpsc::Sender<CommandSupervisorInputEvent>) {
    let mut buffer = [0; 64];
    loop {
        let event = match input.read(&mut buffer) {
            Ok(0) | Err(_) => CommandSupervisorInputEvent::ProgramGone,
            Ok(count) if buffer[..count].contains(&STOP_BYTE) => CommandSupervisorInputEvent::StopRequested,
            Ok(_) => CommandSupervisorInputEvent::Heartbeat,
        };
        let is_last = matches!(event, CommandSupervisorInputEvent::ProgramGone);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Reaps all children, until there are none.
fn forward_child_exits(events: &mpsc::Sender<CommandSupervisorInputEvent>) {
    loop {
        let event = match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => CommandSupervisorInputEvent::ChildEnded(pid, status),
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => CommandSupervisorInputEvent::NoChildrenLeft,
        };
        let is_last = matches!(event, CommandSupervisorInputEvent::NoChildrenLeft);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Waits until the command has ended, and ends it if it must not run any longer.
fn wait_for_command(
    command: &CommandSupervisorRequest,
    main: Pid,
    events: &mpsc::Receiver<CommandSupervisorInputEvent>,
) -> CommandExitStatus {
    let silence = Duration::from_millis(command.silence_ms_max);
    let mut reason = CommandEndReason::Ended;
    let mut last_heartbeat = Instant::now();
    let mut deadline = last_heartbeat + Duration::from_millis(command.run_ms_max);
    loop {
        let next = deadline.min(last_heartbeat + silence);
        let event = events.recv_timeout(next.saturating_duration_since(Instant::now()));
        match event {
            Ok(CommandSupervisorInputEvent::ChildEnded(pid, status)) if pid == main => {
                return CommandExitStatus {
                    reason,
                    exit_code: status.exit_status(),
                    signal: status.terminating_signal(),
                };
            }
            Ok(CommandSupervisorInputEvent::ChildEnded(..)) => {}
            Ok(CommandSupervisorInputEvent::Heartbeat) => last_heartbeat = Instant::now(),
            Ok(CommandSupervisorInputEvent::StopRequested) if reason == CommandEndReason::Ended => {
                reason = CommandEndReason::Requested;
                deadline = terminate_process_group(main);
            }
            Ok(CommandSupervisorInputEvent::StopRequested) => {}
            Ok(CommandSupervisorInputEvent::ProgramGone | CommandSupervisorInputEvent::NoChildrenLeft)
            | Err(RecvTimeoutError::Disconnected) => {
                return CommandExitStatus { reason: CommandEndReason::Abandoned, exit_code: None, signal: None };
            }
            Err(RecvTimeoutError::Timeout) if last_heartbeat.elapsed() >= silence => {
                return CommandExitStatus { reason: CommandEndReason::Abandoned, exit_code: None, signal: None };
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(RecvTimeoutError::Timeout) if reason == CommandEndReason::Ended => {
                reason = CommandEndReason::TimedOut;
                deadline = terminate_process_group(main);
            }
            Err(RecvTimeoutError::Timeout) => return CommandExitStatus { reason, exit_code: None, signal: None },
        }
    }
}

/// Asks the process group of the command to end, and returns when it is killed otherwise.
fn terminate_process_group(main: Pid) -> Instant {
    // Fails only if the group is gone already.
    let _ = rustix::process::kill_process_group(main, Signal::TERM);
    Instant::now() + Duration::from_millis(TERMINATION_GRACE_MS)
}

/// Kills the command's process group and all descendants of this process.
fn kill_descendants(main: Pid) {
    // These fail only if the processes are gone already.
    let _ = rustix::process::kill_process_group(main, Signal::KILL);
    for pid in find_descendants() {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Returns all descendants of this process, from the process table of Linux.
fn find_descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name of the program is in parentheses and may contain anything; the state and the parent follow.
        let parent = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            next.push(child);
            found.extend(Pid::from_raw(child));
        }
    }
    found
}

/// Becomes the command.
fn exec_command() -> ExitCode {
    let mut line = String::new();
    let read = std::io::stdin().take(SUPERVISOR_REQUEST_BYTES_MAX).read_to_string(&mut line);
    let command = read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str::<CommandSupervisorRequest>(&line).map_err(|error| error.to_string()));
    let failure = match command.and_then(|command| prepare_launch(&command).map(|()| command)) {
        Ok(command) => {
            let error = Command::new(&command.program)
                .arg0(&command.name)
                .args(&command.arguments)
                .current_dir(&command.folder)
                .env_clear()
                .envs(&command.environment)
                .exec();
            format!("`{}` cannot be started: {error}", command.name)
        }
        Err(why) => why,
    };
    // Standard output is the output of the command.
    let _ = writeln!(std::io::stdout(), "{failure}");
    ExitCode::from(LAUNCH_FAILED)
}

fn prepare_launch(command: &CommandSupervisorRequest) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    #[cfg(target_os = "linux")]
    {
        // The command does not survive its supervisor.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
        if rustix::process::getppid().is_none_or(|parent| parent == Pid::INIT) {
            return Err("the supervisor is gone".to_owned());
        }
    }
    let nothing = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| error.to_string())?;
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    // A core file would contain the environment. A hard limit that is lower already stays.
    let _ = setrlimit(Resource::Core, limit(0));
    let _ = setrlimit(Resource::Fsize, limit(COMMAND_FILE_BYTES_MAX));
    match &command.sandbox {
        Some(rules) => confine_this_process(rules),
        None => Ok(()),
    }
}
