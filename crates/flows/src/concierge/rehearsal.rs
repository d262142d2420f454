//! What a stand-in for a model plays, so that a whole conversation can be tried without one: question, reply, handover,
//! exploration, commitment, plan, step, obstacle, help, done. It goes by the call, by what the user said last, and by where the plan
//! stands. No model is ever told any of it.

use segue_core::event::CallOpened;
use segue_core::flow::View;
use segue_core::prompt::{Prompt, Speaker};
use serde_json::json;

use super::facts::Purpose;
use super::spec::{
    ASK_BATCH, ASK_INTENT, ASK_PRESENT, ASK_STEPS, CONCIERGE, EXECUTOR, EXPERT, EXPLORER, FINDINGS, MAPPER,
};
use super::state::Memory;
use super::words::{begins, words};
use super::words_of;
use super::workflow::{Status, Workflow};
use crate::template::fill;

/// What says that somebody wants a plan.
const COMMITS: [&str; 10] = [
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
const DONE: [&str; 6] = ["done", "finished", "complete", "completed", "did it", "ready"];
/// What says that somebody is stuck.
const STUCK: [&str; 7] = ["stuck", "blocked", "blocker", "help", "can't", "cannot", "does not work"];

/// What says which step somebody wants to take.
const ORDINALS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];

/// What the stand-in answers to a call; placeholders such as `{{topic}}` are filled by the stand-in itself.
pub(super) fn hint(view: &View<'_, Memory>, call: &CallOpened, prompt: &Prompt) -> Option<String> {
    match call.role.as_str() {
        EXPERT => Some(expert(view, call)),
        MAPPER => Some(mapper(prompt)),
        CONCIERGE => Some(concierge(view, call, prompt)),
        _ => None,
    }
}

fn expert(view: &View<'_, Memory>, call: &CallOpened) -> String {
    let purpose = view.state.batch.as_ref().map(|batch| batch.begun.purpose);
    let seat = view.state.batch.as_ref().and_then(|batch| batch.seat_of(call)).unwrap_or_default();
    let arguments = json!({
        "seat": seat % 3,
        "help": purpose == Some(Purpose::StepHelp),
        "plan": purpose == Some(Purpose::Workflow),
        "topic": "{{topic}}", "mark": "{{mark}}",
    });
    fill(include_str!("../../prompts/concierge/rehearsal/expert.md"), &arguments)
}

fn mapper(prompt: &Prompt) -> String {
    let shown: String = prompt.messages.iter().map(|message| message.text().to_string()).collect();
    let sources = shown.matches("\n## Source ").count().max(1);
    let list = |from: usize, to: usize| format!("{:?}", (from..=to).collect::<Vec<usize>>());
    let arguments = json!({
        "all": list(1, sources), "most": list(1, (sources - 1).max(1)), "last": list(sources, sources), "mark": "{{mark}}",
    });
    fill(include_str!("../../prompts/concierge/rehearsal/mapper.md"), &arguments)
}

fn concierge(view: &View<'_, Memory>, call: &CallOpened, prompt: &Prompt) -> String {
    let said = prompt.messages.last().and_then(|message| message.parts.last()).map_or("", |part| part);
    // By the prompt, not by the state: a past call may be made once more.
    let has_spoken = prompt.messages.iter().any(|message| message.speaker == Speaker::Assistant);
    let phase = call.phase.as_ref().map(|phase| phase.as_str());
    let ask = call.ask.as_str();
    let silent = matches!(ask, ASK_INTENT | ASK_BATCH | ASK_STEPS);
    let workflow = view.state.workflow.as_ref();
    let step = workflow.and_then(|workflow| workflow.current_step()).map(|step| step.title.as_str());
    let is_last = workflow.is_some_and(|workflow| workflow.done.len() + 1 == workflow.steps.len());
    let chosen = workflow.and_then(|workflow| chosen(workflow, said));
    let is_helped = call.receipt.ask.iter().any(|piece| piece.name == *FINDINGS && piece.text.is_some());
    let kind = match () {
        () if ask == ASK_PRESENT || ask == ASK_STEPS => "plan",
        () if is_helped => "helped",
        () if says(said, &STUCK) => "stuck",
        () if says(said, &DONE) => "done",
        () if chosen.is_some() => "choose",
        () => "step",
    };
    let goal = words_of::handed(view).and_then(|handover| handover.text("goal")).unwrap_or("{{topic}}");
    let arguments = json!({
        "silent": silent, "handover": has_spoken || ask == ASK_INTENT, "commits": ask == ASK_BATCH || says(said, &COMMITS),
        "kind": kind, "step": step.unwrap_or("the first step"), "chosen": chosen, "is_last": is_last,
        "goal": goal, "topic": "{{topic}}", "first": "{{first}}", "first_topic": "{{first_topic}}", "last": "{{last}}", "mark": "{{mark}}",
    });
    let template = match phase {
        Some(EXPLORER) => include_str!("../../prompts/concierge/rehearsal/explorer.md"),
        Some(EXECUTOR) => include_str!("../../prompts/concierge/rehearsal/executor.md"),
        _ => include_str!("../../prompts/concierge/rehearsal/starter.md"),
    };
    fill(template, &arguments)
}

/// The step that somebody would rather take than the current one.
fn chosen<'w>(workflow: &'w Workflow, said: &str) -> Option<&'w str> {
    let steps = workflow.steps.iter().enumerate();
    let mut open = steps.filter(|(place, _)| workflow.status(*place) == Status::Pending);
    let chosen = open.find(|(place, step)| {
        let title: Vec<String> = words(&step.title).into_iter().map(|word| word.text).collect();
        let ordinal = ORDINALS.get(*place).copied().unwrap_or("last");
        says(said, &[&title.join(" "), &format!("step {}", place + 1), ordinal])
    });
    chosen.map(|(_, step)| step.title.as_str())
}

fn says(said: &str, phrases: &[&str]) -> bool {
    let said = words(said);
    (0..said.len()).any(|at| phrases.iter().any(|phrase| begins(&said[at..], phrase)))
}
