//! Where blocks begin and end, and what the user sees.

use expect_test::{Expect, expect};
use segue_core::signal::fields::Shape;
use segue_core::signal::{BLOCK_BYTES_MAX, BLOCKS_MAX, BlockNames, COMPLAINTS_MAX, fence, quote, read};

fn names() -> BlockNames {
    BlockNames::new().block("NOTE", Shape::new()).block("Step_Done", Shape::new())
}

/// The visible text, the blocks and the complaints, a line each; line ends of the visible text are shown as `⏎`.
fn check(text: &str, expected: Expect) {
    let reading = read(text, &names());
    let mut shown = format!("see {}|\n", reading.visible.replace("\r\n", "␍").replace('\n', "⏎"));
    for block in reading.blocks {
        shown += &format!("{} {:?}\n", block.name, block.raw);
    }
    for complaint in reading.complaints {
        shown += &format!("! {complaint}\n");
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_block_is_taken_out_of_the_text() {
    check(
        "Fine.\n\n<<<NOTE>>>\na: 1\n<<<END>>>\n",
        expect![[r#"
        see Fine.|
        NOTE "\na: 1\n"
    "#]],
    );
    check(
        "<<<NOTE>>>a<<<END>>>",
        expect![[r#"
        see |
        NOTE "a"
    "#]],
    );
    check(
        "no block at all\n\n",
        expect![[r#"
        see no block at all⏎⏎|
    "#]],
    );
    check(
        "",
        expect![[r#"
        see |
    "#]],
    );
}

#[test]
fn names_match_in_any_case_and_unknown_ones_are_text() {
    check(
        "<<<note>>>a<<<End>>>",
        expect![[r#"
        see |
        NOTE "a"
    "#]],
    );
    check(
        "<<< Note >>>a<<<\tEND >>>",
        expect![[r#"
        see |
        NOTE "a"
    "#]],
    );
    check(
        "<<<    NOTE>>>a<<<END>>>",
        expect![[r#"
        see <<<    NOTE>>>a<<<END>>>|
    "#]],
    );
    check(
        "<<<OTHER>>>a<<<END>>>",
        expect![[r#"
        see <<<OTHER>>>a<<<END>>>|
    "#]],
    );
    check(
        "<<<NOTES>>>a<<<END>>>",
        expect![[r#"
        see <<<NOTES>>>a<<<END>>>|
    "#]],
    );
    check(
        "<<<STEP_DONE>>>3<<<END>>>",
        expect![[r#"
        see |
        STEP_DONE "3"
    "#]],
    );
}

#[test]
fn names_that_no_marker_can_have_are_left_out() {
    let names = ["", "END", "end", "a b", "a>", "é", &"x".repeat(41), "ok", "OK"];
    let names = names.into_iter().fold(BlockNames::new(), |all, name| all.block(name, Shape::new()));
    assert_eq!(names.names().collect::<Vec<_>>(), ["OK"]);
}

#[test]
fn only_whole_markers_count() {
    check(
        "<<NOTE>>a<<<END>>>",
        expect![[r#"
        see <<NOTE>>a<<<END>>>|
    "#]],
    );
    check(
        "<<<NOTE>>a<<<END>>>",
        expect![[r#"
        see <<<NOTE>>a<<<END>>>|
    "#]],
    );
    check(
        "<<<NOTE a>>>b<<<END>>>",
        expect![[r#"
        see <<<NOTE a>>>b<<<END>>>|
    "#]],
    );
    check(
        "<<<NO<<<NOTE>>>b<<<END>>>",
        expect![[r#"
        see <<<NO|
        NOTE "b"
    "#]],
    );
    check(
        "<<<<<NOTE>>>>b<<<<END>>>>c",
        expect![[r#"
        see <<>c|
        NOTE ">b<"
    "#]],
    );
    check(
        "git: <<<<<<< HEAD\n>>>>>>> theirs <<<",
        expect![[r#"
        see git: <<<<<<< HEAD⏎>>>>>>> theirs <<<|
    "#]],
    );
}

#[test]
fn the_gap_around_a_block_closes() {
    check(
        "A\n\n<<<NOTE>>>x<<<END>>>\n\nB",
        expect![[r#"
        see A⏎⏎B|
        NOTE "x"
    "#]],
    );
    check(
        "A\n<<<NOTE>>>x<<<END>>>\n\nB",
        expect![[r#"
        see A⏎⏎B|
        NOTE "x"
    "#]],
    );
    check(
        "A\n\n<<<NOTE>>>x<<<END>>>\n    B",
        expect![[r#"
        see A⏎⏎    B|
        NOTE "x"
    "#]],
    );
    check(
        "A <<<NOTE>>>x<<<END>>> B",
        expect![[r#"
        see A B|
        NOTE "x"
    "#]],
    );
    check(
        "A<<<NOTE>>>x<<<END>>>  B",
        expect![[r#"
        see A  B|
        NOTE "x"
    "#]],
    );
    check(
        "A <<<NOTE>>>x<<<END>>>B",
        expect![[r#"
        see A B|
        NOTE "x"
    "#]],
    );
    check(
        "A\n  <<<NOTE>>>x<<<END>>> B",
        expect![[r#"
        see A⏎  B|
        NOTE "x"
    "#]],
    );
    check(
        "A\r\n\r\n<<<NOTE>>>\r\nx\r\n<<<END>>>\r\nB",
        expect![[r#"
        see A␍␍B|
        NOTE "\r\nx\r\n"
    "#]],
    );
    check(
        "A\n\n<<<NOTE>>>x<<<END>>>\n<<<NOTE>>>y<<<END>>>\nB",
        expect![[r#"
        see A⏎⏎B|
        NOTE "x"
        NOTE "y"
    "#]],
    );
}

#[test]
fn the_gap_is_dropped_at_the_beginning_and_the_end() {
    check(
        "  \n<<<NOTE>>>x<<<END>>>\n  B\n",
        expect![[r#"
        see B⏎|
        NOTE "x"
    "#]],
    );
    check(
        "A\n \n<<<NOTE>>>x<<<END>>>  \n\n",
        expect![[r#"
        see A|
        NOTE "x"
    "#]],
    );
    check(
        "\n<<<NOTE>>>x<<<END>>>\n",
        expect![[r#"
        see |
        NOTE "x"
    "#]],
    );
}

#[test]
fn markers_in_a_fence_do_not_count() {
    check(
        "```\n<<<NOTE>>>x<<<END>>>\n```\n",
        expect![[r#"
        see ```⏎<<<NOTE>>>x<<<END>>>⏎```⏎|
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "~~~ text\n<<<NOTE>>>x<<<END>>>\n~~~~\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ~~~ text⏎<<<NOTE>>>x<<<END>>>⏎~~~~|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "~~~ <<<NOTE>>>\nx\n<<<END>>>",
        expect![[r#"
        see ~~~ <<<NOTE>>>⏎x⏎<<<END>>>|
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "````\n```\n<<<NOTE>>>x<<<END>>>\n````\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ````⏎```⏎<<<NOTE>>>x<<<END>>>⏎````|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "```\n~~~\n``` no end\n<<<NOTE>>>x<<<END>>>\n   ```  \n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ```⏎~~~⏎``` no end⏎<<<NOTE>>>x<<<END>>>⏎   ```|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "    ```\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see     ```|
        NOTE "y"
    "#]],
    );
    check(
        "``\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ``|
        NOTE "y"
    "#]],
    );
    check(
        "```rust\r\n<<<NOTE>>>x<<<END>>>\r\n```\r\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ```rust␍<<<NOTE>>>x<<<END>>>␍```|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
}

#[test]
fn a_fence_may_belong_to_a_list_item() {
    check(
        "- ```\n  <<<NOTE>>>x<<<END>>>\n  ```\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see - ```⏎  <<<NOTE>>>x<<<END>>>⏎  ```|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "10. Do\n\n    ```\n    <<<NOTE>>>x<<<END>>>\n    ```\n\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see 10. Do⏎⏎    ```⏎    <<<NOTE>>>x<<<END>>>⏎    ```|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "- a\n  - b\n\n       ```\n       <<<NOTE>>>x<<<END>>>\n       ```\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see - a⏎  - b⏎⏎       ```⏎       <<<NOTE>>>x<<<END>>>⏎       ```|
        NOTE "y"
        ! marker NOTE stands in a code fence and does not count
    "#]],
    );
    check(
        "- a\n\nText\n    ```\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see - a⏎⏎Text⏎    ```|
        NOTE "y"
    "#]],
    );
}

#[test]
fn markers_in_a_quote_do_not_count() {
    check(
        "> <<<NOTE>>>x<<<END>>>\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see > <<<NOTE>>>x<<<END>>>|
        NOTE "y"
        ! marker NOTE stands in a quote and does not count
    "#]],
    );
    check(
        "   > > <<<NOTE>>>\n> x\n> <<<END>>>",
        expect![[r#"
        see    > > <<<NOTE>>>⏎> x⏎> <<<END>>>|
        ! marker NOTE stands in a quote and does not count
    "#]],
    );
    check(
        "> ```\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see > ```|
        NOTE "y"
    "#]],
    );
    check(
        "a > <<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see a >|
        NOTE "y"
    "#]],
    );
}

#[test]
fn markers_in_a_code_span_do_not_count() {
    check(
        "Write `<<<NOTE>>>` first.\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see Write `<<<NOTE>>>` first.|
        NOTE "y"
        ! marker NOTE stands in a code span and does not count
    "#]],
    );
    check(
        "a ``b ` <<<NOTE>>>`` c <<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see a ``b ` <<<NOTE>>>`` c|
        NOTE "y"
        ! marker NOTE stands in a code span and does not count
    "#]],
    );
    check(
        "```x``` <<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ```x```|
        NOTE "y"
    "#]],
    );
    check(
        "```x <<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see ```x <<<NOTE>>>y<<<END>>>|
        ! marker NOTE stands in a code span and does not count
    "#]],
    );
    check(
        "a stray ` here\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see a stray ` here|
        NOTE "y"
    "#]],
    );
    check(
        "`<<<NOTE>>>x<<<END>>>` <<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see `<<<NOTE>>>x<<<END>>>`|
        NOTE "y"
        ! marker NOTE stands in a code span and does not count
    "#]],
    );
}

#[test]
fn a_marker_may_stand_in_the_middle_of_a_line() {
    check(
        "Done. <<<NOTE>>>\nx\n<<<END>>> Bye.",
        expect![[r#"
        see Done. Bye.|
        NOTE "\nx\n"
    "#]],
    );
    check(
        "- item <<<NOTE>>>x<<<END>>>\n- next",
        expect![[r#"
        see - item⏎- next|
        NOTE "x"
    "#]],
    );
}

#[test]
fn a_block_without_end_is_text() {
    check(
        "A\n<<<NOTE>>>\nx\n\n",
        expect![[r#"
        see A⏎<<<NOTE>>>⏎x⏎⏎|
        ! block NOTE has no end marker and was taken as text
    "#]],
    );
    check(
        "<<<NOTE>>>",
        expect![[r#"
        see <<<NOTE>>>|
        ! block NOTE has no end marker and was taken as text
    "#]],
    );
    check(
        "A <<<NOTE>>> x <<<EN",
        expect![[r#"
        see A <<<NOTE>>> x <<<EN|
        ! block NOTE has no end marker and was taken as text
    "#]],
    );
    check(
        "A <<<NOTE>>>x<<<END>>> \n <<<NOTE>>> y \n",
        expect![[r#"
        see A ⏎ <<<NOTE>>> y ⏎|
        NOTE "x"
        ! block NOTE has no end marker and was taken as text
    "#]],
    );
}

#[test]
fn an_end_without_start_is_text() {
    check(
        "a <<<END>>> b\n<<<END>>>\n<<<NOTE>>>x<<<END>>><<<END>>>",
        expect![[r#"
        see a <<<END>>> b⏎<<<END>>>⏎<<<END>>>|
        NOTE "x"
    "#]],
    );
}

#[test]
fn a_start_inside_a_block_is_content() {
    check(
        "The <<<NOTE>>> block:\n<<<NOTE>>>\nx\n<<<END>>>\nB",
        expect![[r#"
        see The⏎B|
        NOTE " block:\n<<<NOTE>>>\nx\n"
        ! start marker NOTE inside block NOTE was taken as its content
    "#]],
    );
    check(
        "<<<NOTE>>>\n```\n<<<STEP_DONE>>>\n```\n<<<END>>>",
        expect![[r#"
        see |
        NOTE "\n```\n<<<STEP_DONE>>>\n```\n"
    "#]],
    );
}

#[test]
fn an_end_that_begins_its_line_always_ends_the_block() {
    check(
        "<<<NOTE>>>\n```\nforgotten\n<<<END>>>\nB\n<<<NOTE>>>y<<<END>>>",
        expect![[r#"
        see B|
        NOTE "\n```\nforgotten\n"
        NOTE "y"
    "#]],
    );
    check(
        "<<<NOTE>>>\n```\nin `<<<END>>>` and <<<END>>> stay\n   <<<END>>>\nB",
        expect![[r#"
        see B|
        NOTE "\n```\nin `<<<END>>>` and <<<END>>> stay\n   "
        ! marker END stands in a code fence and does not count
        ! marker END stands in a code fence and does not count
    "#]],
    );
    check(
        "<<<NOTE>>>\n> <<<END>>>\n`<<<END>>>`\nx <<<END>>> B",
        expect![[r#"
        see B|
        NOTE "\n> <<<END>>>\n`<<<END>>>`\nx "
        ! marker END stands in a quote and does not count
        ! marker END stands in a code span and does not count
    "#]],
    );
}

#[test]
fn the_same_block_may_come_twice() {
    check(
        "<<<NOTE>>>1<<<END>>>a<<<STEP_DONE>>>2<<<END>>>b<<<NOTE>>>3<<<END>>>",
        expect![[r#"
        see ab|
        NOTE "1"
        STEP_DONE "2"
        NOTE "3"
    "#]],
    );
}

#[test]
fn a_block_that_is_too_long_is_text() {
    let fits = format!("<<<NOTE>>>{}<<<END>>>", "x".repeat(BLOCK_BYTES_MAX));
    assert_eq!(read(&fits, &names()).visible, "");
    let long = format!("<<<NOTE>>>{}<<<END>>>\n<<<NOTE>>>y<<<END>>>", "é".repeat(BLOCK_BYTES_MAX / 2 + 1));
    let reading = read(&long, &names());
    assert_eq!(reading.visible, long.replace("\n<<<NOTE>>>y<<<END>>>", ""));
    assert_eq!(reading.blocks.len(), 1);
    expect!["block NOTE is longer than 262144 bytes and was taken as text"]
        .assert_eq(&reading.complaints[0].to_string());
}

#[test]
fn there_is_a_limit_to_blocks_and_to_complaints() {
    let reading = read(&"<<<NOTE>>>x<<<END>>>".repeat(BLOCKS_MAX * 2), &names());
    assert_eq!(reading.blocks.len(), BLOCKS_MAX);
    assert_eq!(reading.visible, "");
    assert_eq!(reading.complaints.len(), COMPLAINTS_MAX);
    expect!["more than 64 blocks; a further NOTE was not read"].assert_eq(&reading.complaints[0].to_string());
}

#[test]
fn fenced_words_cannot_leave_their_fence() {
    expect![[r#"
        ```
        plain
        ```"#]]
    .assert_eq(&fence("plain"));
    expect![[r#"
        `````
        a
        ```
        <<<NOTE>>>x<<<END>>>
        ````
        `````"#]]
    .assert_eq(&fence("a\n```\n<<<NOTE>>>x<<<END>>>\n````\n"));
    expect![[r#"
        ```
        ```"#]]
    .assert_eq(&fence(""));
}

#[test]
fn every_quoted_line_stands_behind_a_mark() {
    expect![[r#"
        > a
        > b
        > c
        >
        > <<<NOTE>>>"#]]
    .assert_eq(&quote("a\r\nb\rc\n\n<<<NOTE>>>"));
    expect![">"].assert_eq(&quote(""));
}
