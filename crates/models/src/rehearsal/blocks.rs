//! Finds the blocks its instructions teach (`<<<NAME>>>`, keys, `<<<END>>>`), decides whether one is due now, and fills it from
//! the conversation. It goes by what stands before the template: *next turn*, *when …*, *if …*, or nothing of the kind.

use super::dice::Dice;
use super::reading::{Reading, alike, telling_words};
use super::words::{self, CUES, INSTRUCTION_WORDS};
use crate::limits::REHEARSAL_TEMPLATES_MAX;
use crate::limits::{ITEM_CHARS_MAX, KEY_BYTES_MAX, LEAD_BYTES_MAX, LEAD_BYTES_MIN, REHEARSAL_BLOCKS_LINE_CHARS_MAX};
use crate::text::shorten;

const OPEN: &str = "<<<";
const CLOSE: &str = ">>>";
const END: &str = "<<<END>>>";
/// Different wordings in a row; after these they begin again.
const FORMS: usize = 3;

/// The block to send now, filled in, if any is due.
pub(super) fn due(reading: &Reading, dice: &mut Dice) -> Option<String> {
    let templates = templates(&reading.instructions);
    let asked_for = templates.iter().find(|template| is_asked_for(template, reading.last()));
    let template = asked_for.or_else(|| templates.iter().find(|template| is_due(template, reading)))?;
    Some(fill(template, reading, dice))
}

/// A block as the instructions show it.
#[derive(Debug, PartialEq, Eq)]
struct Template<'t> {
    name: &'t str,
    body: &'t str,
    /// What stands before it and says when it is wanted.
    lead: &'t str,
}

fn templates(text: &str) -> Vec<Template<'_>> {
    let mut found = Vec::new();
    let mut lead_from = 0;
    // Every marker ends where the next begins, so the text is walked once.
    let starts: Vec<_> = text.match_indices(OPEN).map(|(at, _)| at).collect();
    for pair in starts.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let Some((name, body)) = text[start + OPEN.len()..end].split_once(CLOSE) else { continue };
        let is_whole = is_name(name) && text[end..].starts_with(END);
        if is_whole && body.lines().any(|line| Line::of(line).key.is_some()) {
            found.push(Template { name, body, lead: lead(&text[lead_from..start]) });
            lead_from = end + END.len();
        }
        if found.len() == REHEARSAL_TEMPLATES_MAX {
            break;
        }
    }
    found
}

fn is_name(name: &str) -> bool {
    name != "END"
        && name.len() <= KEY_BYTES_MAX
        && name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The last paragraph, or the last two if it is very short.
fn lead(before: &str) -> &str {
    let before = before.trim();
    let before = &before[before.ceil_char_boundary(before.len().saturating_sub(LEAD_BYTES_MAX))..];
    let last = before.rfind("\n\n").map_or(0, |at| at + 2);
    if before.len() - last >= LEAD_BYTES_MIN {
        return &before[last..];
    }
    let earlier = before[..last].trim_end().rfind("\n\n").map_or(0, |at| at + 2);
    &before[earlier..]
}

/// Whether the last message names the block, as a request to send it again would.
fn is_asked_for(template: &Template<'_>, message: &str) -> bool {
    message.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|word| word == template.name)
}

fn is_due(template: &Template<'_>, reading: &Reading) -> bool {
    let lead = format!(" {} ", template.lead.to_lowercase());
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| lead.contains(phrase));
    let marker = format!("{OPEN}{}{CLOSE}", template.name);
    let was_sent = reading.own.iter().any(|text| text.contains(&marker));
    if says(&["next turn", "second turn", "next response", "next reply"]) {
        return !was_sent && !reading.own.is_empty();
    }
    if says(&["when ", "if ", "once ", "only "]) {
        return is_cued(template, reading.last());
    }
    if says(&["every ", "each ", "always "]) {
        return true;
    }
    // Without a condition it belongs to the first answers of a thread, once.
    !was_sent && reading.own.len() <= 1
}

/// Whether the message has a word in common with what the block is for.
fn is_cued(template: &Template<'_>, message: &str) -> bool {
    let mut cues: Vec<_> = telling_words(template.lead).collect();
    cues.extend(telling_words(template.name));
    for line in template.body.lines().map(Line::of) {
        if line.key.is_some() && is_literal(line.value) {
            cues.extend(telling_words(&line.value.replace('_', " ")));
        }
    }
    cues.retain(|cue| !INSTRUCTION_WORDS.contains(&cue.as_str()));
    let meant = CUES.iter().filter(|(word, _)| cues.iter().any(|cue| alike(cue, word))).flat_map(|(_, meant)| *meant);
    let meant: Vec<_> = meant.map(|word| (*word).to_owned()).collect();
    cues.extend(meant);
    telling_words(message).any(|word| cues.iter().any(|cue| alike(cue, &word)))
}

/// A line of a template.
#[derive(Debug, PartialEq, Eq)]
struct Line<'t> {
    /// Indentation and dash.
    start: &'t str,
    key: Option<&'t str>,
    value: &'t str,
}

impl<'t> Line<'t> {
    fn of(line: &'t str) -> Self {
        let content = line.trim_start().trim_start_matches("- ").trim_start();
        let start = &line[..line.len() - content.len()];
        let is_key = |key: &str| {
            !key.is_empty()
                && key.len() <= KEY_BYTES_MAX
                && key.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_- ".contains(&byte))
        };
        match content.split_once(':') {
            Some((key, value)) if is_key(key) => Self { start, key: Some(key), value: value.trim() },
            _ => Self { start, key: None, value: content.trim() },
        }
    }
}

/// A value to be sent as it stands, such as `WORKFLOW`: one word, not a description of what goes there.
fn is_literal(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn fill(template: &Template<'_>, reading: &Reading, dice: &mut Dice) -> String {
    let mut out = format!("{OPEN}{}{CLOSE}\n", template.name);
    let mut key_above = template.name;
    for (index, written) in template.body.trim_matches('\n').lines().enumerate() {
        let index = index % FORMS;
        let line = Line::of(written);
        let value = match line.key {
            _ if line.value.is_empty() || line.value.chars().all(|letter| letter == '.' || letter == '…') => {
                String::new()
            }
            _ if is_literal(line.value) => line.value.to_owned(),
            key => filled(key.unwrap_or(key_above), line.value, index, reading, dice),
        };
        key_above = line.key.unwrap_or(key_above);
        match line.key {
            Some(key) => out.push_str(format!("{}{key}: {value}", line.start).trim_end()),
            None => out.push_str(format!("{}{value}", line.start).trim_end()),
        }
        out.push('\n');
    }
    out + END
}

/// What goes in place of a description such as `{their question}`, `[list]` or `{explore|decide}`.
fn filled(key: &str, description: &str, index: usize, reading: &Reading, dice: &mut Dice) -> String {
    let is_bracketed = description.starts_with('[') && description.ends_with(']');
    let inner = description.trim_matches(|letter: char| "{}[]<>".contains(letter));
    if inner.contains('|') {
        let options: Vec<_> = inner.split('|').map(str::trim).filter(|option| !option.is_empty()).collect();
        let spoken: Vec<_> = telling_words(reading.last()).collect();
        let is_spoken = |option: &&&str| telling_words(option).any(|word| spoken.contains(&word));
        let rolled = options.get(dice.roll(options.len())).copied().unwrap_or_default();
        return options.iter().find(is_spoken).copied().unwrap_or(rolled).to_owned();
    }
    let key = key.to_lowercase();
    let low = inner.to_lowercase();
    if low.contains("null") || low.contains("or none") {
        return "none".to_owned();
    }
    let keywords = reading.keywords();
    let keyword = |n: usize| keywords.get(n % keywords.len().max(1)).cloned().unwrap_or_else(words::no_topic);
    if low.contains("list") || is_bracketed && key.ends_with('s') && !key.ends_with("ss") {
        let items = (0..2).map(|n| plain(&words::title(&keyword(n), index + n), ITEM_CHARS_MAX).replace(',', ""));
        return format!("[{}]", items.collect::<Vec<_>>().join(", "));
    }
    let topic = Some(reading.topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(words::no_topic);
    let has = |names: &[&str]| names.iter().any(|name| key.contains(name));
    let text = if has(&["query", "question", "original"]) {
        reading.first().to_owned()
    } else if has(&["user_reply", "user_said", "message"]) {
        reading.last().to_owned()
    } else if has(&["goal", "topic", "intent", "aim"]) {
        topic
    } else if has(&["title", "label", "step", "name"]) {
        words::title(&keyword(index), index)
    } else {
        words::sentence(&topic, index)
    };
    plain(&text, REHEARSAL_BLOCKS_LINE_CHARS_MAX)
}

/// On one line, and without anything that could be taken for a marker or a list.
fn plain(text: &str, chars_max: usize) -> String {
    let harmless: String = text.chars().filter(|letter| !"<>[]{}\"".contains(*letter)).collect();
    shorten(&harmless, chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_found_with_what_leads_to_them() {
        let text = "Look for <<<A>>>...<<<END>>> and <<<b>>>.\n\nRules.\n\nAfter your next turn, append this block:\n\n<<<HANDOVER>>>\n\
            goal: {what}\n<<<END>>>\n\nIf they are stuck:\n\n<<<BATCH>>>\nTYPE: STEP_HELP\n<<<END>>>\n<<<OPEN>>>\nkey: x";
        let found = templates(text);
        let names: Vec<_> = found.iter().map(|template| (template.name, template.lead)).collect();
        assert_eq!(names, [("HANDOVER", "After your next turn, append this block:"), ("BATCH", "If they are stuck:")]);
    }

    #[test]
    fn a_line_is_taken_apart() {
        assert_eq!(Line::of("  goal: {x: y}"), Line { start: "  ", key: Some("goal"), value: "{x: y}" });
        assert_eq!(Line::of("- title: a"), Line { start: "- ", key: Some("title"), value: "a" });
        assert_eq!(Line::of("[A prompt: see below]"), Line { start: "", key: None, value: "[A prompt: see below]" });
        assert_eq!(Line::of(""), Line { start: "", key: None, value: "" });
    }
}
