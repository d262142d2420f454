//! What each node is shown of the three layers: one builder a node, each a reading of the state that cannot change it.
//!
//! | node | entities | conversation | reasoning |
//! |---|---|---|---|
//! | Understand | the registry's newest rows | five turns, what is pending | its own past decisions |
//! | Think | references, labels, what is loaded | two turns, the folded rest, what is pending | two turns in full, the folded rest, this turn's curation |
//! | Act | full records of its step, names of the rest | the message | this turn's results and notes |
//! | Reply | labels, saved or not | recent turns | where things stand, what really happened |

mod conversation;
mod entity;
mod reasoning;

use segue_core::flow::FlowContext;
use serde::Serialize;
use serde_json::Value;

pub use conversation::{PromptConversation, PromptPendingInput};
pub use entity::{PromptEntity, RecordLines, RecordRenderer, sample_record_and_change};
pub use reasoning::{PromptReasoning, PromptTurnSummary};

use super::answer::truncate_chars;
use super::domain::DomainSchema;
use super::facts::{PlannedStep, ReferenceWithReason, StepEnd, StepEndStatus};
use super::reasoning::ConversationPhase;
use super::registry::RelevanceTier;
use super::settings::Settings;
use super::state::{AssistantState, TurnProgress};
use crate::limits::{
    MESSAGE_EXCERPT_CHARS_MAX, REGISTRY_ROWS_MAX, REPLY_TURNS_SHOWN, STEP_RESULT_CHARS_MAX, THINK_ROWS_MAX,
    THINK_TURNS_SHOWN, UNDERSTAND_TURNS_SHOWN,
};

type AssistantView<'a> = FlowContext<'a, AssistantState>;

/// What Understand is shown.
#[derive(Debug, Clone, Serialize)]
pub struct UnderstandContext {
    /// The registry's newest rows.
    pub rows: Vec<PromptEntity>,
    /// How many are not shown.
    pub hidden_count: usize,
    /// What was said.
    pub conversation: PromptConversation,
    /// What it made of earlier messages.
    pub past_understandings: Vec<PromptUnderstanding>,
    /// What waits for an answer.
    pub pending: Option<PromptPendingInput>,
}

/// What Understand made of an earlier message.
#[derive(Debug, Clone, Serialize)]
pub struct PromptUnderstanding {
    turn: u32,
    intent: String,
    retained: Vec<String>,
    demoted: Vec<String>,
    dropped: Vec<String>,
}

/// Builds what Understand is shown.
#[must_use]
pub fn build_understand_context(view: &AssistantView<'_>, settings: &Settings) -> UnderstandContext {
    let memory = view.state;
    let all = memory.entities.entities_by_recency(memory.current_turn_number());
    let known = all.iter().filter(|(_, _, tier)| *tier != RelevanceTier::Dropped);
    let rows: Vec<PromptEntity> = known.map(PromptEntity::from_entity).collect();
    let more = rows.len().saturating_sub(REGISTRY_ROWS_MAX);
    let names = |reasoned: &[ReferenceWithReason]| reasoned.iter().map(|one| one.reference.clone()).collect();
    let decisions =
        memory.recent_understandings.iter().filter(|_| settings.turn_narratives).map(|past| PromptUnderstanding {
            turn: past.turn,
            intent: past.intent.clone(),
            retained: names(&past.retained),
            demoted: names(&past.demoted),
            dropped: past.dropped.clone(),
        });
    UnderstandContext {
        rows: rows.into_iter().take(REGISTRY_ROWS_MAX).collect(),
        hidden_count: more,
        conversation: PromptConversation::recent(view, UNDERSTAND_TURNS_SHOWN),
        past_understandings: decisions.collect(),
        pending: PromptPendingInput::from_state(memory),
    }
}

/// What Think is shown.
#[derive(Debug, Clone, Serialize)]
pub struct ThinkContext {
    /// References and labels of what is near, and what of each is at hand. No record.
    pub relevant: Vec<PromptEntity>,
    /// How many are not shown.
    pub hidden_count: usize,
    /// What need not be read again.
    pub loaded: Vec<PromptEntity>,
    /// Types of which everything is at hand.
    pub fully_loaded_types: Vec<String>,
    /// What was said.
    pub conversation: PromptConversation,
    /// What waits for an answer.
    pub pending: Option<PromptPendingInput>,
    /// What was decided before.
    pub reasoning: Option<PromptReasoning>,
    /// What was understood in this turn.
    pub curation: Option<PromptCuration>,
}

/// What Understand did in this turn.
#[derive(Debug, Clone, Serialize)]
pub struct PromptCuration {
    intent: String,
    references: Vec<String>,
    retained: Vec<ReferenceWithReason>,
    demoted: Vec<ReferenceWithReason>,
    dropped: Vec<String>,
    pending: Option<Value>,
}

/// Builds what Think is shown.
#[must_use]
pub fn build_think_context(view: &AssistantView<'_>, settings: &Settings) -> ThinkContext {
    let memory = view.state;
    let near: Vec<PromptEntity> =
        memory.entities.relevant_entities(memory.current_turn_number()).iter().map(PromptEntity::from_entity).collect();
    let loaded: Vec<PromptEntity> = near.iter().filter(|row| row.is_loaded()).cloned().collect();
    let complete = memory.fully_loaded_types.iter().filter(|kind| memory.is_type_fully_loaded(kind)).cloned().collect();
    let understood = memory.current_turn.as_ref().and_then(|running| running.understanding.as_ref());
    let curation = understood.map(|understood| PromptCuration {
        intent: understood.intent.clone(),
        references: understood.references.clone(),
        retained: understood.retained.clone(),
        demoted: understood.demoted.clone(),
        dropped: understood.dropped.clone(),
        pending: understood.response_to_pending.and_then(|answer| serde_json::to_value(answer).ok()),
    });
    ThinkContext {
        hidden_count: near.len().saturating_sub(THINK_ROWS_MAX),
        relevant: near.into_iter().take(THINK_ROWS_MAX).collect(),
        loaded: loaded.into_iter().take(THINK_ROWS_MAX).collect(),
        fully_loaded_types: complete,
        conversation: PromptConversation::recent(view, THINK_TURNS_SHOWN),
        pending: PromptPendingInput::from_state(memory),
        reasoning: Some(PromptReasoning::recent(view)).filter(|past| settings.turn_narratives && !past.is_empty()),
        curation,
    }
}

/// What Act is shown for a step.
#[derive(Debug, Clone, Serialize)]
pub struct ActContext {
    /// What the plan is for.
    pub goal: String,
    /// How many steps it has.
    pub step_count: usize,
    /// The step.
    pub step: PlannedStep,
    /// What the steps before want it to know.
    pub notes: Vec<PromptStepNote>,
    /// The records of its references, or of what is near where it names none.
    pub records: RecordLines,
    /// The other things known, by name.
    pub others: Vec<PromptEntity>,
    /// What steps before it came to.
    pub results: Vec<PromptStepResult>,
}

/// A note of an earlier step.
#[derive(Debug, Clone, Serialize)]
pub struct PromptStepNote {
    step: u32,
    note: String,
}

/// What an earlier step came to.
#[derive(Debug, Clone, Serialize)]
pub struct PromptStepResult {
    step: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    subdomain: String,
    outcome: String,
    result: Option<String>,
}

/// Builds what Act is shown for a step.
#[must_use]
pub fn build_act_context(view: &AssistantView<'_>, domain: &DomainSchema, step: u32) -> Option<ActContext> {
    let memory = view.state;
    let running = memory.current_turn.as_ref()?;
    let plan = running.plan.as_ref()?;
    let planned = running.planned_step(step)?;
    let near = memory.entities.relevant_entities(memory.current_turn_number());
    let named = |reference: &str| planned.refs.iter().any(|wanted| wanted == reference);
    let is_its = |row: &(&str, _, RelevanceTier)| {
        if planned.refs.is_empty() {
            memory.entities.get(row.0).is_some_and(|known| known.kind == planned.subdomain)
        } else {
            named(row.0)
        }
    };
    let own: Vec<&str> = if planned.refs.is_empty() {
        near.iter().filter(|row| is_its(row)).map(|(name, _, _)| *name).collect()
    } else {
        planned.refs.iter().map(String::as_str).collect()
    };
    // What was set aside is told as such, so that nobody brings it back by chance.
    let aside = memory
        .entities
        .entities_by_recency(memory.current_turn_number())
        .into_iter()
        .filter(|(name, _, tier)| *tier == RelevanceTier::Demoted && !named(name));
    let others = near.iter().filter(|row| !is_its(row)).map(PromptEntity::from_entity);
    let others = others.chain(aside.map(|row| PromptEntity::from_entity(&row))).take(THINK_ROWS_MAX).collect();
    let before = plan.steps.iter().filter(|other| other.group < planned.group);
    let ended: Vec<(&PlannedStep, &StepEnd)> =
        before.filter_map(|other| Some((other, running.steps.get(&other.step)?.end.as_ref()?))).collect();
    let last_group = ended.iter().map(|(other, _)| other.group).max();
    let notes = ended.iter().filter(|(other, _)| Some(other.group) == last_group);
    let notes = notes.filter_map(|(other, end)| Some(PromptStepNote { step: other.step, note: end.note.clone()? }));
    Some(ActContext {
        goal: plan.goal.clone(),
        step_count: plan.steps.len(),
        step: planned.clone(),
        notes: notes.collect(),
        records: RecordRenderer::new(view, domain).render_references(own),
        others,
        results: ended
            .iter()
            .map(|(other, end)| PromptStepResult {
                step: other.step,
                kind: other.kind.as_str(),
                subdomain: other.subdomain.clone(),
                outcome: end.outcome.clone(),
                result: load_step_result(view, end).map(|result| fence_text(&result)),
            })
            .collect(),
    })
}

/// What Reply is shown.
#[derive(Debug, Clone, Serialize)]
pub struct ReplyContext {
    /// The how-manieth turn it is.
    pub turn: u32,
    /// How far the conversation has come.
    pub phase: &'static str,
    /// What that means.
    pub phase_description: &'static str,
    /// What the user expressed.
    pub intent: String,
    /// What was replied last.
    pub last_reply: Option<String>,
    /// What is talked about, by name.
    pub rows: Vec<PromptEntity>,
    /// What was said.
    pub conversation: PromptConversation,
    /// What really happened.
    pub execution: TurnExecution,
}

/// What really happened in a turn.
#[derive(Debug, Clone, Serialize)]
pub struct TurnExecution {
    /// Why there was no plan.
    pub plan_failure: Option<String>,
    /// What was decided.
    pub decision: Option<&'static str>,
    /// What is proposed or asked.
    pub message_to_user: Option<String>,
    /// What for.
    pub goal: String,
    /// What was not needed.
    pub skipped_steps: Vec<String>,
    /// What became of each step.
    pub steps: Vec<StepExecution>,
    /// What was stored.
    pub write_summaries: Vec<String>,
}

/// What became of a step, in words.
#[derive(Debug, Clone, Serialize)]
pub struct StepExecution {
    description: String,
    /// Whether it is done.
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

/// Builds what Reply is shown.
#[must_use]
pub fn build_reply_context(view: &AssistantView<'_>, domain: &DomainSchema) -> ReplyContext {
    let memory = view.state;
    let running = memory.current_turn.clone().unwrap_or_default();
    let phase = running.phase(&memory.entities);
    let last = memory.conversation.recent.iter().rev().find_map(|exchange| exchange.reply);
    let rows = memory.entities.entities_by_recency(memory.current_turn_number()).into_iter();
    let rows = rows.filter(|(_, _, tier)| tier.is_relevant() || *tier == RelevanceTier::Demoted);
    ReplyContext {
        turn: running.turn,
        phase: phase.as_str(),
        phase_description: describe_phase(phase),
        intent: running.understanding.as_ref().map(|understood| understood.intent.clone()).unwrap_or_default(),
        last_reply: last.map(|text| one_line_excerpt(&view.read_text(text))),
        rows: rows.map(|row| PromptEntity::from_entity(&row)).take(REGISTRY_ROWS_MAX).collect(),
        conversation: PromptConversation::recent(view, REPLY_TURNS_SHOWN),
        execution: build_turn_execution(view, domain, &running),
    }
}

fn describe_phase(phase: ConversationPhase) -> &'static str {
    match phase {
        ConversationPhase::Exploring => "what is wanted is being found out",
        ConversationPhase::Narrowing => "choices are being made",
        ConversationPhase::Confirming => "something waits for their yes",
        ConversationPhase::Executing => "it is being done",
    }
}

fn one_line_excerpt(text: &str) -> String {
    truncate_chars(&text.split_whitespace().collect::<Vec<_>>().join(" "), MESSAGE_EXCERPT_CHARS_MAX / 4)
}

/// What really happened in a turn, with names in place of references.
#[must_use]
pub fn build_turn_execution(view: &AssistantView<'_>, domain: &DomainSchema, running: &TurnProgress) -> TurnExecution {
    let entities = &view.state.entities;
    let plan = running.plan.as_ref();
    let steps = plan.into_iter().flat_map(|plan| &plan.steps).map(|planned| {
        let end = running.steps.get(&planned.step).and_then(|state| state.end.as_ref());
        let words = |text: &str| entities.replace_references_with_labels(text);
        let rows = RecordRenderer::new(view, domain);
        let drafts = end.into_iter().flat_map(|end| &end.drafts);
        StepExecution {
            description: words(&planned.description),
            is_done: end.is_some_and(|end| end.status == StepEndStatus::Done),
            status: StepEndStatus::describe(end.map(|end| end.status)),
            outcome: end.map(|end| words(&end.outcome)).unwrap_or_default(),
            question: end.and_then(|end| end.question.as_deref().map(words)),
            partial: end
                .and_then(|end| end.partial_result.as_ref())
                .map(|partial| fence_text(&words(&value_to_text(partial)))),
            next: end.and_then(|end| end.suggested_next.as_deref().map(words)),
            result: end.and_then(|end| load_step_result(view, end)).map(|result| fence_text(&words(&result))),
            drafts: drafts
                .filter_map(|draft| rows.render_draft_with_labels(&draft.reference))
                .map(|draft| fence_text(&draft))
                .collect(),
        }
    });
    TurnExecution {
        plan_failure: running.plan_failure.clone(),
        decision: plan.map(|plan| plan.decision.as_str()),
        message_to_user: plan
            .and_then(|plan| plan.message_to_user.as_deref())
            .map(|say| entities.replace_references_with_labels(say)),
        goal: plan.map(|plan| entities.replace_references_with_labels(&plan.goal)).unwrap_or_default(),
        skipped_steps: plan
            .map(|plan| plan.skipped_steps.iter().map(|line| entities.replace_references_with_labels(line)).collect())
            .unwrap_or_default(),
        steps: steps.collect(),
        write_summaries: running.write_summaries.clone(),
    }
}

impl StepExecution {
    /// What it was for.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What came of it.
    #[must_use]
    pub fn outcome(&self) -> &str {
        &self.outcome
    }

    /// What the user is to be asked.
    #[must_use]
    pub fn question(&self) -> Option<&str> {
        self.question.as_deref()
    }
}

/// The full result of a step, as its answer gave it.
#[must_use]
pub fn load_step_result(view: &AssistantView<'_>, end: &StepEnd) -> Option<String> {
    extract_step_result(&view.read_text(end.answer?))
}

/// The result that an answer of Act holds.
#[must_use]
pub fn extract_step_result(answer: &str) -> Option<String> {
    let found = segue_core::signal::json::find_json_where(answer, |value| value.get("action").is_some());
    match found.value?.get("result") {
        None | Some(Value::Null) => None,
        Some(result) => Some(truncate_chars(&value_to_text(result), STEP_RESULT_CHARS_MAX))
            .filter(|result| !result.trim().is_empty()),
    }
}

/// A value for reading: text as it is, everything else as JSON.
fn value_to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| segue_core::signal::json::canonical_json(value), str::to_owned)
}

fn fence_text(text: &str) -> String {
    segue_core::signal::wrap_in_code_fence(text)
}
