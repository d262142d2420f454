//! Where the configuration file and the store are looked for.

use std::path::{Path, PathBuf};

use super::{Config, Origin, Setting};

/// The name of the file in the current folder and in the user's.
const FILE: &str = "segue.toml";

/// The folders of whoever runs the program, from the environment.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Where users keep settings.
    pub config_home: Option<PathBuf>,
    /// Where programs keep data.
    pub data_home: Option<PathBuf>,
}

impl Surroundings {
    /// What the environment says.
    pub fn here() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below = |path: &str| home.as_ref().map(|home| home.join(path));
        Self {
            config_home: folder("XDG_CONFIG_HOME").or_else(|| below(".config")),
            data_home: folder("XDG_DATA_HOME").or_else(|| below(".local/share")),
        }
    }

    /// Where sessions are kept unless somebody says otherwise.
    pub fn store(&self) -> Option<PathBuf> {
        Some(self.data_home.as_ref()?.join("segue").join("segue.db"))
    }
}

/// The configuration file to read: the one given, else the first there is.
pub fn find(given: Option<&Path>, around: &Surroundings) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let users = around.config_home.as_ref().map(|folder| folder.join("segue").join(FILE));
    [Some(PathBuf::from(FILE)), users].into_iter().flatten().find(|path| path.exists())
}

impl Config {
    /// Where sessions are kept: the place given, else the file's, else the user's data folder. Nothing if there is no such
    /// folder.
    pub fn store_path(&self, given: Option<&Path>, around: &Surroundings) -> Option<Setting<PathBuf>> {
        if let Some(given) = given {
            let from_environment = std::env::var_os("SEGUE_STORE").is_some_and(|path| Path::new(&path) == given);
            let origin =
                if from_environment { Origin::Environment("SEGUE_STORE") } else { Origin::Argument("--store") };
            return Some(Setting { value: given.to_owned(), origin });
        }
        self.store.clone().or_else(|| around.store().map(Setting::default))
    }
}
