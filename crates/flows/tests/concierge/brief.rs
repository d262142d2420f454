//! What the concierge is told of a map. The layout is held fast, the wording is not.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use segue_flows::concierge::analysis::{MapShape, analyse_claim_map};
use segue_flows::concierge::brief::{render_brief, render_shape_guidance};
use segue_flows::concierge::claim_map::{self, ClaimId, ClaimMap};
use segue_flows::concierge::leaks::find_leaked_terms;

use crate::properties;
use crate::small::small;

fn brief_of(map: &ClaimMap, answers: u32) -> String {
    render_brief(map, &analyse_claim_map(map, answers))
}

/// Headings and labels, in order. Prose counts as there or not there.
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
fn a_brief_tells_land_positions_flow_friction_fragility_gaps_and_question() {
    let reading = claim_map::parse_claim_map(claim_map::MAP_FORMAT_PROMPT, 3).expect("a map");
    expect![[r#"
        # The lie of the land
        … Measure before changing anything
        …
        # What is held
        - [Measure before changing anything]
        - [Add a cache]
        - [Rewrite the queries]
        - [Keep results fresh]
        # What leads to what
        - Measure before changing anything | Add a cache
        - Measure before changing anything
        - Measure before changing anything | Rewrite the queries
        # Where views part
        - Add a cache | Rewrite the queries
        - Add a cache | Keep results fresh
        # What is fragile
        - …
        # What nobody addressed
        - …
        # The question this leaves to them
        … Measure before changing anything
    "#]]
    .assert_eq(&layout(&brief_of(&reading.map, 3)));
}

#[test]
fn gaps_are_told_one_by_one_and_the_sharpest_conflict_is_the_question() {
    check(
        "4\na 1,2\nb 3,4\nc 1\nd 2\nc x d\na x b\nc -> a\n? Who pays?\n? By when?",
        &expect![[r#"
            # The lie of the land
            …
            …
            # What is held
            - [Do a]
            - [Do b]
            - [Do c]
            - [Do d]
            # What leads to what
            - Do c | Do a
            # Where views part
            - Do a | Do b
            - Do c | Do d
            # What is fragile
            - Do c
            # What nobody addressed
            - Who pays?
            - By when?
            # The question this leaves to them
            … Do a | Do b
        "#]],
    );
}

#[test]
fn parts_and_what_stands_alone_are_told_apart() {
    check(
        "2\na 1,2\nb 1,2\nc 1,2\nd 1,2\ne 1,2\nf 1,2\ng 1,2\na => b\nb => c\na ~ c\nd ~ e",
        &expect![[r#"
            # The lie of the land
            …
            …
            …
            - Do a | Do b | Do c
            - Do d | Do e
            … Do f | Do g
            # What is held
            - [Do a]
            - [Do b]
            - [Do c]
            - [Do d]
            - [Do e]
            - [Do f]
            - [Do g]
            # What leads to what
            - Do a | Do b | Do c
            # Where views part
            - Do a | Do c
            - Do d | Do e
            # What is fragile
            …
            # What nobody addressed
            …
            # The question this leaves to them
            …
        "#]],
    );
}

#[test]
fn circles_weak_joints_and_challengers_are_told() {
    let (mut map, answers) = small("3\na 1,2,3\nb 1 challenger\nc 1,2,3\nd 1,2,3\na => b\nb => a\nb => c\nc -> d");
    map.claims[1].challenges = Some("d".into());
    expect![[r#"
        # The lie of the land
        …
        …
        # What is held
        - [Do a]
        - [Do c]
        - [Do d]
        - [Do b]
        # What leads to what
        - Do a | Do b | Do c
        - Do b
        - Do b | Do a
        - Do a | Do b
        - Do c | Do d
        # Where views part
        - Do b | Do d
        # What is fragile
        - Do b
        - Do b
        - Do a | Do b
        # What nobody addressed
        …
        # The question this leaves to them
        …
    "#]]
    .assert_eq(&layout(&brief_of(&map, answers)));
}

#[test]
fn the_question_is_about_what_the_shape_turns_on() {
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
fn a_brief_stays_short_however_large_the_map() {
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
        map.edges.push(crate::small::edge(&from, marks[number % 4], &to));
    }
    let brief = brief_of(&map, 8);
    assert!(brief.lines().count() < 150, "{} lines", brief.lines().count());
    assert!(brief.contains("more"), "what is left out is told");
}

#[test]
fn every_shape_has_its_own_guidance_land_and_question() {
    let guidance: std::collections::BTreeSet<String> = MapShape::ALL.into_iter().map(render_shape_guidance).collect();
    assert_eq!(guidance.len(), 8);
    assert!(guidance.iter().all(|text| text.len() > 80 && !text.contains("{%")));
    let (map, answers) = small("4\na 1\nb 2\nc 3\na -> b\nb ~ c\na x c");
    let mut analysis = analyse_claim_map(&map, answers);
    let section = |brief: &str, heading: &str| {
        let rest = brief.split(&format!("### {heading}\n")).nth(1).expect("the section");
        rest.split("### ").next().unwrap_or_default().trim().to_owned()
    };
    let mut told = std::collections::BTreeSet::new();
    for shape in MapShape::ALL {
        analysis.shape = shape;
        let brief = render_brief(&map, &analysis);
        let question = section(&brief, "The question this leaves to them");
        assert!(question.contains('?'), "{shape}: {question}");
        told.insert(question);
        told.insert(section(&brief, "The lie of the land"));
    }
    assert_eq!(told.len(), 16);
}

#[test]
fn s33_what_the_concierge_is_told_holds_no_word_it_must_not_say() {
    let reading = claim_map::parse_claim_map(claim_map::MAP_FORMAT_PROMPT, 3).expect("a map");
    assert_eq!(find_leaked_terms(&brief_of(&reading.map, 3)), []);
    for shape in MapShape::ALL {
        assert_eq!(find_leaked_terms(&render_shape_guidance(shape)), [], "{shape}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_map_has_a_brief_without_ids_or_figures(map in properties::map(), answers in 0u32..8) {
        let brief = brief_of(&map, answers);
        prop_assert!(!brief.contains(|c: char| c.is_ascii_digit() || c == '%'), "{}", brief);
        prop_assert_eq!(brief.matches("### ").count(), 7);
        prop_assert_eq!(find_leaked_terms(&brief), []);
    }
}
