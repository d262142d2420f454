//! Recognises fields in which a model only repeats the sample of a prompt. The samples are read from the prompts
//! themselves, so that the two cannot differ. Such a field says nothing about the user and counts as empty.

use crate::limits::PARTIAL_ECHO_WORDS_MIN;
use std::sync::LazyLock;

use segue_core::handover::HandoverFieldType;
use segue_core::signal::{self, SignalBlock};

use super::phrases::split_words;
use super::spec::{BATCH_BLOCK, EXECUTION_FIELDS, HANDOVER_BLOCK, INTENT_FIELDS, signal_block_names};

/// The prompts with samples of blocks.
const PROMPTS: [&str; 3] = [
    include_str!("../../prompts/concierge/handover_due.md"),
    include_str!("../../prompts/concierge/explorer.md"),
    include_str!("../../prompts/concierge/executing.md"),
];

/// The text fields of a BATCH block outside its handover.
const BATCH_TEXT_FIELDS: [&str; 4] = ["step", "blocker", "context", "prompt"];

/// Block, field and words of each sample value.
static SAMPLES: LazyLock<Vec<(String, String, Vec<String>)>> = LazyLock::new(|| {
    let blocks = PROMPTS.iter().flat_map(|prompt| signal::parse_reply(prompt, &signal_block_names(), &[""; 0]).blocks);
    blocks
        .flat_map(|block| {
            let values = field_values(&block);
            values.into_iter().map(move |(field, value)| (block.name.clone(), field, words(&value)))
        })
        .collect()
});

/// Returns true if `value` repeats the sample of this field, completely or in part, or only the name of the field.
pub(super) fn is_sample_echo(block: &str, field: &str, value: &str) -> bool {
    let value = words(value);
    if value.is_empty() {
        return false;
    }
    let is_name = value == words(field);
    is_name
        || SAMPLES.iter().filter(|(name, key, _)| name == block && key == field).any(|(_, _, sample)| {
            *sample == value || (value.len() >= PARTIAL_ECHO_WORDS_MIN && is_subsequence(&value, sample))
        })
}

/// Returns the sample of a field as it is in the prompts; empty if there is none.
pub(super) fn sample_text(block: &str, field: &str) -> String {
    let blocks = PROMPTS.iter().flat_map(|prompt| signal::parse_reply(prompt, &signal_block_names(), &[""; 0]).blocks);
    let mut values = blocks.filter(|known| known.name == block).flat_map(|known| field_values(&known));
    values.find(|(name, _)| name == field).map(|(_, value)| value).unwrap_or_default()
}

/// Returns the names of the fields of a block that repeat their sample.
pub(super) fn find_echoed_fields(block: &SignalBlock) -> Vec<String> {
    let mut fields: Vec<String> = field_values(block)
        .into_iter()
        .filter(|(field, value)| is_sample_echo(&block.name, field, value))
        .map(|(field, _)| field)
        .collect();
    fields.dedup();
    fields
}

/// Returns the fields of a block with their values; a list has one entry for each item.
fn field_values(block: &SignalBlock) -> Vec<(String, String)> {
    let (fields, wanted): (_, &[(&str, HandoverFieldType)]) = match block.name.as_str() {
        HANDOVER_BLOCK => (Some(&block.fields), &INTENT_FIELDS),
        BATCH_BLOCK => (block.fields.section("handover"), &EXECUTION_FIELDS),
        _ => (None, &[]),
    };
    let mut values = Vec::new();
    for (name, _) in wanted {
        let items = fields.map(|fields| (fields.text(name), fields.list(name)));
        match items {
            Some((Some(text), _)) => values.push(((*name).to_owned(), text.to_owned())),
            Some((None, items)) => values.extend(items.into_iter().map(|item| ((*name).to_owned(), item))),
            None => {}
        }
    }
    for name in BATCH_TEXT_FIELDS.iter().filter(|_| block.name == BATCH_BLOCK) {
        values.extend(block.fields.text(name).map(|text| ((*name).to_owned(), text.to_owned())));
    }
    values
}

fn words(text: &str) -> Vec<String> {
    split_words(text).into_iter().map(|word| word.text).collect()
}

/// Returns true if all words of `part` occur in `whole` in the same order.
fn is_subsequence(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|word| rest.any(|other| other == word))
}
