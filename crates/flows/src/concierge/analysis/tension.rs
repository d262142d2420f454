//! Where claims pull apart, and what could make the whole picture fall apart.

use serde::Serialize;

use super::graph::ClaimGraph;
use super::metrics::{ClaimMetrics, MapMetrics, MapRatios, SupportLevel, count_to_f64, ratio_or_zero};
use crate::concierge::claim_map::{ClaimEdgeKind, ClaimId};

/// A conflict or a tradeoff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimTension {
    /// The claim with the lesser id.
    pub one: ClaimId,
    /// The other.
    pub other: ClaimId,
    /// Conflict or tradeoff.
    pub kind: ClaimEdgeKind,
    /// Whether it depends on something else: either end needs another claim or is of the conditional type.
    pub is_conditional: bool,
    /// Whether both ends have high support.
    pub is_between_high_support: bool,
}

/// What could make a picture fall apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MapFragility {
    /// Claims of low support without which others would no longer hang together.
    pub weak_articulation_points: Vec<ClaimId>,
    /// How many conflicts are conditional.
    pub conditional_conflicts: usize,
    /// Whether there is agreement, and little that ties what is agreed on together.
    pub has_disconnected_consensus: bool,
}

impl MapFragility {
    /// What all this takes from the confidence.
    #[must_use]
    pub fn confidence_penalty(&self) -> f64 {
        let joints = if self.weak_articulation_points.is_empty() { 0.0 } else { 0.20 };
        let conflicts = (0.10 * count_to_f64(self.conditional_conflicts)).min(0.20);
        let consensus = if self.has_disconnected_consensus { 0.15 } else { 0.0 };
        joints + conflicts + consensus
    }
}

/// All conflicts and tradeoffs.
pub(super) fn find_tensions(graph: &ClaimGraph<'_>, claims: &[ClaimMetrics]) -> Vec<ClaimTension> {
    let depends = |claim: &ClaimMetrics| claim.prerequisites_in > 0 || claim.is_conditional;
    let tense = graph.edges.iter().filter(|edge| !edge.kind.is_reinforcing());
    tense
        .map(|edge| {
            let (one, other) = (&claims[edge.from], &claims[edge.to]);
            ClaimTension {
                one: one.id.clone(),
                other: other.id.clone(),
                kind: edge.kind,
                is_conditional: depends(one) || depends(other),
                is_between_high_support: one.support == SupportLevel::High && other.support == SupportLevel::High,
            }
        })
        .collect()
}

/// What is fragile.
pub(super) fn assess_fragility(
    metrics: &MapMetrics,
    tensions: &[ClaimTension],
    ratios: &MapRatios,
    has_enough_edges: bool,
) -> MapFragility {
    let weak = metrics.claims.iter().filter(|claim| claim.is_articulation_point && claim.support == SupportLevel::Low);
    let conflicts =
        tensions.iter().filter(|tension| tension.kind == ClaimEdgeKind::Conflicts && tension.is_conditional);
    let densities = metrics.components.iter().map(|component| component.density);
    let mean_density = ratio_or_zero(densities.sum(), count_to_f64(metrics.components.len()));
    MapFragility {
        weak_articulation_points: weak.map(|claim| claim.id.clone()).collect(),
        conditional_conflicts: conflicts.count(),
        has_disconnected_consensus: ratios.concentration > 0.5 && has_enough_edges && mean_density < 0.2,
    }
}
