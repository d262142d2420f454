//! What follows when a tool of the repository has ended, and the tools that the flow answers itself.

use segue_core::body::TextRef;
use segue_core::event::{ToolRunOpened, ToolRunOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;
use segue_core::prompt::TEXT_TOOL_CALL_ID;
use serde_json::Value;

use super::coder::{commit_work, fail_attempt, give_task, start_fresh_attempt};
use super::diff::{diff_problems, parse_diff};
use super::express::{self, first_task, is_knowledge_work};
use super::facts::{CoderTask, StoryStatus, TeamFact, TeamFailureKind};
use super::graphs::{AWAIT_MERGE, CODE_REVIEW, CODING, PLANNING, TESTING};
use super::repository_tools::{RepositoryTool, RepositoryToolResult};
use super::spec::{ARCHITECT_AGENT, HOT_FIX_TOOL, KNOWLEDGE_ADD_TOOL};
use super::story::StoryWorkflowKind;
use super::team_context::{TeamFlowContext, propose_agent_phase};
use super::{merging, planning};

/// Answers a tool that the flow runs itself.
pub(super) fn answer_flow_tool(context: &TeamFlowContext<'_>, opened: &ToolRunOpened) -> Vec<FlowStep> {
    let caller = opened.agent.clone().unwrap_or_else(|| ARCHITECT_AGENT.into());
    // The architect talks about the story of the agent that it talks to.
    let agent: AgentName = caller.as_str().split_once('@').map_or_else(|| caller.clone(), |(_, peer)| peer.into());
    let (mut steps, answer) = match opened.tool.as_str() {
        KNOWLEDGE_ADD_TOOL => express::add_knowledge(context, &agent, &opened.arguments),
        HOT_FIX_TOOL => match express::read_hot_fix(&opened.arguments) {
            Ok(fix) => {
                let answer = format!("the hot fix `{}` was queued", fix.title);
                (express::queue_hot_fix(context, fix, ARCHITECT_AGENT), Ok(answer))
            }
            Err(why) => (Vec::new(), Err(why)),
        },
        _ => return Vec::new(),
    };
    let (outcome, text) = match answer {
        Ok(text) => (ToolRunOutcome::Done, text),
        Err(text) => (ToolRunOutcome::Failed, text),
    };
    steps.push(FlowStep::AnswerTool { run: opened.run, outcome, text });
    steps
}

/// Handles the end of a repository tool.
pub(super) fn handle_repository_tool_ended(
    context: &TeamFlowContext<'_>,
    opened: &ToolRunOpened,
    outcome: ToolRunOutcome,
    text: TextRef,
    value: Option<&Value>,
) -> Vec<FlowStep> {
    let Some(tool) = RepositoryTool::from_name(opened.tool.as_str()) else {
        return handle_text_call_ended(context, opened, outcome, text);
    };
    let result: RepositoryToolResult =
        value.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default();
    let failed = (outcome != ToolRunOutcome::Done).then(|| context.view.read_text(text).to_string());
    match (tool, failed) {
        (RepositoryTool::Inspect, None) => return planning::handle_inspection_result(context, result),
        (RepositoryTool::Inspect, Some(why)) => return planning::handle_inspection_failure(context, &why),
        (RepositoryTool::Land, None) => {
            let fact = TeamFact::Landed {
                branch: result.branch.unwrap_or_default(),
                commit: result.commit,
                before: result.before,
            };
            return vec![fact.into_step()];
        }
        (RepositoryTool::UndoLanding, None) => {
            return vec![TeamFact::LandingUndone { branch: result.branch.unwrap_or_default() }.into_step()];
        }
        (RepositoryTool::Land | RepositoryTool::UndoLanding, Some(why)) => {
            let (subject, failure) = ("landing".to_owned(), TeamFailureKind::Environment);
            return vec![TeamFact::Escalated { subject, reason: why, failure }.into_step()];
        }
        _ => {}
    }
    let Some(agent) = opened.agent.clone() else { return Vec::new() };
    let is_current = context.coder(&agent).work_item().as_deref() == opened.arguments["work"].as_str();
    let is_aborted = context.coder(&agent).failure.is_some();
    if !is_current || is_aborted {
        return Vec::new();
    }
    if outcome != ToolRunOutcome::Done {
        let why = format!("{}: {}", tool.name(), context.view.read_text(text));
        return fail_attempt(&agent, why, TeamFailureKind::Environment);
    }
    handle_coder_tool_result(context, &agent, tool, text, result)
}

/// A tool call that a coder wrote in its text has ended. Its result is the coder's next task.
fn handle_text_call_ended(
    context: &TeamFlowContext<'_>,
    opened: &ToolRunOpened,
    outcome: ToolRunOutcome,
    result: TextRef,
) -> Vec<FlowStep> {
    let is_from_text = opened.requested_by.as_ref().is_some_and(|(_, id)| id == TEXT_TOOL_CALL_ID);
    let coder = opened.agent.clone().filter(|agent| is_from_text && context.coders().any(|coder| coder == *agent));
    let Some(agent) = coder.filter(|agent| opened.phase.as_ref() == Some(&context.phase(agent))) else {
        return Vec::new();
    };
    let failed = outcome != ToolRunOutcome::Done;
    let task = CoderTask::UseResult { tool: opened.tool.to_string(), failed, result };
    vec![TeamFact::TaskGiven { agent, task }.into_step()]
}

fn handle_coder_tool_result(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    tool: RepositoryTool,
    text: TextRef,
    result: RepositoryToolResult,
) -> Vec<FlowStep> {
    match tool {
        RepositoryTool::Worktree => {
            let kind =
                context.state().story_of(agent).map_or(StoryWorkflowKind::Ordinary, |progress| progress.story.kind);
            let to = if kind.is_express() { CODING } else { PLANNING };
            let mut steps = vec![TeamFact::WorktreeReady { agent: agent.clone(), base: result.base }.into_step()];
            steps.extend(give_task(agent, first_task(kind), to, "the worktree is ready"));
            steps
        }
        RepositoryTool::Read => {
            let present = (!result.is_missing).then(|| context.view.read_text(text));
            express::write_knowledge_file(context, agent, present.as_deref())
        }
        RepositoryTool::Write => commit_work(context, agent),
        RepositoryTool::Commit => handle_commit_result(context, agent, result, text),
        RepositoryTool::Test => handle_test_result(context, agent, result, text),
        RepositoryTool::Rebase => merging::handle_rebase_result(context, agent, result, text),
        RepositoryTool::Merge => merging::handle_merge_result(context, agent, &result),
        RepositoryTool::Restore => vec![propose_agent_phase(agent, CODING, "a fresh attempt on the last good commit")],
        RepositoryTool::Inspect | RepositoryTool::Land | RepositoryTool::UndoLanding => Vec::new(),
    }
}

/// The changes were committed: code checks them before anybody reads them.
fn handle_commit_result(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    result: RepositoryToolResult,
    diff: TextRef,
) -> Vec<FlowStep> {
    let Some(progress) = context.state().story_of(agent) else { return Vec::new() };
    let fact = TeamFact::WorkCommitted {
        agent: agent.clone(),
        commit: result.commit,
        diff,
        diff_digest: result.diff_digest,
        files: result.files.clone(),
    };
    let mut steps = vec![fact.into_step()];
    if result.files.is_empty() {
        // Tests that fail are evidence that something has to be changed, whatever the coder says.
        let base_is_green = context.state().repository.as_ref().and_then(|repository| repository.base_is_green);
        let to = if base_is_green == Some(false) { TESTING } else { CODE_REVIEW };
        steps.push(propose_agent_phase(agent, to, "nothing was changed"));
        return steps;
    }
    if !is_knowledge_work(context, agent) {
        let account = context.coder(agent).account.map(|text| context.view.read_text(text)).unwrap_or_default();
        let parsed = parse_diff(&context.view.read_text(diff));
        let problems = diff_problems(&parsed, &progress.story, &context.settings.knowledge_file, &account);
        if !problems.is_empty() {
            steps.push(TeamFact::WorkRefused { agent: agent.clone(), problems: problems.clone() }.into_step());
            steps.push(
                TeamFact::TaskGiven { agent: agent.clone(), task: CoderTask::FixProblems { problems } }.into_step(),
            );
            return steps;
        }
    }
    steps.push(propose_agent_phase(agent, TESTING, "the changes were committed"));
    steps
}

fn handle_test_result(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    result: RepositoryToolResult,
    output: TextRef,
) -> Vec<FlowStep> {
    let passed = result.passed == Some(true);
    let is_repeated = context.coder(agent).last_failure.as_ref() == Some(&result.failure_digest);
    let fact = TeamFact::TestsRan {
        agent: agent.clone(),
        commit: result.commit.clone(),
        passed,
        output,
        failure_digest: result.failure_digest,
    };
    let mut steps = vec![fact.into_step()];
    let is_merging = context.phase(agent) == *AWAIT_MERGE;
    match (passed, is_merging) {
        (true, true) => steps.extend(merging::merge_commit(context, agent, &result.commit)),
        (true, false) => steps.push(propose_agent_phase(agent, CODE_REVIEW, "the tests passed")),
        (false, _) if is_repeated => {
            steps.extend(start_fresh_attempt(context, agent, "the same tests failed twice in the same way"));
        }
        (false, _) => steps.extend(give_task(agent, CoderTask::FixTests { output }, CODING, "the tests failed")),
    }
    steps
}

/// A coder that stays in its phase gets its next call here: after code refused its work, or ran a tool call of its text.
pub(super) fn continue_after_refused_work(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    task: &CoderTask,
) -> Vec<FlowStep> {
    let is_taken_over =
        context.state().story_of(agent).is_some_and(|progress| progress.status == StoryStatus::TakenOver);
    match task {
        CoderTask::FixProblems { .. } | CoderTask::UseResult { .. } | CoderTask::RepeatCall { .. }
            if !is_taken_over =>
        {
            super::coder::continue_coder(context, agent)
        }
        _ => Vec::new(),
    }
}
