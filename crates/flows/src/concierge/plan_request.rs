//! Detects explicit requests for a plan in the user's messages. The explorer judges more freely; these rules apply only
//! when it does not act. A plan costs many calls, so a request must be explicit: it starts its clause, and nothing
//! postpones it. A plan that is only mentioned ("if I want a plan", "do I need a plan?") is not a request.

use super::phrases::{TextWord, WordSeparation, split_words, starts_with_phrase};
use crate::limits::DETAIL_WORDS_MIN;

/// Phrases that may come before a request in its clause, any number of times.
const REQUEST_OPENERS: [&str; 31] = [
    "please",
    "now",
    "then",
    "so",
    "and",
    "ok",
    "okay",
    "yes",
    "well",
    "good",
    "great",
    "fine",
    "alright",
    "all right",
    "right",
    "but",
    "also",
    "just",
    "kindly",
    "can you",
    "could you",
    "would you",
    "will you",
    "i want you to",
    "i'd like you to",
    "i need you to",
    "we want you to",
    "we'd like you to",
    "i think",
    "you can",
    "once more",
];
/// Phrases that make a request together with one of [`PLAN_NOUNS`].
const REQUEST_VERBS: [&str; 44] = [
    "give me",
    "give us",
    "make",
    "make me",
    "make us",
    "write",
    "write me",
    "write us",
    "draw up",
    "work out",
    "put together",
    "come up with",
    "create",
    "lay out",
    "list",
    "show me",
    "show us",
    "tell me",
    "tell us",
    "i want",
    "we want",
    "i need",
    "we need",
    "i'd like",
    "we'd like",
    "i would like",
    "we would like",
    "can i have",
    "can we have",
    "could i have",
    "could we have",
    "can i get",
    "can we get",
    "let me have",
    "let us have",
    "let's make",
    "let's have",
    "let's work out",
    "let us make",
    "help me make",
    "help us make",
    "what is",
    "what's",
    "what are",
];
/// Phrases for a plan.
const PLAN_NOUNS: [&str; 16] = [
    "a plan",
    "the plan",
    "our plan",
    "my plan",
    "a step by step plan",
    "a concrete plan",
    "a detailed plan",
    "an action plan",
    "a plan of action",
    "the steps",
    "the next steps",
    "the first steps",
    "my next steps",
    "our next steps",
    "a list of steps",
    "a roadmap",
];
/// Phrases that are a request on their own.
const COMPLETE_REQUESTS: [&str; 12] = [
    "plan it",
    "plan this",
    "plan that",
    "let's plan",
    "let's plan it",
    "let's plan this",
    "i'm ready for a plan",
    "we're ready for a plan",
    "i am ready for a plan",
    "we are ready for a plan",
    "how do i do this step by step",
    "how do we do this step by step",
];
/// Phrases that are a request if nothing or one of [`REQUEST_TAIL_WORDS`] follows in the clause.
const DECISION_PHRASES: [&str; 18] = [
    "let's do it",
    "let's do this",
    "let's do that",
    "lets do it",
    "lets do this",
    "let us do it",
    "let us do this",
    "let's get started",
    "let's get going",
    "let's start",
    "let's begin",
    "let's go for it",
    "let's go ahead",
    "let's go",
    "i'm ready to start",
    "we're ready to start",
    "i am ready to start",
    "we are ready to start",
];
const REQUEST_TAIL_WORDS: [&str; 6] = ["now", "then", "please", "today", "together", "by"];
/// Words that postpone a request if they follow directly.
const POSTPONING_WORDS: [&str; 12] =
    ["later", "when", "once", "after", "if", "unless", "only", "tomorrow", "sometime", "someday", "not", "before"];

/// An explicit request for a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanRequestInMessage {
    /// The words of the request.
    pub(super) phrase: String,
    /// Whether the message also says what the plan is for.
    pub(super) has_details: bool,
}

/// Returns the first request for a plan in `message`.
#[must_use]
pub(super) fn find_plan_request(message: &str) -> Option<PlanRequestInMessage> {
    let words = split_words(message);
    let (mut first, mut others) = (None, 0);
    for clause in words.chunk_by(|_, next| next.gap == WordSeparation::Adjacent) {
        let opener = count_opener_words(clause);
        let request = match_plan_request(&clause[opener..]);
        others += clause.len() - opener - request.map_or(0, |found| found.request_words + found.tail_words);
        first = first.or_else(|| request.map(|found| &clause[opener..opener + found.request_words]));
    }
    let phrase: Vec<&str> = first?.iter().map(|word| word.text.as_str()).collect();
    Some(PlanRequestInMessage { phrase: phrase.join(" "), has_details: others >= DETAIL_WORDS_MIN })
}

/// The length of a request in words, and of the filler words after it.
#[derive(Clone, Copy)]
struct PlanRequestWordCounts {
    request_words: usize,
    tail_words: usize,
}

fn count_opener_words(clause: &[TextWord]) -> usize {
    let mut count = 0;
    while let Some(more) = longest_phrase_word_count(&clause[count..], &REQUEST_OPENERS) {
        count += more;
    }
    count
}

/// Matches a request at the start of `words`.
fn match_plan_request(words: &[TextWord]) -> Option<PlanRequestWordCounts> {
    let next = |count: usize| words.get(count).map(|word| word.text.as_str());
    let ends_request = |count: usize| next(count).is_none_or(|word| REQUEST_TAIL_WORDS.contains(&word));
    let verb_and_noun = REQUEST_VERBS.iter().filter(|verb| starts_with_phrase(words, verb)).find_map(|verb| {
        let verb_words = count_phrase_words(verb);
        let count = verb_words + longest_phrase_word_count(&words[verb_words..], &PLAN_NOUNS)?;
        // "What are the steps to register a company?" is a question of its own.
        let is_request = !verb.starts_with("what") || ends_request(count);
        is_request.then_some(count)
    });
    let decision = || longest_phrase_word_count(words, &DECISION_PHRASES).filter(|count| ends_request(*count));
    let request_words =
        verb_and_noun.or_else(|| longest_phrase_word_count(words, &COMPLETE_REQUESTS)).or_else(decision)?;
    let is_postponed = next(request_words).is_some_and(|word| POSTPONING_WORDS.contains(&word));
    let tail_words = usize::from(next(request_words).is_some_and(|word| REQUEST_TAIL_WORDS.contains(&word)));
    (!is_postponed).then_some(PlanRequestWordCounts { request_words, tail_words })
}

/// Returns the word count of the longest phrase that `words` start with.
fn longest_phrase_word_count(words: &[TextWord], phrases: &[&str]) -> Option<usize> {
    phrases.iter().filter(|phrase| starts_with_phrase(words, phrase)).map(|phrase| count_phrase_words(phrase)).max()
}

fn count_phrase_words(phrase: &str) -> usize {
    phrase.split(' ').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn explicit_request_is_found() {
        for (message, phrase) in [
            ("Give me a plan.", "give me a plan"),
            ("give us a step-by-step plan", "give us a step by step plan"),
            ("So, what are the steps?", "what are the steps"),
            ("Okay then, could you please just make me a plan for the flat?", "make me a plan"),
            ("We buy by May. Let’s do this!", "let's do this"),
            ("Good. I'd like a roadmap", "i'd like a roadmap"),
            ("plan it", "plan it"),
            ("We have decided: we buy by May. Let's do it by then.", "let's do it"),
            ("I want you to write a concrete plan, please", "write a concrete plan"),
            ("and now let's start", "let's start"),
            ("What's the plan?", "what's the plan"),
        ] {
            assert_eq!(find_plan_request(message).map(|request| request.phrase).as_deref(), Some(phrase), "{message}");
        }
    }

    #[test]
    fn mentioned_plan_is_not_a_request() {
        for message in [
            "",
            "Don't give me a plan.",
            "I don't want a plan yet",
            "before you give me a plan, tell me about banks",
            "If I want a plan, I will say so.",
            "Do I need a plan?",
            "What's a good pension plan?",
            "Give me a plan later.",
            "we plan it for next year",
            "let's start with the money",
            "let's do it later",
            "I need to know more about the steps in front of the house",
            "I'm going to think about it",
            "My plan was to buy.",
            "Steps? I thought of stairs.",
            "give me some advice",
        ] {
            assert_eq!(find_plan_request(message), None, "{message}");
        }
    }

    #[test]
    fn message_with_a_purpose_has_details() {
        for (message, has_details) in [
            ("Give me a plan, please.", false),
            ("ok. so, what are the steps? let's do this now!", false),
            ("Give me a plan for a small bakery.", true),
            ("We buy a flat by May. Give us a plan: what are the steps?", true),
        ] {
            assert_eq!(find_plan_request(message).map(|request| request.has_details), Some(has_details), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_accepted(message in "(let's do it|give me|a plan|what are the steps|please|not|[ ,.?!é]){0,12}") {
            let words = split_words(&message).len();
            if let Some(request) = find_plan_request(&message) {
                prop_assert!((1..=words).contains(&request.phrase.split(' ').count()));
            }
        }
    }
}
