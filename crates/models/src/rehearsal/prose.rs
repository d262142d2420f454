//! Composes prose: says that it is a demo, repeats the message, shows that earlier messages are remembered, and says how to
//! get a real answer.

use super::parsed_prompt::{RehearsalPromptParts, extract_topic};
use super::rng::SeededRng;
use super::{phrases, recall};
use crate::limits::{
    GREETING_WORDS_MAX, REHEARSAL_PROSE_QUOTE_CHARS_MAX, SUMMARY_ITEMS_MAX, TOOL_RESULT_QUOTE_CHARS_MAX,
};
use crate::model::ModelCallOrigin;
use crate::text::shorten_to_line;

/// Composes the reply to the last message, without the mark.
pub(super) fn compose_prose(prompt: &RehearsalPromptParts, call: &ModelCallOrigin, rng: &mut SeededRng) -> String {
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
        let texts = prompt.earlier_user_texts().iter().map(String::as_str).chain([prompt.last_user_text()]);
        let newest: Vec<_> = texts.rev().take(SUMMARY_ITEMS_MAX).map(extract_topic).collect();
        return phrases::summary_phrase(&newest.into_iter().rev().collect::<Vec<_>>());
    }
    if is_greeting_text(prompt.last_user_text()) {
        return phrases::greeting_phrase(rng);
    }
    compose_default_prose(prompt, rng)
}

fn compose_default_prose(prompt: &RehearsalPromptParts, rng: &mut SeededRng) -> String {
    let quote = |text: &str| shorten_to_line(text, REHEARSAL_PROSE_QUOTE_CHARS_MAX);
    let is_question = prompt.last_user_text().trim_end().ends_with('?');
    let mut sentences =
        vec![phrases::demo_notice_phrase(rng), phrases::echo_phrase(is_question, &quote(prompt.last_user_text()))];
    if let Some(previous) = prompt.previous_user_text() {
        sentences.push(phrases::earlier_message_phrase(
            prompt.user_message_count(),
            &quote(prompt.first_user_text()),
            &quote(previous),
            rng,
        ));
    }
    sentences.push(phrases::real_model_phrase(rng));
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

fn is_summary_call(call: &ModelCallOrigin) -> bool {
    let names = [call.ask.as_str().to_lowercase(), call.role.as_str().to_lowercase()];
    names.iter().any(|name| phrases::SUMMARY_NAME_STEMS.iter().any(|stem| name.contains(stem)))
}
