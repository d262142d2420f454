//! Adds up the time spent in each phase.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::PhaseTransition;
use crate::ids::{PhaseName, UnixMillis};

/// The time spent in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseDuration {
    /// The milliseconds over all visits.
    pub ms: u64,
    pub visits: u32,
}

impl PhaseDuration {
    /// Returns how often the phase was entered again.
    #[must_use]
    pub fn revisits(&self) -> u32 {
        self.visits.saturating_sub(1)
    }
}

/// Returns the time spent in each phase from the start until `now`. Hand-offs within a phase do not count as visits.
#[must_use]
pub fn sum_phase_durations<'t>(
    (start, since): (&'t PhaseName, UnixMillis),
    transitions: impl IntoIterator<Item = (&'t PhaseTransition, UnixMillis)>,
    now: UnixMillis,
) -> BTreeMap<PhaseName, PhaseDuration> {
    let mut durations: BTreeMap<PhaseName, PhaseDuration> = BTreeMap::new();
    let mut add_visit = |phase: &PhaseName, ms: u64| {
        let duration = durations.entry(phase.clone()).or_default();
        duration.ms = duration.ms.saturating_add(ms);
        duration.visits = duration.visits.saturating_add(1);
    };
    let (mut current, mut since) = (start, since);
    for (transition, at) in transitions.into_iter().filter(|(transition, _)| transition.begins_visit()) {
        add_visit(current, at.ms_since(since));
        (current, since) = (&transition.to, at);
    }
    add_visit(current, now.ms_since(since));
    durations
}
