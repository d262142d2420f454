//! Merging: one story at a time. A story is rebased onto the integration branch, tested again, and merged as exactly the
//! commit that was tested and reviewed. If the rebase changes the diff, the diff is reviewed again.

use segue_core::body::TextRef;
use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;

use super::coder::{fail_attempt, give_task};
use super::express::is_knowledge_work;
use super::facts::{CoderTask, TeamFact, TeamFailureKind};
use super::graphs::{CODING, DONE};
use super::repository_tools::{RepositoryTool, RepositoryToolResult};
use super::team_context::{TeamFlowContext, propose_agent_phase};
use crate::limits::STORY_CONFLICTS_MAX;

/// Starts or continues the merge of a coder's story, if it is the first in the queue.
pub(super) fn rebase_if_first_in_merge_queue(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    if context.state().merge_queue.first() != Some(agent) || context.is_busy(agent) {
        return Vec::new();
    }
    vec![RepositoryTool::Rebase.into_step(Some(agent.clone()), &context.repository_request(agent))]
}

/// Starts the merge of the next story.
pub(super) fn start_next_merge(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let next = context.state().merge_queue.first().cloned();
    next.map(|agent| rebase_if_first_in_merge_queue(context, &agent)).unwrap_or_default()
}

/// Handles the end of a rebase.
pub(super) fn handle_rebase_result(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    result: RepositoryToolResult,
    diff: TextRef,
) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    if result.conflicts {
        return handle_merge_conflict(context, agent, result);
    }
    if Some(&result.commit) == coder.commit.as_ref() && coder.green_commit.as_ref() == Some(&result.commit) {
        return merge_commit(context, agent, &result.commit);
    }
    let is_reviewed = coder.approved_diff.as_ref() == Some(&result.diff_digest) || is_knowledge_work(context, agent);
    let fact = TeamFact::Rebased {
        agent: agent.clone(),
        base: result.base,
        commit: result.commit.clone(),
        diff,
        diff_digest: result.diff_digest,
    };
    let mut steps = vec![fact.into_step()];
    if is_knowledge_work(context, agent) {
        steps.extend(merge_commit(context, agent, &result.commit));
    } else if is_reviewed {
        let request = super::repository_tools::RepositoryToolRequest {
            commit: Some(result.commit),
            ..context.repository_request(agent)
        };
        steps.push(RepositoryTool::Test.into_step(Some(agent.clone()), &request));
    } else {
        steps.extend(give_task(agent, CoderTask::Recheck, CODING, "the rebase changed the diff"));
    }
    steps
}

fn handle_merge_conflict(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    result: RepositoryToolResult,
) -> Vec<FlowStep> {
    let Some(progress) = context.state().story_of(agent) else { return Vec::new() };
    let (story, files) = (progress.story.id.clone(), result.files);
    let mut steps = vec![
        TeamFact::MergeConflicted { agent: agent.clone(), story, files: files.clone() }.into_step(),
        TeamFact::WorktreeReady { agent: agent.clone(), base: result.base }.into_step(),
    ];
    if progress.conflicts + 1 >= STORY_CONFLICTS_MAX {
        let why = format!("{STORY_CONFLICTS_MAX} merge conflicts in {}", files.join(", "));
        steps.extend(fail_attempt(agent, why, TeamFailureKind::StoryInvalid));
        return steps;
    }
    let task = match is_knowledge_work(context, agent) {
        true => CoderTask::WriteKnowledge,
        false => CoderTask::RedoOnNewBase { files },
    };
    steps.extend(give_task(agent, task, CODING, "merge conflict"));
    steps
}

/// Merges exactly this commit.
pub(super) fn merge_commit(context: &TeamFlowContext<'_>, agent: &AgentName, commit: &str) -> Vec<FlowStep> {
    let request = super::repository_tools::RepositoryToolRequest {
        commit: Some(commit.to_owned()),
        ..context.repository_request(agent)
    };
    vec![RepositoryTool::Merge.into_step(Some(agent.clone()), &request)]
}

/// Handles the end of a merge.
pub(super) fn handle_merge_result(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    result: &RepositoryToolResult,
) -> Vec<FlowStep> {
    let Some(progress) = context.state().story_of(agent) else { return Vec::new() };
    let (story, commit) = (progress.story.id.clone(), result.commit.clone());
    vec![
        TeamFact::Merged { agent: agent.clone(), story, commit }.into_step(),
        propose_agent_phase(agent, DONE, "merged into the integration branch"),
    ]
}
