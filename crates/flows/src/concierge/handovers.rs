//! The handovers between phases: parses them from blocks, builds them from the state if a model wrote none, and renders
//! them for the next phase. Missing fields are rendered as missing.

use segue_core::body::TextRef;
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::handover::{Handover, HandoverDocument, HandoverFieldType, HandoverFieldValue, HandoverProvenance};
use segue_core::ids::MessageId;
use segue_core::signal::{BlockFields, wrap_in_code_fence};
use serde_json::{Map as Object, Value, json};

use super::analysis::analyse_claim_map;
use super::facts::{ConciergeFact, ExpertBatchResult};
use super::plan::ConciergePlan;
use super::spec::{
    EXECUTION_FIELDS, EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPLORER_PHASE, INTENT_FIELDS, INTENT_HANDOVER,
    OUTCOME_FIELDS, OUTCOME_HANDOVER,
};
use super::state::ConciergeState;
use super::turn::batch_result_shape;
use super::{claim_map, messages, plan_request, sample_echo};
use crate::limits::{BUILT_HANDOVER_ITEMS_MAX, BUILT_HANDOVER_TEXT_CHARS_MAX};
use crate::template::fill_template;

/// The text for an empty field.
const EMPTY_FIELD_TEXT: &str = "none identified";

/// Parses a document from the fields of a block. Fields that were not given, or that repeat the prompt's sample, are
/// absent.
#[must_use]
pub(super) fn parse_document(
    block: &str,
    fields: &BlockFields,
    wanted: &[(&str, HandoverFieldType)],
) -> HandoverDocument {
    let mut document = HandoverDocument::new();
    for (name, field_type) in wanted {
        let is_own = |value: &str| !sample_echo::is_sample_echo(block, name, value);
        let items = || HandoverFieldValue::List(fields.list(name).into_iter().filter(|item| is_own(item)).collect());
        let field = match (field_type, fields.text(name)) {
            (HandoverFieldType::Text, Some(text)) if is_own(text) => HandoverFieldValue::Text(text.to_owned()),
            (HandoverFieldType::Text | HandoverFieldType::List, _) => items(),
        };
        if !field.is_empty() {
            document.insert((*name).to_owned(), field);
        }
    }
    document
}

/// Renders a handover for the prompt of the next phase. The document is fenced: users, experts and models wrote it.
#[must_use]
pub(super) fn render_handover(handover: &Handover) -> String {
    let (template, fields): (_, &[(&str, HandoverFieldType)]) = match handover.kind.as_str() {
        OUTCOME_HANDOVER => (include_str!("../../prompts/concierge/outcome.md"), &OUTCOME_FIELDS),
        INTENT_HANDOVER => (include_str!("../../prompts/concierge/intent.md"), &INTENT_FIELDS),
        _ => (include_str!("../../prompts/concierge/execution.md"), &EXECUTION_FIELDS),
    };
    let mut arguments = Object::new();
    for (name, field_type) in fields {
        let text = match field_type {
            HandoverFieldType::Text => handover.text_field(name).unwrap_or(EMPTY_FIELD_TEXT).to_owned(),
            HandoverFieldType::List => format_bullets(handover.list_field(name)),
        };
        arguments.insert((*name).to_owned(), Value::String(text));
    }
    let document = wrap_in_code_fence(&fill_template(template, &Value::Object(arguments)));
    let is_outcome = handover.kind == *OUTCOME_HANDOVER;
    fill_template(
        include_str!("../../prompts/concierge/handover.md"),
        &json!({"document": document, "is_outcome": is_outcome}),
    )
}

fn format_bullets(items: &[String]) -> String {
    if items.is_empty() {
        return format!("- {EMPTY_FIELD_TEXT}");
    }
    items.iter().map(|item| format!("- {}", item.replace('\n', " "))).collect::<Vec<_>>().join("\n")
}

/// Adds the opening exchange, word for word, to fields that the document leaves out.
#[must_use]
pub(super) fn fill_exchange_fields(
    view: &FlowContext<'_, ConciergeState>,
    parsed: HandoverDocument,
) -> HandoverDocument {
    let exchange = &view.state.opening_exchange;
    let joined = |texts: &mut dyn Iterator<Item = TextRef>| {
        HandoverFieldValue::Text(
            texts.map(|text| truncate_text(&view.read_text(text))).collect::<Vec<_>>().join("\n\n"),
        )
    };
    let mut document = parsed;
    let parts = [
        ("user_query", joined(&mut exchange.query.iter().copied())),
        ("starter_response", joined(&mut exchange.reply.into_iter())),
        ("user_reply", joined(&mut exchange.follow_ups.iter().map(|(_, text)| *text))),
    ];
    for (name, field) in parts {
        if !field.is_empty() {
            document.entry(name.to_owned()).or_insert(field);
        }
    }
    document
}

/// Sets the shape of the map, which the flow knows better than a model.
#[must_use]
pub(super) fn set_map_shape(
    view: &FlowContext<'_, ConciergeState>,
    mut document: HandoverDocument,
) -> HandoverDocument {
    let shape = view.state.opening_result.as_ref().and_then(|result| batch_result_shape(view, result));
    if let Some(shape) = shape {
        document.insert("shape".to_owned(), HandoverFieldValue::Text(shape.name().to_owned()));
    }
    document
}

/// Records which fields of a handover the flow wrote itself, because the model did not.
#[must_use]
pub(super) fn record_built_fields(
    kind: &str,
    by_model: &HandoverDocument,
    document: &HandoverDocument,
) -> Option<FlowStep> {
    let is_built = |name: &&String| document.get(*name) != by_model.get(*name);
    let fields: Vec<String> = document.keys().filter(is_built).cloned().collect();
    (!fields.is_empty()).then(|| ConciergeFact::HandoverFieldsBuilt { kind: kind.to_owned(), fields }.into_step())
}

/// Builds an intent handover from the state. Fields that the model wrote are kept.
#[must_use]
pub(super) fn build_intent_handover(
    view: &FlowContext<'_, ConciergeState>,
    parsed: HandoverDocument,
) -> HandoverDocument {
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
    if let Some(ExpertBatchResult::Mapped { text, answers, .. }) = &state.opening_result
        && let Ok(parsed) = claim_map::parse_claim_map(&view.read_text(*text), *answers)
    {
        let analysis = analyse_claim_map(&parsed.map, *answers);
        let label = |id: &claim_map::ClaimId| {
            let claim = parsed.map.claims.iter().find(|claim| claim.id == *id);
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
        add("gaps", HandoverFieldValue::List(parsed.map.gaps.iter().take(BUILT_HANDOVER_ITEMS_MAX).cloned().collect()));
    }
    built
}

/// Builds an execution handover from the latest handover and the user's messages since. Fields that the model wrote are
/// kept. The goal is in the user's own words if a message says what the plan is for, or if the previous goal was reached.
#[must_use]
pub(super) fn build_execution_handover(
    view: &FlowContext<'_, ConciergeState>,
    parsed: HandoverDocument,
    user_messages: &[(MessageId, TextRef)],
) -> HandoverDocument {
    let before = view.session.handovers.back();
    let text = |name: &str| before.and_then(|before| before.text_field(name)).map(str::to_owned);
    let list = |name: &str| before.map(|before| before.list_field(name).to_vec()).unwrap_or_default();
    let line = |text: &TextRef| truncate_to_one_line(&view.read_text(*text));
    let request = |text: &TextRef| plan_request::find_plan_request(&view.read_text(*text));
    let is_bare_request = |text: &TextRef| request(text).is_some_and(|request| !request.has_details);
    let is_detailed_request = |text: &&TextRef| request(text).is_some_and(|request| request.has_details);
    let texts: Vec<TextRef> = user_messages.iter().map(|(_, text)| *text).collect();
    let detailed_request = texts.iter().rfind(is_detailed_request);
    let all = || truncate_to_one_line(&texts.iter().map(line).collect::<Vec<_>>().join(" "));
    let is_goal_reached = before.is_some_and(|before| before.kind == *OUTCOME_HANDOVER) && !texts.is_empty();
    let goal = detailed_request.map(line).or_else(|| is_goal_reached.then(all)).or_else(|| text("goal"));
    let highlights = texts.iter().filter(|text| Some(*text) != detailed_request && !is_bare_request(text));
    let open = Some(list("still_unclear")).filter(|open| !open.is_empty());
    let parts = [
        (
            "goal",
            HandoverFieldValue::Text(goal.unwrap_or_else(|| truncate_text(&messages::current_turn_user_text(view)))),
        ),
        ("problem_summary", HandoverFieldValue::Text(detailed_request.and_then(|_| text("goal")).unwrap_or_default())),
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

/// Returns the text on one line, truncated.
fn truncate_to_one_line(text: &str) -> String {
    truncate_text(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Builds the handover for a phase that was entered by hand; `None` if the state has no goal.
#[must_use]
pub(super) fn build_missing_handover(view: &FlowContext<'_, ConciergeState>, phase: &str) -> Option<FlowStep> {
    let previous = view.state.past_visits.values().last()?;
    let (kind, document) = match &previous.final_plan {
        _ if phase == EXECUTOR_PHASE => {
            (EXECUTION_HANDOVER, build_execution_handover(view, HandoverDocument::new(), &previous.answered_messages))
        }
        _ if phase != EXPLORER_PHASE => return None,
        Some(plan) => {
            let execution = previous.received_handover.and_then(|id| messages::find_handover(view, id));
            (OUTCOME_HANDOVER, build_outcome_handover(execution, plan, ""))
        }
        None => (INTENT_HANDOVER, build_intent_handover(view, HandoverDocument::new())),
    };
    let has_goal = document.get("goal").is_some_and(|goal| !goal.is_empty());
    has_goal.then(|| FlowStep::MakeHandover {
        kind: kind.into(),
        document,
        calls: Vec::new(),
        provenance: HandoverProvenance::Built,
    })
}

/// Builds an outcome handover: the concierge's own summary, or the plan's progress if `outcome` is empty.
#[must_use]
pub(super) fn build_outcome_handover(
    execution: Option<&Handover>,
    plan: &ConciergePlan,
    outcome: &str,
) -> HandoverDocument {
    let list = |name: &str| execution.map(|handover| handover.list_field(name).to_vec()).unwrap_or_default();
    let summary = if outcome.is_empty() { plan.summarize_progress() } else { truncate_text(outcome) };
    let done = plan.done_steps().map(|step| step.title.clone()).collect();
    HandoverDocument::from([
        ("goal".to_owned(), HandoverFieldValue::Text(plan.goal.clone())),
        ("outcome".to_owned(), HandoverFieldValue::Text(summary)),
        ("steps".to_owned(), HandoverFieldValue::List(done)),
        ("decisions".to_owned(), HandoverFieldValue::List(list("decisions_made"))),
        ("open_questions".to_owned(), HandoverFieldValue::List(list("open_questions"))),
    ])
}

/// Renders a document as the fenced content of a prompt, the goal first and one line for each field.
#[must_use]
pub(super) fn render_document_context(document: &HandoverDocument) -> String {
    let line = |(name, field): (&String, &HandoverFieldValue)| {
        let text = match field {
            HandoverFieldValue::Text(text) => text.clone(),
            HandoverFieldValue::List(items) => items.join("; "),
        };
        format!("- {}: {}", name.replace('_', " "), text.replace('\n', " "))
    };
    let (goal, others): (Vec<_>, Vec<_>) = document.iter().partition(|(name, _)| *name == "goal");
    wrap_in_code_fence(&goal.into_iter().chain(others).map(line).collect::<Vec<_>>().join("\n"))
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(BUILT_HANDOVER_TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
