//! What an agent may choose as its next action: the schema of the choice, and how an answer is read.
//!
//! The names of the fields are in the order in which they should be chosen, because schemas are sent with sorted keys.

use std::collections::BTreeSet;

use segue_core::ids::AgentName;
use segue_core::prompt::ModelToolSpec;
use segue_core::signal::find_json_where;
use serde_json::{Map, Value, json};

use crate::limits::{PROJECT_LESSON_TITLE_CHARS_MAX, PROMPT_FILES_MAX};
use crate::mcp_tools::McpToolName;
use crate::project::definition::{CheckMoment, CompletionMode};
use crate::project::mcp_servers::check_mcp_arguments;
use crate::project::project_context::ProjectFlowContext;
use crate::project::state::ProjectState;
use crate::project::text::truncate_chars;
use crate::project::tools::{COMPLETE_TOOL, LEARN_TOOL, agent_tools};
use crate::workspace_tools::{FileChangeKind, WorkspaceTool};

/// The action with which an agent answers the user, in phases that are completed by an answer.
const ANSWER_ACTION: &str = "answer";
/// The value of `path` for a file that does not exist yet.
const NEW_PATH: &str = "new";

/// An action that an agent has chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AgentAction {
    Run {
        tool: String,
        arguments: Value,
    },
    /// A file is written. Its content follows.
    Write {
        path: String,
        exists: bool,
    },
    /// The user is answered.
    Answer,
}

/// The possible actions.
#[derive(Debug, Clone)]
pub(super) struct OfferedAgentActions {
    pub(super) actions: Vec<String>,
    /// The files that can be chosen.
    pub(super) paths: Vec<String>,
    /// Whether these are all files of the workspace.
    lists_all_files: bool,
    makes_plan: bool,
    verifies: bool,
    /// The tools of MCP servers among the actions, as their servers described them.
    pub(super) server_tools: Vec<ModelToolSpec>,
}

/// Returns the paths of the workspace's files that are known, those that changed first.
fn known_paths(state: &ProjectState) -> Vec<String> {
    let exists =
        |path: &String| state.changed_files.get(path).is_none_or(|change| change.kind != FileChangeKind::Deleted);
    let all = state.changed_files.keys().chain(&state.files).filter(|path| exists(path) && *path != NEW_PATH);
    let mut seen = BTreeSet::new();
    all.filter(|path| seen.insert(*path)).cloned().collect()
}

impl OfferedAgentActions {
    pub(super) fn new(context: &ProjectFlowContext<'_>, agent: &AgentName) -> Self {
        let (phase, state) = (context.phase(), context.state());
        let mut paths = known_paths(state);
        let lists_all_files = paths.len() <= PROMPT_FILES_MAX && state.files_total <= state.files.len() as u64;
        paths.truncate(PROMPT_FILES_MAX);
        let is_offered = |name: &str| match WorkspaceTool::from_name(name) {
            None => McpToolName::parse(name).is_none() || state.mcp.find(name).is_some(),
            Some(_) if !context.has_workspace() => false,
            // Whole files are written instead, and the files are shown without being asked for.
            Some(WorkspaceTool::EditFile) => false,
            Some(WorkspaceTool::ListFiles) => !lists_all_files,
            Some(WorkspaceTool::ReadFile | WorkspaceTool::DeleteFile | WorkspaceTool::MoveFile) => !paths.is_empty(),
            Some(_) => true,
        };
        let tools = agent_tools(context.definition, agent.as_str(), phase);
        let mut actions: Vec<String> = tools.into_iter().filter(|name| is_offered(name)).map(str::to_owned).collect();
        if phase.completion == CompletionMode::Answer {
            actions.push(ANSWER_ACTION.to_owned());
        }
        let verifies = phase.checks == CheckMoment::Before;
        let server_tools = actions.iter().filter_map(|name| state.mcp.find(name)).cloned().collect();
        Self { actions, paths, lists_all_files, makes_plan: phase.plan, verifies, server_tools }
    }

    /// Returns whether nothing can be done but to answer.
    pub(super) fn has_only_answer_action(&self) -> bool {
        self.actions == [ANSWER_ACTION]
    }

    fn offers(&self, tool: WorkspaceTool) -> bool {
        self.actions.iter().any(|action| action == tool.name())
    }

    fn offers_any(&self, tools: &[WorkspaceTool]) -> bool {
        tools.iter().any(|tool| self.offers(*tool))
    }

    /// Returns the schema of the choice.
    pub(super) fn choice_schema(&self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        let mut properties = Map::new();
        let mut add = |name: &str, schema: Value| properties.insert(name.to_owned(), schema);
        add("action", json!({"enum": self.actions}));
        if !self.server_tools.is_empty() {
            add("arguments", json!({"type": "object", "description": "for a tool of a server: its arguments"}));
        }
        if self.offers(WorkspaceTool::RunCommand) {
            add("command", text("for run_command: the program and its arguments"));
        }
        if self.offers(WorkspaceTool::ListFiles) {
            add("folder", text("for list_files: the folder"));
        }
        use WorkspaceTool::{DeleteFile, MoveFile, ReadFile, WriteFile};
        if self.offers_any(&[ReadFile, WriteFile, DeleteFile, MoveFile]) {
            let paths: Vec<&str> = self.paths.iter().map(String::as_str).chain([NEW_PATH]).collect();
            add("path", json!({"enum": paths, "description": "the file; `new` for one that is not listed"}));
            add("path_new", text("the path of a file that is not listed, or the new path for move_file"));
        }
        if self.offers(WorkspaceTool::SearchFiles) {
            add("pattern", text("for search_files: a regular expression"));
        }
        let object = |first: &str, second: &str| {
            let properties = json!({first: {"type": "string"}, second: {"type": "string"}});
            json!({"type": "array", "items": {"type": "object", "required": [first, second], "properties": properties}})
        };
        if self.actions.iter().any(|action| action == COMPLETE_TOOL) {
            if self.makes_plan {
                add("goal", text("for complete: what the plan achieves"));
                add("steps", object("title", "done_when"));
            }
            if self.verifies {
                add("issues", object("title", "steps_to_reproduce"));
            }
            add("summary", text("for complete: what was done and what the next agent must know"));
        }
        if self.actions.iter().any(|action| action == LEARN_TOOL) {
            add("title", text("for learn: the lesson in a few words"));
            add("lesson", text("for learn: what to do differently next time, and why"));
        }
        json!({"type": "object", "required": ["action"], "properties": properties})
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// Returns what is wrong, in words for the agent.
    pub(super) fn parse(&self, text: &str) -> Result<AgentAction, String> {
        let name_of = |value: &Value| {
            value.get("action").or_else(|| value.get("tool")).and_then(Value::as_str).map(str::to_owned)
        };
        let Some(answer) = find_json_where(text, |value| name_of(value).is_some()).value else {
            return Err("the answer is not a JSON object with `action`".to_owned());
        };
        let name = name_of(&answer).unwrap_or_default();
        if !self.actions.contains(&name) {
            let actions: Vec<String> = self.actions.iter().map(|action| format!("`{action}`")).collect();
            return Err(format!("`{name}` is not possible here; `action` must be one of {}", actions.join(", ")));
        }
        let run = |arguments: Value| Ok(AgentAction::Run { tool: name.clone(), arguments });
        match (name.as_str(), WorkspaceTool::from_name(&name)) {
            (ANSWER_ACTION, _) => Ok(AgentAction::Answer),
            (COMPLETE_TOOL, _) => run(self.completion_arguments(&answer)?),
            (LEARN_TOOL, _) => run(lesson_arguments(&answer)?),
            (_, Some(WorkspaceTool::WriteFile)) => {
                let path = self.path_to_write(&answer)?;
                Ok(AgentAction::Write { exists: self.paths.contains(&path), path })
            }
            (_, Some(WorkspaceTool::MoveFile)) => run(
                json!({"from": self.parse_existing_path(&answer)?, "to": relative_path(&required_text(&answer, "path_new")?)?}),
            ),
            (_, Some(WorkspaceTool::RunCommand)) => run(json!({"command": required_text(&answer, "command")?})),
            (_, Some(WorkspaceTool::SearchFiles)) => run(json!({"pattern": required_text(&answer, "pattern")?})),
            (_, Some(WorkspaceTool::ListFiles)) => run(match required_text(&answer, "folder") {
                Ok(folder) => json!({"folder": folder}),
                Err(_) => json!({}),
            }),
            _ => match self.server_tools.iter().find(|tool| tool.name == name.as_str()) {
                Some(tool) => run(server_tool_arguments(tool, &answer)?),
                None => run(json!({"path": self.parse_existing_path(&answer)?})),
            },
        }
    }

    fn completion_arguments(&self, answer: &Value) -> Result<Value, String> {
        let mut arguments = json!({"summary": required_text(answer, "summary")?});
        if self.makes_plan {
            if answer["steps"].as_array().is_none_or(Vec::is_empty) {
                return Err(
                    "`steps` is missing; list the steps of the plan, each with `title` and `done_when`".to_owned()
                );
            }
            arguments["plan"] = json!({"goal": answer["goal"], "steps": answer["steps"]});
        }
        if self.verifies && answer["issues"].is_array() {
            arguments["issues"] = answer["issues"].clone();
        }
        Ok(arguments)
    }

    /// Returns a path that exists, as far as is known.
    fn parse_existing_path(&self, answer: &Value) -> Result<String, String> {
        let path = required_text(answer, "path")?;
        if self.paths.contains(&path) {
            return Ok(path);
        }
        let unlisted = required_text(answer, "path_new").ok().filter(|_| path == NEW_PATH && !self.lists_all_files);
        match unlisted {
            Some(path) => relative_path(&path),
            None => Err(format!("there is no file `{path}`; `path` must be one of the listed files")),
        }
    }

    /// Returns the path of a file that is written. A model that is not held to the schema may name a new file directly.
    fn path_to_write(&self, answer: &Value) -> Result<String, String> {
        match required_text(answer, "path")?.as_str() {
            NEW_PATH => relative_path(&required_text(answer, "path_new")?),
            path if self.paths.iter().any(|known| known == path) => Ok(path.to_owned()),
            path => relative_path(path),
        }
    }
}

/// Returns the arguments for a tool of an MCP server.
fn server_tool_arguments(tool: &ModelToolSpec, answer: &Value) -> Result<Value, String> {
    let arguments = match answer.get("arguments") {
        // Small models write the object as a text.
        Some(Value::String(text)) => find_json_where(text, Value::is_object).value.unwrap_or_default(),
        Some(arguments) => arguments.clone(),
        None => json!({}),
    };
    check_mcp_arguments(tool, &arguments)?;
    Ok(arguments)
}

/// Returns the arguments of a lesson. Small models write it into the field of another action, or without a title.
fn lesson_arguments(answer: &Value) -> Result<Value, String> {
    let text = |name| required_text(answer, name);
    let lesson = text("lesson").or_else(|missing| text("summary").or_else(|_| text("title")).map_err(|_| missing))?;
    let title = text("title").unwrap_or_else(|_| truncate_chars(&lesson, PROJECT_LESSON_TITLE_CHARS_MAX));
    Ok(json!({"title": title, "lesson": lesson}))
}

fn required_text(answer: &Value, name: &str) -> Result<String, String> {
    let text = answer.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| format!("`{name}` is missing"))
}

/// Returns the path if it can lead to a file of the workspace. The host of the tools confines it, too.
fn relative_path(path: &str) -> Result<String, String> {
    let is_relative = !path.starts_with(['/', '~']) && !path.contains(['\\', '\0', '\n']);
    let is_inside = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if is_relative && is_inside {
        return Ok(path.to_owned());
    }
    Err(format!("`{path}` is not a path inside the workspace; write it like `folder/file.txt`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_answer_in_the_prompt_is_a_valid_action() {
        let prompt = include_str!("../../../prompts/project/action.md");
        let sample = prompt.lines().find_map(|line| line.strip_prefix("Example: ")).expect("the prompt has an example");
        let offer = OfferedAgentActions {
            actions: vec![WorkspaceTool::WriteFile.name().to_owned()],
            paths: Vec::new(),
            lists_all_files: true,
            makes_plan: false,
            verifies: false,
            server_tools: Vec::new(),
        };
        let expected = AgentAction::Write { path: "src/main.py".to_owned(), exists: false };
        assert_eq!(offer.parse(sample), Ok(expected));
    }

    #[test]
    fn lesson_without_a_title_or_in_another_field_is_understood() {
        let lesson = |answer: Value| lesson_arguments(&answer);
        let written = json!({"title": "tests first", "lesson": "Run the tests before changing a file."});
        assert_eq!(lesson(written.clone()), Ok(written));
        let text = "The check is check.sh.";
        for answer in [json!({"lesson": text}), json!({"summary": text}), json!({"title": text})] {
            assert_eq!(lesson(answer), Ok(json!({"title": text, "lesson": text})));
        }
        assert_eq!(lesson(json!({"summary": " "})), Err("`lesson` is missing".to_owned()));
    }
}
