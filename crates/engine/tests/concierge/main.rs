//! The concierge flow in a real engine, by its public door alone, with a scripted model: the checkpoints of its source, what goes
//! wrong in practice, and what a dead process leaves behind. What models were shown is taken from receipts and rebuilt prompts.

mod checkpoints;
mod conversation;
mod deaths;
mod failures;
mod late;
mod once_more;
mod play;
mod settings;
