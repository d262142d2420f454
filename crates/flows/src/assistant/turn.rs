//! Moves a turn through its nodes: Understand, Think, the steps by group, Reply, Summarize. A node with an invalid answer is asked
//! once to correct it. After that the turn continues with the valid parts, and the reply says what was done and what was not.

use segue_core::event::{CallAnswered, CallOpened, ReplySent, TurnOutcome};
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use serde_json::json;

use super::assistant_context::AssistantSessionContext;
use super::facts::{
    AnswerRepairLevel, AssistantFact, CompactedMemoryKind, FinishedTurnForMemory, MessageUnderstanding,
    PendingQuestion, PendingQuestionResponseKind, ProposalOrQuestion, ThinkDecision,
};
use super::prompt_context::{ExecutedTurnForReplyPrompt, build_turn_outcome};
use super::reasoning::{AssistantStepSummary, RetainedAndDemotedReferences, TurnDecisionSummary};
use super::spec::{ACT_ROLE, ASK_CONVERSATION, ASK_REASONING, REPLY_ROLE, SUMMARIZE_ROLE, THINK_ROLE, UNDERSTAND_ROLE};
use super::state::{AssistantNextAction, AssistantTurnProgress};
use super::tool_runs::{self, ToolListWait};
use super::{answer, snapshot, step};
use crate::limits::REMARK_CHARS_MAX;
use crate::template::fill_template;

/// Starts a turn. A domain's server is asked for its tools in every turn, since they can change; only the first turn waits for
/// the list.
pub(super) fn handle_turn_started(context: &AssistantSessionContext<'_>) -> Vec<FlowStep> {
    match (&context.domain.server, context.state().server_tools.is_empty()) {
        (None, _) => {
            snapshot::request_snapshot(context).into_iter().chain([context.call_node(UNDERSTAND_ROLE)]).collect()
        }
        (Some(_), true) => vec![tool_runs::list_server_tools(context, ToolListWait::BlockTurn)],
        (Some(_), false) => {
            vec![tool_runs::list_server_tools(context, ToolListWait::Background), context.call_node(UNDERSTAND_ROLE)]
        }
    }
}

/// Ends a turn that has no domain to work with.
pub(super) fn fail_turn_without_domain(why: &str) -> Vec<FlowStep> {
    let text = fill_template(include_str!("../../prompts/assistant/shared/no_domain.md"), &json!({"why": why}));
    let reason = why.to_owned();
    vec![
        FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None },
        FlowStep::EndTurn(TurnOutcome::Failed { reason }),
    ]
}

/// Handles the answer of a node.
pub(super) fn handle_node_answer(
    context: &AssistantSessionContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    if !context.is_event_of_current_turn() {
        return Vec::new();
    }
    let text = context.view.read_text(answered.text);
    match call.role.as_str() {
        UNDERSTAND_ROLE => handle_understand_answer(context, call, &text),
        THINK_ROLE => record_plan_from_answer(context, call, &text),
        ACT_ROLE => step::handle_act_answer(context, call, answered, &text),
        REPLY_ROLE if text.trim().is_empty() => {
            let complaints = ["the answer was empty".to_owned()];
            context.request_repair(call, &complaints).unwrap_or_else(|| vec![compose_fallback_reply(context)])
        }
        REPLY_ROLE => {
            vec![FlowStep::Reply {
                text: NewOrStoredReplyText::Stored(answered.text),
                role: Some(REPLY_ROLE.into()),
                call: Some(call.call),
            }]
        }
        SUMMARIZE_ROLE => handle_compaction_answer(context, call, answered, &text),
        _ => Vec::new(),
    }
}

/// Handles a node call that failed and will not be retried.
pub(super) fn handle_node_failure(
    context: &AssistantSessionContext<'_>,
    call: &CallOpened,
    why: &str,
) -> Vec<FlowStep> {
    if !context.is_event_of_current_turn() {
        return Vec::new();
    }
    match call.role.as_str() {
        ACT_ROLE => step::handle_act_failure(context, call, why),
        REPLY_ROLE => vec![compose_fallback_reply(context)],
        SUMMARIZE_ROLE => record_compaction_failure(context, call, why),
        _ => vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: why.to_owned() })],
    }
}

fn handle_understand_answer(context: &AssistantSessionContext<'_>, call: &CallOpened, text: &str) -> Vec<FlowStep> {
    let Some(running) = context.current_turn() else { return Vec::new() };
    let parsed = answer::parse_understand_answer(text, &context.state().entities, running.turn);
    if !parsed.complaints.is_empty()
        && let Some(steps) = context.request_repair(call, &parsed.complaints)
    {
        return steps;
    }
    let quality = classify_answer_quality(context.repair_count(UNDERSTAND_ROLE), &parsed.complaints);
    let value =
        parsed.value.unwrap_or_else(|| MessageUnderstanding { turn: running.turn, ..MessageUnderstanding::default() });
    let understood =
        AssistantFact::MessageUnderstood(MessageUnderstanding { quality, complaints: parsed.complaints, ..value });
    // Think is shown the snapshot, so it waits for it.
    let think = running.pending_snapshot.is_none().then(|| context.call_node(THINK_ROLE));
    std::iter::once(understood.into_step()).chain(think).collect()
}

fn record_plan_from_answer(context: &AssistantSessionContext<'_>, call: &CallOpened, text: &str) -> Vec<FlowStep> {
    let Some(running) = context.current_turn() else { return Vec::new() };
    let response = running.understanding.as_ref().and_then(|understanding| understanding.response_to_pending);
    let may_change =
        matches!(response, Some(PendingQuestionResponseKind::Accepted | PendingQuestionResponseKind::Answered));
    let parsed = answer::parse_think_answer(text, context.domain, &context.state().entities, running.turn, may_change);
    if !parsed.complaints.is_empty()
        && let Some(steps) = context.request_repair(call, &parsed.complaints)
    {
        return steps;
    }
    let quality = classify_answer_quality(context.repair_count(THINK_ROLE), &parsed.complaints);
    match parsed.value {
        Some(mut plan) => {
            plan.quality = quality;
            vec![AssistantFact::Planned(plan).into_step()]
        }
        None => vec![AssistantFact::PlanFailed { why: parsed.complaints.join("; ") }.into_step()],
    }
}

fn classify_answer_quality(repairs: u32, complaints: &[String]) -> AnswerRepairLevel {
    match (repairs, complaints.is_empty()) {
        (0, true) => AnswerRepairLevel::FirstAttempt,
        (_, true) => AnswerRepairLevel::Repaired,
        (_, false) => AnswerRepairLevel::Salvaged,
    }
}

/// Starts the next steps of the plan, or calls Reply.
pub(super) fn advance_turn(context: &AssistantSessionContext<'_>) -> Vec<FlowStep> {
    let Some(running) = context.current_turn() else { return Vec::new() };
    match running.next_action() {
        AssistantNextAction::StartSteps(steps) => {
            steps.into_iter().flat_map(|number| step::start_step(context, number)).collect()
        }
        AssistantNextAction::Wait => Vec::new(),
        AssistantNextAction::Reply => vec![context.call_node(REPLY_ROLE)],
    }
}

/// Records the turn's summary once the reply was sent.
pub(super) fn handle_reply_sent(context: &AssistantSessionContext<'_>, reply: &ReplySent) -> Vec<FlowStep> {
    let Some(running) = context.current_turn().filter(|running| reply.turn.is_some_and(|turn| turn.0 == running.turn))
    else {
        return Vec::new();
    };
    vec![record_turn_summarized(context, running, None)]
}

/// Records the summary of a turn that ended without a reply.
pub(super) fn handle_turn_ended(context: &AssistantSessionContext<'_>, outcome: &TurnOutcome) -> Vec<FlowStep> {
    let Some(running) = &context.state().current_turn else { return Vec::new() };
    let why = match outcome {
        TurnOutcome::Done => None,
        TurnOutcome::Failed { reason } => Some(reason.clone()),
        TurnOutcome::Cancelled => Some("the user stopped the turn".to_owned()),
        TurnOutcome::Interrupted => Some("a newer message interrupted the turn".to_owned()),
    };
    vec![record_turn_summarized(context, running, why)]
}

/// Records the turn in the state. Code does this, not a model, so that it never fails.
fn record_turn_summarized(
    context: &AssistantSessionContext<'_>,
    running: &AssistantTurnProgress,
    why: Option<String>,
) -> FlowStep {
    let summary = context.settings.turn_narratives.then(|| build_turn_summary(context, running, why));
    AssistantFact::TurnSummarized(Box::new(FinishedTurnForMemory {
        turn: running.turn,
        messages: running.messages.clone(),
        reply: running.reply,
        pending: find_pending_input(running),
        summary,
    }))
    .into_step()
}

fn build_turn_summary(
    context: &AssistantSessionContext<'_>,
    running: &AssistantTurnProgress,
    why: Option<String>,
) -> TurnDecisionSummary {
    let plan = running.plan.as_ref();
    let understanding = running.understanding.clone().unwrap_or_default();
    let steps = plan.into_iter().flat_map(|plan| &plan.steps).map(|planned| {
        let end = running.steps.get(&planned.step).and_then(|state| state.end.as_ref());
        AssistantStepSummary {
            step: planned.step,
            kind: planned.kind,
            subdomain: planned.subdomain.clone(),
            status: end.map(|end| end.status),
            outcome: end.map(|end| end.outcome.clone()).unwrap_or_default(),
            refs: end
                .map(|end| end.refs.clone())
                .filter(|refs| !refs.is_empty())
                .unwrap_or_else(|| planned.refs.clone()),
            note: end.and_then(|end| end.note.clone()),
        }
    });
    let reasons = understanding.retained.iter().chain(&understanding.demoted).filter(|one| !one.reason.is_empty());
    let curation = RetainedAndDemotedReferences {
        retained: understanding.retained.iter().map(|retained| retained.reference.clone()).collect(),
        demoted: understanding.demoted.iter().map(|demoted| demoted.reference.clone()).collect(),
        reasons: reasons.map(|one| format!("{}: {}", one.reference, one.reason)).collect(),
    };
    let user_text = || {
        let messages: Vec<String> =
            running.messages.iter().map(|(_, text)| context.view.read_text(*text).to_string()).collect();
        answer::truncate_chars(&messages.join(" ").split_whitespace().collect::<Vec<_>>().join(" "), REMARK_CHARS_MAX)
    };
    TurnDecisionSummary {
        turn: running.turn,
        decision: plan.map(|plan| plan.decision),
        goal: plan.map(|plan| plan.goal.clone()).unwrap_or_default(),
        steps: steps.collect(),
        curation,
        phase: running.stage_label(&context.state().entities),
        intent: if understanding.intent.is_empty() { user_text() } else { understanding.intent },
        blocked_reason: running.incomplete_plan_reason().or(why),
    }
}

/// Returns the question or proposal that the turn leaves open.
fn find_pending_input(running: &AssistantTurnProgress) -> Option<PendingQuestion> {
    let turn = running.turn;
    let asking = running.steps.values().filter_map(|state| state.end.as_ref()).find(|end| end.question.is_some());
    if let Some(end) = asking {
        let text = end.question.clone().unwrap_or_default();
        return Some(PendingQuestion {
            turn,
            kind: ProposalOrQuestion::Question,
            text,
            partial_result: end.partial_result.clone(),
        });
    }
    let plan = running.plan.as_ref()?;
    let kind = match plan.decision {
        ThinkDecision::PlanDirect => return None,
        ThinkDecision::Propose => ProposalOrQuestion::Proposal,
        ThinkDecision::Clarify => ProposalOrQuestion::Question,
    };
    Some(PendingQuestion { turn, kind, text: plan.message_to_user.clone()?, partial_result: None })
}

/// Builds a plain reply from the turn's results, for the case that Reply gives none.
fn compose_fallback_reply(context: &AssistantSessionContext<'_>) -> FlowStep {
    let running = context.current_turn().cloned().unwrap_or_default();
    let ExecutedTurnForReplyPrompt { plan_failure, message_to_user, steps, write_summaries, .. } =
        build_turn_outcome(context.view, context.domain, &running);
    let question = message_to_user.or_else(|| steps.iter().find_map(|step| step.question().map(str::to_owned)));
    let line = |step: &super::prompt_context::ExecutedStepForReplyPrompt| match step.outcome() {
        "" => step.description().to_owned(),
        outcome => format!("{}: {outcome}", step.description()),
    };
    let outcomes: Vec<String> = steps.iter().filter(|step| step.is_done).map(line).collect();
    let not_done: Vec<String> = steps.iter().filter(|step| !step.is_done).map(line).chain(plan_failure).collect();
    let arguments =
        json!({"question": question, "write_summaries": write_summaries, "outcomes": outcomes, "not_done": not_done});
    let text = fill_template(include_str!("../../prompts/assistant/reply/account.md"), &arguments);
    FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None }
}

/// Tells the user about changes that were made after their turn was stopped.
pub(super) fn report_late_writes(write_summaries: &serde_json::Value) -> FlowStep {
    let arguments = json!({"question": null, "write_summaries": write_summaries, "outcomes": [], "not_done": []});
    let text = fill_template(include_str!("../../prompts/assistant/reply/account.md"), &arguments);
    FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None }
}

/// Starts the compaction of older turns, or ends the turn if there is nothing to compact.
pub(super) fn start_compaction_or_end_turn(
    context: &AssistantSessionContext<'_>,
    summarized: &FinishedTurnForMemory,
) -> Vec<FlowStep> {
    let turn = context.view.session.current_turn.as_ref().map(|turn| turn.id.0);
    if turn != Some(summarized.turn) {
        return Vec::new();
    }
    let state = context.state();
    let mut steps = Vec::new();
    if context.settings.turn_narratives && !state.reasoning.uncompacted.is_empty() {
        steps.push(FlowStep::Call(segue_core::event::CallRequest::new(SUMMARIZE_ROLE, ASK_REASONING)));
    }
    if !state.conversation.uncompacted.is_empty() {
        steps.push(FlowStep::Call(segue_core::event::CallRequest::new(SUMMARIZE_ROLE, ASK_CONVERSATION)));
    }
    if steps.is_empty() {
        steps.push(FlowStep::EndTurn(TurnOutcome::Done));
    }
    steps
}

fn handle_compaction_answer(
    context: &AssistantSessionContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
    text: &str,
) -> Vec<FlowStep> {
    if text.trim().is_empty() {
        return record_compaction_failure(context, call, "the answer was empty");
    }
    let state = context.state();
    let fact = match summarize_call_layer(call) {
        CompactedMemoryKind::Reasoning => {
            let through_turn = state.reasoning.uncompacted.back().map(|summary| summary.turn);
            through_turn.map(|through_turn| AssistantFact::ReasoningCompacted { through_turn, text: answered.text })
        }
        CompactedMemoryKind::Conversation => {
            let through_turn = state.conversation.uncompacted.back().map(|exchange| exchange.turn);
            through_turn.map(|through_turn| AssistantFact::ConversationCompacted { through_turn, text: answered.text })
        }
    };
    fact.map(AssistantFact::into_step).into_iter().chain(end_turn_unless_compacting(context)).collect()
}

/// Records that a compaction failed. The memory stays as it was, and the turn still succeeds.
fn record_compaction_failure(context: &AssistantSessionContext<'_>, call: &CallOpened, why: &str) -> Vec<FlowStep> {
    let fact = AssistantFact::CompactionFailed { layer: summarize_call_layer(call), why: why.to_owned() };
    std::iter::once(fact.into_step()).chain(end_turn_unless_compacting(context)).collect()
}

fn summarize_call_layer(call: &CallOpened) -> CompactedMemoryKind {
    if call.ask == *ASK_REASONING { CompactedMemoryKind::Reasoning } else { CompactedMemoryKind::Conversation }
}

fn end_turn_unless_compacting(context: &AssistantSessionContext<'_>) -> Option<FlowStep> {
    let is_compacting = context
        .view
        .session
        .open_calls
        .values()
        .any(|open| open.opened.role == *SUMMARIZE_ROLE && open.opened.recomputation.is_none());
    (!is_compacting).then_some(FlowStep::EndTurn(TurnOutcome::Done))
}
