//! What a user's short answer means to a question of the flow's own: whether to ask everyone, whether to try again. It is read
//! only where the flow has just asked; anything else is simply what the user says. Asking everyone is paid for, so a yes must be
//! plain: it comes first, and nothing that follows takes it back.

use super::wish;
use super::words::{Gap, Word, begins, words};

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    /// Yes, and nothing against it.
    Yes,
    /// No.
    No,
    /// Something else.
    Neither,
}

/// What says yes, whatever follows in its clause.
const YES: [&str; 26] = [
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
const YES_ALONE: [&str; 12] = [
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
const NO: [&str; 12] =
    ["no", "n", "nope", "nah", "not", "don't", "do not", "never", "cancel", "stop", "skip it", "rather not"];
/// What takes a yes back, or puts something before it.
const AGAINST: [&str; 22] = [
    "no", "not", "don't", "dont", "doesn't", "won't", "can't", "cannot", "never", "but", "however", "although",
    "though", "except", "unless", "instead", "rather", "wait", "first", "later", "only if", "before",
];

/// Messages that ask for the same once more.
const AGAIN: [&str; 8] =
    ["retry", "try again", "again", "once more", "try once more", "please retry", "please try again", "try that again"];

/// What a message answers to the question whether everyone may be asked.
#[must_use]
pub(super) fn read(message: &str) -> Consent {
    let said = words(message);
    let clause = said.iter().skip(1).position(|word| word.gap == Gap::Wide).map_or(said.len(), |end| end + 1);
    let starts = |phrases: &[&str]| phrases.iter().any(|phrase| begins(&said, phrase));
    if starts(&NO) {
        return Consent::No;
    }
    let is_alone = YES_ALONE.iter().any(|phrase| is_phrase(&said[..clause], phrase));
    if !starts(&YES) && !is_alone {
        return Consent::Neither;
    }
    let is_question = message.contains('?') && !(0..said.len()).any(|at| is_why_not(&said, at));
    if is_question || is_taken_back(&said) { Consent::Neither } else { Consent::Yes }
}

/// The same, where a plan is what everyone would be asked for: to ask for it is a yes.
#[must_use]
pub(super) fn read_for_plan(message: &str) -> Consent {
    match read(message) {
        Consent::Neither if wish::read(message).is_some() && !is_taken_back(&words(message)) => Consent::Yes,
        consent => consent,
    }
}

/// "Why not?" is neither a question nor a refusal.
fn is_why_not(said: &[Word], at: usize) -> bool {
    at > 0 && said[at].text == "not" && said[at - 1].text == "why"
}

fn is_taken_back(said: &[Word]) -> bool {
    let mut against = (0..said.len()).filter(|at| AGAINST.iter().any(|phrase| begins(&said[*at..], phrase)));
    against.any(|at| !is_why_not(said, at))
}

/// Whether the message asks for the same once more and nothing else.
#[must_use]
pub fn is_retry(message: &str) -> bool {
    let said = words(message);
    AGAIN.iter().any(|phrase| is_phrase(&said, phrase))
}

fn is_phrase(said: &[Word], phrase: &str) -> bool {
    said.iter().map(|word| word.text.as_str()).eq(phrase.split(' '))
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
            assert_eq!(read(message), Consent::Yes, "{message}");
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
            assert_eq!(read(message), Consent::Neither, "{message}");
        }
    }

    #[test]
    fn to_ask_for_the_plan_that_is_offered_is_a_yes() {
        assert_eq!(read_for_plan("Give me a plan!"), Consent::Yes);
        assert_eq!(read_for_plan("So what are the steps?"), Consent::Yes);
        assert_eq!(read_for_plan("Give me a plan, but tell me about banks first."), Consent::Neither);
        assert_eq!(read_for_plan("What would that take?"), Consent::Neither);
        assert_eq!(read_for_plan("No. Give me a plan some other day."), Consent::No);
    }

    #[test]
    fn a_no_is_a_no() {
        for message in ["no", "No thanks", "nope, leave it", "Don't.", "not yet", "stop", "do not ask them"] {
            assert_eq!(read(message), Consent::No, "{message}");
        }
    }

    #[test]
    fn only_a_whole_message_asks_for_the_same_again() {
        assert!(is_retry("Retry") && is_retry("try again!"));
        assert!(!is_retry("I'll try again tomorrow") && !is_retry(""));
    }
}
