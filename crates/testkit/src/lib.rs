//! For development only: a stage on which a flow is played step by step, without an engine, a clock or a model.

mod stage;
mod words;

pub use stage::{MODEL, Stage};
pub use words::Words;
