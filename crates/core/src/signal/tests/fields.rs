//! The fields of a block.

use crate::limits::LIST_ITEMS_MAX;
use crate::signal::fields::BlockFieldValue;
use crate::signal::{BlockFieldKind, BlockFieldSchema, BlockFields, BlockSet, ParsedReply, parse_reply};
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn names() -> BlockSet {
    let handover = BlockFieldSchema::default()
        .with_key("goal", BlockFieldKind::Text)
        .with_key("problem_summary", BlockFieldKind::Text)
        .with_key("constraints", BlockFieldKind::List)
        .with_key("priorities", BlockFieldKind::List);
    BlockSet::default()
        .with_block(
            "NOTE",
            BlockFieldSchema::default()
                .with_key("shape", BlockFieldKind::Text)
                .with_key("key_findings", BlockFieldKind::List)
                .with_key("gaps", BlockFieldKind::List)
                .with_key("user_reply", BlockFieldKind::Text),
        )
        .with_block(
            "BATCH",
            BlockFieldSchema::default()
                .with_key("type", BlockFieldKind::Text)
                .with_key("goal", BlockFieldKind::Text)
                .with_key("handover", BlockFieldKind::Section(handover))
                .with_key("prompt", BlockFieldKind::Raw),
        )
}

fn inside(block: &str, content: &str) -> ParsedReply {
    parse_reply(&format!("<<<{block}>>>{content}<<<END>>>"), &names(), &[""; 0])
}

fn show(fields: &BlockFields, indent: &str, out: &mut String) {
    for (key, value) in &fields.entries {
        match value {
            BlockFieldValue::Absent => *out += &format!("{indent}{key}\n"),
            BlockFieldValue::Text(text) => *out += &format!("{indent}{key} = {text:?}\n"),
            BlockFieldValue::List(items) => *out += &format!("{indent}{key} = {items:?}\n"),
            BlockFieldValue::Section(fields) => {
                *out += &format!("{indent}{key}:\n");
                show(fields, "  ", out);
            }
        }
    }
}

fn check_in(block: &str, content: &str, expected: Expect) {
    let reading = inside(block, content);
    let mut shown = String::new();
    show(&reading.blocks[0].fields, "", &mut shown);
    for complaint in reading.complaints {
        shown += &format!("! {complaint}\n");
    }
    expected.assert_eq(&shown);
}

fn check(content: &str, expected: Expect) {
    check_in("NOTE", content, expected);
}

#[test]
fn keys_match_in_any_spelling() {
    check(
        "\nShape: a\nKEY FINDINGS: [b]\nUser-Reply : c\n",
        expect![[r#"
        shape = "a"
        key_findings = ["b"]
        user_reply = "c"
    "#]],
    );
    check(
        "\n**Shape:** a\n**Key findings**: [b]\n user_reply:c\n",
        expect![[r#"
            shape = "a"
            key_findings = ["b"]
            user_reply = "c"
        "#]],
    );
    check(
        " shape: a\n     gaps: [b]",
        expect![[r#"
        shape = "a"
        gaps = ["b"]
    "#]],
    );
}

#[test]
fn fields_keep_their_order() {
    check(
        "\ngaps: a\nshape: b\n",
        expect![[r#"
        gaps = ["a"]
        shape = "b"
    "#]],
    );
}

#[test]
fn a_value_may_span_lines() {
    check(
        "\nshape: one\n  two\n\n    three\ngaps: x\n",
        expect![[r#"
        shape = "one\ntwo\n\n  three"
        gaps = ["x"]
    "#]],
    );
    check(
        "\nshape: |\n  one\n  two\r\ngaps: x\n",
        expect![[r#"
        shape = "one\ntwo"
        gaps = ["x"]
    "#]],
    );
    check(
        "\nshape:\n  one: two\n",
        expect![[r#"
        shape = "one: two"
    "#]],
    );
}

#[test]
fn only_known_keys_count_as_keys() {
    check(
        "\nshape: one\nNote: this is prose\nhttps://x.y: z\ngaps: a",
        expect![[r#"
        shape = "one\nNote: this is prose\nhttps://x.y: z"
        gaps = ["a"]
    "#]],
    );
    check(
        "\nmood: fine\nshape: one\n",
        expect![[r#"
        shape = "one"
        ! NOTE: text before the first known key: `mood: fine`
    "#]],
    );
    check(
        "\nJust words.\n",
        expect![[r#"
        ! NOTE: text before the first known key: `Just words.`
    "#]],
    );
    check(
        "\nshape: one\n    gaps: deeper, so part of it\n",
        expect![[r#"
        shape = "one\ngaps: deeper, so part of it"
    "#]],
    );
}

#[test]
fn null_none_and_nothing_are_absent() {
    check(
        "\nshape: null\nuser_reply: None\ngaps: []\nkey_findings:\n",
        expect![[r#"
        shape
        user_reply
        gaps
        key_findings
    "#]],
    );
    check(
        "\nkey_findings: [none, null, , a]\ngaps: none\nshape: \"\"\n",
        expect![[r#"
        key_findings = ["a"]
        gaps
        shape
    "#]],
    );
    check(
        "\nshape: none of these\n",
        expect![[r#"
        shape = "none of these"
    "#]],
    );
    let reading = inside("NOTE", "\nshape: null\n");
    assert_eq!(reading.blocks[0].fields.text("shape"), None);
    assert_eq!(reading.blocks[0].fields.get("shape"), Some(&BlockFieldValue::Absent));
    assert_eq!(reading.blocks[0].fields.get("gaps"), None);
}

#[test]
fn an_inline_list_respects_quotes_and_brackets() {
    check(
        "\ngaps: [a, \"b, c\", d]\n",
        expect![[r#"
        gaps = ["a", "b, c", "d"]
    "#]],
    );
    check(
        "\ngaps: ['a, b', don't, can't, \"say \\\"hi\\\", ok\"]\n",
        expect![[r#"
        gaps = ["a, b", "don't", "can't", "say \"hi\", ok"]
    "#]],
    );
    check(
        "\ngaps: [f(a, b), [c, d], {e, f}]\n",
        expect![[r#"
        gaps = ["f(a, b)", "[c, d]", "{e, f}"]
    "#]],
    );
    check(
        "\ngaps: [a) one, b) two, :( three]\n",
        expect![[r#"
        gaps = ["a) one", "b) two", ":( three"]
    "#]],
    );
    check(
        "\ngaps: [\n  one,\n  two\n  and more,\n]\n",
        expect![[r#"
        gaps = ["one", "two and more"]
    "#]],
    );
    check(
        "\ngaps: [see](link) and [more]\n",
        expect![[r#"
        gaps = ["[see](link) and [more]"]
    "#]],
    );
    check(
        "\ngaps: [\"half open, next, a \"b\" c]\n",
        expect![[r#"
        gaps = ["\"half open", "next", "a \"b\" c"]
    "#]],
    );
}

#[test]
fn a_list_without_closing_bracket_is_a_complaint() {
    check(
        "\ngaps: [a, b\nshape: c\n",
        expect![[r#"
        gaps = ["a", "b"]
        shape = "c"
        ! NOTE.gaps: list has no closing bracket
    "#]],
    );
}

#[test]
fn list_may_have_bullets() {
    check(
        "\ngaps:\n- a, b\n  goes on\n* c\n • d\n1. e\n2) \"f\"\nshape: x\n",
        expect![[r#"
        gaps = ["a, b goes on", "c", "d", "e", "f"]
        shape = "x"
    "#]],
    );
    check(
        "\ngaps:\n  - one: two\n  - shape: not a key\n\n  - three\nshape: x\n",
        expect![[r#"
        gaps = ["one: two", "shape: not a key", "three"]
        shape = "x"
    "#]],
    );
    check(
        "\ngaps: among others\n- a\n",
        expect![[r#"
        gaps = ["among others", "a"]
    "#]],
    );
}

#[test]
fn text_in_place_of_a_list_is_one_item() {
    check(
        "\ngaps: time, money\n",
        expect![[r#"
        gaps = ["time, money"]
    "#]],
    );
    check(
        "\ngaps:\n  time,\n  money\n",
        expect![[r#"
            gaps = ["time, money"]
        "#]],
    );
    let fields = inside("NOTE", "\nshape: a, b\n").blocks.remove(0).fields;
    assert_eq!(fields.list("shape"), ["a, b"]);
}

#[test]
fn a_list_has_a_limit() {
    let reading = inside("NOTE", &format!("\ngaps: [{}]", "x,".repeat(LIST_ITEMS_MAX + 5)));
    assert_eq!(reading.blocks[0].fields.list("gaps").len(), LIST_ITEMS_MAX);
    expect!["NOTE.gaps: only the first 256 items were parsed"].assert_eq(&reading.complaints[0].to_string());
}

#[test]
fn first_of_two_equal_keys_is_used() {
    check(
        "\nshape: a\nShape: b\n",
        expect![[r#"
            shape = "a"
            ! NOTE.shape: repeated key; the first value is used
        "#]],
    );
}

#[test]
fn section_has_its_own_fields() {
    check_in(
        "BATCH",
        "\nTYPE: WORKFLOW\n\nHANDOVER:\n  goal: ship\n  problem_summary: It is\n    late.\n  constraints: [time, \"a, b\"]\n  priorities:\n    - first\n    - second\n\nPROMPT:\nYou are an expert.\nTYPE: not a key\n  goal: neither\n",
        expect![[r#"
            type = "WORKFLOW"
            handover:
              goal = "ship"
              problem_summary = "It is\nlate."
              constraints = ["time", "a, b"]
              priorities = ["first", "second"]
            prompt = "You are an expert.\nTYPE: not a key\n  goal: neither"
        "#]],
    );
}

#[test]
fn a_section_that_is_not_indented_is_understood() {
    check_in(
        "BATCH",
        "\nHANDOVER:\nproblem_summary: s\nconstraints: [c]\ngoal: outer\nTYPE: STEP_HELP\n",
        expect![[r#"
        handover:
          problem_summary = "s"
          constraints = ["c"]
        goal = "outer"
        type = "STEP_HELP"
    "#]],
    );
}

#[test]
fn text_in_place_of_a_section_is_a_complaint() {
    check_in(
        "BATCH",
        "\nHANDOVER: []\nTYPE: none\n",
        expect![[r#"
            handover
            type
        "#]],
    );
    check_in(
        "BATCH",
        "\nHANDOVER: to follow\nTYPE: a\n",
        expect![[r#"
        handover
        type = "a"
        ! BATCH.handover: expected indented keys, found `to follow`
    "#]],
    );
    check_in(
        "BATCH",
        "\nHANDOVER:\n  to follow\nTYPE: a\n",
        expect![[r#"
        handover
        type = "a"
        ! BATCH.handover: expected indented keys, found `to follow`
    "#]],
    );
    check_in(
        "BATCH",
        "\nHANDOVER: as said\n  goal: g\nTYPE: a\n",
        expect![[r#"
        handover:
          goal = "g"
        type = "a"
        ! BATCH.handover: text before the first known key: `as said`
    "#]],
    );
}

#[test]
fn a_raw_value_takes_everything_to_the_end() {
    check_in(
        "BATCH",
        "\nPROMPT: one\n\n  two \n\nHANDOVER:\n",
        expect![[r#"
        prompt = "one\n\n  two \n\nHANDOVER:"
    "#]],
    );
    check_in(
        "BATCH",
        "\nPROMPT:\n\n    code\n",
        expect![[r#"
        prompt = "    code"
    "#]],
    );
    check_in(
        "BATCH",
        "\nPROMPT:\n",
        expect![[r#"
        prompt
    "#]],
    );
    check_in(
        "BATCH",
        "\nHANDOVER:\n  goal: g\n  PROMPT: is outside\n",
        expect![[r#"
            handover:
              goal = "g"
            prompt = "is outside"
        "#]],
    );
}

#[test]
fn block_of_the_original_specification_is_parsed() {
    let text = "<<<HANDOVER>>>\nshape: tradeoff\nkey_findings: [fast is costly, \"cheap, slow\"]\ntensions: []\nresisted_framing: null\nstill_unclear:\n  - budget\n<<<END>>>";
    let shape = BlockFieldSchema::default()
        .with_key("shape", BlockFieldKind::Text)
        .with_key("key_findings", BlockFieldKind::List)
        .with_key("tensions", BlockFieldKind::List)
        .with_key("resisted_framing", BlockFieldKind::Text)
        .with_key("still_unclear", BlockFieldKind::List);
    let reading = parse_reply(text, &BlockSet::default().with_block("HANDOVER", shape), &[""; 0]);
    let fields = &reading.blocks[0].fields;
    assert_eq!(fields.text("shape"), Some("tradeoff"));
    assert_eq!(fields.list("key_findings"), ["fast is costly", "cheap, slow"]);
    assert_eq!(fields.list("tensions"), Vec::<String>::new());
    assert_eq!(fields.text("resisted_framing"), None);
    assert_eq!(fields.list("Still unclear"), ["budget"]);
    assert_eq!((reading.visible_text.as_str(), reading.complaints.len()), ("", 0));
}

fn soup() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "\n",
        "\r\n",
        " ",
        "  ",
        "\t",
        "shape:",
        "gaps: ",
        "gaps: [",
        "handover:",
        "goal: ",
        "prompt:",
        "type :",
        "**",
        "- ",
        "1. ",
        "[",
        "]",
        "(",
        ")",
        "{",
        "\"",
        "'",
        "\\",
        ",",
        ", ",
        ":",
        "none",
        "null",
        "a",
        "é",
        "😀",
        "word",
        "|",
        "<<<NOTE>>>",
        "\u{2028}",
        "\u{0}",
    ]);
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

/// The bytes of all values, and whether any value that should be absent is not.
fn weigh(fields: &BlockFields) -> (usize, bool) {
    fields.entries.iter().fold((0, false), |(bytes, empty), (_, value)| match value {
        BlockFieldValue::Absent => (bytes, empty),
        BlockFieldValue::Text(text) => (bytes + text.len(), empty || text.trim().is_empty()),
        BlockFieldValue::List(items) => {
            let blank = items.is_empty() || items.iter().any(|item| item.trim().is_empty());
            (bytes + items.iter().map(String::len).sum::<usize>(), empty || blank)
        }
        BlockFieldValue::Section(inner) => {
            let (more, blank) = weigh(inner);
            (bytes + more, empty || blank || inner.is_empty())
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_content_is_parsed_and_nothing_is_invented(content in soup(), block in prop::sample::select(vec!["NOTE", "BATCH"])) {
        for block in inside(block, &content).blocks {
            let (bytes, has_empty) = weigh(&block.fields);
            prop_assert!(bytes <= block.raw.len());
            prop_assert!(!has_empty, "{:?}", block.fields);
        }
    }

    #[test]
    fn a_list_written_with_quotes_is_read_back(items in prop::collection::vec("[a-z,'()\\[:-][a-z ,'()\\[\\]:{}-]{0,10}[a-z,'()\\[\\]]", 1..6)) {
        prop_assume!(items.iter().all(|item| item != "null" && item != "none"));
        let quoted: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
        let fields = inside("NOTE", &format!("\ngaps: [{}]\nshape: x\n", quoted.join(", "))).blocks.remove(0).fields;
        prop_assert_eq!(fields.list("gaps"), items);
        prop_assert_eq!(fields.text("shape"), Some("x"));
    }

    #[test]
    fn a_list_written_with_bullets_is_read_back(items in prop::collection::vec("[a-z][a-z ,:\"'()\\[\\]{}-]{0,10}[a-z]", 1..6)) {
        let bullets: Vec<String> = items.iter().map(|item| format!("- {item}")).collect();
        prop_assume!(items.iter().all(|item| item != "null" && item != "none"));
        let fields = inside("NOTE", &format!("\ngaps:\n{}\nshape: x\n", bullets.join("\n"))).blocks.remove(0).fields;
        prop_assert_eq!(fields.list("gaps"), items);
        prop_assert_eq!(fields.text("shape"), Some("x"));
    }

    #[test]
    fn a_raw_value_is_verbatim(prompt in soup()) {
        prop_assume!(!prompt.trim().is_empty() && !["null", "none"].contains(&prompt.trim()));
        let fields = inside("BATCH", &format!("\ntype: x\nprompt:\n{prompt}")).blocks.remove(0).fields;
        let text = fields.text("prompt").unwrap_or_default();
        prop_assert!(prompt.contains(text));
        prop_assert_eq!(text.trim(), prompt.trim());
    }
}

#[test]
fn unknown_key_ends_the_value_before_it() {
    check(
        "\nshape: one\nmood: bad\nand worse\nkey_findings: [a\nnumber_2: b\n  gaps: c\ngaps: [d]\n",
        expect![[r#"
            shape = "one"
            key_findings = ["a"]
            gaps = ["d"]
            ! NOTE.mood: unknown key; its value was ignored
            ! NOTE.key_findings: list has no closing bracket
            ! NOTE.number_2: unknown key; its value was ignored
        "#]],
    );
    check(
        "\nshape: one\n  inner: prose\nTwo words: prose\nat 10:30\nhttps://x.y: z\n",
        expect![[r#"
            shape = "one\n  inner: prose\nTwo words: prose\nat 10:30\nhttps://x.y: z"
        "#]],
    );
}

#[test]
fn inline_list_ends_at_its_bracket() {
    check(
        "\nkey_findings: [a, b]\nThey sounded tired.\ngaps: [c] and d\n",
        expect![[r#"
            key_findings = ["a", "b"]
            gaps = ["[c] and d"]
            ! NOTE.key_findings: text after the list was ignored: `They sounded tired.`
        "#]],
    );
}
