//! A team in a test: a session of the flow, and a stand-in for the host of the repository tools. Models are answered by
//! the test itself or by a function.

use std::collections::BTreeMap;

use segue_core::context::CallThread;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{CallOpened, Event};
use segue_core::ids::{AgentName, CallId, ToolRunId};
use segue_core::prompt::{ModelReply, ToolCall};
use segue_core::tool::ToolResult;
use segue_flows::team::TeamFlow;
use segue_flows::team::facts::TeamFact;
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolRequest, RepositoryToolResult};
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

pub(crate) const APPROVED: &str = r#"{"verdict": "APPROVED", "feedback": "fine"}"#;

/// The default diff of every story: its own file changes.
pub(crate) fn diff_of(path: &str) -> String {
    format!("diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,2 @@\n+one\n+two\n")
}

pub(crate) struct TestTeam {
    pub(crate) harness: SessionHarness,
    /// What each work item changes; by default a file named like the story.
    pub(crate) diffs: BTreeMap<String, String>,
    /// Results that are returned once instead of the usual ones, by tool and story.
    pub(crate) surprises: Vec<(RepositoryTool, String, ToolResult)>,
    pub(crate) knowledge_file: Option<String>,
    pub(crate) instructions: Option<String>,
    /// The commits of the integration branch, newest last.
    pub(crate) merged: Vec<String>,
    pub(crate) commits: u32,
}

pub(crate) fn spec() -> Value {
    json!({"title": "Tea timer", "goal": "People drink better tea.", "requirements": ["a timer"], "acceptance": ["it rings"]})
}

pub(crate) fn story_json(id: &str, depends_on: &[&str]) -> Value {
    json!({"id": id, "title": format!("Title of {id}"), "description": format!("secret-of-{id}"),
        "acceptance": ["works"], "files": [format!("{id}.txt")], "depends_on": depends_on})
}

impl TestTeam {
    pub(crate) fn open(settings: Value) -> Self {
        let harness = SessionHarness::open_with_settings(TeamFlow::new(), settings);
        let (diffs, surprises, merged) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { harness, diffs, surprises, knowledge_file: None, instructions: None, merged, commits: 0 }
    }

    /// Opens a team that has its stories, and whose coders have their worktrees.
    pub(crate) fn start(coders: u32, stories: &[Value]) -> Self {
        Self::start_with(json!({"spec": spec(), "coders": coders}), stories)
    }

    pub(crate) fn start_with(settings: Value, stories: &[Value]) -> Self {
        let mut team = Self::open(settings);
        team.begin(stories);
        team
    }

    /// Accepts the spec and answers the question for stories.
    pub(crate) fn begin(&mut self, stories: &[Value]) {
        self.harness.send_message("go");
        self.command("start", json!({}));
        self.finish_tools();
        self.answer_architect("pm", &json!({"stories": stories}).to_string());
        self.finish_tools();
    }

    pub(crate) fn command(&mut self, command: &str, arguments: Value) -> &mut Self {
        self.harness.run_command(OperatorCommand::Flow { command: command.to_owned(), arguments });
        self
    }

    pub(crate) fn refused_command(&mut self, command: &str, arguments: Value) -> String {
        let command = OperatorCommand::Flow { command: command.to_owned(), arguments };
        let refused = self.harness.try_input(SessionInput::Operator(command));
        refused.expect_err("the command cannot be run").to_string()
    }

    /// Ends every open repository tool, until none is open.
    pub(crate) fn finish_tools(&mut self) -> &mut Self {
        while let Some((run, result)) = self.next_tool_result() {
            self.harness.apply_input(SessionInput::ToolResult { run, result });
        }
        self
    }

    pub(crate) fn next_tool_result(&mut self) -> Option<(ToolRunId, ToolResult)> {
        let runs = self.harness.session().open_tool_runs.clone();
        runs.values().find_map(|run| {
            let tool = RepositoryTool::from_name(run.tool.as_str())?;
            let request: RepositoryToolRequest =
                serde_json::from_value(run.arguments.clone()).expect("the flow wrote them");
            Some((run.run, self.run_tool(tool, &request)))
        })
    }

    fn run_tool(&mut self, tool: RepositoryTool, request: &RepositoryToolRequest) -> ToolResult {
        let surprise = self.surprises.iter().position(|(of, story, _)| *of == tool && *story == request.story);
        if let Some(index) = surprise {
            return self.surprises.remove(index).2;
        }
        let head = self.merged.last().cloned().unwrap_or_else(|| "base".to_owned());
        let commit = request.commit.clone().unwrap_or_default();
        let diff =
            || self.diffs.get(&request.story).cloned().unwrap_or_else(|| diff_of(&format!("{}.txt", request.story)));
        let mut text = String::new();
        let result = match tool {
            RepositoryTool::Inspect => RepositoryToolResult {
                base: "base".to_owned(),
                branch: Some("main".to_owned()),
                integration: format!("segue/{}", request.spec),
                knowledge: self.knowledge_file.clone(),
                instructions: self.instructions.clone(),
                ..RepositoryToolResult::default()
            },
            RepositoryTool::Worktree => RepositoryToolResult { base: head, ..RepositoryToolResult::default() },
            RepositoryTool::Commit => {
                text = diff();
                self.commits += 1;
                let files =
                    segue_flows::team::diff::parse_diff(&text).files.into_iter().map(|file| file.path).collect();
                let diff_digest = segue_core::body::BodyId::hash_text(&text).to_string();
                RepositoryToolResult {
                    commit: format!("commit{}", self.commits),
                    files,
                    diff_digest,
                    ..RepositoryToolResult::default()
                }
            }
            RepositoryTool::Test => {
                RepositoryToolResult { commit, passed: Some(true), ..RepositoryToolResult::default() }
            }
            RepositoryTool::Rebase => {
                text = diff();
                let diff_digest = segue_core::body::BodyId::hash_text(&text).to_string();
                RepositoryToolResult { base: head, commit, diff_digest, ..RepositoryToolResult::default() }
            }
            RepositoryTool::Merge => {
                assert!(!self.merged.contains(&commit), "nothing is merged twice");
                self.merged.push(commit.clone());
                RepositoryToolResult { commit, ..RepositoryToolResult::default() }
            }
            RepositoryTool::Read => match &self.knowledge_file {
                Some(file) => {
                    text.clone_from(file);
                    RepositoryToolResult::default()
                }
                None => RepositoryToolResult { is_missing: true, ..RepositoryToolResult::default() },
            },
            RepositoryTool::Write => {
                self.knowledge_file.clone_from(&request.content);
                let path = request.path.clone().unwrap_or_default();
                self.diffs.insert(request.story.clone(), diff_of(&path));
                RepositoryToolResult::default()
            }
            RepositoryTool::Restore => RepositoryToolResult { commit, ..RepositoryToolResult::default() },
            RepositoryTool::Land | RepositoryTool::UndoLanding => {
                let (branch, before) = (request.branch.clone(), Some("before".to_owned()));
                RepositoryToolResult { branch, before, commit: head, ..RepositoryToolResult::default() }
            }
        };
        ToolResult { text, value: serde_json::to_value(result).ok(), ..ToolResult::default() }
    }

    /// Returns the open call of the architect about an agent.
    pub(crate) fn architect_call(&self, peer: &str) -> CallId {
        let is_wanted = |opened: &CallOpened| {
            opened.role.as_str().starts_with("architect") && opened.peer.as_ref().is_some_and(|of| *of == *peer)
        };
        let open = self.harness.session().open_calls.values().find(|open| is_wanted(&open.opened));
        open.unwrap_or_else(|| panic!("the architect is asked about {peer}:\n{}", self.describe())).opened.call
    }

    pub(crate) fn coder_call(&self, agent: &str) -> CallId {
        let is_wanted =
            |opened: &CallOpened| opened.role == *"coder" && opened.agent.as_ref().is_some_and(|of| *of == *agent);
        let open = self.harness.session().open_calls.values().find(|open| is_wanted(&open.opened));
        open.unwrap_or_else(|| panic!("{agent} is asked:\n{}", self.describe())).opened.call
    }

    pub(crate) fn answer(&mut self, call: CallId, reply: ModelReply) -> &mut Self {
        let attempt = self.harness.session().open_calls[&call].attempt;
        let input = SessionInput::Answer { call, attempt, reply, cost_microusd: Some(10), duration_ms: 1 };
        self.harness.apply_input(input);
        self
    }

    pub(crate) fn answer_architect(&mut self, peer: &str, text: &str) -> &mut Self {
        let call = self.architect_call(peer);
        self.answer(call, ModelReply { text: text.to_owned(), ..ModelReply::default() });
        self.finish_tools()
    }

    pub(crate) fn answer_coder(&mut self, agent: &str, text: &str) -> &mut Self {
        let call = self.coder_call(agent);
        self.answer(call, ModelReply { text: text.to_owned(), ..ModelReply::default() });
        self.finish_tools()
    }

    /// Answers with a call of a tool that the flow answers itself, or that the test must answer.
    pub(crate) fn answer_with_tool(&mut self, call: CallId, tool: &str, arguments: Value) -> &mut Self {
        let tool_calls = vec![ToolCall { id: format!("t{}", call.0), name: tool.into(), arguments }];
        self.answer(call, ModelReply { tool_calls, ..ModelReply::default() })
    }

    /// Ends a tool that a model called.
    pub(crate) fn end_model_tool(&mut self, tool: &str, text: &str) -> &mut Self {
        self.harness.finish_tool(tool, Ok(text));
        self
    }

    /// Brings a coder from its plan to the end of its story.
    pub(crate) fn finish_story(&mut self, agent: &str) -> &mut Self {
        self.answer_coder(agent, "the plan").answer_architect(agent, APPROVED);
        self.answer_coder(agent, "done").answer_architect(agent, APPROVED)
    }

    pub(crate) fn phase(&self, agent: &str) -> String {
        let phases = self.harness.session().phase_graphs.iter();
        let mut own = phases.filter(|(key, _)| key.to_string().ends_with(&format!(" of {agent}")));
        own.next().map_or_else(|| "WAITING".to_owned(), |(_, status)| status.state.current.to_string())
    }

    /// Returns the phases that an agent entered, in order.
    pub(crate) fn phases(&self, agent: &str) -> Vec<String> {
        let journal = self.harness.journal().iter();
        let entered = journal.filter_map(|recorded| match &recorded.event {
            Event::PhaseEntered(entered) if entered.graph_key.to_string().ends_with(&format!(" of {agent}")) => {
                Some(entered.transition.to.to_string())
            }
            _ => None,
        });
        entered.collect()
    }

    pub(crate) fn facts(&self) -> Vec<TeamFact> {
        self.harness.journal().iter().filter_map(|recorded| TeamFact::from_event(&recorded.event)).collect()
    }

    /// Returns the work item of a coder.
    pub(crate) fn work_of(&self, agent: &str) -> String {
        let work = self.harness.session().work_assignments.get(&AgentName::from(agent));
        work.map(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn story_of(&self, agent: &str) -> Option<String> {
        let work = self.harness.session().work_assignments.get(&AgentName::from(agent))?;
        Some(work.as_str().split('#').next().unwrap_or_default().to_owned())
    }

    /// Returns all calls of the architect, oldest first.
    pub(crate) fn architect_calls(&self) -> Vec<CallOpened> {
        let journal = self.harness.journal().iter();
        let calls = journal.filter_map(|recorded| match &recorded.event {
            Event::CallOpened(opened) if opened.role.as_str().starts_with("architect") => Some((**opened).clone()),
            _ => None,
        });
        calls.collect()
    }

    pub(crate) fn prompt(&self, call: CallId) -> String {
        self.harness.rebuild_prompt(call).to_string()
    }

    pub(crate) fn opened_thread(&self, call: CallId) -> bool {
        let opened = self.architect_calls().into_iter().find(|opened| opened.call == call);
        opened.is_some_and(|opened| matches!(opened.receipt.thread, CallThread::Opened { .. }))
    }

    /// Describes where everything is, for failures.
    pub(crate) fn describe(&self) -> String {
        let session = self.harness.session();
        let calls: Vec<String> = session
            .open_calls
            .values()
            .map(|open| format!("{} {:?} for {:?}", open.opened.role, open.opened.agent, open.opened.peer))
            .collect();
        let phases: Vec<String> =
            session.phase_graphs.iter().map(|(key, status)| format!("{key}: {}", status.state.current)).collect();
        let refused: Vec<String> = self
            .harness
            .journal()
            .iter()
            .filter_map(|recorded| match &recorded.event {
                Event::StepRefused { step, reason } => Some(format!("{step}: {reason}")),
                Event::PhaseTransitionRefused { graph_key, refusal } => Some(format!("{graph_key}: {refusal}")),
                _ => None,
            })
            .collect();
        format!("calls {calls:#?}\nphases {phases:#?}\nrefused {refused:#?}")
    }
}
