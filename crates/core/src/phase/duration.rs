//! What was spent in each phase, from a list of transitions and their times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::PhaseTransition;
use crate::ids::{PhaseName, UnixMillis};

/// What one phase took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseDuration {
    /// Milliseconds over all visits.
    pub ms: u64,
    /// How often it was entered.
    pub visits: u32,
}

impl PhaseDuration {
    /// How often it was entered again.
    #[must_use]
    pub fn revisits(&self) -> u32 {
        self.visits.saturating_sub(1)
    }
}

/// What each phase took, from entering `start` up to `now`. Hand-offs within a phase do not count as visits.
#[must_use]
pub fn sum_phase_durations<'t>(
    (start, since): (&'t PhaseName, UnixMillis),
    transitions: impl IntoIterator<Item = (&'t PhaseTransition, UnixMillis)>,
    now: UnixMillis,
) -> BTreeMap<PhaseName, PhaseDuration> {
    let mut spent: BTreeMap<PhaseName, PhaseDuration> = BTreeMap::new();
    let mut leave = |phase: &PhaseName, ms: u64| {
        let spent = spent.entry(phase.clone()).or_default();
        spent.ms = spent.ms.saturating_add(ms);
        spent.visits = spent.visits.saturating_add(1);
    };
    let (mut current, mut since) = (start, since);
    for (transition, at) in transitions.into_iter().filter(|(transition, _)| transition.begins_visit()) {
        leave(current, at.ms_since(since));
        (current, since) = (&transition.to, at);
    }
    leave(current, now.ms_since(since));
    spent
}
