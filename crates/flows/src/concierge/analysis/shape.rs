//! The eight shapes of a map, their scores, and the confidence in the best one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::metrics::{ClaimMapRatios, count_to_f64, ratio_or_zero};
use super::tension::ClaimTension;
use crate::concierge::claim_map::ClaimEdgeKind;

/// Scores closer than this are tied.
pub const SCORE_TIE_TOLERANCE: f64 = 1e-9;

/// The overall shape of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimMapShape {
    /// The answers mostly agree.
    Settled,
    /// The claims form a sequence.
    Linear,
    /// Many claims depend on one.
    Keystone,
    /// Strong claims exclude each other.
    Contested,
    /// More of one good means less of another.
    Tradeoff,
    /// There are several separate, coherent sides.
    Dimensional,
    /// There is little agreement yet.
    Exploratory,
    /// The answer depends on the situation.
    Contextual,
}

impl ClaimMapShape {
    /// All shapes. Of shapes with tied scores, the earlier one is chosen.
    pub const ALL: [Self; 8] = [
        Self::Settled,
        Self::Linear,
        Self::Keystone,
        Self::Contested,
        Self::Tradeoff,
        Self::Dimensional,
        Self::Exploratory,
        Self::Contextual,
    ];

    /// Returns the name that handovers and templates use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Linear => "linear",
            Self::Keystone => "keystone",
            Self::Contested => "contested",
            Self::Tradeoff => "tradeoff",
            Self::Dimensional => "dimensional",
            Self::Exploratory => "exploratory",
            Self::Contextual => "contextual",
        }
    }
}

impl fmt::Display for ClaimMapShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The score of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScoredClaimMapShape {
    pub shape: ClaimMapShape,
    /// From 0 to 1.
    pub score: f64,
}

/// The inputs of the scores.
#[derive(Debug)]
pub(super) struct ClaimMapShapeInputs<'a> {
    pub(super) ratios: &'a ClaimMapRatios,
    pub(super) claim_count: usize,
    pub(super) component_count: usize,
    pub(super) conditional_claim_count: usize,
    pub(super) tensions: &'a [ClaimTension],
    /// The two largest out-degrees.
    pub(super) top_out_degrees: (u32, u32),
    pub(super) has_enough_edges: bool,
}

/// Scores every shape.
pub(super) fn score_shapes(inputs: &ClaimMapShapeInputs<'_>) -> Vec<ScoredClaimMapShape> {
    let score = |shape| ScoredClaimMapShape { shape, score: score_shape(shape, inputs).clamp(0.0, 1.0) };
    ClaimMapShape::ALL.into_iter().map(score).collect()
}

fn score_shape(shape: ClaimMapShape, inputs: &ClaimMapShapeInputs<'_>) -> f64 {
    let ClaimMapRatios { concentration: c, alignment: a, tension: t, fragmentation: f, depth: d, coherence: l, .. } =
        *inputs.ratios;
    let count = |is: &dyn Fn(&&ClaimTension) -> bool| inputs.tensions.iter().filter(is).count();
    let is_conflict = |tension: &ClaimTension| tension.kind == ClaimEdgeKind::Conflicts;
    let hard = |tension: &ClaimTension| is_conflict(tension) && !tension.is_conditional;
    let conflicts = count(&|it| is_conflict(it));
    let tradeoffs = inputs.tensions.len() - conflicts;
    match shape {
        ClaimMapShape::Settled => 0.40 * c + 0.30 * a + 0.20 * (1.0 - t) + 0.10 * l,
        ClaimMapShape::Linear => 0.50 * d + 0.30 * bool_to_f64(inputs.has_enough_edges) + 0.20 * (1.0 - f),
        ClaimMapShape::Keystone => {
            let reach = ratio_or_zero(f64::from(inputs.top_out_degrees.0), count_to_f64(inputs.claim_count));
            0.50 * hub_dominance(inputs) + 0.30 * reach + 0.20 * c
        }
        ClaimMapShape::Contested => {
            0.40 * bool_to_f64(count(&|it| hard(it) && it.is_between_high_support) > 0)
                + 0.30 * t
                + 0.20 * (1.0 - a)
                + 0.10 * bool_to_f64(count(&|it| hard(it)) > 0)
        }
        ClaimMapShape::Tradeoff => {
            0.35 * bool_to_f64(tradeoffs > 0) + 0.30 * t + 0.25 * (1.0 - c) + 0.10 * bool_to_f64(tradeoffs > conflicts)
        }
        ClaimMapShape::Dimensional => {
            let has_sides = inputs.component_count > 1 && 2 * inputs.component_count < inputs.claim_count;
            0.35 * l + 0.25 * d + 0.20 * a + 0.20 * bool_to_f64(has_sides)
        }
        ClaimMapShape::Exploratory => {
            0.35 * (1.0 - l)
                + 0.30 * (1.0 - c)
                + 0.20 * bool_to_f64(!inputs.has_enough_edges)
                + 0.15 * bool_to_f64(t < 0.15)
        }
        ClaimMapShape::Contextual => {
            let conditional =
                ratio_or_zero(count_to_f64(inputs.conditional_claim_count), count_to_f64(inputs.claim_count));
            let depending =
                ratio_or_zero(count_to_f64(count(&|it| it.is_conditional)), count_to_f64(inputs.tensions.len()));
            0.45 * conditional + 0.35 * depending + 0.20 * (1.0 - a)
        }
    }
}

/// h: how far the largest out-degree exceeds the second largest.
fn hub_dominance(inputs: &ClaimMapShapeInputs<'_>) -> f64 {
    let (largest, runner_up) = inputs.top_out_degrees;
    let enough = 2.max(inputs.claim_count.div_ceil(10));
    match runner_up {
        _ if (largest as usize) < enough => 0.0,
        0 => 1.0,
        runner_up => ((f64::from(largest) / f64::from(runner_up) - 1.0) / 2.0).clamp(0.0, 1.0),
    }
}

/// Returns the shape with the best score, the score, and its lead over the next.
pub(super) fn pick_best_shape(scores: &[ScoredClaimMapShape]) -> (ClaimMapShape, f64, f64) {
    let mut best = ScoredClaimMapShape { shape: ClaimMapShape::Settled, score: f64::NEG_INFINITY };
    for score in scores {
        if score.score > best.score + SCORE_TIE_TOLERANCE {
            best = *score;
        }
    }
    let others = scores.iter().filter(|score| score.shape != best.shape);
    let next = others.map(|score| score.score).fold(0.0, f64::max);
    (best.shape, best.score, (best.score - next).max(0.0))
}

/// Computes the confidence in the best shape.
pub(super) fn shape_confidence(best_score: f64, lead: f64, signal: f64, fragility: f64) -> f64 {
    let base = if best_score < 0.20 { 0.15 } else { 0.35 + 0.4 * lead + 0.25 * best_score };
    (base - 0.3 * (1.0 - signal) - fragility).clamp(0.10, 1.0)
}

fn bool_to_f64(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}
