//! A client's connection with timeouts that hyper does not have: for the first bytes, from which the HTTP version is
//! detected, and for a client that does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// The first bytes of an HTTP/2 connection. hyper waits for all of them as long as the bytes match.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that fails if the client does not send a first request, or does not read, for too long.
#[derive(Debug)]
pub(crate) struct TimeoutTcpStream {
    stream: TcpStream,
    /// Runs until the HTTP version is known; then hyper's own timeouts apply.
    first_bytes_timer: Option<Pin<Box<Sleep>>>,
    preface_bytes_read: usize,
    stall_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl TimeoutTcpStream {
    pub(crate) fn new(stream: TcpStream, first_bytes_timeout: Duration, stall_timeout: Duration) -> Self {
        Self {
            stream,
            first_bytes_timer: Some(Box::pin(tokio::time::sleep(first_bytes_timeout))),
            preface_bytes_read: 0,
            stall_timeout,
            stall_timer: None,
        }
    }

    /// Stops the timer of the first bytes if the HTTP version is known after these bytes.
    fn update_first_byte_timer(&mut self, bytes: &[u8]) {
        let rest = &HTTP2_PREFACE[self.preface_bytes_read..];
        if !bytes.is_empty() && (bytes.len() >= rest.len() || !rest.starts_with(bytes)) {
            self.first_bytes_timer = None;
        } else {
            self.preface_bytes_read += bytes.len();
        }
    }

    fn poll_with_stall_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stall_timer = None;
            return poll;
        }
        let stall_timeout = self.stall_timeout;
        let stall_timer = self.stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_timeout)));
        match stall_timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                let stall_ms_max = stall_timeout.as_millis();
                tracing::warn!(stall_ms_max, "a client did not read for too long and was disconnected");
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for TimeoutTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled_before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(timer) = self.first_bytes_timer.as_mut() else { return poll };
        if poll.is_pending() && timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.update_first_byte_timer(&buffer.filled()[filled_before..]);
        poll
    }
}

impl AsyncWrite for TimeoutTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.poll_with_stall_timeout(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
