//! Decides what happens next in a conversation, and what a model is shown.
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, no I/O, no words for models. Time, ids and
//! token counts come in; events and prompts go out.

pub mod body;
pub mod codec;
pub mod context;
pub mod decide;
pub mod diff;
pub mod event;
pub mod flow;
pub mod handover;
pub mod ids;
pub mod ledger;
pub mod limits;
pub mod phase;
pub mod prompt;
pub mod scope;
pub mod session;
pub mod signal;
pub mod thread;
pub mod token_ratio;
