//! What needs what, over prerequisites alone: circles, the longest chain, and how many claims hang on each. Claims that
//! need each other form one link, since none of them comes first; between links there are no circles.

use super::graph::Adjacency;

/// The claims of a map, ordered by what needs what.
#[derive(Debug)]
pub(super) struct PrerequisiteOrder {
    /// Claims that need each other, and every other claim by itself. What needs a link stands before it.
    groups: Vec<Vec<usize>>,
    /// For each claim, the number of its link.
    group_of_claim: Vec<usize>,
    /// For each link, the links that need one of its claims.
    dependent_groups: Vec<Vec<usize>>,
}

const BITSET_WORDS: usize = 8;
const BITSET_BITS: usize = BITSET_WORDS * 64;

impl PrerequisiteOrder {
    /// Of claims where the second of each pair needs the first.
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

    /// The sets of claims that need each other, by their least claim.
    pub(super) fn cycles(&self) -> Vec<&[usize]> {
        let mut circles: Vec<&[usize]> = self.groups.iter().filter(|link| link.len() > 1).map(Vec::as_slice).collect();
        circles.sort_unstable();
        circles
    }

    /// The longest chain, from what is needed to what needs it; empty if nothing needs anything outside its circle.
    /// Of several as long, the one with the least claims, compared link by link from the start.
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

    /// For each claim, how many others need it, directly or through others.
    ///
    /// The exact number takes sets, not sums, since ways meet again. They are held as bits, for as many claims at a time
    /// as fit a few words, so memory grows with the number of claims and not with its square.
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
        // A claim reaches itself, and is not among its dependents.
        self.group_of_claim.iter().map(|link| reached[*link] - 1).collect()
    }
}

/// The sets of nodes that lead to each other, every node in one of them, members sorted. A set stands after all that it
/// leads to (Tarjan, without recursion).
fn strongly_connected_components(nodes: usize, adjacency: &Adjacency) -> Vec<Vec<usize>> {
    let mut circles = Vec::new();
    let (mut met, mut low) = (vec![0usize; nodes], vec![0usize; nodes]);
    let mut is_open = vec![false; nodes];
    let (mut clock, mut open) = (0, Vec::new());
    for root in 0..nodes {
        if met[root] > 0 {
            continue;
        }
        let mut path = vec![(root, 0usize)];
        while let Some((node, looked)) = path.last_mut() {
            let node = *node;
            if met[node] == 0 {
                clock += 1;
                (met[node], low[node]) = (clock, clock);
                is_open[node] = true;
                open.push(node);
            }
            if let Some(next) = adjacency.neighbours(node).get(*looked).copied() {
                *looked += 1;
                if met[next] == 0 {
                    path.push((next, 0));
                } else if is_open[next] {
                    low[node] = low[node].min(met[next]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == met[node] {
                let start = open.iter().rposition(|it| *it == node).expect("a node is open until its circle is found");
                let mut circle = open.split_off(start);
                circle.iter().for_each(|it| is_open[*it] = false);
                circle.sort_unstable();
                circles.push(circle);
            }
        }
    }
    circles
}
