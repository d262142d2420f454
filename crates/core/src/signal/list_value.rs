//! Parses the value of a list field: an inline list in brackets, one item per bullet, or plain text as the only item.

use super::fields::{BlockFieldValue, is_absent_value, strip_double_quotes};
use super::{BlockComplaint, push_complaint, shorten_excerpt};
use crate::limits::LIST_ITEMS_MAX;

/// Parses the text after a key and the following lines as a list.
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
        InlineListParseResult::Items(items) => items,
        InlineListParseResult::Unclosed(items) => {
            push_complaint(complaints, BlockComplaint::UnclosedList { at: path.to_owned() });
            items
        }
        InlineListParseResult::FollowedByText(items, rest) => {
            let complaint = BlockComplaint::TextAfterList { at: path.to_owned(), text: shorten_excerpt(&rest) };
            push_complaint(complaints, complaint);
            items
        }
        InlineListParseResult::NotInline => parse_bulleted_list(text),
    };
    let mut items: Vec<String> = items.into_iter().filter(|item| !is_absent_value(item)).collect();
    if items.len() > LIST_ITEMS_MAX {
        items.truncate(LIST_ITEMS_MAX);
        push_complaint(complaints, BlockComplaint::TooManyItems { at: path.to_owned() });
    }
    if items.is_empty() { BlockFieldValue::Absent } else { BlockFieldValue::List(items) }
}

enum InlineListParseResult {
    Items(Vec<String>),
    Unclosed(Vec<String>),
    /// The items, and the text in the lines after the closing bracket.
    FollowedByText(Vec<String>, String),
    NotInline,
}

/// Parses `[a, "b, c", f(d, e)]`. Commas in quotes and in further brackets do not separate items.
fn parse_inline_list(text: &str) -> InlineListParseResult {
    let Some(inner) = text.strip_prefix('[') else { return InlineListParseResult::NotInline };
    // Other brackets are often unbalanced in prose (`a) one, b) two`); then only square brackets nest.
    for nesting in [&['[', '(', '{'][..], &['['], &[]] {
        let split = split_at_commas(inner, nesting);
        match split.end {
            Some(end) => {
                let rest = &inner[end + 1..];
                let line_end = rest.find('\n').unwrap_or(rest.len());
                return match (rest[..line_end].trim(), rest[line_end..].trim()) {
                    ("", "") => InlineListParseResult::Items(split.items),
                    ("", after) => InlineListParseResult::FollowedByText(split.items, after.to_owned()),
                    // The bracket is part of a sentence.
                    _ => InlineListParseResult::NotInline,
                };
            }
            None if nesting.is_empty() => return InlineListParseResult::Unclosed(split.items),
            None => {}
        }
    }
    InlineListParseResult::NotInline
}

struct ParsedListItems {
    items: Vec<String>,
    /// The offset of the closing bracket of the list.
    end: Option<usize>,
}

/// Splits `text` at its commas, up to the bracket that closes the list. Brackets in `nesting` nest.
fn split_at_commas(text: &str, nesting: &[char]) -> ParsedListItems {
    let mut quotes = ListItemEndQuoteFinder::default();
    let mut items = Vec::new();
    let (mut item, mut started) = (String::new(), false);
    let mut depth = Vec::new();
    let mut skip_to = 0;
    for (at, c) in text.char_indices() {
        if at < skip_to {
            continue;
        }
        if !started
            && depth.is_empty()
            && let Some(end) = quotes.find_closing_quote(text, at, c)
        {
            item = unescape_quotes(&text[at + 1..end], c);
            (skip_to, started) = (end + 1, true);
            continue;
        }
        match c {
            ',' if depth.is_empty() => {
                items.push(join_trimmed_lines(&item));
                item.clear();
                started = false;
            }
            ']' if depth.is_empty() => {
                items.push(join_trimmed_lines(&item));
                return ParsedListItems { items, end: Some(at) };
            }
            _ => {
                if nesting.contains(&c) {
                    depth.push(c);
                } else if depth.last().is_some_and(|open| is_closing_bracket(*open, c)) {
                    depth.pop();
                }
                item.push(c);
                started |= !c.is_whitespace();
            }
        }
    }
    items.push(join_trimmed_lines(&item));
    ParsedListItems { items, end: None }
}

fn is_closing_bracket(open: char, c: char) -> bool {
    matches!((open, c), ('[', ']') | ('(', ')') | ('{', '}'))
}

/// Finds the ends of quoted items. A search without a result would have none from any later offset either, so it is not
/// repeated.
#[derive(Default)]
struct ListItemEndQuoteFinder {
    no_more_double: bool,
    no_more_single: bool,
}

impl ListItemEndQuoteFinder {
    /// Returns the end of the quote that `c` at `at` opens: the next such quote before a comma, a bracket or the end.
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

/// Parses one item per bullet. Lines without a bullet continue the previous item.
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

/// Returns the text after the bullet at the beginning of `line`.
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

/// Returns the item on a single line.
fn join_trimmed_lines(item: &str) -> String {
    item.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
