//! The flow's commands: explicit decisions of the user, which need no interpretation. They answer a pending question, ask
//! for a plan, and mark, choose or drop steps of the plan.

use std::collections::BTreeMap;

use segue_core::flow::{FlowCommandSpec, FlowStep, NewOrStoredReplyText};
use segue_core::handover::HandoverProvenance;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts::ConciergeFact;
use super::handovers;
use super::messages::{record_refusal, visit_handover};
use super::plan::{ConciergePlan, ConciergePlanStepLookupError};
use super::spec::{EXPLORER_PHASE, OUTCOME_HANDOVER};
use super::state::ConciergeFlowContext;
use super::turn::{current_phase, propose_phase};
use crate::template::fill_template;

pub(super) const YES_COMMAND: &str = "yes";
pub(super) const NO_COMMAND: &str = "no";
const PLAN_COMMAND: &str = "plan";
const DONE_COMMAND: &str = "done";
const STEP_COMMAND: &str = "step";
const DROP_COMMAND: &str = "drop";

/// A command whose work needs a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConciergeTurnCommand {
    /// Starts the batch that waits for the user's confirmation.
    ConfirmBatch,
    /// Has a plan made.
    MakePlan,
}

impl ConciergeTurnCommand {
    /// Returns the command with this name, or `None` if it needs no turn.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            YES_COMMAND => Some(Self::ConfirmBatch),
            PLAN_COMMAND => Some(Self::MakePlan),
            _ => None,
        }
    }
}

/// Returns the commands of the flow.
pub(super) fn command_specs() -> BTreeMap<String, FlowCommandSpec> {
    let command = |name: &str, description: &str, step: Option<&str>| {
        let arguments = step.map(|about| ("step".to_owned(), about.to_owned())).into_iter().collect();
        (name.to_owned(), FlowCommandSpec { description: description.to_owned(), arguments })
    };
    let current = "the number or the title of the step; by default the current one";
    [
        command(YES_COMMAND, "says yes to the question whether to work something out", None),
        command(NO_COMMAND, "says no to the question whether to work something out", None),
        command(PLAN_COMMAND, "has a plan made now", None),
        command(DONE_COMMAND, "marks a step of the plan as done", Some(current)),
        command(STEP_COMMAND, "makes a step of the plan the current one", Some("its number or its title")),
        command(DROP_COMMAND, "drops the plan and returns to the conversation", None),
    ]
    .into()
}

/// Checks whether a command can be run now.
///
/// # Errors
/// Fails with the reason if it cannot.
pub(super) fn check_command(view: &ConciergeFlowContext<'_>, command: &str, arguments: &Value) -> Result<(), String> {
    if view.session.current_turn.is_some() {
        return Err(format!("`{command}` must wait for the end of the current turn"));
    }
    let plan = || view.state.active_plan.as_ref().ok_or_else(|| "no plan is under way".to_owned());
    match command {
        YES_COMMAND | NO_COMMAND if view.state.pending_confirmation.is_none() => {
            Err("no question is waiting for a yes or no".to_owned())
        }
        PLAN_COMMAND if current_phase(view) != EXPLORER_PHASE => {
            Err(format!("a plan can be made in the phase `{EXPLORER_PHASE}`, not in `{}`", current_phase(view)))
        }
        DONE_COMMAND | STEP_COMMAND => find_step(plan()?, command, arguments).map(|_| ()),
        DROP_COMMAND => plan().map(|_| ()),
        _ => Ok(()),
    }
}

/// Returns the steps that follow from a command.
pub(super) fn react_to_command(view: &ConciergeFlowContext<'_>, command: &str, arguments: &Value) -> Vec<FlowStep> {
    if ConciergeTurnCommand::from_name(command).is_some() {
        return vec![FlowStep::StartTurn];
    }
    if command == NO_COMMAND {
        let text = fill_template(include_str!("../../prompts/concierge/declined.md"), &());
        return vec![
            ConciergeFact::BatchDeclined.into_step(),
            record_refusal(None, "BATCH", "declined", &[]),
            FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None },
        ];
    }
    let Some(plan) = &view.state.active_plan else { return Vec::new() };
    let mut plan = plan.clone();
    match command {
        DROP_COMMAND => {
            let fact = ConciergeFact::PlanDropped { goal: plan.goal.clone(), done: plan.done.len() };
            leave_plan(view, &plan, fact)
        }
        DONE_COMMAND | STEP_COMMAND => {
            let Ok(step) = find_step(&plan, command, arguments) else { return Vec::new() };
            let title = plan.steps[step].title.clone();
            if command == STEP_COMMAND {
                return vec![ConciergeFact::StepStarted { step, title, call: None }.into_step()];
            }
            let mut steps = vec![ConciergeFact::StepCompleted { step, title, call: None }.into_step()];
            plan.complete_step(step);
            if plan.is_complete() {
                let fact = ConciergeFact::PlanCompleted { goal: plan.goal.clone(), steps: plan.steps.len() };
                steps.extend(leave_plan(view, &plan, fact));
            }
            steps
        }
        _ => Vec::new(),
    }
}

/// Makes the outcome handover and returns to the explorer.
fn leave_plan(view: &ConciergeFlowContext<'_>, plan: &ConciergePlan, fact: ConciergeFact) -> Vec<FlowStep> {
    let document = handovers::build_outcome_handover(visit_handover(view), plan, "");
    let handover = FlowStep::MakeHandover {
        kind: OUTCOME_HANDOVER.into(),
        document,
        calls: Vec::new(),
        provenance: HandoverProvenance::Built,
    };
    vec![fact.into_step(), handover, propose_phase(EXPLORER_PHASE)]
}

/// Returns the index of the step that a command names. Without a name, `done` means the current step.
fn find_step(plan: &ConciergePlan, command: &str, arguments: &Value) -> Result<usize, String> {
    let name = match arguments.get("step") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null) | None if command == DONE_COMMAND => return Ok(plan.current),
        _ => return Err("`step` must be the number or the title of a step".to_owned()),
    };
    plan.find_open_step(&name).map_err(|error| match error {
        ConciergePlanStepLookupError::AlreadyComplete => format!("the step “{name}” is already done"),
        ConciergePlanStepLookupError::UnknownStep | ConciergePlanStepLookupError::NotCurrent => {
            format!("the plan has no step “{name}”; it has {} steps", plan.steps.len())
        }
    })
}
