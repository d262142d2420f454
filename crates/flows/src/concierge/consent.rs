//! Interprets the user's answer to a question of the flow: whether to start a batch, or whether to retry. It is used only
//! right after such a question. A batch costs many calls, so a yes must be clear: the whole message says yes and nothing
//! else.

use super::phrases::{TextWord, split_words, starts_with_phrase};
use super::plan_request;

/// The user's answer to the question whether to start a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpertBatchConsentAnswer {
    Yes,
    No,
    /// Neither a clear yes nor a no.
    Unclear,
}

/// Phrases that mean yes. Further words must be phrases of this list or of [`COURTESY_PHRASES`].
const YES_PHRASES: [&str; 55] = [
    "yes",
    "yep",
    "yeah",
    "yup",
    "y",
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
    "go",
    "do it",
    "do that",
    "do so",
    "please do",
    "ask them",
    "let's do it",
    "let's do that",
    "let's go",
    "sounds good",
    "why not",
    "good idea",
    "please",
    "fine",
    "great",
    "perfect",
    "confirm",
    "confirmed",
    "agreed",
    "alright",
    "all right",
    "oui",
    "d'accord",
    "bien sûr",
    "ja",
    "ja bitte",
    "ja gerne",
    "gerne",
    "klar",
    "sí",
    "si",
    "claro",
    "vale",
    "sì",
    "va bene",
    "sim",
    "tak",
    "да",
    "はい",
    "好的",
];
/// Phrases that may accompany a yes.
const COURTESY_PHRASES: [&str; 14] = [
    "then",
    "now",
    "and",
    "thanks",
    "thank you",
    "that would be great",
    "that would be good",
    "that would be helpful",
    "that would help",
    "a lot",
    "merci",
    "danke",
    "gracias",
    "s'il vous plaît",
];
/// Phrases that mean no at the start of a message.
const NO_PHRASES: [&str; 16] = [
    "no",
    "n",
    "nope",
    "nah",
    "not",
    "don't",
    "do not",
    "never",
    "cancel",
    "stop",
    "skip it",
    "rather not",
    "non",
    "nein",
    "não",
    "нет",
];
/// Phrases that retract or delay a yes.
const RETRACTION_PHRASES: [&str; 22] = [
    "no", "not", "don't", "dont", "doesn't", "won't", "can't", "cannot", "never", "but", "however", "although",
    "though", "except", "unless", "instead", "rather", "wait", "first", "later", "only if", "before",
];

/// The commands as messages, for clients that cannot run commands.
const YES_COMMAND_TEXT: &str = "/yes";
const NO_COMMAND_TEXT: &str = "/no";

/// Messages that ask for a retry.
const RETRY_PHRASES: [&str; 8] =
    ["retry", "try again", "again", "once more", "try once more", "please retry", "please try again", "try that again"];

/// Interprets a message as the answer to the question whether to start a batch.
#[must_use]
pub(super) fn parse_consent(message: &str) -> ExpertBatchConsentAnswer {
    match message.trim() {
        YES_COMMAND_TEXT => return ExpertBatchConsentAnswer::Yes,
        NO_COMMAND_TEXT => return ExpertBatchConsentAnswer::No,
        _ => {}
    }
    let words = split_words(message);
    if NO_PHRASES.iter().any(|phrase| starts_with_phrase(&words, phrase)) {
        return ExpertBatchConsentAnswer::No;
    }
    let is_question = message.contains(['?', '？']) && !(0..words.len()).any(|at| is_why_not(&words, at));
    if is_question || !is_only_yes(&words) { ExpertBatchConsentAnswer::Unclear } else { ExpertBatchConsentAnswer::Yes }
}

/// Combines what an answer says by its wording with what it means to the concierge. Returns `None` if they contradict each
/// other.
#[must_use]
pub(super) fn combine_consent(
    by_wording: ExpertBatchConsentAnswer,
    by_concierge: Option<ExpertBatchConsentAnswer>,
) -> Option<ExpertBatchConsentAnswer> {
    match (by_wording, by_concierge) {
        (wording, None | Some(ExpertBatchConsentAnswer::Unclear)) => Some(wording),
        (ExpertBatchConsentAnswer::Unclear, Some(meaning)) => Some(meaning),
        (wording, Some(meaning)) => (wording == meaning).then_some(meaning),
    }
}

/// Returns whether the words are phrases that mean yes and nothing else but courtesies.
fn is_only_yes(mut words: &[TextWord]) -> bool {
    let longest = |phrases: &[&str], words: &[TextWord]| {
        let matching = phrases.iter().filter(|phrase| starts_with_phrase(words, phrase));
        matching.map(|phrase| phrase.split(' ').count()).max().unwrap_or(0)
    };
    let mut has_yes = false;
    while !words.is_empty() {
        let (yes, courtesy) = (longest(&YES_PHRASES, words), longest(&COURTESY_PHRASES, words));
        if yes.max(courtesy) == 0 {
            return false;
        }
        has_yes |= yes > 0;
        words = &words[yes.max(courtesy)..];
    }
    has_yes
}

/// Like [`parse_consent`], for a batch that makes a plan: a request for a plan is a yes too, unless it is a question.
#[must_use]
pub(super) fn parse_plan_consent(message: &str) -> ExpertBatchConsentAnswer {
    match parse_consent(message) {
        ExpertBatchConsentAnswer::Unclear
            if plan_request::find_plan_request(message).is_some()
                && !message.contains(['?', '？'])
                && !has_retraction(&split_words(message)) =>
        {
            ExpertBatchConsentAnswer::Yes
        }
        consent => consent,
    }
}

/// Returns whether the word at `at` ends "why not", which is neither a question nor a refusal.
fn is_why_not(words: &[TextWord], at: usize) -> bool {
    at > 0 && words[at].text == "not" && words[at - 1].text == "why"
}

fn has_retraction(words: &[TextWord]) -> bool {
    let mut retractions =
        (0..words.len()).filter(|at| RETRACTION_PHRASES.iter().any(|phrase| starts_with_phrase(&words[*at..], phrase)));
    retractions.any(|at| !is_why_not(words, at))
}

/// Returns whether the whole message is a request to retry.
#[must_use]
pub(super) fn is_retry_request(message: &str) -> bool {
    let words = split_words(message);
    RETRY_PHRASES.iter().any(|phrase| is_exact_phrase(&words, phrase))
}

fn is_exact_phrase(words: &[TextWord], phrase: &str) -> bool {
    words.iter().map(|word| word.text.as_str()).eq(phrase.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_yes_is_recognised_in_many_forms() {
        for message in [
            "Yes, please!",
            "Yes, go ahead",
            "yes go ahead and ask them",
            "Sure, that would help a lot.",
            "Oui",
            "Ja, gerne!",
            "Sí, claro",
            "Да!",
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
            assert_eq!(parse_consent(message), ExpertBatchConsentAnswer::Yes, "{message}");
        }
    }

    #[test]
    fn retracted_or_questioning_yes_is_unclear() {
        for message in [
            "yes, but cheaper",
            "Definitely too expensive",
            "Sure sounds expensive to me",
            "Absolutely no way",
            "ok so what about the bank",
            "yes and a garden",
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
            assert_eq!(parse_consent(message), ExpertBatchConsentAnswer::Unclear, "{message}");
        }
    }

    #[test]
    fn request_for_the_offered_plan_is_a_yes() {
        assert_eq!(parse_plan_consent("Give me a plan!"), ExpertBatchConsentAnswer::Yes);
        assert_eq!(parse_plan_consent("What are the steps to register a company?"), ExpertBatchConsentAnswer::Unclear);
        assert_eq!(
            parse_plan_consent("Give me a plan, but tell me about banks first."),
            ExpertBatchConsentAnswer::Unclear
        );
        assert_eq!(parse_plan_consent("What would that take?"), ExpertBatchConsentAnswer::Unclear);
        assert_eq!(parse_plan_consent("No. Give me a plan some other day."), ExpertBatchConsentAnswer::No);
    }

    #[test]
    fn no_is_recognised() {
        for message in ["no", "No thanks", "nope, leave it", "Don't.", "not yet", "stop", "do not ask them"] {
            assert_eq!(parse_consent(message), ExpertBatchConsentAnswer::No, "{message}");
        }
    }

    #[test]
    fn only_a_whole_message_is_a_retry_request() {
        assert!(is_retry_request("Retry") && is_retry_request("try again!"));
        assert!(!is_retry_request("I'll try again tomorrow") && !is_retry_request(""));
    }
}
