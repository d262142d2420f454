//! The replies of the rehearsal model, so that a whole project can be tried without a real model. It writes a small
//! command-line tool with a mistake, so that the checks fail once, corrects it, tidies up and reflects. It depends only on
//! what phases do, not on their names, so it also plays the flows of users. No real model is shown any of this.

use segue_core::event::CallOpened;
use segue_core::flow::FlowRehearsalReply;
use segue_core::ids::{AgentName, PhaseName};
use segue_core::prompt::ToolCall;
use serde_json::{Value, json};

use super::definition::{CheckMoment, CompletionMode, PhaseDefinition, PhaseKindDefinition};
use super::project_context::ProjectFlowContext;
use super::routing::{NextPhaseOption, offered_options};
use super::spec::is_talk_phase;
use super::tools::{COMPLETE_TOOL, LEARN_TOOL, ROUTER_ROLE, phase_tools};
use crate::template::fill_template;
use crate::workspace_tools::WorkspaceTool;

/// Words that ask for work.
const ACTION_WORDS: [&str; 12] =
    ["build", "make", "write", "create", "add", "fix", "implement", "change", "remove", "refactor", "do", "go"];
/// Words that ask for a plan.
const PLAN_WORDS: [&str; 4] = ["plan", "design", "architecture", "redesign"];
/// Words that ask for ideas.
const IDEA_WORDS: [&str; 4] = ["idea", "ideas", "brainstorm", "imagine"];
/// Words that ask to stop.
const END_WORDS: [&str; 3] = ["bye", "stop", "enough"];

/// The files of the tool that the rehearsal model writes.
const TOOL_PATH: &str = "greet.sh";
const TEST_PATH: &str = "test.sh";
const README_PATH: &str = "README.md";
/// What it changes in a tool that is already there.
const OLD_COMMENT: &str = "whose name is the first argument.";
const NEW_COMMENT: &str = "whose name is the first argument, or else the world.";

/// Returns the rehearsal model's answer to a call. The model itself fills in `{{mark}}`.
pub(super) fn rehearse_reply(context: &ProjectFlowContext<'_>, call: &CallOpened) -> Option<FlowRehearsalReply> {
    if call.role == *ROUTER_ROLE {
        return Some(rehearse_routing(context).to_string().into());
    }
    let agent = call.agent.as_ref()?;
    let rehearsal = ProjectRehearsal { context, agent, phase: context.phase(), call };
    Some(rehearsal.reply())
}

/// Chooses a phase like a sensible router: action on request, back to work after a failed check, and otherwise onwards.
fn rehearse_routing(context: &ProjectFlowContext<'_>) -> Value {
    let options = offered_options(context);
    let current = context.phase_name();
    let words: Vec<String> = context
        .user_text()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let says = |any: &[&str]| words.iter().any(|word| any.contains(&word.as_str()));
    let find = |is_wanted: &dyn Fn(&PhaseDefinition) -> bool| {
        options.iter().find(|option| context.definition.find_phase(option.phase.as_str()).is_some_and(is_wanted))
    };
    let work = find(&|phase| phase.changes_required);
    let ends = find(&|phase| phase.kind != PhaseKindDefinition::Work);
    let onwards = find(&|phase| phase.name != current.as_str() && !is_talk_phase(phase) && !phase.changes_required);
    let talk = find(&|phase| phase.name == current.as_str() && is_talk_phase(phase));
    let failed = context.state().verdict.as_ref().is_some_and(|verdict| !verdict.passed);
    let chosen = if is_talk_phase(context.phase()) {
        let wanted = if says(&END_WORDS) {
            ends
        } else if says(&PLAN_WORDS) {
            find(&|phase| phase.plan)
        } else if says(&IDEA_WORDS) {
            find(&|phase| is_talk_phase(phase) && phase.name != current.as_str())
        } else if says(&ACTION_WORDS) {
            work.or(onwards)
        } else {
            None
        };
        wanted.or(talk)
    } else if failed && work.is_some() {
        work
    } else {
        onwards.or(ends)
    };
    let first = NextPhaseOption { phase: current, agents: Vec::new(), all_agents: true, ends: false };
    let chosen = chosen.or(options.first()).unwrap_or(&first);
    let agents: Vec<&AgentName> = chosen.agents.iter().take(1).collect();
    json!({
        "phase": chosen.phase,
        "who": if chosen.all_agents { chosen.agents.iter().collect() } else { agents },
        "because": routing_reason(&chosen.phase, failed),
        "user_words": words.first(),
    })
}

fn routing_reason(phase: &PhaseName, failed: bool) -> String {
    if failed { format!("a check failed, so `{phase}` comes next") } else { format!("`{phase}` comes next") }
}

struct ProjectRehearsal<'a> {
    context: &'a ProjectFlowContext<'a>,
    agent: &'a AgentName,
    phase: &'a PhaseDefinition,
    call: &'a CallOpened,
}

impl ProjectRehearsal<'_> {
    fn reply(&self) -> FlowRehearsalReply {
        match self.phase.completion {
            CompletionMode::Answer => self.rehearse_talk(),
            CompletionMode::Reflection => self.rehearse_reflection(),
            CompletionMode::Complete if self.phase.plan => self.rehearse_plan(),
            CompletionMode::Complete if self.phase.changes_required => self.rehearse_execution(),
            CompletionMode::Complete if self.phase.checks == CheckMoment::Before => self.rehearse_verification(),
            CompletionMode::Complete if self.phase.checks == CheckMoment::After => self.rehearse_documentation(),
            CompletionMode::Complete => self.rehearse_completion("looked at the request", json!({})),
        }
    }

    fn may_use(&self, tool: WorkspaceTool) -> bool {
        self.context.has_workspace() && phase_tools(self.phase).contains(&tool.name())
    }

    fn last_tool(&self) -> Option<String> {
        self.context.state().current_work(self.agent).last_tool_call.map(|call| call.tool)
    }

    fn call_tools(&self, calls: Vec<(&str, Value)>) -> FlowRehearsalReply {
        let calls = calls.into_iter().enumerate().map(|(index, (tool, arguments))| ToolCall {
            id: format!("rehearsal-{}-{index}", self.call.call.0),
            name: tool.into(),
            arguments,
        });
        FlowRehearsalReply { text: String::new(), tool_calls: calls.collect() }
    }

    fn rehearse_completion(&self, summary: &str, more: Value) -> FlowRehearsalReply {
        let mut arguments = more;
        arguments["summary"] = json!(format!("{summary} (rehearsal)"));
        self.call_tools(vec![(COMPLETE_TOOL, arguments)])
    }

    fn rehearse_talk(&self) -> FlowRehearsalReply {
        let arguments = json!({"agent": self.context.display_name(self.agent), "mark": "{{mark}}"});
        fill_template(include_str!("../../prompts/project/rehearsal/talk.md"), &arguments).into()
    }

    fn rehearse_plan(&self) -> FlowRehearsalReply {
        if self.may_use(WorkspaceTool::ListFiles) && self.last_tool().is_none() {
            return self.call_tools(vec![(WorkspaceTool::ListFiles.name(), json!({}))]);
        }
        let steps = json!([
            {"title": "write the tool", "done_when": "the command prints a greeting"},
            {"title": "write a test", "done_when": "the test passes"},
        ]);
        self.rehearse_completion(
            "made a plan",
            json!({"plan": {"goal": "a small command-line tool that greets", "steps": steps}}),
        )
    }

    /// Writes a tool with a mistake and a test that finds it; after a failed check, corrects the mistake.
    fn rehearse_execution(&self) -> FlowRehearsalReply {
        if !self.may_use(WorkspaceTool::WriteFile) {
            return self.rehearse_completion("there is no workspace to write in", json!({}));
        }
        let write =
            |path: &str, content: &str| (WorkspaceTool::WriteFile.name(), json!({"path": path, "content": content}));
        let state = self.context.state();
        let is_second_attempt = state.verdict.as_ref().is_some_and(|verdict| !verdict.passed);
        let has_changed = state.current_work(self.agent).changed;
        if state.files.iter().any(|file| file == TOOL_PATH) && !is_second_attempt {
            return self.rehearse_tool_extension(has_changed);
        }
        match (is_second_attempt, has_changed, self.last_tool().as_deref()) {
            (_, true, _) if is_second_attempt => self.rehearse_completion("corrected the greeting", json!({})),
            (_, true, _) => self.rehearse_completion("wrote the tool and its test", json!({})),
            (true, false, None) => self.call_tools(vec![(WorkspaceTool::ReadFile.name(), json!({"path": TOOL_PATH}))]),
            (true, false, Some(_)) => {
                self.call_tools(vec![write(TOOL_PATH, include_str!("../../prompts/project/rehearsal/greet.sh"))])
            }
            (false, false, None) => self.call_tools(vec![
                write(TOOL_PATH, include_str!("../../prompts/project/rehearsal/greet_broken.sh")),
                write(TEST_PATH, include_str!("../../prompts/project/rehearsal/test.sh")),
            ]),
            (false, false, Some(_)) => self.rehearse_completion("could not write the files", json!({})),
        }
    }

    /// Changes the tool of an earlier session.
    fn rehearse_tool_extension(&self, has_changed: bool) -> FlowRehearsalReply {
        match (has_changed, self.last_tool()) {
            (true, _) => self.rehearse_completion("described the tool better", json!({})),
            (false, None) => {
                let arguments = json!({"path": TOOL_PATH, "old_text": OLD_COMMENT, "new_text": NEW_COMMENT});
                self.call_tools(vec![(WorkspaceTool::EditFile.name(), arguments)])
            }
            (false, Some(_)) => {
                self.rehearse_completion("the tool is already there, and nothing has to change", json!({}))
            }
        }
    }

    fn rehearse_verification(&self) -> FlowRehearsalReply {
        if self.may_use(WorkspaceTool::ReadFile) && self.last_tool().is_none() {
            return self.call_tools(vec![(WorkspaceTool::ReadFile.name(), json!({"path": TOOL_PATH}))]);
        }
        self.rehearse_completion("looked at the result", json!({"issues": []}))
    }

    fn rehearse_documentation(&self) -> FlowRehearsalReply {
        let is_documented = self.context.state().files.iter().any(|file| file == README_PATH);
        if self.may_use(WorkspaceTool::WriteFile) && self.last_tool().is_none() && !is_documented {
            let content = include_str!("../../prompts/project/rehearsal/readme.md");
            let arguments = json!({"path": README_PATH, "content": content});
            return self.call_tools(vec![(WorkspaceTool::WriteFile.name(), arguments)]);
        }
        self.rehearse_completion("documented the tool", json!({}))
    }

    fn rehearse_reflection(&self) -> FlowRehearsalReply {
        let knows_lesson = self.context.state().lessons.get(self.agent).is_some_and(|lessons| !lessons.is_empty());
        if self.last_tool().is_none() && !knows_lesson {
            let lesson = json!({
                "title": "run the test after each change",
                "lesson": "the first greeting lacked a comma, and only the test showed it",
            });
            return self.call_tools(vec![(LEARN_TOOL, lesson)]);
        }
        self.rehearse_completion(if self.last_tool().is_some() { "reflected" } else { "no new lesson" }, json!({}))
    }
}
