//! Whether the user asks for a plan in so many words. The explorer hears more than this, and judges it; this is what the rules go by
//! where it does not act. Everyone is asked for a plan, which is paid for, so the request must be plain: it begins its clause, and
//! nothing puts it off. A wish that is only mentioned ("if I want a plan", "do I need a plan?") begins no clause.

use super::phrases::{TextWord, WordGap, split_words, starts_with_phrase};

/// What can stand before a request in its clause, in any number.
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
/// What asks for one of [`THINGS`].
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
/// What can be asked for.
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
/// What asks for it by itself.
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
/// What asks for it if its clause goes on with nothing, or with one of [`TAILS`].
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
/// What puts a request off if it follows at once.
const POSTPONING_WORDS: [&str; 12] =
    ["later", "when", "once", "after", "if", "unless", "only", "tomorrow", "sometime", "someday", "not", "before"];
/// How many words beside the request make a message say what the plan is for.
const DETAIL_WORDS_MIN: usize = 3;

/// A plan is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanRequest {
    /// The words that ask for it.
    pub(super) phrase: String,
    /// Whether the message says more than that: what the plan is for, perhaps.
    pub(super) has_details: bool,
}

/// The wish in a message, if there is one; of several the first.
#[must_use]
pub(super) fn find_plan_request(message: &str) -> Option<PlanRequest> {
    let said = split_words(message);
    let (mut first, mut others) = (None, 0);
    for clause in said.chunk_by(|_, next| next.gap == WordGap::Adjacent) {
        let opener = count_opener_words(clause);
        let request = match_plan_request(&clause[opener..]);
        others += clause.len() - opener - request.map_or(0, |found| found.request_words + found.tail_words);
        first = first.or_else(|| request.map(|found| &clause[opener..opener + found.request_words]));
    }
    let asked: Vec<&str> = first?.iter().map(|word| word.text.as_str()).collect();
    Some(PlanRequest { phrase: asked.join(" "), has_details: others >= DETAIL_WORDS_MIN })
}

/// How many words ask for a plan, and how many after them add nothing.
#[derive(Clone, Copy)]
struct RequestSpan {
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

/// The request at the beginning of what is left of a clause.
fn match_plan_request(words: &[TextWord]) -> Option<RequestSpan> {
    let next = |count: usize| words.get(count).map(|word| word.text.as_str());
    let of_things = REQUEST_VERBS.iter().filter(|ask| starts_with_phrase(words, ask)).find_map(|ask| {
        let asks = count_phrase_words(ask);
        longest_phrase_word_count(&words[asks..], &PLAN_NOUNS).map(|thing| asks + thing)
    });
    let alone = || {
        longest_phrase_word_count(words, &DECISION_PHRASES)
            .filter(|count| next(*count).is_none_or(|word| REQUEST_TAIL_WORDS.contains(&word)))
    };
    let asks = of_things.or_else(|| longest_phrase_word_count(words, &COMPLETE_REQUESTS)).or_else(alone)?;
    let is_put_off = next(asks).is_some_and(|word| POSTPONING_WORDS.contains(&word));
    let tail = usize::from(next(asks).is_some_and(|word| REQUEST_TAIL_WORDS.contains(&word)));
    (!is_put_off).then_some(RequestSpan { request_words: asks, tail_words: tail })
}

/// The length of the longest of these phrases that stands at the beginning.
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
    fn a_plain_request_is_heard() {
        for (message, words) in [
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
            assert_eq!(find_plan_request(message).map(|wish| wish.phrase).as_deref(), Some(words), "{message}");
        }
    }

    #[test]
    fn what_only_speaks_of_a_plan_is_no_request() {
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
    fn a_message_that_says_what_the_plan_is_for_says_more() {
        for (message, more) in [
            ("Give me a plan, please.", false),
            ("ok. so, what are the steps? let's do this now!", false),
            ("Give me a plan for a small bakery.", true),
            ("We buy a flat by May. Give us a plan: what are the steps?", true),
        ] {
            assert_eq!(find_plan_request(message).map(|wish| wish.has_details), Some(more), "{message}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read(message in "(let's do it|give me|a plan|what are the steps|please|not|[ ,.?!é]){0,12}") {
            let words = split_words(&message).len();
            if let Some(wish) = find_plan_request(&message) {
                prop_assert!((1..=words).contains(&wish.phrase.split(' ').count()));
            }
        }
    }
}
