//! The program as a server: over sockets, and through its own death.

mod crash;
mod keys;
mod place;
