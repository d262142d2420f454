//! For development only: a stage on which a flow is played step by step, without an engine, a clock or a model.

mod check;
pub mod miniatures;
mod puppet;
mod stage;
mod transcript;
mod words;

pub use check::promises;
pub use puppet::Puppet;
pub use stage::{MODEL, Stage};
pub use transcript::spoken;
pub use words::{Shelf, Words};

/// The pages of the documentation whose examples run here.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/flows.md")]
    struct Flows;
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/phases.md")]
    struct Phases;
}
