//! Builds the data that each node's prompt shows of the three memory layers. There is one builder for each node; none can change
//! the state.
//!
//! | node | entities | conversation | reasoning |
//! |---|---|---|---|
//! | Understand | the newest rows of the registry | five turns, the pending question | its own past decisions |
//! | Think | references, labels, loaded records | two turns, the compacted rest, the pending question | two turns in full, the compacted rest, this turn's curation |
//! | Act | full records of its step, labels of the others | the message | this turn's results and notes |
//! | Reply | labels, saved or not | recent turns | the phase, what was executed |

mod conversation;
mod entity;
mod reasoning;

use segue_core::flow::FlowContext;
use serde::Serialize;
use serde_json::Value;

pub use conversation::{ConversationForPrompt, PendingQuestionForPrompt};
pub use entity::{
    EntityForPrompt, RecordRenderer, RecordsAsJsonLines, placeholder_record_and_change, sample_record_and_change,
};
pub use reasoning::{TurnSummariesForPrompt, TurnSummaryForPrompt};

use super::answer::truncate_chars;
use super::domain::DomainSchema;
use super::facts::{AssistantPlanStep, AssistantStepEnd, AssistantStepEndStatus, ReferenceWithRelevanceReason};
use super::registry::EntityRelevanceTier;
use super::settings::AssistantSettings;
use super::state::{AssistantState, AssistantTurnProgress};
use crate::limits::{
    MESSAGE_EXCERPT_CHARS_MAX, REGISTRY_ROWS_MAX, REPLY_TURNS_SHOWN, STEP_RESULT_CHARS_MAX, THINK_ROWS_MAX,
    THINK_TURNS_SHOWN, UNDERSTAND_TURNS_SHOWN,
};

type AssistantFlowContext<'a> = FlowContext<'a, AssistantState>;

/// The data of Understand's prompt.
#[derive(Debug, Clone, Serialize)]
pub struct UnderstandPromptContext {
    /// The newest rows of the registry.
    pub rows: Vec<EntityForPrompt>,
    /// The number of rows that are left out.
    pub hidden_count: usize,
    pub conversation: ConversationForPrompt,
    /// How it interpreted earlier messages.
    pub past_understandings: Vec<PastUnderstandingForPrompt>,
    pub pending: Option<PendingQuestionForPrompt>,
}

/// How Understand interpreted an earlier message.
#[derive(Debug, Clone, Serialize)]
pub struct PastUnderstandingForPrompt {
    turn: u32,
    intent: String,
    retained: Vec<String>,
    demoted: Vec<String>,
    dropped: Vec<String>,
}

/// Builds the data of Understand's prompt.
#[must_use]
pub fn build_understand_context(
    view: &AssistantFlowContext<'_>,
    settings: &AssistantSettings,
) -> UnderstandPromptContext {
    let state = view.state;
    let all = state.entities.entities_by_recency(state.current_turn_number());
    let known = all.iter().filter(|(_, _, tier)| *tier != EntityRelevanceTier::Dropped);
    let rows: Vec<EntityForPrompt> = known.map(EntityForPrompt::from_entity).collect();
    let hidden_count = rows.len().saturating_sub(REGISTRY_ROWS_MAX);
    let names = |reasoned: &[ReferenceWithRelevanceReason]| reasoned.iter().map(|one| one.reference.clone()).collect();
    let past_understandings = state.recent_understandings.iter().filter(|_| settings.turn_narratives).map(|past| {
        PastUnderstandingForPrompt {
            turn: past.turn,
            intent: past.intent.clone(),
            retained: names(&past.retained),
            demoted: names(&past.demoted),
            dropped: past.dropped.clone(),
        }
    });
    UnderstandPromptContext {
        rows: rows.into_iter().take(REGISTRY_ROWS_MAX).collect(),
        hidden_count,
        conversation: ConversationForPrompt::from_recent_turns(view, UNDERSTAND_TURNS_SHOWN),
        past_understandings: past_understandings.collect(),
        pending: PendingQuestionForPrompt::from_state(state),
    }
}

/// The data of Think's prompt.
#[derive(Debug, Clone, Serialize)]
pub struct ThinkPromptContext {
    /// The relevant entities, without their records.
    pub relevant: Vec<EntityForPrompt>,
    /// The number of rows that are left out.
    pub hidden_count: usize,
    /// The entities whose records need not be read again.
    pub loaded: Vec<EntityForPrompt>,
    /// Types of which all records are loaded.
    pub fully_loaded_types: Vec<String>,
    pub conversation: ConversationForPrompt,
    pub pending: Option<PendingQuestionForPrompt>,
    pub reasoning: Option<TurnSummariesForPrompt>,
    pub curation: Option<UnderstandingForThinkPrompt>,
}

/// What Understand decided in this turn.
#[derive(Debug, Clone, Serialize)]
pub struct UnderstandingForThinkPrompt {
    intent: String,
    references: Vec<String>,
    retained: Vec<ReferenceWithRelevanceReason>,
    demoted: Vec<ReferenceWithRelevanceReason>,
    dropped: Vec<String>,
    pending: Option<Value>,
}

/// Builds the data of Think's prompt.
#[must_use]
pub fn build_think_context(view: &AssistantFlowContext<'_>, settings: &AssistantSettings) -> ThinkPromptContext {
    let state = view.state;
    let relevant: Vec<EntityForPrompt> = state
        .entities
        .relevant_entities(state.current_turn_number())
        .iter()
        .map(EntityForPrompt::from_entity)
        .collect();
    let loaded: Vec<EntityForPrompt> = relevant.iter().filter(|row| row.is_loaded()).cloned().collect();
    let fully_loaded_types =
        state.fully_loaded_types.iter().filter(|kind| state.is_type_fully_loaded(kind)).cloned().collect();
    let understanding = state.current_turn.as_ref().and_then(|running| running.understanding.as_ref());
    let curation = understanding.map(|understanding| UnderstandingForThinkPrompt {
        intent: understanding.intent.clone(),
        references: understanding.references.clone(),
        retained: understanding.retained.clone(),
        demoted: understanding.demoted.clone(),
        dropped: understanding.dropped.clone(),
        pending: understanding.response_to_pending.and_then(|answer| serde_json::to_value(answer).ok()),
    });
    ThinkPromptContext {
        hidden_count: relevant.len().saturating_sub(THINK_ROWS_MAX),
        relevant: relevant.into_iter().take(THINK_ROWS_MAX).collect(),
        loaded: loaded.into_iter().take(THINK_ROWS_MAX).collect(),
        fully_loaded_types,
        conversation: ConversationForPrompt::from_recent_turns(view, THINK_TURNS_SHOWN),
        pending: PendingQuestionForPrompt::from_state(state),
        reasoning: Some(TurnSummariesForPrompt::from_recent_turns(view))
            .filter(|past| settings.turn_narratives && !past.is_empty()),
        curation,
    }
}

/// The data of Act's prompt for a step.
#[derive(Debug, Clone, Serialize)]
pub struct ActPromptContext {
    /// The goal of the plan.
    pub goal: String,
    /// The number of steps in the plan.
    pub step_count: usize,
    pub step: AssistantPlanStep,
    /// Notes from the previous group of steps.
    pub notes: Vec<StepNoteForPrompt>,
    /// The number of records of the step's type, if they are too many to be read at once.
    pub searched_total: Option<u64>,
    /// The records that the step names, or the relevant ones of its type if it names none, and what earlier steps read.
    pub records: RecordsAsJsonLines,
    /// The other known entities, without their records.
    pub others: Vec<EntityForPrompt>,
    /// Results of earlier steps in this turn.
    pub results: Vec<StepResultForPrompt>,
}

/// A note from an earlier step.
#[derive(Debug, Clone, Serialize)]
pub struct StepNoteForPrompt {
    step: u32,
    note: String,
}

/// The result of an earlier step.
#[derive(Debug, Clone, Serialize)]
pub struct StepResultForPrompt {
    step: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    subdomain: String,
    outcome: String,
    result: Option<String>,
}

/// Builds the data of Act's prompt for a step.
#[must_use]
pub fn build_act_context(
    view: &AssistantFlowContext<'_>,
    domain: &DomainSchema,
    step: u32,
) -> Option<ActPromptContext> {
    let state = view.state;
    let running = state.current_turn.as_ref()?;
    let plan = running.plan.as_ref()?;
    let planned = running.planned_step(step)?;
    let relevant = state.entities.relevant_entities(state.current_turn_number());
    let named = |reference: &str| planned.refs.iter().any(|own| own == reference);
    let step_references = references_shown_to_step(view, planned);
    // Demoted entities are listed as such, so that Act does not use them by accident.
    let demoted = state
        .entities
        .entities_by_recency(state.current_turn_number())
        .into_iter()
        .filter(|(name, _, tier)| *tier == EntityRelevanceTier::Demoted && !named(name));
    let others = relevant.iter().filter(|row| !step_references.contains(&row.0)).map(EntityForPrompt::from_entity);
    let others = others.chain(demoted.map(|row| EntityForPrompt::from_entity(&row))).take(THINK_ROWS_MAX).collect();
    let before = plan.steps.iter().filter(|other| other.group < planned.group);
    let ended: Vec<(&AssistantPlanStep, &AssistantStepEnd)> =
        before.filter_map(|other| Some((other, running.steps.get(&other.step)?.end.as_ref()?))).collect();
    let last_group = ended.iter().map(|(other, _)| other.group).max();
    let notes = ended.iter().filter(|(other, _)| Some(other.group) == last_group);
    let notes = notes.filter_map(|(other, end)| Some(StepNoteForPrompt { step: other.step, note: end.note.clone()? }));
    Some(ActPromptContext {
        goal: plan.goal.clone(),
        step_count: plan.steps.len(),
        step: planned.clone(),
        notes: notes.collect(),
        searched_total: running.steps.get(&step).and_then(|state| state.searched_total),
        records: RecordRenderer::new(view, domain).render_references(step_references),
        others,
        results: ended
            .iter()
            .map(|(other, end)| StepResultForPrompt {
                step: other.step,
                kind: other.kind.as_str(),
                subdomain: other.subdomain.clone(),
                outcome: end.outcome.clone(),
                result: load_step_result(view, end).map(|result| fence_text(&result)),
            })
            .collect(),
    })
}

/// Returns the records that a step is shown in full: those that it names, or the relevant ones of its type if it names none, and
/// everything that earlier steps of this turn read.
#[must_use]
pub fn references_shown_to_step<'a>(view: &AssistantFlowContext<'a>, planned: &'a AssistantPlanStep) -> Vec<&'a str> {
    let state = view.state;
    let mut shown: Vec<&str> = planned.refs.iter().map(String::as_str).collect();
    if shown.is_empty() {
        let relevant = state.entities.relevant_entities(state.current_turn_number()).into_iter();
        let own = relevant.filter(|(_, entity, _)| entity.kind == planned.subdomain);
        shown.extend(own.map(|(reference, _, _)| reference));
    }
    let running = state.current_turn.as_ref();
    for reference in running.map(|running| running.references_read_before(planned)).unwrap_or_default() {
        let is_relevant = state
            .entities
            .get(reference)
            .is_some_and(|entity| entity.relevance_tier(state.current_turn_number()).is_relevant());
        if is_relevant && !shown.contains(&reference) {
            shown.push(reference);
        }
    }
    shown
}

/// The data of Reply's prompt.
#[derive(Debug, Clone, Serialize)]
pub struct ReplyPromptContext {
    /// The number of the turn, from 1.
    pub turn: u32,
    pub phase: &'static str,
    /// What the user wants, in a few words.
    pub intent: String,
    /// The beginning of the previous reply.
    pub last_reply: Option<String>,
    /// The entities that the conversation is about.
    pub rows: Vec<EntityForPrompt>,
    pub conversation: ConversationForPrompt,
    pub execution: ExecutedTurnForReplyPrompt,
}

/// What was actually executed in a turn.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutedTurnForReplyPrompt {
    pub plan_failure: Option<String>,
    pub decision: Option<&'static str>,
    /// The proposal or question for the user.
    pub message_to_user: Option<String>,
    pub goal: String,
    /// Planned reads that were left out because their records are loaded.
    pub skipped_steps: Vec<String>,
    /// Planned writes that were left out because the message asks only for information.
    pub withheld_writes: Vec<String>,
    pub steps: Vec<ExecutedStepForReplyPrompt>,
    /// One line for each change.
    pub write_summaries: Vec<String>,
}

/// The outcome of one step, with labels in place of references.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutedStepForReplyPrompt {
    description: String,
    #[serde(skip)]
    pub is_done: bool,
    status: &'static str,
    outcome: String,
    question: Option<String>,
    partial: Option<String>,
    next: Option<String>,
    result: Option<String>,
    drafts: Vec<String>,
}

/// Builds the data of Reply's prompt.
#[must_use]
pub fn build_reply_context(view: &AssistantFlowContext<'_>, domain: &DomainSchema) -> ReplyPromptContext {
    let state = view.state;
    let running = state.current_turn.clone().unwrap_or_default();
    let phase = running.stage_label(&state.entities);
    let last_reply = state.conversation.recent.iter().rev().find_map(|exchange| exchange.reply);
    let rows = state.entities.entities_by_recency(state.current_turn_number()).into_iter();
    let rows = rows.filter(|(_, _, tier)| tier.is_relevant() || *tier == EntityRelevanceTier::Demoted);
    ReplyPromptContext {
        turn: running.turn,
        phase: phase.as_str(),
        intent: running.understanding.as_ref().map(|understanding| understanding.intent.clone()).unwrap_or_default(),
        last_reply: last_reply.map(|text| one_line_excerpt(&view.read_text(text))),
        rows: rows.map(|row| EntityForPrompt::from_entity(&row)).take(REGISTRY_ROWS_MAX).collect(),
        conversation: ConversationForPrompt::from_recent_turns(view, REPLY_TURNS_SHOWN),
        execution: build_turn_outcome(view, domain, &running),
    }
}

fn one_line_excerpt(text: &str) -> String {
    truncate_chars(&text.split_whitespace().collect::<Vec<_>>().join(" "), MESSAGE_EXCERPT_CHARS_MAX / 4)
}

/// Collects what was executed in a turn, with labels in place of references.
#[must_use]
pub fn build_turn_outcome(
    view: &AssistantFlowContext<'_>,
    domain: &DomainSchema,
    running: &AssistantTurnProgress,
) -> ExecutedTurnForReplyPrompt {
    let entities = &view.state.entities;
    let plan = running.plan.as_ref();
    let steps = plan.into_iter().flat_map(|plan| &plan.steps).map(|planned| {
        let end = running.steps.get(&planned.step).and_then(|state| state.end.as_ref());
        let with_labels = |text: &str| entities.replace_references_with_labels(text);
        let rows = RecordRenderer::new(view, domain);
        let drafts = end.into_iter().flat_map(|end| &end.drafts);
        ExecutedStepForReplyPrompt {
            description: with_labels(&planned.description),
            is_done: end.is_some_and(|end| end.status == AssistantStepEndStatus::Done),
            status: AssistantStepEndStatus::describe(end.map(|end| end.status)),
            outcome: end.map(|end| with_labels(&end.outcome)).unwrap_or_default(),
            question: end.and_then(|end| end.question.as_deref().map(with_labels)),
            partial: end
                .and_then(|end| end.partial_result.as_ref())
                .map(|partial| fence_text(&with_labels(&value_to_text(partial)))),
            next: end.and_then(|end| end.suggested_next.as_deref().map(with_labels)),
            result: end.and_then(|end| match end.answer {
                Some(_) => load_step_result(view, end).map(|result| fence_text(&with_labels(&result))),
                None => rows.render_plain_rows(end.refs.iter().map(String::as_str)),
            }),
            drafts: drafts
                .filter_map(|draft| rows.render_draft_with_reference_labels(&draft.reference))
                .map(|draft| fence_text(&draft))
                .collect(),
        }
    });
    ExecutedTurnForReplyPrompt {
        plan_failure: running.plan_failure.clone(),
        decision: plan.map(|plan| plan.decision.as_str()),
        message_to_user: plan
            .and_then(|plan| plan.message_to_user.as_deref())
            .map(|message| entities.replace_references_with_labels(message)),
        goal: plan.map(|plan| entities.replace_references_with_labels(&plan.goal)).unwrap_or_default(),
        skipped_steps: plan
            .map(|plan| plan.skipped_steps.iter().map(|line| entities.replace_references_with_labels(line)).collect())
            .unwrap_or_default(),
        withheld_writes: plan
            .map(|plan| plan.withheld_writes.iter().map(|line| entities.replace_references_with_labels(line)).collect())
            .unwrap_or_default(),
        steps: steps.collect(),
        write_summaries: running.write_summaries.clone(),
    }
}

impl ExecutedStepForReplyPrompt {
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    #[must_use]
    pub fn outcome(&self) -> &str {
        &self.outcome
    }

    #[must_use]
    pub fn question(&self) -> Option<&str> {
        self.question.as_deref()
    }
}

/// Returns the full result of a step from the answer that completed it.
#[must_use]
pub fn load_step_result(view: &AssistantFlowContext<'_>, end: &AssistantStepEnd) -> Option<String> {
    extract_step_result(&view.read_text(end.answer?))
}

/// Returns the `result` of an answer of Act.
#[must_use]
pub fn extract_step_result(answer: &str) -> Option<String> {
    let found = segue_core::signal::find_json_where(answer, |value| value.get("action").is_some());
    match found.value?.get("result") {
        None | Some(Value::Null) => None,
        Some(result) => Some(truncate_chars(&value_to_text(result), STEP_RESULT_CHARS_MAX))
            .filter(|result| !result.trim().is_empty()),
    }
}

/// Returns a string as it is, and any other value as JSON.
fn value_to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| segue_core::signal::canonical_json(value), str::to_owned)
}

fn fence_text(text: &str) -> String {
    segue_core::signal::wrap_in_code_fence(text)
}
