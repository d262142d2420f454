//! Runs the program in a temporary folder with a store and a scenario.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A temporary folder with a scenario.
pub(crate) struct Stage {
    folder: TempDir,
}

impl Stage {
    pub(crate) fn new(scenario: &str) -> Self {
        let stage = Self { folder: tempfile::tempdir().expect("a folder") };
        stage.write("scenario.toml", scenario);
        stage
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("it can be written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("it is there")
    }

    /// Arguments for a chat in this folder.
    pub(crate) fn arguments<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        ["chat", "--store", "store.db", "--script", "scenario.toml"].iter().chain(more).copied().collect()
    }

    /// Environment variables that point to this folder.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 3] {
        let path = || self.path().to_owned();
        [("HOME", path()), ("XDG_DATA_HOME", path().join("data")), ("XDG_CONFIG_HOME", path().join("config"))]
    }

    /// Pipes lines through a chat.
    pub(crate) fn pipe(&self, more: &[&str], input: &[u8]) -> Piped {
        self.run(&self.arguments(more), input)
    }

    /// Pipes lines through the program.
    pub(crate) fn run(&self, arguments: &[&str], input: &[u8]) -> Piped {
        let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(arguments)
            .current_dir(self.path())
            .envs(self.environment())
            .env_remove("SEGUE_STORE")
            .env("SEGUE_DISCOVER", "off")
            .env_remove("SEGUE_CONFIG")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.to_owned();
        // The write may fail if the program ends early.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().expect("the program ends");
        let _ = writer.join();
        Piped(output)
    }
}

/// The output of a run.
pub(crate) struct Piped(Output);

impl Piped {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub(crate) fn is_success(&self) -> bool {
        self.0.status.success()
    }

    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        assert_eq!((self.out().as_str(), self.err().as_str(), self.is_success()), (text, "", true));
    }
}
