//! Where the configuration file and the store are looked for.

use std::path::{Path, PathBuf};

use super::{Config, ConfigValue, ValueOrigin};

/// The name of the file in the current folder and in the user's.
const CONFIG_FILE_NAME: &str = "segue.toml";

/// The folders of whoever runs the program, from the environment.
#[derive(Debug, Clone, Default)]
pub struct UserDirs {
    /// Where users keep settings.
    pub config_home: Option<PathBuf>,
    /// Where programs keep data.
    pub data_home: Option<PathBuf>,
}

impl UserDirs {
    /// What the environment says.
    pub fn from_env() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below = |path: &str| home.as_ref().map(|home| home.join(path));
        Self {
            config_home: folder("XDG_CONFIG_HOME").or_else(|| below(".config")),
            data_home: folder("XDG_DATA_HOME").or_else(|| below(".local/share")),
        }
    }

    /// Where sessions are kept unless somebody says otherwise.
    pub fn default_store_path(&self) -> Option<PathBuf> {
        Some(self.data_home.as_ref()?.join("segue").join("segue.db"))
    }
}

/// The configuration file to read: the one given, else the first there is.
pub fn find_config_file(given: Option<&Path>, dirs: &UserDirs) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let users = dirs.config_home.as_ref().map(|folder| folder.join("segue").join(CONFIG_FILE_NAME));
    [Some(PathBuf::from(CONFIG_FILE_NAME)), users].into_iter().flatten().find(|path| path.exists())
}

impl Config {
    /// Where sessions are kept: the place given, else the file's, else the user's data folder. Nothing if there is no such
    /// folder.
    pub fn store_path(&self, given: Option<&Path>, dirs: &UserDirs) -> Option<ConfigValue<PathBuf>> {
        if let Some(given) = given {
            let from_environment = std::env::var_os("SEGUE_STORE").is_some_and(|path| Path::new(&path) == given);
            let origin = if from_environment {
                ValueOrigin::Environment("SEGUE_STORE")
            } else {
                ValueOrigin::Argument("--store")
            };
            return Some(ConfigValue { value: given.to_owned(), origin });
        }
        self.store.clone().or_else(|| dirs.default_store_path().map(ConfigValue::from_default))
    }
}
