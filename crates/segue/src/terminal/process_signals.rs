//! Signals to the process: Ctrl-C, and requests to terminate.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives Ctrl-C from the moment it is created.
#[derive(Debug)]
pub(crate) struct InterruptSignalListener {
    #[cfg(unix)]
    signal: Signal,
}

/// Receives SIGTERM and SIGHUP.
#[derive(Debug)]
pub(crate) struct ShutdownSignalReceiver {
    #[cfg(unix)]
    terminated: Signal,
    #[cfg(unix)]
    hangup: Signal,
}

#[cfg(unix)]
impl InterruptSignalListener {
    /// Installs the signal handler.
    ///
    /// # Errors
    /// Returns an error if the handler cannot be installed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next Ctrl-C.
    pub(crate) async fn recv(&mut self) {
        self.signal.recv().await;
    }
}

#[cfg(unix)]
impl ShutdownSignalReceiver {
    /// Installs the signal handler.
    ///
    /// # Errors
    /// Returns an error if the handler cannot be installed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the next request to terminate.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl InterruptSignalListener {
    /// Does nothing on this platform.
    ///
    /// # Errors
    /// Never fails on this platform.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next Ctrl-C.
    pub(crate) async fn recv(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
impl ShutdownSignalReceiver {
    /// Does nothing on this platform.
    ///
    /// # Errors
    /// Never fails on this platform.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Never returns on this platform.
    pub(crate) async fn recv(&mut self) {
        std::future::pending::<()>().await;
    }
}
