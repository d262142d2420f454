//! A claim map as an indexed graph: claims sorted by id without duplicates, edges sorted without duplicates. The order in
//! which the map was written does not affect the graph.

use std::collections::{BTreeMap, BTreeSet};

use crate::concierge::claim_map::{ClaimEdgeKind, ClaimMap, ClaimNode};

/// Returns the claims of a map sorted by id. Of several claims with one id, the least is kept, so that their order does not
/// matter.
pub(in crate::concierge) fn sorted_unique_claims(map: &ClaimMap) -> Vec<&ClaimNode> {
    let mut claims: Vec<&ClaimNode> = map.claims.iter().collect();
    claims.sort_unstable();
    claims.dedup_by(|later, earlier| later.id == earlier.id);
    claims
}

/// An edge between two claim indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexedClaimEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: ClaimEdgeKind,
}

/// The indexed graph of a map.
#[derive(Debug)]
pub(super) struct ClaimGraph<'m> {
    pub(super) claims: Vec<&'m ClaimNode>,
    /// The number of supporters of each claim.
    pub(super) supporters: Vec<u32>,
    /// The number of answers that support any claim.
    pub(super) distinct_supporters: u32,
    pub(super) edges: Vec<IndexedClaimEdge>,
    pub(super) answer_count: u32,
}

impl<'m> ClaimGraph<'m> {
    pub(super) fn from_claim_map(map: &'m ClaimMap, answers: u32) -> Self {
        let claims = sorted_unique_claims(map);
        let valid_supporters =
            |claim: &'m ClaimNode| claim.supporters.range(1..).take_while(move |source| **source <= answers);
        let supporters: Vec<u32> = claims.iter().map(|claim| saturating_u32(valid_supporters(claim).count())).collect();
        let sources: BTreeSet<u32> = claims.iter().flat_map(|claim| valid_supporters(claim)).copied().collect();
        let indexes: BTreeMap<_, _> = claims.iter().enumerate().map(|(index, claim)| (&claim.id, index)).collect();
        let mut edges: Vec<IndexedClaimEdge> = Vec::with_capacity(map.edges.len());
        for edge in &map.edges {
            let (Some(from), Some(to)) = (indexes.get(&edge.from), indexes.get(&edge.to)) else { continue };
            let (from, to) = match edge.kind.is_reinforcing() {
                true => (*from, *to),
                false => (*from.min(to), *from.max(to)),
            };
            if from != to {
                edges.push(IndexedClaimEdge { from, to, kind: edge.kind });
            }
        }
        edges.sort_unstable();
        edges.dedup();
        Self { claims, supporters, distinct_supporters: saturating_u32(sources.len()), edges, answer_count: answers }
    }

    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    pub(super) fn edges_of_kind(&self, kind: ClaimEdgeKind) -> impl Iterator<Item = &IndexedClaimEdge> {
        self.edges.iter().filter(move |edge| edge.kind == kind)
    }

    /// Returns the distinct pairs of claims with an edge between them, the smaller index first.
    pub(super) fn connected_pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs: Vec<_> =
            self.edges.iter().map(|edge| (edge.from.min(edge.to), edge.from.max(edge.to))).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

/// The adjacency list of a graph.
#[derive(Debug)]
pub(super) struct Adjacency {
    starts: Vec<usize>,
    targets: Vec<usize>,
}

impl Adjacency {
    pub(super) fn from_directed_edges(nodes: usize, pairs: &[(usize, usize)]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for (from, _) in pairs {
            starts[from + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; pairs.len()];
        for (from, to) in pairs {
            targets[next[*from]] = *to;
            next[*from] += 1;
        }
        Self { starts, targets }
    }

    pub(super) fn from_undirected_edges(nodes: usize, pairs: &[(usize, usize)]) -> Self {
        let both: Vec<_> = pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
        Self::from_directed_edges(nodes, &both)
    }

    pub(super) fn neighbours(&self, node: usize) -> &[usize] {
        &self.targets[self.starts[node]..self.starts[node + 1]]
    }
}

/// Returns the component number of each node. Components are numbered by their least node.
pub(super) fn label_components(nodes: usize, adjacency: &Adjacency) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut component = vec![NONE; nodes];
    let (mut count, mut waiting) = (0, Vec::new());
    for start in 0..nodes {
        if component[start] != NONE {
            continue;
        }
        component[start] = count;
        waiting.push(start);
        while let Some(node) = waiting.pop() {
            for next in adjacency.neighbours(node) {
                if component[*next] == NONE {
                    component[*next] = count;
                    waiting.push(*next);
                }
            }
        }
        count += 1;
    }
    component
}

/// Returns for each node whether its removal would disconnect others (Tarjan's algorithm without recursion).
pub(super) fn find_articulation_points(nodes: usize, adjacency: &Adjacency) -> Vec<bool> {
    let mut is_point = vec![false; nodes];
    // The discovery time of each node, starting at 1 (0: not visited), and the earliest node reachable from its subtree.
    let (mut discovered, mut low) = (vec![0usize; nodes], vec![0usize; nodes]);
    let mut clock = 0;
    for root in 0..nodes {
        if discovered[root] > 0 {
            continue;
        }
        clock += 1;
        (discovered[root], low[root]) = (clock, clock);
        let mut root_children = 0;
        // A node, its parent, and the number of its neighbours that were visited.
        let mut path = vec![(root, root, 0usize)];
        while let Some((node, parent, visited)) = path.last_mut() {
            let (node, parent) = (*node, *parent);
            if let Some(next) = adjacency.neighbours(node).get(*visited).copied() {
                *visited += 1;
                if discovered[next] == 0 {
                    clock += 1;
                    (discovered[next], low[next]) = (clock, clock);
                    path.push((next, node, 0));
                } else if next != parent {
                    low[node] = low[node].min(discovered[next]);
                }
                continue;
            }
            path.pop();
            if node == root {
                continue;
            }
            low[parent] = low[parent].min(low[node]);
            if parent == root {
                root_children += 1;
            } else if low[node] >= discovered[parent] {
                is_point[parent] = true;
            }
        }
        is_point[root] = root_children > 1;
    }
    is_point
}

fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
