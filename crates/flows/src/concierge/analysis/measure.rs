//! What can be counted: each claim's support, leverage and place, the parts of the map, and the ratios of the whole.

use serde::Serialize;

use super::graph::{Graph, Neighbours, articulation_points, components};
use super::order::Order;
use super::tension::Tension;
use crate::concierge::map::{ClaimId, ClaimKind, ClaimRole, EdgeKind};

/// A claim and its measures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Which claim.
    pub id: ClaimId,
    /// How many answers take it.
    pub supporters: u32,
    /// Which share of the answers that is.
    pub ratio: f64,
    /// Whether that is much or little beside the others.
    pub support: Support,
    /// How much hangs on it.
    pub leverage: f64,
    /// Edges of all kinds.
    pub degree: u32,
    /// Edges that lead away: supports and prerequisites.
    pub out_degree: u32,
    /// Claims that need it.
    pub prerequisites_out: u32,
    /// Claims it needs.
    pub prerequisites_in: u32,
    /// Claims it conflicts with.
    pub conflicts: u32,
    /// Claims that need it, directly or through others.
    pub dependents: u32,
    /// Whether a chain begins with it.
    pub is_root: bool,
    /// Whether it is of the conditional type.
    pub is_conditional: bool,
    /// Whether others would no longer hang together without it.
    pub is_joint: bool,
    /// The number of its component.
    pub component: usize,
}

/// How well a claim is supported beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// Among the top 30 %.
    High,
    /// Neither.
    Middle,
    /// Among the bottom 30 %, and not among the top.
    Low,
}

/// Claims that hang together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Component {
    /// Which claims, in the order of ids.
    pub claims: Vec<ClaimId>,
    /// The share of its pairs with an edge between them.
    pub density: f64,
    /// The mean support ratio of its claims.
    pub support: f64,
}

/// The claim that leads to most others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hub {
    /// Which claim.
    pub claim: ClaimId,
    /// Its out-degree.
    pub out_degree: u32,
    /// The largest out-degree of any other.
    pub runner_up: u32,
}

/// A claim that many others need and few answers take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceGap {
    /// Which claim.
    pub claim: ClaimId,
    /// How many need it, directly or through others.
    pub dependents: u32,
    /// How many answers take it.
    pub supporters: u32,
}

/// What holds for a map as a whole, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratios {
    /// c: the share of the answers that take the most supported claim.
    pub concentration: f64,
    /// a: the share of edges among high-support claims that reinforce.
    pub alignment: f64,
    /// t: the share of edges that are conflicts or tradeoffs.
    pub tension: f64,
    /// f: how far the map falls into parts.
    pub fragmentation: f64,
    /// d: the share of the claims that stand in the longest chain.
    pub depth: f64,
    /// L: how dense and well-supported the parts are in themselves.
    pub coherence: f64,
    /// How much there is to go by.
    pub signal: f64,
}

/// Everything that is counted before shapes come in.
#[derive(Debug)]
pub(super) struct Measures {
    pub(super) claims: Vec<Measured>,
    pub(super) components: Vec<Component>,
    pub(super) chain: Vec<Vec<ClaimId>>,
    pub(super) circles: Vec<Vec<ClaimId>>,
    pub(super) hub: Option<Hub>,
    /// The two largest out-degrees.
    pub(super) out_degrees: (u32, u32),
    pub(super) keystones: Vec<ClaimId>,
    pub(super) leverage_inversions: Vec<ClaimId>,
    pub(super) evidence_gaps: Vec<EvidenceGap>,
}

/// Counts all that can be counted.
pub(super) fn measure(graph: &Graph<'_>) -> Measures {
    let pairs = graph.pairs();
    let neighbours = Neighbours::undirected(graph.len(), &pairs);
    let component_of = components(graph.len(), &neighbours);
    let joints = articulation_points(graph.len(), &neighbours);
    let prerequisites: Vec<_> = graph.edges_of(EdgeKind::Prerequisite).map(|edge| (edge.from, edge.to)).collect();
    let order = Order::of(graph.len(), &prerequisites);
    let mut claims = counted(graph);
    for (place, dependents) in order.dependents().into_iter().enumerate() {
        let claim = &mut claims[place];
        claim.dependents = dependents;
        claim.component = component_of[place];
        claim.is_joint = joints[place];
        claim.is_root = claim.prerequisites_out > 0 && claim.prerequisites_in == 0;
        claim.leverage = leverage(claim, graph.claims[place].role);
    }
    rank_support(&mut claims);
    let ids = |links: Vec<&[usize]>| -> Vec<Vec<ClaimId>> {
        links.iter().map(|link| link.iter().map(|place| graph.claims[*place].id.clone()).collect()).collect()
    };
    let (hub, out_degrees) = hub(&claims);
    Measures {
        components: parts(&claims, &component_of, &pairs),
        chain: ids(order.longest_chain()),
        circles: ids(order.circles()),
        hub,
        out_degrees,
        keystones: keystones(&claims),
        leverage_inversions: leverage_inversions(&claims),
        evidence_gaps: evidence_gaps(&claims),
        claims,
    }
}

fn counted(graph: &Graph<'_>) -> Vec<Measured> {
    let measured = |(claim, supporters): (&&crate::concierge::map::Claim, &u32)| Measured {
        id: claim.id.clone(),
        supporters: *supporters,
        ratio: share(f64::from(*supporters), f64::from(graph.answers)),
        support: Support::Middle,
        leverage: 0.0,
        degree: 0,
        out_degree: 0,
        prerequisites_out: 0,
        prerequisites_in: 0,
        conflicts: 0,
        dependents: 0,
        is_root: false,
        is_conditional: claim.kind == ClaimKind::Conditional,
        is_joint: false,
        component: 0,
    };
    let mut claims: Vec<Measured> = graph.claims.iter().zip(&graph.supporters).map(measured).collect();
    for edge in &graph.edges {
        claims[edge.from].degree += 1;
        claims[edge.to].degree += 1;
        match edge.kind {
            EdgeKind::Supports => claims[edge.from].out_degree += 1,
            EdgeKind::Prerequisite => {
                claims[edge.from].out_degree += 1;
                claims[edge.from].prerequisites_out += 1;
                claims[edge.to].prerequisites_in += 1;
            }
            EdgeKind::Conflicts => {
                claims[edge.from].conflicts += 1;
                claims[edge.to].conflicts += 1;
            }
            EdgeKind::Tradeoff => {}
        }
    }
    claims
}

fn leverage(claim: &Measured, role: ClaimRole) -> f64 {
    let role = match role {
        ClaimRole::Challenger => 4.0,
        ClaimRole::Anchor => 2.0,
        ClaimRole::Branch => 1.0,
        ClaimRole::Supplement => 0.5,
    };
    2.0 * claim.ratio
        + role
        + 2.0 * f64::from(claim.prerequisites_out)
        + f64::from(claim.prerequisites_in)
        + 1.5 * f64::from(claim.conflicts)
        + 0.25 * f64::from(claim.degree)
        + if claim.is_root { 2.0 } else { 0.0 }
}

fn rank_support(claims: &mut [Measured]) {
    let values = || claims.iter().map(|claim| f64::from(claim.supporters));
    let (top, bottom) = (top_mark(values(), 30), -top_mark(values().map(|value| -value), 30));
    for claim in claims {
        let value = f64::from(claim.supporters);
        claim.support = if value >= top && claim.supporters > 0 {
            Support::High
        } else if value <= bottom {
            Support::Low
        } else {
            Support::Middle
        };
    }
}

/// The least value that belongs to the top so many percent; everything that equals it belongs as well.
fn top_mark(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    let belonging = (values.len() * percent).div_ceil(100);
    values.get(belonging.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

fn leverage_inversions(claims: &[Measured]) -> Vec<ClaimId> {
    let mark = top_mark(claims.iter().map(|claim| claim.leverage), 25);
    let inverted = claims.iter().filter(|claim| claim.support == Support::Low && claim.leverage >= mark);
    inverted.map(|claim| claim.id.clone()).collect()
}

fn keystones(claims: &[Measured]) -> Vec<ClaimId> {
    let weight = |claim: &Measured| f64::from(claim.out_degree) * f64::from(claim.supporters);
    let mark = top_mark(claims.iter().map(weight), 20);
    let is_keystone = |claim: &&Measured| {
        weight(claim) >= mark && weight(claim) > 0.0 && claim.out_degree >= 2 && claim.prerequisites_out >= 2
    };
    claims.iter().filter(is_keystone).map(|claim| claim.id.clone()).collect()
}

fn evidence_gaps(claims: &[Measured]) -> Vec<EvidenceGap> {
    let burden = |claim: &Measured| f64::from(claim.dependents) / f64::from(claim.supporters.max(1));
    let mark = top_mark(claims.iter().map(burden), 20);
    let bare = claims.iter().filter(|claim| burden(claim) >= mark && burden(claim) > 0.0);
    bare.map(|claim| EvidenceGap {
        claim: claim.id.clone(),
        dependents: claim.dependents,
        supporters: claim.supporters,
    })
    .collect()
}

fn hub(claims: &[Measured]) -> (Option<Hub>, (u32, u32)) {
    let (mut first, mut runner_up): (Option<&Measured>, u32) = (None, 0);
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
    (hub.map(|claim| Hub { claim: claim.id.clone(), out_degree, runner_up }), (out_degree, runner_up))
}

fn parts(claims: &[Measured], component_of: &[usize], pairs: &[(usize, usize)]) -> Vec<Component> {
    let count = component_of.iter().max().map_or(0, |last| last + 1);
    let mut components = vec![Component { claims: Vec::new(), density: 0.0, support: 0.0 }; count];
    for claim in claims {
        let component = &mut components[claim.component];
        component.claims.push(claim.id.clone());
        component.support += claim.ratio;
    }
    let mut joined = vec![0usize; count];
    pairs.iter().for_each(|(a, _)| joined[component_of[*a]] += 1);
    for (component, joined) in components.iter_mut().zip(joined) {
        let size = number(component.claims.len());
        component.support = share(component.support, size);
        component.density = share(2.0 * number(joined), size * (size - 1.0));
    }
    components
}

/// The ratios of the whole.
pub(super) fn ratios(graph: &Graph<'_>, measures: &Measures, tensions: &[Tension]) -> Ratios {
    let (claims, components) = (&measures.claims, &measures.components);
    let answers = f64::from(graph.answers);
    let edges = number(graph.edges.len());
    let most = claims.iter().map(|claim| claim.supporters).max().unwrap_or(0);
    let is_high = |place: usize| claims[place].support == Support::High;
    let among_high = || graph.edges.iter().filter(|edge| is_high(edge.from) && is_high(edge.to));
    let alignment = match among_high().count() {
        0 => 0.5,
        all => number(among_high().filter(|edge| edge.kind.is_reinforcing()).count()) / number(all),
    };
    let (mut weighted, mut weight) = (0.0, 0.0);
    for component in components.iter().filter(|component| component.claims.len() > 1) {
        let size = number(component.claims.len());
        weighted += size * (component.density * component.support);
        weight += size;
    }
    let others = |count: usize| number(count.saturating_sub(1));
    Ratios {
        concentration: share(f64::from(most), answers),
        alignment,
        tension: share(number(tensions.len()), edges),
        fragmentation: share(others(components.len()), others(claims.len())),
        depth: share(number(measures.chain.len()), number(claims.len())),
        coherence: share(weighted, weight),
        signal: 0.4 * (edges / (0.15 * number(claims.len())).max(3.0)).min(1.0)
            + 0.3 * (5.0 * variance(claims, most)).min(1.0)
            + 0.3 * share(f64::from(graph.distinct_supporters), answers),
    }
}

/// The variance of support relative to the most supported claim.
fn variance(claims: &[Measured], most: u32) -> f64 {
    let support = |claim: &Measured| share(f64::from(claim.supporters), f64::from(most));
    let mean = share(claims.iter().map(support).sum(), number(claims.len()));
    let squares = claims.iter().map(|claim| (support(claim) - mean) * (support(claim) - mean));
    share(squares.sum(), number(claims.len()))
}

/// A share of nothing is 0.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
