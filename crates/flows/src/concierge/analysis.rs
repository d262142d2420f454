//! The structural analysis: from a map to measures, a shape and how sure of it we are. A pure function: the same map and
//! the same number of answers give the same analysis, bit for bit, in whatever order claims and edges were written.
//! It says nothing in words; that is the [brief](super::brief)'s. An analysis is cheap and is computed again where it is
//! needed, rather than stored: only the map is worth keeping.
//!
//! # Terms, where there was room to decide
//!
//! - **Claims and edges.** Of several claims with one id, the least stands. Edges from a claim to itself or to a claim
//!   that does not exist count for nothing, an edge written twice counts once, and conflicts and tradeoffs have no
//!   direction. *n* is the number of claims, *m* of answers; supporters outside 1..=m count for nothing.
//! - **Degree** counts edges of all kinds, **out-degree** those that lead away: supports and prerequisites.
//! - **Top and bottom p %** of n: the ⌈p·n⌉-th value is the mark, and all that equal it belong too; nobody is left out
//!   because of its id. *High support* takes at least one supporter. *Low support* is the bottom 30 % without those of
//!   high support: where support is even, nothing is low.
//! - **Root of a chain**: has an outgoing prerequisite and no incoming one. In a circle nothing comes first.
//! - **Longest chain**: counted in claims, over prerequisites; claims that need each other count as one. A chain has at
//!   least two links; without one, the depth is 0.
//! - **Transitive dependents** of a claim: all others that can be reached from it over prerequisites.
//!   A claim without supporter is taken to have one when dependents are divided by supporters.
//! - **Keystone** claims must have a product above 0, beside the two conditions on their out-degree.
//! - **Components** hang together by edges of any kind. The **density** of one is the share of its pairs of claims that
//!   have an edge; that of a lone claim is 0. Its **support** is the mean support ratio of its claims. *Local coherence* is
//!   0 if no component has two claims. The *mean density* of disconnected consensus is over all components, lone
//!   claims included: they are what is not connected.
//! - **Alignment** is over edges with both ends of high support; supports and prerequisites reinforce.
//! - **Normalised support** is relative to the claim with most supporters; the variance is that of the whole population.
//! - **Dominance** of the hub is its out-degree over the runner-up's, without bound if the runner-up has none. The *keystone*
//!   shape looks at the largest out-degree, whether or not it makes a hub.
//! - A share of nothing is 0.
//! - **Ties** between shapes go to the earlier row; scores that differ by less than [`TIE`] are tied, since that is
//!   rounding.

mod graph;
mod metrics;
mod prerequisites;
mod shape;
mod tension;

use serde::Serialize;

pub(super) use graph::sorted_unique_claims;
pub use metrics::{ClaimComponent, ClaimMetrics, EvidenceGap, HubClaim, MapRatios, SupportLevel};
pub use shape::{MapShape, SCORE_TIE_TOLERANCE, ShapeScore};
pub use tension::{ClaimTension, MapFragility};

use super::claim_map::{ClaimId, ClaimMap};
use graph::ClaimGraph;

/// What a map amounts to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MapAnalysis {
    /// How many answers the map was made from.
    pub answers: u32,
    /// How many edges count.
    pub edge_count: usize,
    /// Whether these are enough to speak of a structure: at least two, and one for about every twelve claims.
    pub has_enough_edges: bool,
    /// Every claim with its measures, in the order of ids.
    pub claims: Vec<ClaimMetrics>,
    /// What holds for the map as a whole.
    pub ratios: MapRatios,
    /// The parts that hang together, by their first claim.
    pub components: Vec<ClaimComponent>,
    /// The longest chain of prerequisites, from what is needed to what needs it; a link of several claims is a circle.
    pub longest_chain: Vec<Vec<ClaimId>>,
    /// Claims that need each other.
    pub cycles: Vec<Vec<ClaimId>>,
    /// The one claim that far more leads away from than from any other.
    pub hub: Option<HubClaim>,
    /// Well-supported claims that several others need.
    pub keystones: Vec<ClaimId>,
    /// Claims that few hold and much hangs on, in the order of ids.
    pub leverage_inversions: Vec<ClaimId>,
    /// Claims that many others need and few hold, in the order of ids.
    pub evidence_gaps: Vec<EvidenceGap>,
    /// Conflicts and tradeoffs, in the order of ids.
    pub tensions: Vec<ClaimTension>,
    /// What could make the picture fall apart.
    pub fragility: MapFragility,
    /// How well each shape fits, in the order of [`Shape::ALL`].
    pub scores: Vec<ShapeScore>,
    /// The one that fits best.
    pub shape: MapShape,
    /// How sure of it we are, from .1 to 1.
    pub confidence: f64,
}

impl MapAnalysis {
    /// How well a shape fits.
    #[must_use]
    pub fn shape_score(&self, shape: MapShape) -> f64 {
        self.scores.iter().find(|score| score.shape == shape).map_or(0.0, |score| score.score)
    }

    /// A claim's measures.
    #[must_use]
    pub fn claim_metrics(&self, id: &ClaimId) -> Option<&ClaimMetrics> {
        let place = self.claims.binary_search_by(|claim| claim.id.cmp(id)).ok()?;
        self.claims.get(place)
    }
}

/// Analyses a map made from this many answers. Total: any map has an analysis, and no number in it is not a number.
#[must_use]
pub fn analyse_claim_map(map: &ClaimMap, answers: u32) -> MapAnalysis {
    let graph = ClaimGraph::from_claim_map(map, answers);
    let edges = graph.edges.len();
    let has_enough_edges = edges >= 2.max((8 * graph.len()).div_ceil(100));
    let measures = metrics::compute_map_metrics(&graph);
    let tensions = tension::find_tensions(&graph, &measures.claims);
    let ratios = metrics::compute_map_ratios(&graph, &measures, &tensions);
    let fragility = tension::assess_fragility(&measures, &tensions, &ratios, has_enough_edges);
    let scores = shape::score_shapes(&shape::ShapeInputs {
        ratios: &ratios,
        claim_count: graph.len(),
        component_count: measures.components.len(),
        conditional_claim_count: measures.claims.iter().filter(|claim| claim.is_conditional).count(),
        tensions: &tensions,
        top_out_degrees: measures.top_out_degrees,
        has_enough_edges,
    });
    let (shape, best, lead) = shape::pick_best_shape(&scores);
    let confidence = shape::shape_confidence(best, lead, ratios.signal, fragility.confidence_penalty());
    MapAnalysis {
        answers,
        edge_count: edges,
        has_enough_edges,
        claims: measures.claims,
        ratios,
        components: measures.components,
        longest_chain: measures.longest_chain,
        cycles: measures.cycles,
        hub: measures.hub,
        keystones: measures.keystones,
        leverage_inversions: measures.leverage_inversions,
        evidence_gaps: measures.evidence_gaps,
        tensions,
        fragility,
        scores,
        shape,
        confidence,
    }
}
