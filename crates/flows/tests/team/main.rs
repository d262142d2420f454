//! The team flow through its public API.

mod diffs;
mod knowledge;
mod stories;
