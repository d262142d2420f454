//! The program as a server: over sockets, and through its own death.

mod chat;
mod crash;
mod keys;
mod place;
