//! Every limit of this crate, in one place.
/// Rounds of fetching texts before one decision.
pub const FETCHES_MAX: u32 = 64;
