//! The tools of a server as a domain, against real servers.

mod calling;
mod notes;
mod styles;
mod talking;
