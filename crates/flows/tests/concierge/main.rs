//! The concierge flow: the parts that are plain functions, from a mapper's reply to the brief, and the whole of it, played on
//! a stage.

mod analysis;
mod brief;
mod by_hand;
mod checkpoints;
mod consent;
mod failures;
mod golden;
mod leaks;
mod map;
mod oracle;
mod page;
mod plans;
mod play;
mod properties;
mod quoting;
mod rows;
mod samples;
mod silence;
mod small;
mod stance;
mod wishes;
