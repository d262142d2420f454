//! Runs commands under a supervisor: starts it, sends heartbeats, collects the output and reports progress.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use segue_engine::tools::ToolProgressSender;
use segue_flows::workspace_tools::{WorkspaceCommandEnd, WorkspaceCommandRun};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::time::MissedTickBehavior;

use crate::command_line::WorkspaceCommandLine;
use crate::limits::{COMMAND_OUTPUT_BYTES_MAX, HEARTBEAT_MS, HEARTBEAT_SILENCE_MS_MAX, SUPERVISOR_REPORT_BYTES_MAX};
use crate::sandbox::SandboxRules;
use crate::state::{WorkspaceStateDatabase, create_private_folder};
use crate::supervisor::{
    CommandEndReason, CommandExitStatus, CommandSupervisorRequest, HEARTBEAT_BYTE, STOP_BYTE, SUPERVISE_COMMAND,
    own_program,
};
use crate::workspace::{CommandNetworkPolicy, CommandSandboxPolicy, OpenWorkspace};

/// The folders in which programs are searched if `PATH` is not passed on.
const DEFAULT_SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How the supervisor is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSupervisorProgram {
    program: PathBuf,
}

impl CommandSupervisorProgram {
    /// This program, whose `main` calls [`crate::run_if_supervisor`] first.
    #[must_use]
    pub fn this_program() -> Self {
        Self { program: own_program() }
    }

    /// Another program that does so.
    #[must_use]
    pub fn at_path(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }
}

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLimits {
    pub run_ms_max: u64,
    pub tail_bytes_max: usize,
}

/// Runs commands of one workspace.
pub(crate) struct WorkspaceCommandRunner<'t> {
    pub workspace: &'t OpenWorkspace,
    pub state: &'t WorkspaceStateDatabase,
    pub supervisor: &'t CommandSupervisorProgram,
    pub progress: &'t ToolProgressSender,
}

impl WorkspaceCommandRunner<'_> {
    /// Runs a command. Dropping the future ends the command.
    pub(crate) async fn run(
        &self,
        shown: &str,
        command: &WorkspaceCommandLine,
        limits: CommandLimits,
    ) -> WorkspaceCommandRun {
        let started = Instant::now();
        let mut output = CommandOutputTail::new(limits.tail_bytes_max);
        let end = match self.try_run(command, limits, &mut output).await {
            Ok(end) => end,
            Err(reason) => WorkspaceCommandEnd::NotStarted { reason },
        };
        WorkspaceCommandRun {
            command: shown.to_owned(),
            end,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            output_bytes: output.bytes,
            output_tail: output.text(),
        }
    }

    async fn try_run(
        &self,
        command: &WorkspaceCommandLine,
        limits: CommandLimits,
        output: &mut CommandOutputTail,
    ) -> Result<WorkspaceCommandEnd, String> {
        hide_own_environment();
        let temporary = CommandTemporaryFolder::create(self.state)?;
        let request = self.supervised_command(command, limits, &temporary.path)?;
        let mut request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        request.push(b'\n');
        let mut supervisor = tokio::process::Command::new(&self.supervisor.program)
            .arg(SUPERVISE_COMMAND)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the supervisor of the command cannot be started: {error}"))?;
        let mut input = supervisor.stdin.take().ok_or("the supervisor has no input")?;
        input.write_all(&request).await.map_err(|error| format!("the supervisor does not read: {error}"))?;
        let is_over_limit = self.follow_output(&mut supervisor, &mut input, output).await;
        let report = read_report(&mut supervisor).await;
        // All processes have ended. The supervisor exits after its report.
        let _ = supervisor.wait().await;
        drop(input);
        Ok(match report {
            Some(_) if is_over_limit => WorkspaceCommandEnd::OutputLimit,
            Some(CommandExitStatus { reason: CommandEndReason::TimedOut, .. }) => WorkspaceCommandEnd::TimedOut,
            Some(CommandExitStatus { reason: CommandEndReason::NotStarted, .. }) => {
                return Err("the supervisor could not start the command".to_owned());
            }
            Some(CommandExitStatus { exit_code: Some(code), .. }) => WorkspaceCommandEnd::Exited { code },
            Some(CommandExitStatus { signal, .. }) => {
                WorkspaceCommandEnd::Signalled { signal: signal.unwrap_or_default() }
            }
            None => return Err("the supervisor of the command was killed".to_owned()),
        })
    }

    /// Reads the output until all processes of the command have closed it, and sends heartbeats meanwhile. Returns whether there was
    /// too much output.
    async fn follow_output(
        &self,
        supervisor: &mut Child,
        input: &mut ChildStdin,
        output: &mut CommandOutputTail,
    ) -> bool {
        let Some(mut stdout) = supervisor.stdout.take() else { return false };
        let mut heartbeats = tokio::time::interval(Duration::from_millis(HEARTBEAT_MS));
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut buffer = vec![0; 16 * 1024];
        let mut is_over_limit = false;
        loop {
            tokio::select! {
                read = stdout.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => return is_over_limit,
                    Ok(count) => {
                        output.push(&buffer[..count]);
                        if !is_over_limit {
                            self.progress.report(&output.text());
                        }
                        if !is_over_limit && output.bytes > COMMAND_OUTPUT_BYTES_MAX {
                            is_over_limit = true;
                            // If this fails, the supervisor has ended, and so does the output.
                            let _ = input.write_all(&[STOP_BYTE]).await;
                        }
                    }
                },
                _ = heartbeats.tick() => {
                    // As above.
                    let _ = input.write_all(&[HEARTBEAT_BYTE]).await;
                }
            }
        }
    }

    fn supervised_command(
        &self,
        command: &WorkspaceCommandLine,
        limits: CommandLimits,
        temporary: &Path,
    ) -> Result<CommandSupervisorRequest, String> {
        let config = &self.workspace.config;
        let folder = self.workspace.root.path().to_owned();
        let home = self.state.folder().join("home").join(&self.workspace.name);
        create_private_folder(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut environment: BTreeMap<String, String> = [
            ("PATH", DEFAULT_SEARCH_PATH.to_owned()),
            ("HOME", text(&home)),
            ("TMPDIR", text(temporary)),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "dumb".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for name in &config.environment {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.clone(), value);
            }
        }
        let search_path = environment.get("PATH").cloned().unwrap_or_default();
        let program = command.find_program(&folder, &search_path)?;
        let sandbox = (config.sandbox != CommandSandboxPolicy::Off).then(|| {
            let search_folders = search_path.split(':').filter(|folder| folder.starts_with('/')).map(PathBuf::from);
            let own_folders = [folder.clone(), home, temporary.to_owned()];
            SandboxRules {
                readable: config.readable.iter().cloned().chain(search_folders).collect(),
                writable: config.writable.iter().cloned().chain(own_folders).collect(),
                denies_network: config.network == CommandNetworkPolicy::Denied,
                is_required: config.sandbox == CommandSandboxPolicy::Required,
            }
        });
        Ok(CommandSupervisorRequest {
            program,
            name: command.program.clone(),
            arguments: command.arguments.clone(),
            folder,
            environment,
            sandbox,
            run_ms_max: limits.run_ms_max,
            silence_ms_max: HEARTBEAT_SILENCE_MS_MAX,
        })
    }
}

/// Makes the environment and the memory of this process, which contain API keys, unreadable for commands of the same user. Root can
/// still read them, also in a sandbox.
fn hide_own_environment() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "commands may be able to read the environment of this process");
    }
}

async fn read_report(supervisor: &mut Child) -> Option<CommandExitStatus> {
    let mut text = String::new();
    // An incomplete report cannot be parsed, which is handled as no report.
    let _ = supervisor.stderr.take()?.take(SUPERVISOR_REPORT_BYTES_MAX).read_to_string(&mut text).await;
    serde_json::from_str(text.lines().last()?).ok()
}

/// The end of a command's output.
struct CommandOutputTail {
    kept: VecDeque<u8>,
    bytes_max: usize,
    /// All bytes, also those that are not kept.
    bytes: u64,
}

impl CommandOutputTail {
    fn new(bytes_max: usize) -> Self {
        Self { kept: VecDeque::new(), bytes_max, bytes: 0 }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.kept.extend(&chunk[chunk.len().saturating_sub(self.bytes_max)..]);
        let excess = self.kept.len().saturating_sub(self.bytes_max);
        self.kept.drain(..excess);
    }

    /// Returns the kept output as text, without control sequences of terminals.
    fn text(&self) -> String {
        let (front, back) = self.kept.as_slices();
        let bytes = [front, back].concat();
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{fffd}');
        strip_control_sequences(text)
    }
}

/// Removes control sequences and control characters, except line feeds and tabs.
fn strip_control_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.next_if_eq(&'[').is_some() => {
                // The final character of a sequence is a letter or one of a few signs.
                while characters.next().is_some_and(|next| !('\u{40}'..='\u{7e}').contains(&next)) {}
            }
            '\n' | '\t' => plain.push(character),
            other if other.is_control() => {}
            other => plain.push(other),
        }
    }
    plain
}

/// A folder for temporary files of one command, which is removed at the end.
struct CommandTemporaryFolder {
    path: PathBuf,
}

impl CommandTemporaryFolder {
    fn create(state: &WorkspaceStateDatabase) -> Result<Self, String> {
        static FOLDERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = state.folder().join("temporary").join(format!("{}-{number}", std::process::id()));
        create_private_folder(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for CommandTemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "cannot remove the temporary folder of a command");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let mut tail = CommandOutputTail::new(4);
        tail.push(b"abc");
        tail.push(b"defghi");
        assert_eq!((tail.text().as_str(), tail.bytes), ("fghi", 9));
        tail.push("€€".as_bytes());
        assert_eq!(tail.text(), "€");
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(strip_control_sequences("\u{1b}[1;31mred\u{1b}[0m\r\n\ta\u{7}"), "red\n\ta");
    }
}
