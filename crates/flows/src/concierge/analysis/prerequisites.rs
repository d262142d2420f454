//! The order of claims by their prerequisites: cycles, the longest chain, and the number of dependents of each claim. The
//! claims of a cycle form one group; the graph of groups is acyclic.

use super::graph::Adjacency;

/// The claims of a map, grouped by cycles and ordered by prerequisites.
#[derive(Debug)]
pub(super) struct ClaimPrerequisiteOrder {
    /// The cycles, and every other claim as its own group. A group comes after all groups that depend on it.
    groups: Vec<Vec<usize>>,
    /// The group of each claim.
    group_of_claim: Vec<usize>,
    /// The groups that directly depend on each group.
    dependent_groups: Vec<Vec<usize>>,
}

const BITSET_WORDS: usize = 8;
const BITSET_BITS: usize = BITSET_WORDS * 64;

impl ClaimPrerequisiteOrder {
    /// Creates the order from pairs whose first claim is a prerequisite of the second.
    pub(super) fn from_prerequisites(claims: usize, pairs: &[(usize, usize)]) -> Self {
        let neighbours = Adjacency::from_directed_edges(claims, pairs);
        let links = strongly_connected_components(claims, &neighbours);
        let mut link_of = vec![0; claims];
        for (link, members) in links.iter().enumerate() {
            members.iter().for_each(|claim| link_of[*claim] = link);
        }
        let mut needed_by = vec![Vec::new(); links.len()];
        for (from, to) in pairs {
            if link_of[*from] != link_of[*to] {
                needed_by[link_of[*from]].push(link_of[*to]);
            }
        }
        for list in &mut needed_by {
            list.sort_unstable();
            list.dedup();
        }
        Self { groups: links, group_of_claim: link_of, dependent_groups: needed_by }
    }

    /// Returns the cycles, sorted by their least claim.
    pub(super) fn cycles(&self) -> Vec<&[usize]> {
        let mut cycles: Vec<&[usize]> = self.groups.iter().filter(|group| group.len() > 1).map(Vec::as_slice).collect();
        cycles.sort_unstable();
        cycles
    }

    /// Returns the longest chain of groups, from prerequisite to dependent; empty if it would have only one group. Of several
    /// chains with the same length, the one with the least claims is returned, compared group by group from the start.
    pub(super) fn longest_chain(&self) -> Vec<&[usize]> {
        let least = |link: &usize| self.groups[*link][0];
        let mut length = vec![1usize; self.groups.len()];
        let mut next: Vec<Option<usize>> = vec![None; self.groups.len()];
        for link in 0..self.groups.len() {
            let best = self.dependent_groups[link]
                .iter()
                .copied()
                .max_by_key(|it| (length[*it], std::cmp::Reverse(least(it))));
            if let Some(best) = best {
                length[link] = length[best] + 1;
                next[link] = Some(best);
            }
        }
        let start = (0..self.groups.len()).max_by_key(|link| (length[*link], std::cmp::Reverse(least(link))));
        let Some(start) = start.filter(|link| length[*link] > 1) else { return Vec::new() };
        std::iter::successors(Some(start), |link| next[*link]).map(|link| self.groups[link].as_slice()).collect()
    }

    /// Returns the number of direct and indirect dependents of each claim.
    ///
    /// Paths can meet again, so the exact number needs sets. They are stored as bit sets for a block of claims at a time, so
    /// that memory is linear in the number of claims.
    pub(super) fn count_dependents(&self) -> Vec<u32> {
        let claims = self.group_of_claim.len();
        let mut reached = vec![0u32; self.groups.len()];
        let mut rows = vec![[0u64; BITSET_WORDS]; self.groups.len()];
        for block in (0..claims).step_by(BITSET_BITS) {
            rows.fill([0; BITSET_WORDS]);
            for claim in block..claims.min(block + BITSET_BITS) {
                let bit = claim - block;
                rows[self.group_of_claim[claim]][bit / 64] |= 1 << (bit % 64);
            }
            for link in 0..self.groups.len() {
                let mut row = rows[link];
                for needing in &self.dependent_groups[link] {
                    row.iter_mut().zip(&rows[*needing]).for_each(|(word, other)| *word |= other);
                }
                rows[link] = row;
                reached[link] += row.iter().map(|word| word.count_ones()).sum::<u32>();
            }
        }
        // A claim reaches itself, but is not its own dependent.
        self.group_of_claim.iter().map(|link| reached[*link] - 1).collect()
    }
}

/// Returns the strongly connected components with sorted members. A component comes after all components that it leads to
/// (Tarjan's algorithm without recursion).
fn strongly_connected_components(nodes: usize, adjacency: &Adjacency) -> Vec<Vec<usize>> {
    let mut components = Vec::new();
    let (mut discovered, mut low) = (vec![0usize; nodes], vec![0usize; nodes]);
    let mut is_open = vec![false; nodes];
    let (mut clock, mut open) = (0, Vec::new());
    for root in 0..nodes {
        if discovered[root] > 0 {
            continue;
        }
        let mut path = vec![(root, 0usize)];
        while let Some((node, visited)) = path.last_mut() {
            let node = *node;
            if discovered[node] == 0 {
                clock += 1;
                (discovered[node], low[node]) = (clock, clock);
                is_open[node] = true;
                open.push(node);
            }
            if let Some(next) = adjacency.neighbours(node).get(*visited).copied() {
                *visited += 1;
                if discovered[next] == 0 {
                    path.push((next, 0));
                } else if is_open[next] {
                    low[node] = low[node].min(discovered[next]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == discovered[node] {
                let start =
                    open.iter().rposition(|it| *it == node).expect("a node is open until its component is found");
                let mut component = open.split_off(start);
                component.iter().for_each(|it| is_open[*it] = false);
                component.sort_unstable();
                components.push(component);
            }
        }
    }
    components
}
