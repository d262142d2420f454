//! Runs the program in a pseudoterminal and reads its screen.

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};

use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(30);
const COLUMNS: u16 = 120;

pub(crate) const ENTER: &str = "\r";
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const UP: &str = "\x1b[A";

/// A pseudoterminal with the program in it.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    output: mpsc::Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All output so far, including what is no longer on the screen.
    pub written: String,
}

impl Terminal {
    /// Starts a chat in a terminal.
    pub(crate) fn start(stage: &Stage, more: &[&str]) -> Self {
        Self::with_environment(stage, more, &[])
    }

    /// Starts a chat with additional environment variables.
    pub(crate) fn with_environment(stage: &Stage, more: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::open(stage, &stage.arguments(more), environment, 40)
    }

    /// Starts the program in a terminal with this number of rows.
    pub(crate) fn of_program(stage: &Stage, arguments: &[&str], rows: u16) -> Self {
        Self::open(stage, arguments, &[("SEGUE_STORE", "store.db")], rows)
    }

    fn open(stage: &Stage, arguments: &[&str], environment: &[(&str, &str)], rows: u16) -> Self {
        let (pty, inside) = open().expect("a terminal");
        pty.resize(pty_process::Size::new(rows, COLUMNS)).expect("it has a size");
        let child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(arguments)
            .current_dir(stage.path())
            .envs(stage.environment())
            .env("TERM", "xterm")
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .env_remove("SEGUE_STORE")
            .env_remove("SEGUE_CONFIG")
            .envs(environment.iter().copied())
            .spawn(inside)
            .expect("the program starts");
        let pty = Arc::new(pty);
        let output = follow(pty.clone());
        let cells = |count: u16| NonZero::new(count).expect("some");
        let screen = vt100::Parser::new(cells(rows), cells(COLUMNS), 0);
        Self { pty, child, output, screen, written: String::new() }
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) -> &mut Self {
        (&*self.pty).write_all(keys.as_bytes()).expect("it takes keys");
        self
    }

    /// Types a line and presses enter.
    pub(crate) fn enter(&mut self, line: &str) -> &mut Self {
        self.press(line).press(ENTER)
    }

    /// Waits until the screen ends with this text.
    #[track_caller]
    pub(crate) fn ends_with(&mut self, text: &str) -> &mut Self {
        self.wait(&format!("the screen to end with {text:?}"), |screen| screen.ends_with(text))
    }

    /// Waits until the screen contains this text.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) -> &mut Self {
        self.wait(&format!("{text:?}"), |screen| screen.contains(text))
    }

    /// Waits for an empty prompt at the end of the screen.
    #[track_caller]
    pub(crate) fn prompts(&mut self) -> &mut Self {
        self.wait("a prompt", |screen| screen.ends_with("\n>"))
    }

    /// Waits for an empty prompt, for a message or the continuation of one.
    #[track_caller]
    pub(crate) fn asks_for_more(&mut self) -> &mut Self {
        self.wait("a prompt", |screen| screen.ends_with("\n>") || screen.ends_with("\n…"))
    }

    /// The text on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.screen().contents().trim_end().to_owned()
    }

    /// Whether bracketed paste is on, and whether the cursor is hidden.
    pub(crate) fn state(&self) -> (bool, bool) {
        let screen = self.screen.screen();
        (screen.bracketed_paste(), screen.hide_cursor())
    }

    #[track_caller]
    fn wait(&mut self, what: &str, done: impl Fn(&str) -> bool) -> &mut Self {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.text()) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(_) => panic!("waited for {what} and saw\n{}", self.text()),
            }
        }
        self
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.written.push_str(&String::from_utf8_lossy(bytes));
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&mut self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("signals can be sent").success());
    }

    /// Waits for the program to end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.take(&bytes);
        }
        self.child.wait().expect("it ends")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(pty: Arc<Pty>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        // Reading fails when the program has closed its end.
        while let Ok(count) = (&*pty).read(&mut bytes) {
            if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    output
}
