//! Small maps in a text notation, and the check of their analysis.

use segue_flows::concierge::analysis::{ClaimMapAnalysis, ClaimMapShape, analyse_claim_map};
use segue_flows::concierge::claim_map::{
    ClaimEdge, ClaimEdgeKind, ClaimMap, ClaimNode, ClaimRoleInMap, ClaimStatementKind,
};

/// Parses a map. The first line is the number of answers; then, one per line:
/// `a 1,2 anchor conditional` is a claim with its supporters (`-` for none), and its role and type if they are not branch
/// and factual; `a -> b` supports, `a => b` is a prerequisite, `a x b` conflicts, `a ~ b` is a tradeoff; `? text` is a gap.
pub(crate) fn small(text: &str) -> (ClaimMap, u32) {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let answers = lines.next().and_then(|line| line.parse().ok()).expect("the number of answers");
    let mut map = ClaimMap::default();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["?", gap @ ..] => map.gaps.push(gap.join(" ")),
            [from, mark @ ("->" | "=>" | "x" | "~"), to] => map.edges.push(edge(from, mark, to)),
            [id, supporters, more @ ..] => map.claims.push(claim(id, supporters, more)),
            _ => panic!("what is `{line}`?"),
        }
    }
    (map, answers)
}

pub(crate) fn edge(from: &str, mark: &str, to: &str) -> ClaimEdge {
    let kind = match mark {
        "->" => ClaimEdgeKind::Supports,
        "=>" => ClaimEdgeKind::Prerequisite,
        "x" => ClaimEdgeKind::Conflicts,
        _ => ClaimEdgeKind::Tradeoff,
    };
    ClaimEdge { from: from.into(), to: to.into(), kind }
}

fn claim(id: &str, supporters: &str, more: &[&str]) -> ClaimNode {
    let role = more.iter().find_map(|word| match *word {
        "anchor" => Some(ClaimRoleInMap::Anchor),
        "challenger" => Some(ClaimRoleInMap::Challenger),
        "supplement" => Some(ClaimRoleInMap::Supplement),
        _ => None,
    });
    let is_conditional = more.contains(&"conditional");
    ClaimNode {
        id: id.into(),
        label: format!("Do {id}"),
        text: format!("It is best to do {id}."),
        supporters: supporters.split(',').filter_map(|number| number.parse().ok()).collect(),
        kind: if is_conditional { ClaimStatementKind::Conditional } else { ClaimStatementKind::Factual },
        role: role.unwrap_or(ClaimRoleInMap::Branch),
        challenges: None,
    }
}

pub(crate) fn analysed(text: &str) -> ClaimMapAnalysis {
    let (map, answers) = small(text);
    analyse_claim_map(&map, answers)
}

/// The expected analysis of a map, within 1e-12.
pub(crate) struct Expected {
    /// c, a, t, f, d, L, signal.
    pub ratios: [f64; 7],
    /// In the order of [`ClaimMapShape::ALL`].
    pub scores: [f64; 8],
    pub shape: ClaimMapShape,
    pub confidence: f64,
}

pub(crate) fn check(text: &str, expected: &Expected) -> ClaimMapAnalysis {
    let analysis = analysed(text);
    let r = analysis.ratios;
    let ratios = [r.concentration, r.alignment, r.tension, r.fragmentation, r.depth, r.coherence, r.signal];
    let scores: Vec<f64> = ClaimMapShape::ALL.iter().map(|shape| analysis.shape_score(*shape)).collect();
    let close = |found: &[f64], expected: &[f64]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(&ratios, &expected.ratios), "ratios\n {ratios:?}, expected\n {:?}", expected.ratios);
    assert!(close(&scores, &expected.scores), "scores\n {scores:?}, expected\n {:?}", expected.scores);
    assert_eq!(analysis.shape, expected.shape);
    assert!(close(&[analysis.confidence], &[expected.confidence]), "confidence {}", analysis.confidence);
    analysis
}

pub(crate) fn ids(claims: &[segue_flows::concierge::claim_map::ClaimId]) -> Vec<&str> {
    claims.iter().map(|id| id.0.as_str()).collect()
}
