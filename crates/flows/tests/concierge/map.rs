//! What is understood of a mapper's reply.

use proptest::prelude::*;
use segue_flows::concierge::claim_map::{
    ClaimEdgeKind, ClaimId, ClaimKind, ClaimMapError, ClaimRole, DropReason, MAP_FORMAT_PROMPT, MapComplaint,
    ParsedClaimMap, TagDefect, parse_claim_map,
};

const PLAIN: &str = r#"{"claims": [
    {"id": "a", "label": "Wait", "text": "It is better to wait.", "supporters": [1, 2], "type": "factual", "role": "anchor"},
    {"id": "b", "label": "Act", "text": "It is better to act.", "supporters": [3], "type": "factual", "role": "branch"}
], "edges": [{"from": "a", "to": "b", "kind": "conflicts"}], "gaps": ["When?"]}"#;

fn read(reply: &str) -> ParsedClaimMap {
    parse_claim_map(reply, 3).expect("a map")
}

/// The complaints about a map whose claims, or edges, are `claims` and `edges`.
fn complaints(claims: &str, edges: &str) -> (ParsedClaimMap, Vec<String>) {
    let reading = read(&format!("<map>{{\"claims\": [{claims}], \"edges\": [{edges}], \"gaps\": []}}</map>"));
    let complaints = reading.complaints.iter().map(ToString::to_string).collect();
    (reading, complaints)
}

fn sound(id: &str) -> String {
    format!(
        r#"{{"id": "{id}", "label": "Do {id}", "text": "x", "supporters": [1], "type": "factual", "role": "branch"}}"#
    )
}

#[test]
fn the_sample_a_mapper_is_shown_is_read_without_complaint() {
    let reading = read(MAP_FORMAT_PROMPT);
    assert_eq!(reading.complaints, []);
    let map = reading.map;
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
    assert_eq!(parse_claim_map(&reply, 0), Err(ClaimMapError::TooFewAnswers { answers: 0 }));
    assert_eq!(parse_claim_map(&reply, 1), Err(ClaimMapError::TooFewAnswers { answers: 1 }));
    let reading = parse_claim_map(&reply, 2).expect("two answers make a map");
    assert_eq!(reading.map.claims[1].supporters.len(), 0, "the third answer is not there");
}

#[test]
fn the_last_valid_tag_is_taken() {
    let first = PLAIN.replace("Wait", "Draft");
    let reading = read(&format!("<map>{first}</map>\nOn second thoughts:\n<MAP>\n{PLAIN}\n</MAP>\n\nThe terrain.\n"));
    assert_eq!((reading.map.claims[0].label.as_str(), reading.complaints), ("Wait", vec![]));
    assert_eq!(reading.map.narrative, "The terrain.");
    let reading = read(&format!("<map>{PLAIN}</map>\nThe terrain.\n<map>{{\"claims\": [}}</map>"));
    assert_eq!((reading.map.claims[0].label.as_str(), reading.complaints), ("Wait", vec![]));
    assert_eq!(reading.map.narrative, "The terrain.");
}

#[test]
fn a_tag_within_a_text_does_not_mislead() {
    let text = PLAIN.replace("It is better to wait.", "Write <map> first.");
    assert_eq!(read(&format!("<map>{text}</map>")).complaints, []);
}

#[test]
fn a_map_that_is_not_between_tags_is_found_in_order() {
    let at = |reply: &str| read(reply).complaints.first().cloned();
    assert_eq!(at(&format!("<map>{PLAIN}\nThe terrain.")), Some(MapComplaint::BadTags(TagDefect::UnclosedTag)));
    assert_eq!(at(&format!("```json\n{PLAIN}\n```\nThe terrain.")), Some(MapComplaint::BadTags(TagDefect::Untagged)));
    assert_eq!(at(&format!("Here it is: {PLAIN} The terrain.")), Some(MapComplaint::BadTags(TagDefect::Untagged)));
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
fn broken_json_is_mended_and_a_cut_is_told() {
    let mended = read(&format!("<map>{}</map>", PLAIN.replace("], \"gaps\"", ",], 'gaps'")));
    assert_eq!((mended.map.edges.len(), mended.complaints), (1, vec![MapComplaint::JsonRepaired]));
    let whole = format!("<map>{PLAIN}");
    let cut = read(&whole[..whole.find("\"kind\"").expect("an edge")]);
    assert_eq!(cut.map.claims.len(), 2);
    assert!(cut.complaints.contains(&MapComplaint::JsonTruncated));
    assert!(cut.complaints.contains(&MapComplaint::NotAList { part: "gaps" }));
}

#[test]
fn prose_is_no_map() {
    assert_eq!(parse_claim_map("The sources largely agree.", 3), Err(ClaimMapError::NoMapFound));
    assert_eq!(parse_claim_map("", 3), Err(ClaimMapError::NoMapFound));
    assert_eq!(parse_claim_map(r#"{"claims": "none", "edges": []}"#, 3), Err(ClaimMapError::NoMapFound));
    assert_eq!(parse_claim_map(r#"<map>{"claims": [], "edges": []}</map>"#, 3), Err(ClaimMapError::NoClaims));
    assert_eq!(
        parse_claim_map(r#"<map>{"claims": [7, {}, {"id": "a"}], "edges": []}</map>"#, 3),
        Err(ClaimMapError::NoClaims)
    );
}

#[test]
fn words_that_are_not_known_are_read_as_the_weakest() {
    let claim = r#"{"id": "a", "label": "Wait", "text": "x", "supporters": [1], "type": "opinion"}"#;
    let (reading, complaints) = complaints(
        &format!("{claim}, {}", sound("b")),
        r#"{"from": "a", "to": "b", "kind": "requires"}, {"from": "b", "to": "a", "kind": "Trade-Offs"}"#,
    );
    assert_eq!(
        complaints,
        [
            "`a` has type `opinion`, which is taken as speculative",
            "`a` has role ``, which is taken as branch",
            "`edge 1` has kind `requires`, which is taken as supports",
        ]
    );
    let claim = &reading.map.claims[0];
    assert_eq!((claim.kind, claim.role), (ClaimKind::Speculative, ClaimRole::Branch));
    let kinds: Vec<_> = reading.map.edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [ClaimEdgeKind::Supports, ClaimEdgeKind::Tradeoff]);
}

#[test]
fn supporters_are_answers_that_exist() {
    let claim = r#"{"id": "a", "label": "Wait", "text": "x", "type": "factual", "role": "anchor",
        "supporters": [1, "Answer 2", 0, 4, -1, 1.5, "everyone", 1, null]}"#;
    let (reading, complaints) = complaints(claim, "");
    assert_eq!(reading.map.claims[0].supporters.iter().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(complaints[0], "claim `a` has supporter `Answer 2`, which is taken as 2");
    assert_eq!(complaints.iter().filter(|it| it.contains("there is no answer")).count(), 6);
    assert!(complaints.iter().any(|it| it.contains("it was given before")));
    let (_, complaints) = self::complaints(&sound("a").replace("[1]", "[9]"), "");
    assert_eq!(complaints[1], "claim `a` has no supporter");
}

#[test]
fn only_a_challenger_challenges_and_only_what_exists() {
    let with = |role: &str, target: &str| {
        let claim = sound("b").replace(r#""role": "branch""#, &format!(r#""role": "{role}", "challenges": {target}"#));
        let (reading, complaints) = complaints(&format!("{}, {claim}", sound("a")), "");
        (reading.map.claims[1].challenges.clone(), complaints)
    };
    assert_eq!(with("challenger", r#""a""#), (Some(ClaimId("a".to_owned())), vec![]));
    assert_eq!(with("branch", "null"), (None, vec![]));
    assert_eq!(with("branch", r#""a""#).1, ["`challenges` of `b` was left out: the claim is no challenger"]);
    assert_eq!(with("challenger", r#""z""#).1, ["`challenges` of `b` was left out: there is no claim `z`"]);
    assert_eq!(with("challenger", r#""b""#).1, ["`challenges` of `b` was left out: it leads back to itself"]);
}

#[test]
fn edges_lead_from_claim_to_claim_once() {
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
    let (reading, complaints) = complaints(&claims, &edges.join(","));
    let kept: Vec<_> = reading.map.edges.iter().map(|it| (it.from.0.as_str(), it.to.0.as_str(), it.kind)).collect();
    assert_eq!(kept, [("a", "b", ClaimEdgeKind::Conflicts), ("a", "b", ClaimEdgeKind::Supports)]);
    assert_eq!(
        complaints,
        [
            "all of `edge 2` was left out: it was given before",
            "all of `edge 3` was left out: it leads back to itself",
            "all of `edge 4` was left out: there is no claim `z`",
            "`edge 5` names `A`, which is taken as claim `a`",
            "`edge 5` names `do b`, which is taken as claim `b`",
            "all of `edge 6` was left out: it cannot be understood",
        ]
    );
}

#[test]
fn a_claim_is_kept_if_it_says_anything() {
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
    let (reading, complaints) = complaints(&claims.join(","), "");
    let labels: Vec<_> = reading.map.claims.iter().map(|it| (it.id.0.as_str(), it.label.as_str())).collect();
    assert_eq!(
        labels,
        [("a", "Do a"), ("claim_2_", "Do claim_2"), ("c", "x"), ("d", "Do d"), ("claim_2", "Do claim_2")]
    );
    assert_eq!(
        complaints,
        [
            "a claim has no id and was called `claim_2_`",
            "a second claim of `a` was left out: it was given before",
            "claim `c` has no label; the text stands in for it",
            "claim `d` has no text; the label stands in for it",
            "all of `claim 7` was left out: it cannot be understood",
        ]
    );
}

#[test]
fn labels_are_one_short_line() {
    let long = sound("a").replace("Do a", &format!("Do\\n  it\\t{}", "x".repeat(500)));
    let (reading, complaints) = complaints(&long, "");
    assert!(reading.map.claims[0].label.starts_with("Do it xxx"));
    assert_eq!(reading.map.claims[0].label.chars().count(), 120);
    assert_eq!(complaints, ["`label` was shortened to 120 characters"]);
}

#[test]
fn more_than_is_read_and_more_complaints_than_are_told_are_told_as_such() {
    let claims: Vec<String> = (0..10_100).map(|number| format!(r#"{{"id": {number}, "label": "x"}}"#)).collect();
    let (reading, _) = complaints(&claims.join(","), "");
    assert_eq!(reading.map.claims.len(), 10_000);
    assert_eq!(reading.complaints[0], MapComplaint::ListTruncated { part: "claims", max: 10_000 });
    assert_eq!(reading.complaints.len(), 65);
    // For each claim: text, type, role, supporters; less the 63 that were told beside the first.
    assert_eq!(reading.complaints[64], MapComplaint::MoreComplaints { count: 40_000 - 63 });
    let why = DropReason::UnknownClaim("z".to_owned());
    assert_eq!(why.to_string(), "there is no claim `z`");
}

/// Long: what took a time that grows with the square of the length would not come to an end here.
#[test]
fn reading_takes_linear_time() {
    let close = "<map>{\"claims\":[]}</map>";
    for part in ["<map>", "</map>", "<map>{</map>", "<", "{\"claims\":[{", "<map>[", "```json\n{", close] {
        let text = part.repeat((256 << 10) / part.len());
        assert!(parse_claim_map(&text, 3).is_err(), "{part:?}");
    }
}

proptest! {
    #[test]
    fn any_reply_is_read_or_refused(reply in "\\PC{0,40}", answers in 0u32..5) {
        let tagged = format!("<map>{reply}</map>{PLAIN}");
        if let Ok(reading) = parse_claim_map(&reply, answers) {
            prop_assert!(!reading.map.claims.is_empty());
        }
        prop_assert_eq!(parse_claim_map(&tagged, answers).is_ok(), answers >= 2);
    }

    #[test]
    fn a_map_that_is_cut_anywhere_names_only_claims_it_has(end in 0..MAP_FORMAT_PROMPT.len()) {
        let cut = MAP_FORMAT_PROMPT.char_indices().map(|(at, _)| at).take_while(|at| *at <= end).last().unwrap_or(0);
        let Ok(reading) = parse_claim_map(&MAP_FORMAT_PROMPT[..cut], 3) else { return Ok(()) };
        let known = |id: &ClaimId| reading.map.claims.iter().any(|claim| claim.id == *id);
        prop_assert!(reading.map.edges.iter().all(|edge| known(&edge.from) && known(&edge.to)));
        prop_assert!(reading.map.claims.iter().all(|claim| claim.challenges.iter().all(known)));
    }
}

#[test]
fn members_of_an_edge_by_other_names_are_taken_for_what_they_are() {
    let reply = r#"<map>{"claims": [{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"},
        {"id": "b", "label": "B", "text": "t", "supporters": [2], "type": "factual", "role": "branch"}],
        "edges": [{"from": "a", "to": "b", "type": "conflicts"}, {"source": "a", "target": "b", "relation": "tradeoff"}], "gaps": []}</map>"#;
    let reading = parse_claim_map(reply, 2).expect("it is a map");
    let kinds: Vec<ClaimEdgeKind> = reading.map.edges.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [ClaimEdgeKind::Conflicts, ClaimEdgeKind::Tradeoff]);
    let told: Vec<String> = reading.complaints.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "`edge 1` has `type` in the place of `kind`",
            "`edge 2` has `source` in the place of `from`",
            "`edge 2` has `target` in the place of `to`",
            "`edge 2` has `relation` in the place of `kind`",
        ]
    );
}

#[test]
fn a_challenge_in_a_list_of_one_is_taken_and_any_other_is_complained_of() {
    let read = |challenges: &str| {
        let reply = format!(
            r#"<map>{{"claims": [{{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"}},
            {{"id": "b", "label": "B", "text": "t", "supporters": [2], "type": "factual", "role": "challenger", "challenges": {challenges}}}],
            "edges": [], "gaps": []}}</map>"#
        );
        let reading = parse_claim_map(&reply, 2).expect("it is a map");
        let told: Vec<String> = reading.complaints.iter().map(ToString::to_string).collect();
        (reading.map.claims[1].challenges.as_ref().map(ToString::to_string), told.join("; "))
    };
    let (taken, told) = read(r#"["a"]"#);
    assert_eq!(taken.as_deref(), Some("a"));
    assert!(told.contains("list in the place of `challenges`"), "{told}");
    for given in [r#"["a", "b"]"#, r#"{"id": "a"}"#, "true"] {
        let (taken, told) = read(given);
        assert_eq!(
            (taken, told.as_str()),
            (None, "`challenges` of `b` was left out: it cannot be understood"),
            "{given}"
        );
    }
    for given in ["null", "[]", r#""""#, r#""none""#, "[null]"] {
        assert_eq!(read(given).0, None, "{given}");
    }
}

#[test]
fn a_map_in_a_code_fence_needs_no_edges() {
    let claims = r#"{"claims": [{"id": "a", "label": "A", "text": "t", "supporters": [1], "type": "factual", "role": "anchor"}]}"#;
    for fence in [format!("Here:\n```json\n{claims}\n```\nAll agree."), format!("Here:\n~~~\n{claims}")] {
        let reading = parse_claim_map(&fence, 2).expect("it is a map");
        assert!(reading.complaints.contains(&MapComplaint::BadTags(TagDefect::Untagged)), "{:?}", reading.complaints);
        assert!(reading.complaints.contains(&MapComplaint::NotAList { part: "edges" }));
    }
    assert!(parse_claim_map(&format!("Here: {claims}"), 2).is_err(), "elsewhere it may be anything");
}
