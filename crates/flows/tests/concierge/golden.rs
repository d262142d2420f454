//! One map for each shape, worked out by hand. The scores come in the order of the table: settled, linear, keystone,
//! contested, tradeoff, dimensional, exploratory, contextual. Where fractions are exact they are written as fractions.

use segue_flows::concierge::analysis::ClaimMapShape;

use crate::small_maps::{Expected, check, ids};

#[test]
fn s28_agreement_is_settled() {
    // n = 3, m = 4. The top 30 % is ⌈0.9⌉ = 1 claim: the threshold is 4 supporters, so a and b are high, c (the least) is low.
    // c = 4/4. a: of the edges, only a→b is among high claims, and it reinforces: 1. t = 0/2. f = (1−1)/2. d: no
    // prerequisites, 0. L: one component, 2 of 3 pairs, support (1 + 1 + 3/4)/3 = 11/12, so 2/3 · 11/12 = 11/18.
    // Signal: .4·2/3 + .3·5·variance + .3·4/4. Support relative to 4 is 1, 1, 3/4, mean 11/12; the variance is
    // (1/144 + 1/144 + 4/144)/3 = 1/72; so 4/15 + 1/48 + 3/10 = 141/240.
    // E: 2 edges ≥ max(2, ⌈.24⌉) holds. The largest out-degree is 1, less than 2, so h = 0.
    let expected = Expected {
        ratios: [1.0, 1.0, 0.0, 0.0, 0.0, 11.0 / 18.0, 141.0 / 240.0],
        scores: [
            173.0 / 180.0, // .40 + .30 + .20 + .10·11/18
            0.5,           // 0 + .30 + .20
            0.3,           // 0 + .30·1/3 + .20
            0.0,
            0.0,
            149.0 / 360.0, // .35·11/18 + 0 + .20 + 0
            103.0 / 360.0, // .35·7/18 + 0 + 0 + .15
            0.0,
        ],
        shape: ClaimMapShape::Settled,
        // Lead 173/180 − 1/2 = 83/180. .35 + .4·83/180 + .25·173/180 − .3·99/240. b connects the two others, and
        // has high support: not fragile.
        confidence: 0.35 + 33.2 / 180.0 + 43.25 / 180.0 - 29.7 / 240.0,
    };
    let analysis = check("4\na 1,2,3,4\nb 1,2,3,4\nc 1,2,3\na -> b\nb -> c", &expected);
    assert_eq!(analysis.fragility.confidence_penalty(), 0.0);
}

#[test]
fn s28_a_sequence_is_linear() {
    // n = 5, m = 4, one supporter each: all equal the threshold, so all are high and none is low.
    // c = 1/4. a = 4/4. t = 0. f = 0. d = 5/5. L: 4 of 10 pairs, support 1/4: .1.
    // Signal: .4·min(1, 4/3) + 0 + .3·4/4 = .7.
    let expected = Expected {
        ratios: [0.25, 1.0, 0.0, 0.0, 1.0, 0.1, 0.7],
        scores: [
            0.61, // .10 + .30 + .20 + .01
            1.0,  // .50 + .30 + .20
            0.11, // 0 + .30·1/5 + .05
            0.0, 0.1875, // 0 + 0 + .25·3/4 + 0
            0.485,  // .035 + .25 + .20 + 0
            0.69,   // .35·.9 + .30·3/4 + 0 + .15
            0.0,
        ],
        shape: ClaimMapShape::Linear,
        // Lead 1 − .69 = .31. .35 + .124 + .25 − .3·.3.
        confidence: 0.634,
    };
    let analysis = check("4\na 1\nb 2\nc 3\nd 4\ne 1\na => b\nb => c\nc => d\nd => e", &expected);
    let chain: Vec<Vec<&str>> = analysis.longest_chain.iter().map(|link| ids(link)).collect();
    assert_eq!(chain, [["a"], ["b"], ["c"], ["d"], ["e"]]);
    let dependents: Vec<u32> = analysis.claims.iter().map(|claim| claim.dependents).collect();
    assert_eq!(dependents, [4, 3, 2, 1, 0]);
    // ⌈.2·5⌉ = 1: the most dependents for its one supporter.
    assert_eq!(analysis.evidence_gaps.len(), 1);
    assert_eq!(analysis.evidence_gaps[0].claim, "a".into());
}

#[test]
fn s28_many_claims_on_one_are_keystone() {
    // n = 5, m = 4. Supporters 3, 1, 1, 1, 1; ⌈1.5⌉ = 2, the second value is 1, so all are high.
    // c = 3/4. a = 4/4. t = 0. f = 0. d = 2/5. L: 4 of 10 pairs, support (3 + 4)/20: .4·.35 = .14.
    // Signal: .4 + .3·min(1, 5·variance) + .3. Relative to 3: 1, 1/3 ×4, mean 7/15; ((8/15)² + 4·(2/15)²)/5 = 80/1125;
    // five times that is 16/45, and .3 of it 8/75.
    // Out-degrees 4 and 0: 4 ≥ max(2, ⌈.5⌉), no runner-up, h = 1.
    let expected = Expected {
        ratios: [0.75, 1.0, 0.0, 0.0, 0.4, 0.14, 0.7 + 8.0 / 75.0],
        scores: [
            0.814, // .30 + .30 + .20 + .014
            0.7,   // .20 + .30 + .20
            0.89,  // .50 + .30·4/5 + .20·3/4
            0.0, 0.0625, // .25·1/4
            0.349,  // .049 + .10 + .20 + 0
            0.526,  // .35·.86 + .30·1/4 + 0 + .15
            0.0,
        ],
        shape: ClaimMapShape::Keystone,
        // Lead .89 − .814 = .076. .35 + .0304 + .2225 − .3·(.3 − 8/75) = .6029 − .09 + .032.
        confidence: 0.5449,
    };
    let analysis = check("4\na 1,2,3 anchor\nb 1\nc 2\nd 3\ne 4\na => b\na => c\na -> d\na -> e", &expected);
    let hub = analysis.hub.as_ref().expect("a hub");
    assert_eq!((hub.claim.0.as_str(), hub.out_degree, hub.runner_up_out_degree), ("a", 4, 0));
    assert_eq!(ids(&analysis.keystones), ["a"]);
    // 2·3/4 + 2 (anchor) + 2·2 + 0 + 0 + .25·4 + 2 (root).
    assert_eq!(analysis.claims[0].leverage, 10.5);
    // 2·1/4 + 1 (branch) + 0 + 1 + 0 + .25·1.
    assert_eq!(analysis.claims[1].leverage, 2.75);
}

#[test]
fn s28_strong_contradicting_claims_are_contested() {
    // n = 3, m = 4. ⌈.9⌉ = 1, the threshold is 2: a and b are high, c is low.
    // c = 2/4. a: among high claims only the conflict, 0/1. t = 1/2. f = 0. d = 0. L: 2 of 3 pairs, support
    // (1/2 + 1/2 + 1/4)/3 = 5/12: 5/18. Signal: 4/15 + .3·5·variance + .3; relative to 2: 1, 1, 1/2, mean 5/6, variance
    // (1/36 + 1/36 + 4/36)/3 = 1/18, so 1/12: together .65.
    let expected = Expected {
        ratios: [0.5, 0.0, 0.5, 0.0, 0.0, 5.0 / 18.0, 0.65],
        scores: [
            0.3 + 1.0 / 36.0,    // .20 + 0 + .10 + .10·5/18
            0.5,                 // 0 + .30 + .20
            0.2,                 // 0 + .30·1/3 + .10
            0.85,                // .40 + .15 + .20 + .10
            0.275,               // 0 + .15 + .125 + 0
            7.0 / 72.0,          // .35·5/18
            0.15 + 91.0 / 360.0, // .35·13/18 + .15 + 0 + 0
            0.2,                 // 0 + 0 + .20
        ],
        shape: ClaimMapShape::Contested,
        // Lead .35. .35 + .14 + .2125 − .3·.35.
        confidence: 0.5975,
    };
    let analysis = check("4\na 1,2\nb 3,4\nc 1\na x b\nc -> a", &expected);
    assert!(analysis.tensions[0].is_between_high_support && !analysis.tensions[0].is_conditional);
}

#[test]
fn s28_mutual_costs_are_tradeoff() {
    // n = 4, m = 4, one supporter each: all high. c = 1/4. a = 0/2. t = 2/2. f = (2−1)/3. d = 0.
    // L: two components of two, density 1, support 1/4: 1/4. Signal: .4·2/3 + 0 + .3 = 17/30.
    let expected = Expected {
        ratios: [0.25, 0.0, 1.0, 1.0 / 3.0, 0.0, 0.25, 17.0 / 30.0],
        scores: [
            0.125,       // .10 + 0 + 0 + .025
            13.0 / 30.0, // 0 + .30 + .20·2/3
            0.05,        // 0 + 0 + .20·1/4
            0.5,         // 0 + .30 + .20 + 0
            0.9375,      // .35 + .30 + .25·3/4 + .10
            0.0875,      // .35·1/4 + 0 + 0 + 0 (two components are not fewer than half of four)
            0.4875,      // .35·3/4 + .30·3/4 + 0 + 0
            0.2,         // 0 + 0 + .20
        ],
        shape: ClaimMapShape::Tradeoff,
        // Lead .4375. .35 + .175 + .234375 − .3·13/30.
        confidence: 0.629375,
    };
    check("4\na 1\nb 2\nc 3\nd 4\na ~ b\nc ~ d", &expected);
}

#[test]
fn s28_separate_coherent_sides_are_dimensional() {
    // n = 5, m = 2, all supported by both: all high. c = 1. a = 2/4. t = 2/4. f = (2−1)/4. d = 3/5 (a, b, c).
    // L: a, b, c have all 3 pairs, d, e their 1; support 1: 1. Signal: .4·min(1, 4/3) + 0 + .3·2/2 = .7.
    // c has an incoming prerequisite, so a ~ c is conditional; d ~ e is not.
    let expected = Expected {
        ratios: [1.0, 0.5, 0.5, 0.25, 0.6, 1.0, 0.7],
        scores: [
            0.75,  // .40 + .15 + .10 + .10
            0.75,  // .30 + .30 + .15
            0.26,  // 0 + .30·1/5 + .20
            0.25,  // 0 + .15 + .10 + 0
            0.6,   // .35 + .15 + 0 + .10
            0.8,   // .35 + .15 + .10 + .20 (1 < 2 < 2.5)
            0.0,   // 0 + 0 + 0 + 0
            0.275, // 0 + .35·1/2 + .10
        ],
        shape: ClaimMapShape::Dimensional,
        // Lead .05. .35 + .02 + .20 − .3·.3.
        confidence: 0.48,
    };
    let analysis = check("2\na 1,2\nb 1,2\nc 1,2\nd 1,2\ne 1,2\na => b\nb => c\na ~ c\nd ~ e", &expected);
    assert_eq!(analysis.components.len(), 2);
}

#[test]
fn s28_little_agreement_is_exploratory() {
    // n = 3, m = 5, one supporter each, no edges. c = 1/5. a = 1/2 (no edge to speak of). t = 0. f = 2/2. d = 0. L = 0.
    // Signal: 0 + 0 + .3·3/5 = .18. E does not hold.
    let expected = Expected {
        ratios: [0.2, 0.5, 0.0, 1.0, 0.0, 0.0, 0.18],
        scores: [
            0.43, // .08 + .15 + .20 + 0
            0.0, 0.04, // 0 + 0 + .20·1/5
            0.1,  // 0 + 0 + .20·1/2 + 0
            0.2,  // 0 + 0 + .25·4/5 + 0
            0.1,  // 0 + 0 + .20·1/2 + 0
            0.94, // .35 + .30·4/5 + .20 + .15
            0.1,  // 0 + 0 + .20·1/2
        ],
        shape: ClaimMapShape::Exploratory,
        // Lead .51. .35 + .204 + .235 − .3·.82.
        confidence: 0.543,
    };
    check("5\na 1\nb 2\nc 3", &expected);
}

#[test]
fn s28_conditional_claims_are_contextual() {
    // n = 4, m = 4. ⌈1.2⌉ = 2, the threshold is 2: a and b are high. c = 2/4. a = 0/1. t = 2/2. f = 1/3. d = 0.
    // L: (2·1·1/2 + 2·1·1/4)/4 = 3/8. Signal: 4/15 + .3·5·1/16 + .3 (relative to 2: 1, 1, 1/2, 1/2, variance 1/16).
    let expected = Expected {
        ratios: [0.5, 0.0, 1.0, 1.0 / 3.0, 0.0, 0.375, 17.0 / 30.0 + 0.09375],
        scores: [
            0.2375,      // .20 + 0 + 0 + .0375
            13.0 / 30.0, // 0 + .30 + .20·2/3
            0.1,         // 0 + 0 + .20·1/2
            0.5,         // 0 + .30 + .20 + 0: no conflict is unconditional
            0.425,       // 0 + .30 + .125 + 0
            0.13125,     // .35·3/8
            0.36875,     // .35·5/8 + .15 + 0 + 0
            1.0,         // .45 + .35 + .20
        ],
        shape: ClaimMapShape::Contextual,
        // Lead .5. .35 + .2 + .25 − .3·(1 − 17/30 − .09375) − 2·.10 for the two conditional conflicts: .8 − .101875 − .2.
        confidence: 0.498125,
    };
    let conditional = "4\na 1,2 conditional\nb 3,4 conditional\nc 1 conditional\nd 2 conditional\na x b\nc x d";
    let analysis = check(conditional, &expected);
    assert_eq!(analysis.fragility.conditional_conflicts, 2);
}

#[test]
fn tie_goes_to_the_earlier_shape() {
    // n = 2, m = 2. c = a = d = L = 1, t = f = 0, and two edges are enough. Settled: .40 + .30 + .20 + .10 = 1, which floating
    // point makes a little less; linear: .50 + .30 + .20 = 1. Keystone: two edges lead away from a and none from b, so
    // .50 + min(1, .30·2/2) + .20 = 1 as well.
    let expected = Expected {
        ratios: [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 17.0 / 30.0],
        scores: [1.0, 1.0, 1.0, 0.0, 0.0, 0.8, 0.15, 0.0],
        shape: ClaimMapShape::Settled,
        // No lead. .35 + 0 + .25 − .3·13/30.
        confidence: 0.47,
    };
    let analysis = check("2\na 1,2\nb 1,2\na => b\na -> b", &expected);
    assert!(
        analysis.shape_score(ClaimMapShape::Settled) < analysis.shape_score(ClaimMapShape::Linear),
        "the tie is one of rounding"
    );
}
