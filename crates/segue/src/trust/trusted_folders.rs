//! The list of trusted folders, in the user's data folder. It is not next to the store, because the configuration of a
//! folder can choose where the store is.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};

use crate::config::UserDirs;
use crate::limits::TRUSTED_FOLDERS_MAX;

/// The folders whose configuration the user trusts, the newest last.
#[derive(Debug)]
pub(crate) struct TrustedFolders {
    path: PathBuf,
    entries: Vec<TrustedFolder>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrustedFolder {
    folder: PathBuf,
    /// The digest of the configuration that is trusted.
    digest: String,
}

impl TrustedFolders {
    /// Reads the list; it is empty if there is no file.
    pub(crate) fn load(dirs: &UserDirs) -> anyhow::Result<Self> {
        let data = dirs.data_home.as_ref().ok_or_else(|| {
            anyhow!("there is no data folder to remember trust in, because HOME is not set; set SEGUE_TRUST=1 instead")
        })?;
        let path = data.join("segue").join("trusted-folders.json");
        let unreadable = || format!("cannot read the list of trusted folders {}", path.display());
        let entries = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(unreadable)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(unreadable),
        };
        Ok(Self { path, entries })
    }

    /// Returns the trusted folders.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().map(|entry| entry.folder.as_path())
    }

    /// Returns the digest of the configuration that is trusted in a folder.
    pub(crate) fn find_digest(&self, folder: &Path) -> Option<String> {
        self.entries.iter().find(|entry| entry.folder == folder).map(|entry| entry.digest.clone())
    }

    /// Adds a folder, or replaces its digest. Beyond the limit, the oldest entry is removed.
    pub(crate) fn add(&mut self, folder: &Path, digest: &str) {
        self.remove(folder);
        self.entries.push(TrustedFolder { folder: folder.to_owned(), digest: digest.to_owned() });
        let excess = self.entries.len().saturating_sub(TRUSTED_FOLDERS_MAX);
        self.entries.drain(..excess);
    }

    /// Removes a folder, and returns whether it was in the list.
    pub(crate) fn remove(&mut self, folder: &Path) -> bool {
        let count = self.entries.len();
        self.entries.retain(|entry| entry.folder != folder);
        self.entries.len() < count
    }

    /// Replaces the file.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot write the list of trusted folders {}", self.path.display());
        if let Some(folder) = self.path.parent() {
            crate::private_files::create_private_folder(folder).with_context(failed)?;
        }
        let part = self.path.with_extension(format!("{}.part", std::process::id()));
        let written = crate::private_files::create_private_file(&part).and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(&self.entries)?)?;
            file.sync_all()?;
            std::fs::rename(&part, &self.path)
        });
        if written.is_err() {
            // The error may be dropped: the name of the file says that it is incomplete.
            let _ = std::fs::remove_file(&part);
        }
        written.with_context(failed)
    }
}

/// Returns the path of a folder without symbolic links, or an absolute path if it does not exist.
pub(crate) fn canonical_folder(folder: &Path) -> PathBuf {
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.to_owned())
}
