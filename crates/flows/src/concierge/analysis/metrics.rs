//! Computes the metrics of each claim, the components of the map, and the ratios of the whole map.

use serde::Serialize;

use super::graph::{Adjacency, ClaimGraph, find_articulation_points, label_components};
use super::prerequisites::ClaimPrerequisiteOrder;
use super::tension::ClaimTension;
use crate::concierge::claim_map::{ClaimEdgeKind, ClaimId, ClaimRoleInMap, ClaimStatementKind};

/// The metrics of one claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimMetrics {
    pub id: ClaimId,
    /// The number of answers that hold the claim.
    pub supporters: u32,
    /// The share of the answers that hold the claim.
    pub support_ratio: f64,
    /// The support relative to the other claims.
    pub support: ClaimSupportLevel,
    /// How much depends on the claim.
    pub leverage: f64,
    /// The number of edges of any kind.
    pub degree: u32,
    /// The number of outgoing supports and prerequisites.
    pub out_degree: u32,
    /// The number of claims that directly need this claim.
    pub prerequisites_out: u32,
    /// The number of claims that this claim directly needs.
    pub prerequisites_in: u32,
    /// The number of conflicts.
    pub conflicts: u32,
    /// The number of claims that need this claim directly or indirectly.
    pub dependents: u32,
    /// Whether a chain of prerequisites starts here.
    pub is_root: bool,
    /// Whether the claim's kind is conditional.
    pub is_conditional: bool,
    /// Whether removing the claim would disconnect others.
    pub is_articulation_point: bool,
    /// The index of its component.
    pub component: usize,
}

/// The support of a claim relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimSupportLevel {
    /// In the top 30 %.
    High,
    Middle,
    /// In the bottom 30 % and not in the top 30 %.
    Low,
}

/// A connected component of a map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimCluster {
    /// The claims, sorted by id.
    pub claims: Vec<ClaimId>,
    /// The share of claim pairs with an edge.
    pub density: f64,
    /// The mean support ratio of the claims.
    pub mean_support: f64,
}

/// The claim with by far the largest out-degree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MostConnectedClaim {
    pub claim: ClaimId,
    pub out_degree: u32,
    /// The largest out-degree of any other claim.
    pub runner_up_out_degree: u32,
}

/// A claim with many dependents and few supporters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeaklySupportedKeyClaim {
    pub claim: ClaimId,
    /// The number of direct and indirect dependents.
    pub dependents: u32,
    pub supporters: u32,
}

/// The ratios of a whole map, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClaimMapRatios {
    /// c: the share of the answers that hold the most supported claim.
    pub concentration: f64,
    /// a: the share of edges among high-support claims that reinforce.
    pub alignment: f64,
    /// t: the share of edges that are conflicts or tradeoffs.
    pub tension: f64,
    /// f: how far the map is split into components.
    pub fragmentation: f64,
    /// d: the length of the longest chain relative to the number of claims.
    pub depth: f64,
    /// L: how dense and well supported the components are.
    pub coherence: f64,
    /// How much evidence there is: edges, variance of support, and answers.
    pub signal: f64,
}

/// The metrics from which the shape is computed.
#[derive(Debug)]
pub(super) struct ClaimMapMetrics {
    pub(super) claims: Vec<ClaimMetrics>,
    pub(super) components: Vec<ClaimCluster>,
    pub(super) longest_chain: Vec<Vec<ClaimId>>,
    pub(super) cycles: Vec<Vec<ClaimId>>,
    pub(super) hub: Option<MostConnectedClaim>,
    /// The two largest out-degrees.
    pub(super) top_out_degrees: (u32, u32),
    pub(super) keystones: Vec<ClaimId>,
    pub(super) leverage_inversions: Vec<ClaimId>,
    pub(super) evidence_gaps: Vec<WeaklySupportedKeyClaim>,
}

/// Computes the metrics of a map.
pub(super) fn compute_map_metrics(graph: &ClaimGraph<'_>) -> ClaimMapMetrics {
    let pairs = graph.connected_pairs();
    let neighbours = Adjacency::from_undirected_edges(graph.len(), &pairs);
    let component_of = label_components(graph.len(), &neighbours);
    let articulation_points = find_articulation_points(graph.len(), &neighbours);
    let prerequisites: Vec<_> =
        graph.edges_of_kind(ClaimEdgeKind::Prerequisite).map(|edge| (edge.from, edge.to)).collect();
    let order = ClaimPrerequisiteOrder::from_prerequisites(graph.len(), &prerequisites);
    let mut claims = count_claim_edges(graph);
    for (index, dependents) in order.count_dependents().into_iter().enumerate() {
        let claim = &mut claims[index];
        claim.dependents = dependents;
        claim.component = component_of[index];
        claim.is_articulation_point = articulation_points[index];
        claim.is_root = claim.prerequisites_out > 0 && claim.prerequisites_in == 0;
        claim.leverage = claim_leverage(claim, graph.claims[index].role);
    }
    assign_support_levels(&mut claims);
    let ids = |links: Vec<&[usize]>| -> Vec<Vec<ClaimId>> {
        links.iter().map(|link| link.iter().map(|index| graph.claims[*index].id.clone()).collect()).collect()
    };
    let (hub, out_degrees) = find_hub(&claims);
    ClaimMapMetrics {
        components: build_claim_clusters(&claims, &component_of, &pairs),
        longest_chain: ids(order.longest_chain()),
        cycles: ids(order.cycles()),
        hub,
        top_out_degrees: out_degrees,
        keystones: find_keystones(&claims),
        leverage_inversions: find_leverage_inversions(&claims),
        evidence_gaps: find_evidence_gaps(&claims),
        claims,
    }
}

fn count_claim_edges(graph: &ClaimGraph<'_>) -> Vec<ClaimMetrics> {
    let metrics = |(claim, supporters): (&&crate::concierge::claim_map::ClaimNode, &u32)| ClaimMetrics {
        id: claim.id.clone(),
        supporters: *supporters,
        support_ratio: ratio_or_zero(f64::from(*supporters), f64::from(graph.answer_count)),
        support: ClaimSupportLevel::Middle,
        leverage: 0.0,
        degree: 0,
        out_degree: 0,
        prerequisites_out: 0,
        prerequisites_in: 0,
        conflicts: 0,
        dependents: 0,
        is_root: false,
        is_conditional: claim.kind == ClaimStatementKind::Conditional,
        is_articulation_point: false,
        component: 0,
    };
    let mut claims: Vec<ClaimMetrics> = graph.claims.iter().zip(&graph.supporters).map(metrics).collect();
    for edge in &graph.edges {
        claims[edge.from].degree += 1;
        claims[edge.to].degree += 1;
        match edge.kind {
            ClaimEdgeKind::Supports => claims[edge.from].out_degree += 1,
            ClaimEdgeKind::Prerequisite => {
                claims[edge.from].out_degree += 1;
                claims[edge.from].prerequisites_out += 1;
                claims[edge.to].prerequisites_in += 1;
            }
            ClaimEdgeKind::Conflicts => {
                claims[edge.from].conflicts += 1;
                claims[edge.to].conflicts += 1;
            }
            ClaimEdgeKind::Tradeoff => {}
        }
    }
    claims
}

fn claim_leverage(claim: &ClaimMetrics, role: ClaimRoleInMap) -> f64 {
    let role = match role {
        ClaimRoleInMap::Challenger => 4.0,
        ClaimRoleInMap::Anchor => 2.0,
        ClaimRoleInMap::Branch => 1.0,
        ClaimRoleInMap::Supplement => 0.5,
    };
    2.0 * claim.support_ratio
        + role
        + 2.0 * f64::from(claim.prerequisites_out)
        + f64::from(claim.prerequisites_in)
        + 1.5 * f64::from(claim.conflicts)
        + 0.25 * f64::from(claim.degree)
        + if claim.is_root { 2.0 } else { 0.0 }
}

fn assign_support_levels(claims: &mut [ClaimMetrics]) {
    let values = || claims.iter().map(|claim| f64::from(claim.supporters));
    let (top, bottom) = (top_percent_threshold(values(), 30), -top_percent_threshold(values().map(|value| -value), 30));
    for claim in claims {
        let value = f64::from(claim.supporters);
        claim.support = if value >= top && claim.supporters > 0 {
            ClaimSupportLevel::High
        } else if value <= bottom {
            ClaimSupportLevel::Low
        } else {
            ClaimSupportLevel::Middle
        };
    }
}

/// Returns the least value in the top `percent` percent.
fn top_percent_threshold(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    let count = (values.len() * percent).div_ceil(100);
    values.get(count.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

fn find_leverage_inversions(claims: &[ClaimMetrics]) -> Vec<ClaimId> {
    let threshold = top_percent_threshold(claims.iter().map(|claim| claim.leverage), 25);
    let inverted = claims.iter().filter(|claim| claim.support == ClaimSupportLevel::Low && claim.leverage >= threshold);
    inverted.map(|claim| claim.id.clone()).collect()
}

fn find_keystones(claims: &[ClaimMetrics]) -> Vec<ClaimId> {
    let weight = |claim: &ClaimMetrics| f64::from(claim.out_degree) * f64::from(claim.supporters);
    let threshold = top_percent_threshold(claims.iter().map(weight), 20);
    let is_keystone = |claim: &&ClaimMetrics| {
        weight(claim) >= threshold && weight(claim) > 0.0 && claim.out_degree >= 2 && claim.prerequisites_out >= 2
    };
    claims.iter().filter(is_keystone).map(|claim| claim.id.clone()).collect()
}

fn find_evidence_gaps(claims: &[ClaimMetrics]) -> Vec<WeaklySupportedKeyClaim> {
    let burden = |claim: &ClaimMetrics| f64::from(claim.dependents) / f64::from(claim.supporters.max(1));
    let threshold = top_percent_threshold(claims.iter().map(burden), 20);
    let gaps = claims.iter().filter(|claim| burden(claim) >= threshold && burden(claim) > 0.0);
    gaps.map(|claim| WeaklySupportedKeyClaim {
        claim: claim.id.clone(),
        dependents: claim.dependents,
        supporters: claim.supporters,
    })
    .collect()
}

fn find_hub(claims: &[ClaimMetrics]) -> (Option<MostConnectedClaim>, (u32, u32)) {
    let (mut first, mut runner_up): (Option<&ClaimMetrics>, u32) = (None, 0);
    for claim in claims {
        let largest = first.map_or(0, |first| first.out_degree);
        if first.is_none() || claim.out_degree > largest {
            runner_up = largest;
            first = Some(claim);
        } else {
            runner_up = runner_up.max(claim.out_degree);
        }
    }
    let out_degree = first.map_or(0, |first| first.out_degree);
    let dominates = 2 * u64::from(out_degree) >= 3 * u64::from(runner_up);
    let hub = first.filter(|_| out_degree >= 2 && dominates);
    (
        hub.map(|claim| MostConnectedClaim { claim: claim.id.clone(), out_degree, runner_up_out_degree: runner_up }),
        (out_degree, runner_up),
    )
}

fn build_claim_clusters(
    claims: &[ClaimMetrics],
    component_of: &[usize],
    pairs: &[(usize, usize)],
) -> Vec<ClaimCluster> {
    let count = component_of.iter().max().map_or(0, |last| last + 1);
    let mut components = vec![ClaimCluster { claims: Vec::new(), density: 0.0, mean_support: 0.0 }; count];
    for claim in claims {
        let component = &mut components[claim.component];
        component.claims.push(claim.id.clone());
        component.mean_support += claim.support_ratio;
    }
    let mut edge_counts = vec![0usize; count];
    pairs.iter().for_each(|(a, _)| edge_counts[component_of[*a]] += 1);
    for (component, edge_count) in components.iter_mut().zip(edge_counts) {
        let size = count_to_f64(component.claims.len());
        component.mean_support = ratio_or_zero(component.mean_support, size);
        component.density = ratio_or_zero(2.0 * count_to_f64(edge_count), size * (size - 1.0));
    }
    components
}

/// Computes the ratios of a map.
pub(super) fn compute_map_ratios(
    graph: &ClaimGraph<'_>,
    metrics: &ClaimMapMetrics,
    tensions: &[ClaimTension],
) -> ClaimMapRatios {
    let (claims, components) = (&metrics.claims, &metrics.components);
    let answers = f64::from(graph.answer_count);
    let edges = count_to_f64(graph.edges.len());
    let most = claims.iter().map(|claim| claim.supporters).max().unwrap_or(0);
    let is_high = |index: usize| claims[index].support == ClaimSupportLevel::High;
    let among_high = || graph.edges.iter().filter(|edge| is_high(edge.from) && is_high(edge.to));
    let alignment = match among_high().count() {
        0 => 0.5,
        all => count_to_f64(among_high().filter(|edge| edge.kind.is_reinforcing()).count()) / count_to_f64(all),
    };
    let (mut weighted, mut weight) = (0.0, 0.0);
    for component in components.iter().filter(|component| component.claims.len() > 1) {
        let size = count_to_f64(component.claims.len());
        weighted += size * (component.density * component.mean_support);
        weight += size;
    }
    let others = |count: usize| count_to_f64(count.saturating_sub(1));
    ClaimMapRatios {
        concentration: ratio_or_zero(f64::from(most), answers),
        alignment,
        tension: ratio_or_zero(count_to_f64(tensions.len()), edges),
        fragmentation: ratio_or_zero(others(components.len()), others(claims.len())),
        depth: ratio_or_zero(count_to_f64(metrics.longest_chain.len()), count_to_f64(claims.len())),
        coherence: ratio_or_zero(weighted, weight),
        signal: 0.4 * (edges / (0.15 * count_to_f64(claims.len())).max(3.0)).min(1.0)
            + 0.3 * (5.0 * support_variance(claims, most)).min(1.0)
            + 0.3 * ratio_or_zero(f64::from(graph.distinct_supporters), answers),
    }
}

/// Returns the population variance of support relative to the most supported claim.
fn support_variance(claims: &[ClaimMetrics], most: u32) -> f64 {
    let support = |claim: &ClaimMetrics| ratio_or_zero(f64::from(claim.supporters), f64::from(most));
    let mean = ratio_or_zero(claims.iter().map(support).sum(), count_to_f64(claims.len()));
    let squares = claims.iter().map(|claim| (support(claim) - mean) * (support(claim) - mean));
    ratio_or_zero(squares.sum(), count_to_f64(claims.len()))
}

/// Returns `part / whole`, or 0 if `whole` is 0.
pub(super) fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

pub(super) fn count_to_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
