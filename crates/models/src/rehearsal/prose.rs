//! Composes an answer in prose: picks up the subject, shows that earlier messages are at hand, asks something back.

use super::parsed_prompt::{ParsedPrompt, extract_topic};
use super::rng::SeededRng;
use super::{phrases, recall};
use crate::limits::{
    GREETING_WORDS_MAX, REHEARSAL_PROSE_QUOTE_CHARS_MAX, SUMMARY_ITEMS_MAX, TOOL_RESULT_QUOTE_CHARS_MAX,
};
use crate::model::CallMetadata;
use crate::text::shorten_to_line;

/// What to say, without the mark.
pub(super) fn compose_prose(prompt: &ParsedPrompt, call: &CallMetadata, rng: &mut SeededRng) -> String {
    if let Some(result) = prompt.tool_results.last() {
        return phrases::tool_result_phrase(&shorten_to_line(result, TOOL_RESULT_QUOTE_CHARS_MAX));
    }
    if prompt.last_user_text().trim().is_empty() {
        return phrases::empty_message_phrase();
    }
    if let Some(answer) = recall::answer_recall_question(prompt) {
        return answer;
    }
    if is_summary_call(call) {
        let said = prompt.earlier_user_texts().iter().map(String::as_str).chain([prompt.last_user_text()]);
        let newest: Vec<_> = said.rev().take(SUMMARY_ITEMS_MAX).map(extract_topic).collect();
        return phrases::summary_phrase(&newest.into_iter().rev().collect::<Vec<_>>());
    }
    if is_greeting_text(prompt.last_user_text()) {
        return phrases::greeting_phrase(rng);
    }
    compose_default_prose(prompt, rng)
}

fn compose_default_prose(prompt: &ParsedPrompt, rng: &mut SeededRng) -> String {
    let topic = Some(prompt.last_topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(phrases::fallback_topic);
    let keywords = prompt.keywords();
    let keyword = |dice: &mut SeededRng| {
        let choices = keywords.len().min(4);
        keywords.get(dice.next_below(choices)).cloned().unwrap_or_else(phrases::fallback_topic)
    };
    let is_question = prompt.last_user_text().trim_end().ends_with('?');
    let mut sentences =
        vec![phrases::opening_phrase(is_question, &topic, rng), phrases::body_phrase(&keyword(rng), rng)];
    if let Some(previous) = prompt.previous_user_text() {
        let quote = |text: &str| shorten_to_line(text, REHEARSAL_PROSE_QUOTE_CHARS_MAX);
        sentences.push(phrases::earlier_message_phrase(
            prompt.user_message_count(),
            &quote(prompt.first_user_text()),
            &quote(previous),
            rng,
        ));
    }
    sentences.push(phrases::closing_phrase(&keyword(rng), rng));
    sentences.join(" ")
}

fn is_greeting_text(text: &str) -> bool {
    let mut count = 0;
    let all = text.split_whitespace().all(|word| {
        count += 1;
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
        word.is_empty() || phrases::GREETING_WORDS.contains(&word.as_str())
    });
    all && count <= GREETING_WORDS_MAX
}

fn is_summary_call(call: &CallMetadata) -> bool {
    let names = [call.ask.as_str().to_lowercase(), call.role.as_str().to_lowercase()];
    names.iter().any(|name| phrases::SUMMARY_NAME_STEMS.iter().any(|stem| name.contains(stem)))
}
