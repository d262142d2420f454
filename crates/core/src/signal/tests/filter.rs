//! The stream filter shows the same text as the parser, however the chunks are split.

use crate::limits::BLOCK_BYTES_MAX;
use crate::signal::{
    BlockComplaint, BlockFieldKind, BlockFieldSchema, BlockSet, BlockStreamFilter, parse_reply, quote_lines,
    wrap_in_code_fence,
};
use proptest::prelude::*;

fn names() -> BlockSet {
    let note = BlockFieldSchema::default()
        .with_key("more", BlockFieldKind::Section(BlockFieldSchema::default().with_key("key", BlockFieldKind::Text)));
    BlockSet::default()
        .with_block("NOTE", note)
        .with_block("N", BlockFieldSchema::default().with_key("key", BlockFieldKind::Entry))
        .with_block("BATCH", BlockFieldSchema::default())
}

fn streamed(chunks: &[&str]) -> Vec<String> {
    let mut filter = BlockStreamFilter::ignoring_quotes(names(), &[""; 0]);
    let mut out: Vec<String> = chunks.iter().map(|chunk| filter.push(chunk)).collect();
    out.push(filter.finish());
    out
}

#[test]
fn prose_is_emitted_at_once() {
    let out =
        streamed(&["Hello", ", wor", "ld.", " a < b", " << c", " `x", "` > d", "\n```", "\ncode", "\n```", "\nend"]);
    let expected =
        ["Hello", ", wor", "ld.", " a < b", " << c", " `x", "` > d", "", "\n```\ncode", "\n```", "\nend", ""];
    assert_eq!(out, expected, "a fence is held back until it is known whether it contains a block");
}

#[test]
fn only_whitespace_and_possible_markers_are_held_back() {
    let out =
        streamed(&["a ", "\n", "b <", "<", "<", "N", "O", "W", " <<<NOTE", ">>", "> x", " <<<END>>", "> c", " <<<"]);
    assert_eq!(out, ["a", "", " \nb", "", "", "", "", " <<<NOW", "", "", "", "", " c", "", " <<<"]);
}

#[test]
fn text_that_is_not_a_block_is_released() {
    let out = streamed(&["a <<<NOTE>>> b", "\nc\n", "<<<EN"]);
    assert_eq!(out, ["a", "", "", " <<<NOTE>>> b\nc\n<<<EN"]);
}

#[test]
fn intended_block_is_hidden_even_without_an_end() {
    for rest in [
        "<<<NOTE>>>\nx",
        "<<<NOTE>>>",
        "<<<NOTE>>> key: x",
        "<<<NOTE>>> a\n  key: x\n<<<EN",
        "<<<NO",
        "<<<N>>> b\n- key: y",
    ] {
        let shown = streamed(&["a\n", rest]).concat();
        assert_eq!(shown, "a", "{rest}");
    }
    assert_eq!(streamed(&["a <<<NOTE>>>", "\nkey", ": x"]).concat(), "a");
    assert_eq!(streamed(&["a <<<NOTE>>>"]).concat(), "a");
    assert_eq!(streamed(&["a <<<NO"]).concat(), "a <<<NO", "no line begins there");
    assert_eq!(streamed(&["a\n<<<"]).concat(), "a\n<<<");
}

#[test]
fn oversized_block_stays_hidden_if_it_was_intended() {
    let half = "x".repeat(BLOCK_BYTES_MAX / 2);
    let out = streamed(&["a\n<<<NOTE>>>\n", &half, &half, "y", "z<<<END>>>b", " <<<N>>>key<<<END>>>"]);
    assert_eq!(out.concat(), "a\nb");
}

#[test]
fn text_quoted_from_the_user_is_emitted_as_it_is() {
    let words = ["is this right: <<<NOTE>>> key:  Value <<<END>>>?", "<<<N>>> open"];
    let streamed = |chunks: &[&str]| {
        let mut filter = BlockStreamFilter::ignoring_quotes(names(), &words);
        let mut out: Vec<String> = chunks.iter().map(|chunk| filter.push(chunk)).collect();
        out.push(filter.finish());
        out
    };
    let quoted = ["You wrote <<<NO", "TE>>>\nkey: value", "\n<<<END>>>. No."];
    assert_eq!(streamed(&quoted), ["You wrote", "", " <<<NOTE>>>\nkey: value\n<<<END>>>. No.", ""]);
    assert_eq!(streamed(&["<<<NOTE>>>key: other<<<END>>>x"]).concat(), "x");
    assert_eq!(streamed(&["You: <<<N>>> op\n", "<<<NOTE>>>key: own<<<END>>>"]).concat(), "You: <<<N>>> op");
    assert_eq!(streamed(&["<<<N>>> open"]).concat(), "<<<N>>> open");
    assert_eq!(streamed(&["<<<N>>>\nopener\n"]).concat(), "");
    assert_eq!(streamed(&["<<<NOTE>>> key: <<<END>>>"]).concat(), "", "what begins alike is not the same");
    assert_eq!(streamed(&["a\n<<<NOTE>>>\nke"]).concat(), "a", "what is cut off may have gone on otherwise");
}

#[test]
fn oversized_mention_is_released_before_the_end() {
    let half = "x".repeat(BLOCK_BYTES_MAX / 2);
    let out = streamed(&["<<<NOTE>>>", &half, &half, "y", "z<<<END>>>"]);
    assert_eq!(out, ["", "", "", &format!("<<<NOTE>>>{half}{half}y"), "z<<<END>>>", ""]);
}

#[test]
fn prose_quotes_and_code_that_look_like_markers_stay_visible() {
    for text in [
        "NOTE: bring a coat\nand boots",
        "**NOTE**\n\nBring a coat.",
        "**Note**\nkey: value",
        "## NOTE\n- one\n- two",
        "> NOTE\n> key: x",
        ">> NOTE",
        "Use `<<NOTE>>` here",
        "```\ncode\n<<NOTE>>\n```",
        "```\n<<<NOTE>>>\nno key here\n```",
        "```yaml\nname: NOTE\n```",
        "a <<NOTE>> b",
        "<b>N</b>",
        "if a << N >> b",
    ] {
        assert_eq!(parse_reply(text, &names(), &[""; 0]).visible_text, text);
        assert_eq!(streamed(&[text]).concat(), text);
    }
    let quoted = parse_reply(">>>NOTE<<<\nkey: x", &names(), &["why\n>>>NOTE<<<\nkey: x"]);
    assert_eq!(quoted.visible_text, ">>>NOTE<<<\nkey: x");
}

/// A text made of the elements of the rules. Words inside blocks are marked with `✗`.
fn adversarial() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => prop::sample::select(vec![
            "<<<NOTE>>>", "<<<END>>>", "<<<N>>>", "<<<BATCH>>>", "<<<note>>>", "<<< N >>>", "<<<OTHER>>>", "<<<end>>>",
            "<<<END NOTE>>>", "<<</N>>>", "<<<end_batch>>>", "<<< END  N >>>", "<<<END    N>>>",
        ]),
        4 => prop::sample::select(vec![
            "<", "<<", "<<<", "<<<<", "<<<N", "<<<NOT", "<<<BATC", "<<<END", "<<<END>", "<<<NOTE>>", ">", ">>", ">>>", "NOTE>>>",
            "<<</", "<<</NOT", "<<<END ", "<<<END_", "<<<N ",
        ]),
        4 => prop::sample::select(vec![
            "\n>>>NOTE<<<\n", "\n<<N>>\n", "\n<<END>>\n", "\n>>>END<<<\n", "<NOTE>", "\n<<<batch>>\n",
        ]),
        4 => prop::sample::select(vec![
            "`", "``", "```", "````", "\n```\n", "\n~~~\n", "\n~~~~", "\n   ```", "\n    ```", "```rust\n", "~~~", "\r\n```\r\n",
        ]),
        4 => prop::sample::select(vec!["\n> ", "\n   > ", "\n    > ", ">", "\n- ", "\n  - ", "\n1. ", "\n12) ", "-", "* "]),
        6 => prop::sample::select(vec!["\n", "\r\n", " ", "  ", "\t", "\n\n", "\n  ", "\r"]),
        6 => prop::sample::select(vec!["a", "word", "é", "😀", "key: value", ".", "\u{0}", "\u{feff}", "\u{2028}"]),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn cut(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    places.push(text.len());
    let mut at: Vec<usize> = cuts.iter().map(|cut| places[cut.index(places.len())]).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| text[pair[0]..pair[1]].to_owned()).collect()
}

/// More whitespace than is held back.
const WIDE: &str = concat!(
    "                                                                                                               \n",
    "                                                                                                               \n",
    "                                                                                                               \n",
);

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_near_the_size_limit_are_handled_the_same(
        before in adversarial(),
        inside in adversarial(),
        short in 0usize..60,
        after in adversarial(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let filler = "x".repeat(BLOCK_BYTES_MAX.saturating_sub(short));
        let text = format!("{before}\n<<<NOTE>>>{filler}{inside}<<<END>>>{after}");
        let shown = streamed(&cut(&text, &cuts).iter().map(String::as_str).collect::<Vec<_>>()).concat();
        prop_assert!(shown == parse_reply(&text, &names(), &[""; 0]).visible_text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_shows_the_same_text_as_the_parser(
        text in adversarial(),
        wide in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = cut(&text, &[wide]).join(WIDE);
        let chunks = cut(&text, &cuts);
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let reading = parse_reply(&text, &names(), &[""; 0]);
        prop_assert_eq!(&streamed(&chunks).concat(), &reading.visible_text);
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        let mut so_far = String::new();
        for out in streamed(&characters) {
            so_far += &out;
            prop_assert!(reading.visible_text.starts_with(&so_far));
        }
        prop_assert_eq!(so_far, reading.visible_text);
    }

    #[test]
    fn parser_agrees_with_a_plain_implementation_of_the_rules(text in adversarial()) {
        let reading = parse_reply(&text, &names(), &[""; 0]);
        let is_fenced = |complaint: &BlockComplaint| match complaint {
            BlockComplaint::NearMissMarker { marker: text, .. } | BlockComplaint::TruncatedMarker { text } => {
                text.starts_with(['`', '~'])
            }
            _ => false,
        };
        prop_assume!(!reading.complaints.iter().any(is_fenced));
        let (visible, blocks) = oracle::read(&text);
        prop_assert_eq!(reading.blocks.into_iter().map(|block| block.raw).collect::<Vec<_>>(), blocks);
        prop_assert_eq!(reading.visible_text, visible);
    }

    #[test]
    fn text_without_blocks_is_unchanged(text in adversarial()) {
        let reading = parse_reply(&text, &names(), &[""; 0]);
        let is_cut = reading.complaints.iter().any(|complaint| {
            matches!(complaint, BlockComplaint::UnclosedBlock { .. } | BlockComplaint::TruncatedMarker { .. })
        });
        if reading.blocks.is_empty() && !is_cut {
            prop_assert_eq!(reading.visible_text, text);
        } else {
            prop_assert!(reading.visible_text.len() < text.len());
        }
    }

    #[test]
    fn nothing_of_a_block_is_ever_shown(
        before in adversarial(),
        inside in prop::collection::vec(prop::sample::select(vec!["✗", "\n✗", "```", "\n```\n", "`", " <<<N>>>", "\n> ", "<<<E"]), 0..12),
        after in adversarial(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        // The text before must not interfere: an end marker at the beginning of a line, and no open fence. A block at
        // the beginning of a fence takes the fence with it, so that a later fence stays open.
        let before = format!("{}\n", wrap_in_code_fence(&before));
        prop_assume!(parse_reply(&before, &names(), &[""; 0]).blocks.is_empty());
        let text = format!("{before}<<<NOTE>>>{}\n<<<END>>>{after}", inside.concat());
        for out in streamed(&cut(&text, &cuts).iter().map(String::as_str).collect::<Vec<_>>()) {
            prop_assert!(!out.contains('✗'), "{out}");
        }
    }

    #[test]
    fn nothing_of_a_block_with_near_miss_markers_is_ever_shown(
        before in prop::sample::select(vec!["", "Hello.\n", "Hello.\n\n", "- a\n- b\n\n", "```\ncode\n```\n"]),
        form in prop::sample::select(vec![
            (">>>NOTE<<<", ">>>END<<<"), ("<<NOTE>>", "<<END>>"), ("<NOTE>", "</NOTE>"), ("**NOTE**", "**END**"),
            ("NOTE:", "END"), ("## NOTE", "<<<END>>>"), ("```\n<<<NOTE>>>", "<<<END>>>\n```"),
            ("~~~text\nNOTE:", "~~~"), ("```\n>>>NOTE<<<", "```"), ("[NOTE]", "[END]"), ("**NOTE:**", "<<<END>>>"),
        ]),
        inside in prop::collection::vec(prop::sample::select(vec!["✗", "\n✗", " <<<N>>>", "\n> ✗", "<<<E", "\n\n✗"]), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (start, end) = form;
        let text = format!("{before}{start}\nmore:\n  key: ✗{}\n{end}\nBye.", inside.concat());
        let shown = streamed(&cut(&text, &cuts).iter().map(String::as_str).collect::<Vec<_>>()).concat();
        let reading = parse_reply(&text, &names(), &[""; 0]);
        prop_assert_eq!(&shown, &reading.visible_text);
        prop_assert_eq!(shown, format!("{before}Bye."));
        prop_assert_eq!(reading.blocks.len(), 1);
        let is_near_miss = |complaint: &BlockComplaint| matches!(complaint, BlockComplaint::NearMissMarker { .. });
        prop_assert!(reading.complaints.iter().any(is_near_miss));
    }

    #[test]
    fn text_of_the_user_is_never_a_signal_and_streams_like_it_is_parsed(
        words in adversarial(),
        before in "[a-z ]{0,8}",
        own in adversarial(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = format!("{before}{words}\n{own}");
        let reading = parse_reply(&text, &names(), &[&words]);
        let mut filter = BlockStreamFilter::ignoring_quotes(names(), &[&words]);
        let mut shown: String = cut(&text, &cuts).iter().map(|chunk| filter.push(chunk)).collect();
        shown += &filter.finish();
        prop_assert_eq!(&shown, &reading.visible_text);
        let squeezed = |text: &str| text.split_whitespace().collect::<String>().to_ascii_lowercase();
        for block in &reading.blocks {
            let written = format!("<<<{}>>>{}", block.name, squeezed(&block.raw)).to_ascii_lowercase();
            let is_quote = squeezed(&words).contains(&format!("{written}<<<")) || squeezed(&words).ends_with(&written);
            prop_assert!(!is_quote, "{:?}", block);
        }
    }

    #[test]
    fn wrapped_foreign_text_never_acts_as_a_marker(text in adversarial(), more in any::<String>()) {
        // A fence that begins with a whole block is the block.
        let text = format!("Text:\n{text}{more}");
        for wrapped in [wrap_in_code_fence(&text), quote_lines(&text)] {
            let followed = format!("{wrapped}\n<<<NOTE>>>x<<<END>>>");
            let reading = parse_reply(&followed, &names(), &[""; 0]);
            prop_assert_eq!(reading.blocks.len(), 1);
            prop_assert_eq!(reading.visible_text, wrapped.trim_end_matches([' ', '\t', '\r', '\n']));
        }
    }
}

/// A plain implementation of the rules without regard to speed: whether a marker counts is computed from all text
/// before it.
mod oracle {
    use std::ops::Range;

    const NAMES: [&str; 3] = ["NOTE", "N", "BATCH"];

    /// Returns the label and length of a marker in other brackets that has its own line.
    fn near_marker(text: &str) -> Option<(String, usize)> {
        let line = text.split('\n').next()?.trim_end();
        let run = |text: &str, mark: char| text.len() - text.trim_start_matches(mark).len();
        let first = line.chars().next().filter(|c| *c == '<' || *c == '>')?;
        let opening = run(line, first);
        let rest = &line[opening..];
        let end = rest.find(['<', '>'])?;
        let (label, closing) = rest.split_at(end);
        let last = closing.chars().next()?;
        let blanks = label.split(|c| c != ' ' && c != '\t').map(str::len).max()?;
        let is_run = run(closing, last) == closing.len() && closing.len() <= 3 && opening <= 3;
        let is_exact = first == '<' && last == '>' && opening == 3 && closing.len() == 3;
        let label = label.trim_matches([' ', '\t']);
        let name = label.to_ascii_uppercase();
        let is_shouted = name == label || (opening > 1 && closing.len() > 1);
        let is_quote = first == '>' && opening == 1;
        let known = NAMES.contains(&name.as_str()) || NAMES.iter().any(|own| ends(&name, own));
        (is_run && !is_exact && is_shouted && !is_quote && known && blanks <= 3).then_some((name, line.len()))
    }

    pub(crate) fn read(text: &str) -> (String, Vec<String>) {
        let (mut stretches, mut blocks) = (Vec::new(), Vec::new());
        // The beginning of the current stretch of text or block, and whether that is in the middle of a line.
        let (mut start, mut mid_line) = (0, false);
        let mut open: Option<(usize, String, bool)> = None;
        let mut at = 0;
        while at < text.len() {
            let before = &text[start..at];
            let near = || near_marker(&text[at..]).filter(|_| begins_line(before, mid_line));
            let marker = marker(&text[at..]).or_else(near);
            let counts = !hidden(before, mid_line);
            match (marker, &open) {
                (Some((name, len)), None) if NAMES.contains(&name.as_str()) && counts => {
                    stretches.push(start..at);
                    open = Some((at, name, begins_line(before, mid_line)));
                    (start, mid_line) = (at + len, true);
                    at += len;
                }
                (Some((name, len)), Some((_, own, _)))
                    if ends(&name, own) && (counts || begins_line(before, mid_line)) =>
                {
                    blocks.push(before.to_owned());
                    open = None;
                    (start, mid_line) = (at + len, true);
                    at += len;
                }
                _ => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        let Some((_, name, begun)) = open else {
            let line = text[start..].rfind('\n').map_or(start, |end| start + end + 1);
            let begins = line > start || !mid_line;
            let rest = text[line..].trim_start_matches([' ', '\t', '\r']);
            let is_cut = begins && is_part(rest) && !hidden(&text[start..text.len() - rest.len()], mid_line);
            stretches.push(start..text.len() - if is_cut { rest.len() } else { 0 });
            if is_cut {
                stretches.push(text.len()..text.len());
            }
            return (joined(text, &stretches), blocks);
        };
        // A last block without an end is hidden if it was intended; otherwise nothing was removed there.
        let content = &text[start..];
        let alone = begun && content.split('\n').next().is_some_and(|line| line.trim().is_empty());
        let is_key = |line: &str| {
            let line = line.trim_start().trim_start_matches(['-', '+']).trim_start_matches([' ', '\t']);
            let knows = |key: &str| {
                line.strip_prefix(key).is_some_and(|rest| rest.trim_start_matches([' ', '_', '-']).starts_with(':'))
            };
            (name != "BATCH" && knows("key")) || (name == "NOTE" && knows("more"))
        };
        if alone || content.trim().is_empty() || content.lines().any(is_key) {
            stretches.push(text.len()..text.len());
        } else {
            let rest = stretches.pop().map_or(0, |last: Range<usize>| last.start);
            stretches.push(rest..text.len());
        }
        (joined(text, &stretches), blocks)
    }

    /// Returns true if the text may continue as a marker and contains at least one letter of its name.
    fn is_part(text: &str) -> bool {
        let Some(inner) = text.strip_prefix("<<<") else { return false };
        let name = inner.trim_start_matches([' ', '\t']);
        let closing = name.trim_end_matches('>');
        let bare = closing.trim_end_matches([' ', '\t']);
        let blanks = (inner.len() - name.len()).max(closing.len() - bare.len());
        let bare = bare.to_ascii_uppercase();
        let may_be = |known: &&str| {
            *known == bare || (closing.len() == name.len() && closing.len() == bare.len() && known.starts_with(&bare))
        };
        !bare.is_empty() && blanks <= 3 && name.len() - closing.len() < 3 && NAMES.iter().any(may_be)
    }

    fn ends(label: &str, own: &str) -> bool {
        label == "END" || label == format!("END {own}") || label == format!("END_{own}") || label == format!("/{own}")
    }

    const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

    fn joined(text: &str, stretches: &[Range<usize>]) -> String {
        let (mut out, mut gap) = (String::new(), String::new());
        for (place, stretch) in stretches.iter().enumerate() {
            let stretch = &text[stretch.clone()];
            let words = stretch.trim_matches(SPACE);
            let (before, after) = stretch.split_once(words).unwrap_or_default();
            let before = if words.is_empty() { stretch } else { before };
            gap = if place == 0 { before.to_owned() } else { one_gap(&gap, before) };
            let is_last = place + 1 == stretches.len();
            if words.is_empty() {
                out += if is_last && place == 0 { &gap } else { "" };
                continue;
            }
            out += if place == 0 || !out.is_empty() { &gap } else { "" };
            out += words;
            gap = after.to_owned();
            out += if is_last { after } else { "" };
        }
        out
    }

    fn one_gap(before: &str, after: &str) -> String {
        let lines = |gap: &str| gap.matches('\n').count();
        match (lines(before), lines(after)) {
            (0, 0) if before.len() >= after.len() => before.to_owned(),
            (0, 0) => after.to_owned(),
            (more, 0) if more > 0 => before.to_owned(),
            (more, less) if more > less => {
                let indent = after.split('\n').next_back().unwrap_or("");
                format!("{}{indent}", before.trim_end_matches([' ', '\t', '\r']))
            }
            _ => after.to_owned(),
        }
    }

    fn marker(text: &str) -> Option<(String, usize)> {
        let inner = text.strip_prefix("<<<")?;
        let end = inner.find(">>>")?;
        let label = &inner[..end];
        let words: Vec<&str> = label.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        let blanks = label.split(|c| c != ' ' && c != '\t').map(str::len).max()?;
        let name = words.join(" ").to_ascii_uppercase();
        let known = NAMES.contains(&name.as_str()) || NAMES.iter().any(|own| ends(&name, own));
        (known && blanks <= 3).then_some((name, end + 6))
    }

    fn begins_line(before: &str, mid_line: bool) -> bool {
        match before.rsplit_once('\n') {
            Some((_, line)) => line.trim_matches([' ', '\t', '\r']).is_empty(),
            None => !mid_line && before.trim_matches([' ', '\t', '\r']).is_empty(),
        }
    }

    fn hidden(before: &str, mid_line: bool) -> bool {
        let mut fence: Option<(char, usize, usize)> = None;
        let mut list = 0;
        let mut lines: Vec<&str> = before.split('\n').collect();
        let last = lines.pop().unwrap_or_default();
        for (place, line) in lines.iter().enumerate() {
            if place == 0 && mid_line {
                continue;
            }
            let (indent, rest) = unlisted(line, &mut list, fence.is_some());
            let Some(mark) = rest.chars().next().filter(|c| *c == '`' || *c == '~') else { continue };
            let length = rest.len() - rest.trim_start_matches(mark).len();
            let info = rest[length..].trim_matches([' ', '\t', '\r']);
            match fence {
                Some((open, least, deepest)) => {
                    let closes = mark == open && length >= least && indent <= deepest && info.is_empty();
                    fence = fence.filter(|_| !closes);
                }
                None if indent <= list + 3 && length >= 3 && (mark == '~' || !info.contains('`')) => {
                    fence = Some((mark, length, list + 3));
                }
                None => {}
            }
        }
        if fence.is_some() {
            return true;
        }
        if !(lines.is_empty() && mid_line) {
            let (indent, rest) = unlisted(last, &mut list, false);
            if indent <= list + 3 && (rest.starts_with('>') || rest.starts_with("~~~")) {
                return true;
            }
        }
        in_code(last)
    }

    /// The column and the text after indentation and list markers; `list` is the column of the list's content.
    fn unlisted<'a>(line: &'a str, list: &mut usize, in_fence: bool) -> (usize, &'a str) {
        let (mut column, mut rest) = (0, line);
        loop {
            let text = rest.trim_start_matches([' ', '\t', '\r']);
            for c in rest[..rest.len() - text.len()].chars() {
                column += if c == '\t' { 4 - column % 4 } else { 1 };
            }
            if rest.len() < line.len() {
                *list = column;
            }
            rest = text;
            if in_fence || column > *list + 3 || rest.is_empty() {
                return (column, rest);
            }
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let mark = match digits {
                0 if rest.starts_with(['-', '*', '+']) => 1,
                1..=9 if rest[digits..].starts_with(['.', ')']) => digits + 1,
                _ => 0,
            };
            if mark == 0 || !rest[mark..].starts_with([' ', '\t', '\r']) {
                let undecided = rest.len() == mark || rest.len() == digits;
                if !undecided {
                    *list = (*list).min(column);
                }
                return (column, rest);
            }
            column += mark;
            rest = &rest[mark..];
        }
    }

    fn in_code(line: &str) -> bool {
        let mut open = 0;
        let mut rest = line;
        while let Some(at) = rest.find('`') {
            let run = rest[at..].len() - rest[at..].trim_start_matches('`').len();
            open = if open == 0 {
                run
            } else if open == run {
                0
            } else {
                open
            };
            rest = &rest[at + run..];
        }
        open > 0
    }
}
