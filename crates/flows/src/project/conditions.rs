//! Evaluates the conditions of edges and gates from the state. None of them holds because a model says so.

use segue_core::phase::PhaseConditionVerdict;

use super::definition::FlowCondition;
use super::project_context::ProjectFlowContext;
use super::spec::VISITS_LEFT_PREFIX;

/// Evaluates a condition by its name.
pub(super) fn evaluate_condition(context: &ProjectFlowContext<'_>, name: &str) -> PhaseConditionVerdict {
    if let Some(phase) = name.strip_prefix(VISITS_LEFT_PREFIX) {
        return condition_verdict(has_visits_left(context, phase), || {
            format!("`{phase}` was entered as often as allowed since the user's last message; the user must be asked")
        });
    }
    let Some(condition) = FlowCondition::from_name(name) else {
        return PhaseConditionVerdict::Fails(format!("there is no condition `{name}`"));
    };
    let state = context.state();
    match condition {
        FlowCondition::Completed => condition_verdict(state.visit.completed, || {
            "no agent has completed its work in this phase with `complete`".to_owned()
        }),
        FlowCondition::PlanApproved => {
            let approved = state.plan.as_ref().is_some_and(|plan| plan.approved_by.is_some());
            condition_verdict(approved, || match &state.plan {
                None => "there is no plan".to_owned(),
                Some(_) => "the plan is not approved".to_owned(),
            })
        }
        FlowCondition::UserAsked => {
            let quoted = state.decision.as_ref().is_some_and(|decision| decision.user_words.is_some());
            condition_verdict(quoted, || {
                "the user did not ask for it; quote the user's words in `user_words`".to_owned()
            })
        }
        FlowCondition::ChecksPass => evaluate_checks_condition(context),
        FlowCondition::AllReflected => {
            let waiting = state.agents_to_reflect();
            let names: Vec<&str> = waiting.iter().map(|agent| agent.as_str()).collect();
            condition_verdict(waiting.is_empty(), || format!("these agents have not reflected: {}", names.join(", ")))
        }
        FlowCondition::UserConfirmed => condition_verdict(state.visit.confirmed, || {
            "the user has not confirmed it; the command is `confirm`".to_owned()
        }),
    }
}

fn condition_verdict(holds: bool, why: impl FnOnce() -> String) -> PhaseConditionVerdict {
    if holds { PhaseConditionVerdict::Holds } else { PhaseConditionVerdict::Fails(why()) }
}

/// Returns whether a phase may still be entered before the user is asked.
pub(super) fn has_visits_left(context: &ProjectFlowContext<'_>, phase: &str) -> bool {
    let most = context.definition.find_phase(phase).and_then(|phase| phase.visits_max);
    let visits = context.state().visits_since_message.get(phase).copied().unwrap_or(0);
    most.is_none_or(|most| visits < most)
}

fn evaluate_checks_condition(context: &ProjectFlowContext<'_>) -> PhaseConditionVerdict {
    let state = context.state();
    if context.known_check_commands().is_empty() {
        return condition_verdict(state.is_current_content_confirmed(), || {
            "no check is known, and the user has not confirmed this content; the command is `confirm`".to_owned()
        });
    }
    match (state.current_verdict(), &state.verdict) {
        (Some(current), _) if current.passed => PhaseConditionVerdict::Holds,
        (Some(current), _) => PhaseConditionVerdict::Fails(match &current.problem {
            Some(problem) => problem.clone(),
            None if current.issues.is_empty() => "a check failed".to_owned(),
            None => "issues were reported".to_owned(),
        }),
        (None, Some(_)) => PhaseConditionVerdict::Fails("the content has changed since the checks ran".to_owned()),
        (None, None) => PhaseConditionVerdict::Fails("the checks have not run".to_owned()),
    }
}
