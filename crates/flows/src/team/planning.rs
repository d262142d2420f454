//! From an accepted spec to stories: the repository is looked at, the architect cuts the spec, and code checks the result.
//! An invalid graph is repaired once; after that the spec is one story.

use segue_core::event::{CallAnswered, CallOpened, CallRequest};
use segue_core::flow::FlowStep;
use serde_json::json;

use super::coder;
use super::facts::{InspectedRepository, StoryListOrigin, StoryStatus, TeamFact, TeamFailureKind};
use super::graphs::{self, DISPATCHING, MONITORING};
use super::knowledge::parse_knowledge_dot;
use super::mail::{self, SPEC_TOPIC};
use super::product_spec::ProductSpec;
use super::repository_tools::{RepositoryTool, RepositoryToolRequest, RepositoryToolResult};
use super::settings::ArchitectThreadPartitioning;
use super::spec::{
    ARCHITECT_AGENT, ARCHITECT_ROLE, PRODUCT_MANAGER_AGENT, REPAIR_ASK, SINGLE_CONTEXT_ARCHITECT_ROLE, STORIES_ASK,
};
use super::story::{Story, StoryWorkflowKind, parse_stories};
use super::team_context::{TeamFlowContext, propose_architect, propose_product_manager};
use crate::limits::{KNOWLEDGE_FACT_BYTES_MAX, PROJECT_INSTRUCTIONS_BYTES_MAX};

/// Starts the team on a spec, or gives it a changed one.
pub(super) fn accept_spec(context: &TeamFlowContext<'_>, spec: ProductSpec) -> Vec<FlowStep> {
    let state = context.state();
    let number = if state.spec_is_running { state.spec_number } else { state.spec_number + 1 };
    let body = json!({"spec": number, "title": spec.title});
    vec![
        FlowStep::SetTitle(spec.title.clone()),
        TeamFact::SpecAccepted { number, spec }.into_step(),
        propose_product_manager(graphs::AWAIT_ARCHITECT, "the spec was accepted"),
        mail::send_message_step(PRODUCT_MANAGER_AGENT, ARCHITECT_AGENT, SPEC_TOPIC, &body, None),
    ]
}

/// The architect received the spec: first the repository is looked at.
pub(super) fn handle_spec_received(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let request = RepositoryToolRequest {
        spec: context.spec_branch(),
        path: Some(context.settings.knowledge_file.clone()),
        set_up: true,
        ..RepositoryToolRequest::default()
    };
    vec![
        propose_architect(DISPATCHING, "a spec arrived"),
        RepositoryTool::Inspect.into_step(Some(ARCHITECT_AGENT.into()), &request),
    ]
}

/// The repository was looked at: its knowledge is imported, and the architect cuts the spec.
pub(super) fn handle_inspection_result(context: &TeamFlowContext<'_>, result: RepositoryToolResult) -> Vec<FlowStep> {
    let mut instructions = result.instructions;
    if let Some(text) = &mut instructions {
        text.truncate(text.floor_char_boundary(PROJECT_INSTRUCTIONS_BYTES_MAX));
    }
    let imported = result.knowledge.as_deref().map(parse_knowledge_dot);
    let too_large =
        |graph: &_| serde_json::to_string(graph).map_or(usize::MAX, |text| text.len()) > KNOWLEDGE_FACT_BYTES_MAX;
    let (graph, knowledge_problem) = match imported {
        None => (None, None),
        Some(Ok(graph)) if too_large(&graph) => (None, Some("the knowledge file is too large".to_owned())),
        Some(Ok(graph)) => (Some(graph), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    let repository = InspectedRepository {
        base: result.base,
        branch: result.branch,
        integration: result.integration,
        warnings: result.warnings,
        instructions,
        knowledge_problem,
        base_is_green: result.passed,
    };
    let mut steps = vec![TeamFact::RepositoryInspected(Box::new(repository)).into_step()];
    steps.extend(graph.map(|graph| TeamFact::KnowledgeImported { graph }.into_step()));
    steps.push(FlowStep::Call(architect_stories_request(context, STORIES_ASK)));
    steps
}

/// The repository cannot be used: the user has to act.
pub(super) fn handle_inspection_failure(context: &TeamFlowContext<'_>, why: &str) -> Vec<FlowStep> {
    let mut steps = vec![
        TeamFact::Escalated {
            subject: "repository".to_owned(),
            reason: why.to_owned(),
            failure: TeamFailureKind::Environment,
        }
        .into_step(),
        propose_architect(graphs::ERROR, why),
        propose_architect(graphs::WAITING, "waits for the user"),
        propose_product_manager(graphs::ERROR, why),
        propose_product_manager(graphs::WAITING, "waits for the user"),
        TeamFact::SpecAborted { reason: why.to_owned() }.into_step(),
    ];
    if context.settings.is_headless && context.view.session.current_turn.is_some() {
        steps.push(FlowStep::EndTurn(segue_core::event::TurnOutcome::Failed { reason: why.to_owned() }));
    }
    steps
}

/// Asks the architect for the stories again, after an outage.
pub(super) fn ask_architect_for_stories(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let ask = if context.state().stories_refused == 0 { STORIES_ASK } else { REPAIR_ASK };
    vec![FlowStep::Call(architect_stories_request(context, ask))]
}

fn architect_stories_request(context: &TeamFlowContext<'_>, ask: &str) -> CallRequest {
    let role = match context.settings.contexts {
        ArchitectThreadPartitioning::PerAssignment => ARCHITECT_ROLE,
        ArchitectThreadPartitioning::Single => SINGLE_CONTEXT_ARCHITECT_ROLE,
    };
    let mut request = CallRequest::new(role, ask);
    request.agent = Some(ARCHITECT_AGENT.into());
    request.peer = Some(PRODUCT_MANAGER_AGENT.into());
    request.metadata = json!({"stories": context.state().spec_number});
    request
}

/// Handles the architect's stories.
pub(super) fn handle_stories_answer(
    context: &TeamFlowContext<'_>,
    _call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    if !answered.tool_calls.is_empty() {
        return Vec::new();
    }
    match parse_stories(&context.view.read_text(answered.text)) {
        Ok(stories) => {
            let is_first = context.state().stories_refused == 0;
            let origin = if is_first { StoryListOrigin::Emitted } else { StoryListOrigin::Repaired };
            record_planned_stories(context, stories, origin, Vec::new())
        }
        Err(problems) if context.state().stories_refused == 0 => {
            vec![
                TeamFact::StoriesRefused { problems }.into_step(),
                FlowStep::Call(architect_stories_request(context, REPAIR_ASK)),
            ]
        }
        Err(problems) => {
            let spec = context.state().spec.clone().unwrap_or_default();
            record_planned_stories(context, vec![single_story(&spec)], StoryListOrigin::SingleStory, problems)
        }
    }
}

fn single_story(spec: &ProductSpec) -> Story {
    Story {
        id: "all".to_owned(),
        title: spec.title.clone(),
        description: format!("{}\n\n{}", spec.goal, spec.requirements.join("\n")),
        acceptance: spec.acceptance.clone(),
        files: Vec::new(),
        depends_on: Vec::new(),
        kind: StoryWorkflowKind::Ordinary,
        revision: 1,
    }
}

/// Records the stories. If the spec was changed in the middle of a run, only the stories that differ are affected.
fn record_planned_stories(
    context: &TeamFlowContext<'_>,
    mut stories: Vec<Story>,
    origin: StoryListOrigin,
    problems: Vec<String>,
) -> Vec<FlowStep> {
    let state = context.state();
    let mut changed = Vec::new();
    for story in &mut stories {
        let Some(before) = state.stories.get(&story.id) else { continue };
        story.revision = before.story.revision;
        if *story != before.story {
            story.revision += 1;
            changed.push((story.id.clone(), before.status));
        }
    }
    let kept: Vec<&String> = stories.iter().map(|story| &story.id).collect();
    let removed: Vec<String> = state
        .ordered_stories()
        .filter(|progress| progress.story.kind == StoryWorkflowKind::Ordinary && !progress.status.is_ended())
        .map(|progress| progress.story.id.clone())
        .filter(|id| !kept.contains(&id))
        .collect();
    let mut steps = Vec::new();
    for agent in context.coders() {
        let Some(assignment) = state.assignment(&agent) else { continue };
        let is_affected = removed.contains(&assignment.story) || changed.iter().any(|(id, _)| *id == assignment.story);
        if is_affected {
            steps.extend(coder::abort_attempt(context, &agent, "the spec was changed", TeamFailureKind::Superseded));
        }
    }
    steps.push(TeamFact::StoriesPlanned { stories, origin, problems }.into_step());
    for (story, status) in changed {
        if status != StoryStatus::Skipped {
            let reason = "the spec was changed".to_owned();
            steps.push(TeamFact::StoryMoved { story, status: StoryStatus::Waiting, reason }.into_step());
        }
    }
    for story in removed {
        let reason = "the spec no longer contains it".to_owned();
        steps.push(TeamFact::StoryMoved { story, status: StoryStatus::Skipped, reason }.into_step());
    }
    steps.push(propose_architect(MONITORING, "the stories are ready"));
    steps
}
