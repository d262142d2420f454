//! Compares the analysis with an independent implementation: every formula as it was specified, as simple as possible and
//! without regard for speed. Both must agree on any map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use segue_flows::concierge::analysis::{ClaimMapAnalysis, ClaimMapShape, analyse_claim_map};
use segue_flows::concierge::claim_map::{ClaimEdgeKind, ClaimMap, ClaimNode, ClaimRoleInMap, ClaimStatementKind};

use super::properties::map;

/// The results of the formulas.
#[derive(Debug)]
struct Opinion {
    ids: Vec<String>,
    leverage: Vec<f64>,
    high: Vec<bool>,
    ratios: [f64; 7],
    scores: [f64; 8],
    confidence: f64,
    shape: ClaimMapShape,
    hub: Option<String>,
    keystones: Vec<String>,
    inversions: Vec<String>,
    evidence_gaps: Vec<String>,
}

/// A map as sets.
struct Plain {
    claims: BTreeMap<String, ClaimNode>,
    /// From, to, kind; undirected edges have the smaller id first.
    edges: BTreeSet<(String, String, ClaimEdgeKind)>,
    m: f64,
}

impl Plain {
    fn of(map: &ClaimMap, answers: u32) -> Self {
        let mut claims: BTreeMap<String, ClaimNode> = BTreeMap::new();
        for claim in &map.claims {
            // Of several claims with one id, the least is used; invalid parts are removed after that.
            if claims.get(&claim.id.0).is_none_or(|standing| claim < standing) {
                claims.insert(claim.id.0.clone(), claim.clone());
            }
        }
        for claim in claims.values_mut() {
            claim.supporters.retain(|source| (1..=answers).contains(source));
        }
        let mut edges = BTreeSet::new();
        for edge in &map.edges {
            let (from, to) = (edge.from.0.clone(), edge.to.0.clone());
            if from == to || !claims.contains_key(&from) || !claims.contains_key(&to) {
                continue;
            }
            let has_direction = matches!(edge.kind, ClaimEdgeKind::Supports | ClaimEdgeKind::Prerequisite);
            let (from, to) = if has_direction || from < to { (from, to) } else { (to, from) };
            edges.insert((from, to, edge.kind));
        }
        Self { claims, edges, m: f64::from(answers) }
    }

    fn ids(&self) -> Vec<String> {
        self.claims.keys().cloned().collect()
    }

    fn supporters(&self, id: &str) -> f64 {
        self.claims[id].supporters.len() as f64
    }

    fn count(&self, is: impl Fn(&str, &str, ClaimEdgeKind) -> bool) -> f64 {
        self.edges.iter().filter(|(from, to, kind)| is(from, to, *kind)).count() as f64
    }

    fn out_degree(&self, id: &str) -> f64 {
        self.count(|from, _, kind| from == id && matches!(kind, ClaimEdgeKind::Supports | ClaimEdgeKind::Prerequisite))
    }

    fn needed_by(&self, id: &str) -> f64 {
        self.count(|from, _, kind| from == id && kind == ClaimEdgeKind::Prerequisite)
    }

    fn needs(&self, id: &str) -> f64 {
        self.count(|_, to, kind| to == id && kind == ClaimEdgeKind::Prerequisite)
    }

    fn reach(&self, start: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::from([start.to_owned()]);
        loop {
            let more: BTreeSet<String> = self
                .edges
                .iter()
                .filter(|(from, _, kind)| *kind == ClaimEdgeKind::Prerequisite && reached.contains(from))
                .map(|(_, to, _)| to.clone())
                .collect();
            let before = reached.len();
            reached.extend(more);
            if reached.len() == before {
                return reached;
            }
        }
    }

    fn components(&self, without: Option<&str>) -> Vec<BTreeSet<String>> {
        let mut parts: Vec<BTreeSet<String>> =
            self.ids().into_iter().filter(|id| Some(id.as_str()) != without).map(|id| BTreeSet::from([id])).collect();
        for (from, to, _) in &self.edges {
            let place = |id: &String, parts: &[BTreeSet<String>]| parts.iter().position(|part| part.contains(id));
            if let (Some(one), Some(other)) = (place(from, &parts), place(to, &parts))
                && one != other
            {
                let moved = parts[other].clone();
                parts[one].extend(moved);
                parts.remove(other);
            }
        }
        parts
    }

    fn density(&self, part: &BTreeSet<String>) -> f64 {
        let size = part.len() as f64;
        let pairs: BTreeSet<(&String, &String)> = self
            .edges
            .iter()
            .filter(|(from, _, _)| part.contains(from))
            .map(|(from, to, _)| if from < to { (from, to) } else { (to, from) })
            .collect();
        if part.len() < 2 { 0.0 } else { pairs.len() as f64 / (size * (size - 1.0) / 2.0) }
    }

    /// The length of the longest chain, where a cycle counts as one claim; 0 without a chain.
    fn longest_chain(&self) -> f64 {
        let circle = |id: &str| -> BTreeSet<String> {
            self.reach(id).into_iter().filter(|other| self.reach(other).contains(id)).collect()
        };
        fn from(plain: &Plain, id: &str, circle: &dyn Fn(&str) -> BTreeSet<String>) -> usize {
            let own = circle(id);
            let next = plain.edges.iter().filter(|(from, to, kind)| {
                *kind == ClaimEdgeKind::Prerequisite && own.contains(from) && !own.contains(to)
            });
            1 + next.map(|(_, to, _)| from(plain, to, circle)).max().unwrap_or(0)
        }
        let longest = self.claims.keys().map(|id| from(self, id, &circle)).max().unwrap_or(0);
        if longest < 2 { 0.0 } else { longest as f64 }
    }
}

/// Returns which values belong to the top p percent: the ⌈p·n⌉-th value and all equal ones.
fn top(values: &[f64], percent: usize) -> Vec<bool> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| b.partial_cmp(a).expect("numbers"));
    let belonging = (values.len() * percent).div_ceil(100);
    let mark = sorted.get(belonging.saturating_sub(1)).copied().unwrap_or(f64::INFINITY);
    values.iter().map(|value| *value >= mark).collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

fn opinion(map: &ClaimMap, answers: u32) -> Opinion {
    let plain = Plain::of(map, answers);
    let ids = plain.ids();
    let (n, m) = (ids.len() as f64, plain.m);
    let edges = plain.edges.len() as f64;
    let supporters: Vec<f64> = ids.iter().map(|id| plain.supporters(id)).collect();
    let degree = |id: &String| plain.count(|from, to, _| from == id || to == id);
    let conflicts =
        |id: &String| plain.count(|from, to, kind| (from == id || to == id) && kind == ClaimEdgeKind::Conflicts);
    let leverage: Vec<f64> = ids
        .iter()
        .map(|id| {
            let role = match plain.claims[id].role {
                ClaimRoleInMap::Challenger => 4.0,
                ClaimRoleInMap::Anchor => 2.0,
                ClaimRoleInMap::Branch => 1.0,
                ClaimRoleInMap::Supplement => 0.5,
            };
            let is_root = plain.needed_by(id) > 0.0 && plain.needs(id) == 0.0;
            2.0 * ratio(plain.supporters(id), m)
                + role
                + 2.0 * plain.needed_by(id)
                + plain.needs(id)
                + 1.5 * conflicts(id)
                + 0.25 * degree(id)
                + if is_root { 2.0 } else { 0.0 }
        })
        .collect();
    let high: Vec<bool> = top(&supporters, 30).into_iter().zip(&supporters).map(|(top, s)| top && *s > 0.0).collect();
    let negated: Vec<f64> = supporters.iter().map(|s| -s).collect();
    let low: Vec<bool> = top(&negated, 30).into_iter().zip(&high).map(|(low, high)| low && !high).collect();
    let is_high = |id: &String| high[ids.iter().position(|other| other == id).expect("it is there")];
    let chosen = |is: &dyn Fn(usize) -> bool| -> Vec<String> {
        (0..ids.len()).filter(|place| is(*place)).map(|place| ids[place].clone()).collect()
    };

    let top_leverage = top(&leverage, 25);
    let inversions = chosen(&|place| low[place] && top_leverage[place]);
    let weight: Vec<f64> = ids.iter().map(|id| plain.out_degree(id) * plain.supporters(id)).collect();
    let top_weight = top(&weight, 20);
    let keystones = chosen(&|place| {
        top_weight[place]
            && weight[place] > 0.0
            && plain.out_degree(&ids[place]) >= 2.0
            && plain.needed_by(&ids[place]) >= 2.0
    });
    let burden: Vec<f64> =
        ids.iter().map(|id| (plain.reach(id).len() as f64 - 1.0) / plain.supporters(id).max(1.0)).collect();
    let top_burden = top(&burden, 20);
    let evidence_gaps = chosen(&|place| top_burden[place] && burden[place] > 0.0);
    let mut out: Vec<(f64, &String)> = ids.iter().map(|id| (plain.out_degree(id), id)).collect();
    out.sort_by(|a, b| b.0.partial_cmp(&a.0).expect("numbers").then(a.1.cmp(b.1)));
    let hub_out = out.first().map_or(0.0, |(out, _)| *out);
    let runner_up = out.get(1).map_or(0.0, |(out, _)| *out);
    let hub = (hub_out >= 2.0 && hub_out >= 1.5 * runner_up).then(|| out[0].1.clone());

    // The ratios.
    let most = supporters.iter().copied().fold(0.0, f64::max);
    let c = ratio(most, m);
    let among_high: Vec<ClaimEdgeKind> =
        plain.edges.iter().filter(|(from, to, _)| is_high(from) && is_high(to)).map(|(_, _, kind)| *kind).collect();
    let reinforcing = |kind: &&ClaimEdgeKind| matches!(kind, ClaimEdgeKind::Supports | ClaimEdgeKind::Prerequisite);
    let a = if among_high.is_empty() {
        0.5
    } else {
        among_high.iter().filter(reinforcing).count() as f64 / among_high.len() as f64
    };
    let tensions: Vec<&(String, String, ClaimEdgeKind)> = plain
        .edges
        .iter()
        .filter(|(_, _, kind)| matches!(kind, ClaimEdgeKind::Conflicts | ClaimEdgeKind::Tradeoff))
        .collect();
    let t = ratio(tensions.len() as f64, edges);
    let parts = plain.components(None);
    let f = if n > 1.0 { (parts.len() as f64 - 1.0) / (n - 1.0) } else { 0.0 };
    let d = ratio(plain.longest_chain(), n);
    let (mut sum, mut size) = (0.0, 0.0);
    for part in parts.iter().filter(|part| part.len() >= 2) {
        let support = part.iter().map(|id| ratio(plain.supporters(id), m)).sum::<f64>() / part.len() as f64;
        sum += part.len() as f64 * plain.density(part) * support;
        size += part.len() as f64;
    }
    let l = ratio(sum, size);
    let normalised: Vec<f64> = supporters.iter().map(|s| ratio(*s, most)).collect();
    let mean = ratio(normalised.iter().sum(), n);
    let variance = ratio(normalised.iter().map(|s| (s - mean).powi(2)).sum(), n);
    let voices: BTreeSet<u32> = plain.claims.values().flat_map(|claim| claim.supporters.iter().copied()).collect();
    let signal = 0.4 * (edges / 3.0f64.max(0.15 * n)).min(1.0)
        + 0.3 * (5.0 * variance).min(1.0)
        + 0.3 * ratio(voices.len() as f64, m);

    // The shapes.
    let e = edges >= 2.0f64.max((0.08 * n - 1e-9).ceil());
    let on = |condition: bool| if condition { 1.0 } else { 0.0 };
    let needy = |id: &String| plain.needs(id) > 0.0 || plain.claims[id].kind == ClaimStatementKind::Conditional;
    let is_conditional = |tension: &&&(String, String, ClaimEdgeKind)| needy(&tension.0) || needy(&tension.1);
    let conflicts: Vec<_> = tensions.iter().filter(|tension| tension.2 == ClaimEdgeKind::Conflicts).collect();
    let hard: Vec<_> = conflicts.iter().filter(|tension| !is_conditional(tension)).collect();
    let hard_between_high = hard.iter().any(|tension| is_high(&tension.0) && is_high(&tension.1));
    let tradeoffs = tensions.len() - conflicts.len();
    let h = if hub_out >= 2.0f64.max((0.1 * n - 1e-9).ceil()) {
        if runner_up == 0.0 { 1.0 } else { ((hub_out / runner_up - 1.0) / 2.0).clamp(0.0, 1.0) }
    } else {
        0.0
    };
    let conditional_claims =
        plain.claims.values().filter(|claim| claim.kind == ClaimStatementKind::Conditional).count() as f64;
    let conditional_tensions = tensions.iter().filter(is_conditional).count() as f64;
    let components = parts.len() as f64;
    let scores = [
        0.40 * c + 0.30 * a + 0.20 * (1.0 - t) + 0.10 * l,
        0.50 * d + 0.30 * on(e) + 0.20 * (1.0 - f),
        0.50 * h + 0.30 * ratio(hub_out, n) + 0.20 * c,
        0.40 * on(hard_between_high) + 0.30 * t + 0.20 * (1.0 - a) + 0.10 * on(!hard.is_empty()),
        0.35 * on(tradeoffs > 0) + 0.30 * t + 0.25 * (1.0 - c) + 0.10 * on(tradeoffs > conflicts.len()),
        0.35 * l + 0.25 * d + 0.20 * a + 0.20 * on(components > 1.0 && components < n / 2.0),
        0.35 * (1.0 - l) + 0.30 * (1.0 - c) + 0.20 * on(!e) + 0.15 * on(t < 0.15),
        0.45 * ratio(conditional_claims, n)
            + 0.35 * ratio(conditional_tensions, tensions.len() as f64)
            + 0.20 * (1.0 - a),
    ]
    .map(|score: f64| score.clamp(0.0, 1.0));
    let best = scores.iter().copied().fold(0.0, f64::max);
    let place = scores.iter().position(|score| *score > best - 1e-9).expect("there is a best");
    let next =
        scores.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, score)| *score).fold(0.0, f64::max);
    let (best, lead) = (scores[place], (scores[place] - next).max(0.0));
    let base = if best < 0.20 { 0.15 } else { 0.35 + 0.4 * lead + 0.25 * best };
    let weak_joint =
        ids.iter().enumerate().any(|(place, id)| low[place] && plain.components(Some(id)).len() > parts.len());
    let conditional_conflicts = conflicts.iter().filter(|tension| is_conditional(tension)).count() as f64;
    let densities = ratio(parts.iter().map(|part| plain.density(part)).sum(), components);
    let fragility =
        0.20 * on(weak_joint) + (0.10 * conditional_conflicts).min(0.20) + 0.15 * on(c > 0.5 && e && densities < 0.2);
    let confidence = (base - 0.3 * (1.0 - signal) - fragility).clamp(0.10, 1.0);
    let (ratios, shape) = ([c, a, t, f, d, l, signal], ClaimMapShape::ALL[place]);
    Opinion { ids, leverage, high, ratios, scores, confidence, shape, hub, keystones, inversions, evidence_gaps }
}

fn agree(analysis: &ClaimMapAnalysis, opinion: &Opinion) -> Result<(), TestCaseError> {
    let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
    let names =
        |ids: Vec<&segue_flows::concierge::claim_map::ClaimId>| ids.iter().map(|id| id.0.clone()).collect::<Vec<_>>();
    prop_assert_eq!(&names(analysis.claims.iter().map(|claim| &claim.id).collect()), &opinion.ids);
    for (place, claim) in analysis.claims.iter().enumerate() {
        prop_assert!(close(claim.leverage, opinion.leverage[place]), "leverage of {}", claim.id);
        let is_high = claim.support == segue_flows::concierge::analysis::ClaimSupportLevel::High;
        prop_assert_eq!(is_high, opinion.high[place], "support of {}", claim.id);
    }
    let r = analysis.ratios;
    let ratios = [r.concentration, r.alignment, r.tension, r.fragmentation, r.depth, r.coherence, r.signal];
    for (place, name) in ["c", "a", "t", "f", "d", "L", "signal"].into_iter().enumerate() {
        prop_assert!(
            close(ratios[place], opinion.ratios[place]),
            "{name}: {} {}",
            ratios[place],
            opinion.ratios[place]
        );
    }
    for (score, expected) in analysis.scores.iter().zip(opinion.scores) {
        prop_assert!(close(score.score, expected), "{}: {} {expected}", score.shape, score.score);
    }
    prop_assert_eq!(analysis.shape, opinion.shape);
    prop_assert!(close(analysis.confidence, opinion.confidence), "{} {}", analysis.confidence, opinion.confidence);
    prop_assert_eq!(analysis.hub.as_ref().map(|hub| hub.claim.0.clone()), opinion.hub.clone());
    prop_assert_eq!(&names(analysis.keystones.iter().collect()), &opinion.keystones);
    prop_assert_eq!(&names(analysis.leverage_inversions.iter().collect()), &opinion.inversions);
    let gaps = analysis.evidence_gaps.iter().map(|gap| &gap.claim).collect();
    prop_assert_eq!(&names(gaps), &opinion.evidence_gaps);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn s28_analysis_equals_an_independent_implementation((map, answers) in (map(), 0u32..8)) {
        agree(&analyse_claim_map(&map, answers), &opinion(&map, answers))?;
    }
}
