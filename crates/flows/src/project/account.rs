//! Honest accounts for people and for the next agent: what was done, what was verified, and what to do next. They are built
//! from the state, never from a model's words about itself alone.

use segue_core::ids::{AgentName, PhaseName};
use serde_json::{Value, json};

use super::facts::{AgentTurnEndKind, AskUserReason};
use super::project_context::ProjectFlowContext;
use super::text::{count_with_noun, truncate_chars};
use crate::limits::{ACCOUNT_FILES_MAX, ACCOUNT_LINES_MAX, ACCOUNT_SUMMARY_CHARS_MAX};
use crate::template::fill_template;

/// Returns the summaries of the last routing turn, for the agents that follow.
pub(super) fn handoff_summary(context: &ProjectFlowContext<'_>) -> Option<String> {
    let last = context.state().turns.back().filter(|turn| turn.is_closed)?;
    let lines = last.completions.iter().filter(|(_, done)| !done.completion.summary.is_empty());
    let lines: Vec<String> =
        lines.map(|(agent, done)| format!("{}: {}", context.display_name(agent), done.completion.summary)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns the full explanation of a transition.
pub(super) fn transition_message(
    context: &ProjectFlowContext<'_>,
    to: &PhaseName,
    agents: &[AgentName],
    reason: &str,
) -> String {
    let names: Vec<String> = agents.iter().map(|agent| context.display_name(agent)).collect();
    let who = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    format!("from `{}` to `{to}` with {who}: {reason}", context.phase_name())
}

/// Describes the verdict on the current content in one sentence.
fn verification_line(context: &ProjectFlowContext<'_>) -> String {
    let state = context.state();
    if state.changed_files.is_empty() && state.verdict.is_none() {
        return "no files were changed, so there was nothing to verify".to_owned();
    }
    match (state.current_verdict(), &state.verdict) {
        (Some(verdict), _) if verdict.passed => {
            format!("verified: {} passed on the current content", count_with_noun(verdict.commands.len(), "check"))
        }
        (Some(verdict), _) => {
            let failed = verdict.commands.iter().filter(|command| !command.has_passed()).count();
            let (checks, issues) =
                (count_with_noun(failed, "failed check"), count_with_noun(verdict.issues.len(), "reported issue"));
            format!("not verified: {checks}, {issues}")
        }
        (None, _) if state.is_current_content_confirmed() => "confirmed by you; no check ran".to_owned(),
        (None, Some(_)) => "not verified: the content has changed since the checks ran".to_owned(),
        (None, None) => "not verified: no check ran".to_owned(),
    }
}

/// The data of an account.
fn account_template_data(context: &ProjectFlowContext<'_>) -> Value {
    let state = context.state();
    let done =
        state.turns.iter().flat_map(|turn| turn.completions.iter().map(move |(agent, done)| (turn, agent, done)));
    let lines = done.filter(|(_, _, done)| done.how != AgentTurnEndKind::Answered).map(|(turn, agent, done)| {
        json!({
            "phase": turn.decision.phase,
            "agent": context.display_name(agent),
            "summary": truncate_chars(&done.completion.summary, ACCOUNT_SUMMARY_CHARS_MAX),
            "note": match done.how {
                AgentTurnEndKind::Completed if done.completion.empty => "without any change",
                AgentTurnEndKind::Completed | AgentTurnEndKind::Answered => "",
                AgentTurnEndKind::AutoCompleted => "not completed by the agent itself",
                AgentTurnEndKind::Failed => "failed",
                AgentTurnEndKind::Stopped => "stopped",
            },
        })
    });
    let mut lines: Vec<Value> = lines.collect();
    let left_out = lines.len().saturating_sub(ACCOUNT_LINES_MAX);
    lines.drain(..left_out);
    let files: Vec<&String> = state.changed_files.keys().collect();
    let verdict = state.verdict.as_ref();
    let failed = verdict.into_iter().flat_map(|verdict| &verdict.commands).filter(|command| !command.has_passed());
    let failed: Vec<Value> = failed.map(|command| json!({"command": command.command, "end": command.end})).collect();
    let issues = verdict.map(|verdict| verdict.issues.clone()).unwrap_or_default();
    let gates: Vec<String> =
        context.phase_state().map(|phase| phase.open_gates.iter().cloned().collect()).unwrap_or_default();
    json!({
        "phase": context.phase_name(),
        "lines": lines,
        "left_out": left_out,
        "files": files.iter().take(ACCOUNT_FILES_MAX).collect::<Vec<_>>(),
        "files_left_out": files.len().saturating_sub(ACCOUNT_FILES_MAX),
        "verification": verification_line(context),
        "failed": failed,
        "issues": issues,
        "open_gates": gates,
    })
}

/// Says why the flow stopped, what was done and what to do next.
pub(super) fn render_stop(context: &ProjectFlowContext<'_>, why: AskUserReason) -> String {
    let mut data = account_template_data(context);
    data["why"] = json!(why);
    data["plan"] = json!(context.state().plan.as_ref().map(|status| &status.plan));
    data["holder"] = json!(context.state().claim_wait.as_ref().map(|wait| &wait.holder));
    data["turns_max"] = json!(context.definition.limits.routing_turns_max);
    fill_template(include_str!("../../prompts/project/stop.md"), &data)
}

/// Says what was done when the flow has ended.
pub(super) fn render_end(context: &ProjectFlowContext<'_>) -> String {
    let mut data = account_template_data(context);
    data["early"] = json!(false);
    fill_template(include_str!("../../prompts/project/end.md"), &data)
}

/// Says what was done and what is not verified when the user ends the session early.
pub(super) fn render_early_end(context: &ProjectFlowContext<'_>) -> String {
    let mut data = account_template_data(context);
    data["early"] = json!(true);
    fill_template(include_str!("../../prompts/project/end.md"), &data)
}

/// Says what a rollback did, and how the files can follow.
pub(super) fn render_rollback_reply(context: &ProjectFlowContext<'_>, visit: u32) -> String {
    let checkpoint = context.state().checkpoints.iter().rev().find(|entry| entry.visit <= visit);
    let data = json!({
        "phase": context.phase_name(),
        "visit": visit,
        "checkpoint": checkpoint.map(|entry| &entry.checkpoint),
    });
    fill_template(include_str!("../../prompts/project/rolled_back.md"), &data)
}

/// The result that a parent session or a script gets.
pub(super) fn result_json(context: &ProjectFlowContext<'_>) -> Value {
    let state = context.state();
    let data = account_template_data(context);
    json!({
        "phase": data["phase"],
        "files": data["files"],
        "verification": data["verification"],
        "verified": state.current_verdict().is_some_and(|verdict| verdict.passed),
        "confirmed": state.is_current_content_confirmed(),
        "issues": data["issues"],
        "open_gates": data["open_gates"],
        "work": data["lines"],
    })
}
