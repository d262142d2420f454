//! A session of the project flow with a fake workspace, whose content is a number that rises with each change.

use segue_core::decide::{CLAIM_TOPIC, InboxSubmission, OperatorCommand, SessionInput, SubmittingSession};
use segue_core::event::{AskOutcome, Event, PhaseGraphKey, PhaseStateOwner};
use segue_core::ids::{AskId, SessionUid, SubmissionId, ToolRunId};
use segue_core::phase::PhaseTransition;
use segue_core::tool::ToolResult;
use segue_flows::project::ProjectFlow;
use segue_flows::project::facts::ProjectFact;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

/// A session under test.
pub(crate) struct Project {
    pub(crate) session: SessionHarness,
    /// The content of the workspace.
    pub(crate) content: u64,
    /// The checks of the workspace; none if empty.
    pub(crate) checks: Vec<&'static str>,
    /// Whether the checks pass.
    pub(crate) passes: bool,
    pub(crate) agents_md: Option<&'static str>,
    /// What failing checks print, and the name of a second file.
    pub(crate) foreign_text: Option<&'static str>,
    /// The number of times that the checks ran.
    pub(crate) check_runs: u32,
    /// The lessons that the workspace keeps, newest first.
    pub(crate) lessons: Vec<Value>,
    /// The session that works in the workspace; while there is one, the claim is not granted.
    pub(crate) holder: Option<&'static str>,
    /// What merging a copy leaves out.
    pub(crate) conflicts: Vec<Value>,
    /// Whether copies cannot be created.
    pub(crate) fails_copies: bool,
    /// Whether copies cannot be merged.
    pub(crate) fails_merges: bool,
    /// What MCP servers say about their tools.
    pub(crate) listing: Value,
}

pub(crate) fn phases_key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "phases".into(), owner: PhaseStateOwner::Session }
}

impl Project {
    pub(crate) fn open() -> Self {
        Self::open_with(json!({"workspace": "w"}))
    }

    pub(crate) fn open_with(settings: Value) -> Self {
        Self::open_flow(ProjectFlow::new(), settings)
    }

    pub(crate) fn open_flow(flow: ProjectFlow, settings: Value) -> Self {
        let session = SessionHarness::open_with_settings(flow, settings);
        let checks = vec!["make test"];
        Self {
            session,
            content: 1,
            checks,
            passes: true,
            agents_md: None,
            foreign_text: None,
            check_runs: 0,
            lessons: vec![],
            holder: None,
            conflicts: vec![],
            fails_copies: false,
            fails_merges: false,
            listing: json!({"servers": {}}),
        }
    }

    /// Sends a message, and lets the workspace answer.
    pub(crate) fn say(&mut self, text: &str) -> &mut Self {
        self.session.send_message(text);
        self.settle()
    }

    /// Answers the tools that the flow itself has started, and its questions to the workspace.
    pub(crate) fn settle(&mut self) -> &mut Self {
        loop {
            if self.answer_as_workspace() {
                continue;
            }
            let mut runs = self.session.session().open_tool_runs.values();
            let own = runs.find(|run| run.requested_by.is_none());
            let Some((run, tool, arguments)) = own.map(|run| (run.run, run.tool.to_string(), run.arguments.clone()))
            else {
                return self;
            };
            if self.fails_copies && tool == "copy_create" || self.fails_merges && tool == "copy_merge" {
                let result = ToolResult::failed("the disk is full");
                self.session.apply_input(SessionInput::ToolResult { run, result });
                continue;
            }
            let value = self.run_own_tool(&tool, &arguments);
            self.finish(run, value);
        }
    }

    /// Answers a question to the workspace, if there is one that can be answered.
    fn answer_as_workspace(&mut self) -> bool {
        let is_answered = |topic: &str| topic != CLAIM_TOPIC || self.holder.is_none();
        let mut asks = self.session.session().open_asks.values();
        let Some(sent) = asks.find(|sent| is_answered(&sent.topic)).cloned() else { return false };
        let body = match sent.topic.as_str() {
            "lessons" => json!({"lessons": self.lessons, "omitted": 0}),
            "lesson_add" => {
                let mut lesson = sent.body.clone();
                lesson["session"] = json!("test");
                lesson["at"] = json!(0);
                self.lessons.insert(0, lesson);
                json!({"is_new": true, "lessons": self.lessons.len()})
            }
            "claim_status" => json!({"holder": self.holder, "waiting": []}),
            CLAIM_TOPIC => json!({"name": "execute"}),
            other => panic!("a workspace has no topic `{other}`"),
        };
        self.reply_as_workspace(sent.ask, AskOutcome::Answered { body });
        true
    }

    /// Ends a question to the workspace.
    pub(crate) fn reply_as_workspace(&mut self, ask: AskId, reply: AskOutcome) {
        let to = self.session.session().open_asks[&ask].to.clone();
        let sender = Some(SubmittingSession { session: to, uid: SessionUid(7) });
        let content = Ok(InboxSubmission::Reply { ask, reply });
        self.session.apply_input(SessionInput::Submitted { id: SubmissionId(1), sender, content });
    }

    fn files(&self) -> Vec<Value> {
        let names = ["main.rs"].into_iter().chain(self.foreign_text);
        names.map(|name| json!({"path": name, "bytes": 3})).collect()
    }

    fn run_own_tool(&mut self, tool: &str, arguments: &Value) -> Value {
        let digest = self.content.to_string();
        match tool {
            "workspace_status" => json!({
                "workspace": "w", "content_digest": digest, "files": self.files(), "files_total": self.files().len(),
                "changes": [], "changes_total": 0, "checks": self.checks, "commands": [], "agents_md": self.agents_md,
            }),
            "mcp_tools_list" => self.listing.clone(),
            "copy_create" => json!({"copy": format!("{}-1", arguments["name"]), "checkpoint": digest}),
            "copy_merge" => {
                json!({"changes": [], "conflicts": self.conflicts, "content_digest": digest, "previous": digest,
                "copy_checkpoint": (!self.conflicts.is_empty()).then_some("saved-copy")})
            }
            "copy_remove" => json!({}),
            "checkpoint_create" => json!({"checkpoint": digest, "files": 1, "bytes": 3}),
            "run_checks" => {
                self.check_runs += 1;
                let confirmed = arguments["confirmed"].as_array().cloned().unwrap_or_default();
                let all: Vec<Value> = self.checks.iter().map(|check| json!(check)).chain(confirmed).collect();
                let code = if self.passes { 0 } else { 1 };
                let commands: Vec<Value> = all
                    .iter()
                    .map(|command| {
                        json!({"command": command, "end": {"kind": "exited", "code": code}, "duration_ms": 5,
                            "output_bytes": 4, "output_tail": self.foreign_text.unwrap_or("boom")})
                    })
                    .collect();
                json!({"content_digest": digest, "content_digest_after": digest, "passed": self.passes && !all.is_empty(),
                    "commands": commands, "changes": []})
            }
            "checkpoint_restore" => {
                let previous = digest;
                let checkpoint = arguments["checkpoint"].as_str().expect("it is named").to_owned();
                self.content = checkpoint.parse().expect("contents are numbers");
                json!({"checkpoint": checkpoint, "previous": previous, "changes": [
                    {"path": "main.rs", "kind": "modified"}]})
            }
            other => panic!("the flow does not run `{other}` itself"),
        }
    }

    pub(crate) fn finish(&mut self, run: ToolRunId, value: Value) -> &mut Self {
        let result = ToolResult { text: value.to_string(), value: Some(value), ..ToolResult::default() };
        self.session.apply_input(SessionInput::ToolResult { run, result });
        self
    }

    /// Answers the router's call.
    pub(crate) fn route(&mut self, phase: &str, agents: &[&str]) -> &mut Self {
        self.route_with(json!({"because": "it is next", "phase": phase, "who": agents}))
    }

    pub(crate) fn route_with(&mut self, answer: Value) -> &mut Self {
        self.route_text(&answer.to_string())
    }

    pub(crate) fn route_text(&mut self, answer: &str) -> &mut Self {
        self.session.answer_call("router", answer);
        self.settle()
    }

    /// Answers a call of a role in plain text.
    pub(crate) fn answer(&mut self, role: &str, text: &str) -> &mut Self {
        self.session.answer_call(role, text);
        self.settle()
    }

    /// Has a role call a tool of the workspace, which returns this value.
    pub(crate) fn use_tool(&mut self, role: &str, tool: &str, arguments: Value, value: Value) -> &mut Self {
        self.session.answer_with_tool_call(role, tool, arguments);
        let runs = self.session.session().open_tool_runs.values();
        let run = runs.filter(|run| run.requested_by.is_some()).map(|run| run.run).next().expect("it is running");
        self.finish(run, value);
        self.settle()
    }

    /// Has a role change a file.
    pub(crate) fn write(&mut self, role: &str) -> &mut Self {
        self.content += 1;
        let content = self.content.to_string();
        let value = json!({"changes": [{"path": "main.rs", "kind": "modified", "lines_added": 1, "lines_removed": 0}]});
        self.use_tool(role, "write_file", json!({"path": "main.rs", "content": content}), value)
    }

    pub(crate) fn complete(&mut self, role: &str, summary: &str) -> &mut Self {
        self.complete_with(role, json!({"summary": summary}))
    }

    pub(crate) fn complete_with(&mut self, role: &str, arguments: Value) -> &mut Self {
        self.session.answer_with_tool_call(role, "complete", arguments);
        self.settle()
    }

    pub(crate) fn command(&mut self, command: &str, arguments: Value) -> &mut Self {
        let command = OperatorCommand::Flow { command: command.to_owned(), arguments };
        self.session.run_command(command);
        self.settle()
    }

    pub(crate) fn phase(&self) -> String {
        self.session.session().phase_graphs[&phases_key()].state.current.to_string()
    }

    pub(crate) fn visit(&self) -> u32 {
        self.session.session().phase_graphs[&phases_key()].state.visit
    }

    pub(crate) fn open_gates(&self) -> Vec<String> {
        self.session.session().phase_graphs[&phases_key()].state.open_gates.iter().cloned().collect()
    }

    pub(crate) fn roles(&self) -> Vec<String> {
        self.session.open_call_roles()
    }

    pub(crate) fn facts(&self) -> Vec<ProjectFact> {
        self.session.journal().iter().filter_map(|recorded| ProjectFact::from_event(&recorded.event)).collect()
    }

    pub(crate) fn count_facts(&self, is_counted: impl Fn(&ProjectFact) -> bool) -> usize {
        self.facts().iter().filter(|fact| is_counted(fact)).count()
    }

    pub(crate) fn transitions(&self) -> Vec<PhaseTransition> {
        let entered = self.session.journal().iter().filter_map(|recorded| match &recorded.event {
            Event::PhaseEntered(entered) => Some(entered.transition.clone()),
            _ => None,
        });
        entered.collect()
    }

    pub(crate) fn refusals(&self) -> Vec<String> {
        let refused = self.session.journal().iter().filter_map(|recorded| match &recorded.event {
            Event::PhaseTransitionRefused { refusal, .. } => Some(refusal.to_string()),
            _ => None,
        });
        refused.collect()
    }

    /// The tools that the open call of a role is offered.
    pub(crate) fn offered_tools(&self, role: &str) -> Vec<String> {
        let mut tools: Vec<String> =
            self.session.prompt_for_role(role).tools.iter().map(|tool| tool.name.to_string()).collect();
        tools.sort();
        tools
    }

    pub(crate) fn prompt(&self, role: &str) -> String {
        self.session.prompt_lines(role).replace('⏎', "\n")
    }

    /// The schema of the router's open call: the phases and the agents.
    pub(crate) fn offered_routes(&self) -> (Vec<String>, Vec<String>) {
        let prompt = self.session.prompt_for_role("router");
        let segue_core::prompt::ModelOutputFormat::Json(schema) = &prompt.output_format else {
            panic!("the router answers in JSON")
        };
        let names = |value: &Value| {
            let names = value.as_array().expect("it is a list").iter();
            names.map(|name| name.as_str().expect("it is a name").to_owned()).collect()
        };
        (names(&schema["properties"]["phase"]["enum"]), names(&schema["properties"]["who"]["items"]["enum"]))
    }

    /// Opens a session in which the given phase has just been entered and its agents are working.
    pub(crate) fn in_phase(phase: &str) -> Self {
        let mut project = Self::open();
        project.walk_to(phase);
        project
    }

    /// Walks the usual path from a new message to a phase.
    pub(crate) fn walk_to(&mut self, phase: &str) -> &mut Self {
        self.say("build a tool");
        match phase {
            "chat" => return self.route("chat", &["project-manager"]),
            "brainstorm" => return self.route("brainstorm", &["project-manager"]),
            "plan" => return self.route("plan", &["planner"]),
            _ => self.route("execute", &["executor"]),
        };
        if phase == "execute" {
            return self;
        }
        self.write("executor").complete("executor", "wrote it").route("verification", &["executor"]);
        if phase == "verification" {
            return self;
        }
        self.complete("executor-verification", "it works").route("chores", &["executor"]);
        if phase == "chores" {
            return self;
        }
        self.complete("executor", "tidied up");
        if phase == "reflection" {
            return self;
        }
        assert_eq!(phase, "end", "there is no such phase");
        self.complete("executor", "reflected").route("end", &[])
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.session.session().closed_reason.is_some()
    }

    pub(crate) fn is_waiting_for_user(&self) -> bool {
        self.session.session().current_turn.is_none()
    }
}

/// A plan with one step.
pub(crate) fn plan() -> Value {
    json!({"summary": "planned", "plan": {"goal": "a tool", "steps": [{"title": "write it", "done_when": "it runs"}]}})
}
