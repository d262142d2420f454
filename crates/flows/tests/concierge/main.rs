//! The parts of the concierge flow that are plain functions: from a mapper's reply to the brief.

mod analysis;
mod brief;
mod golden;
mod leaks;
mod map;
mod properties;
mod small;
mod stance;
