//! The concierge flow in a real engine with a scripted model, through the engine's public interface: the checkpoints of
//! its specification, failures, and crashes. Prompts are checked by receipts and by rebuilding them from the journal.

mod checkpoints;
mod conversation;
mod crashes;
mod failures;
mod harness;
mod late_answers;
mod recompute;
mod settings;
