//! What the world outside the conversation says to the program: stop this, or leave.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, from the moment this is made.
#[derive(Debug)]
pub struct Interrupts {
    #[cfg(unix)]
    signal: Signal,
}

/// Requests to leave: the terminal was closed, or the machine goes down.
#[derive(Debug)]
pub struct Farewells {
    #[cfg(unix)]
    terminated: Signal,
    #[cfg(unix)]
    hung_up: Signal,
}

#[cfg(unix)]
impl Interrupts {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        self.signal.recv().await;
    }
}

#[cfg(unix)]
impl Farewells {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, hung_up: signal(SignalKind::hangup())? })
    }

    /// Waits for one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.hung_up.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Interrupts {
    /// Listens from now on.
    ///
    /// # Errors
    /// None here.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
impl Farewells {
    /// There are none here.
    ///
    /// # Errors
    /// None here.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for ever.
    pub async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}
