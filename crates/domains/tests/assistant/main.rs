//! The assistant in an engine, with a scripted model and real tables.

mod crashing;
mod forty_turns;
mod four_turns;
mod golden;
mod kitchen;
mod rehearsing;
