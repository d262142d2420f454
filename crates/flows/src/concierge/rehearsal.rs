//! What a stand-in for a model plays, so that a whole conversation can be tried without one: question, reply, handover,
//! exploration, commitment, plan, step, obstacle, help, done. It goes by the call, by what the user said last, and by where the plan
//! stands. No model is ever told any of it.

use segue_core::event::CallOpened;
use segue_core::flow::FlowContext;
use segue_core::prompt::{ChatRole, Prompt};
use serde_json::json;

use super::facts::BatchPurpose;
use super::messages;
use super::phrases::{split_words, starts_with_phrase};
use super::plan::{ConciergePlan, PlanStepStatus};
use super::spec::{
    ASK_PRESENT, ASK_REPAIR_BATCH, ASK_REPAIR_INTENT, ASK_REPAIR_STEPS, CONCIERGE_ROLE, EXECUTOR_PHASE, EXPERT_ROLE,
    EXPLORER_PHASE, FINDINGS_FRAGMENT, MAPPER_ROLE,
};
use super::state::ConciergeState;
use crate::template::fill_template;

/// What says that somebody wants a plan.
const COMMITMENT_PHRASES: [&str; 10] = [
    "plan",
    "steps",
    "let's do",
    "lets do",
    "i'm going to",
    "i need to",
    "i will",
    "i'm ready",
    "deadline",
    "let's start",
];
/// What says that a step is done.
const DONE_PHRASES: [&str; 6] = ["done", "finished", "complete", "completed", "did it", "ready"];
/// What says that somebody is stuck.
const STUCK_PHRASES: [&str; 7] = ["stuck", "blocked", "blocker", "help", "can't", "cannot", "does not work"];

/// What says which step somebody wants to take.
const STEP_ORDINALS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];

/// What the stand-in answers to a call; placeholders such as `{{topic}}` are filled by the stand-in itself.
pub(super) fn rehearse_reply(
    view: &FlowContext<'_, ConciergeState>,
    call: &CallOpened,
    prompt: &Prompt,
) -> Option<String> {
    match call.role.as_str() {
        EXPERT_ROLE => Some(rehearse_expert(view, call)),
        MAPPER_ROLE => Some(rehearse_mapper(prompt)),
        CONCIERGE_ROLE => Some(rehearse_concierge(view, call, prompt)),
        _ => None,
    }
}

fn rehearse_expert(view: &FlowContext<'_, ConciergeState>, call: &CallOpened) -> String {
    let purpose = view.state.batch.as_ref().map(|batch| batch.request.purpose);
    let seat = view.state.batch.as_ref().and_then(|batch| batch.slot_of_call(call)).unwrap_or_default();
    let arguments = json!({
        "seat": seat % 3,
        "help": purpose == Some(BatchPurpose::StepHelp),
        "plan": purpose == Some(BatchPurpose::Plan),
        "topic": "{{topic}}", "mark": "{{mark}}",
    });
    fill_template(include_str!("../../prompts/concierge/rehearsal/expert.md"), &arguments)
}

fn rehearse_mapper(prompt: &Prompt) -> String {
    let shown: String = prompt.messages.iter().map(|message| message.text().to_string()).collect();
    let sources = shown.matches("\n## Source ").count().max(1);
    let list = |from: usize, to: usize| format!("{:?}", (from..=to).collect::<Vec<usize>>());
    let arguments = json!({
        "all": list(1, sources), "most": list(1, (sources - 1).max(1)), "last": list(sources, sources), "mark": "{{mark}}",
    });
    fill_template(include_str!("../../prompts/concierge/rehearsal/mapper.md"), &arguments)
}

fn rehearse_concierge(view: &FlowContext<'_, ConciergeState>, call: &CallOpened, prompt: &Prompt) -> String {
    let said = prompt.messages.last().and_then(|message| message.parts.last()).map_or("", |part| part);
    // By the prompt, not by the state: a past call may be made once more.
    let has_spoken = prompt.messages.iter().any(|message| message.chat_role == ChatRole::Assistant);
    let phase = call.phase.as_ref().map(|phase| phase.as_str());
    let ask = call.ask.as_str();
    let silent = matches!(ask, ASK_REPAIR_INTENT | ASK_REPAIR_BATCH | ASK_REPAIR_STEPS);
    let workflow = view.state.active_plan.as_ref();
    let step = workflow.and_then(|workflow| workflow.current_step()).map(|step| step.title.as_str());
    let is_last = workflow.is_some_and(|workflow| workflow.done.len() + 1 == workflow.steps.len());
    let chosen = workflow.and_then(|workflow| find_requested_step(workflow, said));
    let is_helped = call.receipt.ask.iter().any(|piece| piece.name == *FINDINGS_FRAGMENT && piece.text.is_some());
    let kind = match () {
        () if ask == ASK_PRESENT || ask == ASK_REPAIR_STEPS => "plan",
        () if is_helped => "helped",
        () if contains_phrase(said, &STUCK_PHRASES) => "stuck",
        () if contains_phrase(said, &DONE_PHRASES) => "done",
        () if chosen.is_some() => "choose",
        () => "step",
    };
    let goal = messages::visit_handover(view).and_then(|handover| handover.text_field("goal")).unwrap_or("{{topic}}");
    let arguments = json!({
        "silent": silent, "handover": has_spoken || ask == ASK_REPAIR_INTENT, "commits": ask == ASK_REPAIR_BATCH || contains_phrase(said, &COMMITMENT_PHRASES),
        "kind": kind, "step": step.unwrap_or("the first step"), "chosen": chosen, "is_last": is_last,
        "goal": goal, "topic": "{{topic}}", "first": "{{first}}", "first_topic": "{{first_topic}}", "last": "{{last}}", "mark": "{{mark}}",
    });
    let template = match phase {
        Some(EXPLORER_PHASE) => include_str!("../../prompts/concierge/rehearsal/explorer.md"),
        Some(EXECUTOR_PHASE) => include_str!("../../prompts/concierge/rehearsal/executor.md"),
        _ => include_str!("../../prompts/concierge/rehearsal/starter.md"),
    };
    fill_template(template, &arguments)
}

/// The step that somebody would rather take than the current one.
fn find_requested_step<'w>(plan: &'w ConciergePlan, user_text: &str) -> Option<&'w str> {
    let steps = plan.steps.iter().enumerate();
    let mut open = steps.filter(|(place, _)| plan.step_status(*place) == PlanStepStatus::Pending);
    let chosen = open.find(|(place, step)| {
        let title: Vec<String> = split_words(&step.title).into_iter().map(|word| word.text).collect();
        let ordinal = STEP_ORDINALS.get(*place).copied().unwrap_or("last");
        contains_phrase(user_text, &[&title.join(" "), &format!("step {}", place + 1), ordinal])
    });
    chosen.map(|(_, step)| step.title.as_str())
}

fn contains_phrase(text: &str, phrases: &[&str]) -> bool {
    let said = split_words(text);
    (0..said.len()).any(|at| phrases.iter().any(|phrase| starts_with_phrase(&said[at..], phrase)))
}
