//! The limits of the developer tasks.

/// The longest load test.
pub(crate) const LOAD_MINUTES_MAX: u32 = 24 * 60;
