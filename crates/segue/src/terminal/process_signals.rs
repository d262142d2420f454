//! What the world outside the conversation says to the program: stop this, or leave.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, from the moment this is made.
#[derive(Debug)]
pub struct InterruptSignal {
    #[cfg(unix)]
    signal: Signal,
}

/// Requests to leave: the terminal was closed, or the machine goes down.
#[derive(Debug)]
pub struct ShutdownSignal {
    #[cfg(unix)]
    terminated: Signal,
    #[cfg(unix)]
    hangup: Signal,
}

#[cfg(unix)]
impl InterruptSignal {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        self.signal.recv().await;
    }
}

#[cfg(unix)]
impl ShutdownSignal {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for one.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl InterruptSignal {
    /// Listens from now on.
    ///
    /// # Errors
    /// None here.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
impl ShutdownSignal {
    /// There are none here.
    ///
    /// # Errors
    /// None here.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for ever.
    pub async fn recv(&mut self) {
        std::future::pending::<()>().await;
    }
}
