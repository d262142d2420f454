//! All texts of the rehearsal model, and the word lists it uses to read prompts. Its replies say openly that they come from
//! the built-in demo model.

use super::rng::SeededRng;

/// Marks prose of the rehearsal model, at its end.
pub const REHEARSAL_MARK: &str = "(rehearsal)";

/// The name of the rehearsal model where models are listed.
pub(super) const REHEARSAL_LABEL: &str = "rehearsal (built-in demo model)";

/// Words that are never a topic.
#[rustfmt::skip]
pub(super) const STOP_WORDS: &[&str] = &[
    "about", "above", "actually", "after", "again", "all", "also", "always", "and", "any", "anything", "are",
    "around", "ask", "back", "because", "been", "before", "being", "between", "both", "but", "can", "can't",
    "cannot", "could", "did", "didn't", "does", "doesn't", "doing", "don't", "each", "else", "even", "evening",
    "ever", "every", "far", "fine", "for", "from", "get", "give", "going", "good", "got", "great", "had", "has",
    "have", "hello", "hence", "her", "here", "hey", "him", "his", "how", "i'd", "i'll", "i'm", "i've", "into",
    "isn't", "it's", "its", "just", "kind", "know", "let", "let's", "like", "long", "look", "made", "make", "many",
    "may", "maybe", "might", "more", "morning", "most", "much", "must", "name", "need", "never", "nice", "nor",
    "not", "now", "off", "okay", "once", "one", "only", "other", "our", "out", "over", "own", "please", "put",
    "quite", "really", "same", "say", "see", "shall", "she", "should", "since", "some", "something", "still",
    "such", "sure", "take", "takes", "talk", "talked", "tell", "than", "thank", "thanks", "that", "that's", "the",
    "their", "them", "then", "there", "these", "they", "thing", "things", "think", "this", "those", "through",
    "too", "try", "two", "under", "until", "use", "used", "very", "want", "was", "way", "well", "were", "what",
    "what's", "when", "where", "which", "while", "who", "why", "will", "with", "without", "won't", "would", "yes",
    "yet", "you", "your",
];

/// Words in the instructions around a block that say nothing about when to send it.
#[rustfmt::skip]
pub(super) const INSTRUCTION_STOP_WORDS: &[&str] = &[
    "answer", "append", "benefit", "block", "complex", "current", "emit", "ends", "exactly", "following", "format",
    "genuinely", "message", "multiple", "next", "output", "ready", "reply", "respond", "response", "send", "signal",
    "they're", "trigger", "turn", "type", "use", "user", "write",
];

/// Words in block names, each with the words a user may say instead.
pub(super) const BLOCK_CUES: &[(&str, &[&str])] = &[
    ("workflow", &["plan", "steps", "ready", "start", "begin", "roadmap"]),
    ("help", &["stuck", "blocked", "blocker"]),
    ("blocker", &["stuck", "blocked", "help"]),
    ("complete", &["done", "finished"]),
    ("done", &["complete", "completed", "finished"]),
];

/// A message of only these words is a greeting.
pub(super) const GREETING_WORDS: &[&str] =
    &["hello", "hi", "hey", "good", "morning", "evening", "afternoon", "day", "there", "hallo", "hola"];

/// Parts of the names of asks and roles that summarise.
pub(super) const SUMMARY_NAME_STEMS: &[&str] = &["summar", "compact", "compress", "narrat", "digest"];

/// Replaces block markers in quoted text, so that they do not become part of a real block.
pub(super) fn escape_block_markers(text: &str) -> String {
    text.replace("<<<", "‹‹‹").replace(">>>", "›››")
}

pub(super) fn greeting_phrase(rng: &mut SeededRng) -> String {
    rng.choose([
        "Hello! I am the built-in demo model. My replies are canned, so that you can try a conversation without an API key. Tell me something, such as your name, and ask me about it later.",
        "Hi! This is a demo without a real model. Try “My name is Ada.” and then “What is my name?” to see that the conversation is remembered. With an API key, a real model would reply here.",
    ])
    .to_owned()
}

pub(super) fn empty_message_phrase() -> String {
    "Your message was empty. This is the built-in demo model: write something to see how it replies.".to_owned()
}

/// Says that the reply is not a real answer.
pub(super) fn demo_notice_phrase(rng: &mut SeededRng) -> String {
    rng.choose([
        "This is the built-in demo model, so this is not a real answer.",
        "This is a demo reply, because no real model is connected.",
        "You are talking to the built-in demo model, which only gives canned replies.",
    ])
    .to_owned()
}

pub(super) fn echo_phrase(is_question: bool, message: &str) -> String {
    let verb = if is_question { "asked" } else { "wrote" };
    format!("You {verb}: “{message}”.")
}

/// Shows that earlier messages are remembered.
pub(super) fn earlier_message_phrase(count: usize, first: &str, previous: &str, rng: &mut SeededRng) -> String {
    let choices = [
        format!("It is your message number {count}; the first one was “{first}”."),
        format!("Before that you wrote “{previous}”."),
    ];
    choices[rng.next_below(choices.len())].clone()
}

/// Says how to get a real answer.
pub(super) fn real_model_phrase(rng: &mut SeededRng) -> String {
    rng.choose([
        "With an API key, a real model would reply here.",
        "Set an API key, and a real model will answer instead.",
        "A real model would answer here; it needs an API key.",
    ])
    .to_owned()
}

pub(super) fn tool_result_phrase(result: &str) -> String {
    if result.is_empty() {
        return "The tool returned nothing.".to_owned();
    }
    format!("The tool returned: “{result}”. A real model would use this to answer you.")
}

pub(super) fn summary_phrase(topics: &[String]) -> String {
    if topics.is_empty() {
        return "The user has not written anything yet.".to_owned();
    }
    let list: Vec<_> = topics.iter().map(|topic| format!("“{topic}”")).collect();
    format!("So far the user wrote about {}.", list.join(", then "))
}

pub(super) fn first_message_phrase(text: &str) -> String {
    format!("Your first message was: “{text}”.")
}

pub(super) fn previous_message_phrase(text: &str) -> String {
    format!("Just before this you wrote: “{text}”.")
}

pub(super) fn no_earlier_message_phrase() -> String {
    "This is the first message of yours that I can see, so there is nothing earlier to remember.".to_owned()
}

pub(super) fn message_count_phrase(count: usize) -> String {
    format!("I can see {count} of your messages, including this one.")
}

pub(super) fn message_list_phrase(messages: &[String]) -> String {
    let list: Vec<_> = messages.iter().enumerate().map(|(index, text)| format!("{}. “{text}”", index + 1)).collect();
    format!("This is what you wrote, as far as I can see:\n{}", list.join("\n"))
}

pub(super) fn user_fact_phrase(what: &str, value: &str) -> String {
    format!("Your {what} is {value}; you told me earlier.")
}

pub(super) fn other_fact_phrase(what: &str, value: &str) -> String {
    format!("The {what} is {value}; you told me earlier.")
}

pub(super) fn mention_phrase(what: &str, text: &str) -> String {
    format!("About {what} you wrote: “{text}”.")
}

pub(super) fn unknown_fact_phrase(what: &str) -> String {
    format!("I find nothing about your {what} in the messages I can see.")
}

pub(super) fn no_mention_phrase(what: &str) -> String {
    format!("I find nothing about {what} in the messages I can see.")
}

/// Replaces the topic of a message that has none.
pub(super) fn fallback_topic() -> String {
    "this topic".to_owned()
}

pub(super) fn reason_phrase(topic: &str) -> String {
    format!("the last message is about {topic}")
}

pub(super) fn question_phrase(keyword: &str) -> String {
    format!("What matters most about {keyword}?")
}

/// Returns the `index`-th of several titles about a keyword.
pub(super) fn title_phrase(keyword: &str, index: usize) -> String {
    const FORMS: [(&str, &str); 4] =
        [("Start with ", ""), ("Check the cost of ", ""), ("Try ", " on a small scale"), ("Review ", "")];
    let (before, after) = FORMS[index % FORMS.len()];
    number_repeated_text(format!("{before}{keyword}{after}"), index, FORMS.len())
}

/// Returns the `index`-th of several sentences about a topic.
pub(super) fn filler_sentence(topic: &str, index: usize) -> String {
    const FORMS: [(&str, &str); 4] = [
        ("Demo text about ", "."),
        ("A real model would say more about ", "."),
        ("The cost of ", " is not known yet."),
        ("It depends on how soon ", " is needed."),
    ];
    let (before, after) = FORMS[index % FORMS.len()];
    number_repeated_text(format!("{before}{topic}{after}"), index, FORMS.len())
}

fn number_repeated_text(text: String, index: usize, forms: usize) -> String {
    if index < forms { text } else { format!("{text} ({})", index + 1) }
}
