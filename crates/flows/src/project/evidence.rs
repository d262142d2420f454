//! Runs the tools of the workspace that the flow needs itself: its description, checkpoints, checks and restoring. Derives
//! the verdict on the content from what the commands returned.

use segue_core::flow::FlowStep;

use super::definition::CheckMoment;
use super::facts::{AskUserReason, ProjectFact, WorkspaceCheckVerdict};
use super::lessons;
use super::project_context::ProjectFlowContext;
use super::state::WorkspaceCheckProgress;
use crate::workspace_tools::{
    CreateCheckpointArguments, RestoreCheckpointArguments, RunChecksArguments, WorkspaceStatusArguments,
    WorkspaceToolRequest,
};

/// Returns whether a tool that the flow started itself is running.
pub(super) fn has_open_flow_run(context: &ProjectFlowContext<'_>) -> bool {
    context.view.session.open_tool_runs.values().any(|run| run.requested_by.is_none())
}

/// Describes and saves the content at the beginning of a turn.
pub(super) fn prepare_workspace_for_turn(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    if !context.has_workspace() || context.state().is_prepared {
        return None;
    }
    let label = context.state().turn.map_or_else(|| "turn".to_owned(), |turn| format!("turn {}", turn.0));
    let own = [workspace_status_step(context), create_checkpoint_step(&label)];
    Some(lessons::request_lessons(context).into_iter().chain(own).collect())
}

fn workspace_status_step(context: &ProjectFlowContext<'_>) -> FlowStep {
    let since = context.state().checkpoints.front().map(|first| first.checkpoint.clone());
    WorkspaceToolRequest::Status(WorkspaceStatusArguments { since }).into_step(None)
}

fn create_checkpoint_step(label: &str) -> FlowStep {
    WorkspaceToolRequest::CreateCheckpoint(CreateCheckpointArguments { label: label.to_owned() }).into_step(None)
}

fn run_checks_step(context: &ProjectFlowContext<'_>) -> FlowStep {
    WorkspaceToolRequest::RunChecks(RunChecksArguments { confirmed: context.extra_check_commands() }).into_step(None)
}

/// Restores the content of a checkpoint.
pub(super) fn restore_checkpoint_step(checkpoint: &str) -> FlowStep {
    WorkspaceToolRequest::RestoreCheckpoint(RestoreCheckpointArguments { checkpoint: checkpoint.to_owned() })
        .into_step(None)
}

/// Does what must be done before the agents of a phase start: saves the content, and runs the checks.
pub(super) fn prepare_workspace_for_visit(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    if !context.has_workspace() {
        return None;
    }
    let (phase, visit) = (context.phase(), &context.state().visit);
    if visit.checkpoint.is_none() && !visit.checkpoint_failed {
        return Some(vec![create_checkpoint_step(&format!("before {}", phase.name))]);
    }
    let runs_checks = phase.checks == CheckMoment::Before && !context.known_check_commands().is_empty();
    if runs_checks && visit.entry_checks == WorkspaceCheckProgress::Pending {
        return Some(vec![run_checks_step(context)]);
    }
    None
}

/// Does what must be done after the agents of a phase have completed, before the next phase: runs the checks on the current
/// content and derives the verdict, restores the content if a check failed, or asks the user.
pub(super) fn check_workspace_after_visit(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let (phase, state) = (context.phase(), context.state());
    if phase.checks == CheckMoment::Never || state.visit.turns_closed == 0 || !state.visit.completed {
        return None;
    }
    // A message of the user is routed before the user is asked again.
    let may_ask = !context.has_unrouted_message();
    if !context.has_workspace() {
        let waits = may_ask && !state.is_current_content_confirmed();
        return waits.then(|| context.stop_to_ask_user(AskUserReason::Confirmation));
    }
    if state.content.digest().is_none() && !state.visit.checkpoint_failed {
        return Some(vec![create_checkpoint_step(&format!("after {}", phase.name))]);
    }
    if context.known_check_commands().is_empty() {
        let waits = may_ask && !state.is_current_content_confirmed() && state.visit.issues.is_empty();
        return waits.then(|| context.stop_to_ask_user(AskUserReason::Confirmation));
    }
    match phase.checks {
        CheckMoment::Never => None,
        CheckMoment::Before => finish_verification(context),
        CheckMoment::After => run_exit_checks(context),
    }
}

/// The verdict of a phase that verifies: the checks on the current content, and the issues that agents reported.
fn finish_verification(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let state = context.state();
    let checked = state.last_checks.as_ref().map(|checks| checks.content_digest_after.as_str());
    let is_stale = checked.is_none() || checked != state.content.digest();
    if is_stale && state.visit.exit_checks == WorkspaceCheckProgress::Pending {
        return Some(vec![run_checks_step(context)]);
    }
    if let Some(rerun) = rerun_checks_that_changed_files(context) {
        return Some(rerun);
    }
    let verdict = derive_verdict(context)?;
    (state.verdict.as_ref() != Some(&verdict)).then(|| vec![ProjectFact::VerdictReached(Box::new(verdict)).into_step()])
}

/// The checks after a phase: if one fails, the content from before the phase is restored.
fn run_exit_checks(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let state = context.state();
    if state.current_verdict().is_some_and(|verdict| verdict.passed) {
        return None;
    }
    match state.visit.exit_checks {
        WorkspaceCheckProgress::Pending => Some(vec![run_checks_step(context)]),
        WorkspaceCheckProgress::Running => None,
        WorkspaceCheckProgress::Done => {
            if let Some(rerun) = rerun_checks_that_changed_files(context) {
                return Some(rerun);
            }
            let verdict = derive_verdict(context);
            let is_new = verdict.is_some() && state.verdict != verdict;
            if let Some(verdict) = verdict.clone().filter(|_| is_new) {
                return Some(vec![ProjectFact::VerdictReached(Box::new(verdict)).into_step()]);
            }
            let checkpoint = state.visit.checkpoint.as_deref()?;
            let is_restored = state.content.digest() == Some(checkpoint);
            (!is_restored).then(|| vec![restore_checkpoint_step(checkpoint)])
        }
    }
}

/// Runs the checks once more if they changed the content, because they are about another content then.
fn rerun_checks_that_changed_files(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let state = context.state();
    let checks = state.last_checks.as_ref()?;
    let changed = checks.passed && checks.content_digest != checks.content_digest_after;
    (changed && !state.visit.checks_rerun).then(|| vec![run_checks_step(context)])
}

/// Derives the verdict from the last run of the checks and the issues that agents reported in this visit.
pub(super) fn derive_verdict(context: &ProjectFlowContext<'_>) -> Option<WorkspaceCheckVerdict> {
    let state = context.state();
    let checks = state.last_checks.as_ref()?;
    let is_stable = checks.content_digest == checks.content_digest_after;
    let issues = state.visit.issues.clone();
    Some(WorkspaceCheckVerdict {
        digest: checks.content_digest_after.clone(),
        passed: checks.passed && is_stable && issues.is_empty(),
        commands: checks.commands.clone(),
        issues,
        problem: (checks.passed && !is_stable).then(|| {
            "the checks change files each time they run, so they say nothing about the final content; exclude those files"
                .to_owned()
        }),
    })
}

/// Records what follows when the content was restored, because a check failed after the phase.
pub(super) fn handle_restored(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let (phase, state) = (context.phase(), context.state());
    let checkpoint = state.visit.checkpoint.as_deref()?;
    let failed = state.verdict.as_ref().is_some_and(|verdict| !verdict.passed);
    let is_exit =
        phase.checks == CheckMoment::After && state.visit.exit_checks == WorkspaceCheckProgress::Done && failed;
    (is_exit && state.content.digest() == Some(checkpoint)).then(|| {
        let why = format!("a check failed after `{}`, so its changes were undone", phase.name);
        vec![ProjectFact::ContentRestored { checkpoint: checkpoint.to_owned(), why }.into_step()]
    })
}
