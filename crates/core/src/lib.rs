//! Decides what happens next in a conversation, and what a model is shown.
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, no I/O, no words for models. Time, ids and
//! token counts come in; events and prompts go out.

pub mod body;
pub mod ids;
pub mod phase;
pub mod prompt;
pub mod signal;
