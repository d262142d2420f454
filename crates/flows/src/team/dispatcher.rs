//! Code decides who works on what: express work first, then stories whose dependencies are merged and whose files nobody
//! else is changing. It also notices when a spec has ended.

use segue_core::event::TurnOutcome;
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::ids::AgentName;
use serde_json::json;

use super::facts::{KnowledgeFileUpdate, StoryAssignment, StoryStatus, TeamFact, UndeliveredStory};
use super::graphs::{self, WAITING};
use super::knowledge::{ExistingKnowledgeNodePolicy, build_knowledge_pack};
use super::mail::{self, DISPATCHER, EXPRESS_CHANNEL, SHUTDOWN_TOPIC, STORY_TOPIC};
use super::prompts;
use super::spec::{ARCHITECT_AGENT, PRODUCT_MANAGER_AGENT};
use super::story::{Story, StoryWorkflowKind, dependent_stories, startable_stories};
use super::team_context::{TeamFlowContext, propose_architect, propose_product_manager};

/// Begins to give out work, if there is any. Several events of one decision may ask for it; the first one gets it.
pub(super) fn begin_dispatch(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    if context.state().pending_dispatches > 0 || dispatch_next_story(context).is_empty() {
        return Vec::new();
    }
    vec![TeamFact::DispatchBegun.into_step()]
}

/// Gives out work once.
pub(super) fn handle_dispatch_begun(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    if context.state().pending_dispatches > 1 {
        return Vec::new();
    }
    let mut steps = dispatch_next_story(context);
    steps.push(TeamFact::DispatchEnded.into_step());
    steps
}

/// Gives one story to one coder, or ends the spec if nothing is left.
fn dispatch_next_story(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    if !state.spec_is_running && state.updates.is_empty() && next_express_story(context).is_none() {
        return Vec::new();
    }
    // Work that starts in a turn of the product manager would end with it. The end of the turn dispatches.
    if state.is_paused || context.is_in_product_manager_turn() {
        return Vec::new();
    }
    let blocked = block_dependent_stories(context);
    if !blocked.is_empty() {
        return blocked;
    }
    let idle =
        context.coders().find(|agent| context.phase(agent) == *WAITING && context.coder(agent).assignment.is_none());
    if let Some(agent) = idle {
        let in_progress: Vec<&Story> = in_progress_stories(context);
        if let Some(story) = next_express_story(context)
            && !in_progress.iter().any(|other| other.may_share_files_with(story))
        {
            let mut steps = assign_story(context, &agent, story);
            steps.push(FlowStep::Receive { agent: EXPRESS_CHANNEL.into() });
            return steps;
        }
        let waiting: Vec<&Story> = state
            .ordered_stories()
            .filter(|progress| {
                progress.status == StoryStatus::Waiting && progress.story.kind == StoryWorkflowKind::Ordinary
            })
            .map(|progress| &progress.story)
            .collect();
        let merged = state.story_ids_with(StoryStatus::Merged);
        if let Some(story) = startable_stories(&waiting, &merged, &in_progress).first() {
            let mut steps = assign_story(context, &agent, story);
            let body = json!({"story": story.id, "revision": story.revision});
            steps.push(mail::send_message_step(DISPATCHER, agent.as_str(), STORY_TOPIC, &body, None));
            return steps;
        }
    }
    end_spec_if_done(context)
}

fn in_progress_stories<'c>(context: &'c TeamFlowContext<'_>) -> Vec<&'c Story> {
    let is_active = |status: StoryStatus| matches!(status, StoryStatus::InProgress | StoryStatus::TakenOver);
    let stories = context.state().stories.values().filter(|progress| is_active(progress.status));
    stories.map(|progress| &progress.story).collect()
}

/// Returns the story of the next express work.
fn next_express_story<'c>(context: &'c TeamFlowContext<'_>) -> Option<&'c Story> {
    let mail = context.view.session.next_inbox_message(&EXPRESS_CHANNEL.into())?;
    let body: serde_json::Value = serde_json::from_str(&context.view.read_text(mail.text)).ok()?;
    Some(&context.state().stories.get(body["story"].as_str()?)?.story)
}

fn assign_story(context: &TeamFlowContext<'_>, agent: &AgentName, story: &Story) -> Vec<FlowStep> {
    let attempts = context.state().stories.get(&story.id).map_or(0, |progress| progress.attempts);
    let assignment = StoryAssignment {
        agent: agent.clone(),
        story: story.id.clone(),
        attempt: attempts + 1,
        revision: story.revision,
        pack: build_knowledge_pack(&context.state().knowledge, &story.knowledge_search_text()),
    };
    assignment_steps(assignment)
}

/// Returns the steps that give a coder an assignment. Its threads follow from it.
pub(super) fn assignment_steps(assignment: StoryAssignment) -> Vec<FlowStep> {
    let (agent, work) = (assignment.agent.clone(), assignment.work_item());
    vec![
        FlowStep::AssignWork { agent, work: Some(work.as_str().into()) },
        TeamFact::Assigned(Box::new(assignment)).into_step(),
    ]
}

/// Marks the stories that need a story that will not be merged.
fn block_dependent_stories(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    let mut failed = state.story_ids_with(StoryStatus::Escalated);
    failed.extend(state.story_ids_with(StoryStatus::Skipped));
    let stories: Vec<&Story> = state.ordered_stories().map(|progress| &progress.story).collect();
    let affected = dependent_stories(&stories, &failed);
    let is_waiting =
        |id: &&String| state.stories.get(*id).is_some_and(|progress| progress.status == StoryStatus::Waiting);
    let first = affected.iter().find(is_waiting);
    first
        .map(|story| {
            let reason = "a story that it needs will not be merged".to_owned();
            TeamFact::StoryMoved { story: story.clone(), status: StoryStatus::Blocked, reason }.into_step()
        })
        .into_iter()
        .collect()
}

/// Ends the spec if every story has ended: first what was learned is written to the knowledge file.
fn end_spec_if_done(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    let has_open_story = state.stories.values().any(|progress| !progress.status.is_ended());
    let has_busy_coder = context.coders().any(|agent| state.assignment(&agent).is_some());
    if !state.spec_is_running || state.stories.is_empty() || has_open_story || has_busy_coder {
        return Vec::new();
    }
    let can_write = state.repository.as_ref().is_some_and(|repository| repository.knowledge_problem.is_none());
    if !state.unwritten.is_empty() && can_write {
        let update = KnowledgeFileUpdate {
            entries: state.unwritten.clone(),
            file_path: context.settings.knowledge_file.clone(),
            action: ExistingKnowledgeNodePolicy::Append,
        };
        return super::express::queue_knowledge_update(context, update, ARCHITECT_AGENT);
    }
    let missing: Vec<UndeliveredStory> = state
        .ordered_stories()
        .filter(|progress| progress.status != StoryStatus::Merged)
        .map(|progress| UndeliveredStory {
            story: progress.story.id.clone(),
            title: progress.story.title.clone(),
            status: progress.status,
            reason: progress.reason.clone(),
        })
        .collect();
    let merged = state.ordered_stories().filter(|progress| progress.status == StoryStatus::Merged);
    let merged = merged.map(|progress| progress.story.id.clone()).collect();
    vec![TeamFact::SpecEnded { number: state.spec_number, merged, missing }.into_step()]
}

/// Returns the steps after the end of a spec: the account for the user, and the agents wait again.
pub(super) fn handle_spec_ended(context: &TeamFlowContext<'_>, missing: &[UndeliveredStory]) -> Vec<FlowStep> {
    let mut steps = vec![mail::send_message_step(
        DISPATCHER,
        ARCHITECT_AGENT,
        SHUTDOWN_TOPIC,
        &json!({"spec": context.state().spec_number}),
        None,
    )];
    steps.extend([
        FlowStep::Receive { agent: ARCHITECT_AGENT.into() },
        propose_architect(graphs::DONE, "all stories have ended"),
        propose_architect(WAITING, "ready for the next spec"),
    ]);
    // Otherwise the product manager is talking to the user.
    if context.phase(&PRODUCT_MANAGER_AGENT.into()) == *graphs::AWAIT_ARCHITECT {
        steps.push(propose_product_manager(graphs::DONE, "all stories have ended"));
        steps.push(propose_product_manager(WAITING, "ready for the next spec"));
    }
    steps.push(FlowStep::SetResult(spec_result(context, missing)));
    if context.settings.is_headless && context.view.session.current_turn.is_some() {
        let outcome = match missing {
            [] => TurnOutcome::Done,
            missing => TurnOutcome::Failed {
                reason: format!("{} of {} stories are missing", missing.len(), context.state().stories.len()),
            },
        };
        steps.extend(give_account(context));
        steps.push(FlowStep::EndTurn(outcome));
    } else {
        steps.extend(start_account_turn(context));
    }
    steps
}

/// Starts the turn in which the user is told what a spec delivered, so that it is a part of the conversation. If a turn
/// is running, its end does.
pub(super) fn start_account_turn(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let is_due = context.state().account_is_due && context.view.session.current_turn.is_none();
    if is_due { vec![FlowStep::StartTurn] } else { Vec::new() }
}

/// Tells the user what is delivered and what is missing.
pub(super) fn give_account(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let missing = context.state().ended_specs.last().map(|ended| ended.missing.as_slice()).unwrap_or_default();
    let text = NewOrStoredReplyText::New(prompts::render_delivery_account(context, missing));
    vec![FlowStep::Reply { text, role: None, call: None }, TeamFact::AccountGiven.into_step()]
}

/// Returns the result that a script gets.
fn spec_result(context: &TeamFlowContext<'_>, missing: &[UndeliveredStory]) -> serde_json::Value {
    let state = context.state();
    let repository = state.repository.as_ref();
    let merged = state.ended_specs.last().map(|ended| ended.merged.as_slice()).unwrap_or_default();
    json!({
        "ended": true,
        // Only commits that passed the project's tests are merged.
        "verified": missing.is_empty(),
        "branch": repository.map(|repository| &repository.integration),
        "base": repository.map(|repository| &repository.base),
        "merged": merged,
        "missing": missing,
    })
}
