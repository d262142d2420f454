//! The documents that cross from one phase to the next: read from a block, built from the exchange where none came, and
//! told to the one who takes over. What is missing is told as missing.

use segue_core::body::Text;
use segue_core::flow::{Step, View};
use segue_core::handover::{Document, Field, Form, Handover, Provenance};
use segue_core::ids::MessageId;
use segue_core::signal::fields::Fields;
use segue_core::signal::quote;
use serde_json::{Map as Object, Value};

use super::analysis::analyse;
use super::facts::Known;
use super::spec::{EXECUTION, EXECUTION_FIELDS, EXECUTOR, EXPLORER, INTENT, INTENT_FIELDS, OUTCOME, OUTCOME_FIELDS};
use super::state::Memory;
use super::workflow::Workflow;
use super::{map, wish, words_of};
use crate::limits::{BUILT_ITEMS_MAX, BUILT_TEXT_CHARS_MAX};
use crate::template::fill;

/// What is told where there is nothing to tell.
const NOTHING: &str = "none identified";

/// The document in the fields of a block; nothing is in it that was not given.
#[must_use]
pub fn read(fields: &Fields, wanted: &[(&str, Form)]) -> Document {
    let mut document = Document::new();
    for (name, form) in wanted {
        let field = match form {
            Form::Text => match fields.text(name) {
                Some(text) => Field::Text(text.to_owned()),
                None => Field::List(fields.list(name)),
            },
            Form::List => Field::List(fields.list(name)),
        };
        if !field.is_empty() {
            document.insert((*name).to_owned(), field);
        }
    }
    document
}

/// Whether the field is a user's words, which are quoted wherever they enter a prompt.
fn is_quoted(name: &str) -> bool {
    matches!(name, "user_query" | "user_reply")
}

/// A handover as the one who takes over is shown it.
#[must_use]
pub fn told(handover: &Handover) -> String {
    let (template, fields): (_, &[(&str, Form)]) = match handover.kind.as_str() {
        OUTCOME => (include_str!("../../prompts/concierge/outcome.md"), &OUTCOME_FIELDS),
        INTENT => (include_str!("../../prompts/concierge/intent.md"), &INTENT_FIELDS),
        _ => (include_str!("../../prompts/concierge/execution.md"), &EXECUTION_FIELDS),
    };
    let mut arguments = Object::new();
    for (name, form) in fields {
        let text = match form {
            Form::Text => handover.text(name).map_or_else(
                || NOTHING.to_owned(),
                |text| {
                    if is_quoted(name) { quote(text) } else { text.to_owned() }
                },
            ),
            Form::List => bullets(handover.list(name)),
        };
        arguments.insert((*name).to_owned(), Value::String(text));
    }
    fill(template, &Value::Object(arguments))
}

fn bullets(items: &[String]) -> String {
    if items.is_empty() {
        return format!("- {NOTHING}");
    }
    items.iter().map(|item| format!("- {}", item.replace('\n', " "))).collect::<Vec<_>>().join("\n")
}

/// The document, with what was said word for word where it does not say itself.
#[must_use]
pub fn with_exchange(view: &View<'_, Memory>, understood: Document) -> Document {
    let exchange = &view.state.exchange;
    let said = |texts: &mut dyn Iterator<Item = Text>| {
        Field::Text(texts.map(|text| cut(&view.text(text))).collect::<Vec<_>>().join("\n\n"))
    };
    let mut document = understood;
    let parts = [
        ("user_query", said(&mut exchange.query.iter().copied())),
        ("starter_response", said(&mut exchange.reply.into_iter())),
        ("user_reply", said(&mut exchange.replies.iter().map(|(_, text)| *text))),
    ];
    for (name, field) in parts {
        if !field.is_empty() {
            document.entry(name.to_owned()).or_insert(field);
        }
    }
    document
}

/// An intent handover from the exchange itself; what was understood of the model's own stays.
#[must_use]
pub fn built_intent(view: &View<'_, Memory>, understood: Document) -> Document {
    let state = view.state;
    let mut built = with_exchange(view, understood);
    if let Some(query) = built.get("user_query").cloned() {
        built.entry("goal".to_owned()).or_insert(query);
    }
    let mut add = |name: &str, field: Field| {
        if !field.is_empty() {
            built.entry(name.to_owned()).or_insert(field);
        }
    };
    if let Some(stance) = state.stance {
        add("effective_stance", Field::Text(stance.name().to_owned()));
    }
    if let Some(Known::Mapped { text, answers, .. }) = &state.opening
        && let Ok(reading) = map::parse(&view.text(*text), *answers)
    {
        let analysis = analyse(&reading.map, *answers);
        let label = |id: &map::ClaimId| {
            let claim = reading.map.claims.iter().find(|claim| claim.id == *id);
            claim.map_or_else(String::new, |claim| claim.label.clone())
        };
        let mut claims: Vec<_> = analysis.claims.iter().collect();
        claims.sort_by(|one, other| other.leverage.total_cmp(&one.leverage));
        let findings = claims.iter().take(BUILT_ITEMS_MAX).map(|claim| label(&claim.id));
        let tensions = analysis.tensions.iter().take(BUILT_ITEMS_MAX);
        let tensions = tensions.map(|tension| format!("{} against {}", label(&tension.one), label(&tension.other)));
        add("shape", Field::Text(analysis.shape.name().to_owned()));
        add("key_findings", Field::List(findings.collect()));
        add("tensions", Field::List(tensions.collect()));
        add("gaps", Field::List(reading.map.gaps.iter().take(BUILT_ITEMS_MAX).cloned().collect()));
    }
    built
}

/// An execution handover from what was handed over before and what the user `said` since; what was understood of the model's own
/// stays. The goal is in the user's own words where they say what the plan is for, and where the goal before has been reached.
#[must_use]
pub fn built_execution(view: &View<'_, Memory>, understood: Document, said: &[(MessageId, Text)]) -> Document {
    let before = view.session.handovers.back();
    let text = |name: &str| before.and_then(|before| before.text(name)).map(str::to_owned);
    let list = |name: &str| before.map(|before| before.list(name).to_vec()).unwrap_or_default();
    let line = |text: &Text| in_one_line(&view.text(*text));
    let is_bare = |text: &Text| wish::read(&view.text(*text)).is_some_and(|wish| !wish.says_more);
    let tells = |text: &&Text| wish::read(&view.text(**text)).is_some_and(|wish| wish.says_more);
    let said: Vec<Text> = said.iter().map(|(_, text)| *text).collect();
    let telling = said.iter().rfind(tells);
    let all = || in_one_line(&said.iter().map(line).collect::<Vec<_>>().join(" "));
    let is_reached = before.is_some_and(|before| before.kind == *OUTCOME) && !said.is_empty();
    let goal = telling.map(line).or_else(|| is_reached.then(all)).or_else(|| text("goal"));
    let highlights = said.iter().filter(|text| Some(*text) != telling && !is_bare(text));
    let open = Some(list("still_unclear")).filter(|open| !open.is_empty());
    let parts = [
        ("goal", Field::Text(goal.unwrap_or_else(|| cut(&words_of::newest(view))))),
        ("problem_summary", Field::Text(telling.and_then(|_| text("goal")).unwrap_or_default())),
        ("situation", Field::Text(text("user_reply").or_else(|| text("outcome")).unwrap_or_default())),
        ("constraints", Field::List(list("constraints"))),
        ("decisions_made", Field::List(list("decisions"))),
        ("open_questions", Field::List(open.unwrap_or_else(|| list("open_questions")))),
        ("exploration_highlights", Field::List(highlights.map(line).collect())),
    ];
    let mut built = understood;
    for (name, field) in parts.into_iter().filter(|(_, field)| !field.is_empty()) {
        built.entry(name.to_owned()).or_insert(field);
    }
    built
}

/// What was said, as part of a line.
fn in_one_line(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What the rules can hand over to a phase that was entered by hand.
#[must_use]
pub fn by_hand(view: &View<'_, Memory>, to: &str) -> Option<Step> {
    let left = view.state.past.values().last()?;
    let (kind, document) = match &left.workflow {
        _ if to == EXECUTOR => (EXECUTION, built_execution(view, Document::new(), &left.said)),
        _ if to != EXPLORER => return None,
        Some(workflow) => {
            let execution = left.handed.and_then(|id| view.session.handover_made(id));
            (OUTCOME, built_outcome(execution, workflow, ""))
        }
        None => (INTENT, built_intent(view, Document::new())),
    };
    let is_worth = document.get("goal").is_some_and(|goal| !goal.is_empty());
    is_worth.then(|| Step::Hand { kind: kind.into(), document, calls: Vec::new(), how: Provenance::Built })
}

/// What is left of a plan: the account that was given of it, or what its steps say.
#[must_use]
pub fn built_outcome(execution: Option<&Handover>, workflow: &Workflow, account: &str) -> Document {
    let list = |name: &str| execution.map(|handover| handover.list(name).to_vec()).unwrap_or_default();
    let account = if account.is_empty() { workflow.account() } else { cut(account) };
    let done = workflow.done_steps().map(|step| step.title.clone()).collect();
    Document::from([
        ("goal".to_owned(), Field::Text(workflow.goal.clone())),
        ("outcome".to_owned(), Field::Text(account)),
        ("steps".to_owned(), Field::List(done)),
        ("decisions".to_owned(), Field::List(list("decisions_made"))),
        ("open_questions".to_owned(), Field::List(list("open_questions"))),
    ])
}

/// A document as a prompt's context: a line a field.
#[must_use]
pub fn as_context(document: &Document) -> String {
    let line = |(name, field): (&String, &Field)| {
        let text = match field {
            Field::Text(text) => text.clone(),
            Field::List(items) => items.join("; "),
        };
        format!("- {}: {}", name.replace('_', " "), text.replace('\n', " "))
    };
    document.iter().filter(|(name, _)| *name != "goal").map(line).collect::<Vec<_>>().join("\n")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(BUILT_TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
