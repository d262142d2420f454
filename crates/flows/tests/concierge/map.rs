//! Parsing of the mapper's reply.

use proptest::prelude::*;
use segue_flows::concierge::claim_map::{
    ClaimEdgeKind, ClaimId, ClaimMapComplaint, ClaimMapParseError, ClaimMapPartDropReason, ClaimMapTagDefect,
    ClaimRoleInMap, ClaimStatementKind, MAP_FORMAT_PROMPT, ParsedClaimMap, parse_claim_map,
};

const PLAIN: &str = r#"{"claims": [
    {"id": "a", "label": "Wait", "text": "It is better to wait.", "supporters": [1, 2], "type": "factual", "role": "anchor"},
    {"id": "b", "label": "Act", "text": "It is better to act.", "supporters": [3], "type": "factual", "role": "branch"}
], "edges": [{"from": "a", "to": "b", "kind": "conflicts"}], "gaps": ["When?"]}"#;

fn read(reply: &str) -> ParsedClaimMap {
    parse_claim_map(reply, 3).expect("a map")
}

/// Parses a map with these claims and edges and returns its complaints.
fn complaints(claims: &str, edges: &str) -> (ParsedClaimMap, Vec<String>) {
    let parsed = read(&format!("<map>{{\"claims\": [{claims}], \"edges\": [{edges}], \"gaps\": []}}</map>"));
    let complaints = parsed.complaints.iter().map(ToString::to_string).collect();
    (parsed, complaints)
}

fn sound(id: &str) -> String {
    format!(
        r#"{{"id": "{id}", "label": "Do {id}", "text": "x", "supporters": [1], "type": "factual", "role": "branch"}}"#
    )
}

#[test]
fn sample_in_the_mapper_prompt_is_parsed_without_complaint() {
    let parsed = read(MAP_FORMAT_PROMPT);
    assert_eq!(parsed.complaints, []);
    let map = parsed.map;
    assert_eq!((map.claims.len(), map.edges.len(), map.gaps.len()), (4, 4, 1));
    assert!(map.narrative.starts_with("All three sources"));
    assert_eq!(map.claims[2].challenges, Some("c2".into()));
    let kinds: std::collections::BTreeSet<_> = map.edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds.len(), 4, "the sample shows every kind of edge");
    for word in ["factual", "prescriptive", "conditional", "contested", "speculative"] {
        assert!(MAP_FORMAT_PROMPT.contains(&format!("`{word}`")), "{word} is explained");
    }
}

#[test]
fn s29_fewer_than_two_answers_make_no_map() {
    let reply = format!("<map>{PLAIN}</map>");
    assert_eq!(parse_claim_map(&reply, 0), Err(ClaimMapParseError::TooFewAnswers { answers: 0 }));
    assert_eq!(parse_claim_map(&reply, 1), Err(ClaimMapParseError::TooFewAnswers { answers: 1 }));
    let parsed = parse_claim_map(&reply, 2).expect("two answers make a map");
    assert_eq!(parsed.map.claims[1].supporters.len(), 0, "the third answer is not there");
}

#[test]
fn last_valid_tag_is_used() {
    let first = PLAIN.replace("Wait", "Draft");
    let parsed = read(&format!("<map>{first}</map>\nOn second thoughts:\n<MAP>\n{PLAIN}\n</MAP>\n\nThe terrain.\n"));
    assert_eq!((parsed.map.claims[0].label.as_str(), parsed.complaints), ("Wait", vec![]));
    assert_eq!(parsed.map.narrative, "The terrain.");
    let parsed = read(&format!("<map>{PLAIN}</map>\nThe terrain.\n<map>{{\"claims\": [}}</map>"));
    assert_eq!((parsed.map.claims[0].label.as_str(), parsed.complaints), ("Wait", vec![]));
    assert_eq!(parsed.map.narrative, "The terrain.");
}

#[test]
fn tag_inside_a_text_is_ignored() {
    let text = PLAIN.replace("It is better to wait.", "Write <map> first.");
    assert_eq!(read(&format!("<map>{text}</map>")).complaints, []);
}

#[test]
fn untagged_maps_are_found_by_priority() {
    let at = |reply: &str| read(reply).complaints.first().cloned();
    assert_eq!(
        at(&format!("<map>{PLAIN}\nThe terrain.")),
        Some(ClaimMapComplaint::BadTags(ClaimMapTagDefect::UnclosedTag))
    );
    assert_eq!(
        at(&format!("```json\n{PLAIN}\n```\nThe terrain.")),
        Some(ClaimMapComplaint::BadTags(ClaimMapTagDefect::Untagged))
    );
    assert_eq!(
        at(&format!("Here it is: {PLAIN} The terrain.")),
        Some(ClaimMapComplaint::BadTags(ClaimMapTagDefect::Untagged))
    );
    let other = PLAIN.replace("Wait", "Other");
    let both = format!("{other}\n```json\n{PLAIN}\n```");
    assert_eq!(read(&both).map.claims[0].label, "Wait", "a fence goes before bare text");
    let both = format!("```json\n{other}\n```\n<map>{PLAIN}");
    assert_eq!(read(&both).map.claims[0].label, "Wait", "a tag goes before a fence");
    for reply in [
        format!("<map>{PLAIN}\nThe terrain."),
        format!("```json\n{PLAIN}\n```\nThe terrain."),
        format!("The terrain.\n\n{PLAIN}"),
        format!("The terrain.\n<map>{PLAIN}</map>"),
    ] {
        assert_eq!(read(&reply).map.narrative, "The terrain.");
    }
}

#[test]
fn invalid_json_is_repaired_and_truncation_is_reported() {
    let mended = read(&format!("<map>{}</map>", PLAIN.replace("], \"gaps\"", ",], 'gaps'")));
    assert_eq!((mended.map.edges.len(), mended.complaints), (1, vec![ClaimMapComplaint::JsonRepaired]));
    let whole = format!("<map>{PLAIN}");
    let cut = read(&whole[..whole.find("\"kind\"").expect("an edge")]);
    assert_eq!(cut.map.claims.len(), 2);
    assert!(cut.complaints.contains(&ClaimMapComplaint::JsonTruncated));
    assert!(cut.complaints.contains(&ClaimMapComplaint::NotAList { part: "gaps" }));
}

#[test]
fn prose_has_no_map() {
    assert_eq!(parse_claim_map("The sources largely agree.", 3), Err(ClaimMapParseError::NoMapFound));
    assert_eq!(parse_claim_map("", 3), Err(ClaimMapParseError::NoMapFound));
    assert_eq!(parse_claim_map(r#"{"claims": "none", "edges": []}"#, 3), Err(ClaimMapParseError::NoMapFound));
    assert_eq!(parse_claim_map(r#"<map>{"claims": [], "edges": []}</map>"#, 3), Err(ClaimMapParseError::NoClaims));
    assert_eq!(
        parse_claim_map(r#"<map>{"claims": [7, {}, {"id": "a"}], "edges": []}</map>"#, 3),
        Err(ClaimMapParseError::NoClaims)
    );
}

#[test]
fn unknown_words_become_the_weakest_value() {
    let claim = r#"{"id": "a", "label": "Wait", "text": "x", "supporters": [1], "type": "opinion"}"#;
    let (parsed, complaints) = complaints(
        &format!("{claim}, {}", sound("b")),
        r#"{"from": "a", "to": "b", "kind": "requires"}, {"from": "b", "to": "a", "kind": "Trade-Offs"}"#,
    );
    assert_eq!(
        complaints,
        [
            "`a` has the unknown type `opinion`, which is read as speculative",
            "`a` has the unknown role ``, which is read as branch",
            "`edge 1` has the unknown kind `requires`, which is read as supports",
        ]
    );
    let claim = &parsed.map.claims[0];
    assert_eq!((claim.kind, claim.role), (ClaimStatementKind::Speculative, ClaimRoleInMap::Branch));
    let kinds: Vec<_> = parsed.map.edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [ClaimEdgeKind::Supports, ClaimEdgeKind::Tradeoff]);
}

#[test]
fn only_existing_answers_are_supporters() {
    let claim = r#"{"id": "a", "label": "Wait", "text": "x", "type": "factual", "role": "anchor",
        "supporters": [1, "Answer 2", 0, 4, -1, 1.5, "everyone", 1, null]}"#;
    let (parsed, complaints) = complaints(claim, "");
    assert_eq!(parsed.map.claims[0].supporters.iter().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(complaints[0], "claim `a` has the supporter `Answer 2`, which is read as 2");
    assert_eq!(complaints.iter().filter(|it| it.contains("there is no answer")).count(), 6);
    assert!(complaints.iter().any(|it| it.contains("it is a duplicate")));
    let (_, complaints) = self::complaints(&sound("a").replace("[1]", "[9]"), "");
    assert_eq!(complaints[1], "claim `a` has no supporter");
}

#[test]
fn only_challengers_challenge_existing_claims() {
    let with = |role: &str, target: &str| {
        let claim = sound("b").replace(r#""role": "branch""#, &format!(r#""role": "{role}", "challenges": {target}"#));
        let (parsed, complaints) = complaints(&format!("{}, {claim}", sound("a")), "");
        (parsed.map.claims[1].challenges.clone(), complaints)
    };
    assert_eq!(with("challenger", r#""a""#), (Some(ClaimId("a".to_owned())), vec![]));
    assert_eq!(with("branch", "null"), (None, vec![]));
    assert_eq!(with("branch", r#""a""#).1, ["`challenges` of `b` was left out: the claim is not a challenger"]);
    assert_eq!(with("challenger", r#""z""#).1, ["`challenges` of `b` was left out: there is no claim `z`"]);
    assert_eq!(with("challenger", r#""b""#).1, ["`challenges` of `b` was left out: it references itself"]);
}

#[test]
fn invalid_and_duplicate_edges_are_dropped() {
    let claims = format!("{}, {}", sound("a"), sound("b"));
    let edge = |from: &str, to: &str, kind: &str| format!(r#"{{"from": "{from}", "to": "{to}", "kind": "{kind}"}}"#);
    let edges = [
        edge("a", "b", "conflicts"),
        edge("b", "a", "conflicts"),
        edge("a", "a", "supports"),
        edge("a", "z", "supports"),
        edge("A", "do b", "supports"),
        "7".to_owned(),
    ];
    let (parsed, complaints) = complaints(&claims, &edges.join(","));
    let kept: Vec<_> = parsed.map.edges.iter().map(|it| (it.from.0.as_str(), it.to.0.as_str(), it.kind)).collect();
    assert_eq!(kept, [("a", "b", ClaimEdgeKind::Conflicts), ("a", "b", ClaimEdgeKind::Supports)]);
    assert_eq!(
        complaints,
        [
            "all of `edge 2` was left out: it is a duplicate",
            "all of `edge 3` was left out: it references itself",
            "all of `edge 4` was left out: there is no claim `z`",
            "`edge 5` references `A`, which is read as claim `a`",
            "`edge 5` references `do b`, which is read as claim `b`",
            "all of `edge 6` was left out: it is unreadable",
        ]
    );
}

#[test]
fn claim_with_any_text_is_kept() {
    let nameless = sound("claim_2").replace(r#""id": "claim_2", "#, "");
    let claims = [
        sound("a"),
        nameless,
        sound("a").replace("Do a", "Do it again"),
        sound("c").replace(r#""label": "Do c", "#, ""),
        sound("d").replace(r#", "text": "x""#, ""),
        sound("claim_2"),
        "7".to_owned(),
    ];
    let (parsed, complaints) = complaints(&claims.join(","), "");
    let labels: Vec<_> = parsed.map.claims.iter().map(|it| (it.id.0.as_str(), it.label.as_str())).collect();
    assert_eq!(
        labels,
        [("a", "Do a"), ("claim_2_", "Do claim_2"), ("c", "x"), ("d", "Do d"), ("claim_2", "Do claim_2")]
    );
    assert_eq!(
        complaints,
        [
            "a claim has no id and got the id `claim_2_`",
            "a second claim of `a` was left out: it is a duplicate",
            "claim `c` has no label; its text is used instead",
            "claim `d` has no text; its label is used instead",
            "all of `claim 7` was left out: it is unreadable",
        ]
    );
}

#[test]
fn labels_are_truncated_to_one_line() {
    let long = sound("a").replace("Do a", &format!("Do\\n  it\\t{}", "x".repeat(500)));
    let (parsed, complaints) = complaints(&long, "");
    assert!(parsed.map.claims[0].label.starts_with("Do it xxx"));
    assert_eq!(parsed.map.claims[0].label.chars().count(), 120);
    assert_eq!(complaints, ["`label` was shortened to 120 characters"]);
}

#[test]
fn list_and_complaint_limits_are_reported() {
    let claims: Vec<String> = (0..10_100).map(|number| format!(r#"{{"id": {number}, "label": "x"}}"#)).collect();
    let (parsed, _) = complaints(&claims.join(","), "");
    assert_eq!(parsed.map.claims.len(), 10_000);
    assert_eq!(parsed.complaints[0], ClaimMapComplaint::ListTruncated { part: "claims", max: 10_000 });
    assert_eq!(parsed.complaints.len(), 65);
    // For each claim: text, type, role, supporters; minus the 63 that are listed after the first.
    assert_eq!(parsed.complaints[64], ClaimMapComplaint::MoreComplaints { count: 40_000 - 63 });
    let why = ClaimMapPartDropReason::UnknownClaim("z".to_owned());
    assert_eq!(why.to_string(), "there is no claim `z`");
}

/// The inputs are long: with quadratic time the test would not finish.
#[test]
fn parsing_takes_linear_time() {
    let close = "<map>{\"claims\":[]}</map>";
    for part in ["<map>", "</map>", "<map>{</map>", "<", "{\"claims\":[{", "<map>[", "```json\n{", close] {
        let text = part.repeat((256 << 10) / part.len());
        assert!(parse_claim_map(&text, 3).is_err(), "{part:?}");
    }
}

proptest! {
    #[test]
    fn any_reply_is_parsed_or_rejected(reply in "\\PC{0,40}", answers in 0u32..5) {
        let tagged = format!("<map>{reply}</map>{PLAIN}");
        if let Ok(parsed) = parse_claim_map(&reply, answers) {
            prop_assert!(!parsed.map.claims.is_empty());
        }
        prop_assert_eq!(parse_claim_map(&tagged, answers).is_ok(), answers >= 2);
    }

    #[test]
    fn truncated_map_references_only_its_own_claims(end in 0..MAP_FORMAT_PROMPT.len()) {
        let cut = MAP_FORMAT_PROMPT.char_indices().map(|(at, _)| at).take_while(|at| *at <= end).last().unwrap_or(0);
        let Ok(parsed) = parse_claim_map(&MAP_FORMAT_PROMPT[..cut], 3) else { return Ok(()) };
        let known = |id: &ClaimId| parsed.map.claims.iter().any(|claim| claim.id == *id);
        prop_assert!(parsed.map.edges.iter().all(|edge| known(&edge.from) && known(&edge.to)));
        prop_assert!(parsed.map.claims.iter().all(|claim| claim.challenges.iter().all(known)));
    }
}

#[test]
fn aliased_keys_of_an_edge_are_accepted() {
    let reply = r#"<map>{"claims": [{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"},
        {"id": "b", "label": "B", "text": "t", "supporters": [2], "type": "factual", "role": "branch"}],
        "edges": [{"from": "a", "to": "b", "type": "conflicts"}, {"source": "a", "target": "b", "relation": "tradeoff"}], "gaps": []}</map>"#;
    let parsed = parse_claim_map(reply, 2).expect("it is a map");
    let kinds: Vec<ClaimEdgeKind> = parsed.map.edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [ClaimEdgeKind::Conflicts, ClaimEdgeKind::Tradeoff]);
    let messages: Vec<String> = parsed.complaints.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "`edge 1` has the key `type` instead of `kind`",
            "`edge 2` has the key `source` instead of `from`",
            "`edge 2` has the key `target` instead of `to`",
            "`edge 2` has the key `relation` instead of `kind`",
        ]
    );
}

#[test]
fn challenge_in_a_single_item_list_is_accepted_and_others_are_reported() {
    let read = |challenges: &str| {
        let reply = format!(
            r#"<map>{{"claims": [{{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"}},
            {{"id": "b", "label": "B", "text": "t", "supporters": [2], "type": "factual", "role": "challenger", "challenges": {challenges}}}],
            "edges": [], "gaps": []}}</map>"#
        );
        let parsed = parse_claim_map(&reply, 2).expect("it is a map");
        let messages: Vec<String> = parsed.complaints.iter().map(ToString::to_string).collect();
        (parsed.map.claims[1].challenges.as_ref().map(ToString::to_string), messages.join("; "))
    };
    let (challenged, messages) = read(r#"["a"]"#);
    assert_eq!(challenged.as_deref(), Some("a"));
    assert!(messages.contains("`challenges` of `b` is a list"), "{messages}");
    for given in [r#"["a", "b"]"#, r#"{"id": "a"}"#, "true"] {
        let (challenged, messages) = read(given);
        assert_eq!(
            (challenged, messages.as_str()),
            (None, "`challenges` of `b` was left out: it is unreadable"),
            "{given}"
        );
    }
    for given in ["null", "[]", r#""""#, r#""none""#, "[null]"] {
        assert_eq!(read(given).0, None, "{given}");
    }
}

#[test]
fn fenced_map_needs_no_edges() {
    let claims = r#"{"claims": [{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"}]}"#;
    for fence in [format!("Here:\n```json\n{claims}\n```\nAll agree."), format!("Here:\n~~~\n{claims}")] {
        let parsed = parse_claim_map(&fence, 2).expect("it is a map");
        assert!(
            parsed.complaints.contains(&ClaimMapComplaint::BadTags(ClaimMapTagDefect::Untagged)),
            "{:?}",
            parsed.complaints
        );
        assert!(parsed.complaints.contains(&ClaimMapComplaint::NotAList { part: "edges" }));
    }
    assert!(parse_claim_map(&format!("Here: {claims}"), 2).is_err(), "elsewhere it may be anything");
}
