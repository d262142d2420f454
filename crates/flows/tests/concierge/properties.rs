//! Properties of the analysis that hold for any map.

use std::collections::BTreeSet;

use proptest::prelude::*;
use segue_flows::concierge::analysis::{ClaimMapAnalysis, analyse_claim_map};
use segue_flows::concierge::claim_map::{
    ClaimEdge, ClaimEdgeKind, ClaimId, ClaimMap, ClaimNode, ClaimRoleInMap, ClaimStatementKind,
};

/// Ids from a small set, so that they repeat and some edges lead to unknown claims.
fn id() -> impl Strategy<Value = ClaimId> {
    (0u8..12).prop_map(|number| ClaimId(format!("c{number}")))
}

fn claim() -> impl Strategy<Value = ClaimNode> {
    let kind = prop::sample::select(vec![
        ClaimStatementKind::Factual,
        ClaimStatementKind::Conditional,
        ClaimStatementKind::Contested,
    ]);
    let role = prop::sample::select(vec![
        ClaimRoleInMap::Anchor,
        ClaimRoleInMap::Branch,
        ClaimRoleInMap::Challenger,
        ClaimRoleInMap::Supplement,
    ]);
    (id(), "[a-z]{0,3}", prop::collection::btree_set(0u32..7, 0..5), kind, role).prop_map(
        |(id, label, supporters, kind, role)| ClaimNode {
            id,
            text: label.clone(),
            label,
            supporters,
            kind,
            role,
            challenges: None,
        },
    )
}

fn edge() -> impl Strategy<Value = ClaimEdge> {
    let kind = prop::sample::select(vec![
        ClaimEdgeKind::Supports,
        ClaimEdgeKind::Conflicts,
        ClaimEdgeKind::Tradeoff,
        ClaimEdgeKind::Prerequisite,
        ClaimEdgeKind::Prerequisite,
    ]);
    (id(), id(), kind).prop_map(|(from, to, kind)| ClaimEdge { from, to, kind })
}

pub(crate) fn map() -> impl Strategy<Value = ClaimMap> {
    (
        prop::collection::vec(claim(), 0..14),
        prop::collection::vec(edge(), 0..30),
        prop::collection::vec("[a-z ]{1,9}", 0..3),
    )
        .prop_map(|(claims, edges, gaps)| ClaimMap { claims, edges, gaps, narrative: String::new() })
}

/// The same map, written in another order.
fn shuffled() -> impl Strategy<Value = (ClaimMap, ClaimMap)> {
    map().prop_flat_map(|map| {
        let claims = Just(map.claims.clone()).prop_shuffle();
        let edges = Just(map.edges.clone()).prop_shuffle();
        (Just(map), claims, edges).prop_map(|(map, claims, edges)| {
            let other = ClaimMap { claims, edges, ..map.clone() };
            (map, other)
        })
    })
}

/// Writes every number exactly, so that different numbers have different texts.
fn bits(analysis: &ClaimMapAnalysis) -> String {
    serde_json::to_string(analysis).expect("an analysis can be written down")
}

/// Counts the claims that are reachable from each claim over prerequisites, in the simplest way.
fn dependents(analysis: &ClaimMapAnalysis, map: &ClaimMap) -> Vec<u32> {
    let known: BTreeSet<&ClaimId> = analysis.claims.iter().map(|claim| &claim.id).collect();
    let reach = |start: &ClaimId| {
        let mut reached = BTreeSet::from([start.clone()]);
        loop {
            let before = reached.len();
            for edge in map.edges.iter().filter(|edge| edge.kind == ClaimEdgeKind::Prerequisite) {
                if reached.contains(&edge.from) && known.contains(&edge.from) && known.contains(&edge.to) {
                    reached.insert(edge.to.clone());
                }
            }
            if reached.len() == before {
                return u32::try_from(before).expect("few claims") - 1;
            }
        }
    };
    analysis.claims.iter().map(|claim| reach(&claim.id)).collect()
}

/// Counts the components without the claim `without`, in the simplest way.
fn parts(analysis: &ClaimMapAnalysis, map: &ClaimMap, without: Option<&ClaimId>) -> usize {
    let ids = analysis.claims.iter().map(|claim| claim.id.clone());
    let mut parts: Vec<BTreeSet<ClaimId>> =
        ids.filter(|id| Some(id) != without).map(|id| BTreeSet::from([id])).collect();
    for edge in &map.edges {
        let place = |id: &ClaimId, parts: &[BTreeSet<ClaimId>]| parts.iter().position(|part| part.contains(id));
        let (Some(one), Some(other)) = (place(&edge.from, &parts), place(&edge.to, &parts)) else { continue };
        if one != other {
            let moved = std::mem::take(&mut parts[other]);
            parts[one].extend(moved);
            parts.remove(other);
        }
    }
    parts.len()
}

fn numbers(value: &serde_json::Value) -> Vec<Option<f64>> {
    match value {
        serde_json::Value::Array(items) => items.iter().flat_map(numbers).collect(),
        serde_json::Value::Object(members) => members.values().flat_map(numbers).collect(),
        serde_json::Value::Number(number) => vec![number.as_f64()],
        // NaN is serialized as null.
        serde_json::Value::Null => vec![None],
        serde_json::Value::Bool(_) | serde_json::Value::String(_) => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn s28_the_order_of_a_map_does_not_matter((map, other) in shuffled(), answers in 0u32..8) {
        prop_assert_eq!(bits(&analyse_claim_map(&map, answers)), bits(&analyse_claim_map(&other, answers)));
    }

    #[test]
    fn every_map_has_an_analysis_with_proper_numbers(map in map(), answers in 0u32..8) {
        let mut analysis = analyse_claim_map(&map, answers);
        let in_range = |value: f64| (0.0..=1.0).contains(&value);
        prop_assert!(analysis.scores.len() == 8 && analysis.scores.iter().all(|score| in_range(score.score)));
        prop_assert!((0.10..=1.0).contains(&analysis.confidence));
        let r = analysis.ratios;
        for ratio in [r.concentration, r.alignment, r.tension, r.fragmentation, r.depth, r.coherence, r.signal] {
            prop_assert!(in_range(ratio), "{:?}", r);
        }
        prop_assert!(analysis.components.iter().all(|part| in_range(part.density) && in_range(part.mean_support)));
        // A map may have no hub.
        analysis.hub = None;
        let written = serde_json::to_value(&analysis).expect("an analysis can be written down");
        let nulls = numbers(&written).iter().filter(|number| number.is_none()).count();
        prop_assert_eq!(nulls, 1);
    }

    #[test]
    fn dependents_are_exact(map in map()) {
        let analysis = analyse_claim_map(&map, 6);
        let found: Vec<u32> = analysis.claims.iter().map(|claim| claim.dependents).collect();
        prop_assert_eq!(found, dependents(&analysis, &map));
    }

    #[test]
    fn articulation_point_disconnects_others(map in map()) {
        let analysis = analyse_claim_map(&map, 6);
        let whole = parts(&analysis, &map, None);
        prop_assert_eq!(analysis.components.len(), whole);
        for claim in &analysis.claims {
            prop_assert_eq!(claim.is_articulation_point, parts(&analysis, &map, Some(&claim.id)) > whole);
        }
    }

    #[test]
    fn chain_follows_prerequisites(map in map()) {
        let analysis = analyse_claim_map(&map, 6);
        for pair in analysis.longest_chain.windows(2) {
            let leads = |edge: &ClaimEdge| {
                edge.kind == ClaimEdgeKind::Prerequisite && pair[0].contains(&edge.from) && pair[1].contains(&edge.to)
            };
            prop_assert!(map.edges.iter().any(leads));
        }
        prop_assert!(analysis.longest_chain.len() != 1);
    }
}
