//! The express channel: updates of the knowledge file, and hot fixes. A coder that waits takes them before any ordinary
//! story, and plans nothing. What is written to the knowledge file is decided by code alone.

use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;
use serde_json::{Value, json};

use super::facts::{CoderTask, KnowledgeFileUpdate, TeamFact};
use super::knowledge::{
    ExistingKnowledgeNodePolicy, KnowledgeGraph, parse_knowledge_dot, parse_knowledge_entry, write_knowledge_dot,
};
use super::mail::{self, EXPRESS_CHANNEL, HOT_FIX_TOPIC, KNOWLEDGE_UPDATE_TOPIC};
use super::repository_tools::{RepositoryTool, RepositoryToolRequest};
use super::story::{Story, StoryWorkflowKind};
use super::team_context::TeamFlowContext;
use crate::limits::{STORY_FILES_MAX, STORY_TEXT_CHARS_MAX, STORY_TITLE_CHARS_MAX};

/// Queues an update of the knowledge file.
pub(super) fn queue_knowledge_update(
    context: &TeamFlowContext<'_>,
    update: KnowledgeFileUpdate,
    by: &str,
) -> Vec<FlowStep> {
    let story = Story {
        id: format!("knowledge-{}", context.state().express_count + 1),
        title: "Update the knowledge file".to_owned(),
        description: format!("{} entries", update.entries.len()),
        acceptance: vec!["the file is valid and contains every entry".to_owned()],
        files: vec![update.file_path.clone()],
        depends_on: Vec::new(),
        kind: StoryWorkflowKind::Knowledge,
        revision: 1,
    };
    let body = json!({"story": story.id, "entries": update.entries.len(), "file_path": update.file_path,
        "action": update.action});
    let fact = TeamFact::ExpressQueued { story, update: Some(update), by: by.to_owned() };
    vec![mail::send_message_step(by, EXPRESS_CHANNEL, KNOWLEDGE_UPDATE_TOPIC, &body, None), fact.into_step()]
}

/// Queues a hot fix.
pub(super) fn queue_hot_fix(context: &TeamFlowContext<'_>, fix: Story, by: &str) -> Vec<FlowStep> {
    let story = Story { id: format!("fix-{}", context.state().express_count + 1), ..fix };
    let body = json!({"story": story.id, "title": story.title});
    let fact = TeamFact::ExpressQueued { story, update: None, by: by.to_owned() };
    vec![mail::send_message_step(by, EXPRESS_CHANNEL, HOT_FIX_TOPIC, &body, None), fact.into_step()]
}

/// Reads a hot fix from the arguments of a command or a tool.
///
/// # Errors
/// Fails with what is missing.
pub(super) fn read_hot_fix(arguments: &Value) -> Result<Story, String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let (title, description) = (text("title"), text("description"));
    let files: Vec<String> = match arguments.get("files") {
        Some(Value::Array(files)) => files.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(files)) => files.split(',').map(|file| file.trim().to_owned()).collect(),
        _ => Vec::new(),
    };
    if title.is_empty() || title.chars().count() > STORY_TITLE_CHARS_MAX {
        return Err(format!("`title` must have 1 to {STORY_TITLE_CHARS_MAX} characters"));
    }
    if description.chars().count() > STORY_TEXT_CHARS_MAX {
        return Err(format!("`description` has more than {STORY_TEXT_CHARS_MAX} characters"));
    }
    if files.is_empty() || files.len() > STORY_FILES_MAX {
        return Err(format!("`files` must list 1 to {STORY_FILES_MAX} files that the fix may touch"));
    }
    if let Some(problem) = files.iter().find_map(|file| super::path_pattern::pattern_problem(file)) {
        return Err(problem);
    }
    let acceptance = vec![format!("fixed: {title}")];
    let (kind, depends_on, id) = (StoryWorkflowKind::HotFix, Vec::new(), String::new());
    Ok(Story { id, title, description, acceptance, files, depends_on, kind, revision: 1 })
}

/// Reads a knowledge update from the arguments of a command.
///
/// # Errors
/// Fails with the reason if the file is not the knowledge file, or an entry is invalid.
pub(super) fn read_knowledge_update(
    context: &TeamFlowContext<'_>,
    arguments: &Value,
) -> Result<KnowledgeFileUpdate, String> {
    let own = &context.settings.knowledge_file;
    let file_path = arguments.get("file_path").and_then(Value::as_str).unwrap_or(own).to_owned();
    if file_path != *own {
        return Err(format!(
            "`file_path` is `{file_path}`, but only the knowledge file `{own}` can be written this way"
        ));
    }
    let action = match arguments.get("action").and_then(Value::as_str).unwrap_or("append") {
        "append" => ExistingKnowledgeNodePolicy::Append,
        "replace" => ExistingKnowledgeNodePolicy::Replace,
        other => {
            return Err(format!(
                "`action` is `{other}`; it must be one of {}",
                ExistingKnowledgeNodePolicy::NAMES.join(", ")
            ));
        }
    };
    let Some(listed) = arguments.get("entries").and_then(Value::as_array).filter(|entries| !entries.is_empty()) else {
        return Err("`entries` must be a list with at least one entry".to_owned());
    };
    let mut entries = Vec::new();
    for entry in listed {
        entries.push(parse_knowledge_entry(entry).map_err(|problems| problems.join("; "))?);
    }
    let refused = context.state().knowledge.clone().merge_nodes(&entries, action);
    match refused.first() {
        Some((id, problems)) => Err(format!("`{id}`: {}", problems.join("; "))),
        None => Ok(KnowledgeFileUpdate { entries, file_path, action }),
    }
}

/// Writes the knowledge file of a worktree, after its present content was read.
pub(super) fn write_knowledge_file(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    present: Option<&str>,
) -> Vec<FlowStep> {
    let Some(progress) = context.state().story_of(agent) else { return Vec::new() };
    let Some(update) = context.state().updates.get(&progress.story.id) else { return Vec::new() };
    let mut graph = match present.map(parse_knowledge_dot) {
        None => KnowledgeGraph::default(),
        Some(Ok(graph)) => graph,
        Some(Err(error)) => {
            let why = format!("`{}` is not valid and was left as it is: {error}", update.file_path);
            return super::coder::fail_attempt(agent, why, super::facts::TeamFailureKind::Environment);
        }
    };
    let refused = graph.merge_nodes(&update.entries, update.action);
    if let Some((id, problems)) = refused.first() {
        let why = format!("the entry `{id}` does not fit the file: {}", problems.join("; "));
        return super::coder::fail_attempt(agent, why, super::facts::TeamFailureKind::StoryInvalid);
    }
    let request = RepositoryToolRequest {
        path: Some(update.file_path.clone()),
        content: Some(write_knowledge_dot(&graph)),
        ..context.repository_request(agent)
    };
    let fact = TeamFact::KnowledgeFileWritten { agent: agent.clone(), nodes: graph.nodes.len() };
    vec![fact.into_step(), RepositoryTool::Write.into_step(Some(agent.clone()), &request)]
}

/// Returns true if the coder's work is an update of the knowledge file.
pub(super) fn is_knowledge_work(context: &TeamFlowContext<'_>, agent: &AgentName) -> bool {
    context.state().story_of(agent).is_some_and(|progress| progress.story.kind == StoryWorkflowKind::Knowledge)
}

/// Returns the first task of a story after its set-up.
pub(super) fn first_task(kind: StoryWorkflowKind) -> CoderTask {
    match kind {
        StoryWorkflowKind::Ordinary => CoderTask::Plan,
        StoryWorkflowKind::HotFix => CoderTask::Code,
        StoryWorkflowKind::Knowledge => CoderTask::WriteKnowledge,
    }
}

/// Adds an entry that an agent reported with `knowledge_add`. Returns the steps and the answer for the model.
pub(super) fn add_knowledge(
    context: &TeamFlowContext<'_>,
    agent: &AgentName,
    arguments: &Value,
) -> (Vec<FlowStep>, Result<String, String>) {
    let mut graph = context.state().knowledge.clone();
    let added = parse_knowledge_entry(arguments)
        .and_then(|node| graph.add_node(node.clone(), ExistingKnowledgeNodePolicy::Append).map(|()| node));
    match added {
        Ok(node) => {
            let story = context.state().assignment(agent).map(|assignment| assignment.story.clone());
            let answer = format!("`{}` was added to the knowledge graph", node.id);
            (vec![TeamFact::KnowledgeAdded { agent: agent.clone(), story, node }.into_step()], Ok(answer))
        }
        Err(problems) => {
            let answer = format!("the entry was refused: {}", problems.join("; "));
            (vec![TeamFact::KnowledgeRefused { agent: agent.clone(), problems }.into_step()], Err(answer))
        }
    }
}
