//! Tests of `segue chat` through its binary, in pipes and in a terminal.

#[cfg(unix)]
mod guide;
mod pipes;
#[cfg(unix)]
mod pty;
mod stage;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod trust;
