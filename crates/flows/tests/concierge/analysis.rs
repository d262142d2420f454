//! The definitions of the analysis, one test for each.

use segue_flows::concierge::analysis::{ClaimMapAnalysis, ClaimMapShape, ClaimSupportLevel, analyse_claim_map};
use segue_flows::concierge::claim_map::{ClaimEdge, ClaimEdgeKind, ClaimId, ClaimMap};

use crate::small_maps::{analysed, edge, ids, small};

fn of_support(analysis: &ClaimMapAnalysis, support: ClaimSupportLevel) -> String {
    let claims = analysis.claims.iter().filter(|claim| claim.support == support);
    claims.map(|claim| claim.id.0.as_str()).collect::<Vec<_>>().join(" ")
}

fn chain(analysis: &ClaimMapAnalysis) -> Vec<Vec<&str>> {
    analysis.longest_chain.iter().map(|link| ids(link)).collect()
}

#[test]
fn values_equal_to_the_threshold_belong_to_the_top() {
    // ⌈.3·6⌉ = 2: the second highest value is 2, and three claims have it. The second lowest is 1; none is at 0.
    let analysis = analysed("3\na 1,2,3\nb 1,2\nc 1,3\nd 2,3\ne 1\nf 3");
    assert_eq!(of_support(&analysis, ClaimSupportLevel::High), "a b c d");
    assert_eq!(of_support(&analysis, ClaimSupportLevel::Low), "e f");
}

#[test]
fn equal_support_is_high_for_all_claims() {
    let analysis = analysed("3\na 1\nb 2\nc 3");
    assert_eq!(of_support(&analysis, ClaimSupportLevel::High), "a b c");
    let analysis = analysed("3\na -\nb -\nc -");
    assert_eq!(of_support(&analysis, ClaimSupportLevel::High), "");
    assert_eq!(of_support(&analysis, ClaimSupportLevel::Low), "a b c");
}

#[test]
fn claim_with_low_support_and_high_leverage_is_an_inversion() {
    // Of eight, ⌈2.4⌉ = 3 are at the bottom (g, h and with them f) and ⌈2⌉ = 2 have the top leverage: h, a challenger that
    // two others need, and a.
    let analysis = analysed(
        "4\na 1,2,3,4 anchor\nb 1,2,3\nc 1,2,3\nd 1,2\ne 1,2\nf 4\ng 3\nh 2 challenger\nh => a\nh => b\na => c\nh x d",
    );
    assert_eq!(ids(&analysis.leverage_inversions), ["h"]);
    // 2·1/4 + 4 + 2·2 + 0 + 1.5 + .25·3 + 2.
    assert_eq!(analysis.claims[7].leverage, 12.75);
    // a and, through it, c; and b.
    assert_eq!(analysis.claims[7].dependents, 3);
}

#[test]
fn leverage_depends_on_roles() {
    let analysis = analysed("2\na 1 challenger\nb 1 anchor\nc 1\nd 1 supplement");
    let leverage: Vec<f64> = analysis.claims.iter().map(|claim| claim.leverage).collect();
    assert_eq!(leverage, [5.0, 3.0, 2.0, 1.5]);
}

#[test]
fn hub_has_one_and_a_half_times_the_next_out_degree() {
    let hub = |text| analysed(text).hub.map(|hub| (hub.claim.0, hub.out_degree, hub.runner_up_out_degree));
    assert_eq!(hub("2\na 1\nb 1\nc 1\nd 1\na -> b\na => c\na -> d\nb -> c\nb -> d"), Some(("a".to_owned(), 3, 2)));
    assert_eq!(hub("2\na 1\nb 1\nc 1\nd 1\na -> b\na -> c\nb -> c\nb -> d"), None, "as far as another");
    assert_eq!(hub("2\na 1\nb 1\na -> b"), None, "one edge is not enough");
    assert_eq!(hub("2\na 1\nb 1\nc 1\nd 1\na x b\na ~ c\na x d"), None, "tension leads nowhere");
}

#[test]
fn keystone_needs_two_prerequisites_and_a_supporter() {
    let keystones = |text| analysed(text).keystones.into_iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(keystones("2\na 1,2\nb 1\nc 1\na => b\na => c"), ["a"]);
    assert_eq!(keystones("2\na 1,2\nb 1\nc 1\na => b\na -> c"), [""; 0]);
    assert_eq!(keystones("2\na -\nb 1\nc 1\na => b\na => c"), [""; 0]);
}

#[test]
fn longest_chain_counts_a_cycle_as_one_link() {
    let analysis = analysed("2\na 1\nb 1\nc 1\nd 1\na => b\nb => c\nc => b\nc => d");
    assert_eq!(chain(&analysis), [vec!["a"], vec!["b", "c"], vec!["d"]]);
    assert_eq!(analysis.cycles.iter().map(|circle| ids(circle)).collect::<Vec<_>>(), [["b", "c"]]);
    assert_eq!(analysis.ratios.depth, 0.75);
    // b needs c, c needs b, d needs both.
    let dependents: Vec<u32> = analysis.claims.iter().map(|claim| claim.dependents).collect();
    assert_eq!(dependents, [3, 2, 2, 0]);
}

#[test]
fn cycle_alone_is_no_chain_and_has_no_root() {
    let analysis = analysed("2\na 1\nb 1\nc 1\na => b\nb => c\nc => a");
    assert_eq!(chain(&analysis), [[""; 0]; 0]);
    assert_eq!(analysis.ratios.depth, 0.0);
    assert!(analysis.claims.iter().all(|claim| !claim.is_root && claim.dependents == 2));
}

#[test]
fn of_equally_long_chains_the_first_by_id_is_chosen() {
    let analysis = analysed("2\na 1\nb 1\nc 1\nd 1\ne 1\nb => e\nb => d\na => e\na => c");
    assert_eq!(chain(&analysis), [["a"], ["c"]]);
}

#[test]
fn dependents_are_counted_once_for_any_number_of_paths() {
    let analysis = analysed("2\na 1\nb 1\nc 1\nd 1\na => b\na => c\nb => d\nc => d\na -> d");
    let dependents: Vec<u32> = analysis.claims.iter().map(|claim| claim.dependents).collect();
    assert_eq!(dependents, [3, 1, 1, 0]);
}

#[test]
fn weak_articulation_point_reduces_confidence_once() {
    // b and d have one supporter each and connect the rest.
    let joined = analysed("3\na 1,2,3\nb 1\nc 1,2,3\nd 1\ne 1,2,3\na -> b\nb -> c\nc -> d\nd -> e");
    assert_eq!(ids(&joined.fragility.weak_articulation_points), ["b", "d"]);
    assert_eq!(joined.fragility.confidence_penalty(), 0.20);
    // With another path around them they are no articulation points.
    let round = analysed("3\na 1,2,3\nb 1\nc 1,2,3\nd 1\ne 1,2,3\na -> b\nb -> c\nc -> d\nd -> e\ne -> a");
    assert_eq!(ids(&round.fragility.weak_articulation_points), [""; 0]);
}

#[test]
fn conditional_conflicts_reduce_confidence_by_at_most_a_fifth() {
    let conflicts = |count: usize| {
        let mut text = "2\na 1,2 conditional\n".to_owned();
        for other in ["b", "c", "d"] {
            text.push_str(&format!("{other} 1,2\n"));
        }
        ["b", "c", "d"].iter().take(count).for_each(|other| text.push_str(&format!("a x {other}\n")));
        analysed(&text).fragility.confidence_penalty()
    };
    assert_eq!([conflicts(0), conflicts(1), conflicts(2), conflicts(3)], [0.0, 0.10, 0.20, 0.20]);
}

#[test]
fn tension_is_conditional_if_either_claim_has_a_prerequisite() {
    let conditional = |text| analysed(text).tensions.iter().map(|tension| tension.is_conditional).collect::<Vec<_>>();
    assert_eq!(conditional("2\na 1\nb 1\na x b"), [false]);
    assert_eq!(conditional("2\na 1\nb 1 conditional\na x b"), [true]);
    assert_eq!(conditional("2\na 1\nb 1\nc 1\nc => a\na ~ b"), [true]);
    assert_eq!(conditional("2\na 1\nb 1\nc 1\na => c\na ~ b"), [false], "to be needed is not to need");
}

#[test]
fn consensus_with_few_edges_is_disconnected() {
    // Components {a b c}, {d}, {e}, {f}: densities 2/3, 0, 0, 0; the mean is 1/6.
    let loose = analysed("2\na 1,2\nb 1,2\nc 1,2\nd 1,2\ne 1,2\nf 1,2\na -> b\nb -> c");
    assert!(loose.fragility.has_disconnected_consensus);
    assert_eq!(loose.fragility.confidence_penalty(), 0.15);
    // Without d, e and f the mean is 2/3; with one answer of two there is no consensus.
    assert!(!analysed("2\na 1,2\nb 1,2\nc 1,2\na -> b\nb -> c").fragility.has_disconnected_consensus);
    assert!(!analysed("2\na 1\nb 1\nc 1\nd 1\ne 1\nf 1\na -> b\nb -> c").fragility.has_disconnected_consensus);
}

#[test]
fn confidence_stays_within_its_bounds() {
    // Contextual fits best with .15 + .35 + .10 = .60, and leads exploratory by some .06: about .52. Signal takes .3·7/12, the
    // two conditional conflicts .20, the weak articulation point .20: the result is below 0.
    let poor = analysed("9\na 1 conditional\nb 1,2\nc 1,2\na x b\na x c");
    assert_eq!((poor.shape, poor.confidence), (ClaimMapShape::Contextual, 0.10));
    let empty = analyse_claim_map(&ClaimMap::default(), 0);
    assert_eq!(empty.shape, ClaimMapShape::Exploratory);
    assert!(empty.confidence >= 0.10 && empty.confidence <= 1.0);
}

#[test]
fn invalid_parts_of_a_map_are_ignored() {
    let (plain, answers) = small("3\na 1,2\nb 3\na -> b\na x b");
    let mut odd = plain.clone();
    odd.claims[0].supporters.extend([0, 4, u32::MAX]);
    odd.claims.push(odd.claims[1].clone());
    odd.edges.extend([edge("a", "->", "a"), edge("a", "->", "b"), edge("b", "x", "a"), edge("a", "=>", "nowhere")]);
    assert_eq!(analyse_claim_map(&odd, answers), analyse_claim_map(&plain, answers));
}

/// The largest allowed map: every claim depends on earlier ones, near and far, with cycles and conflicts between them.
fn large(claims: usize, edges: usize) -> ClaimMap {
    let (mut map, _) = small("8");
    let id = |number: usize| ClaimId(format!("c{number:05}"));
    let (one, _) = small("8\na 1");
    for number in 0..claims {
        let mut claim = one.claims[0].clone();
        claim.id = id(number);
        claim.supporters = (1..=8).filter(|source| (number * 7 + source) % 3 == 0).map(|it| it as u32).collect();
        map.claims.push(claim);
    }
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for number in 0..edges {
        let (from, to) = if number < claims - 1 { (number, number + 1) } else { (next(claims), next(claims)) };
        let kind = match number % 5 {
            _ if number < claims - 1 => ClaimEdgeKind::Prerequisite,
            0 => ClaimEdgeKind::Conflicts,
            1 => ClaimEdgeKind::Tradeoff,
            2 => ClaimEdgeKind::Supports,
            _ => ClaimEdgeKind::Prerequisite,
        };
        let (from, to) = if number % 97 == 0 { (from, to) } else { (from.min(to), from.max(to)) };
        map.edges.push(ClaimEdge { from: id(from), to: id(to), kind });
    }
    map
}

#[test]
fn largest_map_is_analysed_completely() {
    let analysis = analyse_claim_map(&large(10_000, 9_999), 8);
    assert_eq!((analysis.longest_chain.len(), analysis.ratios.depth), (10_000, 1.0));
    assert_eq!(analysis.claims[0].dependents, 9_999);
    let analysis = analyse_claim_map(&large(10_000, 50_000), 8);
    assert_eq!(analysis.components.len(), 1);
    assert!(!analysis.cycles.is_empty());
    assert_eq!(analysis.claims[0].dependents, 9_999);
}
