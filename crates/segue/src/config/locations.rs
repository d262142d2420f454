//! The default locations of the configuration file and the store.

use std::path::{Path, PathBuf};

use super::{Config, ConfigValue, ConfigValueOrigin};

/// The name of the configuration file, in the current folder and in the user's configuration folder.
const CONFIG_FILE_NAME: &str = "segue.toml";

/// The user's folders for configuration and data.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserDirs {
    pub config_home: Option<PathBuf>,
    pub data_home: Option<PathBuf>,
}

impl UserDirs {
    /// Reads the folders from `XDG_CONFIG_HOME`, `XDG_DATA_HOME` and `HOME`.
    pub(crate) fn from_env() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below = |path: &str| home.as_ref().map(|home| home.join(path));
        Self {
            config_home: folder("XDG_CONFIG_HOME").or_else(|| below(".config")),
            data_home: folder("XDG_DATA_HOME").or_else(|| below(".local/share")),
        }
    }

    /// Returns the default path of the store, or `None` without a data folder.
    pub(crate) fn default_store_path(&self) -> Option<PathBuf> {
        Some(self.data_home.as_ref()?.join("segue").join("segue.db"))
    }
}

/// Where a configuration file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigFileOrigin {
    /// Named by the user, or in the user's configuration folder.
    User,
    /// In the current folder, which may come from anybody.
    CurrentFolder,
}

/// Returns the configuration file to read, and where it was found: `given`, or else the first default location that exists.
pub(crate) fn find_config_file(given: Option<&Path>, dirs: &UserDirs) -> Option<(PathBuf, ConfigFileOrigin)> {
    if let Some(given) = given {
        return Some((given.to_owned(), ConfigFileOrigin::User));
    }
    let users = dirs.config_home.as_ref().map(|folder| folder.join("segue").join(CONFIG_FILE_NAME));
    let here = PathBuf::from(CONFIG_FILE_NAME);
    if here.exists() {
        // The current folder may be the user's configuration folder.
        let is_users = users.as_ref().is_some_and(|users| match (users.canonicalize(), here.canonicalize()) {
            (Ok(users), Ok(here)) => users == here,
            _ => false,
        });
        let location = if is_users { ConfigFileOrigin::User } else { ConfigFileOrigin::CurrentFolder };
        return Some((here, location));
    }
    users.filter(|path| path.exists()).map(|path| (path, ConfigFileOrigin::User))
}

impl Config {
    /// Returns the path of the store: `given`, or else the configured path, or else the default path.
    pub(crate) fn store_path(&self, given: Option<&Path>, dirs: &UserDirs) -> Option<ConfigValue<PathBuf>> {
        if let Some(given) = given {
            let from_environment = std::env::var_os("SEGUE_STORE").is_some_and(|path| Path::new(&path) == given);
            let origin = if from_environment {
                ConfigValueOrigin::Environment("SEGUE_STORE")
            } else {
                ConfigValueOrigin::Argument("--store")
            };
            return Some(ConfigValue { value: given.to_owned(), origin });
        }
        self.store.clone().or_else(|| dirs.default_store_path().map(ConfigValue::from_default))
    }
}
