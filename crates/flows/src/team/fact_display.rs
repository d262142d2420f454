//! Describes the facts of the flow for people.

use segue_core::flow::FactDisplay;
use serde_json::Value;

use super::facts::{StoryListOrigin, TeamFact};
use crate::fact::parse_fact;

/// Describes a fact.
pub(super) fn describe_team_fact(kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = parse_fact::<TeamFact>(kind, value) else { return FactDisplay::Raw };
    match fact {
        TeamFact::SpecAccepted { number, spec } => {
            FactDisplay::Notice(format!("the team starts on spec {number}: {}", spec.title))
        }
        TeamFact::RepositoryInspected(repository) => {
            let warnings = match repository.warnings.as_slice() {
                [] => String::new(),
                warnings => format!(" ({})", warnings.join("; ")),
            };
            let base = repository.short_base();
            FactDisplay::Notice(format!(
                "the work is based on {base} and goes to `{}`{warnings}",
                repository.integration
            ))
        }
        TeamFact::StoriesPlanned { stories, origin, .. } => {
            let how = match origin {
                StoryListOrigin::Emitted => "",
                StoryListOrigin::Repaired => ", after a correction",
                StoryListOrigin::SingleStory => ", because the architect gave no valid stories",
            };
            FactDisplay::Notice(format!("{} stories{how}", stories.len()))
        }
        TeamFact::Assigned(assignment) => FactDisplay::Notice(format!(
            "{} works on {} (attempt {})",
            assignment.agent, assignment.story, assignment.attempt
        )),
        TeamFact::ReviewGiven(given) => FactDisplay::Notice(format!(
            "{} of {} for {}: {}. {}",
            given.kind.as_str(),
            given.story,
            given.agent,
            given.verdict.as_str(),
            given.review.feedback
        )),
        TeamFact::TestsRan { agent, passed, .. } => {
            FactDisplay::Notice(format!("the tests of {agent} {}", if passed { "passed" } else { "failed" }))
        }
        TeamFact::WorkRefused { agent, problems } => {
            FactDisplay::Notice(format!("the changes of {agent} were refused: {}", problems.join("; ")))
        }
        TeamFact::MergeConflicted { story, files, .. } => {
            FactDisplay::Notice(format!("{story} conflicts in {} and is done again on the new base", files.join(", ")))
        }
        TeamFact::Merged { story, .. } => FactDisplay::Notice(format!("{story} is merged")),
        TeamFact::StoryRequeued { story, reason, .. } => FactDisplay::Notice(format!("{story} waits again: {reason}")),
        TeamFact::Escalated { subject, reason, .. } => FactDisplay::Notice(format!("{subject} needs you: {reason}")),
        TeamFact::KnowledgeAdded { agent, node, .. } => FactDisplay::Notice(format!("{agent} recorded `{}`", node.id)),
        TeamFact::ExpressQueued { story, by, .. } => {
            FactDisplay::Notice(format!("{by} queued `{}` as express work", story.title))
        }
        TeamFact::Paused => FactDisplay::Notice("the team is paused".to_owned()),
        TeamFact::Resumed => FactDisplay::Notice("the team continues".to_owned()),
        TeamFact::TakenOver { story, agent } => {
            FactDisplay::Notice(format!("you took {story} over from {agent}; give it back with `give_back`"))
        }
        TeamFact::GivenBack { story, .. } => FactDisplay::Notice(format!("you gave {story} back")),
        TeamFact::Landed { branch, .. } => FactDisplay::Notice(format!("landed on `{branch}`")),
        TeamFact::LandingUndone { branch } => FactDisplay::Notice(format!("`{branch}` is back where it was")),
        TeamFact::StoryMoved { story, status, reason } => {
            FactDisplay::Detail(format!("{story}: {} ({reason})", status.as_str()))
        }
        TeamFact::KnowledgeRefused { agent, problems } => {
            FactDisplay::Detail(format!("an entry of {agent} was refused: {}", problems.join("; ")))
        }
        TeamFact::WorkFailed { agent, reason, failure } => {
            FactDisplay::Detail(format!("the attempt of {agent} failed ({}): {reason}", failure.as_str()))
        }
        TeamFact::ReviewRefused { why, .. } => {
            FactDisplay::Detail(format!("the architect's answer was refused: {why}"))
        }
        TeamFact::ReviewDiscarded { agent, work, .. } => {
            FactDisplay::Detail(format!("an answer for {agent} about {work} came too late"))
        }
        TeamFact::StoriesRefused { problems } => {
            FactDisplay::Detail(format!("the stories were refused: {}", problems.join("; ")))
        }
        TeamFact::KnowledgeImported { graph } => {
            FactDisplay::Detail(format!("{} entries were read from the knowledge file", graph.nodes.len()))
        }
        TeamFact::SpecAborted { reason } => FactDisplay::Notice(format!("the team cannot start: {reason}")),
        TeamFact::DispatchBegun
        | TeamFact::DispatchEnded
        | TeamFact::SpecDrafted { .. }
        | TeamFact::StoryChanged { .. }
        | TeamFact::Unassigned { .. }
        | TeamFact::WorktreeReady { .. }
        | TeamFact::TaskGiven { .. }
        | TeamFact::PlanSubmitted { .. }
        | TeamFact::WorkReported { .. }
        | TeamFact::WorkCommitted { .. }
        | TeamFact::RequestPrepared { .. }
        | TeamFact::ReviewPartRead { .. }
        | TeamFact::KnowledgeFileWritten { .. }
        | TeamFact::Rebased { .. }
        | TeamFact::EscalationEnded { .. }
        | TeamFact::AccountGiven
        | TeamFact::SpecEnded { .. } => FactDisplay::Hidden,
    }
}
