//! Clients that only take: streams that must be complete, sockets that send nothing, and readers that hardly read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use super::{BIG_SESSION, LoadState};

/// What a slow reader reads at a time, and how rarely.
const SLOW_READ_BYTES: usize = 512;
const SLOW_READ_PAUSE: Duration = Duration::from_millis(500);
/// So that the network buffers little for a reader that does not read.
const RECEIVE_BUFFER_BYTES: u32 = 4_096;
/// After this time the server has closed a connection that is not read.
const UNREAD_CONNECTION_TIME: Duration = Duration::from_secs(40);
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// What the followers saw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FollowerReport {
    pub events: u64,
    pub connections: u64,
}

impl FollowerReport {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.connections += other.connections;
    }
}

/// Follows a session until it has the last event, which `end` tells when there will be no more. Every event must arrive once
/// and in order.
pub(crate) async fn run_follower(port: u16, session: String, mut end: watch::Receiver<Option<u64>>) -> FollowerReport {
    let mut report = FollowerReport::default();
    while end.borrow().is_none_or(|last| report.events < last) {
        report.connections += 1;
        if follow_connection(port, &session, &mut report, &mut end).await.is_err() {
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }
    assert_eq!(Some(report.events), *end.borrow(), "{session} has fewer events than were streamed");
    report
}

async fn follow_connection(
    port: u16,
    session: &str,
    report: &mut FollowerReport,
    end: &mut watch::Receiver<Option<u64>>,
) -> io::Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let last = report.events;
    // With HTTP/1.0 the lines are not cut into chunks.
    let ask = format!(
        "GET /v1/sessions/{session}/events?texts=none HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n\
         last-event-id: {last}\r\n\r\n"
    );
    socket.write_all(ask.as_bytes()).await?;
    let mut lines = BufReader::new(socket).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            changed = end.changed() => {
                if changed.is_err() {
                    // The test has failed and drops its tasks.
                    return Ok(());
                }
                if end.borrow().is_some_and(|last| report.events >= last) {
                    return Ok(());
                }
                continue;
            }
        };
        let Some(line) = line else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
        // Only events of the journal have a sequence number of their own.
        let Some(seq) = data.filter(|data| data["event"].is_object()).and_then(|data| data["seq"].as_u64()) else {
            continue;
        };
        assert_eq!(seq, report.events + 1, "a stream of {session} has a gap or a repetition");
        report.events = seq;
        if end.borrow().is_some_and(|last| report.events >= last) {
            return Ok(());
        }
    }
}

/// Opens connections that send nothing, or only a part of a request, and waits until the server closes each.
pub(crate) async fn run_silent_socket(number: usize, state: Arc<LoadState>) {
    while !state.is_over() {
        // The server may have no room for it now.
        if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", state.port)).await {
            state.silent_sockets_opened.fetch_add(1, Ordering::AcqRel);
            let part: &[u8] = if number.is_multiple_of(2) { b"" } else { b"GET /v1/sessions HTTP/1.1\r\nhost: loc" };
            // Either way the server closes the connection.
            let _ = socket.write_all(part).await;
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer).await;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Requests an export or a stream of the big session and reads it slowly, or not at all.
pub(crate) async fn run_slow_reader(number: usize, state: Arc<LoadState>) {
    while !state.is_over() {
        // The server closes the connection of a client that reads too slowly.
        let _ = read_slowly(number, &state).await;
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn read_slowly(number: usize, state: &LoadState) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    let mut socket = socket.connect(([127, 0, 0, 1], state.port).into()).await?;
    state.slow_reads_begun.fetch_add(1, Ordering::AcqRel);
    let (path, accept) = match number % 4 {
        0 | 1 => ("export", "*/*"),
        _ => ("events?texts=all", "text/event-stream"),
    };
    let ask = format!("GET /v1/sessions/{BIG_SESSION}/{path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
    socket.write_all(ask.as_bytes()).await?;
    let reads_something = number.is_multiple_of(2);
    let mut buffer = [0; SLOW_READ_BYTES];
    let connected = Instant::now();
    while !state.is_over() && (reads_something || connected.elapsed() < UNREAD_CONNECTION_TIME) {
        if reads_something && socket.read(&mut buffer).await? == 0 {
            return Ok(());
        }
        tokio::time::sleep(SLOW_READ_PAUSE).await;
    }
    Ok(())
}
