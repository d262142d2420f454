//! Finds the tensions between claims and the weak points of a map.

use serde::Serialize;

use super::graph::ClaimGraph;
use super::metrics::{ClaimMapMetrics, ClaimMapRatios, ClaimMetrics, ClaimSupportLevel, count_to_f64, ratio_or_zero};
use crate::concierge::claim_map::{ClaimEdgeKind, ClaimId};

/// A conflict or a tradeoff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimTension {
    /// The claim with the smaller id.
    pub one: ClaimId,
    pub other: ClaimId,
    pub kind: ClaimEdgeKind,
    /// Whether either claim is conditional or has a prerequisite.
    pub is_conditional: bool,
    /// Whether both claims have high support.
    pub is_between_high_support: bool,
}

/// The weak points of a map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimMapFragility {
    /// Claims with low support whose removal would disconnect others.
    pub weak_articulation_points: Vec<ClaimId>,
    /// The number of conditional conflicts.
    pub conditional_conflicts: usize,
    /// Whether there is agreement without connections between the shared claims.
    pub has_disconnected_consensus: bool,
}

impl ClaimMapFragility {
    /// Returns the amount by which the confidence is reduced.
    #[must_use]
    pub fn confidence_penalty(&self) -> f64 {
        let weak_points = if self.weak_articulation_points.is_empty() { 0.0 } else { 0.20 };
        let conflicts = (0.10 * count_to_f64(self.conditional_conflicts)).min(0.20);
        let consensus = if self.has_disconnected_consensus { 0.15 } else { 0.0 };
        weak_points + conflicts + consensus
    }
}

/// Returns all conflicts and tradeoffs.
pub(super) fn find_tensions(graph: &ClaimGraph<'_>, claims: &[ClaimMetrics]) -> Vec<ClaimTension> {
    let is_conditional = |claim: &ClaimMetrics| claim.prerequisites_in > 0 || claim.is_conditional;
    let tense = graph.edges.iter().filter(|edge| !edge.kind.is_reinforcing());
    tense
        .map(|edge| {
            let (one, other) = (&claims[edge.from], &claims[edge.to]);
            ClaimTension {
                one: one.id.clone(),
                other: other.id.clone(),
                kind: edge.kind,
                is_conditional: is_conditional(one) || is_conditional(other),
                is_between_high_support: one.support == ClaimSupportLevel::High
                    && other.support == ClaimSupportLevel::High,
            }
        })
        .collect()
}

/// Computes the weak points of a map.
pub(super) fn assess_fragility(
    metrics: &ClaimMapMetrics,
    tensions: &[ClaimTension],
    ratios: &ClaimMapRatios,
    has_enough_edges: bool,
) -> ClaimMapFragility {
    let weak =
        metrics.claims.iter().filter(|claim| claim.is_articulation_point && claim.support == ClaimSupportLevel::Low);
    let conflicts =
        tensions.iter().filter(|tension| tension.kind == ClaimEdgeKind::Conflicts && tension.is_conditional);
    let densities = metrics.components.iter().map(|component| component.density);
    let mean_density = ratio_or_zero(densities.sum(), count_to_f64(metrics.components.len()));
    ClaimMapFragility {
        weak_articulation_points: weak.map(|claim| claim.id.clone()).collect(),
        conditional_conflicts: conflicts.count(),
        has_disconnected_consensus: ratios.concentration > 0.5 && has_enough_edges && mean_density < 0.2,
    }
}
