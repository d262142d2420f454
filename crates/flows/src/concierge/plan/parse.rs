//! Parses the steps of a plan from a STEPS block, or from the headings and numbered lists of the plan's text.

use segue_core::signal::find_json_where;
use serde_json::Value;

use super::ConciergePlanStep;
use crate::limits::{PLAN_STEPS_MAX, STEP_TEXT_CHARS_MAX, STEP_TITLE_CHARS_MAX};

/// Why a STEPS block has no steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanStepsBlockParseError {
    #[error("the block is empty")]
    EmptyBlock,
    #[error("no entry has a title")]
    NoTitle,
}

/// Parses a STEPS block.
///
/// # Errors
/// If the block is empty or no entry has a title.
pub fn parse_steps_block(raw: &str) -> Result<Vec<ConciergePlanStep>, PlanStepsBlockParseError> {
    if raw.trim().is_empty() {
        return Err(PlanStepsBlockParseError::EmptyBlock);
    }
    let steps = truncate_steps(parse_json_steps(raw).unwrap_or_else(|| parse_step_entries(raw)));
    if steps.is_empty() { Err(PlanStepsBlockParseError::NoTitle) } else { Ok(steps) }
}

/// Parses steps from the numbered items or headings of a plan; empty if it has none.
#[must_use]
pub fn parse_steps_from_prose(text: &str) -> Vec<ConciergePlanStep> {
    let mut numbered: Vec<ConciergePlanStep> = Vec::new();
    let mut headings: Vec<ConciergePlanStep> = Vec::new();
    let mut last = LastPlanLineKind::Nothing;
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let content = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| content.starts_with(mark));
        if mark.is_some() && (fence.is_none() || fence == mark) {
            fence = if fence.is_none() { mark } else { None };
            continue;
        }
        if fence.is_some() {
            continue;
        }
        if let Some(title) = strip_heading_marks(content) {
            headings.push(parse_step_title(title));
            last = LastPlanLineKind::Heading;
        } else if let Some(item) = strip_item_number(line) {
            numbered.push(parse_step_title(item));
            last = LastPlanLineKind::Numbered;
        } else {
            match last {
                LastPlanLineKind::Heading => {
                    headings.last_mut().into_iter().for_each(|step| append_step_line(step, content))
                }
                LastPlanLineKind::Numbered => {
                    numbered.last_mut().into_iter().for_each(|step| append_step_line(step, content))
                }
                LastPlanLineKind::Nothing => {}
            }
        }
    }
    let steps = if numbered.is_empty() && headings.len() >= 2 { headings } else { numbered };
    truncate_steps(steps)
}

enum LastPlanLineKind {
    Nothing,
    Heading,
    Numbered,
}

#[derive(Clone, Copy)]
enum ConciergePlanStepField {
    Title,
    Description,
    DoneWhen,
}

fn parse_step_field(name: &str) -> Option<ConciergePlanStepField> {
    let name: String = name.trim().trim_matches('*').to_lowercase().replace([' ', '-'], "_");
    match name.as_str() {
        "title" | "step" | "name" => Some(ConciergePlanStepField::Title),
        "description" | "what" | "do" | "details" => Some(ConciergePlanStepField::Description),
        "done_when" | "donewhen" | "done" => Some(ConciergePlanStepField::DoneWhen),
        _ => None,
    }
}

fn parse_json_steps(raw: &str) -> Option<Vec<ConciergePlanStep>> {
    // A bracket later in the text belongs to a sentence.
    raw.trim_start().starts_with(['[', '{', '`']).then_some(())?;
    let value = serde_json::from_str::<Value>(raw.trim()).ok().or_else(|| find_json_where(raw, |_| true).value)?;
    let entries = match &value {
        Value::Array(entries) => entries,
        Value::Object(object) => object.get("steps")?.as_array()?,
        _ => return None,
    };
    let steps = entries.iter().filter_map(|entry| {
        if let Value::String(title) = entry {
            return Some(parse_step_title(title));
        }
        let mut step = ConciergePlanStep::default();
        for (name, value) in entry.as_object()? {
            let text = value.as_str().unwrap_or_default();
            parse_step_field(name).into_iter().for_each(|key| *step_field_mut(&mut step, key) = text.to_owned());
        }
        Some(step)
    });
    Some(steps.collect())
}

/// Parses entries that start with a dash, a number or another title. A line without a key continues the value above it.
fn parse_step_entries(raw: &str) -> Vec<ConciergePlanStep> {
    let mut steps: Vec<ConciergePlanStep> = Vec::new();
    let mut field = ConciergePlanStepField::Title;
    for line in raw.lines().filter(|line| !line.trim().is_empty()) {
        let (has_marker, content) = strip_list_marker(line);
        let keyed = content.split_once(':').and_then(|(name, value)| Some((parse_step_field(name)?, value.trim())));
        let has_title = steps.last().is_some_and(|step| !step.title.is_empty());
        let is_next = matches!(keyed, Some((ConciergePlanStepField::Title, _))) && has_title;
        // Some models put a dash before every key, so a dash before another key than a title continues the step.
        let starts_step = steps.is_empty() || is_next || has_marker && (keyed.is_none() || !has_title);
        if starts_step {
            steps.push(ConciergePlanStep::default());
            field = ConciergePlanStepField::Title;
        }
        let Some(step) = steps.last_mut() else { continue };
        let (key, value) = keyed.unwrap_or((field, content));
        field = key;
        let text = step_field_mut(step, key);
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(value);
    }
    steps
}

fn step_field_mut(step: &mut ConciergePlanStep, field: ConciergePlanStepField) -> &mut String {
    match field {
        ConciergePlanStepField::Title => &mut step.title,
        ConciergePlanStepField::Description => &mut step.description,
        ConciergePlanStepField::DoneWhen => &mut step.done_when,
    }
}

/// Returns whether a line starts with a list marker, and the text after it.
fn strip_list_marker(line: &str) -> (bool, &str) {
    let content = line.trim();
    if let Some(rest) = content.strip_prefix("- ").or_else(|| content.strip_prefix("* ")) {
        return (true, rest.trim());
    }
    match strip_item_number(line) {
        Some(rest) => (true, rest),
        None => (false, content),
    }
}

/// Returns the text after the number of a list item that is indented by at most one space.
fn strip_item_number(line: &str) -> Option<&str> {
    let content = line.trim_start();
    if line.len() - content.len() > 1 {
        return None;
    }
    let content = content.trim_start_matches('*');
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=3).contains(&digits) {
        return None;
    }
    let rest = content[digits..].strip_prefix(['.', ')'])?;
    let rest = rest.strip_prefix(' ').or_else(|| rest.strip_prefix("** "))?.trim();
    (!rest.is_empty()).then_some(rest)
}

fn strip_heading_marks(content: &str) -> Option<&str> {
    let marks = content.bytes().take_while(|byte| *byte == b'#').count();
    let title = content[marks..].strip_prefix(' ')?.trim().trim_end_matches('#').trim();
    ((1..=6).contains(&marks) && !title.is_empty()).then_some(title)
}

/// Parses the first line of a step. The text after a bold title, a colon or a dash is the description.
fn parse_step_title(text: &str) -> ConciergePlanStep {
    let text = text.trim();
    if let Some((title, rest)) = text.strip_prefix("**").and_then(|text| text.split_once("**")) {
        let description = rest.trim_start_matches([':', '.', '-', '–', '—', ' ']).to_owned();
        return ConciergePlanStep {
            title: title.trim_end_matches([':', '.']).to_owned(),
            description,
            done_when: String::new(),
        };
    }
    let split = [": ", " – ", " — "].into_iter().find_map(|mark| text.split_once(mark));
    let (title, description) = split.unwrap_or((text, ""));
    let title = title.replace("**", "").replace('`', "");
    ConciergePlanStep { title, description: description.trim().to_owned(), done_when: String::new() }
}

/// Appends a line of the plan to its step.
fn append_step_line(step: &mut ConciergePlanStep, content: &str) {
    let content = content.trim_start_matches(['-', '*', ' ']).trim();
    let lower = content.to_lowercase();
    if let Some(at) = lower.starts_with("done when").then_some("done when".len()) {
        let condition = content.get(at..).unwrap_or_default();
        step.done_when = condition.trim_start_matches([':', '*', ' ']).trim().to_owned();
        return;
    }
    if !content.is_empty() && step.description.len() < STEP_TEXT_CHARS_MAX {
        if !step.description.is_empty() {
            step.description.push(' ');
        }
        step.description.push_str(content);
    }
}

/// Cuts steps to the limits and drops those without a title.
pub(in crate::concierge) fn truncate_steps(steps: Vec<ConciergePlanStep>) -> Vec<ConciergePlanStep> {
    let cut = |text: &str, most: usize| text.trim().chars().take(most).collect::<String>();
    let fit = |step: ConciergePlanStep| ConciergePlanStep {
        title: cut(&step.title, STEP_TITLE_CHARS_MAX),
        description: cut(&step.description, STEP_TEXT_CHARS_MAX),
        done_when: cut(&step.done_when, STEP_TEXT_CHARS_MAX),
    };
    steps.into_iter().map(fit).filter(|step| !step.title.is_empty()).take(PLAN_STEPS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(title: &str, description: &str, done_when: &str) -> ConciergePlanStep {
        ConciergePlanStep { title: title.into(), description: description.into(), done_when: done_when.into() }
    }

    #[test]
    fn entries_start_with_dashes_numbers_or_titles() {
        let expected = vec![step("Measure", "take the tape twice", "two numbers"), step("Buy", "", "it is here")];
        for raw in [
            "- title: Measure\n  description: take the tape\n    twice\n  done_when: two numbers\n- title: Buy\n  done_when: it is here",
            "title: Measure\ndescription: take the tape twice\ndone when: two numbers\n\ntitle: Buy\nDone-When: it is here\n",
            "1. **Title**: Measure\n   Description: take the tape twice\n   done_when: two numbers\n2. title: Buy\n   done_when: it is here",
            "- title: Measure\n- description: take the tape twice\n- done_when: two numbers\n- title: Buy\n- done_when: it is here",
            r#"[{"title": "Measure", "description": "take the tape twice", "done_when": "two numbers"}, {"title": "Buy", "done_when": "it is here"}]"#,
        ] {
            assert_eq!(parse_steps_block(raw), Ok(expected.clone()), "{raw}");
        }
        assert_eq!(parse_steps_block("- Measure\n- Buy"), Ok(vec![step("Measure", "", ""), step("Buy", "", "")]));
        assert_eq!(parse_steps_block(" \n"), Err(PlanStepsBlockParseError::EmptyBlock));
        assert_eq!(parse_steps_block("done_when: never"), Err(PlanStepsBlockParseError::NoTitle));
    }

    #[test]
    fn steps_without_a_block_come_from_numbered_items_or_headings() {
        let numbered = "# Plan\nFirst some words.\n\n1. **Measure**: twice.\n   Done when: two numbers\n2) Buy paint – the good one\n```\n3. no step\n```\nThen start.";
        assert_eq!(
            parse_steps_from_prose(numbered),
            [step("Measure", "twice.", "two numbers"), step("Buy paint", "the good one Then start.", "")]
        );
        let headings = "Here it is.\n## Measure\nTwice.\n- **Done when:** two numbers\n## Buy\n";
        assert_eq!(parse_steps_from_prose(headings), [step("Measure", "Twice.", "two numbers"), step("Buy", "", "")]);
        assert_eq!(parse_steps_from_prose("# Only one heading\nand prose"), []);
        assert_eq!(parse_steps_from_prose("Which wall do you mean? It was 1.5 m."), []);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_within_the_limits(text in "([-*#0-9. a-zA-Z:*\n`\"{}\\[\\],é]|title: |done when: ){0,200}") {
            for steps in [parse_steps_from_prose(&text), parse_steps_block(&text).unwrap_or_default()] {
                prop_assert!(steps.len() <= PLAN_STEPS_MAX);
                for step in steps {
                    prop_assert!(!step.title.is_empty() && step.title.chars().count() <= STEP_TITLE_CHARS_MAX);
                    prop_assert!(step.description.chars().count() <= STEP_TEXT_CHARS_MAX);
                }
            }
        }
    }
}
