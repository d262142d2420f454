//! The brief of a map. The tests fix the layout, not the wording.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use segue_flows::concierge::analysis::{ClaimMapShape, analyse_claim_map};
use segue_flows::concierge::brief::{render_brief, render_shape_guidance};
use segue_flows::concierge::claim_map::{self, ClaimId, ClaimMap};
use segue_flows::concierge::leaks::find_leaked_terms;

use crate::properties;
use crate::small_maps::small;

fn brief_of(map: &ClaimMap, answers: u32) -> String {
    render_brief(map, &analyse_claim_map(map, answers))
}

/// Returns the headings and labels in order. Prose is reduced to `…`.
fn layout(brief: &str) -> String {
    let mut out = String::new();
    for line in brief.lines().filter(|line| !line.trim().is_empty()) {
        let labels: Vec<&str> = line.split('“').skip(1).filter_map(|rest| rest.split('”').next()).collect();
        let bold = line.split("**").nth(1);
        let told = match (line.strip_prefix("### "), line.strip_prefix("- ")) {
            (Some(heading), _) => format!("# {heading}"),
            (_, Some(item)) if bold.is_none() && labels.is_empty() => format!("- {}", words(item)),
            (_, Some(_)) => format!("- {}", bold.map_or_else(|| labels.join(" | "), |label| format!("[{label}]"))),
            _ if labels.is_empty() => "…".to_owned(),
            _ => format!("… {}", labels.join(" | ")),
        };
        out.push_str(&told);
        out.push('\n');
    }
    out
}

fn words(item: &str) -> &str {
    if item.ends_with('?') { item } else { "…" }
}

fn check(small_map: &str, expected: &Expect) {
    let (map, answers) = small(small_map);
    expected.assert_eq(&layout(&brief_of(&map, answers)));
}

#[test]
fn brief_has_seven_sections() {
    let parsed = claim_map::parse_claim_map(claim_map::MAP_FORMAT_PROMPT, 3).expect("a map");
    expect![[r#"
        # Overview
        … Measure before changing anything
        …
        # Positions
        - [Measure before changing anything]
        - [Add a cache]
        - [Rewrite the queries]
        - [Keep results fresh]
        # What depends on what
        - Measure before changing anything | Add a cache
        - Measure before changing anything
        - Measure before changing anything | Rewrite the queries
        # Disagreements
        - Add a cache | Rewrite the queries
        - Add a cache | Keep results fresh
        # Weak points
        - …
        # Not answered yet
        - …
        # Ask the user
        … Measure before changing anything
    "#]]
    .assert_eq(&layout(&brief_of(&parsed.map, 3)));
}

#[test]
fn brief_lists_all_gaps_and_asks_about_the_sharpest_conflict() {
    check(
        "4\na 1,2\nb 3,4\nc 1\nd 2\nc x d\na x b\nc -> a\n? Who pays?\n? By when?",
        &expect![[r#"
            # Overview
            …
            …
            # Positions
            - [Do a]
            - [Do b]
            - [Do c]
            - [Do d]
            # What depends on what
            - Do c | Do a
            # Disagreements
            - Do a | Do b
            - Do c | Do d
            # Weak points
            - Do c
            # Not answered yet
            - Who pays?
            - By when?
            # Ask the user
            … Do a | Do b
        "#]],
    );
}

#[test]
fn brief_separates_components_and_unconnected_claims() {
    check(
        "2\na 1,2\nb 1,2\nc 1,2\nd 1,2\ne 1,2\nf 1,2\ng 1,2\na => b\nb => c\na ~ c\nd ~ e",
        &expect![[r#"
            # Overview
            …
            …
            …
            - Do a | Do b | Do c
            - Do d | Do e
            … Do f | Do g
            # Positions
            - [Do a]
            - [Do b]
            - [Do c]
            - [Do d]
            - [Do e]
            - [Do f]
            - [Do g]
            # What depends on what
            - Do a | Do b | Do c
            # Disagreements
            - Do a | Do c
            - Do d | Do e
            # Weak points
            …
            # Not answered yet
            …
            # Ask the user
            …
        "#]],
    );
}

#[test]
fn brief_lists_cycles_weak_points_and_challengers() {
    let (mut map, answers) = small("3\na 1,2,3\nb 1 challenger\nc 1,2,3\nd 1,2,3\na => b\nb => a\nb => c\nc -> d");
    map.claims[1].challenges = Some("d".into());
    expect![[r#"
        # Overview
        …
        …
        # Positions
        - [Do a]
        - [Do c]
        - [Do d]
        - [Do b]
        # What depends on what
        - Do a | Do b | Do c
        - Do b
        - Do b | Do a
        - Do a | Do b
        - Do c | Do d
        # Disagreements
        - Do b | Do d
        # Weak points
        - Do b
        - Do b
        - Do a | Do b
        # Not answered yet
        …
        # Ask the user
        …
    "#]]
    .assert_eq(&layout(&brief_of(&map, answers)));
}

#[test]
fn question_is_about_the_deciding_claims_of_the_shape() {
    let question = |small_map: &str| {
        let (map, answers) = small(small_map);
        let analysis = analyse_claim_map(&map, answers);
        let layout = layout(&render_brief(&map, &analysis));
        format!("{}{}", analysis.shape, layout.lines().last().unwrap_or_default().trim_start_matches('…'))
    };
    let chain = "a => b\nb => c\nc => d\nd => e";
    let questions = [
        question(&format!("4\na 1\nb 2\nc 3\nd 4\ne 1\n{chain}")),
        question("4\na 1,2,3\nb 1\nc 2\nd 3\ne 4\na => b\na => c\na -> d\na -> e"),
        question("4\na 1\nb 2\nc 3\nd 4\na ~ b\nc ~ d"),
        question("2\na 1,2\nb 1,2\nc 1,2\nd 1,2\ne 1,2\na => b\nb => c\na ~ c\nd ~ e"),
        question("4\na 1,2 conditional\nb 3,4 conditional\nc 1 conditional\nd 2 conditional\na x b\nc x d"),
        question("5\na 1\nb 2\nc 3"),
    ];
    expect![[r#"
        linear Do a
        keystone Do a
        tradeoff Do a | Do b
        dimensional Do a | Do d
        contextual Do a | Do b | Do c | Do d
        exploratory"#]]
    .assert_eq(&questions.join("\n"));
}

#[test]
fn brief_of_a_large_map_is_short() {
    let (mut map, _) = small("8");
    let (one, _) = small("8\na 1");
    for number in 0..3_000 {
        let mut claim = one.claims[0].clone();
        claim.id = ClaimId(format!("c{number}"));
        map.claims.push(claim);
    }
    for number in 0..2_999 {
        let marks = ["->", "=>", "x", "~"];
        let (from, to) = (format!("c{number}"), format!("c{}", (number * 7 + 1) % 3_000));
        map.edges.push(crate::small_maps::edge(&from, marks[number % 4], &to));
    }
    let brief = brief_of(&map, 8);
    assert!(brief.lines().count() < 150, "{} lines", brief.lines().count());
    assert!(brief.contains("more"), "what is left out is told");
}

#[test]
fn every_shape_has_its_own_guidance_overview_and_question() {
    let guidance: std::collections::BTreeSet<String> =
        ClaimMapShape::ALL.into_iter().map(render_shape_guidance).collect();
    assert_eq!(guidance.len(), 8);
    assert!(guidance.iter().all(|text| text.len() > 80 && !text.contains("{%")));
    let (map, answers) = small("4\na 1\nb 2\nc 3\na -> b\nb ~ c\na x c");
    let mut analysis = analyse_claim_map(&map, answers);
    let section = |brief: &str, heading: &str| {
        let rest = brief.split(&format!("### {heading}\n")).nth(1).expect("the section");
        rest.split("### ").next().unwrap_or_default().trim().to_owned()
    };
    let mut told = std::collections::BTreeSet::new();
    for shape in ClaimMapShape::ALL {
        analysis.shape = shape;
        let brief = render_brief(&map, &analysis);
        let question = section(&brief, "Ask the user");
        assert!(question.ends_with('.'), "{shape}: {question}");
        told.insert(question);
        told.insert(section(&brief, "Overview"));
    }
    assert_eq!(told.len(), 16);
}

#[test]
fn s33_brief_contains_no_internal_terms() {
    let parsed = claim_map::parse_claim_map(claim_map::MAP_FORMAT_PROMPT, 3).expect("a map");
    assert_eq!(find_leaked_terms(&brief_of(&parsed.map, 3)), []);
    for shape in ClaimMapShape::ALL {
        assert_eq!(find_leaked_terms(&render_shape_guidance(shape)), [], "{shape}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_brief_has_no_ids_and_no_digits(map in properties::map(), answers in 0u32..8) {
        let brief = brief_of(&map, answers);
        prop_assert!(!brief.contains(|c: char| c.is_ascii_digit() || c == '%'), "{}", brief);
        prop_assert_eq!(brief.matches("### ").count(), 7);
        prop_assert_eq!(find_leaked_terms(&brief), []);
    }
}
