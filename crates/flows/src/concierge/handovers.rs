//! The documents that cross from one phase to the next: read from a block, built from the exchange where none came, and
//! told to the one who takes over. What is missing is told as missing.

use segue_core::body::TextRef;
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::handover::{Handover, HandoverDocument, HandoverFieldType, HandoverFieldValue, HandoverProvenance};
use segue_core::ids::MessageId;
use segue_core::signal::fields::BlockFields;
use segue_core::signal::quote_lines;
use serde_json::{Map as Object, Value};

use super::analysis::analyse_claim_map;
use super::facts::BatchResult;
use super::plan::ConciergePlan;
use super::spec::{
    EXECUTION_FIELDS, EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPLORER_PHASE, INTENT_FIELDS, INTENT_HANDOVER,
    OUTCOME_FIELDS, OUTCOME_HANDOVER,
};
use super::state::ConciergeState;
use super::{claim_map, messages, plan_request};
use crate::limits::{BUILT_HANDOVER_ITEMS_MAX, BUILT_HANDOVER_TEXT_CHARS_MAX};
use crate::template::fill_template;

/// What is told where there is nothing to tell.
const EMPTY_FIELD_TEXT: &str = "none identified";

/// The document in the fields of a block; nothing is in it that was not given.
#[must_use]
pub fn parse_document(fields: &BlockFields, wanted: &[(&str, HandoverFieldType)]) -> HandoverDocument {
    let mut document = HandoverDocument::new();
    for (name, form) in wanted {
        let field = match form {
            HandoverFieldType::Text => match fields.text(name) {
                Some(text) => HandoverFieldValue::Text(text.to_owned()),
                None => HandoverFieldValue::List(fields.list(name)),
            },
            HandoverFieldType::List => HandoverFieldValue::List(fields.list(name)),
        };
        if !field.is_empty() {
            document.insert((*name).to_owned(), field);
        }
    }
    document
}

/// Whether the field is a user's words, which are quoted wherever they enter a prompt.
fn is_user_words_field(name: &str) -> bool {
    matches!(name, "user_query" | "user_reply")
}

/// A handover as the one who takes over is shown it.
#[must_use]
pub fn render_handover(handover: &Handover) -> String {
    let (template, fields): (_, &[(&str, HandoverFieldType)]) = match handover.kind.as_str() {
        OUTCOME_HANDOVER => (include_str!("../../prompts/concierge/outcome.md"), &OUTCOME_FIELDS),
        INTENT_HANDOVER => (include_str!("../../prompts/concierge/intent.md"), &INTENT_FIELDS),
        _ => (include_str!("../../prompts/concierge/execution.md"), &EXECUTION_FIELDS),
    };
    let mut arguments = Object::new();
    for (name, form) in fields {
        let text = match form {
            HandoverFieldType::Text => handover.text_field(name).map_or_else(
                || EMPTY_FIELD_TEXT.to_owned(),
                |text| {
                    if is_user_words_field(name) { quote_lines(text) } else { text.to_owned() }
                },
            ),
            HandoverFieldType::List => format_bullets(handover.list_field(name)),
        };
        arguments.insert((*name).to_owned(), Value::String(text));
    }
    fill_template(template, &Value::Object(arguments))
}

fn format_bullets(items: &[String]) -> String {
    if items.is_empty() {
        return format!("- {EMPTY_FIELD_TEXT}");
    }
    items.iter().map(|item| format!("- {}", item.replace('\n', " "))).collect::<Vec<_>>().join("\n")
}

/// The document, with what was said word for word where it does not say itself.
#[must_use]
pub fn fill_exchange_fields(view: &FlowContext<'_, ConciergeState>, parsed: HandoverDocument) -> HandoverDocument {
    let exchange = &view.state.opening_exchange;
    let said = |texts: &mut dyn Iterator<Item = TextRef>| {
        HandoverFieldValue::Text(
            texts.map(|text| truncate_text(&view.read_text(text))).collect::<Vec<_>>().join("\n\n"),
        )
    };
    let mut document = parsed;
    let parts = [
        ("user_query", said(&mut exchange.query.iter().copied())),
        ("starter_response", said(&mut exchange.reply.into_iter())),
        ("user_reply", said(&mut exchange.follow_ups.iter().map(|(_, text)| *text))),
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
pub fn build_intent_handover(view: &FlowContext<'_, ConciergeState>, parsed: HandoverDocument) -> HandoverDocument {
    let state = view.state;
    let mut built = fill_exchange_fields(view, parsed);
    if let Some(query) = built.get("user_query").cloned() {
        built.entry("goal".to_owned()).or_insert(query);
    }
    let mut add = |name: &str, field: HandoverFieldValue| {
        if !field.is_empty() {
            built.entry(name.to_owned()).or_insert(field);
        }
    };
    if let Some(stance) = state.stance {
        add("effective_stance", HandoverFieldValue::Text(stance.name().to_owned()));
    }
    if let Some(BatchResult::Mapped { text, answers, .. }) = &state.opening_result
        && let Ok(reading) = claim_map::parse_claim_map(&view.read_text(*text), *answers)
    {
        let analysis = analyse_claim_map(&reading.map, *answers);
        let label = |id: &claim_map::ClaimId| {
            let claim = reading.map.claims.iter().find(|claim| claim.id == *id);
            claim.map_or_else(String::new, |claim| claim.label.clone())
        };
        let mut claims: Vec<_> = analysis.claims.iter().collect();
        claims.sort_by(|one, other| other.leverage.total_cmp(&one.leverage));
        let findings = claims.iter().take(BUILT_HANDOVER_ITEMS_MAX).map(|claim| label(&claim.id));
        let tensions = analysis.tensions.iter().take(BUILT_HANDOVER_ITEMS_MAX);
        let tensions = tensions.map(|tension| format!("{} against {}", label(&tension.one), label(&tension.other)));
        add("shape", HandoverFieldValue::Text(analysis.shape.name().to_owned()));
        add("key_findings", HandoverFieldValue::List(findings.collect()));
        add("tensions", HandoverFieldValue::List(tensions.collect()));
        add(
            "gaps",
            HandoverFieldValue::List(reading.map.gaps.iter().take(BUILT_HANDOVER_ITEMS_MAX).cloned().collect()),
        );
    }
    built
}

/// An execution handover from what was handed over before and what the user `said` since; what was understood of the model's own
/// stays. The goal is in the user's own words where they say what the plan is for, and where the goal before has been reached.
#[must_use]
pub fn build_execution_handover(
    view: &FlowContext<'_, ConciergeState>,
    parsed: HandoverDocument,
    user_messages: &[(MessageId, TextRef)],
) -> HandoverDocument {
    let before = view.session.handovers.back();
    let text = |name: &str| before.and_then(|before| before.text_field(name)).map(str::to_owned);
    let list = |name: &str| before.map(|before| before.list_field(name).to_vec()).unwrap_or_default();
    let line = |text: &TextRef| truncate_to_one_line(&view.read_text(*text));
    let is_bare =
        |text: &TextRef| plan_request::find_plan_request(&view.read_text(*text)).is_some_and(|wish| !wish.has_details);
    let tells =
        |text: &&TextRef| plan_request::find_plan_request(&view.read_text(**text)).is_some_and(|wish| wish.has_details);
    let said: Vec<TextRef> = user_messages.iter().map(|(_, text)| *text).collect();
    let telling = said.iter().rfind(tells);
    let all = || truncate_to_one_line(&said.iter().map(line).collect::<Vec<_>>().join(" "));
    let is_reached = before.is_some_and(|before| before.kind == *OUTCOME_HANDOVER) && !said.is_empty();
    let goal = telling.map(line).or_else(|| is_reached.then(all)).or_else(|| text("goal"));
    let highlights = said.iter().filter(|text| Some(*text) != telling && !is_bare(text));
    let open = Some(list("still_unclear")).filter(|open| !open.is_empty());
    let parts = [
        ("goal", HandoverFieldValue::Text(goal.unwrap_or_else(|| truncate_text(&messages::latest_user_text(view))))),
        ("problem_summary", HandoverFieldValue::Text(telling.and_then(|_| text("goal")).unwrap_or_default())),
        ("situation", HandoverFieldValue::Text(text("user_reply").or_else(|| text("outcome")).unwrap_or_default())),
        ("constraints", HandoverFieldValue::List(list("constraints"))),
        ("decisions_made", HandoverFieldValue::List(list("decisions"))),
        ("open_questions", HandoverFieldValue::List(open.unwrap_or_else(|| list("open_questions")))),
        ("exploration_highlights", HandoverFieldValue::List(highlights.map(line).collect())),
    ];
    let mut built = parsed;
    for (name, field) in parts.into_iter().filter(|(_, field)| !field.is_empty()) {
        built.entry(name.to_owned()).or_insert(field);
    }
    built
}

/// What was said, as part of a line.
fn truncate_to_one_line(text: &str) -> String {
    truncate_text(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What the rules can hand over to a phase that was entered by hand.
#[must_use]
pub fn build_missing_handover(view: &FlowContext<'_, ConciergeState>, phase: &str) -> Option<FlowStep> {
    let left = view.state.past_visits.values().last()?;
    let (kind, document) = match &left.final_plan {
        _ if phase == EXECUTOR_PHASE => {
            (EXECUTION_HANDOVER, build_execution_handover(view, HandoverDocument::new(), &left.answered_messages))
        }
        _ if phase != EXPLORER_PHASE => return None,
        Some(workflow) => {
            let execution = left.received_handover.and_then(|id| view.session.handover_by_id(id));
            (OUTCOME_HANDOVER, build_outcome_handover(execution, workflow, ""))
        }
        None => (INTENT_HANDOVER, build_intent_handover(view, HandoverDocument::new())),
    };
    let is_worth = document.get("goal").is_some_and(|goal| !goal.is_empty());
    is_worth.then(|| FlowStep::MakeHandover {
        kind: kind.into(),
        document,
        calls: Vec::new(),
        provenance: HandoverProvenance::Built,
    })
}

/// What is left of a plan: the account that was given of it, or what its steps say.
#[must_use]
pub fn build_outcome_handover(execution: Option<&Handover>, plan: &ConciergePlan, outcome: &str) -> HandoverDocument {
    let list = |name: &str| execution.map(|handover| handover.list_field(name).to_vec()).unwrap_or_default();
    let account = if outcome.is_empty() { plan.summarize_progress() } else { truncate_text(outcome) };
    let done = plan.done_steps().map(|step| step.title.clone()).collect();
    HandoverDocument::from([
        ("goal".to_owned(), HandoverFieldValue::Text(plan.goal.clone())),
        ("outcome".to_owned(), HandoverFieldValue::Text(account)),
        ("steps".to_owned(), HandoverFieldValue::List(done)),
        ("decisions".to_owned(), HandoverFieldValue::List(list("decisions_made"))),
        ("open_questions".to_owned(), HandoverFieldValue::List(list("open_questions"))),
    ])
}

/// A document as a prompt's context: a line a field.
#[must_use]
pub fn render_document_context(document: &HandoverDocument) -> String {
    let line = |(name, field): (&String, &HandoverFieldValue)| {
        let text = match field {
            HandoverFieldValue::Text(text) => text.clone(),
            HandoverFieldValue::List(items) => items.join("; "),
        };
        format!("- {}: {}", name.replace('_', " "), text.replace('\n', " "))
    };
    document.iter().filter(|(name, _)| *name != "goal").map(line).collect::<Vec<_>>().join("\n")
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(BUILT_HANDOVER_TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
