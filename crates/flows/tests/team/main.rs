//! The team flow through its public API.

mod contamination;
mod contexts;
mod diffs;
mod injection;
mod knowledge;
mod lifecycle;
mod people;
mod stories;
mod support;
mod weak_models;
