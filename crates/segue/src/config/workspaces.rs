//! The `[workspaces]` table: the folders in which agents work, and what they may run there.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use segue_core::event::SessionOpened;
use segue_engine::SessionPlacement;
use segue_flows::workspace_tools::WORKSPACE_SETTING;
use segue_tools::{CommandNetworkPolicy, CommandSandboxPolicy, WorkspaceConfig, WorkspaceRegistry};

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ConfigValueOrigin};
use crate::limits::WORKSPACE_NAME_CHARS_MAX;

pub(super) const WORKSPACE_KEYS: [&str; 12] = [
    "folder",
    "checks",
    "set_up",
    "commands_at_once_max",
    "commands",
    "environment",
    "owners",
    "placement",
    "readable",
    "writable",
    "sandbox",
    "network",
];

const SANDBOX_NAMES: [(&str, CommandSandboxPolicy); 3] = [
    ("auto", CommandSandboxPolicy::Auto),
    ("required", CommandSandboxPolicy::Required),
    ("off", CommandSandboxPolicy::Off),
];

/// Reads `[workspaces]`.
pub(super) fn read_workspaces(
    workspaces: &ConfigTable<'_>,
    file: &Path,
    config: &mut Config,
) -> Result<(), ConfigError> {
    for named in workspaces.entries() {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if named.name.len() > WORKSPACE_NAME_CHARS_MAX || !named.name.chars().all(is_allowed) || named.name.is_empty() {
            let message = format!(
                "`workspaces.{}`: a name has 1 to {WORKSPACE_NAME_CHARS_MAX} lower-case letters, digits, `-` and `_`",
                named.name
            );
            return Err(workspaces.error_at(named.offset, message));
        }
        let table = workspaces.entry_table(&named)?.deny_unknown_keys(&WORKSPACE_KEYS)?;
        let Some(folder) = table.string("folder")? else {
            return Err(table.table_error(format!("`workspaces.{}` needs a `folder`", named.name)));
        };
        let strings = |key: &str| -> Result<Vec<String>, ConfigError> {
            Ok(table.string_list(key)?.into_iter().map(|item| item.value).collect())
        };
        let paths = |key: &str| -> Result<Vec<PathBuf>, ConfigError> {
            Ok(strings(key)?.iter().map(|path| resolve_user_path(file, path)).collect())
        };
        let network = match table.boolean("network")? {
            Some(ConfigValue { value: false, .. }) => CommandNetworkPolicy::Denied,
            Some(ConfigValue { value: true, .. }) | None => CommandNetworkPolicy::Allowed,
        };
        let value = WorkspaceConfig {
            folder: resolve_user_path(file, &folder.value),
            checks: strings("checks")?,
            set_up: strings("set_up")?,
            commands_at_once_max: table
                .integer("commands_at_once_max", 1)?
                .and_then(|most: ConfigValue<usize>| NonZeroUsize::new(most.value)),
            commands: strings("commands")?,
            environment: strings("environment")?,
            owners: strings("owners")?,
            placement: table.string("placement")?.map(|label| label.value),
            readable: paths("readable")?,
            writable: paths("writable")?,
            sandbox: table.choice("sandbox", &SANDBOX_NAMES)?.map(|sandbox| sandbox.value).unwrap_or_default(),
            network,
        };
        config.workspaces.insert(named.name.clone(), ConfigValue { value, origin: folder.origin });
    }
    Ok(())
}

/// Returns an absolute path. A path that begins with `~/` is in the user's home folder, others are relative to the configuration.
fn resolve_user_path(file: &Path, path: &str) -> PathBuf {
    let resolved = match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => super::parser::resolve_relative_path(file, path),
    };
    // Without a current folder the path stays as it is, and opening it reports the problem.
    std::path::absolute(&resolved).unwrap_or(resolved)
}

/// Keeps sessions from nodes that do not have the folder of their workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionPlacementByWorkspace {
    /// The workspaces whose folders are on other nodes, with the labels of those.
    elsewhere: BTreeMap<String, String>,
}

impl SessionPlacement for SessionPlacementByWorkspace {
    fn describe_permitted_holders(&self, opened: &SessionOpened) -> Option<String> {
        let label = self.elsewhere.get(opened.settings.get(WORKSPACE_SETTING)?.as_str()?)?;
        Some(format!("a node with the placement `{label}`"))
    }
}

impl Config {
    /// Returns the workspaces for the host of their tools.
    pub(crate) fn workspace_registry(&self) -> WorkspaceRegistry {
        let named = self.workspaces.iter();
        named.fold(WorkspaceRegistry::default(), |registry, (name, workspace)| {
            registry.with_workspace(name, workspace.value.clone())
        })
    }

    /// Returns which sessions a node with these labels may hold; `None` if it may hold all.
    pub(crate) fn session_placement_for_labels(&self, labels: &[String]) -> Option<SessionPlacementByWorkspace> {
        let labelled = self.workspaces.iter().filter_map(|(name, workspace)| {
            let label = workspace.value.placement.clone()?;
            Some((name.clone(), label)).filter(|(_, label)| !labels.contains(label))
        });
        let elsewhere: BTreeMap<String, String> = labelled.collect();
        (!elsewhere.is_empty()).then_some(SessionPlacementByWorkspace { elsewhere })
    }

    /// Returns the workspaces as rows for `segue config`.
    pub(super) fn workspace_rows(&self) -> Vec<(String, String, ConfigValueOrigin)> {
        let mut rows = Vec::new();
        for (name, ConfigValue { value, origin }) in &self.workspaces {
            let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            let sandbox =
                SANDBOX_NAMES.iter().find(|(_, policy)| *policy == value.sandbox).map_or("auto", |(name, _)| name);
            let lists = [
                ("checks", value.checks.clone()),
                ("set_up", value.set_up.clone()),
                ("commands", value.commands.clone()),
                ("environment", value.environment.clone()),
                ("owners", value.owners.clone()),
                ("readable", paths(&value.readable)),
                ("writable", paths(&value.writable)),
            ];
            let mut add = |key: &str, value: String| rows.push((format!("workspaces.{name}.{key}"), value, *origin));
            add("folder", value.folder.display().to_string());
            for (key, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
                add(key, items.join(", "));
            }
            if let Some(most) = value.commands_at_once_max {
                add("commands_at_once_max", most.to_string());
            }
            if let Some(label) = &value.placement {
                add("placement", label.clone());
            }
            add("sandbox", sandbox.to_owned());
            add("network", (value.network == CommandNetworkPolicy::Allowed).to_string());
        }
        rows
    }
}

/// Returns the folder for checkpoints and copies, next to a store.
pub(crate) fn workspace_state_folder(store: &Path) -> PathBuf {
    let stem = store.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    store.with_file_name(format!("{stem}-workspaces"))
}
