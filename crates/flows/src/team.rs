//! The team flow: a product manager, an architect and several coders build what a spec asks for.

pub mod diff;
pub mod knowledge;
pub mod path_pattern;
pub mod review;
pub mod story;
