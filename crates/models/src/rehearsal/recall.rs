//! Answers questions about the conversation from the prompt, so that a user can see what is remembered and what is not.
//! Recognises fixed phrases only; other messages get ordinary prose.

use super::parsed_prompt::{RehearsalPromptParts, content_words, have_same_stem};
use super::phrases;
use crate::limits::{RECALLED_MESSAGES_MAX, RECALLED_VALUE_WORDS_MAX, REHEARSAL_RECALL_QUOTE_CHARS_MAX};
use crate::text::shorten_to_line;

const FIRST_MESSAGE_PHRASES: &[&str] = &[
    "i say first",
    "i said first",
    "my first message",
    "first thing i said",
    "first thing i say",
    "did i first say",
    "did i start with",
];
const PREVIOUS_MESSAGE_PHRASES: &[&str] = &[
    "i just say",
    "i just said",
    "my last message",
    "my previous message",
    "i say before",
    "i say last",
    "i say earlier",
];
const MESSAGE_COUNT_PHRASES: &[&str] = &["how many messages", "how many times did i"];
const RECAP_PHRASES: &[&str] = &[
    "what do you remember",
    "what have i told you",
    "what have i said",
    "what have we talked",
    "what did we talk",
    "what did we discuss",
    "so far",
    "recap",
];
const USER_FACT_PHRASES: &[&str] =
    &["what is my ", "what was my ", "what are my ", "remember my ", "do you know my ", "tell me my ", "say my "];
const OTHER_FACT_PHRASES: &[&str] = &["what is the ", "what was the ", "remember the "];
const MENTION_PHRASES: &[&str] =
    &["i say about ", "i tell you about ", "i said about ", "i told you about ", "remember what i said about "];

/// Returns the answer if the last message asks about the conversation.
pub(super) fn answer_recall_question(prompt: &RehearsalPromptParts) -> Option<String> {
    let question =
        tokenize_words(prompt.last_user_text()).into_iter().map(|token| token.lowercase).collect::<Vec<_>>().join(" ");
    let asks = |phrases: &[&str]| phrases.iter().any(|phrase| question.contains(phrase));
    let rest = |phrases: &[&str]| {
        phrases.iter().find_map(|phrase| question.split_once(phrase).map(|(_, rest)| rest.to_owned()))
    };
    let quote = |text: &str| shorten_to_line(text, REHEARSAL_RECALL_QUOTE_CHARS_MAX);

    if let Some(what) = rest(MENTION_PHRASES).filter(|what| !what.is_empty()) {
        return Some(recall_mention(prompt, &what));
    }
    if question.contains("who am i") {
        return Some(recall_user_fact(prompt, "name"));
    }
    if asks(MESSAGE_COUNT_PHRASES) {
        return Some(phrases::message_count_phrase(prompt.user_message_count()));
    }
    if asks(FIRST_MESSAGE_PHRASES) {
        return Some(match prompt.previous_user_text() {
            Some(_) => phrases::first_message_phrase(&quote(prompt.first_user_text())),
            None => phrases::no_earlier_message_phrase(),
        });
    }
    if asks(PREVIOUS_MESSAGE_PHRASES) || question.ends_with("what did i say") {
        return Some(
            prompt
                .previous_user_text()
                .map_or_else(phrases::no_earlier_message_phrase, |text| phrases::previous_message_phrase(&quote(text))),
        );
    }
    if let Some(what) = rest(USER_FACT_PHRASES).filter(|what| !what.is_empty()) {
        return Some(recall_user_fact(prompt, &what));
    }
    if let Some(what) = rest(OTHER_FACT_PHRASES) {
        let value = find_stated_fact(prompt, &what)?;
        return Some(phrases::other_fact_phrase(&what, &value));
    }
    if asks(RECAP_PHRASES) && question.split(' ').count() <= RECALLED_MESSAGES_MAX {
        let earlier: Vec<_> = prompt
            .earlier_user_texts()
            .iter()
            .rev()
            .take(RECALLED_MESSAGES_MAX)
            .rev()
            .map(|text| quote(text))
            .collect();
        return Some(if earlier.is_empty() {
            phrases::no_earlier_message_phrase()
        } else {
            phrases::message_list_phrase(&earlier)
        });
    }
    None
}

fn recall_user_fact(prompt: &RehearsalPromptParts, what: &str) -> String {
    match find_stated_fact(prompt, what) {
        Some(value) => phrases::user_fact_phrase(what, &value),
        None => phrases::unknown_fact_phrase(&shorten_to_line(what, REHEARSAL_RECALL_QUOTE_CHARS_MAX)),
    }
}

fn recall_mention(prompt: &RehearsalPromptParts, what: &str) -> String {
    let topic_words: Vec<_> = content_words(what).collect();
    let mentions = |text: &&String| {
        content_words(text).any(|word| topic_words.iter().any(|topic_word| have_same_stem(topic_word, &word)))
    };
    let what = shorten_to_line(what, REHEARSAL_RECALL_QUOTE_CHARS_MAX);
    match prompt.earlier_user_texts().iter().rev().find(mentions) {
        Some(text) => phrases::mention_phrase(&what, &shorten_to_line(text, REHEARSAL_RECALL_QUOTE_CHARS_MAX)),
        None => phrases::no_mention_phrase(&what),
    }
}

/// Returns the newest value that the user gave for `what`.
fn find_stated_fact(prompt: &RehearsalPromptParts, what: &str) -> Option<String> {
    let what: Vec<_> = what.split(' ').filter(|word| !word.is_empty()).collect();
    if what.is_empty() {
        return None;
    }
    prompt.earlier_user_texts().iter().rev().find_map(|text| {
        let words = tokenize_words(text);
        find_value_after(&words, &what).or_else(|| if what == ["name"] { find_introduced_name(&words) } else { None })
    })
}

/// Returns the value in `… what is value …`.
fn find_value_after(words: &[WordWithLowercase<'_>], what: &[&str]) -> Option<String> {
    (0..words.len()).find_map(|start| {
        let rest = what.iter().try_fold(&words[start..], |rest, word| {
            let (first, rest) = rest.split_first()?;
            (first.lowercase == *word).then_some(rest)
        })?;
        let (verb, rest) = rest.split_first()?;
        if !["is", "was", "are"].contains(&verb.lowercase.as_str()) || rest.first()?.lowercase == "not" {
            return None;
        }
        join_value_words(rest)
    })
}

/// Returns the name in `call me Ada` or `I am Ada`.
fn find_introduced_name(words: &[WordWithLowercase<'_>]) -> Option<String> {
    words.windows(3).find_map(|three| {
        let is_named = three[2].text.starts_with(char::is_uppercase);
        match [three[0].lowercase.as_str(), three[1].lowercase.as_str()] {
            ["call", "me"] | ["i", "am"] if is_named => join_value_words(&three[2..]),
            _ => None,
        }
    })
}

fn join_value_words(rest: &[WordWithLowercase<'_>]) -> Option<String> {
    let mut words = Vec::new();
    for token in rest.iter().take(RECALLED_VALUE_WORDS_MAX) {
        if !words.is_empty() && ["and", "but", "so"].contains(&token.lowercase.as_str()) {
            break;
        }
        words.push(token.text);
        if token.ends_clause {
            break;
        }
    }
    let value = words.join(" ");
    (!value.is_empty()).then_some(value)
}

/// A word as written and in lower case.
#[derive(Debug)]
struct WordWithLowercase<'t> {
    text: &'t str,
    lowercase: String,
    /// Whether punctuation follows the word.
    ends_clause: bool,
}

fn tokenize_words(text: &str) -> Vec<WordWithLowercase<'_>> {
    let mut tokens = Vec::new();
    for written in text.split_whitespace() {
        let word = written.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_last = written.ends_with(|letter: char| ".,;:!?)".contains(letter));
        let lowercase_word = word.to_lowercase().replace('’', "'");
        let (stem, ending) = match lowercase_word.rsplit_once('\'') {
            Some((stem, "s")) => (stem.to_owned(), Some("is")),
            Some(("i", "m")) => ("i".to_owned(), Some("am")),
            _ => (lowercase_word, None),
        };
        if stem.is_empty() {
            continue;
        }
        tokens.push(WordWithLowercase { text: word, lowercase: stem, ends_clause: is_last && ending.is_none() });
        tokens.extend(ending.map(|ending| WordWithLowercase {
            text: ending,
            lowercase: ending.to_owned(),
            ends_clause: is_last,
        }));
    }
    tokens
}
