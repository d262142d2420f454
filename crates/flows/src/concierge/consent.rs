//! What a user's short answer means to a question of the flow's own: whether to ask everyone, whether to try again. It
//! reads only whole messages, and only where the flow has just asked; anything else is simply what the user says.

use super::words::words;

/// Messages that say yes.
const YES: [&str; 16] = [
    "yes",
    "y",
    "yep",
    "yeah",
    "yes please",
    "ok",
    "okay",
    "sure",
    "go",
    "go ahead",
    "do it",
    "please do",
    "ask them",
    "confirm",
    "confirmed",
    "please",
];

/// Messages that ask for the same once more.
const AGAIN: [&str; 8] =
    ["retry", "try again", "again", "once more", "try once more", "please retry", "please try again", "try that again"];

/// Whether the message says yes and nothing else.
#[must_use]
pub fn is_yes(message: &str) -> bool {
    is_one_of(message, &YES)
}

/// Whether the message asks for the same once more and nothing else.
#[must_use]
pub fn is_retry(message: &str) -> bool {
    is_one_of(message, &AGAIN)
}

fn is_one_of(message: &str, phrases: &[&str]) -> bool {
    let said: Vec<String> = words(message).into_iter().map(|word| word.text).collect();
    phrases.iter().any(|phrase| said.iter().map(String::as_str).eq(phrase.split(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_message_counts() {
        assert!(is_yes("Yes, please!") && is_yes("go ahead") && is_yes(" OK. "));
        assert!(!is_yes("yes, but cheaper") && !is_yes("") && !is_yes("no"));
        assert!(is_retry("Retry") && is_retry("try again!"));
        assert!(!is_retry("I'll try again tomorrow") && !is_retry(""));
    }
}
