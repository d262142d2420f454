//! The leak check: does a reply speak of the machinery behind it? It finds words and their places; it blocks nothing and
//! cannot tell a user's own financial models from ours, so a finding is a flag and no verdict. Code, addresses and the few
//! phrases of [`HARMLESS`] are left alone.

use std::ops::Range;

use super::phrases::{WordGap, split_words, starts_with_phrase};
use crate::limits::LEAKED_TERMS_MAX;

/// A machinery term in a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakedTerm {
    /// Which term of [`TERMS`].
    pub term: &'static str,
    /// Where it stands, in bytes.
    pub range: Range<usize>,
}

/// What a reply should not speak of, each with the forms it takes.
pub const INTERNAL_TERMS: [(&str, &[&str]); 10] = [
    ("model", &["model", "models", "llm", "llms", "language model", "language models"]),
    ("source", &["source", "sources"]),
    ("expert", &["expert", "experts"]),
    ("claim", &["claim", "claims"]),
    ("structure", &["structure", "structures", "structural", "structurally"]),
    ("analysis", &["analysis", "analyses", "analyse", "analysed", "analysing", "analyze", "analyzed", "analyzing"]),
    ("map", &["map", "maps", "mapped", "mapping", "mapper", "mappers"]),
    ("batch", &["batch", "batches"]),
    ("handover", &["handover", "handovers"]),
    ("fan-out", &["fan out", "fanned out"]),
];

/// Where such a word is surely about something else: the word before, and the term.
pub const HARMLESS_PHRASES: [(&str, &str); 15] = [
    ("role", "model"),
    ("business", "model"),
    ("mental", "model"),
    ("data", "model"),
    ("pricing", "model"),
    ("open", "source"),
    ("food", "source"),
    ("road", "map"),
    ("street", "map"),
    ("insurance", "claim"),
    ("warranty", "claim"),
    ("cost", "structure"),
    ("sentence", "structure"),
    ("tax", "expert"),
    ("legal", "expert"),
];

/// The machinery terms in a reply, in order.
#[must_use]
pub fn find_leaked_terms(reply: &str) -> Vec<LeakedTerm> {
    let aside = non_prose_ranges(reply);
    let mut aside = aside.iter().peekable();
    let words = split_words(reply);
    let mut leaks = Vec::new();
    for (at, word) in words.iter().enumerate() {
        while aside.next_if(|range| range.end <= word.range.start).is_some() {}
        if aside.peek().is_some_and(|range| range.start <= word.range.start) {
            continue;
        }
        let forms = INTERNAL_TERMS.iter().flat_map(|(term, forms)| forms.iter().map(|form| (*term, *form)));
        let Some((term, form)) = forms.into_iter().find(|(_, form)| starts_with_phrase(&words[at..], form)) else {
            continue;
        };
        let before = at.checked_sub(1).map(|before| &words[before]).filter(|_| word.gap == WordGap::Adjacent);
        if before.is_some_and(|before| HARMLESS_PHRASES.contains(&(before.text.as_str(), term))) {
            continue;
        }
        let last = &words[at + form.split(' ').count() - 1];
        leaks.push(LeakedTerm { term, range: word.range.start..last.range.end });
        if leaks.len() == LEAKED_TERMS_MAX {
            break;
        }
    }
    leaks
}

/// What is not prose: fenced code, code spans, addresses. In order.
fn non_prose_ranges(text: &str) -> Vec<Range<usize>> {
    let mut aside = Vec::new();
    let mut fence: Option<(&str, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some((mark, offset)),
            (Some((opening, start)), Some(mark)) if mark == opening => {
                aside.push(start..offset + line.len());
                fence = None;
            }
            (Some(_), _) => {}
            (None, None) => push_non_prose_ranges(line, offset, &mut aside),
        }
        offset += line.len();
    }
    aside.extend(fence.map(|(_, start)| start..text.len()));
    aside
}

/// Code spans and, between them, addresses.
fn push_non_prose_ranges(line: &str, offset: usize, ranges: &mut Vec<Range<usize>>) {
    let mut at = 0;
    for (place, part) in line.split('`').enumerate() {
        let is_code = place % 2 == 1 && at + part.len() < line.len();
        if is_code {
            ranges.push(offset + at..offset + at + part.len());
        } else {
            let mut within = at;
            for word in part.split_inclusive(char::is_whitespace) {
                if word.contains("://") {
                    ranges.push(offset + within..offset + within + word.len());
                }
                within += word.len();
            }
        }
        at += part.len() + 1;
    }
}
