//! Runs `segue serve` in a temporary home folder, with a minimal HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home folder with a configuration.
pub(crate) struct Place {
    folder: TempDir,
}

/// A running server, which is killed when this is dropped.
pub(crate) struct Serving {
    child: Child,
    pub port: u16,
}

impl Place {
    /// A home with replies from this scenario.
    pub(crate) fn new(scenario: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.write("scenario.toml", scenario);
        let config =
            "[models]\ndefault = \"scripted\"\n[models.scripted]\nkind = \"scripted\"\nfile = \"scenario.toml\"\n";
        place.write("segue.toml", config);
        place
    }

    /// A home with the rehearsal model.
    pub(crate) fn rehearsed() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).env_clear().env("HOME", self.path()).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// Starts a server on a port; 0 picks a free one.
    pub(crate) fn serve(&self, port: u16, more: &[&str]) -> Serving {
        let port = port.to_string();
        let arguments: Vec<&str> = ["serve", "--port", &port].iter().chain(more).copied().collect();
        let mut child =
            self.command(&arguments).env("SEGUE_LOG", "off").stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
        let port = line.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Serving { child, port: port.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }
}

impl Serving {
    /// Kills the server with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    pub(crate) fn get(&self, path: &str, key: Option<&str>) -> (u16, Value) {
        self.ask("GET", path, "", key)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, &body.to_string(), None)
    }

    /// Gets a response that is not JSON.
    pub(crate) fn text(&self, path: &str) -> (u16, String) {
        self.exchange("GET", path, "", None)
    }

    fn ask(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> (u16, Value) {
        let (status, body) = self.exchange(method, path, body, key);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn exchange(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> (u16, String) {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        // With HTTP/1.0 a response ends with its connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n{key}content-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).expect("asked");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The errors may be dropped: the server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
