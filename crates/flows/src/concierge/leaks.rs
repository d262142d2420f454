//! Finds internal terms in replies. It blocks nothing, and it cannot tell the user's own financial models from ours, so a
//! match is only a hint. Code, URLs and the phrases in [`HARMLESS_PHRASES`] are skipped.

use std::ops::Range;

use super::phrases::{WordSeparation, split_words, starts_with_phrase};
use crate::limits::LEAKED_TERMS_MAX;

/// An internal term in a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakedTerm {
    /// The term from [`INTERNAL_TERMS`].
    pub term: &'static str,
    /// Its position in bytes.
    pub range: Range<usize>,
}

/// Terms that a reply should not use, each with its forms.
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

/// Word pairs with a harmless meaning: the previous word and the term.
pub const HARMLESS_PHRASES: [(&str, &str); 16] = [
    ("role", "model"),
    ("business", "model"),
    ("mental", "model"),
    ("data", "model"),
    ("pricing", "model"),
    ("demo", "model"),
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

/// Returns the internal terms in `reply`, in order.
#[must_use]
pub fn find_leaked_terms(reply: &str) -> Vec<LeakedTerm> {
    let skipped = non_prose_ranges(reply);
    let mut skipped = skipped.iter().peekable();
    let words = split_words(reply);
    let mut leaks = Vec::new();
    for (at, word) in words.iter().enumerate() {
        while skipped.next_if(|range| range.end <= word.range.start).is_some() {}
        if skipped.peek().is_some_and(|range| range.start <= word.range.start) {
            continue;
        }
        let forms = INTERNAL_TERMS.iter().flat_map(|(term, forms)| forms.iter().map(|form| (*term, *form)));
        let Some((term, form)) = forms.into_iter().find(|(_, form)| starts_with_phrase(&words[at..], form)) else {
            continue;
        };
        let before = at.checked_sub(1).map(|before| &words[before]).filter(|_| word.gap == WordSeparation::Adjacent);
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

/// Returns the ranges of fenced code, code spans and URLs, in order.
fn non_prose_ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut fence: Option<(&str, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some((mark, offset)),
            (Some((opening, start)), Some(mark)) if mark == opening => {
                ranges.push(start..offset + line.len());
                fence = None;
            }
            (Some(_), _) => {}
            (None, None) => push_non_prose_ranges(line, offset, &mut ranges),
        }
        offset += line.len();
    }
    ranges.extend(fence.map(|(_, start)| start..text.len()));
    ranges
}

/// Appends the ranges of code spans, and of URLs between them.
fn push_non_prose_ranges(line: &str, offset: usize, ranges: &mut Vec<Range<usize>>) {
    let mut at = 0;
    for (index, part) in line.split('`').enumerate() {
        let is_code = index % 2 == 1 && at + part.len() < line.len();
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
