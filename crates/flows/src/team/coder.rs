//! What a coder does in each phase, and what follows from its answers.

use segue_core::event::{CallAnswered, CallOpened, CallRequest, Event};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, CallId};
use segue_core::signal::{BlockFieldSchema, BlockSet, parse_reply};
use serde_json::json;

use super::dispatcher::assignment_steps;
use super::express::is_knowledge_work;
use super::facts::{CoderRequestKind, CoderTask, StoryAssignment, StoryStatus, TeamFact, TeamFailureKind};
use super::graphs::{
    self, AWAIT_MERGE, CODE_REVIEW, CODING, ERROR, PLAN_REVIEW, PLANNING, SETUP, SUSPEND, TESTING, WAITING,
};
use super::mail::{self, DISPATCHER, REQUEST_TOPIC, REQUEUE_TOPIC};
use super::repository_tools::{RepositoryTool, RepositoryToolRequest};
use super::spec::{ARCHITECT_AGENT, CODER_ROLE, TASK_ASK, coder_tools};
use super::story::Story;
use super::team_context::{TeamFlowContext, propose_agent_phase};
use super::{merging, requests};
use crate::limits::{BUDGET_REVIEWS_MAX, STORY_ATTEMPTS_MAX};
use crate::text_tool_call::{TextToolCall, find_text_tool_call};

/// The block with which a coder asks the architect.
const QUESTION_BLOCK: &str = "QUESTION";

/// Does what the phase of a coder requires, unless it is already being done.
pub(super) fn continue_coder(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    let phase = context.phase(agent);
    if coder.assignment.is_none() || context.is_busy(agent) {
        return Vec::new();
    }
    let is_taken_over =
        context.state().story_of(agent).is_some_and(|progress| progress.status == StoryStatus::TakenOver);
    if is_taken_over {
        return Vec::new();
    }
    let request = context.repository_request(agent);
    let run =
        |tool: RepositoryTool, request: &RepositoryToolRequest| vec![tool.into_step(Some(agent.clone()), request)];
    match phase.as_str() {
        SETUP => {
            let set_up = !is_knowledge_work(context, agent);
            run(RepositoryTool::Worktree, &RepositoryToolRequest { set_up, base: None, commit: None, ..request })
        }
        // Work in progress ends during a pause, and no new round starts.
        PLANNING | CODING if context.state().is_paused => Vec::new(),
        PLANNING => call_coder(context, agent),
        CODING => match coder.task {
            Some(CoderTask::WriteKnowledge) => {
                let path = Some(context.settings.knowledge_file.clone());
                run(RepositoryTool::Read, &RepositoryToolRequest { path, ..request })
            }
            Some(CoderTask::Recheck) => commit_work(context, agent),
            _ => call_coder(context, agent),
        },
        TESTING if is_knowledge_work(context, agent) => accept_knowledge_file(context, agent),
        TESTING => run(RepositoryTool::Test, &request),
        CODE_REVIEW if is_knowledge_work(context, agent) => {
            let to = if coder.files.is_empty() { graphs::DONE } else { AWAIT_MERGE };
            vec![propose_agent_phase(agent, to, "code wrote and validated the file")]
        }
        CODE_REVIEW => {
            let kind =
                if coder.files.is_empty() { CoderRequestKind::CompletionReview } else { CoderRequestKind::CodeReview };
            send_request(context, agent, kind, coder.account)
        }
        PLAN_REVIEW => send_request(context, agent, CoderRequestKind::PlanReview, coder.plan),
        graphs::BUDGET_REVIEW => {
            if coder.budget_reviews >= BUDGET_REVIEWS_MAX {
                let why = format!("{BUDGET_REVIEWS_MAX} budget reviews did not lead to a result");
                return fail_attempt(agent, why, TeamFailureKind::StoryInvalid);
            }
            send_request(context, agent, CoderRequestKind::BudgetReview, None)
        }
        graphs::QUESTION => {
            let question = coder.prepared_request.as_ref().and_then(|(_, text)| *text);
            send_request(context, agent, CoderRequestKind::Question, question)
        }
        AWAIT_MERGE => merging::rebase_if_first_in_merge_queue(context, agent),
        _ => Vec::new(),
    }
}

fn call_coder(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let work = context.coder(agent).work_item().unwrap_or_default();
    let mut request = CallRequest::new(CODER_ROLE, TASK_ASK);
    request.agent = Some(agent.clone());
    request.metadata = json!({"work": work});
    vec![FlowStep::Call(request)]
}

fn send_request(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    kind: CoderRequestKind,
    text: Option<segue_core::body::TextRef>,
) -> Vec<FlowStep> {
    let work = context.coder(agent).work_item().unwrap_or_default();
    let body = json!({"request": kind, "work": work});
    vec![
        TeamFact::RequestPrepared { agent: agent.clone(), work, request: kind, text }.into_step(),
        mail::send_message_step(agent.as_str(), ARCHITECT_AGENT, REQUEST_TOPIC, &body, None),
    ]
}

/// Counts the rounds of a coder. A call beyond its budget is not made; the architect decides.
pub(super) fn handle_call_opened(context: &TeamFlowContext<'_>, opened: &CallOpened) -> Vec<FlowStep> {
    let Some(agent) = opened.agent.as_ref().filter(|_| opened.role == *CODER_ROLE) else { return Vec::new() };
    let coder = context.coder(agent);
    let is_planning = opened.phase.as_ref().is_some_and(|phase| *phase == *PLANNING);
    let (used, most) = if is_planning {
        (coder.planning_rounds, coder.planning_rounds_max)
    } else {
        (coder.coding_rounds, coder.coding_rounds_max)
    };
    if coder.work_item().as_deref() != opened.metadata["work"].as_str() {
        return vec![FlowStep::CancelCall { call: opened.call, reason: "the assignment has changed".to_owned() }];
    }
    if used <= most {
        return Vec::new();
    }
    let reason = format!("{most} rounds are used up");
    vec![
        FlowStep::CancelCall { call: opened.call, reason: reason.clone() },
        propose_agent_phase(agent, graphs::BUDGET_REVIEW, reason),
    ]
}

/// Handles a coder's final answer: a plan, an account of its work, or a question.
pub(super) fn handle_coder_answer(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    let Some(agent) = call.agent.clone() else { return Vec::new() };
    let is_current = context.coder(&agent).work_item().as_deref() == call.metadata["work"].as_str();
    if !answered.tool_calls.is_empty() || !is_current {
        return Vec::new();
    }
    let text = context.view.read_text(answered.text);
    // A question is the whole answer. A block that the coder repeats from a file, a review or its story is not one.
    let foreign: Vec<_> =
        context.view.session.foreign_texts(call).into_iter().map(|text| context.view.read_text(text)).collect();
    let blocks = BlockSet::default().with_block(QUESTION_BLOCK, BlockFieldSchema::default());
    let reply = parse_reply(&text, &blocks, &foreign);
    let phase = context.phase(&agent);
    if matches!(phase.as_str(), PLANNING | CODING)
        && let Some(steps) = run_text_call(call, &agent, phase.as_str(), &text)
    {
        return steps;
    }
    let is_question = reply.visible_text.trim().is_empty() && matches!(phase.as_str(), PLANNING | CODING);
    if let Some(question) = reply.blocks.first().filter(|_| is_question) {
        return ask_question(&agent, &context.coder(&agent).work_item().unwrap_or_default(), answered, &question.raw);
    }
    match phase.as_str() {
        PLANNING => vec![
            TeamFact::PlanSubmitted { agent: agent.clone(), plan: answered.text }.into_step(),
            propose_agent_phase(&agent, PLAN_REVIEW, "a plan was submitted"),
        ],
        CODING => {
            let mut steps = vec![TeamFact::WorkReported { agent: agent.clone(), account: answered.text }.into_step()];
            steps.extend(commit_work(context, &agent));
            steps
        }
        _ => Vec::new(),
    }
}

/// Runs a tool call that a coder wrote in its text instead of making it, or says why it cannot be run.
fn run_text_call(call: &CallOpened, agent: &AgentName, phase: &str, text: &str) -> Option<Vec<FlowStep>> {
    let offered = coder_tools(phase);
    let is_tool = |name: &str| coder_tools(CODING).contains(&name);
    match find_text_tool_call(text, is_tool, &offered, |_| None)? {
        TextToolCall::Valid { tool, arguments } => Some(vec![FlowStep::RunToolFromText {
            call: call.call,
            role: call.role.clone(),
            agent: call.agent.clone(),
            tool: tool.as_str().into(),
            arguments,
        }]),
        TextToolCall::Invalid { why } => {
            let task = CoderTask::RepeatCall { problem: why };
            Some(vec![TeamFact::TaskGiven { agent: agent.clone(), task }.into_step()])
        }
    }
}

fn ask_question(agent: &AgentName, work: &str, answered: &CallAnswered, question: &str) -> Vec<FlowStep> {
    let reason: String = question.trim().chars().take(200).collect();
    let (agent, work) = (agent.clone(), work.to_owned());
    let fact = TeamFact::RequestPrepared {
        agent: agent.clone(),
        work,
        request: CoderRequestKind::Question,
        text: Some(answered.text),
    };
    vec![fact.into_step(), propose_agent_phase(&agent, graphs::QUESTION, reason)]
}

pub(super) fn commit_work(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let Some(progress) = context.state().story_of(agent) else { return Vec::new() };
    let message = format!("{}: {}", progress.story.id, progress.story.title);
    let request = RepositoryToolRequest { message: Some(message), ..context.repository_request(agent) };
    vec![RepositoryTool::Commit.into_step(Some(agent.clone()), &request)]
}

/// Code wrote the knowledge file from a valid graph, so there is nothing to run.
fn accept_knowledge_file(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    let (Some(commit), Some(output)) = (coder.commit, coder.diff) else { return Vec::new() };
    let failure_digest = String::new();
    vec![
        TeamFact::TestsRan { agent: agent.clone(), commit, passed: true, output, failure_digest }.into_step(),
        propose_agent_phase(agent, CODE_REVIEW, "the file is valid"),
    ]
}

/// Gives a coder its next task and lets it work on it.
pub(super) fn give_task(agent: &AgentName, task: CoderTask, to: &str, reason: &str) -> Vec<FlowStep> {
    vec![TeamFact::TaskGiven { agent: agent.clone(), task }.into_step(), propose_agent_phase(agent, to, reason)]
}

/// Ends an attempt. A phase without an edge to `ERROR` is left through `SUSPEND`.
pub(super) fn fail_attempt(agent: &AgentName, reason: impl Into<String>, failure: TeamFailureKind) -> Vec<FlowStep> {
    let reason = reason.into();
    vec![
        TeamFact::WorkFailed { agent: agent.clone(), reason: reason.clone(), failure }.into_step(),
        propose_agent_phase(agent, ERROR, reason),
    ]
}

/// Ends an attempt in any phase and stops its calls.
pub(super) fn abort_attempt(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    reason: &str,
    failure: TeamFailureKind,
) -> Vec<FlowStep> {
    let mut steps = cancel_calls(context, agent, reason);
    for (request, open) in context.state().requests.iter().filter(|(_, open)| open.agent == *agent) {
        let (agent, work) = (agent.clone(), open.work.clone());
        steps.push(TeamFact::ReviewDiscarded { request: *request, agent, work }.into_step());
    }
    let has_edge = !matches!(context.phase(agent).as_str(), PLANNING | WAITING);
    if !has_edge {
        steps.push(propose_agent_phase(agent, SUSPEND, reason));
    }
    steps.extend(fail_attempt(agent, reason, failure));
    steps
}

pub(super) fn cancel_calls(context: &TeamFlowContext<'_>, agent: &AgentName, reason: &str) -> Vec<FlowStep> {
    let is_own = |opened: &CallOpened| opened.agent.as_ref() == Some(agent) || opened.peer.as_ref() == Some(agent);
    let calls = context.view.session.open_calls.values().filter(|open| is_own(&open.opened));
    let calls: Vec<CallId> = calls.map(|open| open.opened.call).collect();
    calls.into_iter().map(|call| FlowStep::CancelCall { call, reason: reason.to_owned() }).collect()
}

/// Starts the same story again with a fresh thread, on the last good commit.
pub(super) fn start_fresh_attempt(context: &TeamFlowContext<'_>, agent: &AgentName, reason: &str) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    let Some(assignment) = coder.assignment else { return Vec::new() };
    if assignment.attempt >= STORY_ATTEMPTS_MAX {
        return fail_attempt(
            agent,
            format!("{reason}, after {} attempts", assignment.attempt),
            TeamFailureKind::StoryInvalid,
        );
    }
    let last_good = coder.green_commit.or(coder.base);
    let next = StoryAssignment { attempt: assignment.attempt + 1, ..assignment };
    let request =
        RepositoryToolRequest { commit: last_good, work: next.work_item(), ..context.repository_request(agent) };
    let (story, status) = (next.story.clone(), StoryStatus::InProgress);
    let mut steps = assignment_steps(next);
    steps.push(TeamFact::StoryMoved { story, status, reason: reason.to_owned() }.into_step());
    steps.push(TeamFact::TaskGiven { agent: agent.clone(), task: CoderTask::Code }.into_step());
    steps.push(RepositoryTool::Restore.into_step(Some(agent.clone()), &request));
    steps
}

/// Returns what follows when a coder enters a phase.
pub(super) fn handle_phase_entered(context: &TeamFlowContext<'_>, agent: &AgentName, to: &str) -> Vec<FlowStep> {
    match to {
        WAITING => super::dispatcher::begin_dispatch(context),
        SUSPEND => Vec::new(),
        graphs::DONE => end_story(context, agent),
        ERROR => requeue_or_escalate(context, agent),
        _ => continue_coder(context, agent),
    }
}

fn end_story(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    let Some(assignment) = coder.assignment else { return vec![propose_agent_phase(agent, WAITING, "nothing to do")] };
    let is_merged =
        context.state().stories.get(&assignment.story).is_some_and(|progress| progress.status == StoryStatus::Merged);
    let mut steps = Vec::new();
    if !is_merged {
        // The architect agreed that nothing has to be changed.
        let commit = coder.base.unwrap_or_default();
        steps.push(TeamFact::Merged { agent: agent.clone(), story: assignment.story, commit }.into_step());
    }
    steps.extend(release_coder(agent));
    steps
}

fn release_coder(agent: &AgentName) -> Vec<FlowStep> {
    vec![
        FlowStep::AssignWork { agent: agent.clone(), work: None },
        TeamFact::Unassigned { agent: agent.clone() }.into_step(),
        propose_agent_phase(agent, WAITING, "ready for the next story"),
    ]
}

/// Decides what becomes of a story whose attempt failed: it is rewritten and waits again once, then a person decides.
fn requeue_or_escalate(context: &TeamFlowContext<'_>, agent: &AgentName) -> Vec<FlowStep> {
    let coder = context.coder(agent);
    let Some(progress) = context.state().story_of(agent) else { return release_coder(agent) };
    let story = &progress.story;
    let (reason, failure) = coder.failure.unwrap_or(("the attempt failed".to_owned(), TeamFailureKind::StoryInvalid));
    let mut steps = Vec::new();
    let has_ended = progress.status.is_ended() || failure == TeamFailureKind::Superseded;
    if !has_ended && failure == TeamFailureKind::StoryInvalid && progress.requeues == 0 {
        let rewritten = Story {
            description: format!("{}\n\nAn earlier attempt failed: {reason}", story.description).trim().to_owned(),
            revision: story.revision + 1,
            ..story.clone()
        };
        let body = json!({"story": story.id, "reason": reason});
        steps.push(TeamFact::StoryChanged { story: rewritten }.into_step());
        steps.push(TeamFact::StoryRequeued { story: story.id.clone(), reason, failure }.into_step());
        steps.push(mail::send_message_step(agent.as_str(), DISPATCHER, REQUEUE_TOPIC, &body, None));
        steps.push(FlowStep::Receive { agent: DISPATCHER.into() });
        if story.kind.is_express() {
            // Express work returns to its channel.
            let again = json!({"story": story.id});
            steps.push(mail::send_message_step(
                agent.as_str(),
                mail::EXPRESS_CHANNEL,
                mail::HOT_FIX_TOPIC,
                &again,
                None,
            ));
        }
    } else if !has_ended {
        let moved =
            TeamFact::StoryMoved { story: story.id.clone(), status: StoryStatus::Escalated, reason: reason.clone() };
        steps.push(moved.into_step());
        steps.extend(requests::escalate(context, &story.id, reason, failure));
    }
    steps.extend(release_coder(agent));
    steps
}

/// Returns the coder whose phase an event is about.
pub(super) fn parse_agent_phase_event(event: &Event) -> Option<(&AgentName, &str, &str)> {
    let Event::PhaseEntered(entered) = event else { return None };
    let segue_core::event::PhaseStateOwner::Agent(agent) = &entered.graph_key.owner else { return None };
    Some((agent, entered.transition.to.as_str(), entered.transition.from.as_str()))
}
