//! The commands of the user: start, pause, change, skip, take over, give back, land.

use segue_core::event::CallRequest;
use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;
use serde_json::Value;

use super::coder::{abort_attempt, cancel_calls, give_task};
use super::facts::{CoderTask, StoryStatus, TeamFact, TeamFailureKind};
use super::graphs::{
    AWAIT_MERGE, CODE_REVIEW, CODING, DISPATCHING, MONITORING, PLAN_REVIEW, PREVIEW, SUSPEND, TESTING,
};
use super::planning::accept_spec;
use super::product_spec::ProductSpec;
use super::repository_tools::{RepositoryTool, RepositoryToolRequest};
use super::requests::architect_name_for;
use super::spec::ARCHITECT_ROLE;
use super::state::StoryProgress;
use super::story::{Story, story_graph_problems};
use super::team_context::{TeamFlowContext, propose_agent_phase, propose_architect, propose_product_manager};
use super::{express, mail, outages};

/// The phases in which a person can take a story over. From each of them an edge leads to `CODING`.
const TAKE_OVER_PHASES: [&str; 5] = [PLAN_REVIEW, CODING, TESTING, CODE_REVIEW, AWAIT_MERGE];

/// Checks whether a command can be run now.
///
/// # Errors
/// Fails with the reason.
pub(super) fn check_command(context: &TeamFlowContext<'_>, command: &str, arguments: &Value) -> Result<(), String> {
    let state = context.state();
    // Work that is started during a turn would end with it.
    let starts_work = !matches!(command, "pause" | "edit_spec" | "reset_context");
    if starts_work && context.view.session.current_turn.is_some() && !context.settings.is_headless {
        return Err("the product manager is answering; try again when it has finished".to_owned());
    }
    match command {
        "start" if !state.has_draft => Err("there is no spec to start with; describe to the product manager what you want".to_owned()),
        "start" => match state.draft.missing_fields().first() {
            Some(field) => Err(format!("the spec is not complete: {}", field.question())),
            None => Ok(()),
        },
        "edit_spec" if !state.has_draft => Err("there is no spec to change".to_owned()),
        "edit_spec" if !arguments["spec"].is_object() => Err("`spec` must be a table with the fields to change".to_owned()),
        "edit_spec" => Ok(()),
        "pause" if state.is_paused => Err("the team is already paused".to_owned()),
        "resume" if !state.is_paused => Err("the team is not paused".to_owned()),
        "pause" | "resume" => Ok(()),
        "edit_story" => edited_story(context, arguments).map(|_| ()),
        "skip_story" => match find_story(context, arguments)?.status {
            StoryStatus::Merged => Err("the story is already merged".to_owned()),
            StoryStatus::Skipped => Err("the story is already skipped".to_owned()),
            _ => Ok(()),
        },
        "retry_story" => match find_story(context, arguments)?.status {
            StoryStatus::Escalated | StoryStatus::Blocked | StoryStatus::Skipped => Ok(()),
            other => Err(format!("the story is {}; only one that needs you, is blocked or was skipped can be tried again", other.as_str())),
        },
        "take_over" => match (find_story(context, arguments)?.status, coder_of_named_story(context, arguments)) {
            (StoryStatus::InProgress, Some(agent)) if TAKE_OVER_PHASES.contains(&context.phase(&agent).as_str()) => Ok(()),
            (StoryStatus::InProgress, _) => Err("there is no approved plan yet; try again when there is".to_owned()),
            (other, _) => Err(format!("the story is {}; only one in progress can be taken over", other.as_str())),
        },
        "give_back" => match find_story(context, arguments)?.status {
            StoryStatus::TakenOver => Ok(()),
            other => Err(format!("the story is {}; you have not taken it over", other.as_str())),
        },
        "hot_fix" if state.repository.is_none() => Err("the team has not looked at the repository yet; start a spec first".to_owned()),
        "hot_fix" => express::read_hot_fix(arguments).map(|_| ()),
        "update_knowledge" if state.repository.is_none() => Err("the team has not looked at the repository yet; start a spec first".to_owned()),
        "update_knowledge" => express::read_knowledge_update(context, arguments).map(|_| ()),
        "reset_context" => match arguments["agent"].as_str().map(AgentName::from) {
            Some(agent) if context.coders().any(|coder| coder == agent) => Ok(()),
            _ => Err("`agent` must be one of the coders, such as `coder-1`".to_owned()),
        },
        "land" if state.repository.is_none() => Err("there is nothing to land".to_owned()),
        "land" if arguments["branch"].as_str().is_none_or(str::is_empty) => {
            Err("`branch` must be a branch that is not checked out; to land on a branch that is, merge the integration branch yourself".to_owned())
        }
        "land" => Ok(()),
        "undo_landing" if state.landed.is_none() => Err("nothing was landed".to_owned()),
        "undo_landing" => Ok(()),
        other => Err(format!("flow `team` has no command `{other}`")),
    }
}

/// Carries out a command that was checked.
pub(super) fn handle_command(context: &TeamFlowContext<'_>, command: &str, arguments: &Value) -> Vec<FlowStep> {
    let state = context.state();
    match command {
        "start" => accept_spec(context, state.draft.clone()),
        "edit_spec" => {
            let mut spec = state.draft.clone();
            spec.merge_newer(ProductSpec::from_value(&arguments["spec"]));
            let missing = spec.missing_fields();
            let mut steps = vec![
                TeamFact::SpecDrafted { spec, missing }.into_step(),
                propose_product_manager(PREVIEW, "the user changed the spec"),
            ];
            // The answer to a message that is being written shows the spec, too.
            if context.view.session.current_turn.is_none() {
                steps.push(FlowStep::StartTurn);
            }
            steps
        }
        "pause" => vec![TeamFact::Paused.into_step()],
        "resume" => vec![TeamFact::Resumed.into_step()],
        "edit_story" => edited_story(context, arguments).map(|story| change_story(context, story)).unwrap_or_default(),
        "skip_story" => skip_story(context, arguments),
        "retry_story" => retry_story(context, arguments),
        "take_over" => take_over_story(context, arguments),
        "give_back" => give_back_story(context, arguments),
        "hot_fix" => {
            express::read_hot_fix(arguments).map(|fix| express::queue_hot_fix(context, fix, "user")).unwrap_or_default()
        }
        "update_knowledge" => express::read_knowledge_update(context, arguments)
            .map(|update| express::queue_knowledge_update(context, update, "user"))
            .unwrap_or_default(),
        "reset_context" => {
            let agent = AgentName::from(arguments["agent"].as_str().unwrap_or_default());
            let mut request = CallRequest::new(ARCHITECT_ROLE, super::spec::REQUEST_ASK);
            request.agent = Some(architect_name_for(&agent));
            request.peer = Some(agent);
            vec![FlowStep::ResetThread { request, reason: "the user reset the context".to_owned() }]
        }
        "land" | "undo_landing" => {
            let branch = match command {
                "land" => arguments["branch"].as_str().map(str::to_owned),
                _ => state.landed.as_ref().map(|(branch, _)| branch.clone()),
            };
            let commit = state.landed.as_ref().and_then(|(_, before)| before.clone());
            let request = RepositoryToolRequest {
                spec: context.spec_branch(),
                branch,
                commit,
                ..RepositoryToolRequest::default()
            };
            let tool = if command == "land" { RepositoryTool::Land } else { RepositoryTool::UndoLanding };
            vec![tool.into_step(None, &request)]
        }
        _ => Vec::new(),
    }
}

fn find_story<'c>(context: &'c TeamFlowContext<'_>, arguments: &Value) -> Result<&'c StoryProgress, String> {
    let id = arguments["story"].as_str().unwrap_or_default();
    context.state().stories.get(id).ok_or_else(|| {
        let known: Vec<&str> = context.state().story_order.iter().map(String::as_str).collect();
        let known =
            if known.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", known.join(", ")) };
        format!("there is no story `{id}`; {known}")
    })
}

fn coder_of_named_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Option<AgentName> {
    let id = arguments["story"].as_str()?;
    context.coders().find(|agent| context.state().assignment(agent).is_some_and(|assignment| assignment.story == id))
}

fn edited_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Result<Story, String> {
    let progress = find_story(context, arguments)?;
    if progress.status == StoryStatus::Merged {
        return Err("the story is already merged; start a hot fix instead".to_owned());
    }
    let mut story = progress.story.clone();
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(|text| text.trim().to_owned());
    let list = |name: &str| -> Option<Vec<String>> {
        let items = arguments.get(name)?.as_array()?;
        Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    story.title = text("title").unwrap_or(story.title);
    story.description = text("description").unwrap_or(story.description);
    story.acceptance = list("acceptance").unwrap_or(story.acceptance);
    story.files = list("files").unwrap_or(story.files);
    if story == progress.story {
        return Err("nothing would change; give `title`, `description`, `acceptance` or `files`".to_owned());
    }
    story.revision += 1;
    let alone = Story { depends_on: Vec::new(), ..story.clone() };
    let problems = story_graph_problems(&[alone]);
    // A story that stands for the whole spec may touch all files.
    let problem = problems.iter().find(|problem| !story.files.is_empty() || !problem.contains("`files`"));
    problem.map_or(Ok(story.clone()), |problem| Err(problem.clone()))
}

fn change_story(context: &TeamFlowContext<'_>, story: Story) -> Vec<FlowStep> {
    let id = story.id.clone();
    let is_own = |agent: &AgentName| context.state().assignment(agent).is_some_and(|assignment| assignment.story == id);
    let mut steps = vec![TeamFact::StoryChanged { story: story.clone() }.into_step()];
    match context.coders().find(is_own) {
        // Any change of an assignment opens new threads.
        Some(agent) => {
            steps.extend(abort_attempt(context, &agent, "the user changed the story", TeamFailureKind::Superseded));
        }
        None => {
            steps.push(TeamFact::EscalationEnded { subject: story.id.clone() }.into_step());
            steps.extend(resume_architect_monitoring(context));
        }
    }
    let reason = "the user changed the story".to_owned();
    steps.push(TeamFact::StoryMoved { story: story.id, status: StoryStatus::Waiting, reason }.into_step());
    steps
}

fn skip_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let story = arguments["story"].as_str().unwrap_or_default().to_owned();
    let reason = "the user skipped it".to_owned();
    let mut steps = vec![
        TeamFact::EscalationEnded { subject: story.clone() }.into_step(),
        TeamFact::StoryMoved { story, status: StoryStatus::Skipped, reason: reason.clone() }.into_step(),
    ];
    if let Some(agent) = coder_of_named_story(context, arguments) {
        steps.extend(abort_attempt(context, &agent, &reason, TeamFailureKind::Superseded));
    }
    steps
}

/// The architect watches again after the end of a spec.
fn resume_architect_monitoring(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    if context.state().spec_is_running {
        return Vec::new();
    }
    let reason = "the user wants a story tried again";
    vec![propose_architect(DISPATCHING, reason), propose_architect(MONITORING, reason)]
}

fn retry_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let Ok(progress) = find_story(context, arguments) else { return Vec::new() };
    let id = progress.story.id.clone();
    let mut steps = vec![TeamFact::EscalationEnded { subject: id.clone() }.into_step()];
    steps.extend(resume_architect_monitoring(context));
    let note = arguments["note"].as_str().unwrap_or_default().trim();
    if !note.is_empty() {
        let description = format!("{}\n\nA note of the user: {note}", progress.story.description);
        let story = Story { description, revision: progress.story.revision + 1, ..progress.story.clone() };
        steps.push(TeamFact::StoryChanged { story }.into_step());
    }
    let dependants: Vec<String> = context
        .state()
        .ordered_stories()
        .filter(|other| other.status == StoryStatus::Blocked)
        .map(|other| other.story.id.clone())
        .collect();
    for story in dependants.into_iter().chain([id]) {
        let reason = "the user wants it tried again".to_owned();
        steps.push(TeamFact::StoryMoved { story, status: StoryStatus::Waiting, reason }.into_step());
    }
    if progress.story.kind.is_express() {
        let body = serde_json::json!({"story": progress.story.id});
        steps.push(mail::send_message_step("user", mail::EXPRESS_CHANNEL, mail::HOT_FIX_TOPIC, &body, None));
    }
    steps
}

/// Stops the coder and leaves its worktree to the user.
fn take_over_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let Some(agent) = coder_of_named_story(context, arguments) else { return Vec::new() };
    let story = arguments["story"].as_str().unwrap_or_default().to_owned();
    let mut steps = vec![TeamFact::TakenOver { story, agent: agent.clone() }.into_step()];
    steps.extend(cancel_calls(context, &agent, "the user took the story over"));
    steps.push(propose_agent_phase(&agent, SUSPEND, "the user took the story over"));
    steps
}

/// Tests what the user did, as if the coder had done it.
fn give_back_story(context: &TeamFlowContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let Some(agent) = coder_of_named_story(context, arguments) else { return Vec::new() };
    let story = arguments["story"].as_str().unwrap_or_default().to_owned();
    let back_to = context.coder(&agent).suspended_from.map_or_else(|| CODING.to_owned(), |phase| phase.to_string());
    let mut steps = vec![
        TeamFact::TaskGiven { agent: agent.clone(), task: CoderTask::Recheck }.into_step(),
        propose_agent_phase(&agent, &back_to, "the user gave the story back"),
    ];
    if back_to != CODING {
        // A plan or a review is no longer needed: what the user did is tested and reviewed as a whole.
        steps.extend(give_task(&agent, CoderTask::Recheck, CODING, "the user gave the story back"));
    }
    steps.push(TeamFact::GivenBack { story, agent }.into_step());
    steps
}

/// Continues the team after a pause, or after a story was given back.
pub(super) fn continue_team(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let mut steps = outages::continue_all_coders(context);
    steps.extend(super::dispatcher::begin_dispatch(context));
    steps
}
