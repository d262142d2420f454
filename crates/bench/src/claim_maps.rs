//! Measures the time to parse, analyse and render a claim map. Maps of growing size show how the time grows.

use std::time::Instant;

use segue_flows::concierge::analysis::analyse_claim_map;
use segue_flows::concierge::brief;
use segue_flows::concierge::claim_map::{
    ClaimEdge, ClaimEdgeKind, ClaimId, ClaimMap, ClaimNode, ClaimRoleInMap, ClaimStatementKind, parse_claim_map,
};

use crate::stats::median;

/// Answers that a map is made from.
const ANSWER_COUNT: u32 = 8;
const EDGES_PER_CLAIM: usize = 5;
/// Sizes of the maps, in claims; the last but one is the largest map that is accepted.
const CLAIM_COUNTS: [usize; 5] = [1_250, 2_500, 5_000, 10_000, 20_000];
const REPETITIONS: usize = 7;

/// Measures all sizes. Returns a table.
pub(crate) fn measure_claim_maps() -> String {
    let mut out =
        format!("{:>8} {:>8} {:>10} {:>10} {:>10}\n", "claims", "edges", "parse ms", "analyse ms", "render ms");
    for claims in CLAIM_COUNTS {
        let map = generate_claim_map(claims, claims * EDGES_PER_CLAIM);
        let reply = format!("<map>{}</map>", serde_json::to_string(&map).unwrap_or_default());
        let parsed = median_runtime_ms(|| parse_claim_map(&reply, ANSWER_COUNT).is_ok());
        let analysed = median_runtime_ms(|| analyse_claim_map(&map, ANSWER_COUNT).claims.len() == claims);
        let analysis = analyse_claim_map(&map, ANSWER_COUNT);
        let rendered = median_runtime_ms(|| !brief::render_brief(&map, &analysis).is_empty());
        out.push_str(&format!("{claims:>8} {:>8} {parsed:>10.1} {analysed:>10.1} {rendered:>10.1}\n", map.edges.len()));
    }
    out
}

/// Returns the median runtime of `work` in milliseconds. Its result is used, so that the compiler does not remove it.
fn median_runtime_ms(work: impl Fn() -> bool) -> f64 {
    let times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            assert!(std::hint::black_box(work()), "the work succeeds");
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    median(&times)
}

/// Generates a map with one long chain, and edges of every kind across it, some of them backwards.
fn generate_claim_map(claims: usize, edges: usize) -> ClaimMap {
    let id = |number: usize| ClaimId(format!("c{number:05}"));
    let claim = |number: usize| ClaimNode {
        id: id(number),
        label: format!("Do thing {number}"),
        text: format!("It is best to do thing {number} before it is too late."),
        supporters: (1..=ANSWER_COUNT).filter(|source| (number as u32 * 7 + source).is_multiple_of(3)).collect(),
        kind: if number.is_multiple_of(9) { ClaimStatementKind::Conditional } else { ClaimStatementKind::Prescriptive },
        role: ClaimRoleInMap::Branch,
        challenges: None,
    };
    let mut state = 1u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let edge = |number: usize| {
        let (first, second) = if number + 1 < claims { (number, number + 1) } else { (next(claims), next(claims)) };
        let kind = match number % 5 {
            _ if number + 1 < claims => ClaimEdgeKind::Prerequisite,
            0 => ClaimEdgeKind::Conflicts,
            1 => ClaimEdgeKind::Tradeoff,
            2 => ClaimEdgeKind::Supports,
            _ => ClaimEdgeKind::Prerequisite,
        };
        let (from, to) =
            if number.is_multiple_of(97) { (first, second) } else { (first.min(second), first.max(second)) };
        ClaimEdge { from: id(from), to: id(to), kind }
    };
    ClaimMap {
        claims: (0..claims).map(claim).collect(),
        edges: (0..edges).map(edge).collect(),
        gaps: vec!["Nobody says for whom.".to_owned()],
        narrative: String::new(),
    }
}
