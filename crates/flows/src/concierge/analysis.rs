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
mod measure;
mod order;
mod shape;
mod tension;

use serde::Serialize;

pub(super) use graph::distinct;
pub use measure::{Component, EvidenceGap, Hub, Measured, Ratios, Support};
pub use shape::{Score, Shape, TIE};
pub use tension::{Fragility, Tension};

use super::map::{ClaimId, Map};
use graph::Graph;

/// What a map amounts to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// How many answers the map was made from.
    pub answers: u32,
    /// How many edges count.
    pub edges: usize,
    /// Whether these are enough to speak of a structure: at least two, and one for about every twelve claims.
    pub has_enough_edges: bool,
    /// Every claim with its measures, in the order of ids.
    pub claims: Vec<Measured>,
    /// What holds for the map as a whole.
    pub ratios: Ratios,
    /// The parts that hang together, by their first claim.
    pub components: Vec<Component>,
    /// The longest chain of prerequisites, from what is needed to what needs it; a link of several claims is a circle.
    pub chain: Vec<Vec<ClaimId>>,
    /// Claims that need each other.
    pub circles: Vec<Vec<ClaimId>>,
    /// The one claim that far more leads away from than from any other.
    pub hub: Option<Hub>,
    /// Well-supported claims that several others need.
    pub keystones: Vec<ClaimId>,
    /// Claims that few hold and much hangs on, in the order of ids.
    pub leverage_inversions: Vec<ClaimId>,
    /// Claims that many others need and few hold, in the order of ids.
    pub evidence_gaps: Vec<EvidenceGap>,
    /// Conflicts and tradeoffs, in the order of ids.
    pub tensions: Vec<Tension>,
    /// What could make the picture fall apart.
    pub fragility: Fragility,
    /// How well each shape fits, in the order of [`Shape::ALL`].
    pub scores: Vec<Score>,
    /// The one that fits best.
    pub shape: Shape,
    /// How sure of it we are, from .1 to 1.
    pub confidence: f64,
}

impl Analysis {
    /// How well a shape fits.
    #[must_use]
    pub fn score(&self, shape: Shape) -> f64 {
        self.scores.iter().find(|score| score.shape == shape).map_or(0.0, |score| score.score)
    }

    /// A claim's measures.
    #[must_use]
    pub fn claim(&self, id: &ClaimId) -> Option<&Measured> {
        let place = self.claims.binary_search_by(|claim| claim.id.cmp(id)).ok()?;
        self.claims.get(place)
    }
}

/// Analyses a map made from this many answers. Total: any map has an analysis, and no number in it is not a number.
#[must_use]
pub fn analyse(map: &Map, answers: u32) -> Analysis {
    let graph = Graph::of(map, answers);
    let edges = graph.edges.len();
    let has_enough_edges = edges >= 2.max((8 * graph.len()).div_ceil(100));
    let measures = measure::measure(&graph);
    let tensions = tension::tensions(&graph, &measures.claims);
    let ratios = measure::ratios(&graph, &measures, &tensions);
    let fragility = tension::fragility(&measures, &tensions, &ratios, has_enough_edges);
    let scores = shape::scores(&shape::Evidence {
        ratios: &ratios,
        claims: graph.len(),
        components: measures.components.len(),
        conditional_claims: measures.claims.iter().filter(|claim| claim.is_conditional).count(),
        tensions: &tensions,
        out_degrees: measures.out_degrees,
        has_enough_edges,
    });
    let (shape, best, lead) = shape::pick(&scores);
    let confidence = shape::confidence(best, lead, ratios.signal, fragility.penalty());
    Analysis {
        answers,
        edges,
        has_enough_edges,
        claims: measures.claims,
        ratios,
        components: measures.components,
        chain: measures.chain,
        circles: measures.circles,
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
