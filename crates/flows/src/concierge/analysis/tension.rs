//! Where claims pull apart, and what could make the whole picture fall apart.

use serde::Serialize;

use super::graph::Graph;
use super::measure::{Measured, Measures, Ratios, Support, number, share};
use crate::concierge::map::{ClaimId, EdgeKind};

/// A conflict or a tradeoff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tension {
    /// The claim with the lesser id.
    pub one: ClaimId,
    /// The other.
    pub other: ClaimId,
    /// Conflict or tradeoff.
    pub kind: EdgeKind,
    /// Whether it depends on something else: either end needs another claim or is of the conditional type.
    pub is_conditional: bool,
    /// Whether both ends have high support.
    pub is_between_high: bool,
}

/// What could make a picture fall apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fragility {
    /// Claims of low support without which others would no longer hang together.
    pub weak_joints: Vec<ClaimId>,
    /// How many conflicts are conditional.
    pub conditional_conflicts: usize,
    /// Whether there is agreement, and little that ties what is agreed on together.
    pub has_disconnected_consensus: bool,
}

impl Fragility {
    /// What all this takes from the confidence.
    #[must_use]
    pub fn penalty(&self) -> f64 {
        let joints = if self.weak_joints.is_empty() { 0.0 } else { 0.20 };
        let conflicts = (0.10 * number(self.conditional_conflicts)).min(0.20);
        let consensus = if self.has_disconnected_consensus { 0.15 } else { 0.0 };
        joints + conflicts + consensus
    }
}

/// All conflicts and tradeoffs.
pub(super) fn tensions(graph: &Graph<'_>, claims: &[Measured]) -> Vec<Tension> {
    let depends = |claim: &Measured| claim.prerequisites_in > 0 || claim.is_conditional;
    let tense = graph.edges.iter().filter(|edge| !edge.kind.is_reinforcing());
    tense
        .map(|edge| {
            let (one, other) = (&claims[edge.from], &claims[edge.to]);
            Tension {
                one: one.id.clone(),
                other: other.id.clone(),
                kind: edge.kind,
                is_conditional: depends(one) || depends(other),
                is_between_high: one.support == Support::High && other.support == Support::High,
            }
        })
        .collect()
}

/// What is fragile.
pub(super) fn fragility(
    measures: &Measures,
    tensions: &[Tension],
    ratios: &Ratios,
    has_enough_edges: bool,
) -> Fragility {
    let weak = measures.claims.iter().filter(|claim| claim.is_joint && claim.support == Support::Low);
    let conflicts = tensions.iter().filter(|tension| tension.kind == EdgeKind::Conflicts && tension.is_conditional);
    let densities = measures.components.iter().map(|component| component.density);
    let mean_density = share(densities.sum(), number(measures.components.len()));
    Fragility {
        weak_joints: weak.map(|claim| claim.id.clone()).collect(),
        conditional_conflicts: conflicts.count(),
        has_disconnected_consensus: ratios.concentration > 0.5 && has_enough_edges && mean_density < 0.2,
    }
}
