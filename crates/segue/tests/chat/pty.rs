//! A real terminal with the program in it, and what stands on its screen.

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};

use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(30);
const COLUMNS: u16 = 120;

pub const ENTER: &str = "\r";
pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const UP: &str = "\x1b[A";

/// A terminal.
pub struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    output: mpsc::Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Everything that was ever written, for what is only seen for a moment.
    pub written: String,
}

impl Terminal {
    /// Starts a chat in a terminal.
    pub fn start(stage: &Stage, more: &[&str]) -> Self {
        Self::with_environment(stage, more, &[])
    }

    /// The same with more in its environment.
    pub fn with_environment(stage: &Stage, more: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::open(stage, &stage.arguments(more), environment, 40)
    }

    /// Starts the program in a terminal of so many rows.
    pub fn of_program(stage: &Stage, arguments: &[&str], rows: u16) -> Self {
        Self::open(stage, arguments, &[("SEGUE_STORE", "store.db")], rows)
    }

    fn open(stage: &Stage, arguments: &[&str], environment: &[(&str, &str)], rows: u16) -> Self {
        let (pty, inside) = open().expect("a terminal");
        pty.resize(pty_process::Size::new(rows, COLUMNS)).expect("it has a size");
        let child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(arguments)
            .current_dir(stage.path())
            .envs(stage.surroundings())
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

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> &mut Self {
        (&*self.pty).write_all(keys.as_bytes()).expect("it takes keys");
        self
    }

    /// Writes a line and presses enter.
    pub fn enter(&mut self, line: &str) -> &mut Self {
        self.press(line).press(ENTER)
    }

    /// Waits until the screen ends like this.
    #[track_caller]
    pub fn ends_with(&mut self, text: &str) -> &mut Self {
        self.wait(&format!("the screen to end with {text:?}"), |screen| screen.ends_with(text))
    }

    /// Waits until this can be read.
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> &mut Self {
        self.wait(&format!("{text:?}"), |screen| screen.contains(text))
    }

    /// Waits until an empty prompt stands at the end.
    #[track_caller]
    pub fn prompts(&mut self) -> &mut Self {
        self.wait("a prompt", |screen| screen.ends_with("\n>"))
    }

    /// Waits until an empty prompt stands at the end, for a message or for more of one.
    #[track_caller]
    pub fn asks_for_more(&mut self) -> &mut Self {
        self.wait("a prompt", |screen| screen.ends_with("\n>") || screen.ends_with("\n…"))
    }

    /// What can be read.
    pub fn text(&self) -> String {
        self.screen.screen().contents().trim_end().to_owned()
    }

    /// Whether pasted text is marked, and whether the cursor is hidden.
    pub fn state(&self) -> (bool, bool) {
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

    /// Ends the program as nobody can prevent.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends a signal by name.
    pub fn signal(&mut self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("signals can be sent").success());
    }

    /// Waits until the program has ended.
    pub fn ended(&mut self) -> ExitStatus {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.take(&bytes);
        }
        self.child.wait().expect("it ends")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(pty: Arc<Pty>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        // Reading fails once nobody has the other end.
        while let Ok(count) = (&*pty).read(&mut bytes) {
            if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    output
}
