//! What people see beside the conversation: the spec, the board of stories, the agents, the reviews, the knowledge graph,
//! and what needs them.

use segue_core::flow::{
    ArtifactButton, ArtifactChecklistItem, ArtifactChecklistItemStatus, ArtifactGraphEdge, ArtifactGraphNode,
    ArtifactMetric, ArtifactNotesItem, ArtifactTableRow, FlowArtifact, TypedArtifactContent,
};
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::facts::StoryStatus;
use super::spec::{ARCHITECT_AGENT, PRODUCT_MANAGER_AGENT};
use super::state::{StoryProgress, TeamState};
use super::team_context::TeamFlowContext;
use crate::artifact::new_artifact;

/// Returns the artifacts of the flow.
pub(super) fn build_artifacts(context: &TeamFlowContext<'_>) -> Vec<FlowArtifact> {
    let state = context.state();
    let mut artifacts = Vec::new();
    if state.has_draft {
        artifacts.push(spec_artifact(state));
    }
    if !state.escalations.is_empty() {
        artifacts.push(escalations_artifact(state));
    }
    if !state.stories.is_empty() {
        artifacts.push(board_artifact(context));
        artifacts.push(agents_artifact(context));
        artifacts.push(progress_artifact(context));
    }
    if state.stories.values().any(|progress| !progress.reviews.is_empty()) {
        artifacts.push(reviews_artifact(state));
    }
    if !state.knowledge.nodes.is_empty() {
        artifacts.push(knowledge_artifact(state));
    }
    artifacts.extend(repository_artifact(state));
    artifacts
}

fn command_button(label: &str, command: &str, arguments: Value) -> ArtifactButton {
    ArtifactButton { label: label.to_owned(), command: command.to_owned(), arguments }
}

fn spec_artifact(state: &TeamState) -> FlowArtifact {
    let row = |id: &str, text: String| ArtifactTableRow {
        id: id.to_owned(),
        group: "spec".to_owned(),
        cells: vec![id.to_owned(), text],
        why: String::new(),
        commands: Vec::new(),
    };
    let spec = &state.draft;
    let mut rows = vec![
        row("title", spec.title.clone()),
        row("goal", spec.goal.clone()),
        row("requirements", spec.requirements.join("\n")),
        row("acceptance", spec.acceptance.join("\n")),
        row("constraints", spec.constraints.join("\n")),
    ];
    if spec.missing_fields().is_empty() {
        rows[0].commands.push(command_button("Start the team", "start", json!({})));
    }
    let columns = vec!["field".to_owned(), "value".to_owned()];
    new_artifact("spec", "Spec", TypedArtifactContent::Table { columns, rows })
}

fn escalations_artifact(state: &TeamState) -> FlowArtifact {
    let rows = state.escalations.iter().map(|need| {
        let is_story = state.stories.contains_key(&need.subject);
        let arguments = json!({"story": need.subject});
        let commands = match is_story {
            true => {
                vec![
                    command_button("Try again", "retry_story", arguments.clone()),
                    command_button("Skip", "skip_story", arguments),
                ]
            }
            false => Vec::new(),
        };
        ArtifactTableRow {
            id: need.subject.clone(),
            group: "needs you".to_owned(),
            cells: vec![need.subject.clone(), need.failure.as_str().to_owned(), need.reason.clone()],
            why: need.reason.clone(),
            commands,
        }
    });
    let columns = vec!["what".to_owned(), "kind".to_owned(), "reason".to_owned()];
    new_artifact("needs_you", "Needs you", TypedArtifactContent::Table { columns, rows: rows.collect() })
}

fn board_artifact(context: &TeamFlowContext<'_>) -> FlowArtifact {
    let state = context.state();
    let order = [
        StoryStatus::Escalated,
        StoryStatus::TakenOver,
        StoryStatus::InProgress,
        StoryStatus::Waiting,
        StoryStatus::Blocked,
        StoryStatus::Merged,
        StoryStatus::Skipped,
    ];
    let mut rows = Vec::new();
    for status in order {
        for progress in state.ordered_stories().filter(|progress| progress.status == status) {
            rows.push(board_row(context, progress));
        }
    }
    let columns = ["story", "title", "coder", "phase", "attempt", "calls", "cost"].map(str::to_owned).to_vec();
    new_artifact("board", "Stories", TypedArtifactContent::Table { columns, rows })
}

fn board_row(context: &TeamFlowContext<'_>, progress: &StoryProgress) -> ArtifactTableRow {
    let story = &progress.story;
    let coder = coder_of_story(context, progress);
    let phase = coder.as_ref().map(|agent| context.phase(agent).to_string()).unwrap_or_default();
    let arguments = json!({"story": story.id});
    let commands = match progress.status {
        StoryStatus::InProgress => {
            vec![
                command_button("Take over", "take_over", arguments.clone()),
                command_button("Skip", "skip_story", arguments),
            ]
        }
        StoryStatus::TakenOver => vec![command_button("Give back", "give_back", arguments)],
        StoryStatus::Waiting => vec![command_button("Skip", "skip_story", arguments)],
        StoryStatus::Escalated | StoryStatus::Blocked | StoryStatus::Skipped => {
            vec![command_button("Try again", "retry_story", arguments)]
        }
        StoryStatus::Merged => Vec::new(),
    };
    ArtifactTableRow {
        id: story.id.clone(),
        group: progress.status.as_str().to_owned(),
        cells: vec![
            story.id.clone(),
            story.title.clone(),
            coder.map(|agent| agent.to_string()).unwrap_or_default(),
            phase,
            progress.attempts.to_string(),
            progress.calls.to_string(),
            format_cost(progress.cost_microusd),
        ],
        why: progress.reason.clone(),
        commands,
    }
}

fn format_cost(microusd: u64) -> String {
    if microusd == 0 { String::new() } else { format!("${}.{:04}", microusd / 1_000_000, microusd % 1_000_000 / 100) }
}

fn agents_artifact(context: &TeamFlowContext<'_>) -> FlowArtifact {
    let others = [PRODUCT_MANAGER_AGENT.into(), ARCHITECT_AGENT.into()];
    let rows = others.into_iter().chain(context.coders()).map(|agent| {
        let coder = context.coder(&agent);
        let work = coder.work_item().unwrap_or_default();
        ArtifactTableRow {
            id: agent.to_string(),
            group: "agents".to_owned(),
            cells: vec![
                agent.to_string(),
                context.phase(&agent).to_string(),
                work,
                (coder.planning_rounds + coder.coding_rounds).to_string(),
            ],
            why: String::new(),
            commands: Vec::new(),
        }
    });
    let columns = ["agent", "state", "work", "rounds"].map(str::to_owned).to_vec();
    new_artifact("agents", "Agents", TypedArtifactContent::Table { columns, rows: rows.collect() })
}

fn reviews_artifact(state: &TeamState) -> FlowArtifact {
    let mut rows = Vec::new();
    for progress in state.ordered_stories() {
        for given in &progress.reviews {
            let findings =
                given.review.findings.iter().map(|found| format!("{}:{} {}", found.file, found.line, found.text));
            let findings: Vec<String> = findings.collect();
            let commit = given.commit.as_deref().unwrap_or_default();
            rows.push(ArtifactTableRow {
                id: given.request.to_string(),
                group: progress.story.id.clone(),
                cells: vec![
                    given.kind.as_str().to_owned(),
                    given.agent.to_string(),
                    given.verdict.as_str().to_owned(),
                    findings.join("\n"),
                    commit.chars().take(10).collect(),
                    given.call.map_or_else(|| "by code".to_owned(), |call| call.to_string()),
                ],
                why: given.review.feedback.clone(),
                commands: Vec::new(),
            });
        }
    }
    let columns = ["review", "coder", "verdict", "findings", "tested commit", "call"].map(str::to_owned).to_vec();
    new_artifact("reviews", "Reviews", TypedArtifactContent::Table { columns, rows })
}

fn knowledge_artifact(state: &TeamState) -> FlowArtifact {
    let graph = &state.knowledge;
    let nodes = graph.nodes.values().map(|node| ArtifactGraphNode {
        id: node.id.clone(),
        label: node.id.clone(),
        text: node.description.clone(),
        kind: node.kind.as_str().to_owned(),
        role: node.level.as_str().to_owned(),
        weight: if node.status == super::knowledge::KnowledgeStatus::Current { 1.0 } else { 0.4 },
        sources: Vec::new(),
    });
    let edges = graph.nodes.values().flat_map(|node| {
        node.relations.iter().map(|relation| ArtifactGraphEdge {
            from: node.id.clone(),
            to: relation.to.clone(),
            kind: relation.relation.as_str().to_owned(),
        })
    });
    let unwritten = state.unwritten.len();
    // A number is shown as a share of one.
    let metrics = vec![
        ArtifactMetric { name: "nodes".to_owned(), value: json!(graph.nodes.len().to_string()) },
        ArtifactMetric { name: "not yet in the file".to_owned(), value: json!(unwritten.to_string()) },
    ];
    let content =
        TypedArtifactContent::Graph { nodes: nodes.collect(), edges: edges.collect(), notes: Vec::new(), metrics };
    new_artifact("knowledge", "Knowledge", content)
}

/// The stories and what is left for the user, beside the conversation.
fn progress_artifact(context: &TeamFlowContext<'_>) -> FlowArtifact {
    let state = context.state();
    let mut items: Vec<ArtifactChecklistItem> =
        state.ordered_stories().map(|story| story_item(context, story)).collect();
    if let (Some(repository), Some(_), false) = (&state.repository, state.ended_specs.last(), state.spec_is_running) {
        let is_landed = state.landed.is_some();
        items.push(ArtifactChecklistItem {
            title: "Look at the result and land it".to_owned(),
            detail: format!(
                "git diff {}...{branch}, then git merge {branch}",
                repository.short_base(),
                branch = repository.integration
            ),
            done_when: "your branch contains it".to_owned(),
            status: if is_landed { ArtifactChecklistItemStatus::Complete } else { ArtifactChecklistItemStatus::Active },
        });
    }
    let goal = state.spec.as_ref().map(|spec| spec.title.clone()).unwrap_or_default();
    new_artifact("progress", "Progress", TypedArtifactContent::Checklist { goal, items })
}

fn story_item(context: &TeamFlowContext<'_>, progress: &StoryProgress) -> ArtifactChecklistItem {
    let coder = coder_of_story(context, progress);
    let detail = match (&coder, progress.status) {
        (Some(agent), StoryStatus::InProgress) => format!("{agent}: {}", context.phase(agent)),
        (_, StoryStatus::Waiting | StoryStatus::Merged) => String::new(),
        (_, status) if progress.reason.is_empty() => status.as_str().to_owned(),
        (_, status) => format!("{}: {}", status.as_str(), progress.reason),
    };
    ArtifactChecklistItem {
        title: progress.story.title.clone(),
        detail,
        done_when: String::new(),
        status: match progress.status {
            StoryStatus::Merged => ArtifactChecklistItemStatus::Complete,
            StoryStatus::InProgress | StoryStatus::TakenOver => ArtifactChecklistItemStatus::Active,
            StoryStatus::Waiting | StoryStatus::Escalated | StoryStatus::Blocked | StoryStatus::Skipped => {
                ArtifactChecklistItemStatus::Pending
            }
        },
    }
}

/// Returns the coder that works on a story.
fn coder_of_story(context: &TeamFlowContext<'_>, progress: &StoryProgress) -> Option<AgentName> {
    let is_own = |agent: &AgentName| {
        context.state().assignment(agent).is_some_and(|assignment| assignment.story == progress.story.id)
    };
    context.coders().find(is_own)
}

/// Returns the warnings about the repository as notes.
fn repository_artifact(state: &TeamState) -> Option<FlowArtifact> {
    let repository = state.repository.as_ref()?;
    let mut items: Vec<ArtifactNotesItem> = Vec::new();
    let mut note =
        |title: &str, text: String| items.push(ArtifactNotesItem { title: title.to_owned(), text, turn: None });
    for warning in &repository.warnings {
        note("Repository", warning.clone());
    }
    if let Some(problem) = &repository.knowledge_problem {
        note("Knowledge file", format!("it is invalid and was left as it is: {problem}"));
    }
    (!items.is_empty()).then(|| new_artifact("repository", "Repository", TypedArtifactContent::Notes { items }))
}
