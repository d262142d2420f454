//! Files with conversations, records and keys can be read only by their owner, even if the umask allows more.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{ECHO, Place, Run};
use crate::vendor::Vendor;

/// The program with a umask that forbids nothing.
fn permissive_command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    place.set_environment(&mut command);
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_segue")]).args(arguments);
    command
}

fn run_permissive(place: &Place, arguments: &[&str]) -> Run {
    let run = Run::of(&permissive_command(place, arguments).output().expect("it runs"));
    assert_eq!(run.code, 0, "{arguments:?}: {}", run.err);
    run
}

/// The files and folders below `folder`, with their modes.
fn modes_below(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable").flatten() {
            // Another process may remove a lock file in between.
            let Ok(metadata) = entry.metadata() else { continue };
            found.push((entry.path(), metadata.permissions().mode() & 0o777));
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

fn assert_private(folder: &Path, expected: &[&str]) {
    let found = modes_below(folder);
    for name in expected {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name} is missing: {found:?}");
    }
    for (path, mode) in found {
        let allowed = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, allowed, "{} has mode {mode:o}", path.display());
    }
}

#[test]
fn files_of_sessions_records_and_keys_are_private() {
    let place = Place::new();
    place.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
    run_permissive(&place, &["send", "--flow", "assistant", "show me the recipes"]);
    run_permissive(&place, &["keys", "add", "laptop"]);
    let data = place.path().join(".local");
    assert_private(&data, &["segue.db", "segue-records.db", "keys.json", "segue.db.nodes/opening"]);
}

#[test]
fn files_of_a_running_server_are_private() {
    let place = Place::new();
    let mut serve = permissive_command(&place, &["serve", "--port", "0"]);
    serve.env("SEGUE_WEBHOOK_SECRET", "a-secret-that-only-this-test-uses");
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address").to_owned();
    // With a webhook there is a file of webhooks, and with a session there is a write-ahead log.
    for (path, body) in [("/v1/webhooks", "{\"url\":\"http://127.0.0.1:9/hook\"}"), ("/v1/sessions", "{}")] {
        let mut socket = TcpStream::connect(&address).expect("it listens");
        let head = format!("POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let mut status = String::new();
        BufReader::new(socket).read_line(&mut status).expect("answered");
        assert!(status.contains(" 20"), "{path}: {status}");
    }
    let checked = std::panic::catch_unwind(|| {
        assert_private(&place.path().join(".local"), &["segue.db", "segue.db-wal", "segue.db-shm", "webhooks.json"]);
    });
    child.kill().expect("killed");
    child.wait().expect("ended");
    if let Err(failed) = checked {
        std::panic::resume_unwind(failed);
    }
}

#[test]
fn cassettes_are_private() {
    let (place, vendor) = (Place::new(), Vendor::new(""));
    let config = format!("[models.echo]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\n", vendor.url());
    place.write("segue.toml", &config);
    run_permissive(&place, &["send", "--record", "cassette.jsonl", "hello"]);
    let mode = std::fs::metadata(place.path().join("cassette.jsonl")).expect("recorded").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_folder_that_exists_keeps_its_mode() {
    let place = Place::new();
    place.write("echo.toml", ECHO);
    let folder = place.path().join("shared");
    std::fs::create_dir(&folder).expect("created");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o750)).expect("changed");
    run_permissive(&place, &["send", "--store", "shared/team.db", "--script", "echo.toml", "hello"]);
    assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o750);
    assert_private(&folder, &["team.db"]);
}
