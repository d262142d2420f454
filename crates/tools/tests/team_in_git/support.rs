//! A git repository of a user in a temporary folder, and a team that works in it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use segue_core::context::PromptReceipt;
use segue_core::event::{CallOpened, Event};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, SessionOptions, TurnReport, UserMessage};
use segue_flows::team::TeamFlow;
use segue_flows::team::facts::{ArchitectDecisionOnRequest, TeamFact};
use segue_models::{LanguageModel, ModelDescription, ModelRegistry, ModelRequest, RehearsalModel, ReplyChunkStream};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_tools::{CommandSupervisorProgram, WorkspaceConfig, WorkspaceRegistry, WorkspaceToolHost};
use serde_json::{Value, json};

/// The branch of the spec.
pub(crate) const BRANCH: &str = "segue/tea-timer";

/// A script that runs every test, and succeeds if there is none.
pub(crate) const RUN_TESTS: &str =
    "set -e\nfor test in tests/*.sh; do if [ -e \"$test\" ]; then sh -e \"$test\"; fi; done\n";

/// Runs git as the user does, and returns its output.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=User", "-c", "user.email=user@localhost"])
        .args(arguments)
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A repository with a commit, a stash, a staged change, an unstaged change and a new file.
pub(crate) struct UserRepository {
    folder: tempfile::TempDir,
}

impl UserRepository {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let repository = Self { folder };
        let checkout = repository.checkout();
        std::fs::create_dir(&checkout).expect("the folder is new");
        git(&checkout, &["init", "--quiet", "--initial-branch", "main"]);
        repository.commit("notes.txt", "first\n");
        for (path, content) in files {
            repository.commit(path, content);
        }
        repository.put("notes.txt", "stashed\n");
        git(&checkout, &["stash", "push", "--quiet"]);
        repository.put("staged.txt", "staged\n");
        git(&checkout, &["add", "staged.txt"]);
        repository.put("notes.txt", "not committed\n");
        repository.put("new.txt", "not tracked\n");
        repository
    }

    pub(crate) fn checkout(&self) -> PathBuf {
        self.folder.path().join("checkout")
    }

    pub(crate) fn state_folder(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Returns the workspace of the repository. Its checks are `sh test.sh`.
    pub(crate) fn workspace(&self) -> WorkspaceConfig {
        WorkspaceConfig {
            folder: self.checkout(),
            checks: vec!["sh test.sh".to_owned()],
            commands: vec!["sh".to_owned()],
            ..WorkspaceConfig::default()
        }
    }

    pub(crate) fn put(&self, path: &str, content: &str) {
        let path = self.checkout().join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be created");
        std::fs::write(path, content).expect("the file can be written");
    }

    pub(crate) fn commit(&self, path: &str, content: &str) {
        self.put(path, content);
        git(&self.checkout(), &["add", path]);
        git(&self.checkout(), &["commit", "--quiet", "--message", path, "--", path]);
    }

    /// Returns everything of the user that must not change: HEAD, branch, index, files, stash.
    pub(crate) fn user_state(&self) -> BTreeMap<String, String> {
        let checkout = self.checkout();
        let digest = |path: &Path| blake3::hash(&std::fs::read(path).expect("it is a file")).to_string();
        let mut state = BTreeMap::from([
            ("HEAD".to_owned(), git(&checkout, &["rev-parse", "HEAD"])),
            ("branch".to_owned(), git(&checkout, &["symbolic-ref", "HEAD"])),
            ("stash".to_owned(), git(&checkout, &["stash", "list", "--format=%H"])),
            ("main".to_owned(), git(&checkout, &["rev-parse", "main"])),
            ("index".to_owned(), digest(&checkout.join(".git/index"))),
        ]);
        for entry in std::fs::read_dir(&checkout).expect("the checkout exists") {
            let entry = entry.expect("it can be read");
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != ".git" {
                let is_file = entry.file_type().expect("it has a type").is_file();
                state.insert(
                    format!("file {name}"),
                    if is_file { digest(&entry.path()) } else { "a folder".to_owned() },
                );
            }
        }
        state
    }

    /// Returns the text of a file of the integration branch.
    pub(crate) fn file_of_branch(&self, path: &str) -> String {
        git(&self.checkout(), &["show", &format!("{BRANCH}:{path}")])
    }

    pub(crate) fn files_of_branch(&self) -> Vec<String> {
        let listed = git(&self.checkout(), &["ls-tree", "-r", "--name-only", BRANCH]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Runs a command on the integration branch, in a checkout of its own, and returns whether it succeeds.
    pub(crate) fn passes_on_branch(&self, command: &[&str]) -> bool {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = self.checkout();
        git(folder.path(), &["clone", "--quiet", "--branch", BRANCH, &source.to_string_lossy(), "branch"]);
        let run = Command::new(command[0]).args(&command[1..]).current_dir(folder.path().join("branch")).output();
        run.expect("the command starts").status.success()
    }
}

/// Changes what the rehearsal model answers.
type ReplyOverride = dyn Fn(&mut ModelRequest) + Send + Sync;

/// The rehearsal model, except for the calls in which a test wants something else.
struct DirectedModel {
    change: Box<ReplyOverride>,
}

impl fmt::Debug for DirectedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectedModel")
    }
}

impl LanguageModel for DirectedModel {
    fn stream(&self, mut request: ModelRequest) -> ReplyChunkStream {
        (self.change)(&mut request);
        RehearsalModel::instant().stream(request)
    }

    fn describe(&self) -> ModelDescription {
        RehearsalModel::instant().describe()
    }
}

/// A team that worked in a repository.
pub(crate) struct TeamRun {
    pub engine: Engine,
    pub session: SessionId,
    pub report: TurnReport,
    pub events: Vec<Event>,
}

/// Runs a whole spec. The checks of the workspace are `sh test.sh`.
pub(crate) async fn run_team(
    repository: &UserRepository,
    settings: Value,
    change: impl Fn(&mut ModelRequest) + Send + Sync + 'static,
) -> TeamRun {
    run_team_in(repository, repository.workspace(), settings, change).await
}

/// Like [`run_team`], in a workspace with other settings.
pub(crate) async fn run_team_in(
    repository: &UserRepository,
    config: WorkspaceConfig,
    settings: Value,
    change: impl Fn(&mut ModelRequest) + Send + Sync + 'static,
) -> TeamRun {
    let workspaces = WorkspaceRegistry::default().with_workspace("app", config);
    let supervisor = CommandSupervisorProgram::at_path(PathBuf::from(env!("CARGO_BIN_EXE_segue-supervisor")));
    let host = WorkspaceToolHost::new(&repository.state_folder(), workspaces, supervisor);
    let model: Arc<dyn LanguageModel> = Arc::new(DirectedModel { change: Box::new(change) });
    let store = Arc::new(InMemoryStore::open(&InMemoryStoreDisk::new()));
    let flows = vec![Arc::new(TeamFlow::new()) as _];
    let setup = EngineConfig::new(store, flows, ModelRegistry::from_single_model(model), "rehearsal");
    let tools = host.add_to(ToolRegistry::default());
    let engine = Engine::start(EngineConfig { tools, ..setup }).await.expect("the engine starts");
    let mut all = json!({"workspace": "app", "headless": true, "spec": {
        "title": "Tea timer", "goal": "People drink better tea.", "requirements": ["a timer"], "acceptance": ["it rings"],
    }});
    for (name, value) in settings.as_object().expect("settings are an object") {
        all[name] = value.clone();
    }
    let options = SessionOptions { settings: all, ..SessionOptions::default() };
    let session = engine.open_session(&"team".into(), options).await.expect("a session opens");
    let report = engine.send_and_wait(&session, UserMessage::from("go")).await.expect("it is answered");
    let events = read_events(&engine, &session).await;
    TeamRun { engine, session, report, events }
}

async fn read_events(engine: &Engine, session: &SessionId) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = engine.read_events(session, after, 500).await.expect("it can be read");
        let Some(last) = page.last() else { return all };
        after = last.seq;
        all.extend(page.into_iter().map(|recorded| recorded.event));
    }
}

impl TeamRun {
    pub(crate) fn facts(&self) -> impl Iterator<Item = TeamFact> {
        self.events.iter().filter_map(TeamFact::from_event)
    }

    /// Returns the architect's decisions, oldest first.
    pub(crate) fn reviews(&self) -> Vec<ArchitectDecisionOnRequest> {
        let given = self.facts().filter_map(|fact| match fact {
            TeamFact::ReviewGiven(given) => Some(*given),
            _ => None,
        });
        given.collect()
    }

    pub(crate) fn merged_stories(&self) -> Vec<String> {
        let merged = self.facts().filter_map(|fact| match fact {
            TeamFact::Merged { story, .. } => Some(story),
            _ => None,
        });
        merged.collect()
    }

    pub(crate) fn call(&self, id: CallId) -> &CallOpened {
        let opened = self.events.iter().find_map(|event| match event {
            Event::CallOpened(opened) if opened.call == id => Some(&**opened),
            _ => None,
        });
        opened.expect("the call was made")
    }

    pub(crate) fn receipt(&self, id: CallId) -> &PromptReceipt {
        &self.call(id).receipt
    }

    /// Returns the phases that an agent entered while it worked on a story.
    pub(crate) fn phases_of_story(&self, wanted: &str) -> Vec<String> {
        let mut phases = Vec::new();
        let mut worker = None;
        for event in &self.events {
            match TeamFact::from_event(event) {
                Some(TeamFact::Assigned(assignment)) if assignment.story == wanted => worker = Some(assignment.agent),
                Some(TeamFact::Unassigned { agent }) if worker.as_ref() == Some(&agent) => worker = None,
                _ => {}
            }
            if let (Some(agent), Event::PhaseEntered(entered)) = (&worker, event)
                && entered.graph_key.to_string().ends_with(&format!(" of {agent}"))
            {
                phases.push(entered.transition.to.to_string());
            }
        }
        phases
    }

    /// Describes what happened, for failures.
    pub(crate) fn describe(&self) -> String {
        let facts: Vec<String> = self.facts().map(|fact| format!("{fact:?}").chars().take(300).collect()).collect();
        format!("{:?}\n{}", self.report, facts.join("\n"))
    }
}
