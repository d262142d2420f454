//! The structural analysis: computes metrics, a shape and a confidence from a claim map. It is a pure function: the same
//! map and number of answers give the same analysis, bit for bit, in whatever order claims and edges were written. The
//! [brief](super::brief) puts it into words. An analysis is cheap, so it is computed when needed; only the map is stored.
//!
//! # Definitions
//!
//! - **Claims and edges.** Of several claims with one id, the least is used. Edges from a claim to itself or to an unknown
//!   claim are ignored, a duplicate edge counts once, and conflicts and tradeoffs are undirected. *n* is the number of
//!   claims, *m* the number of answers; supporters outside 1..=m are ignored.
//! - **Degree** counts edges of all kinds, **out-degree** those that lead away: supports and prerequisites.
//! - **Top and bottom p %** of n: the ⌈p·n⌉-th value is the threshold, and all equal values belong too, so ids never
//!   decide. *High support* needs at least one supporter. *Low support* is the bottom 30 % without those of high support:
//!   if all support is equal, none is low.
//! - **Root of a chain**: a claim with an outgoing prerequisite and no incoming one. A cycle has no root.
//! - **Longest chain**: counted in claims, over prerequisites; the claims of a cycle count as one. A chain has at least two
//!   links; without one, the depth is 0.
//! - **Transitive dependents** of a claim: all other claims reachable from it over prerequisites. When dependents are
//!   divided by supporters, a claim without supporters counts as having one.
//! - **Keystone** claims must have a product above 0, in addition to the two conditions on their out-degree.
//! - **Components** are connected by edges of any kind. The **density** of a component is the share of its claim pairs that
//!   have an edge; that of a single claim is 0. Its **support** is the mean support ratio of its claims. *Local coherence*
//!   is 0 if no component has two claims. The *mean density* of disconnected consensus includes components of one claim.
//! - **Alignment** is over edges with both ends of high support; supports and prerequisites reinforce.
//! - **Normalised support** is relative to the claim with most supporters; the variance is that of the whole population.
//! - **Dominance** of the hub is its out-degree divided by the runner-up's; it is unbounded if the runner-up has none. The
//!   *keystone* shape uses the largest out-degree, whether or not that claim is a hub.
//! - A ratio with a zero denominator is 0.
//! - **Ties** between shapes go to the earlier shape; scores that differ by less than [`SCORE_TIE_TOLERANCE`] are tied.

mod graph;
mod metrics;
mod prerequisites;
mod shape;
mod tension;

use serde::Serialize;

pub(super) use graph::sorted_unique_claims;
pub use metrics::{
    ClaimCluster, ClaimMapRatios, ClaimMetrics, ClaimSupportLevel, MostConnectedClaim, WeaklySupportedKeyClaim,
};
pub use shape::{ClaimMapShape, SCORE_TIE_TOLERANCE, ScoredClaimMapShape};
pub use tension::{ClaimMapFragility, ClaimTension};

use super::claim_map::{ClaimId, ClaimMap};
use graph::ClaimGraph;

/// The result of analysing a claim map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimMapAnalysis {
    /// The number of mapped answers.
    pub answers: u32,
    /// The number of distinct valid edges.
    pub edge_count: usize,
    /// Whether there are enough edges for a structure: at least two, and one for about every twelve claims.
    pub has_enough_edges: bool,
    /// The metrics of each claim, sorted by id.
    pub claims: Vec<ClaimMetrics>,
    /// The ratios of the whole map.
    pub ratios: ClaimMapRatios,
    /// The connected components, sorted by their first claim.
    pub components: Vec<ClaimCluster>,
    /// The longest chain of prerequisites, from prerequisite to dependent. A link with several claims is a cycle.
    pub longest_chain: Vec<Vec<ClaimId>>,
    /// The cycles of prerequisites.
    pub cycles: Vec<Vec<ClaimId>>,
    /// The claim with by far the largest out-degree.
    pub hub: Option<MostConnectedClaim>,
    /// Well-supported claims that are a prerequisite of several others.
    pub keystones: Vec<ClaimId>,
    /// Claims with low support and high leverage, sorted by id.
    pub leverage_inversions: Vec<ClaimId>,
    /// Claims with many dependents and few supporters, sorted by id.
    pub evidence_gaps: Vec<WeaklySupportedKeyClaim>,
    /// Conflicts and tradeoffs, sorted by id.
    pub tensions: Vec<ClaimTension>,
    /// The weak points of the map.
    pub fragility: ClaimMapFragility,
    /// The score of each shape, in the order of [`ClaimMapShape::ALL`].
    pub scores: Vec<ScoredClaimMapShape>,
    /// The shape with the best score.
    pub shape: ClaimMapShape,
    /// The confidence in the shape, from 0.1 to 1.
    pub confidence: f64,
}

impl ClaimMapAnalysis {
    /// Returns the score of a shape.
    #[must_use]
    pub fn shape_score(&self, shape: ClaimMapShape) -> f64 {
        self.scores.iter().find(|score| score.shape == shape).map_or(0.0, |score| score.score)
    }

    /// Returns the metrics of a claim.
    #[must_use]
    pub fn claim_metrics(&self, id: &ClaimId) -> Option<&ClaimMetrics> {
        let index = self.claims.binary_search_by(|claim| claim.id.cmp(id)).ok()?;
        self.claims.get(index)
    }
}

/// Analyses a map of `answers` answers. Every map has an analysis, and none of its numbers is NaN.
#[must_use]
pub fn analyse_claim_map(map: &ClaimMap, answers: u32) -> ClaimMapAnalysis {
    let graph = ClaimGraph::from_claim_map(map, answers);
    let edges = graph.edges.len();
    let has_enough_edges = edges >= 2.max((8 * graph.len()).div_ceil(100));
    let metrics = metrics::compute_map_metrics(&graph);
    let tensions = tension::find_tensions(&graph, &metrics.claims);
    let ratios = metrics::compute_map_ratios(&graph, &metrics, &tensions);
    let fragility = tension::assess_fragility(&metrics, &tensions, &ratios, has_enough_edges);
    let scores = shape::score_shapes(&shape::ClaimMapShapeInputs {
        ratios: &ratios,
        claim_count: graph.len(),
        component_count: metrics.components.len(),
        conditional_claim_count: metrics.claims.iter().filter(|claim| claim.is_conditional).count(),
        tensions: &tensions,
        top_out_degrees: metrics.top_out_degrees,
        has_enough_edges,
    });
    let (shape, best, lead) = shape::pick_best_shape(&scores);
    let confidence = shape::shape_confidence(best, lead, ratios.signal, fragility.confidence_penalty());
    ClaimMapAnalysis {
        answers,
        edge_count: edges,
        has_enough_edges,
        claims: metrics.claims,
        ratios,
        components: metrics.components,
        longest_chain: metrics.longest_chain,
        cycles: metrics.cycles,
        hub: metrics.hub,
        keystones: metrics.keystones,
        leverage_inversions: metrics.leverage_inversions,
        evidence_gaps: metrics.evidence_gaps,
        tensions,
        fragility,
        scores,
        shape,
        confidence,
    }
}
