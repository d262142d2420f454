//! Composes an answer in prose: picks up the subject, shows that earlier messages are at hand, asks something back.

use super::dice::Dice;
use super::reading::{Reading, topic_of};
use super::{recall, words};
use crate::limits::{GREETING_WORDS_MAX, REHEARSAL_PROSE_QUOTE_CHARS_MAX, RESULT_CHARS_MAX, SUMMARY_ITEMS_MAX};
use crate::model::CallFacts;
use crate::text::shorten;

/// What to say, without the mark.
pub(super) fn compose(reading: &Reading, call: &CallFacts, dice: &mut Dice) -> String {
    if let Some(result) = reading.results.last() {
        return words::after_tool(&shorten(result, RESULT_CHARS_MAX));
    }
    if reading.last().trim().is_empty() {
        return words::nothing_said();
    }
    if let Some(answer) = recall::answer(reading) {
        return answer;
    }
    if is_summary(call) {
        let said = reading.earlier().iter().map(String::as_str).chain([reading.last()]);
        let newest: Vec<_> = said.rev().take(SUMMARY_ITEMS_MAX).map(topic_of).collect();
        return words::summary(&newest.into_iter().rev().collect::<Vec<_>>());
    }
    if is_greeting(reading.last()) {
        return words::greeting(dice);
    }
    ordinary(reading, dice)
}

fn ordinary(reading: &Reading, dice: &mut Dice) -> String {
    let topic = Some(reading.topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(words::no_topic);
    let keywords = reading.keywords();
    let keyword = |dice: &mut Dice| {
        let choices = keywords.len().min(4);
        keywords.get(dice.roll(choices)).cloned().unwrap_or_else(words::no_topic)
    };
    let is_question = reading.last().trim_end().ends_with('?');
    let mut sentences = vec![words::opening(is_question, &topic, dice), words::body(&keyword(dice), dice)];
    if let Some(previous) = reading.previous() {
        let quote = |text: &str| shorten(text, REHEARSAL_PROSE_QUOTE_CHARS_MAX);
        sentences.push(words::memory(reading.said_count(), &quote(reading.first()), &quote(previous), dice));
    }
    sentences.push(words::closing(&keyword(dice), dice));
    sentences.join(" ")
}

fn is_greeting(text: &str) -> bool {
    let mut count = 0;
    let all = text.split_whitespace().all(|word| {
        count += 1;
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
        word.is_empty() || words::GREETINGS.contains(&word.as_str())
    });
    all && count <= GREETING_WORDS_MAX
}

fn is_summary(call: &CallFacts) -> bool {
    let names = [call.ask.as_str().to_lowercase(), call.role.as_str().to_lowercase()];
    names.iter().any(|name| words::SUMMARY_STEMS.iter().any(|stem| name.contains(stem)))
}
