//! The declared workspaces, and which of them a session may use.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_engine::tools::ToolInvocation;
use segue_flows::workspace_tools::{COPY_SETTING, WORKSPACE_SETTING};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::confined_folder::ConfinedFolder;
use crate::limits::COMMANDS_AT_ONCE_MAX;
use crate::state::WorkspaceStateDatabase;

/// The owner that stands for all owners.
const EVERY_OWNER: &str = "*";

/// A workspace, as the configuration declares it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceConfig {
    /// The folder with the files.
    pub folder: PathBuf,
    /// The commands that check the content.
    pub checks: Vec<String>,
    /// The commands that prepare a new git worktree, such as an installation of dependencies.
    pub set_up: Vec<String>,
    /// How many commands of the workspace and its worktrees run at the same time; the default if absent.
    pub commands_at_once_max: Option<NonZeroUsize>,
    /// The commands that agents may run: the first words of each, or `*` for all.
    pub commands: Vec<String>,
    /// The environment variables that commands receive from this process.
    pub environment: Vec<String>,
    /// The owners whose sessions may use the workspace, besides the operator's own; `*` for all owners.
    pub owners: Vec<String>,
    /// Files and folders outside of the workspace that commands may read.
    pub readable: Vec<PathBuf>,
    /// Files and folders outside of the workspace that commands may read and write.
    pub writable: Vec<PathBuf>,
    /// The label of the nodes that have the folder; all nodes if absent.
    pub placement: Option<String>,
    pub sandbox: CommandSandboxPolicy,
    pub network: CommandNetworkPolicy,
}

/// Whether commands run in a sandbox of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommandSandboxPolicy {
    /// If the kernel has one.
    #[default]
    Auto,
    /// Commands are refused if the kernel has none.
    Required,
    Off,
}

/// Whether commands may open network connections. Needs a sandbox of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommandNetworkPolicy {
    #[default]
    Allowed,
    Denied,
}

/// All declared workspaces, by name.
#[derive(Debug, Clone, Default)]
pub struct WorkspaceRegistry {
    by_name: BTreeMap<String, Arc<RegisteredWorkspace>>,
}

#[derive(Debug)]
struct RegisteredWorkspace {
    config: WorkspaceConfig,
    /// Held while files change, so that a check and the change that follows are one step.
    changes: Arc<Mutex<()>>,
    /// Permits to run a command.
    commands: Arc<Semaphore>,
}

impl WorkspaceRegistry {
    /// Adds a workspace, and replaces one of the same name. Workspaces with the same folder share the limit on commands
    /// of the first one.
    #[must_use]
    pub fn with_workspace(mut self, name: impl Into<String>, config: WorkspaceConfig) -> Self {
        let other = self.by_name.values().find(|other| other.config.folder == config.folder);
        let commands = match other {
            Some(other) => other.commands.clone(),
            None => Arc::new(Semaphore::new(config.concurrent_command_limit().min(Semaphore::MAX_PERMITS))),
        };
        self.by_name.insert(name.into(), Arc::new(RegisteredWorkspace { config, changes: Arc::default(), commands }));
        self
    }

    /// Returns all workspaces in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &WorkspaceConfig)> {
        self.by_name.iter().map(|(name, declared)| (name.as_str(), &declared.config))
    }

    /// Opens the workspace of a session, or its copy.
    pub(crate) fn open_for(
        &self,
        request: &ToolInvocation,
        state: &WorkspaceStateDatabase,
    ) -> Result<OpenWorkspace, String> {
        let setting = |name: &str| request.settings.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
        let Some(name) = setting(WORKSPACE_SETTING) else {
            return Err(format!("the session has no workspace; start it with the setting `{WORKSPACE_SETTING}`"));
        };
        let owner = request.owner();
        // To another owner, a workspace that exists looks like one that does not.
        let declared = self.by_name.get(name).filter(|declared| declared.config.allows_owner(owner));
        let Some(declared) = declared else {
            let known: Vec<&str> =
                self.iter().filter(|(_, config)| config.allows_owner(owner)).map(|(name, _)| name).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there is {}", known.join(", ")) };
            return Err(format!("there is no workspace `{name}`; {known} (see `[workspaces]` in segue.toml)"));
        };
        let (folder, copy) = match setting(COPY_SETTING) {
            None => (declared.config.folder.clone(), None),
            Some(copy) => {
                let found = state.find_copy(name, owner.unwrap_or_default(), copy)?;
                let found = found.ok_or_else(|| format!("the workspace `{name}` has no copy `{copy}`"))?;
                (copy_folder(state, name, &found.name), Some(found.name))
            }
        };
        let root = ConfinedFolder::open(&folder)
            .map_err(|error| format!("the folder of the workspace `{name}` cannot be opened: {error}"))?;
        Ok(OpenWorkspace {
            name: name.to_owned(),
            owner: owner.unwrap_or_default().to_owned(),
            copy,
            root: Arc::new(root),
            config: declared.config.clone(),
            changes: declared.changes.clone(),
            commands: declared.commands.clone(),
        })
    }
}

impl WorkspaceConfig {
    /// Returns how many commands run at the same time.
    fn concurrent_command_limit(&self) -> usize {
        self.commands_at_once_max.map_or(COMMANDS_AT_ONCE_MAX, NonZeroUsize::get)
    }

    fn allows_owner(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| self.owners.iter().any(|allowed| allowed == owner || allowed == EVERY_OWNER))
    }
}

/// Returns the folder of a copy.
pub(crate) fn copy_folder(state: &WorkspaceStateDatabase, workspace: &str, copy: &str) -> PathBuf {
    state.folder().join("copies").join(workspace).join(copy)
}

/// The workspace of a run.
#[derive(Debug, Clone)]
pub(crate) struct OpenWorkspace {
    pub name: String,
    /// The owner of the session; empty for the operator.
    pub owner: String,
    pub copy: Option<String>,
    pub root: Arc<ConfinedFolder>,
    pub config: WorkspaceConfig,
    changes: Arc<Mutex<()>>,
    commands: Arc<Semaphore>,
}

impl OpenWorkspace {
    /// Waits until fewer commands than allowed run in the workspace, its copies and its worktrees.
    ///
    /// # Errors
    /// Fails if others run for all of this time.
    pub(crate) async fn command_permit(&self, wait_max: Duration) -> Result<SemaphorePermit<'_>, String> {
        match tokio::time::timeout(wait_max, self.commands.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(format!(
                "other commands of the workspace `{}` ran the whole time; at most {} run at once",
                self.name,
                self.config.concurrent_command_limit()
            )),
        }
    }

    /// Runs work during which no other tool of this process changes files of the workspace.
    pub(crate) fn with_write_lock<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        work()
    }

    /// Returns the same workspace with the folder of a copy.
    pub(crate) fn with_copy(self, name: &str, root: ConfinedFolder) -> Self {
        Self { copy: Some(name.to_owned()), root: Arc::new(root), ..self }
    }

    /// Returns the same workspace with the folder of a git worktree.
    pub(crate) fn with_worktree(self, folder: &std::path::Path) -> Result<Self, String> {
        let root = ConfinedFolder::open(folder).map_err(|error| format!("the worktree cannot be opened: {error}"))?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(self.with_copy(&format!("worktree-{name}"), root))
    }

    /// Returns the name of the workspace and of the copy, by which reads are remembered.
    pub(crate) fn name_with_copy(&self) -> String {
        match &self.copy {
            None => self.name.clone(),
            Some(copy) => format!("{}/{copy}", self.name),
        }
    }
}
