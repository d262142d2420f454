//! What a user's short answer means to a question of the flow's own: whether to ask everyone, whether to try again. It is read
//! only where the flow has just asked; anything else is simply what the user says. Asking everyone is paid for, so a yes must be
//! plain: it comes first, and nothing that follows takes it back.

use super::phrases::{TextWord, WordGap, split_words, starts_with_phrase};
use super::plan_request;

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchConsent {
    /// Yes, and nothing against it.
    Yes,
    /// No.
    No,
    /// Something else.
    Unclear,
}

/// What says yes, whatever follows in its clause.
const YES_PHRASES: [&str; 26] = [
    "yes",
    "yep",
    "yeah",
    "yup",
    "ok",
    "okay",
    "sure",
    "of course",
    "absolutely",
    "definitely",
    "certainly",
    "by all means",
    "go ahead",
    "go for it",
    "do it",
    "do that",
    "do so",
    "please do",
    "please ask them",
    "please go ahead",
    "ask them",
    "let's do it",
    "let's do that",
    "sounds good",
    "why not",
    "good idea",
];
/// What says yes if its clause holds nothing else.
const STANDALONE_YES_PHRASES: [&str; 12] = [
    "y",
    "go",
    "please",
    "fine",
    "great",
    "perfect",
    "confirm",
    "confirmed",
    "agreed",
    "alright",
    "all right",
    "let's go",
];
/// What says no, at the beginning.
const NO_PHRASES: [&str; 12] =
    ["no", "n", "nope", "nah", "not", "don't", "do not", "never", "cancel", "stop", "skip it", "rather not"];
/// What takes a yes back, or puts something before it.
const RETRACTION_PHRASES: [&str; 22] = [
    "no", "not", "don't", "dont", "doesn't", "won't", "can't", "cannot", "never", "but", "however", "although",
    "though", "except", "unless", "instead", "rather", "wait", "first", "later", "only if", "before",
];

/// Messages that ask for the same once more.
const RETRY_PHRASES: [&str; 8] =
    ["retry", "try again", "again", "once more", "try once more", "please retry", "please try again", "try that again"];

/// What a message answers to the question whether everyone may be asked.
#[must_use]
pub(super) fn parse_consent(message: &str) -> BatchConsent {
    let said = split_words(message);
    let clause = said.iter().skip(1).position(|word| word.gap == WordGap::Separated).map_or(said.len(), |end| end + 1);
    let starts = |phrases: &[&str]| phrases.iter().any(|phrase| starts_with_phrase(&said, phrase));
    if starts(&NO_PHRASES) {
        return BatchConsent::No;
    }
    let is_alone = STANDALONE_YES_PHRASES.iter().any(|phrase| is_exact_phrase(&said[..clause], phrase));
    if !starts(&YES_PHRASES) && !is_alone {
        return BatchConsent::Unclear;
    }
    let is_question = message.contains('?') && !(0..said.len()).any(|at| is_why_not(&said, at));
    if is_question || has_retraction(&said) { BatchConsent::Unclear } else { BatchConsent::Yes }
}

/// The same, where a plan is what everyone would be asked for: to ask for it is a yes.
#[must_use]
pub(super) fn parse_plan_consent(message: &str) -> BatchConsent {
    match parse_consent(message) {
        BatchConsent::Unclear
            if plan_request::find_plan_request(message).is_some() && !has_retraction(&split_words(message)) =>
        {
            BatchConsent::Yes
        }
        consent => consent,
    }
}

/// "Why not?" is neither a question nor a refusal.
fn is_why_not(words: &[TextWord], at: usize) -> bool {
    at > 0 && words[at].text == "not" && words[at - 1].text == "why"
}

fn has_retraction(words: &[TextWord]) -> bool {
    let mut against =
        (0..words.len()).filter(|at| RETRACTION_PHRASES.iter().any(|phrase| starts_with_phrase(&words[*at..], phrase)));
    against.any(|at| !is_why_not(words, at))
}

/// Whether the message asks for the same once more and nothing else.
#[must_use]
pub fn is_retry_request(message: &str) -> bool {
    let said = split_words(message);
    RETRY_PHRASES.iter().any(|phrase| is_exact_phrase(&said, phrase))
}

fn is_exact_phrase(words: &[TextWord], phrase: &str) -> bool {
    words.iter().map(|word| word.text.as_str()).eq(phrase.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_yes_is_one_in_many_words() {
        for message in [
            "Yes, please!",
            "Yes, go ahead",
            "yes go ahead and ask them",
            "Sure, that would help a lot.",
            " OK. ",
            "go ahead",
            "Okay, let's do it",
            "Please do",
            "Sure, why not?",
            "y",
            "Fine. Ask them.",
            "Of course!",
            "please",
        ] {
            assert_eq!(parse_consent(message), BatchConsent::Yes, "{message}");
        }
    }

    #[test]
    fn what_is_taken_back_or_asked_is_neither() {
        for message in [
            "yes, but cheaper",
            "yes? what does it cost?",
            "ok, not now",
            "sure, after I have slept on it first",
            "",
            "please tell me more",
            "fine print matters to me",
            "tell me about the bank",
            "I would rather see a flat",
            "go back to the first idea",
            "sure, why not? but not today",
        ] {
            assert_eq!(parse_consent(message), BatchConsent::Unclear, "{message}");
        }
    }

    #[test]
    fn to_ask_for_the_plan_that_is_offered_is_a_yes() {
        assert_eq!(parse_plan_consent("Give me a plan!"), BatchConsent::Yes);
        assert_eq!(parse_plan_consent("So what are the steps?"), BatchConsent::Yes);
        assert_eq!(parse_plan_consent("Give me a plan, but tell me about banks first."), BatchConsent::Unclear);
        assert_eq!(parse_plan_consent("What would that take?"), BatchConsent::Unclear);
        assert_eq!(parse_plan_consent("No. Give me a plan some other day."), BatchConsent::No);
    }

    #[test]
    fn a_no_is_a_no() {
        for message in ["no", "No thanks", "nope, leave it", "Don't.", "not yet", "stop", "do not ask them"] {
            assert_eq!(parse_consent(message), BatchConsent::No, "{message}");
        }
    }

    #[test]
    fn only_a_whole_message_asks_for_the_same_again() {
        assert!(is_retry_request("Retry") && is_retry_request("try again!"));
        assert!(!is_retry_request("I'll try again tomorrow") && !is_retry_request(""));
    }
}
