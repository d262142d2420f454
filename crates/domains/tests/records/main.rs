//! Tests of the records tool.

mod owners;
mod query;
mod repeated_runs;
mod support;
mod tables;
mod undo;
mod write;
