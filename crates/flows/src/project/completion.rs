//! Checks a request to complete work. What it must contain depends on the phase.

use segue_core::ids::AgentName;
use serde_json::Value;

use super::definition::{CheckMoment, CompletionMode};
use super::facts::{AgentCompletionReport, ProjectPlan, ProjectPlanStep, ReportedIssue};
use super::project_context::ProjectFlowContext;
use super::text::truncate_chars;
use crate::limits::{
    COMPLETION_SUMMARY_CHARS_MAX, ISSUE_TEXT_CHARS_MAX, ISSUES_MAX, PLAN_STEPS_MAX, REFUSED_COMPLETIONS_MAX,
    STEP_TEXT_CHARS_MAX, STEP_TITLE_CHARS_MAX,
};

/// The decision on a request to complete work.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AgentCompletionDecision {
    Accepted {
        completion: AgentCompletionReport,
        plan: Option<ProjectPlan>,
        /// What the agent is told.
        message: String,
    },
    Refused {
        why: String,
    },
}

/// Decides on a request to complete work.
pub(super) fn check_completion(
    context: &ProjectFlowContext<'_>,
    agent: &AgentName,
    arguments: &Value,
) -> AgentCompletionDecision {
    let phase = context.phase();
    let work = context.state().current_work(agent);
    let summary = arguments.get("summary").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let may_insist = work.refused_completions >= REFUSED_COMPLETIONS_MAX;
    if summary.is_empty() && !may_insist {
        return refuse("`summary` is missing; say what was done and what the next agent must know");
    }
    let mut plan = None;
    if phase.plan {
        match parse_plan(arguments.get("plan")) {
            Ok(parsed) => plan = Some(parsed),
            Err(_) if may_insist && context.state().plan.is_some() => {}
            Err(why) => return refuse(&why),
        }
    }
    let is_empty = phase.changes_required && !context.state().visit.changed;
    if is_empty && work.refused_completions == 0 && context.has_workspace() {
        return refuse(
            "nothing in the workspace was changed in this phase. Make the changes with the tools before you complete the \
             work. If really nothing has to change, call `complete` again and say why",
        );
    }
    let issues = if phase.checks == CheckMoment::Before { parse_issues(arguments.get("issues")) } else { Vec::new() };
    let completion = AgentCompletionReport {
        summary: truncate_chars(summary, COMPLETION_SUMMARY_CHARS_MAX),
        issues,
        empty: is_empty && context.has_workspace(),
    };
    let message = acceptance_message(context, &completion, plan.as_ref());
    AgentCompletionDecision::Accepted { completion, plan, message }
}

fn refuse(why: &str) -> AgentCompletionDecision {
    AgentCompletionDecision::Refused { why: why.to_owned() }
}

/// Says what follows from the completion in this phase.
fn acceptance_message(
    context: &ProjectFlowContext<'_>,
    completion: &AgentCompletionReport,
    plan: Option<&ProjectPlan>,
) -> String {
    let phase = context.phase();
    if let Some(plan) = plan {
        return format!(
            "the plan with {} steps is recorded; it has to be approved before it is carried out",
            plan.steps.len()
        );
    }
    if phase.completion == CompletionMode::Reflection {
        return "your reflection is recorded".to_owned();
    }
    if phase.checks == CheckMoment::Before {
        return match completion.issues.len() {
            0 => "recorded without issues; the verdict follows from the checks".to_owned(),
            count => format!("recorded with {count} issues, which go back to the agent that does the work"),
        };
    }
    if completion.empty {
        return "recorded as completed without any change".to_owned();
    }
    format!("your work in `{}` is recorded as complete", phase.name)
}

/// Reads a plan.
///
/// # Errors
/// Returns what is missing, in words for the agent.
pub(super) fn parse_plan(value: Option<&Value>) -> Result<ProjectPlan, String> {
    let example = "`plan` must be {\"goal\": \"…\", \"steps\": [{\"title\": \"…\", \"done_when\": \"…\"}]}";
    let Some(plan) = value.filter(|value| value.is_object()) else {
        return Err(format!("this phase ends with a plan; {example}"));
    };
    let text = |value: &Value, name: &str, chars_max: usize| {
        truncate_chars(value.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default(), chars_max)
    };
    let steps = plan.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if steps.is_empty() {
        return Err(format!("the plan has no steps; {example}"));
    }
    let mut parsed = Vec::new();
    for (index, step) in steps.iter().take(PLAN_STEPS_MAX).enumerate() {
        let step = ProjectPlanStep {
            title: text(step, "title", STEP_TITLE_CHARS_MAX),
            detail: text(step, "detail", STEP_TEXT_CHARS_MAX),
            done_when: text(step, "done_when", STEP_TEXT_CHARS_MAX),
        };
        if step.title.is_empty() || step.done_when.is_empty() {
            return Err(format!("step {} needs both `title` and `done_when`; {example}", index + 1));
        }
        parsed.push(step);
    }
    Ok(ProjectPlan { goal: text(plan, "goal", STEP_TEXT_CHARS_MAX), steps: parsed })
}

fn parse_issues(value: Option<&Value>) -> Vec<ReportedIssue> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let issues = value.and_then(Value::as_array).into_iter().flatten().map(|issue| match issue {
        Value::String(title) => ReportedIssue { title: title.trim().to_owned(), steps_to_reproduce: String::new() },
        issue => ReportedIssue {
            title: text(issue, "title"),
            steps_to_reproduce: truncate_chars(&text(issue, "steps_to_reproduce"), ISSUE_TEXT_CHARS_MAX),
        },
    });
    let named = issues.filter(|issue| !issue.title.is_empty());
    named
        .map(|issue| ReportedIssue { title: truncate_chars(&issue.title, ISSUE_TEXT_CHARS_MAX), ..issue })
        .take(ISSUES_MAX)
        .collect()
}
