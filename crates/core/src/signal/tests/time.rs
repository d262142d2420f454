//! Running time is linear in the length of the input. The inputs are so long that a quadratic algorithm would not
//! finish.

use crate::limits::BLOCK_BYTES_MAX;
use crate::signal::{
    BlockFieldKind, BlockFieldSchema, BlockSet, BlockStreamFilter, find_json_where, parse_reply, quote_lines,
    wrap_in_code_fence,
};

const BYTES: usize = 384 << 10;

fn names() -> BlockSet {
    let inner =
        BlockFieldSchema::default().with_key("gaps", BlockFieldKind::List).with_key("goal", BlockFieldKind::Text);
    BlockSet::default().with_block(
        "NOTE",
        BlockFieldSchema::default()
            .with_key("shape", BlockFieldKind::Text)
            .with_key("gaps", BlockFieldKind::List)
            .with_key("handover", BlockFieldKind::Section(inner))
            .with_key("prompt", BlockFieldKind::Raw),
    )
}

fn long(part: &str) -> String {
    part.repeat(BYTES / part.len())
}

#[test]
fn reading_blocks_takes_linear_time() {
    let parts = [
        "<",
        "<<<NOTE",
        "<<<NOTE>>",
        "<<<NOTE>>>",
        "<<<END>>>",
        "<<<NOTE>>>x<<<END>>>",
        "<<<NOTE>>>x<<<END",
        "`",
        "``` ` ",
        "` `` ",
        "```\n",
        "~~~\n<<<NOTE>>>",
        "> <<<NOTE>>>",
        " ",
        "\n",
        "- ",
        "1",
        "\t",
        "<<<   ",
        "\r\n",
        "> ",
        "- \n  ",
        "<<<END ",
        "<<<NOTE>>>\n",
        "<<<NOTE>>>x<<<END NOTE>>>",
        "<<</NOTE",
    ];
    for part in parts {
        let text = long(part);
        // The user may have written the same.
        let words = [text.clone(), format!("<<<NOTE>>>x{}", "<<<NOTE>>>".repeat(100))];
        let reading = parse_reply(&text, &names(), &words);
        let mut filter = BlockStreamFilter::ignoring_quotes(names(), &words);
        let mut streamed = String::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at(rest.len().min(7));
            streamed += &filter.push(chunk);
            rest = tail;
        }
        streamed += &filter.finish();
        assert!(streamed == reading.visible_text, "{part:?}");
    }
}

#[test]
fn reading_fields_takes_linear_time() {
    let parts = [
        "[",
        "]",
        "(",
        "\"",
        "'",
        "\"a,",
        "',",
        "\"  ",
        ", ",
        "\\",
        "\n",
        "\n- ",
        "\n- a",
        "\ngaps: ",
        "\nshape: [",
        "\nhandover:\n",
        "\n  goal: x",
        "\nhandover:\n  gaps: [",
        "\nunknown: ",
        " ",
        "**",
        "**gaps",
        ":",
        "\n   ",
        "\nx",
    ];
    for part in parts {
        for key in ["gaps: [", "shape: ", ""] {
            let content = format!("\n{key}{}", part.repeat(BLOCK_BYTES_MAX / 2 / part.len()));
            let reading = parse_reply(&format!("<<<NOTE>>>{content}<<<END>>>"), &names(), &[""; 0]);
            assert_eq!(reading.blocks.len(), 1, "{part:?}");
        }
    }
}

#[test]
fn finding_json_takes_linear_time() {
    let parts = [
        "{",
        "[",
        "\"",
        "{\"",
        "[\"",
        "{\"a\":",
        "[{\"a\":",
        "{a:x",
        "{a:x ",
        "[a",
        "[1,",
        "[1 ",
        "{\"a\":[1,",
        "\\",
        "[\"\\",
        "/*",
        "[/*",
        "[//",
        "[ #",
        "<think>",
        "x<think>",
        "</think>",
        "<",
        "```\n",
        "```json\n{",
        "~~~\n",
        "{a   ",
        "[\" ",
        "[\"a\",",
        "[\"a\" ,x",
        "[...",
        "{\"a\" 1 ",
        "[{}",
        "[1]",
        "{\"a\":1}",
        "[\"x\"]x",
        "['",
        "{'a':'",
        "[-",
        "[true",
        "{\"a\":\"b\" c",
        "“",
        "[}",
        "{]",
        "{\"a\":\"\",\n",
    ];
    for part in parts {
        for head in ["", "{\"a\": \""] {
            let text = format!("{head}{}", part.repeat((BYTES / 3) / part.len()));
            let _ = find_json_where(&text, |_| true);
        }
    }
}

#[test]
fn wrapping_takes_linear_time() {
    for part in ["`", "\n", "\r", "` ``"] {
        let text = long(part);
        assert!(wrap_in_code_fence(&text).len() > text.len());
        assert!(quote_lines(&text).len() >= text.len());
    }
}
