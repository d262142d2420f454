//! Many models answer, one voice speaks: the parts of the concierge flow that are plain functions of their arguments.
//! What the mapper wrote becomes a [`map`], the map is put through the [`analysis`], the analysis becomes the [`brief`]
//! the concierge reads; the [`stance`] says how it speaks, and [`leaks`] finds machinery in what it said.

pub mod analysis;
pub mod brief;
pub mod leaks;
pub mod map;
pub mod stance;
mod words;
