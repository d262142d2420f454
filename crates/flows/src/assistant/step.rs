//! Carries out one step of a plan: loads its records, runs the tools that Act calls, and ends the step. Only the action
//! `step_complete` lets the plan continue. Tool calls, retrievals, repairs and empty reads are limited, so every step ends.

use segue_core::event::{CallAnswered, CallOpened};
use segue_core::flow::FlowStep;
use serde_json::{Map, Value, json};

use super::answer::{self, ActRecordDraft, ActStepCompletion, AssistantStepAction, truncate_chars};
use super::assistant_context::{AssistantSessionContext, step_agent_name};
use super::facts::{AssistantFact, AssistantPlanStep, AssistantPlanStepKind, AssistantStepEnd, AssistantStepEndStatus};
use super::registry::{LastEntityAction, RecordDraft, RecordLoadLevel};
use super::spec::ACT_ROLE;
use super::state::{AssistantStepProgress, AssistantTurnProgress};
use super::tools::{
    DomainOperation, DomainRequestOrAlreadyLoaded, DomainToolRequest, DomainToolRunPurpose, MCP_TOOL, RECORDS_TOOL,
    translate_tool_call,
};
use super::{planned_read, prompt_context};
use crate::limits::{NODE_REPAIRS_MAX, OUTCOME_CHARS_MAX, STEP_RETRIEVALS_MAX, STEP_TOOL_CALLS_MAX};

/// Returns the number of the step that a call of Act belongs to.
pub(super) fn call_step_number(call: &CallOpened) -> Option<u32> {
    (call.role == *ACT_ROLE)
        .then(|| call.metadata.get("step")?.as_u64())
        .flatten()
        .and_then(|step| u32::try_from(step).ok())
}

/// Starts a step. Records that it names and that are not fully loaded are loaded first.
pub(super) fn start_step(context: &AssistantSessionContext<'_>, step: u32) -> Vec<FlowStep> {
    let Some(planned) = context.current_turn().and_then(|running| running.planned_step(step)) else {
        return Vec::new();
    };
    if planned.kind == AssistantPlanStepKind::Read && context.domain.server.is_none() {
        return planned_read::start_planned_read(context, planned);
    }
    let entities = &context.state().entities;
    let is_missing = |reference: &&str| {
        entities.get(reference).is_some_and(|entity| {
            entity.is_saved()
                && entity.detail != RecordLoadLevel::Full
                && entity.last_action != LastEntityAction::Deleted
        })
    };
    let shown = prompt_context::references_shown_to_step(context.view, planned);
    let missing = shown.into_iter().filter(is_missing).filter_map(|reference| {
        let entity = entities.get(reference)?;
        Some(json!({"type": entity.kind, "id": entity.id}))
    });
    let missing: Vec<Value> = missing.collect();
    // An MCP server cannot return a record by its id.
    if missing.is_empty() || context.domain.server.is_some() {
        return vec![context.start_act_call(step, &[])];
    }
    let request = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::Get,
        purpose: DomainToolRunPurpose::LoadRecords,
        turn: context.state().current_turn_number(),
        step: Some(step),
        step_kind: Some(planned.kind),
        parameters: into_json_object(json!({"items": missing})),
    };
    vec![run_domain_tool(&request, step)]
}

pub(super) fn into_json_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

pub(super) fn run_domain_tool(request: &DomainToolRequest, step: u32) -> FlowStep {
    let tool = if request.operation == DomainOperation::CallTool { MCP_TOOL } else { RECORDS_TOOL };
    FlowStep::RunTool { tool: tool.into(), arguments: request.to_arguments(), agent: Some(step_agent_name(step)) }
}

/// A running step, with the context that its handlers need.
pub(super) struct RunningAssistantStep<'a> {
    context: &'a AssistantSessionContext<'a>,
    running: &'a AssistantTurnProgress,
    pub(super) planned: &'a AssistantPlanStep,
    pub(super) state: &'a AssistantStepProgress,
}

impl<'a> RunningAssistantStep<'a> {
    /// Returns the step if it has started and not ended.
    pub(super) fn find(context: &'a AssistantSessionContext<'a>, step: u32) -> Option<Self> {
        let running = context.current_turn()?;
        let (planned, state) = (running.planned_step(step)?, running.steps.get(&step)?);
        state.end.is_none().then_some(Self { context, running, planned, state })
    }

    pub(super) fn build_step_end(&self, status: AssistantStepEndStatus, outcome: String) -> AssistantStepEnd {
        AssistantStepEnd {
            turn: self.running.turn,
            step: self.planned.step,
            status,
            outcome: truncate_chars(&outcome, OUTCOME_CHARS_MAX),
            refs: Vec::new(),
            note: None,
            drafts: Vec::new(),
            question: None,
            partial_result: None,
            suggested_next: None,
            answer: None,
        }
    }

    pub(super) fn fail_step(&self, why: String) -> Vec<FlowStep> {
        vec![record_step_end(self.build_step_end(AssistantStepEndStatus::Failed, why))]
    }

    /// Asks Act to correct its answer, or fails the step if that was tried already.
    fn repair_or_fail(&self, call: &CallOpened, complaints: &[String]) -> Vec<FlowStep> {
        let step = self.planned.step;
        if self.state.repairs >= NODE_REPAIRS_MAX {
            return self.fail_step(format!("the model's answers were invalid: {}", complaints.join("; ")));
        }
        let complaints = complaints.to_vec();
        let repair_call = self.context.repair_act_call(step, &complaints);
        let rejected =
            AssistantFact::AnswerRejected { node: ACT_ROLE.to_owned(), call: call.call, step: Some(step), complaints };
        vec![rejected.into_step(), repair_call]
    }
}

pub(super) fn record_step_end(end: AssistantStepEnd) -> FlowStep {
    AssistantFact::StepEnded(Box::new(end)).into_step()
}

/// Handles an answer of Act.
pub(super) fn handle_act_answer(
    context: &AssistantSessionContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
    text: &str,
) -> Vec<FlowStep> {
    let Some(progress) = call_step_number(call).and_then(|step| RunningAssistantStep::find(context, step)) else {
        return Vec::new();
    };
    let parsed = answer::parse_act_answer(text, context.domain, &context.state().entities, progress.planned);
    let may_repair = progress.state.repairs < NODE_REPAIRS_MAX;
    match parsed.value {
        Some(action) if parsed.complaints.is_empty() => apply_step_action(&progress, call, answered, action),
        // A question for the user is passed on even if Act does not say what it found out.
        Some(AssistantStepAction::AskUser { question, partial_result }) if !may_repair => {
            let partial_result = partial_result.or_else(|| Some(collect_outcomes(progress.running)));
            apply_step_action(&progress, call, answered, AssistantStepAction::AskUser { question, partial_result })
        }
        // Unknown references are left out. Other complaints, such as invalid drafts, fail the step.
        Some(AssistantStepAction::StepComplete(done))
            if !may_repair && parsed.complaints.iter().all(|why| why.starts_with("`refs`")) =>
        {
            apply_step_action(&progress, call, answered, AssistantStepAction::StepComplete(done))
        }
        _ => progress.repair_or_fail(call, &parsed.complaints),
    }
}

/// Returns the outcomes of the turn's finished steps.
fn collect_outcomes(running: &AssistantTurnProgress) -> Value {
    let ends = running.steps.values().filter_map(|state| state.end.as_ref());
    json!({"so_far": ends.map(|end| end.outcome.clone()).collect::<Vec<_>>()})
}

fn apply_step_action(
    progress: &RunningAssistantStep<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
    action: AssistantStepAction,
) -> Vec<FlowStep> {
    match action {
        AssistantStepAction::ToolCall { tool, arguments } => run_tool_call(progress, call, &tool, &arguments),
        AssistantStepAction::StepComplete(done) => complete_step(progress, call, answered, done),
        AssistantStepAction::AskUser { question, partial_result } => {
            let outcome = format!("asked: {question}");
            let end = AssistantStepEnd {
                question: Some(question),
                partial_result,
                ..progress.build_step_end(AssistantStepEndStatus::AwaitingUser, outcome)
            };
            vec![record_step_end(end)]
        }
        AssistantStepAction::RetrieveStep { turn, step } => retrieve_step_result(progress, call, turn, step),
        AssistantStepAction::Blocked { reason, suggested_next } => {
            vec![record_step_end(AssistantStepEnd {
                suggested_next,
                ..progress.build_step_end(AssistantStepEndStatus::Blocked, reason)
            })]
        }
        AssistantStepAction::Fail { reason } => progress.fail_step(reason),
    }
}

fn run_tool_call(
    progress: &RunningAssistantStep<'_>,
    call: &CallOpened,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Vec<FlowStep> {
    if progress.state.tool_calls >= STEP_TOOL_CALLS_MAX {
        let why = format!("all {STEP_TOOL_CALLS_MAX} tool calls of this step are used up; answer with another action");
        return progress.repair_or_fail(call, &[why]);
    }
    let step = (progress.running.turn, progress.planned);
    match translate_tool_call(progress.context.domain, progress.context.state(), step, tool, arguments) {
        Ok(DomainRequestOrAlreadyLoaded::Run(request)) => vec![run_domain_tool(&request, progress.planned.step)],
        Ok(DomainRequestOrAlreadyLoaded::AlreadyLoaded(refs)) => {
            let metadata = json!({"already_loaded": refs});
            let next_call = progress.context.continue_act_call(progress.planned.step, metadata, &[]);
            vec![AssistantFact::AlreadyLoaded { step: progress.planned.step, refs }.into_step(), next_call]
        }
        Err(complaints) => progress.repair_or_fail(call, &complaints),
    }
}

fn complete_step(
    progress: &RunningAssistantStep<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
    done: ActStepCompletion,
) -> Vec<FlowStep> {
    if progress.planned.kind == AssistantPlanStepKind::Write && progress.state.write_count == 0 {
        let why = "nothing was written in this step; call a tool that writes, or answer `blocked` or `fail`";
        return progress.repair_or_fail(call, &[why.to_owned()]);
    }
    if progress.planned.kind == AssistantPlanStepKind::Read && progress.state.reads == 0 {
        return refuse_unread_completion(progress, call);
    }
    let drafts = assign_draft_references(progress, done.drafts);
    let mut refs = done.refs;
    refs.extend(drafts.iter().map(|draft| draft.reference.clone()));
    let end = AssistantStepEnd {
        refs,
        note: done.note,
        drafts,
        answer: Some(answered.text),
        ..progress.build_step_end(AssistantStepEndStatus::Done, done.outcome)
    };
    vec![record_step_end(end)]
}

/// Refuses to complete a read step in which nothing was read. If Act was told so already, the flow reads what the plan names.
fn refuse_unread_completion(progress: &RunningAssistantStep<'_>, call: &CallOpened) -> Vec<FlowStep> {
    // Which tool of a server reads what the plan names is not known.
    let can_read = progress.context.domain.server.is_none() && progress.state.tool_calls < STEP_TOOL_CALLS_MAX;
    if progress.state.repairs >= NODE_REPAIRS_MAX && can_read {
        let arguments = planned_read::planned_read_arguments(progress.context, progress.planned);
        return run_tool_call(progress, call, DomainOperation::Read.as_str(), &arguments);
    }
    let why = "nothing was read in this step; call a tool that reads, or answer `blocked` or `fail`";
    progress.repair_or_fail(call, &[why.to_owned()])
}

/// Gives each draft its reference.
fn assign_draft_references(progress: &RunningAssistantStep<'_>, model_drafts: Vec<ActRecordDraft>) -> Vec<RecordDraft> {
    let entities = &progress.context.state().entities;
    let mut drafts: Vec<RecordDraft> = Vec::new();
    for ActRecordDraft { replaces, kind, content } in model_drafts {
        let reference = replaces.unwrap_or_else(|| entities.next_draft_reference(&kind, &drafts));
        let label =
            progress.context.domain.find_type(&kind).and_then(|declared| content.get(&declared.label)?.as_str());
        let label = label.map(|label| entities.get(label).map_or(label, |linked| linked.label.as_str()));
        let label = label.unwrap_or(&kind).to_owned();
        drafts.push(RecordDraft { reference, label, kind, content });
    }
    drafts
}

fn retrieve_step_result(
    progress: &RunningAssistantStep<'_>,
    call: &CallOpened,
    turn: Option<u32>,
    step: u32,
) -> Vec<FlowStep> {
    if progress.state.retrievals >= STEP_RETRIEVALS_MAX {
        return progress
            .repair_or_fail(call, &[format!("a step may fetch at most {STEP_RETRIEVALS_MAX} earlier results")]);
    }
    let current_turn = progress.running.turn;
    let own = progress
        .running
        .steps
        .iter()
        .filter_map(|(number, state)| Some((current_turn, *number, state.end.as_ref()?.answer?)));
    let past = progress.context.state().step_results.iter().map(|result| (result.turn, result.step, result.answer));
    let all: Vec<_> = past.chain(own).collect();
    let wanted = turn.unwrap_or(current_turn);
    let Some((source_turn, source_step, text)) =
        all.iter().find(|(turn, number, _)| (*turn, *number) == (wanted, step))
    else {
        let known: Vec<String> = all.iter().map(|(turn, step, _)| format!("step {step} of turn {turn}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return progress.repair_or_fail(
            call,
            &[format!("step {step} of turn {wanted} has no stored result; these have one: {known}")],
        );
    };
    let fact = AssistantFact::StepResultRetrieved {
        step: progress.planned.step,
        source_turn: *source_turn,
        source_step: *source_step,
    };
    let metadata = json!({"retrieved": {"turn": source_turn, "step": source_step}, "text": text});
    let next_call = progress.context.continue_act_call(progress.planned.step, metadata, &[]);
    vec![fact.into_step(), next_call]
}

/// Fails the step whose call of Act failed.
pub(super) fn handle_act_failure(context: &AssistantSessionContext<'_>, call: &CallOpened, why: &str) -> Vec<FlowStep> {
    let progress = call_step_number(call).and_then(|step| RunningAssistantStep::find(context, step));
    progress.map(|progress| progress.fail_step(format!("the model did not answer: {why}"))).unwrap_or_default()
}
