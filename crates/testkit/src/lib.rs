//! For development only: a stage on which a flow is played step by step, without an engine, a clock or a model.

mod check;
mod puppet;
mod stage;
mod words;

pub use puppet::Puppet;
pub use stage::{MODEL, Stage};
pub use words::{Shelf, Words};
