//! Reads the value of a list field: inline in brackets, one item behind each bullet, or plain words as the only item.

use super::fields::{BlockFieldValue, is_absent_value, strip_double_quotes};
use super::{BlockComplaint, push_complaint};
use crate::limits::LIST_ITEMS_MAX;

/// Reads the words behind a key and the lines that follow it as a list.
pub(super) fn parse_list_value(
    first: &str,
    lines: &[&str],
    path: &str,
    complaints: &mut Vec<BlockComplaint>,
) -> BlockFieldValue {
    let mut text = first.trim().to_owned();
    for line in lines {
        text.push('\n');
        text.push_str(line);
    }
    let text = text.trim();
    let items = match parse_inline_list(text) {
        InlineList::Items(items) => items,
        InlineList::Unclosed(items) => {
            push_complaint(complaints, BlockComplaint::UnclosedList { at: path.to_owned() });
            items
        }
        InlineList::NotInline => parse_bulleted_list(text),
    };
    let mut items: Vec<String> = items.into_iter().filter(|item| !is_absent_value(item)).collect();
    if items.len() > LIST_ITEMS_MAX {
        items.truncate(LIST_ITEMS_MAX);
        push_complaint(complaints, BlockComplaint::TooManyItems { at: path.to_owned() });
    }
    if items.is_empty() { BlockFieldValue::Absent } else { BlockFieldValue::List(items) }
}

enum InlineList {
    Items(Vec<String>),
    Unclosed(Vec<String>),
    /// This is no inline list.
    NotInline,
}

/// `[a, "b, c", f(d, e)]`. Commas within quotes and within further brackets do not part items.
fn parse_inline_list(text: &str) -> InlineList {
    let Some(inner) = text.strip_prefix('[') else { return InlineList::NotInline };
    // Brackets of other kinds are often unbalanced in prose (`a) one, b) two`); then only square ones count.
    for nesting in [&['[', '(', '{'][..], &['['], &[]] {
        let split = split_at_commas(inner, nesting);
        match split.end {
            Some(end) if inner[end + 1..].trim().is_empty() => return InlineList::Items(split.items),
            Some(_) => return InlineList::NotInline,
            None if nesting.is_empty() => return InlineList::Unclosed(split.items),
            None => {}
        }
    }
    InlineList::NotInline
}

struct SplitItems {
    items: Vec<String>,
    /// Where the closing bracket of the list stands.
    end: Option<usize>,
}

/// Parts `text` at its commas, up to the bracket that closes the list. Brackets whose opening one is in `nesting` nest.
fn split_at_commas(text: &str, nesting: &[char]) -> SplitItems {
    let mut quotes = QuoteFinder::default();
    let mut items = Vec::new();
    let (mut item, mut begun) = (String::new(), false);
    let mut depth = Vec::new();
    let mut skip_to = 0;
    for (at, c) in text.char_indices() {
        if at < skip_to {
            continue;
        }
        if !begun
            && depth.is_empty()
            && let Some(end) = quotes.find_closing_quote(text, at, c)
        {
            item = unescape_quotes(&text[at + 1..end], c);
            (skip_to, begun) = (end + 1, true);
            continue;
        }
        match c {
            ',' if depth.is_empty() => {
                items.push(join_trimmed_lines(&item));
                item.clear();
                begun = false;
            }
            ']' if depth.is_empty() => {
                items.push(join_trimmed_lines(&item));
                return SplitItems { items, end: Some(at) };
            }
            _ => {
                if nesting.contains(&c) {
                    depth.push(c);
                } else if depth.last().is_some_and(|open| is_closing_bracket(*open, c)) {
                    depth.pop();
                }
                item.push(c);
                begun |= !c.is_whitespace();
            }
        }
    }
    items.push(join_trimmed_lines(&item));
    SplitItems { items, end: None }
}

fn is_closing_bracket(open: char, c: char) -> bool {
    matches!((open, c), ('[', ']') | ('(', ')') | ('{', '}'))
}

/// Finds the ends of quoted items. A search that was in vain once is in vain from any later place too, so it is not
/// repeated.
#[derive(Default)]
struct QuoteFinder {
    no_more_double: bool,
    no_more_single: bool,
}

impl QuoteFinder {
    /// Where the quote ends that `c` at `at` opens: at the next such mark that a comma, a bracket or the end follows.
    fn find_closing_quote(&mut self, text: &str, at: usize, c: char) -> Option<usize> {
        let no_more = match c {
            '"' => &mut self.no_more_double,
            '\'' => &mut self.no_more_single,
            _ => return None,
        };
        if *no_more {
            return None;
        }
        let mut escaped = false;
        for (offset, next) in text[at + 1..].char_indices() {
            let end = at + 1 + offset;
            if next == c && !escaped {
                let rest = text[end + 1..].trim_start();
                if rest.is_empty() || rest.starts_with([',', ']']) {
                    return Some(end);
                }
            }
            escaped = next == '\\' && !escaped;
        }
        *no_more = true;
        None
    }
}

fn unescape_quotes(text: &str, quote: char) -> String {
    text.replace(&format!("\\{quote}"), &quote.to_string())
}

/// One item for each bullet; lines without one go on with the item before them.
fn parse_bulleted_list(text: &str) -> Vec<String> {
    if !text.lines().any(|line| strip_bullet(line).is_some()) {
        return vec![strip_double_quotes(&join_trimmed_lines(text)).to_owned()];
    }
    let mut items: Vec<String> = Vec::new();
    for line in text.lines() {
        match (strip_bullet(line), items.last_mut()) {
            (Some(item), _) => items.push(item.trim().to_owned()),
            (None, Some(item)) if !line.trim().is_empty() => {
                item.push(' ');
                item.push_str(line.trim());
            }
            (None, Some(_)) => {}
            (None, None) => items.push(line.trim().to_owned()),
        }
    }
    items.iter().map(|item| strip_double_quotes(item).to_owned()).collect()
}

/// What stands behind the bullet that begins `line`.
fn strip_bullet(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.strip_prefix(['-', '*', '•', '–']) {
        Some(rest) => rest,
        None => {
            let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 || digits > 4 {
                return None;
            }
            line[digits..].strip_prefix(['.', ')'])?
        }
    };
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

/// An item on a single line.
fn join_trimmed_lines(item: &str) -> String {
    item.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
