//! The parts of the concierge flow that are plain functions: from a mapper's reply to the brief.

mod analysis;
mod golden;
mod properties;
mod small;
