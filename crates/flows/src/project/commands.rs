//! The flow's own commands for people: approve and change the plan, confirm content, name a check, restore files, continue,
//! end.

use std::collections::BTreeMap;

use segue_core::event::TurnOutcome;
use segue_core::flow::{FlowCommandSpec, FlowStep};
use serde_json::Value;

use super::completion::parse_plan;
use super::facts::{PlanApprover, ProjectFact, ProjectPlan, ProjectPlanStep};
use super::project_context::{ProjectFlowContext, reply_step};
use super::{account, evidence, turn};
use crate::limits::{CHECK_COMMAND_CHARS_MAX, CONFIRMED_CHECKS_MAX, PLAN_STEPS_MAX};

pub(super) const APPROVE_COMMAND: &str = "approve";
pub(super) const PLAN_COMMAND: &str = "plan";
pub(super) const CONFIRM_COMMAND: &str = "confirm";
pub(super) const CHECK_COMMAND: &str = "check";
pub(super) const RESTORE_COMMAND: &str = "restore";
pub(super) const CONTINUE_COMMAND: &str = "continue";
pub(super) const END_COMMAND: &str = "end";

/// The name under which content without a workspace is confirmed.
const NO_WORKSPACE_CONTENT: &str = "no workspace";

/// Returns the declarations of all commands.
pub(super) fn command_specs() -> BTreeMap<String, FlowCommandSpec> {
    let command = |name: &str, description: &str, arguments: &[(&str, &str)]| {
        let arguments = arguments.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned()));
        (name.to_owned(), FlowCommandSpec { description: description.to_owned(), arguments: arguments.collect() })
    };
    [
        command(APPROVE_COMMAND, "approves the plan, so that it is carried out", &[]),
        command(
            PLAN_COMMAND,
            "replaces the plan; it still has to be approved",
            &[
                ("goal", "what the steps achieve; unchanged if not given"),
                (
                    "steps",
                    "the steps: a list with `title` and `done_when`, or one line for each step, as `title | done when`",
                ),
            ],
        ),
        command(CONFIRM_COMMAND, "confirms the result of the current phase, where no check can", &[]),
        command(
            CHECK_COMMAND,
            "names a command that tests the content from now on",
            &[("command", "the command line")],
        ),
        command(
            RESTORE_COMMAND,
            "restores the files of a checkpoint",
            &[
                ("checkpoint", "the checkpoint, or the beginning of its name"),
                ("visit", "the phase visit to go back to"),
            ],
        ),
        command(CONTINUE_COMMAND, "continues after the flow stopped to ask", &[]),
        command(END_COMMAND, "ends the session now, with an account of what was done and what is not verified", &[]),
    ]
    .into()
}

/// Checks whether a command can be run now.
///
/// # Errors
/// Returns the reason if it cannot.
pub(super) fn check_command(context: &ProjectFlowContext<'_>, command: &str, arguments: &Value) -> Result<(), String> {
    let state = context.state();
    let is_running = context.view.session.current_turn.is_some();
    let idle = || match is_running {
        true => Err("a turn is running; wait until it ends, or cancel it first".to_owned()),
        false => Ok(()),
    };
    match command {
        APPROVE_COMMAND => match &state.plan {
            None => Err("there is no plan to approve".to_owned()),
            Some(plan) if plan.approved_by.is_some() => Err("the plan is already approved".to_owned()),
            Some(_) => idle(),
        },
        PLAN_COMMAND => {
            if !context.definition.phases.iter().any(|phase| phase.plan) {
                return Err("this flow makes no plans".to_owned());
            }
            read_edited_plan(context, arguments).map(|_| ()).and_then(|()| idle())
        }
        CONFIRM_COMMAND => idle(),
        CHECK_COMMAND => {
            let command = arguments.get("command").and_then(Value::as_str).map(str::trim).unwrap_or_default();
            if command.is_empty() || command.chars().count() > CHECK_COMMAND_CHARS_MAX {
                return Err(format!(
                    "`command` must be a command line of at most {CHECK_COMMAND_CHARS_MAX} characters, such as `cargo test`"
                ));
            }
            if state.confirmed_checks.len() >= CONFIRMED_CHECKS_MAX {
                return Err(format!("there are already {CONFIRMED_CHECKS_MAX} checks, which is the maximum"));
            }
            idle()
        }
        RESTORE_COMMAND => find_checkpoint(context, arguments).map(|_| ()).and_then(|()| idle()),
        CONTINUE_COMMAND => idle(),
        END_COMMAND => Ok(()),
        other => {
            let known: Vec<String> = command_specs().keys().map(|name| format!("`{name}`")).collect();
            Err(format!("there is no command `{other}`; there are {}", known.join(", ")))
        }
    }
}

/// Carries out a command that was accepted.
pub(super) fn run_command(context: &ProjectFlowContext<'_>, command: &str, arguments: &Value) -> Vec<FlowStep> {
    match command {
        APPROVE_COMMAND => {
            vec![ProjectFact::PlanApproved { by: PlanApprover::User }.into_step(), FlowStep::StartTurn]
        }
        PLAN_COMMAND => match read_edited_plan(context, arguments) {
            Ok(plan) => vec![ProjectFact::PlanEdited(plan).into_step()],
            Err(why) => vec![reply_step(why)],
        },
        CONFIRM_COMMAND => {
            let digest = context.state().content.digest().map(str::to_owned);
            let digest = digest.or_else(|| (!context.has_workspace()).then(|| NO_WORKSPACE_CONTENT.to_owned()));
            let confirmed = digest.map(|digest| ProjectFact::ContentConfirmed { digest }.into_step());
            let visit = ProjectFact::VisitConfirmed.into_step();
            confirmed.into_iter().chain([visit, FlowStep::StartTurn]).collect()
        }
        CHECK_COMMAND => {
            let command = arguments.get("command").and_then(Value::as_str).unwrap_or_default().trim().to_owned();
            vec![ProjectFact::CheckConfirmed { command }.into_step(), FlowStep::StartTurn]
        }
        RESTORE_COMMAND => match find_checkpoint(context, arguments) {
            Ok(checkpoint) => vec![evidence::restore_checkpoint_step(&checkpoint)],
            Err(why) => vec![reply_step(why)],
        },
        CONTINUE_COMMAND => vec![FlowStep::StartTurn],
        END_COMMAND => end_early(context),
        _ => Vec::new(),
    }
}

/// Ends the session at the user's request, whatever is open.
fn end_early(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let open_gates: Vec<String> =
        context.phase_state().map(|phase| phase.open_gates.iter().cloned().collect()).unwrap_or_default();
    let reason = match open_gates.as_slice() {
        [] => "ended by the user".to_owned(),
        gates => format!("ended by the user with open obligations: {}", gates.join(", ")),
    };
    let mut steps = Vec::new();
    if context.view.session.current_turn.is_some() {
        steps.push(FlowStep::EndTurn(TurnOutcome::Cancelled));
    }
    steps.extend([
        ProjectFact::EndedEarly { open_gates }.into_step(),
        reply_step(account::render_early_end(context)),
        FlowStep::SetResult(account::result_json(context)),
        FlowStep::CloseSession { reason },
    ]);
    steps
}

/// Reads the plan that the user wrote. What is missing is kept from the current plan.
fn read_edited_plan(context: &ProjectFlowContext<'_>, arguments: &Value) -> Result<ProjectPlan, String> {
    let current = context.state().plan.as_ref().map(|status| &status.plan);
    let goal = arguments.get("goal").and_then(Value::as_str).map(str::to_owned);
    let goal = goal.or_else(|| current.map(|plan| plan.goal.clone())).unwrap_or_default();
    match arguments.get("steps") {
        None | Some(Value::Null) => match current {
            Some(plan) => Ok(ProjectPlan { goal, steps: plan.steps.clone() }),
            None => Err("`steps` is missing; write one line for each step, as `title | done when`".to_owned()),
        },
        Some(Value::String(lines)) => {
            let steps: Vec<ProjectPlanStep> = lines.lines().filter_map(parse_step_line).take(PLAN_STEPS_MAX).collect();
            match steps.is_empty() {
                true => Err("write one line for each step, as `title | done when`".to_owned()),
                false => Ok(ProjectPlan { goal, steps }),
            }
        }
        Some(steps) => parse_plan(Some(&serde_json::json!({"goal": goal, "steps": steps}))),
    }
}

fn parse_step_line(line: &str) -> Option<ProjectPlanStep> {
    let line = line.trim().trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ')' | '-' | '*' | ' '));
    let (title, done_when) = line.split_once('|')?;
    let (title, done_when) = (title.trim().to_owned(), done_when.trim().to_owned());
    let step = ProjectPlanStep { title, detail: String::new(), done_when };
    (!step.title.is_empty() && !step.done_when.is_empty()).then_some(step)
}

fn find_checkpoint(context: &ProjectFlowContext<'_>, arguments: &Value) -> Result<String, String> {
    let checkpoints = &context.state().checkpoints;
    let visit = arguments.get("visit").and_then(|visit| visit.as_u64().or_else(|| visit.as_str()?.parse().ok()));
    let name = arguments.get("checkpoint").and_then(Value::as_str).filter(|name| !name.is_empty());
    let found = match (name, visit) {
        (Some(name), _) => checkpoints.iter().rev().find(|entry| entry.checkpoint.starts_with(name)),
        (None, Some(visit)) => checkpoints.iter().rev().find(|entry| u64::from(entry.visit) <= visit),
        (None, None) => return Err("name a `checkpoint` or a `visit`".to_owned()),
    };
    found.map(|entry| entry.checkpoint.clone()).ok_or_else(|| {
        let known: Vec<&str> =
            checkpoints.iter().map(|entry| entry.checkpoint.get(..12).unwrap_or(&entry.checkpoint)).collect();
        format!("there is no such checkpoint; there are {}", known.join(", "))
    })
}

/// Continues after files were restored at the user's request.
pub(super) fn handle_user_restore(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    match context.view.session.current_turn {
        Some(_) => turn::advance_unless_waiting(context),
        None => vec![reply_step("The files are restored.".to_owned())],
    }
}
