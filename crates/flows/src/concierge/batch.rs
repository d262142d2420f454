//! Runs a batch: asks all experts, decides when enough answers have arrived, and has them mapped. Failed answers are
//! left out and late ones are recorded but ignored. Two answers make a map and one is used as it is. Without any answer
//! the turn fails; a retry repeats only the failed calls.

use segue_core::body::TextRef;
use segue_core::event::{CallAnswered, CallOpened, CallRequest, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::{CallId, MessageId};
use serde_json::json;

use super::analysis::analyse_claim_map;
use super::claim_map::{self, ClaimMapComplaint, ClaimMapParseError, ParsedClaimMap};
use super::facts::{
    ConciergeFact, ExpertBatchPurpose, ExpertBatchRequest, ExpertBatchResult, ExpertTask, RecordedClaimMap,
};
use super::settings::{ConciergeSettings, ExpertCallSpec};
use super::spec::{ASK_MAP, ASK_QUESTION, ASK_REPAIR_MAP, ASK_TASK, EXPERT_ROLE, MAPPER_ROLE};
use super::state::{ConciergeFlowContext, ExpertBatch, ExpertBatchStage};
use crate::limits::{BRIEF_LABELS_MAX, MAP_ANSWERS_MIN, MAP_FACT_BYTES_MAX};

/// Creates the request for the next batch.
pub(super) fn new_batch_request(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    purpose: ExpertBatchPurpose,
    task: Option<ExpertTask>,
    user_messages: Vec<(MessageId, TextRef)>,
) -> ExpertBatchRequest {
    ExpertBatchRequest {
        number: view.state.batch_count + 1,
        purpose,
        task,
        user_messages,
        slot_count: settings.expert_slots().len(),
    }
}

/// Starts a batch: cancels the open expert calls of an earlier one and calls all experts.
pub(super) fn start_batch(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    request: ExpertBatchRequest,
) -> Vec<FlowStep> {
    let (batch, purpose) = (request.number, request.purpose);
    let mut steps = cancel_open_expert_calls(view);
    steps.push(ConciergeFact::BatchStarted(request).into_step());
    let slots = settings.expert_slots();
    steps.extend(slots.iter().enumerate().map(|(index, slot)| call_expert(batch, purpose, index, slot)));
    steps.push(ConciergeFact::BatchDispatched { batch }.into_step());
    steps
}

/// Resumes a failed batch: calls the experts that have not answered, or maps the answers if it is closed.
pub(super) fn resume_batch(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    batch: &ExpertBatch,
) -> Vec<FlowStep> {
    let (number, purpose) = (batch.request.number, batch.request.purpose);
    if batch.stage == ExpertBatchStage::Closed {
        return process_closed_batch(view, settings);
    }
    let mut steps = vec![ConciergeFact::BatchResumed { batch: number }.into_step()];
    let slots = settings.expert_slots();
    let missing = slots.iter().enumerate().filter(|(index, _)| !batch.answers.contains_key(index));
    steps.extend(missing.map(|(index, slot)| call_expert(number, purpose, index, slot)));
    steps.push(ConciergeFact::BatchDispatched { batch: number }.into_step());
    steps
}

fn call_expert(batch: u32, purpose: ExpertBatchPurpose, slot_index: usize, slot: &ExpertCallSpec) -> FlowStep {
    let ask = match purpose {
        ExpertBatchPurpose::OpeningQuestion | ExpertBatchPurpose::EveryTurn => ASK_QUESTION,
        ExpertBatchPurpose::Plan | ExpertBatchPurpose::StepHelp => ASK_TASK,
    };
    let mut request = CallRequest { metadata: json!([batch, slot_index]), ..CallRequest::new(EXPERT_ROLE, ask) };
    request.model.clone_from(&slot.model);
    request.sample = slot.sample;
    FlowStep::Call(request)
}

/// Cancels the open expert calls of an earlier batch, so that no expert has two calls at once.
fn cancel_open_expert_calls(view: &ConciergeFlowContext<'_>) -> Vec<FlowStep> {
    let is_expert = |opened: &CallOpened| opened.role == *EXPERT_ROLE && opened.recomputation.is_none();
    let open = view.session.open_calls.iter().filter(|(_, open)| is_expert(&open.opened));
    open.map(|(call, _)| FlowStep::CancelCall { call: *call, reason: "a new batch has started".to_owned() }).collect()
}

/// Starts the timer of an expert call, if a timeout is set.
pub(super) fn start_answer_timer(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    opened: &CallOpened,
) -> Vec<FlowStep> {
    let slot = view.state.batch.as_ref().and_then(|batch| batch.slot_of_call(opened));
    let timeout_ms = slot.and_then(|slot| settings.expert_slots().get(slot)?.timeout_ms);
    timeout_ms
        .map(|after_ms| FlowStep::SetTimer { name: answer_timer_name(opened.call), after_ms })
        .into_iter()
        .collect()
}

fn answer_timer_name(call: CallId) -> String {
    format!("{EXPERT_ROLE} {call}")
}

/// Handles the end of an expert call, with or without an answer.
pub(super) fn handle_expert_call_end(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    call: &CallOpened,
    answered: bool,
) -> Vec<FlowStep> {
    let mut steps = Vec::new();
    if view.session.timers.values().any(|running| running.name == answer_timer_name(call.call)) {
        steps.push(FlowStep::StopTimer { name: answer_timer_name(call.call) });
    }
    if view.session.current_turn.is_none()
        || view.subject.turn != view.session.current_turn.as_ref().map(|turn| turn.id)
    {
        return steps;
    }
    let counts = view
        .state
        .batch
        .as_ref()
        .is_some_and(|batch| batch.slot_of_call(call).is_some() && batch.stage != ExpertBatchStage::Closed);
    if answered && !counts {
        let number =
            call.metadata.get(0).and_then(serde_json::Value::as_u64).and_then(|number| u32::try_from(number).ok());
        steps.push(ConciergeFact::LateAnswer { batch: number.unwrap_or_default(), call: call.call }.into_step());
    }
    if counts {
        steps.extend(close_batch_if_done(view, settings));
    }
    steps
}

/// Records that an answer is no longer awaited.
pub(super) fn handle_answer_timeout(view: &ConciergeFlowContext<'_>, timer_name: &str) -> Vec<FlowStep> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    let timed_out = batch.open_calls.iter().find(|(call, _)| answer_timer_name(**call) == timer_name);
    let fact = timed_out.map(|(call, slot)| ConciergeFact::AnswerTimedOut {
        batch: batch.request.number,
        slot: *slot,
        call: *call,
    });
    fact.map(ConciergeFact::into_step).into_iter().collect()
}

/// Closes the batch if enough answers have arrived or no more are awaited.
pub(super) fn close_batch_if_done(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> Vec<FlowStep> {
    let Some(batch) = view.state.batch.as_ref().filter(|batch| batch.stage == ExpertBatchStage::Dispatched) else {
        return Vec::new();
    };
    let has_deferred = view.session.deferred_calls.values().any(|deferred| deferred.request.role == *EXPERT_ROLE);
    let answers = batch.answers.len();
    let enough = settings.quorum.is_some_and(|quorum| answers >= quorum);
    if !enough && (has_deferred || batch.awaited_slots().next().is_some()) {
        return Vec::new();
    }
    let (number, missing) = (batch.request.number, batch.describe_missing_answers());
    if answers > 0 {
        return vec![ConciergeFact::BatchClosed { batch: number, answers, missing }.into_step()];
    }
    let reason = format!("no expert answered ({}); say \"retry\" to try again", missing.join("; "));
    let failed = ConciergeFact::BatchFailed { batch: number, missing };
    // Calls that are still open end with the turn.
    vec![failed.into_step(), FlowStep::EndTurn(TurnOutcome::Failed { reason })]
}

/// Has the answers of a closed batch mapped, or uses a single answer as it is.
pub(super) fn process_closed_batch(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> Vec<FlowStep> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    if batch.answers.len() >= MAP_ANSWERS_MIN as usize {
        return vec![call_mapper(settings, ASK_MAP, json!({"batch": batch.request.number}))];
    }
    let Some((call, text)) = batch.answers.values().next() else { return Vec::new() };
    let why = ClaimMapParseError::TooFewAnswers { answers: 1 }.to_string();
    let number = batch.request.number;
    vec![
        ConciergeFact::MapUnavailable { batch: number, why }.into_step(),
        complete_batch(batch, ExpertBatchResult::Single { call: *call, text: *text }),
    ]
}

fn call_mapper(settings: &ConciergeSettings, ask: &str, metadata: serde_json::Value) -> FlowStep {
    FlowStep::Call(CallRequest { model: settings.mapper.clone(), metadata, ..CallRequest::new(MAPPER_ROLE, ask) })
}

fn complete_batch(batch: &ExpertBatch, result: ExpertBatchResult) -> FlowStep {
    ConciergeFact::BatchCompleted { batch: batch.request.number, purpose: batch.request.purpose, result }.into_step()
}

/// Handles the mapper's reply. An unreadable map is requested once more.
pub(super) fn handle_map_reply(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    let Some(batch) = view.state.batch.as_ref().filter(|batch| batch.stage == ExpertBatchStage::Closed) else {
        return Vec::new();
    };
    let answers = u32::try_from(batch.answers.len()).unwrap_or(u32::MAX);
    let request_repair = |why: String| {
        let reply = answered.text;
        let metadata = json!({"batch": batch.request.number, "why": why, "reply": reply, "of": call.call});
        vec![call_mapper(settings, ASK_REPAIR_MAP, metadata)]
    };
    match claim_map::parse_claim_map(&view.read_text(answered.text), answers) {
        Ok(parsed) if call.ask == *ASK_MAP && parsed.is_truncated_before_edges() => {
            request_repair(ClaimMapComplaint::JsonTruncated.to_string())
        }
        Ok(parsed) => record_claim_map(batch, (call.call, answered.text), answers, &parsed),
        Err(why) if call.ask == *ASK_MAP => request_repair(why.to_string()),
        Err(why) => fall_back_to_first_map(view, batch, call, answers)
            .unwrap_or_else(|| complete_without_map(batch, why.to_string())),
    }
}

fn record_claim_map(
    batch: &ExpertBatch,
    (call, text): (CallId, TextRef),
    answers: u32,
    parsed: &ParsedClaimMap,
) -> Vec<FlowStep> {
    let mut steps = vec![build_map_fact(batch, call, answers, parsed).into_step()];
    steps.push(ConciergeFact::MapAnalysed(summarize_map_analysis(parsed, answers)).into_step());
    steps.push(complete_batch(batch, ExpertBatchResult::Mapped { call, text, answers }));
    steps
}

/// Uses the mapper's first reply after the repair has failed; `None` if that reply has no map either.
fn fall_back_to_first_map(
    view: &ConciergeFlowContext<'_>,
    batch: &ExpertBatch,
    call: &CallOpened,
    answers: u32,
) -> Option<Vec<FlowStep>> {
    let metadata = |name: &str| call.metadata.get(name).cloned();
    let text: TextRef = serde_json::from_value(metadata("reply")?).ok()?;
    let first: CallId = serde_json::from_value(metadata("of")?).ok()?;
    let parsed = claim_map::parse_claim_map(&view.read_text(text), answers).ok()?;
    Some(record_claim_map(batch, (first, text), answers, &parsed))
}

/// Handles a mapper call that failed for good.
pub(super) fn handle_mapper_failure(view: &ConciergeFlowContext<'_>, call: &CallOpened, why: String) -> Vec<FlowStep> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    let answers = u32::try_from(batch.answers.len()).unwrap_or(u32::MAX);
    fall_back_to_first_map(view, batch, call, answers).unwrap_or_else(|| complete_without_map(batch, why))
}

fn complete_without_map(batch: &ExpertBatch, why: String) -> Vec<FlowStep> {
    let number = batch.request.number;
    vec![
        ConciergeFact::MapUnavailable { batch: number, why }.into_step(),
        complete_batch(batch, ExpertBatchResult::Unmapped { texts: batch.answer_texts() }),
    ]
}

fn build_map_fact(batch: &ExpertBatch, call: CallId, answers: u32, parsed: &ParsedClaimMap) -> ConciergeFact {
    let bytes = serde_json::to_string(&parsed.map).map_or(usize::MAX, |text| text.len());
    ConciergeFact::MapParsed(RecordedClaimMap {
        batch: batch.request.number,
        call,
        answers,
        complaints: parsed.complaints.iter().map(ToString::to_string).collect(),
        map: (bytes <= MAP_FACT_BYTES_MAX).then(|| parsed.map.clone()),
    })
}

/// Returns the parts of an analysis that are recorded: all but the lists over claims.
fn summarize_map_analysis(parsed: &ParsedClaimMap, answers: u32) -> serde_json::Value {
    let analysis = analyse_claim_map(&parsed.map, answers);
    let label = |id: &claim_map::ClaimId| {
        parsed.map.claims.iter().find(|claim| claim.id == *id).map_or("", |claim| claim.label.as_str())
    };
    let labels = |ids: &[claim_map::ClaimId]| {
        ids.iter().take(BRIEF_LABELS_MAX).map(|id| label(id).to_owned()).collect::<Vec<_>>()
    };
    json!({
        "answers": analysis.answers,
        "claims": analysis.claims.len(),
        "edges": analysis.edge_count,
        "components": analysis.components.len(),
        "shape": analysis.shape,
        "confidence": analysis.confidence,
        "scores": analysis.scores,
        "ratios": analysis.ratios,
        "hub": analysis.hub.as_ref().map(|hub| label(&hub.claim)),
        "keystones": labels(&analysis.keystones),
        "leverage_inversions": labels(&analysis.leverage_inversions),
        "evidence_gaps": labels(&analysis.evidence_gaps.iter().map(|gap| gap.claim.clone()).collect::<Vec<_>>()),
        "fragility": {
            "weak_articulation_points": labels(&analysis.fragility.weak_articulation_points),
            "conditional_conflicts": analysis.fragility.conditional_conflicts,
            "disconnected_consensus": analysis.fragility.has_disconnected_consensus,
        },
        "gaps": parsed.map.gaps.len(),
    })
}
