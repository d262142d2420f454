//! Reads the value of a list field: inline in brackets, one item behind each bullet, or plain words as the only item.

use super::fields::{FieldValue, is_absent, unquoted};
use super::{Complaint, complain};
use crate::limits::LIST_ITEMS_MAX;

/// Reads the words behind a key and the lines that follow it as a list.
pub(super) fn read(first: &str, lines: &[&str], at: &str, complaints: &mut Vec<Complaint>) -> FieldValue {
    let mut text = first.trim().to_owned();
    for line in lines {
        text.push('\n');
        text.push_str(line);
    }
    let text = text.trim();
    let items = match inline(text) {
        Inline::Items(items) => items,
        Inline::Unclosed(items) => {
            complain(complaints, Complaint::UnclosedList { at: at.to_owned() });
            items
        }
        Inline::No => bulleted(text),
    };
    let mut items: Vec<String> = items.into_iter().filter(|item| !is_absent(item)).collect();
    if items.len() > LIST_ITEMS_MAX {
        items.truncate(LIST_ITEMS_MAX);
        complain(complaints, Complaint::TooManyItems { at: at.to_owned() });
    }
    if items.is_empty() { FieldValue::Absent } else { FieldValue::List(items) }
}

enum Inline {
    Items(Vec<String>),
    Unclosed(Vec<String>),
    /// This is no inline list.
    No,
}

/// `[a, "b, c", f(d, e)]`. Commas within quotes and within further brackets do not part items.
fn inline(text: &str) -> Inline {
    let Some(inner) = text.strip_prefix('[') else { return Inline::No };
    // Brackets of other kinds are often unbalanced in prose (`a) one, b) two`); then only square ones count.
    for nesting in [&['[', '(', '{'][..], &['['], &[]] {
        let split = split(inner, nesting);
        match split.end {
            Some(end) if inner[end + 1..].trim().is_empty() => return Inline::Items(split.items),
            Some(_) => return Inline::No,
            None if nesting.is_empty() => return Inline::Unclosed(split.items),
            None => {}
        }
    }
    Inline::No
}

struct Split {
    items: Vec<String>,
    /// Where the closing bracket of the list stands.
    end: Option<usize>,
}

/// Parts `text` at its commas, up to the bracket that closes the list. Brackets whose opening one is in `nesting` nest.
fn split(text: &str, nesting: &[char]) -> Split {
    let mut quotes = Quotes::default();
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
            && let Some(end) = quotes.closing(text, at, c)
        {
            item = unescaped(&text[at + 1..end], c);
            (skip_to, begun) = (end + 1, true);
            continue;
        }
        match c {
            ',' if depth.is_empty() => {
                items.push(tidy(&item));
                item.clear();
                begun = false;
            }
            ']' if depth.is_empty() => {
                items.push(tidy(&item));
                return Split { items, end: Some(at) };
            }
            _ => {
                if nesting.contains(&c) {
                    depth.push(c);
                } else if depth.last().is_some_and(|open| closes(*open, c)) {
                    depth.pop();
                }
                item.push(c);
                begun |= !c.is_whitespace();
            }
        }
    }
    items.push(tidy(&item));
    Split { items, end: None }
}

fn closes(open: char, c: char) -> bool {
    matches!((open, c), ('[', ']') | ('(', ')') | ('{', '}'))
}

/// Finds the ends of quoted items. A search that was in vain once is in vain from any later place too, so it is not
/// repeated.
#[derive(Default)]
struct Quotes {
    no_more_double: bool,
    no_more_single: bool,
}

impl Quotes {
    /// Where the quote ends that `c` at `at` opens: at the next such mark that a comma, a bracket or the end follows.
    fn closing(&mut self, text: &str, at: usize, c: char) -> Option<usize> {
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

fn unescaped(text: &str, quote: char) -> String {
    text.replace(&format!("\\{quote}"), &quote.to_string())
}

/// One item for each bullet; lines without one go on with the item before them.
fn bulleted(text: &str) -> Vec<String> {
    if !text.lines().any(|line| bullet(line).is_some()) {
        return vec![unquoted(&tidy(text)).to_owned()];
    }
    let mut items: Vec<String> = Vec::new();
    for line in text.lines() {
        match (bullet(line), items.last_mut()) {
            (Some(item), _) => items.push(item.trim().to_owned()),
            (None, Some(item)) if !line.trim().is_empty() => {
                item.push(' ');
                item.push_str(line.trim());
            }
            (None, Some(_)) => {}
            (None, None) => items.push(line.trim().to_owned()),
        }
    }
    items.iter().map(|item| unquoted(item).to_owned()).collect()
}

/// What stands behind the bullet that begins `line`.
fn bullet(line: &str) -> Option<&str> {
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
fn tidy(item: &str) -> String {
    item.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
