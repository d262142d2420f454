//! The replies of the rehearsal model, so that a whole conversation can be tried without a real model: answers, handover,
//! plan, steps, and help. The reply depends on the call, on the user's last message, and on the plan's progress. Real
//! models never see these texts.

use segue_core::event::CallOpened;
use segue_core::flow::{FlowContext, FlowSettingSpec};
use segue_core::prompt::{ChatRole, Prompt};
use segue_core::signal::SignalForm;
use serde_json::json;

use super::consent::{self, ExpertBatchConsentAnswer};
use super::facts::ExpertBatchPurpose;
use super::phrases::{split_words, starts_with_phrase};
use super::plan::{ConciergePlan, ConciergePlanStepStatus};
use super::settings::ConciergeSettings;
use super::spec::{
    ASK_PRESENT, ASK_REPAIR_BATCH, ASK_REPAIR_INTENT, ASK_REPAIR_STEPS, CONCIERGE_ROLE, EXECUTOR_PHASE, EXPERT_ROLE,
    EXPLORER_PHASE, FINDINGS_FRAGMENT, MAPPER_ROLE,
};
use super::state::ConciergeState;
use super::{messages, questions};
use crate::template::fill_template;

/// Phrases that show that the user wants a plan.
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
/// Phrases that show that a step is done.
const DONE_PHRASES: [&str; 6] = ["done", "finished", "complete", "completed", "did it", "ready"];
/// Phrases that show that the user is stuck.
const STUCK_PHRASES: [&str; 7] = ["stuck", "blocked", "blocker", "help", "can't", "cannot", "does not work"];

/// Ordinals that name a step.
const STEP_ORDINALS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];

/// Returns the rehearsal model's reply to a call. The rehearsal model fills placeholders such as `{{topic}}` itself.
pub(super) fn rehearse_reply(
    view: &FlowContext<'_, ConciergeState>,
    call: &CallOpened,
    prompt: &Prompt,
    specs: &[FlowSettingSpec],
) -> Option<String> {
    match call.role.as_str() {
        EXPERT_ROLE => Some(rehearse_expert(view, call)),
        MAPPER_ROLE => Some(rehearse_mapper(prompt)),
        CONCIERGE_ROLE => {
            let settings = ConciergeSettings::parse(specs, &view.session.settings).0;
            Some(rehearse_concierge(view, call, prompt, settings.signal_form(call.signal_form)))
        }
        _ => None,
    }
}

fn rehearse_expert(view: &FlowContext<'_, ConciergeState>, call: &CallOpened) -> String {
    let purpose = view.state.batch.as_ref().map(|batch| batch.request.purpose);
    let slot = view.state.batch.as_ref().and_then(|batch| batch.slot_of_call(call)).unwrap_or_default();
    let arguments = json!({
        "seat": slot % 3,
        "help": purpose == Some(ExpertBatchPurpose::StepHelp),
        "plan": purpose == Some(ExpertBatchPurpose::Plan),
        "topic": "{{topic}}", "mark": "{{mark}}",
    });
    fill_template(include_str!("../../prompts/concierge/rehearsal/expert.md"), &arguments)
}

fn rehearse_mapper(prompt: &Prompt) -> String {
    let text: String = prompt.messages.iter().map(|message| message.text().to_string()).collect();
    let sources = text.matches("\n## Source ").count().max(1);
    let list = |from: usize, to: usize| format!("{:?}", (from..=to).collect::<Vec<usize>>());
    let arguments = json!({
        "all": list(1, sources), "most": list(1, (sources - 1).max(1)), "last": list(sources, sources), "mark": "{{mark}}",
    });
    fill_template(include_str!("../../prompts/concierge/rehearsal/mapper.md"), &arguments)
}

fn rehearse_concierge(
    view: &FlowContext<'_, ConciergeState>,
    call: &CallOpened,
    prompt: &Prompt,
    form: SignalForm,
) -> String {
    let last_part = prompt.messages.last().and_then(|message| message.parts.last()).map_or("", |part| part);
    let is_question = questions::is_private_question(call.ask.as_str());
    let quoted = is_question.then(|| last_quoted_lines(last_part));
    let user_text = quoted.as_deref().unwrap_or(last_part);
    // Read from the prompt instead of the state, because a past call may be recomputed.
    let has_replied = prompt.messages.iter().any(|message| message.chat_role == ChatRole::Assistant);
    let phase = call.phase.as_ref().map(|phase| phase.as_str());
    let ask = call.ask.as_str();
    let is_repair = matches!(ask, ASK_REPAIR_INTENT | ASK_REPAIR_BATCH | ASK_REPAIR_STEPS);
    let plan = view.state.active_plan.as_ref();
    let step = plan.and_then(|plan| plan.current_step()).map(|step| step.title.as_str());
    let is_last = plan.is_some_and(|plan| plan.done.len() + 1 == plan.steps.len());
    let chosen = plan.and_then(|plan| find_requested_step(plan, user_text));
    let has_findings =
        call.receipt.ask.iter().any(|fragment| fragment.name == *FINDINGS_FRAGMENT && fragment.text.is_some());
    let kind = match () {
        () if ask == ASK_PRESENT || ask == ASK_REPAIR_STEPS => "plan",
        () if has_findings => "helped",
        () if contains_phrase(user_text, &STUCK_PHRASES) => "stuck",
        () if contains_phrase(user_text, &DONE_PHRASES) => "done",
        () if chosen.is_some() => "choose",
        () => "step",
    };
    let goal = messages::visit_handover(view).and_then(|handover| handover.text_field("goal")).unwrap_or("{{topic}}");
    if is_question {
        let number = |index: usize| index + 1;
        let chosen_number =
            chosen.and_then(|title| plan?.steps.iter().position(|step| step.title == title)).map(number);
        let consent = match consent::parse_consent(user_text) {
            ExpertBatchConsentAnswer::Yes => "yes",
            ExpertBatchConsentAnswer::No => "no",
            ExpertBatchConsentAnswer::Unclear => "unclear",
        };
        let arguments = json!({
            "ask": ask, "kind": kind, "commits": contains_phrase(user_text, &COMMITMENT_PHRASES), "consent": consent,
            "current": plan.map(|plan| number(plan.current)), "chosen_number": chosen_number,
            "goal_json": json!(goal).to_string(), "message_json": json!(user_text).to_string(),
            "first_topic": "{{first_topic}}",
        });
        return fill_template(include_str!("../../prompts/concierge/rehearsal/question.md"), &arguments);
    }
    let arguments = json!({
        "inline": form == SignalForm::Inline, "silent": is_repair, "handover": has_replied || ask == ASK_REPAIR_INTENT, "commits": ask == ASK_REPAIR_BATCH || contains_phrase(user_text, &COMMITMENT_PHRASES),
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

/// Returns the last quote in a text, which in a private question is the user's message.
fn last_quoted_lines(text: &str) -> String {
    let is_quote = |line: &&str| line.starts_with('>');
    let mut lines: Vec<&str> = text.lines().rev().skip_while(|line| !is_quote(line)).take_while(is_quote).collect();
    lines.reverse();
    lines.iter().map(|line| line.trim_start_matches('>').trim()).collect::<Vec<_>>().join("\n")
}

/// Returns the pending step that the user asks for.
fn find_requested_step<'w>(plan: &'w ConciergePlan, user_text: &str) -> Option<&'w str> {
    let steps = plan.steps.iter().enumerate();
    let mut open = steps.filter(|(index, _)| plan.step_status(*index) == ConciergePlanStepStatus::Pending);
    let chosen = open.find(|(index, step)| {
        let title: Vec<String> = split_words(&step.title).into_iter().map(|word| word.text).collect();
        let ordinal = STEP_ORDINALS.get(*index).copied().unwrap_or("last");
        contains_phrase(user_text, &[&title.join(" "), &format!("step {}", index + 1), ordinal])
    });
    chosen.map(|(_, step)| step.title.as_str())
}

fn contains_phrase(text: &str, phrases: &[&str]) -> bool {
    let words = split_words(text);
    (0..words.len()).any(|at| phrases.iter().any(|phrase| starts_with_phrase(&words[at..], phrase)))
}
