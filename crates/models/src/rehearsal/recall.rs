//! Answers questions about the conversation itself from what the prompt holds, so that a user can see memory at work, and see
//! where it ends. Goes by fixed turns of phrase; whatever it does not recognise is left to ordinary prose.

use super::reading::{Reading, alike, telling_words};
use super::words;
use crate::limits::{REHEARSAL_RECALL_QUOTE_CHARS_MAX, SO_FAR_MAX, VALUE_WORDS_MAX};
use crate::text::shorten;

const FIRST: &[&str] = &[
    "i say first",
    "i said first",
    "my first message",
    "first thing i said",
    "first thing i say",
    "did i first say",
    "did i start with",
];
const PREVIOUS: &[&str] = &[
    "i just say",
    "i just said",
    "my last message",
    "my previous message",
    "i say before",
    "i say last",
    "i say earlier",
];
const COUNT: &[&str] = &["how many messages", "how many times did i"];
const SO_FAR: &[&str] = &[
    "what do you remember",
    "what have i told you",
    "what have i said",
    "what have we talked",
    "what did we talk",
    "what did we discuss",
    "so far",
    "recap",
];
const MINE: &[&str] =
    &["what is my ", "what was my ", "what are my ", "remember my ", "do you know my ", "tell me my ", "say my "];
const ANY: &[&str] = &["what is the ", "what was the ", "remember the "];
const ABOUT: &[&str] =
    &["i say about ", "i tell you about ", "i said about ", "i told you about ", "remember what i said about "];

/// The answer, if the last message asks about the conversation.
pub(super) fn answer(reading: &Reading) -> Option<String> {
    let asked = tokens(reading.last()).into_iter().map(|token| token.low).collect::<Vec<_>>().join(" ");
    let asks = |phrases: &[&str]| phrases.iter().any(|phrase| asked.contains(phrase));
    let rest =
        |phrases: &[&str]| phrases.iter().find_map(|phrase| asked.split_once(phrase).map(|(_, rest)| rest.to_owned()));
    let quote = |text: &str| shorten(text, REHEARSAL_RECALL_QUOTE_CHARS_MAX);

    if let Some(what) = rest(ABOUT).filter(|what| !what.is_empty()) {
        return Some(about(reading, &what));
    }
    if asked.contains("who am i") {
        return Some(my(reading, "name"));
    }
    if asks(COUNT) {
        return Some(words::said_count(reading.said_count()));
    }
    if asks(FIRST) {
        return Some(match reading.previous() {
            Some(_) => words::said_first(&quote(reading.first())),
            None => words::said_nothing_before(),
        });
    }
    if asks(PREVIOUS) || asked.ends_with("what did i say") {
        return Some(
            reading.previous().map_or_else(words::said_nothing_before, |text| words::said_previously(&quote(text))),
        );
    }
    if let Some(what) = rest(MINE).filter(|what| !what.is_empty()) {
        return Some(my(reading, &what));
    }
    if let Some(what) = rest(ANY) {
        let value = find_fact(reading, &what)?;
        return Some(words::other_fact(&what, &value));
    }
    if asks(SO_FAR) && asked.split(' ').count() <= SO_FAR_MAX {
        let said: Vec<_> = reading.earlier().iter().rev().take(SO_FAR_MAX).rev().map(|text| quote(text)).collect();
        return Some(if said.is_empty() { words::said_nothing_before() } else { words::said_so_far(&said) });
    }
    None
}

fn my(reading: &Reading, what: &str) -> String {
    match find_fact(reading, what) {
        Some(value) => words::fact(what, &value),
        None => words::not_told(&shorten(what, REHEARSAL_RECALL_QUOTE_CHARS_MAX)),
    }
}

fn about(reading: &Reading, what: &str) -> String {
    let wanted: Vec<_> = telling_words(what).collect();
    let mentions = |text: &&String| telling_words(text).any(|word| wanted.iter().any(|wanted| alike(wanted, &word)));
    let what = shorten(what, REHEARSAL_RECALL_QUOTE_CHARS_MAX);
    match reading.earlier().iter().rev().find(mentions) {
        Some(text) => words::said_about(&what, &shorten(text, REHEARSAL_RECALL_QUOTE_CHARS_MAX)),
        None => words::not_told_about(&what),
    }
}

/// What the user said that `what` is, newest first.
fn find_fact(reading: &Reading, what: &str) -> Option<String> {
    let what: Vec<_> = what.split(' ').filter(|word| !word.is_empty()).collect();
    if what.is_empty() {
        return None;
    }
    reading.earlier().iter().rev().find_map(|text| {
        let said = tokens(text);
        stated(&said, &what).or_else(|| if what == ["name"] { introduced(&said) } else { None })
    })
}

/// The value in `… what is value …`.
fn stated(said: &[Token<'_>], what: &[&str]) -> Option<String> {
    (0..said.len()).find_map(|start| {
        let rest = what.iter().try_fold(&said[start..], |rest, word| {
            let (first, rest) = rest.split_first()?;
            (first.low == *word).then_some(rest)
        })?;
        let (verb, rest) = rest.split_first()?;
        if !["is", "was", "are"].contains(&verb.low.as_str()) || rest.first()?.low == "not" {
            return None;
        }
        value(rest)
    })
}

/// The name in `call me Ada` or `I am Ada`.
fn introduced(said: &[Token<'_>]) -> Option<String> {
    said.windows(3).find_map(|three| {
        let is_named = three[2].text.starts_with(char::is_uppercase);
        match [three[0].low.as_str(), three[1].low.as_str()] {
            ["call", "me"] | ["i", "am"] if is_named => value(&three[2..]),
            _ => None,
        }
    })
}

fn value(rest: &[Token<'_>]) -> Option<String> {
    let mut words = Vec::new();
    for token in rest.iter().take(VALUE_WORDS_MAX) {
        if !words.is_empty() && ["and", "but", "so"].contains(&token.low.as_str()) {
            break;
        }
        words.push(token.text);
        if token.is_last {
            break;
        }
    }
    let value = words.join(" ");
    (!value.is_empty()).then_some(value)
}

/// A word as it was written, and as it is compared.
#[derive(Debug)]
struct Token<'t> {
    text: &'t str,
    low: String,
    /// A comma or the like comes after it.
    is_last: bool,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for written in text.split_whitespace() {
        let word = written.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_last = written.ends_with(|letter: char| ".,;:!?)".contains(letter));
        let low = word.to_lowercase().replace('’', "'");
        let (stem, ending) = match low.rsplit_once('\'') {
            Some((stem, "s")) => (stem.to_owned(), Some("is")),
            Some(("i", "m")) => ("i".to_owned(), Some("am")),
            _ => (low, None),
        };
        if stem.is_empty() {
            continue;
        }
        tokens.push(Token { text: word, low: stem, is_last: is_last && ending.is_none() });
        tokens.extend(ending.map(|ending| Token { text: ending, low: ending.to_owned(), is_last }));
    }
    tokens
}
