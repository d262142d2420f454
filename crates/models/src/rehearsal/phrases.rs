//! Every word the stand-in says, and the lists of words it goes by. It speaks of itself as a stand-in, and leaves out words
//! that flows tell their speakers to avoid.

use super::rng::SeededRng;

/// What prose for a user ends with.
pub const REHEARSAL_MARK: &str = "(rehearsal)";

/// What the stand-in is called where models are listed.
pub(super) const REHEARSAL_LABEL: &str = "rehearsal stand-in (no network, no key)";

/// Words that say nothing about a subject.
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

/// Words in the instructions around a block that say nothing about when it is due.
#[rustfmt::skip]
pub(super) const INSTRUCTION_STOP_WORDS: &[&str] = &[
    "answer", "append", "benefit", "block", "complex", "current", "emit", "ends", "exactly", "following", "format",
    "genuinely", "message", "multiple", "next", "output", "ready", "reply", "respond", "response", "send", "signal",
    "they're", "trigger", "turn", "type", "use", "user", "write",
];

/// What people say when they mean what a block is named for: the block's word, and theirs.
pub(super) const BLOCK_CUES: &[(&str, &[&str])] = &[
    ("workflow", &["plan", "steps", "ready", "start", "begin", "roadmap"]),
    ("help", &["stuck", "blocked", "blocker"]),
    ("blocker", &["stuck", "blocked", "help"]),
    ("complete", &["done", "finished"]),
    ("done", &["complete", "completed", "finished"]),
];

/// Messages that are only a greeting.
pub(super) const GREETING_WORDS: &[&str] =
    &["hello", "hi", "hey", "good", "morning", "evening", "afternoon", "day", "there", "hallo", "hola"];

/// Asks and roles whose business is to make things shorter.
pub(super) const SUMMARY_NAME_STEMS: &[&str] = &["summar", "compact", "compress", "narrat", "digest"];

/// Makes quoted words harmless: what the user typed must not come out as a marker of ours.
pub(super) fn escape_block_markers(text: &str) -> String {
    text.replace("<<<", "‹‹‹").replace(">>>", "›››")
}

pub(super) fn greeting_phrase(rng: &mut SeededRng) -> String {
    rng.choose([
        "Hello. I am a stand-in, here so that you can try the conversation before a key is set up. Say anything; I will pick up your words and play my part.",
        "Good to meet you. Nobody real is behind this voice yet: I only rehearse the part. What would you like to talk about?",
    ])
    .to_owned()
}

pub(super) fn empty_message_phrase() -> String {
    "I was sent no words to answer. I am a stand-in, but even I need a cue: say something?".to_owned()
}

pub(super) fn opening_phrase(is_question: bool, topic: &str, rng: &mut SeededRng) -> String {
    let choices = if is_question {
        [
            format!(
                "You ask about “{topic}”. I am only standing in, so take this as the outline of an answer and not as advice."
            ),
            format!("“{topic}”: a fair question. In rehearsal I can mark where the answer goes, not give it."),
            format!("On “{topic}” a considered answer would stand here; I am holding its place."),
        ]
    } else {
        [
            format!("I have taken in “{topic}”. I am only standing in, so I can play the part but not do the work."),
            format!("“{topic}”: noted. In rehearsal this is where the real work would begin."),
            format!("So it is about “{topic}”. I am a stand-in and will keep the place warm."),
        ]
    };
    choices[rng.next_below(choices.len())].clone()
}

pub(super) fn body_phrase(keyword: &str, rng: &mut SeededRng) -> String {
    let choices = [
        format!(
            "The real thing would weigh what speaks for “{keyword}” against what it costs, and name what to settle first."
        ),
        format!(
            "The real thing would start from “{keyword}”, say what depends on it, and end with something to do today."
        ),
        format!("The real thing would look at “{keyword}” from two sides and say plainly where they part."),
    ];
    choices[rng.next_below(choices.len())].clone()
}

/// Shows that earlier messages are at hand.
pub(super) fn earlier_message_phrase(count: usize, first: &str, previous: &str, rng: &mut SeededRng) -> String {
    let choices = [
        format!("This is message {count} of yours that I can see; it began with “{first}”."),
        format!("Just before, you said “{previous}”; I still have it in front of me."),
    ];
    choices[rng.next_below(choices.len())].clone()
}

pub(super) fn closing_phrase(keyword: &str, rng: &mut SeededRng) -> String {
    let choices = [
        format!("What matters most to you about “{keyword}”?"),
        format!("Shall we take “{keyword}” first?"),
        "What would a good outcome look like?".to_owned(),
        format!("Is there a limit I should know of, for “{keyword}”?"),
    ];
    choices[rng.next_below(choices.len())].clone()
}

pub(super) fn tool_result_phrase(result: &str) -> String {
    if result.is_empty() {
        return "The tool came back with nothing to show.".to_owned();
    }
    format!("The tool came back with this: “{result}”. I leave it to the real thing to make sense of it.")
}

pub(super) fn summary_phrase(said: &[String]) -> String {
    if said.is_empty() {
        return "Nothing has been said yet.".to_owned();
    }
    let list: Vec<_> = said.iter().map(|text| format!("“{text}”")).collect();
    format!("So far the user spoke of {}.", list.join(", then "))
}

pub(super) fn first_message_phrase(text: &str) -> String {
    format!("The first thing you said, as far as I was shown, is: “{text}”.")
}

pub(super) fn previous_message_phrase(text: &str) -> String {
    format!("Just before this you said: “{text}”.")
}

pub(super) fn no_earlier_message_phrase() -> String {
    "This is the first message of yours that I was shown, so there is nothing before it that I could remember."
        .to_owned()
}

pub(super) fn message_count_phrase(count: usize) -> String {
    format!("I can see {count} of your messages, this one included.")
}

pub(super) fn message_list_phrase(said: &[String]) -> String {
    let list: Vec<_> = said.iter().enumerate().map(|(index, text)| format!("{}. “{text}”", index + 1)).collect();
    format!("This is what you told me, as far as I was shown:\n{}", list.join("\n"))
}

pub(super) fn user_fact_phrase(what: &str, value: &str) -> String {
    format!("You told me: your {what} is {value}.")
}

pub(super) fn other_fact_phrase(what: &str, value: &str) -> String {
    format!("You told me: the {what} is {value}.")
}

pub(super) fn mention_phrase(what: &str, text: &str) -> String {
    format!("About {what} you said: “{text}”.")
}

pub(super) fn unknown_fact_phrase(what: &str) -> String {
    format!("I find nothing about your {what} in what I was shown of this conversation.")
}

pub(super) fn no_mention_phrase(what: &str) -> String {
    format!("I find nothing about {what} in what I was shown of this conversation.")
}

/// What stands in for a subject where there is none.
pub(super) fn fallback_topic() -> String {
    "the matter at hand".to_owned()
}

pub(super) fn reason_phrase(topic: &str) -> String {
    format!("the last message is about {topic}")
}

pub(super) fn question_phrase(keyword: &str) -> String {
    format!("What matters most about {keyword}?")
}

/// The `index`-th of several short names for things to do with a subject.
pub(super) fn title_phrase(keyword: &str, index: usize) -> String {
    const FORMS: [(&str, &str); 4] =
        [("Settle ", " first"), ("Weigh the cost of ", ""), ("Try ", " on a small scale"), ("Look again at ", "")];
    let (before, after) = FORMS[index % FORMS.len()];
    number_repeated_text(format!("{before}{keyword}{after}"), index, FORMS.len())
}

/// The `index`-th of several sentences about a subject.
pub(super) fn filler_sentence(topic: &str, index: usize) -> String {
    const FORMS: [(&str, &str); 4] = [
        ("A placeholder for what would be said about ", "."),
        ("Where ", " is concerned, the first step decides the rest."),
        ("The price of ", " is not known yet."),
        ("Much depends on how soon ", " is needed."),
    ];
    let (before, after) = FORMS[index % FORMS.len()];
    number_repeated_text(format!("{before}{topic}{after}"), index, FORMS.len())
}

fn number_repeated_text(text: String, index: usize, forms: usize) -> String {
    if index < forms { text } else { format!("{text} ({})", index + 1) }
}
