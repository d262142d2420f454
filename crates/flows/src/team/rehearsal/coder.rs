//! The coders of the rehearsal: what they plan and write. A tool that failed, for instance because the process died while
//! it ran, is tried once more.

use segue_core::event::CallOpened;
use segue_core::flow::FlowRehearsalReply;
use segue_core::ids::AgentName;
use segue_core::prompt::Prompt;
use serde::Serialize;
use serde_json::{Value, json};

use super::tool_history::{RehearsalActionStatus, RehearsalToolHistory};
use super::{GUIDE_PATH, GUIDE_STORY, MARK, MOVE_STORY, RING_STORY, TIMER_STORY, call_tools};
use crate::team::facts::CoderTask;
use crate::team::graphs::PLANNING;
use crate::team::spec::KNOWLEDGE_ADD_TOOL;
use crate::team::team_context::TeamFlowContext;
use crate::template::fill_template;
use crate::workspace_tools::WorkspaceTool;

/// Something that a coder does, as a tool call.
struct RehearsedCoderAction {
    tool: &'static str,
    arguments: Value,
    /// The file that has to be read first if it exists already.
    path: Option<&'static str>,
}

pub(super) fn rehearse_coder(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    prompt: &Prompt,
) -> Option<FlowRehearsalReply> {
    let agent = call.agent.as_ref()?;
    let story = context.state().story_of(agent)?.story.id.clone();
    let history = RehearsalToolHistory::from_prompt(prompt);
    if context.phase(agent) == *PLANNING {
        return Some(rehearse_plan(context, call, agent, &story, &history));
    }
    let task = context.coder(agent).task;
    let actions = actions_for(&story, task.as_ref());
    let calls: Vec<(&str, Value)> = actions.iter().filter_map(|action| next_call(action, &history)).collect();
    if !calls.is_empty() {
        return Some(call_tools(call, calls));
    }
    Some(render_work_account(&story, task.as_ref(), !actions.is_empty()).into())
}

/// Plans. The coder of the guide looks around until its rounds are used up.
fn rehearse_plan(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    agent: &AgentName,
    story: &str,
    history: &RehearsalToolHistory,
) -> FlowRehearsalReply {
    #[derive(Serialize)]
    struct RehearsedPlanTemplateFields<'a> {
        story: &'a str,
        in_case: bool,
        mark: &'a str,
    }
    let coder = context.coder(agent);
    let is_asked_to_plan = matches!(coder.task, None | Some(CoderTask::Plan));
    let looks_around = story == GUIDE_STORY && coder.budget_reviews == 0;
    if is_asked_to_plan && (looks_around || history.is_empty()) {
        return call_tools(call, vec![(WorkspaceTool::ListFiles.name(), json!({}))]);
    }
    let in_case = match &coder.task {
        Some(CoderTask::RevisePlan { review }) => review.review.feedback.starts_with("Choose"),
        _ => false,
    };
    let arguments = RehearsedPlanTemplateFields { story, in_case, mark: MARK };
    fill_template(include_str!("../../../prompts/team/rehearsal/plan.md"), &arguments).into()
}

fn actions_for(story: &str, task: Option<&CoderTask>) -> Vec<RehearsedCoderAction> {
    match (story, task) {
        (GUIDE_STORY, Some(CoderTask::FixReview { .. })) => {
            let old = "Green tea steeps for 2 minutes, black tea for 4.";
            let new = include_str!("../../../prompts/team/rehearsal/guide_command.md").trim();
            vec![edit(GUIDE_PATH, old, new)]
        }
        (_, Some(CoderTask::FixReview { .. } | CoderTask::FixTests { .. } | CoderTask::FixProblems { .. })) => {
            Vec::new()
        }
        (TIMER_STORY, _) => {
            let known = json!({"id": "steeping-times", "type": "component", "level": "architecture",
                "description": "steep.sh prints for how many minutes a tea steeps; other scripts use it."});
            vec![
                write("tea/steep.sh", include_str!("../../../prompts/team/rehearsal/steep.sh")),
                write("tests/steep.sh", include_str!("../../../prompts/team/rehearsal/steep_test.sh")),
                write("test.sh", include_str!("../../../prompts/team/rehearsal/test.sh")),
                RehearsedCoderAction { tool: KNOWLEDGE_ADD_TOOL, arguments: json!({"knowledge": known}), path: None },
            ]
        }
        (MOVE_STORY, _) => {
            let arguments = json!({"from": "tea/steep.sh", "to": "bin/steep.sh"});
            vec![
                RehearsedCoderAction { tool: WorkspaceTool::MoveFile.name(), arguments, path: None },
                edit("tests/steep.sh", "tea/steep.sh", "bin/steep.sh"),
            ]
        }
        (RING_STORY, Some(CoderTask::RedoOnNewBase { .. })) => ring_actions("bin/ring.sh", "bin"),
        (RING_STORY, _) => ring_actions("tea/ring.sh", "tea"),
        (GUIDE_STORY, _) => vec![write(GUIDE_PATH, include_str!("../../../prompts/team/rehearsal/guide.md"))],
        _ => Vec::new(),
    }
}

fn ring_actions(path: &'static str, folder: &str) -> Vec<RehearsedCoderAction> {
    let template = include_str!("../../../prompts/team/rehearsal/ring_test.sh");
    let test = fill_template(template, &json!({"folder": folder}));
    vec![
        write(path, include_str!("../../../prompts/team/rehearsal/ring.sh")),
        write("tests/ring.sh", &format!("{test}\n")),
    ]
}

fn write(path: &'static str, content: &str) -> RehearsedCoderAction {
    let arguments = json!({"path": path, "content": content});
    RehearsedCoderAction { tool: WorkspaceTool::WriteFile.name(), arguments, path: Some(path) }
}

fn edit(path: &str, old: &str, new: &str) -> RehearsedCoderAction {
    let arguments = json!({"path": path, "old_text": old, "new_text": new, "replace_all": true});
    RehearsedCoderAction { tool: WorkspaceTool::EditFile.name(), arguments, path: None }
}

/// Returns the next tool call of an action, or `None` if it has ended.
fn next_call(action: &RehearsedCoderAction, history: &RehearsalToolHistory) -> Option<(&'static str, Value)> {
    let read = action.path.map(|path| (WorkspaceTool::ReadFile.name(), json!({"path": path})));
    match (history.action_status(action.tool, &action.arguments), read) {
        (RehearsalActionStatus::NotTried, _) => Some((action.tool, action.arguments.clone())),
        (RehearsalActionStatus::Failed(1), Some((tool, arguments))) => match history.action_status(tool, &arguments) {
            RehearsalActionStatus::NotTried => Some((tool, arguments)),
            RehearsalActionStatus::Done | RehearsalActionStatus::Failed(_) => {
                Some((action.tool, action.arguments.clone()))
            }
        },
        (RehearsalActionStatus::Failed(1), None) => Some((action.tool, action.arguments.clone())),
        (RehearsalActionStatus::Done | RehearsalActionStatus::Failed(_), _) => None,
    }
}

fn render_work_account(story: &str, task: Option<&CoderTask>, has_changes: bool) -> String {
    let task = match task {
        Some(CoderTask::FixReview { .. }) => "fix_review",
        Some(CoderTask::RedoOnNewBase { .. }) => "redo_on_new_base",
        Some(CoderTask::FixTests { .. }) => "fix_tests",
        Some(CoderTask::FixProblems { .. }) => "fix_problems",
        _ => "code",
    };
    let arguments = json!({"story": story, "task": task, "has_changes": has_changes, "mark": MARK});
    fill_template(include_str!("../../../prompts/team/rehearsal/account.md"), &arguments)
}
