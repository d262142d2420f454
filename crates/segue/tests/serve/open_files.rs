//! A server has more connections than files that a process may usually open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::place::Place;

const SOFT_LIMIT: usize = 128;
const CONNECTIONS: usize = 300;
const STREAM_REQUEST: &[u8] =
    b"GET /v1/stream?changes=true HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
/// A server without free files does not answer at all.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn server_raises_the_limit_of_open_files() {
    let place = Place::rehearsed();
    let script = format!("ulimit -S -n {SOFT_LIMIT} && exec \"$0\" serve --port 0");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_segue")])
        .env_clear()
        .envs([("HOME", place.path().as_os_str()), ("SEGUE_LOG", "off".as_ref())])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
    let port = line.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u16>().ok());
    let port = port.unwrap_or_else(|| panic!("no address in {line:?}"));
    // Ends with the first connection that gets no answer.
    let connections: Result<Vec<TcpStream>, String> = (0..CONNECTIONS).map(|_| ask(port)).collect();
    // It may have ended.
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(connections.map(|connections| connections.len()), Ok(CONNECTIONS));
}

/// Opens a stream of changes on a new connection. Returns the connection, which stays open.
fn ask(port: u16) -> Result<TcpStream, String> {
    let to_text = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).map_err(to_text)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(to_text)?;
    socket.write_all(STREAM_REQUEST).map_err(to_text)?;
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).map_err(to_text)?;
    if answer == *b"HTTP/1.1 200" { Ok(socket) } else { Err(String::from_utf8_lossy(&answer).into_owned()) }
}
