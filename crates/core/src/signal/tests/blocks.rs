//! Where blocks begin and end, and which text the user sees.

use crate::limits::{BLOCK_BYTES_MAX, BLOCKS_PER_TEXT_MAX, COMPLAINTS_PER_PARSE_MAX};
use crate::signal::{BlockFieldSchema, BlockSet, parse_reply, quote_lines, wrap_in_code_fence};
use expect_test::{Expect, expect};

fn names() -> BlockSet {
    BlockSet::default()
        .with_block("NOTE", BlockFieldSchema::default())
        .with_block("Step_Done", BlockFieldSchema::default())
}

/// Checks each text: the visible text, the blocks and the complaints. Line breaks are shown as `
/// `.
fn check(texts: &[&str], expected: Expect) {
    let marked = |text: &str| text.replace("\r\n", "␍").replace('\n', "⏎");
    let mut shown = String::new();
    for text in texts {
        let reading = parse_reply(text, &names(), &[""; 0]);
        shown += &format!("{}|\n    {}|\n", marked(text), marked(&reading.visible_text));
        for block in reading.blocks {
            shown += &format!("    {} {:?}\n", block.name, block.raw);
        }
        for complaint in reading.complaints {
            shown += &format!("    ! {complaint}\n");
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn block_is_removed_from_the_text() {
    check(
        &["Fine.\n\n<<<NOTE>>>\na: 1\n<<<END>>>\n", "<<<NOTE>>>a<<<END>>>", "no block at all\n\n", ""],
        expect![[r#"
        Fine.⏎⏎<<<NOTE>>>⏎a: 1⏎<<<END>>>⏎|
            Fine.|
            NOTE "\na: 1\n"
        <<<NOTE>>>a<<<END>>>|
            |
            NOTE "a"
        no block at all⏎⏎|
            no block at all⏎⏎|
        |
            |
    "#]],
    );
}

#[test]
fn names_match_in_any_case_and_unknown_ones_are_text() {
    check(
        &[
            "<<<note>>>a<<<End>>>",
            "<<< Note >>>a<<<\tEND >>>",
            "<<<    NOTE>>>a<<<END>>>",
            "<<<OTHER>>>a<<<END>>>",
            "<<<NOTES>>>a<<<END>>>",
            "<<<STEP_DONE>>>3<<<END>>>",
        ],
        expect![[r#"
            <<<note>>>a<<<End>>>|
                |
                NOTE "a"
            <<< Note >>>a<<<	END >>>|
                |
                NOTE "a"
            <<<    NOTE>>>a<<<END>>>|
                <<<    NOTE>>>a<<<END>>>|
            <<<OTHER>>>a<<<END>>>|
                <<<OTHER>>>a<<<END>>>|
            <<<NOTES>>>a<<<END>>>|
                <<<NOTES>>>a<<<END>>>|
            <<<STEP_DONE>>>3<<<END>>>|
                |
                STEP_DONE "3"
        "#]],
    );
}

#[test]
fn invalid_block_names_are_ignored() {
    let names = ["", "END", "end", "a b", "a>", "é", &"x".repeat(41), "ok", "OK"];
    let names =
        names.into_iter().fold(BlockSet::default(), |all, name| all.with_block(name, BlockFieldSchema::default()));
    assert_eq!(names.block_names().collect::<Vec<_>>(), ["OK"]);
}

#[test]
fn only_whole_markers_count() {
    check(
        &[
            "<<NOTE>>a<<<END>>>",
            "<<<NOTE>>a<<<END>>>",
            "<<<NOTE a>>>b<<<END>>>",
            "<<<NO<<<NOTE>>>b<<<END>>>",
            "<<<NOTE \n>>>b<<<END>>>",
            "<<<<<NOTE>>>>b<<<<END>>>>c",
            "git: <<<<<<< HEAD\n>>>>>>> theirs <<<",
        ],
        expect![[r#"
            <<NOTE>>a<<<END>>>|
                <<NOTE>>a<<<END>>>|
            <<<NOTE>>a<<<END>>>|
                <<<NOTE>>a<<<END>>>|
            <<<NOTE a>>>b<<<END>>>|
                <<<NOTE a>>>b<<<END>>>|
            <<<NO<<<NOTE>>>b<<<END>>>|
                <<<NO|
                NOTE "b"
            <<<NOTE ⏎>>>b<<<END>>>|
                <<<NOTE ⏎>>>b<<<END>>>|
            <<<<<NOTE>>>>b<<<<END>>>>c|
                <<>c|
                NOTE ">b<"
            git: <<<<<<< HEAD⏎>>>>>>> theirs <<<|
                git: <<<<<<< HEAD⏎>>>>>>> theirs <<<|
        "#]],
    );
}

#[test]
fn the_gap_around_a_block_closes() {
    check(
        &[
            "A\n\n<<<NOTE>>>x<<<END>>>\n\nB",
            "A\n<<<NOTE>>>x<<<END>>>\n\nB",
            "A\n\n<<<NOTE>>>x<<<END>>>\n    B",
            "A <<<NOTE>>>x<<<END>>> B",
            "A<<<NOTE>>>x<<<END>>>  B",
            "A <<<NOTE>>>x<<<END>>>B",
            "A\n  <<<NOTE>>>x<<<END>>> B",
            "A\r\n\r\n<<<NOTE>>>\r\nx\r\n<<<END>>>\r\nB",
            "A\n\n<<<NOTE>>>x<<<END>>>\n<<<NOTE>>>y<<<END>>>\nB",
        ],
        expect![[r#"
            A⏎⏎<<<NOTE>>>x<<<END>>>⏎⏎B|
                A⏎⏎B|
                NOTE "x"
            A⏎<<<NOTE>>>x<<<END>>>⏎⏎B|
                A⏎⏎B|
                NOTE "x"
            A⏎⏎<<<NOTE>>>x<<<END>>>⏎    B|
                A⏎⏎    B|
                NOTE "x"
            A <<<NOTE>>>x<<<END>>> B|
                A B|
                NOTE "x"
            A<<<NOTE>>>x<<<END>>>  B|
                A  B|
                NOTE "x"
            A <<<NOTE>>>x<<<END>>>B|
                A B|
                NOTE "x"
            A⏎  <<<NOTE>>>x<<<END>>> B|
                A⏎  B|
                NOTE "x"
            A␍␍<<<NOTE>>>␍x␍<<<END>>>␍B|
                A␍␍B|
                NOTE "\r\nx\r\n"
            A⏎⏎<<<NOTE>>>x<<<END>>>⏎<<<NOTE>>>y<<<END>>>⏎B|
                A⏎⏎B|
                NOTE "x"
                NOTE "y"
        "#]],
    );
}

#[test]
fn the_gap_is_dropped_at_the_beginning_and_the_end() {
    check(
        &["  \n<<<NOTE>>>x<<<END>>>\n  B\n", "A\n \n<<<NOTE>>>x<<<END>>>  \n\n", "\n<<<NOTE>>>x<<<END>>>\n"],
        expect![[r#"
              ⏎<<<NOTE>>>x<<<END>>>⏎  B⏎|
                B⏎|
                NOTE "x"
            A⏎ ⏎<<<NOTE>>>x<<<END>>>  ⏎⏎|
                A|
                NOTE "x"
            ⏎<<<NOTE>>>x<<<END>>>⏎|
                |
                NOTE "x"
        "#]],
    );
}

#[test]
fn markers_in_a_fence_do_not_count() {
    check(
        &[
            "```\n<<<NOTE>>>x<<<END>>>\n```\n",
            "~~~ text\n<<<NOTE>>>x<<<END>>>\n~~~~\n<<<NOTE>>>y<<<END>>>",
            "~~~ <<<NOTE>>>\nx\n<<<END>>>",
            "````\n```\n<<<NOTE>>>x<<<END>>>\n````\n<<<NOTE>>>y<<<END>>>",
            "```\n~~~\n``` no end\n<<<NOTE>>>x<<<END>>>\n   ```  \n<<<NOTE>>>y<<<END>>>",
            "    ```\n<<<NOTE>>>y<<<END>>>",
            "``\n<<<NOTE>>>y<<<END>>>",
            "```rust\r\n<<<NOTE>>>x<<<END>>>\r\n```\r\n<<<NOTE>>>y<<<END>>>",
        ],
        expect![[r#"
            ```⏎<<<NOTE>>>x<<<END>>>⏎```⏎|
                ```⏎<<<NOTE>>>x<<<END>>>⏎```⏎|
                ! marker NOTE is in a code fence and was ignored
            ~~~ text⏎<<<NOTE>>>x<<<END>>>⏎~~~~⏎<<<NOTE>>>y<<<END>>>|
                ~~~ text⏎<<<NOTE>>>x<<<END>>>⏎~~~~|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
            ~~~ <<<NOTE>>>⏎x⏎<<<END>>>|
                ~~~ <<<NOTE>>>⏎x⏎<<<END>>>|
                ! marker NOTE is in a code fence and was ignored
            ````⏎```⏎<<<NOTE>>>x<<<END>>>⏎````⏎<<<NOTE>>>y<<<END>>>|
                ````⏎```⏎<<<NOTE>>>x<<<END>>>⏎````|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
            ```⏎~~~⏎``` no end⏎<<<NOTE>>>x<<<END>>>⏎   ```  ⏎<<<NOTE>>>y<<<END>>>|
                ```⏎~~~⏎``` no end⏎<<<NOTE>>>x<<<END>>>⏎   ```|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
                ```⏎<<<NOTE>>>y<<<END>>>|
                    ```|
                NOTE "y"
            ``⏎<<<NOTE>>>y<<<END>>>|
                ``|
                NOTE "y"
            ```rust␍<<<NOTE>>>x<<<END>>>␍```␍<<<NOTE>>>y<<<END>>>|
                ```rust␍<<<NOTE>>>x<<<END>>>␍```|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
        "#]],
    );
}

#[test]
fn a_fence_may_belong_to_a_list_item() {
    check(
        &[
            "- ```\n  <<<NOTE>>>x<<<END>>>\n  ```\n<<<NOTE>>>y<<<END>>>",
            "10. Do\n\n    ```\n    <<<NOTE>>>x<<<END>>>\n    ```\n\n<<<NOTE>>>y<<<END>>>",
            "- a\n  - b\n\n       ```\n       <<<NOTE>>>x<<<END>>>\n       ```\n<<<NOTE>>>y<<<END>>>",
            "- a\n\nText\n    ```\n<<<NOTE>>>y<<<END>>>",
        ],
        expect![[r#"
            - ```⏎  <<<NOTE>>>x<<<END>>>⏎  ```⏎<<<NOTE>>>y<<<END>>>|
                - ```⏎  <<<NOTE>>>x<<<END>>>⏎  ```|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
            10. Do⏎⏎    ```⏎    <<<NOTE>>>x<<<END>>>⏎    ```⏎⏎<<<NOTE>>>y<<<END>>>|
                10. Do⏎⏎    ```⏎    <<<NOTE>>>x<<<END>>>⏎    ```|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
            - a⏎  - b⏎⏎       ```⏎       <<<NOTE>>>x<<<END>>>⏎       ```⏎<<<NOTE>>>y<<<END>>>|
                - a⏎  - b⏎⏎       ```⏎       <<<NOTE>>>x<<<END>>>⏎       ```|
                NOTE "y"
                ! marker NOTE is in a code fence and was ignored
            - a⏎⏎Text⏎    ```⏎<<<NOTE>>>y<<<END>>>|
                - a⏎⏎Text⏎    ```|
                NOTE "y"
        "#]],
    );
}

#[test]
fn markers_in_a_quote_do_not_count() {
    check(
        &[
            "> <<<NOTE>>>x<<<END>>>\n<<<NOTE>>>y<<<END>>>",
            "   > > <<<NOTE>>>\n> x\n> <<<END>>>",
            "> ```\n<<<NOTE>>>y<<<END>>>",
            "a > <<<NOTE>>>y<<<END>>>",
        ],
        expect![[r#"
            > <<<NOTE>>>x<<<END>>>⏎<<<NOTE>>>y<<<END>>>|
                > <<<NOTE>>>x<<<END>>>|
                NOTE "y"
                ! marker NOTE is in a quote and was ignored
               > > <<<NOTE>>>⏎> x⏎> <<<END>>>|
                   > > <<<NOTE>>>⏎> x⏎> <<<END>>>|
                ! marker NOTE is in a quote and was ignored
            > ```⏎<<<NOTE>>>y<<<END>>>|
                > ```|
                NOTE "y"
            a > <<<NOTE>>>y<<<END>>>|
                a >|
                NOTE "y"
        "#]],
    );
}

#[test]
fn markers_in_a_code_span_do_not_count() {
    check(
        &[
            "Write `<<<NOTE>>>` first.\n<<<NOTE>>>y<<<END>>>",
            "a ``b ` <<<NOTE>>>`` c <<<NOTE>>>y<<<END>>>",
            "```x``` <<<NOTE>>>y<<<END>>>",
            "```x <<<NOTE>>>y<<<END>>>",
            "a stray ` here\n<<<NOTE>>>y<<<END>>>",
            "`<<<NOTE>>>x<<<END>>>` <<<NOTE>>>y<<<END>>>",
        ],
        expect![[r#"
            Write `<<<NOTE>>>` first.⏎<<<NOTE>>>y<<<END>>>|
                Write `<<<NOTE>>>` first.|
                NOTE "y"
                ! marker NOTE is in a code span and was ignored
            a ``b ` <<<NOTE>>>`` c <<<NOTE>>>y<<<END>>>|
                a ``b ` <<<NOTE>>>`` c|
                NOTE "y"
                ! marker NOTE is in a code span and was ignored
            ```x``` <<<NOTE>>>y<<<END>>>|
                ```x```|
                NOTE "y"
            ```x <<<NOTE>>>y<<<END>>>|
                ```x <<<NOTE>>>y<<<END>>>|
                ! marker NOTE is in a code span and was ignored
            a stray ` here⏎<<<NOTE>>>y<<<END>>>|
                a stray ` here|
                NOTE "y"
            `<<<NOTE>>>x<<<END>>>` <<<NOTE>>>y<<<END>>>|
                `<<<NOTE>>>x<<<END>>>`|
                NOTE "y"
                ! marker NOTE is in a code span and was ignored
        "#]],
    );
}

#[test]
fn marker_may_be_in_the_middle_of_a_line() {
    check(
        &["Done. <<<NOTE>>>\nx\n<<<END>>> Bye.", "- item <<<NOTE>>>x<<<END>>>\n- next"],
        expect![[r#"
        Done. <<<NOTE>>>⏎x⏎<<<END>>> Bye.|
            Done. Bye.|
            NOTE "\nx\n"
        - item <<<NOTE>>>x<<<END>>>⏎- next|
            - item⏎- next|
            NOTE "x"
    "#]],
    );
}

#[test]
fn a_block_without_end_is_hidden_and_a_mention_is_text() {
    check(
        &["A\n<<<NOTE>>>\nx\n\n", "<<<NOTE>>>", "A <<<NOTE>>> x <<<EN", "A <<<NOTE>>>x<<<END>>> \n <<<NOTE>>> y \n"],
        expect![[r#"
            A⏎<<<NOTE>>>⏎x⏎⏎|
                A|
                ! block NOTE has no end marker and was not parsed
            <<<NOTE>>>|
                |
                ! block NOTE has no end marker and was not parsed
            A <<<NOTE>>> x <<<EN|
                A <<<NOTE>>> x <<<EN|
                ! marker NOTE has no end marker and was treated as text
            A <<<NOTE>>>x<<<END>>> ⏎ <<<NOTE>>> y ⏎|
                A ⏎ <<<NOTE>>> y ⏎|
                NOTE "x"
                ! marker NOTE has no end marker and was treated as text
        "#]],
    );
}

#[test]
fn an_end_without_start_is_text() {
    check(
        &["a <<<END>>> b\n<<<END>>>\n<<<NOTE>>>x<<<END>>><<<END>>>"],
        expect![[r#"
        a <<<END>>> b⏎<<<END>>>⏎<<<NOTE>>>x<<<END>>><<<END>>>|
            a <<<END>>> b⏎<<<END>>>⏎<<<END>>>|
            NOTE "x"
    "#]],
    );
}

#[test]
fn a_start_inside_a_block_is_content() {
    check(
        &["The <<<NOTE>>> block:\n<<<NOTE>>>\nx\n<<<END>>>\nB", "<<<NOTE>>>\n```\n<<<STEP_DONE>>>\n```\n<<<END>>>"],
        expect![[r#"
            The <<<NOTE>>> block:⏎<<<NOTE>>>⏎x⏎<<<END>>>⏎B|
                The⏎B|
                NOTE " block:\n<<<NOTE>>>\nx\n"
                ! start marker NOTE inside block NOTE was treated as its content
            <<<NOTE>>>⏎```⏎<<<STEP_DONE>>>⏎```⏎<<<END>>>|
                |
                NOTE "\n```\n<<<STEP_DONE>>>\n```\n"
        "#]],
    );
}

#[test]
fn an_end_that_begins_its_line_always_ends_the_block() {
    check(
        &[
            "<<<NOTE>>>\n```\nforgotten\n<<<END>>>\nB\n<<<NOTE>>>y<<<END>>>",
            "<<<NOTE>>>\n```\nin `<<<END>>>` and <<<END>>> stay\n   <<<END>>>\nB",
            "<<<NOTE>>>\n> <<<END>>>\n`<<<END>>>`\nx <<<END>>> B",
        ],
        expect![[r#"
            <<<NOTE>>>⏎```⏎forgotten⏎<<<END>>>⏎B⏎<<<NOTE>>>y<<<END>>>|
                B|
                NOTE "\n```\nforgotten\n"
                NOTE "y"
            <<<NOTE>>>⏎```⏎in `<<<END>>>` and <<<END>>> stay⏎   <<<END>>>⏎B|
                B|
                NOTE "\n```\nin `<<<END>>>` and <<<END>>> stay\n   "
                ! marker END is in a code fence and was ignored
                ! marker END is in a code fence and was ignored
            <<<NOTE>>>⏎> <<<END>>>⏎`<<<END>>>`⏎x <<<END>>> B|
                B|
                NOTE "\n> <<<END>>>\n`<<<END>>>`\nx "
                ! marker END is in a quote and was ignored
                ! marker END is in a code span and was ignored
        "#]],
    );
}

#[test]
fn the_same_block_may_come_twice() {
    check(
        &["<<<NOTE>>>1<<<END>>>a<<<STEP_DONE>>>2<<<END>>>b<<<NOTE>>>3<<<END>>>"],
        expect![[r#"
        <<<NOTE>>>1<<<END>>>a<<<STEP_DONE>>>2<<<END>>>b<<<NOTE>>>3<<<END>>>|
            ab|
            NOTE "1"
            STEP_DONE "2"
            NOTE "3"
    "#]],
    );
}

#[test]
fn a_block_that_is_too_long_is_text() {
    let fits = format!("<<<NOTE>>>{}<<<END>>>", "x".repeat(BLOCK_BYTES_MAX));
    assert_eq!(parse_reply(&fits, &names(), &[""; 0]).visible_text, "");
    let long = format!("<<<NOTE>>>{}<<<END>>>\n<<<NOTE>>>y<<<END>>>", "é".repeat(BLOCK_BYTES_MAX / 2 + 1));
    let reading = parse_reply(&long, &names(), &[""; 0]);
    assert_eq!(reading.visible_text, long.replace("\n<<<NOTE>>>y<<<END>>>", ""));
    assert_eq!(reading.blocks.len(), 1);
    expect!["block NOTE is longer than 262144 bytes and was not parsed"].assert_eq(&reading.complaints[0].to_string());
}

#[test]
fn blocks_and_complaints_are_limited() {
    let reading = parse_reply(&"<<<NOTE>>>x<<<END>>>".repeat(BLOCKS_PER_TEXT_MAX * 2), &names(), &[""; 0]);
    assert_eq!(reading.blocks.len(), BLOCKS_PER_TEXT_MAX);
    assert_eq!(reading.visible_text, "");
    assert_eq!(reading.complaints.len(), COMPLAINTS_PER_PARSE_MAX);
    expect!["more than 64 blocks; a further NOTE was not parsed"].assert_eq(&reading.complaints[0].to_string());
}

#[test]
fn fenced_text_cannot_leave_its_fence() {
    expect![[r#"
        ```
        plain
        ```"#]]
    .assert_eq(&wrap_in_code_fence("plain"));
    expect![[r#"
        `````
        a
        ```
        <<<NOTE>>>x<<<END>>>
        ````
        `````"#]]
    .assert_eq(&wrap_in_code_fence("a\n```\n<<<NOTE>>>x<<<END>>>\n````\n"));
    expect![[r#"
        ```
        ```"#]]
    .assert_eq(&wrap_in_code_fence(""));
}

#[test]
fn every_quoted_line_begins_with_a_mark() {
    expect![[r#"
        > a
        > b
        > c
        >
        > <<<NOTE>>>"#]]
    .assert_eq(&quote_lines("a\r\nb\rc\n\n<<<NOTE>>>"));
    expect![">"].assert_eq(&quote_lines(""));
}
