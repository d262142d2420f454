//! The assistant flow in an engine, with a scripted model and real tables.

mod crash_recovery;
mod forty_turns;
mod four_turns;
mod golden;
mod rehearsal;
mod support;
