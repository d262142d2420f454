//! Describes the flow's facts for people.

use segue_core::flow::FactDisplay;
use serde_json::Value;

use super::definition::FlowDefinition;
use super::facts::{AgentTurnEndKind, MidWorkNoticeToAgentReason, PlanApprover, ProjectFact, RoutingDecisionMaker};
use super::text::count_with_noun;
use crate::fact::parse_fact;

/// Describes a fact.
pub(super) fn describe_project_fact(definition: &FlowDefinition, kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = parse_fact::<ProjectFact>(kind, value) else { return FactDisplay::Raw };
    let name = |agent: &segue_core::ids::AgentName| {
        definition.find_agent(agent.as_str()).map_or_else(|| agent.to_string(), |agent| agent.display_name().to_owned())
    };
    let names = |agents: &[segue_core::ids::AgentName]| agents.iter().map(name).collect::<Vec<_>>().join(", ");
    match fact {
        ProjectFact::Decided(_) | ProjectFact::CompletionAccepted { .. } => FactDisplay::Hidden,
        ProjectFact::DecisionRejected { complaints, .. } => {
            FactDisplay::Detail(format!("the router's answer was not usable: {}", complaints.join("; ")))
        }
        ProjectFact::TurnOpened { turn, decision } => {
            let by = match decision.by {
                RoutingDecisionMaker::Router => "chosen by the router",
                RoutingDecisionMaker::Code => "the only possibility",
                RoutingDecisionMaker::Default => "by default",
                RoutingDecisionMaker::User => "at your request",
            };
            let who = names(&decision.agents);
            FactDisplay::Notice(format!("{}: {who} ({by}; routing turn {turn})", decision.phase))
        }
        ProjectFact::CompletionRefused { agent, why, .. } => {
            FactDisplay::Detail(format!("{} may not complete yet: {why}", name(&agent)))
        }
        ProjectFact::AgentTurnEnd { agent, how, completion, .. } => {
            let ending = match how {
                AgentTurnEndKind::Answered => return FactDisplay::Hidden,
                AgentTurnEndKind::Completed if completion.empty => "completed without any change",
                AgentTurnEndKind::Completed => "completed",
                AgentTurnEndKind::AutoCompleted => "did not complete its work itself",
                AgentTurnEndKind::Failed => "failed",
                AgentTurnEndKind::Stopped => "was stopped",
            };
            FactDisplay::Notice(format!("{} {ending}: {}", name(&agent), completion.summary))
        }
        ProjectFact::LateCompletion { agent, .. } => {
            FactDisplay::Detail(format!("{} completed after its turn was over", name(&agent)))
        }
        ProjectFact::TurnAbandoned { why, .. } => FactDisplay::Notice(format!("the work was given up: {why}")),
        ProjectFact::AgentReminded { agent, .. } => {
            FactDisplay::Detail(format!("{} was reminded to complete its work", name(&agent)))
        }
        ProjectFact::WriteAnnounced { agent, path, .. } => {
            FactDisplay::Detail(format!("{} is going to write {path}", name(&agent)))
        }
        ProjectFact::ActionRefused { agent, why, .. } => {
            FactDisplay::Detail(format!("the action of {} was not usable: {why}", name(&agent)))
        }
        ProjectFact::AgentSteered { agent, why, .. } => FactDisplay::Detail(match why {
            MidWorkNoticeToAgentReason::UserMessage => format!("{} was given your message", name(&agent)),
            MidWorkNoticeToAgentReason::RepeatedCall => format!("{} was told that it repeats itself", name(&agent)),
        }),
        ProjectFact::UnknownAgents { names, phase } => {
            FactDisplay::Detail(format!("the router named agents that cannot work in {phase}: {}", names.join(", ")))
        }
        ProjectFact::LoopNoticed { phase, agents, times } => {
            FactDisplay::Detail(format!("{phase} with {} was routed {times} times", names(&agents)))
        }
        ProjectFact::PlanSubmitted(plan) => {
            FactDisplay::Notice(format!("a plan with {} was made", count_with_noun(plan.steps.len(), "step")))
        }
        ProjectFact::PlanEdited(plan) => {
            FactDisplay::Notice(format!("you changed the plan: {}", count_with_noun(plan.steps.len(), "step")))
        }
        ProjectFact::PlanApproved { by: PlanApprover::User } => FactDisplay::Notice("you approved the plan".to_owned()),
        ProjectFact::PlanApproved { by: PlanApprover::Auto } => {
            FactDisplay::Notice("the plan was approved automatically (plan_approval = auto)".to_owned())
        }
        ProjectFact::CheckConfirmed { command } => FactDisplay::Notice(format!("you named a check: {command}")),
        ProjectFact::ContentConfirmed { .. } => FactDisplay::Notice("you confirmed the content".to_owned()),
        ProjectFact::VisitConfirmed => FactDisplay::Detail("you confirmed the current phase".to_owned()),
        ProjectFact::VerdictReached(verdict) => {
            let failed = verdict.commands.iter().filter(|command| !command.has_passed());
            let failed: Vec<String> = failed.map(|command| format!("`{}`", command.command)).collect();
            let names = if failed.is_empty() { String::new() } else { format!(": {}", failed.join(", ")) };
            FactDisplay::Notice(match verdict.passed {
                true => format!("verdict: passed ({})", count_with_noun(verdict.commands.len(), "check")),
                false => format!(
                    "verdict: not passed ({}{names}, {})",
                    count_with_noun(failed.len(), "failed check"),
                    count_with_noun(verdict.issues.len(), "issue")
                ),
            })
        }
        ProjectFact::ContentRestored { why, .. } => FactDisplay::Notice(why),
        ProjectFact::LessonLearned { agent, lesson } => {
            FactDisplay::Notice(format!("{} learned: {}", name(&agent), lesson.title))
        }
        ProjectFact::LessonNotKept { why } => {
            FactDisplay::Notice(format!("the workspace did not keep the lesson: {why}"))
        }
        ProjectFact::ClaimAwaited(wait) => FactDisplay::Notice(wait.describe_wait()),
        ProjectFact::UserAsked { .. } => FactDisplay::Hidden,
        ProjectFact::EndedEarly { open_gates } => match open_gates.as_slice() {
            [] => FactDisplay::Detail("you ended the session".to_owned()),
            gates => FactDisplay::Notice(format!("you ended the session with open obligations: {}", gates.join(", "))),
        },
    }
}
