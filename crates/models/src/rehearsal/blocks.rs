//! Finds block templates in the instructions (`<<<NAME>>>`, keys, `<<<END>>>`), decides whether one is due now, and fills it
//! from the conversation. The text before a template decides: *next turn*, *when …*, *if …*, or no condition.

use super::parsed_prompt::{RehearsalPromptParts, content_words, have_same_stem};
use super::phrases::{self, BLOCK_CUES, INSTRUCTION_STOP_WORDS};
use super::rng::SeededRng;
use crate::limits::{
    BLOCK_KEY_BYTES_MAX, BLOCK_LEAD_BYTES_MAX, BLOCK_LEAD_BYTES_MIN, REHEARSAL_BLOCKS_LINE_CHARS_MAX,
    REHEARSAL_LIST_ITEM_CHARS_MAX, REHEARSAL_TEMPLATES_MAX,
};
use crate::text::shorten_to_line;

const BLOCK_OPEN: &str = "<<<";
const BLOCK_CLOSE: &str = ">>>";
const BLOCK_END: &str = "<<<END>>>";
/// The number of different phrasings before they repeat.
const WORDING_COUNT: usize = 3;

/// Returns the filled-in block that is due now, if any.
pub(super) fn compose_due_block(prompt: &RehearsalPromptParts, rng: &mut SeededRng) -> Option<String> {
    let templates = find_block_templates(&prompt.instructions);
    let asked_for = templates.iter().find(|template| is_block_requested(template, prompt.last_user_text()));
    let template = asked_for.or_else(|| templates.iter().find(|template| is_block_due(template, prompt)))?;
    Some(fill_block_template(template, prompt, rng))
}

/// A block template in the instructions.
#[derive(Debug, PartialEq, Eq)]
struct SignalBlockTemplate<'t> {
    name: &'t str,
    body: &'t str,
    /// The text before it, which says when to send it.
    lead: &'t str,
}

fn find_block_templates(text: &str) -> Vec<SignalBlockTemplate<'_>> {
    let mut found = Vec::new();
    let mut lead_from = 0;
    // Each marker is searched only up to the next one, so the text is scanned once.
    let starts: Vec<_> = text.match_indices(BLOCK_OPEN).map(|(at, _)| at).collect();
    for pair in starts.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let Some((name, body)) = text[start + BLOCK_OPEN.len()..end].split_once(BLOCK_CLOSE) else { continue };
        let is_complete = is_block_name(name) && text[end..].starts_with(BLOCK_END);
        if is_complete && body.lines().any(|line| SignalBlockTemplateLine::parse(line).key.is_some()) {
            found.push(SignalBlockTemplate { name, body, lead: lead_paragraphs(&text[lead_from..start]) });
            lead_from = end + BLOCK_END.len();
        }
        if found.len() == REHEARSAL_TEMPLATES_MAX {
            break;
        }
    }
    found
}

fn is_block_name(name: &str) -> bool {
    name != "END"
        && name.len() <= BLOCK_KEY_BYTES_MAX
        && name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Returns the last paragraph, or the last two if it is very short.
fn lead_paragraphs(before: &str) -> &str {
    let before = before.trim();
    let before = &before[before.ceil_char_boundary(before.len().saturating_sub(BLOCK_LEAD_BYTES_MAX))..];
    let last = before.rfind("\n\n").map_or(0, |at| at + 2);
    if before.len() - last >= BLOCK_LEAD_BYTES_MIN {
        return &before[last..];
    }
    let earlier = before[..last].trim_end().rfind("\n\n").map_or(0, |at| at + 2);
    &before[earlier..]
}

/// Returns whether the message names the block, as a request to send it again does.
fn is_block_requested(template: &SignalBlockTemplate<'_>, message: &str) -> bool {
    message.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|word| word == template.name)
}

fn is_block_due(template: &SignalBlockTemplate<'_>, prompt: &RehearsalPromptParts) -> bool {
    let lead = format!(" {} ", template.lead.to_lowercase());
    let lead_has = |phrases: &[&str]| phrases.iter().any(|phrase| lead.contains(phrase));
    let marker = format!("{BLOCK_OPEN}{}{BLOCK_CLOSE}", template.name);
    let was_sent = prompt.assistant_messages.iter().any(|text| text.contains(&marker));
    if lead_has(&["next turn", "second turn", "next response", "next reply"]) {
        return !was_sent && !prompt.assistant_messages.is_empty();
    }
    if lead_has(&["when ", "if ", "once ", "only "]) {
        return message_mentions_block(template, prompt.last_user_text());
    }
    if lead_has(&["every ", "each ", "always "]) {
        return true;
    }
    // Without a condition it is sent once, with one of the first two replies of a thread.
    !was_sent && prompt.assistant_messages.len() <= 1
}

/// Returns whether the message shares a word with the block's name, values or condition.
fn message_mentions_block(template: &SignalBlockTemplate<'_>, message: &str) -> bool {
    let mut cues: Vec<_> = content_words(template.lead).collect();
    cues.extend(content_words(template.name));
    for line in template.body.lines().map(SignalBlockTemplateLine::parse) {
        if line.key.is_some() && is_verbatim_block_value(line.value) {
            cues.extend(content_words(&line.value.replace('_', " ")));
        }
    }
    cues.retain(|cue| !INSTRUCTION_STOP_WORDS.contains(&cue.as_str()));
    let synonyms = BLOCK_CUES
        .iter()
        .filter(|(word, _)| cues.iter().any(|cue| have_same_stem(cue, word)))
        .flat_map(|(_, synonyms)| *synonyms);
    let synonyms: Vec<_> = synonyms.map(|word| (*word).to_owned()).collect();
    cues.extend(synonyms);
    content_words(message).any(|word| cues.iter().any(|cue| have_same_stem(cue, &word)))
}

/// A line of a template.
#[derive(Debug, PartialEq, Eq)]
struct SignalBlockTemplateLine<'t> {
    /// Indentation and list dash.
    indent: &'t str,
    key: Option<&'t str>,
    value: &'t str,
}

impl<'t> SignalBlockTemplateLine<'t> {
    fn parse(line: &'t str) -> Self {
        let content = line.trim_start().trim_start_matches("- ").trim_start();
        let start = &line[..line.len() - content.len()];
        let is_key = |key: &str| {
            !key.is_empty()
                && key.len() <= BLOCK_KEY_BYTES_MAX
                && key.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_- ".contains(&byte))
        };
        match content.split_once(':') {
            Some((key, value)) if is_key(key) => Self { indent: start, key: Some(key), value: value.trim() },
            _ => Self { indent: start, key: None, value: content.trim() },
        }
    }
}

/// Returns whether a value is sent unchanged, such as `WORKFLOW`: one word, not a description.
fn is_verbatim_block_value(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn fill_block_template(
    template: &SignalBlockTemplate<'_>,
    prompt: &RehearsalPromptParts,
    rng: &mut SeededRng,
) -> String {
    let mut out = format!("{BLOCK_OPEN}{}{BLOCK_CLOSE}\n", template.name);
    let mut key_above = template.name;
    for (index, template_line) in template.body.trim_matches('\n').lines().enumerate() {
        let index = index % WORDING_COUNT;
        let line = SignalBlockTemplateLine::parse(template_line);
        let value = match line.key {
            _ if line.value.is_empty() || line.value.chars().all(|letter| letter == '.' || letter == '…') => {
                String::new()
            }
            _ if is_verbatim_block_value(line.value) => line.value.to_owned(),
            key => fill_template_value(key.unwrap_or(key_above), line.value, index, prompt, rng),
        };
        key_above = line.key.unwrap_or(key_above);
        match line.key {
            Some(key) => out.push_str(format!("{}{key}: {value}", line.indent).trim_end()),
            None => out.push_str(format!("{}{value}", line.indent).trim_end()),
        }
        out.push('\n');
    }
    out + BLOCK_END
}

/// Returns a value for a description such as `{their question}`, `[list]` or `{explore|decide}`.
fn fill_template_value(
    key: &str,
    description: &str,
    index: usize,
    prompt: &RehearsalPromptParts,
    rng: &mut SeededRng,
) -> String {
    let is_bracketed = description.starts_with('[') && description.ends_with(']');
    let inner = description.trim_matches(|letter: char| "{}[]<>".contains(letter));
    if inner.contains('|') {
        let options: Vec<_> = inner.split('|').map(str::trim).filter(|option| !option.is_empty()).collect();
        let message_words: Vec<_> = content_words(prompt.last_user_text()).collect();
        let is_mentioned = |option: &&&str| content_words(option).any(|word| message_words.contains(&word));
        let random_option = options.get(rng.next_below(options.len())).copied().unwrap_or_default();
        return options.iter().find(is_mentioned).copied().unwrap_or(random_option).to_owned();
    }
    let key = key.to_lowercase();
    let lowercase = inner.to_lowercase();
    if lowercase.contains("null") || lowercase.contains("or none") {
        return "none".to_owned();
    }
    let keywords = prompt.keywords();
    let keyword = |n: usize| keywords.get(n % keywords.len().max(1)).cloned().unwrap_or_else(phrases::fallback_topic);
    if lowercase.contains("list") || is_bracketed && key.ends_with('s') && !key.ends_with("ss") {
        let items = (0..2).map(|n| {
            sanitize_block_line(&phrases::title_phrase(&keyword(n), index + n), REHEARSAL_LIST_ITEM_CHARS_MAX)
                .replace(',', "")
        });
        return format!("[{}]", items.collect::<Vec<_>>().join(", "));
    }
    let topic = Some(prompt.last_topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(phrases::fallback_topic);
    let has = |names: &[&str]| names.iter().any(|name| key.contains(name));
    let text = if has(&["query", "question", "original"]) {
        prompt.first_user_text().to_owned()
    } else if has(&["user_reply", "user_said", "message"]) {
        prompt.last_user_text().to_owned()
    } else if has(&["goal", "topic", "intent", "aim"]) {
        topic
    } else if has(&["title", "label", "step", "name"]) {
        phrases::title_phrase(&keyword(index), index)
    } else {
        phrases::filler_sentence(&topic, index)
    };
    sanitize_block_line(&text, REHEARSAL_BLOCKS_LINE_CHARS_MAX)
}

/// Shortens a text to one line without characters that could end a block or a list.
fn sanitize_block_line(text: &str, chars_max: usize) -> String {
    let safe: String = text.chars().filter(|letter| !"<>[]{}\"".contains(*letter)).collect();
    shorten_to_line(&safe, chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_found_with_the_text_before_them() {
        let text = "Look for <<<A>>>...<<<END>>> and <<<b>>>.\n\nRules.\n\nAfter your next turn, append this block:\n\n<<<HANDOVER>>>\n\
            goal: {what}\n<<<END>>>\n\nIf they are stuck:\n\n<<<BATCH>>>\nTYPE: STEP_HELP\n<<<END>>>\n<<<OPEN>>>\nkey: x";
        let found = find_block_templates(text);
        let names: Vec<_> = found.iter().map(|template| (template.name, template.lead)).collect();
        assert_eq!(names, [("HANDOVER", "After your next turn, append this block:"), ("BATCH", "If they are stuck:")]);
    }

    #[test]
    fn a_template_line_is_parsed() {
        assert_eq!(
            SignalBlockTemplateLine::parse("  goal: {x: y}"),
            SignalBlockTemplateLine { indent: "  ", key: Some("goal"), value: "{x: y}" }
        );
        assert_eq!(
            SignalBlockTemplateLine::parse("- title: a"),
            SignalBlockTemplateLine { indent: "- ", key: Some("title"), value: "a" }
        );
        assert_eq!(
            SignalBlockTemplateLine::parse("[A prompt: see below]"),
            SignalBlockTemplateLine { indent: "", key: None, value: "[A prompt: see below]" }
        );
        assert_eq!(SignalBlockTemplateLine::parse(""), SignalBlockTemplateLine { indent: "", key: None, value: "" });
    }
}
