//! The eight shapes a map can have, how well each fits, and how sure one can be of the best.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::measure::{Ratios, number, share};
use super::tension::Tension;
use crate::concierge::map::EdgeKind;

/// Scores closer than this are tied.
pub const TIE: f64 = 1e-9;

/// What a map looks like as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Nearly all agree.
    Settled,
    /// One thing comes after the other.
    Linear,
    /// Much rests on one position.
    Keystone,
    /// Strong positions exclude each other.
    Contested,
    /// One good is bought with another.
    Tradeoff,
    /// Several sides, each coherent in itself.
    Dimensional,
    /// Little is held in common yet.
    Exploratory,
    /// It depends on circumstances.
    Contextual,
}

impl Shape {
    /// All of them; of shapes that fit equally well, the earlier is taken.
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

    /// Its name, as handovers and templates have it.
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

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How well a shape fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// Which shape.
    pub shape: Shape,
    /// From 0 to 1.
    pub score: f64,
}

/// What the scores are made of.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) ratios: &'a Ratios,
    pub(super) claims: usize,
    pub(super) components: usize,
    pub(super) conditional_claims: usize,
    pub(super) tensions: &'a [Tension],
    /// The two largest.
    pub(super) out_degrees: (u32, u32),
    pub(super) has_enough_edges: bool,
}

/// How well each shape fits.
pub(super) fn scores(evidence: &Evidence<'_>) -> Vec<Score> {
    let score = |shape| Score { shape, score: score(shape, evidence).clamp(0.0, 1.0) };
    Shape::ALL.into_iter().map(score).collect()
}

fn score(shape: Shape, evidence: &Evidence<'_>) -> f64 {
    let Ratios { concentration: c, alignment: a, tension: t, fragmentation: f, depth: d, coherence: l, .. } =
        *evidence.ratios;
    let count = |is: &dyn Fn(&&Tension) -> bool| evidence.tensions.iter().filter(is).count();
    let is_conflict = |tension: &Tension| tension.kind == EdgeKind::Conflicts;
    let hard = |tension: &Tension| is_conflict(tension) && !tension.is_conditional;
    let conflicts = count(&|it| is_conflict(it));
    let tradeoffs = evidence.tensions.len() - conflicts;
    match shape {
        Shape::Settled => 0.40 * c + 0.30 * a + 0.20 * (1.0 - t) + 0.10 * l,
        Shape::Linear => 0.50 * d + 0.30 * one_if(evidence.has_enough_edges) + 0.20 * (1.0 - f),
        Shape::Keystone => {
            let reach = share(f64::from(evidence.out_degrees.0), number(evidence.claims));
            0.50 * dominance(evidence) + 0.30 * reach + 0.20 * c
        }
        Shape::Contested => {
            0.40 * one_if(count(&|it| hard(it) && it.is_between_high) > 0)
                + 0.30 * t
                + 0.20 * (1.0 - a)
                + 0.10 * one_if(count(&|it| hard(it)) > 0)
        }
        Shape::Tradeoff => {
            0.35 * one_if(tradeoffs > 0) + 0.30 * t + 0.25 * (1.0 - c) + 0.10 * one_if(tradeoffs > conflicts)
        }
        Shape::Dimensional => {
            let has_sides = evidence.components > 1 && 2 * evidence.components < evidence.claims;
            0.35 * l + 0.25 * d + 0.20 * a + 0.20 * one_if(has_sides)
        }
        Shape::Exploratory => {
            0.35 * (1.0 - l) + 0.30 * (1.0 - c) + 0.20 * one_if(!evidence.has_enough_edges) + 0.15 * one_if(t < 0.15)
        }
        Shape::Contextual => {
            let conditional = share(number(evidence.conditional_claims), number(evidence.claims));
            let depending = share(number(count(&|it| it.is_conditional)), number(evidence.tensions.len()));
            0.45 * conditional + 0.35 * depending + 0.20 * (1.0 - a)
        }
    }
}

/// h: how far the claim with the largest out-degree stands out.
fn dominance(evidence: &Evidence<'_>) -> f64 {
    let (largest, runner_up) = evidence.out_degrees;
    let enough = 2.max(evidence.claims.div_ceil(10));
    match runner_up {
        _ if (largest as usize) < enough => 0.0,
        0 => 1.0,
        runner_up => ((f64::from(largest) / f64::from(runner_up) - 1.0) / 2.0).clamp(0.0, 1.0),
    }
}

/// The shape that fits best, its score, and its lead over the next.
pub(super) fn pick(scores: &[Score]) -> (Shape, f64, f64) {
    let mut best = Score { shape: Shape::Settled, score: f64::NEG_INFINITY };
    for score in scores {
        if score.score > best.score + TIE {
            best = *score;
        }
    }
    let others = scores.iter().filter(|score| score.shape != best.shape);
    let next = others.map(|score| score.score).fold(0.0, f64::max);
    (best.shape, best.score, (best.score - next).max(0.0))
}

/// How sure one can be of a shape.
pub(super) fn confidence(best: f64, lead: f64, signal: f64, fragility: f64) -> f64 {
    let base = if best < 0.20 { 0.15 } else { 0.35 + 0.4 * lead + 0.25 * best };
    (base - 0.3 * (1.0 - signal) - fragility).clamp(0.10, 1.0)
}

fn one_if(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}
