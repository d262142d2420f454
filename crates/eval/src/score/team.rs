//! The measures of the team flow. Whether a merge was green is read from the runs of the tests; whether a branch exists is
//! read from the repository after the conversation.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::event::ToolRunOutcome;
use segue_core::ids::MessageId;
use segue_flows::team::facts::{StoryListOrigin, StoryStatus, TeamFact};
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolResult};
use segue_flows::team::spec::{ARCHITECT_ROLE, CODER_ROLE};
use segue_flows::team::story::StoryWorkflowKind;

use super::{
    BRANCHES_KEPT, EvalConversationScore, FAILURES_NAMED, FILES_WRITTEN, NO_RED_MERGE, STORIES_MERGED,
    VALID_AFTER_REPAIR, VALID_AT_ONCE, failure_note,
};
use crate::record::EvalConversationRecord;

/// The references under which work is kept: branches of stories, and what was left in worktrees.
const KEPT_REFERENCES: [&str; 2] = ["refs/heads/segue-work/", "refs/segue/kept/"];

pub(super) fn score_team(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let stories = EvalStoryOutcome::collect(record);
    let green = tested_commits(record);
    let turn = record.messages.len();
    let turns = record.turns();
    let account = turns.last().and_then(|turn| turn.replies.last()).map_or("", |reply| reply.text);
    for (id, story) in stories.iter().filter(|(_, story)| !story.is_knowledge) {
        if let Some(commit) = &story.merged {
            let problem = match story.changed_check {
                true => Some("a story was merged that changes its test"),
                false if green.contains(commit) => None,
                false => Some("a story was merged without a passing test of its commit"),
            };
            let failure = problem.map(|what| failure_note(record, turn, what, id));
            score.count_case(CODER_ROLE, NO_RED_MERGE, failure);
        } else {
            let is_named = account.contains(&format!("- {id} \"")) && story.has_reason;
            let failure =
                (!is_named).then(|| failure_note(record, turn, "the account does not say why a story is missing", id));
            score.count_case(CODER_ROLE, FAILURES_NAMED, failure);
            if story.has_worktree {
                let failure =
                    (!is_kept(record, id)).then(|| failure_note(record, turn, "the branch of a story is gone", id));
                score.count_case(CODER_ROLE, BRANCHES_KEPT, failure);
            }
        }
        let written = (!story.has_changes).then(|| failure_note(record, turn, "nothing was written for a story", id));
        score.count_case(CODER_ROLE, FILES_WRITTEN, written);
        let missing = story.merged.is_none().then(|| failure_note(record, turn, "a story was not merged", id));
        score.count_case(CODER_ROLE, STORIES_MERGED, missing);
    }
    score_architect(record, score);
}

/// What became of a story.
#[derive(Debug, Default)]
struct EvalStoryOutcome {
    is_knowledge: bool,
    has_worktree: bool,
    has_changes: bool,
    /// Whether the last commit changes a file of a check.
    changed_check: bool,
    /// The commit that was merged.
    merged: Option<String>,
    /// Whether it was recorded why the story is not merged.
    has_reason: bool,
}

impl EvalStoryOutcome {
    fn collect(record: &EvalConversationRecord) -> BTreeMap<String, Self> {
        let mut stories: BTreeMap<String, Self> = BTreeMap::new();
        let mut assigned: BTreeMap<String, String> = BTreeMap::new();
        for fact in record.events.iter().filter_map(|recorded| TeamFact::from_event(&recorded.event)) {
            match fact {
                TeamFact::StoriesPlanned { stories: planned, .. } => {
                    stories.extend(planned.into_iter().map(|story| (story.id, Self::default())));
                }
                TeamFact::ExpressQueued { story, .. } => {
                    let is_knowledge = story.kind == StoryWorkflowKind::Knowledge;
                    stories.insert(story.id, Self { is_knowledge, ..Self::default() });
                }
                TeamFact::Assigned(assignment) => {
                    assigned.insert(assignment.agent.to_string(), assignment.story);
                }
                TeamFact::WorktreeReady { agent, .. } => {
                    let story = assigned.get(agent.as_str()).and_then(|story| stories.get_mut(story));
                    story.into_iter().for_each(|story| story.has_worktree = true);
                }
                TeamFact::WorkCommitted { agent, files, .. } => {
                    let story = assigned.get(agent.as_str()).and_then(|story| stories.get_mut(story));
                    let fixture = record.conversation.workspace.as_ref();
                    let is_check = |path: &String| fixture.is_some_and(|fixture| fixture.is_part_of_a_check(path));
                    if let Some(story) = story {
                        story.has_changes |= !files.is_empty();
                        story.changed_check = files.iter().any(is_check);
                    }
                }
                TeamFact::Merged { story, commit, .. } => {
                    stories.entry(story).or_default().merged = Some(commit);
                }
                TeamFact::SpecEnded { missing, .. } => {
                    for undelivered in missing {
                        let has_reason =
                            !undelivered.reason.trim().is_empty() || undelivered.status == StoryStatus::Skipped;
                        stories.entry(undelivered.story).or_default().has_reason = has_reason;
                    }
                }
                _ => {}
            }
        }
        stories
    }
}

/// Returns the commits on which the project's tests passed, the base included.
fn tested_commits(record: &EvalConversationRecord) -> BTreeSet<String> {
    let mut green = BTreeSet::new();
    for run in record.ended_tool_runs().iter().filter(|run| run.outcome == ToolRunOutcome::Done) {
        let value = run.value.and_then(|value| serde_json::from_value::<RepositoryToolResult>(value.clone()).ok());
        let Some(result) = value.filter(|result| result.passed == Some(true)) else { continue };
        match RepositoryTool::from_name(run.opened.tool.as_str()) {
            Some(RepositoryTool::Test) => green.insert(result.commit),
            Some(RepositoryTool::Inspect) => green.insert(result.base),
            _ => false,
        };
    }
    green
}

fn is_kept(record: &EvalConversationRecord, story: &str) -> bool {
    let is_of_story = |reference: &String| {
        KEPT_REFERENCES.iter().any(|start| reference.starts_with(start))
            && reference.split('/').any(|part| part == story)
    };
    record.references.iter().any(is_of_story)
}

/// Counts whether the architect's stories and reviews could be used: at once, and after one repair.
fn score_architect(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let turn = record.messages.len();
    let mut refused: BTreeMap<MessageId, String> = BTreeMap::new();
    let mut count = |is_valid_at_once: bool, is_valid: bool, why: &str| {
        let note = |what: &str| failure_note(record, turn, what, why);
        let at_once = (!is_valid_at_once).then(|| note("the architect's answer could not be used"));
        score.count_case(ARCHITECT_ROLE, VALID_AT_ONCE, at_once);
        let repaired = (!is_valid).then(|| note("the architect's answer could not be used twice"));
        score.count_case(ARCHITECT_ROLE, VALID_AFTER_REPAIR, repaired);
    };
    for fact in record.events.iter().filter_map(|recorded| TeamFact::from_event(&recorded.event)) {
        match fact {
            TeamFact::StoriesPlanned { origin, problems, .. } => {
                let is_usable = origin != StoryListOrigin::SingleStory;
                count(origin == StoryListOrigin::Emitted, is_usable, &problems.join("; "));
            }
            TeamFact::ReviewRefused { request, why, .. } => {
                refused.insert(request, why);
            }
            TeamFact::ReviewGiven(given) if given.call.is_some() => {
                let why = refused.remove(&given.request);
                count(why.is_none(), true, why.as_deref().unwrap_or_default());
            }
            TeamFact::ReviewDiscarded { request, .. } => {
                if let Some(why) = refused.remove(&request) {
                    count(false, false, &why);
                }
            }
            _ => {}
        }
    }
}
