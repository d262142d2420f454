//! The architect's side of a request: it is received, put to the architect in the context of the assignment, and its
//! decision is sent back. Code checks every verdict.

use segue_core::event::{CallAnswered, CallOpened, CallRequest};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, CallId, MessageId};
use serde_json::json;

use super::coder::{fail_attempt, give_task};
use super::diff::{ParsedDiff, parse_diff};
use super::facts::{ArchitectDecisionOnRequest, CoderRequestKind, CoderTask, StoryStatus, TeamFact, TeamFailureKind};
use super::graphs::{self, AWAIT_MERGE, CODING, ESCALATED, MONITORING, PLANNING, REQUEST};
use super::mail::{self, RESPONSE_TOPIC};
use super::review::{ParsedReview, ReviewVerdict, combine_reviews, parse_review};
use super::settings::ArchitectThreadPartitioning;
use super::spec::{ARCHITECT_AGENT, ARCHITECT_ROLE, REPAIR_ASK, REQUEST_ASK, SINGLE_CONTEXT_ARCHITECT_ROLE};
use super::state::CoderRequest;
use super::team_context::{TeamFlowContext, propose_agent_phase, propose_architect, request_id};
use crate::limits::{REVIEW_DIFF_BYTES_MAX, REVIEW_STREAK_MAX};

/// Puts a received request to the architect.
pub(super) fn handle_request_received(context: &TeamFlowContext<'_>, id: MessageId) -> Vec<FlowStep> {
    let Some(request) = context.state().requests.get(&id) else { return Vec::new() };
    let mut steps = Vec::new();
    if matches!(context.architect_phase().as_str(), MONITORING | ESCALATED) {
        steps.push(propose_architect(REQUEST, format!("{} of {}", request.kind.as_str(), request.agent)));
    }
    steps.extend(call_architect(context, id, request, REQUEST_ASK));
    steps
}

/// Returns the architect's name in a conversation with an agent. A tool host shows it that agent's worktree, read-only.
pub(super) fn architect_name_for(agent: &AgentName) -> AgentName {
    format!("{ARCHITECT_AGENT}@{agent}").as_str().into()
}

fn architect_request(context: &TeamFlowContext<'_>, agent: &AgentName, ask: &str) -> CallRequest {
    let role = match context.settings.contexts {
        ArchitectThreadPartitioning::PerAssignment => ARCHITECT_ROLE,
        ArchitectThreadPartitioning::Single => SINGLE_CONTEXT_ARCHITECT_ROLE,
    };
    let mut request = CallRequest::new(role, ask);
    // With a single context, one agent plays the architect for everybody.
    request.agent = Some(match context.settings.contexts {
        ArchitectThreadPartitioning::PerAssignment => architect_name_for(agent),
        ArchitectThreadPartitioning::Single => ARCHITECT_AGENT.into(),
    });
    request.peer = Some(agent.clone());
    request
}

fn call_architect(context: &TeamFlowContext<'_>, id: MessageId, request: &CoderRequest, ask: &str) -> Vec<FlowStep> {
    let mut call = architect_request(context, &request.agent, ask);
    call.metadata = json!({"request": id.0, "work": request.work, "part": request.parts.len()});
    let mut steps = Vec::new();
    if let Some(reason) = thread_reset_reason(context, &call, ask) {
        steps.push(FlowStep::ResetThread { request: call.clone(), reason });
    }
    steps.push(FlowStep::Call(call));
    steps
}

/// Returns why the architect's thread must not be continued, beyond what its scope says.
fn thread_reset_reason(context: &TeamFlowContext<'_>, call: &CallRequest, ask: &str) -> Option<String> {
    if context.settings.contexts == ArchitectThreadPartitioning::Single {
        return (ask == REQUEST_ASK)
            .then(|| "each request has its own template, which resets the single context".to_owned());
    }
    let age_ms_max = context.settings.context_age_ms_max?;
    let session = context.view.session;
    let thread = session
        .thread_by_slot
        .iter()
        .find(|(slot, _)| slot.role == call.role && slot.agent == call.agent && slot.peer == call.peer);
    let opened_at = session.threads.get(thread?.1)?.opened_at;
    (session.last_event_at.ms_since(opened_at) > age_ms_max)
        .then(|| "the context is older than the setting allows".to_owned())
}

/// Puts every open request to the architect that nobody works on, for example after an outage.
pub(super) fn continue_requests(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    let open = state.requests.iter().filter(|(id, request)| request.is_received && !context.is_being_answered(**id));
    open.flat_map(|(id, request)| call_architect(context, *id, request, REQUEST_ASK)).collect()
}

/// Handles the architect's answer to a request.
pub(super) fn handle_architect_answer(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    if !answered.tool_calls.is_empty() {
        return Vec::new();
    }
    let id = request_id(&call.metadata);
    let Some(request) = context.state().requests.get(&id) else { return Vec::new() };
    if context.coder(&request.agent).work_item().as_deref() != Some(request.work.as_str()) {
        let (agent, work) = (request.agent.clone(), request.work.clone());
        return vec![TeamFact::ReviewDiscarded { request: id, agent, work }.into_step()];
    }
    let text = context.view.read_text(answered.text);
    if request.kind == CoderRequestKind::Question {
        let review = ParsedReview {
            verdict: ReviewVerdict::Approved,
            feedback: text.trim().to_owned(),
            findings: Vec::new(),
            dropped: Vec::new(),
        };
        return record_and_send_review(context, id, request, review, Some(call.call));
    }
    let diff = request_diff(context, request);
    match parse_review(&text, diff.as_ref()) {
        Ok(review) => {
            let parts = count_review_parts(context, request);
            let mut all = request.parts.clone();
            all.push(review.clone());
            if all.len() < parts && review.verdict != ReviewVerdict::Rejected {
                return vec![TeamFact::ReviewPartRead { request: id, review }.into_step()];
            }
            let review = combine_reviews(&all).unwrap_or(review);
            record_and_send_review(context, id, request, review, Some(call.call))
        }
        Err(why) if request.refused_answers == 0 => {
            let mut steps = vec![TeamFact::ReviewRefused { request: id, call: call.call, why }.into_step()];
            steps.extend(call_architect(context, id, request, REPAIR_ASK));
            steps
        }
        Err(why) => {
            let subject = context.state().assignment(&request.agent).map(|work| work.story.clone()).unwrap_or_default();
            let reason = format!("the architect gave no valid {} twice: {why}", request.kind.as_str());
            let agent = request.agent.clone();
            let (work, status) = (request.work.clone(), StoryStatus::Escalated);
            let mut steps = vec![
                TeamFact::ReviewDiscarded { request: id, agent: agent.clone(), work }.into_step(),
                TeamFact::StoryMoved { story: subject.clone(), status, reason: reason.clone() }.into_step(),
            ];
            steps.extend(escalate(context, &subject, reason.clone(), TeamFailureKind::Environment));
            steps.extend(fail_attempt(&agent, reason, TeamFailureKind::Environment));
            steps
        }
    }
}

/// Returns the diff that the findings of a review must refer to.
pub(super) fn request_diff(context: &TeamFlowContext<'_>, request: &CoderRequest) -> Option<ParsedDiff> {
    request.diff.map(|diff| parse_diff(&context.view.read_text(diff)))
}

/// Returns into how many parts a request is divided: one for each file of a long diff.
pub(super) fn count_review_parts(context: &TeamFlowContext<'_>, request: &CoderRequest) -> usize {
    let Some(diff) = request.diff else { return 1 };
    let text = context.view.read_text(diff);
    if text.len() <= REVIEW_DIFF_BYTES_MAX { 1 } else { parse_diff(&text).files.len().max(1) }
}

/// Asks for the review of the next file.
pub(super) fn request_next_review_part(context: &TeamFlowContext<'_>, id: MessageId) -> Vec<FlowStep> {
    let request = context.state().requests.get(&id);
    request.map(|request| call_architect(context, id, request, REQUEST_ASK)).unwrap_or_default()
}

fn record_and_send_review(
    context: &TeamFlowContext<'_>,
    id: MessageId,
    request: &CoderRequest,
    review: ParsedReview,
    call: Option<CallId>,
) -> Vec<FlowStep> {
    let Some(assignment) = context.state().assignment(&request.agent) else { return Vec::new() };
    let before = context.coder(&request.agent).streaks.get(&request.kind).copied().unwrap_or_default();
    let streak = if review.verdict == ReviewVerdict::NeedsChanges { before + 1 } else { 0 };
    let verdict = if streak >= REVIEW_STREAK_MAX { ReviewVerdict::Rejected } else { review.verdict };
    let given = ArchitectDecisionOnRequest {
        request: id,
        agent: request.agent.clone(),
        story: assignment.story.clone(),
        attempt: assignment.attempt,
        kind: request.kind,
        verdict,
        review,
        call,
        commit: request.commit.clone(),
        streak,
    };
    let body = json!({"verdict": verdict, "request": request.kind});
    vec![
        TeamFact::ReviewGiven(Box::new(given)).into_step(),
        mail::send_message_step(ARCHITECT_AGENT, request.agent.as_str(), RESPONSE_TOPIC, &body, Some(id)),
    ]
}

/// Does what the architect decided about a coder's request.
pub(super) fn handle_response(context: &TeamFlowContext<'_>, agent: &AgentName, request: MessageId) -> Vec<FlowStep> {
    let mut steps = Vec::new();
    if context.state().requests.is_empty() && context.architect_phase() == *REQUEST {
        steps.push(propose_architect(MONITORING, "no request is open"));
    }
    let given = context
        .state()
        .story_of(agent)
        .and_then(|progress| progress.reviews.iter().rev().find(|given| given.request == request).cloned());
    if let Some(given) = given {
        steps.extend(follow_review(context, agent, given));
    }
    steps
}

fn follow_review(context: &TeamFlowContext<'_>, agent: &AgentName, given: ArchitectDecisionOnRequest) -> Vec<FlowStep> {
    let reason = format!("{}: {}", given.kind.as_str(), given.verdict.as_str());
    if given.verdict == ReviewVerdict::Rejected {
        let why = match given.streak {
            streak if streak >= REVIEW_STREAK_MAX => format!("{streak} reviews in a row asked for changes"),
            _ => given.review.feedback.clone(),
        };
        return fail_attempt(agent, format!("{} rejected: {why}", given.kind.as_str()), TeamFailureKind::StoryInvalid);
    }
    let back_to = context.coder(agent).return_to.map_or_else(|| CODING.to_owned(), |phase| phase.to_string());
    let is_approved = given.verdict == ReviewVerdict::Approved;
    match given.kind {
        CoderRequestKind::Question => {
            give_task(agent, CoderTask::UseAnswer { answer: given.review.feedback }, &back_to, &reason)
        }
        CoderRequestKind::BudgetReview => {
            give_task(agent, CoderTask::Continue { review: Box::new(given) }, &back_to, &reason)
        }
        CoderRequestKind::PlanReview if is_approved => give_task(agent, CoderTask::Code, CODING, &reason),
        CoderRequestKind::PlanReview => {
            give_task(agent, CoderTask::RevisePlan { review: Box::new(given) }, PLANNING, &reason)
        }
        CoderRequestKind::CodeReview if is_approved => vec![propose_agent_phase(agent, AWAIT_MERGE, reason)],
        CoderRequestKind::CompletionReview if is_approved => vec![propose_agent_phase(agent, graphs::DONE, reason)],
        CoderRequestKind::CodeReview | CoderRequestKind::CompletionReview => {
            give_task(agent, CoderTask::FixReview { review: Box::new(given) }, CODING, &reason)
        }
    }
}

/// Tells the user that a decision is needed. The other stories go on.
pub(super) fn escalate(
    context: &TeamFlowContext<'_>,
    subject: &str,
    reason: String,
    failure: TeamFailureKind,
) -> Vec<FlowStep> {
    let mut steps =
        vec![TeamFact::Escalated { subject: subject.to_owned(), reason: reason.clone(), failure }.into_step()];
    if matches!(context.architect_phase().as_str(), MONITORING | REQUEST) {
        steps.push(propose_architect(ESCALATED, reason));
    }
    steps
}
