//! `segue chat` as people and scripts meet it: through the program itself, in pipes and in a terminal.

#[cfg(unix)]
mod guide;
mod pipes;
#[cfg(unix)]
mod pty;
mod stage;
#[cfg(unix)]
mod terminal;
