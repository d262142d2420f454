//! Access to the files below one folder, from which no path, link or race leads out.
//!
//! Every access is relative to an open handle of the folder and is resolved by the kernel or by `cap-std` step by step, so a
//! link that points outside is an error, also if it was created between a check and the access.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt, PermissionsExt};

use crate::content::FileContent;
use crate::limits::FILE_BYTES_MAX;
use crate::workspace_path::WorkspacePath;

/// An open folder.
#[derive(Debug)]
pub(crate) struct ConfinedFolder {
    folder: Dir,
    path: PathBuf,
}

/// The kind of file and, for regular files, whether it can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileMode {
    Plain,
    Executable,
    /// A symbolic link; its content is the path to which it points.
    Link,
}

impl FileMode {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        match metadata.is_symlink() {
            true => Self::Link,
            false if metadata.permissions().mode() & 0o111 != 0 => Self::Executable,
            false => Self::Plain,
        }
    }
}

/// Distinguishes temporary files of concurrent writes.
static TEMPORARY_FILES: AtomicU64 = AtomicU64::new(0);
/// The start of the names of temporary files, which scans skip.
pub(crate) const TEMPORARY_PREFIX: &str = ".segue-write-";

impl ConfinedFolder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { folder: Dir::open_ambient_dir(path, ambient_authority())?, path: path.to_owned() })
    }

    /// Returns the path of the folder on this machine.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.folder
    }

    /// Returns what is at a path, without following a link at its end.
    pub(crate) fn metadata(&self, path: &WorkspacePath) -> io::Result<Option<Metadata>> {
        match self.folder.symlink_metadata(path.as_str()) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole regular file, if it is not too large. A link that stays in the folder is followed.
    pub(crate) fn read(&self, path: &WorkspacePath) -> io::Result<FileContent> {
        read_regular_file(&self.folder, path.as_str(), FILE_BYTES_MAX).map(FileContent)
    }

    /// Reads what is at a path as a checkpoint stores it: the content of a file, or the target of a link.
    pub(crate) fn read_entry(&self, path: &str, mode: FileMode) -> io::Result<Vec<u8>> {
        match mode {
            FileMode::Link => {
                Ok(self.folder.read_link_contents(path)?.into_os_string().to_string_lossy().into_owned().into_bytes())
            }
            FileMode::Plain | FileMode::Executable => read_regular_file(&self.folder, path, FILE_BYTES_MAX),
        }
    }

    /// Replaces or creates a regular file in one step: a reader sees the old content or the new one. Missing folders are created.
    /// An existing file keeps its permissions, unless `mode` gives another.
    pub(crate) fn write(&self, path: &WorkspacePath, content: &[u8], mode: Option<FileMode>) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        let existing = parent.symlink_metadata(name).ok().filter(Metadata::is_file);
        let temporary =
            format!("{TEMPORARY_PREFIX}{}-{}", std::process::id(), TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o666);
        let written = (|| {
            let mut file = parent.open_with(&temporary, &options)?;
            file.write_all(content)?;
            let mut permissions = match existing {
                Some(existing) => existing.permissions(),
                None => file.metadata()?.permissions(),
            };
            match mode {
                Some(FileMode::Executable) => {
                    permissions.set_mode(permissions.mode() | ((permissions.mode() & 0o444) >> 2))
                }
                Some(FileMode::Plain) => permissions.set_mode(permissions.mode() & !0o111),
                Some(FileMode::Link) | None => {}
            }
            file.set_permissions(permissions)?;
            file.sync_all()?;
            parent.rename(&temporary, &parent, name)
        })();
        if written.is_err() {
            // The first error is the one to report; a temporary file that stays is skipped by scans.
            let _ = parent.remove_file(&temporary);
        }
        written
    }

    /// Restores what [`Self::read_entry`] read.
    pub(crate) fn write_entry(&self, path: &WorkspacePath, content: &[u8], mode: FileMode) -> io::Result<()> {
        if mode != FileMode::Link {
            return self.write(path, content, Some(mode));
        }
        let (parent, name) = self.open_parent(path)?;
        match parent.remove_file(name) {
            Err(error) if !is_missing(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // The link may point anywhere, as it did before: following it is checked, not creating it.
        parent.symlink_contents(String::from_utf8_lossy(content).as_ref(), name)
    }

    /// Removes a file or a link, and the folders that become empty.
    pub(crate) fn remove(&self, path: &WorkspacePath) -> io::Result<()> {
        self.folder.remove_file(path.as_str())?;
        self.remove_empty_parents(path);
        Ok(())
    }

    /// Renames a file. Fails if something exists at the new path.
    pub(crate) fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> io::Result<()> {
        let (parent, name) = self.open_parent(to)?;
        // A hard link fails if the name exists, which a rename does not.
        match self.folder.hard_link(from.as_str(), &parent, name) {
            Ok(()) => self.folder.remove_file(from.as_str())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if parent.symlink_metadata(name).is_err() => self.folder.rename(from.as_str(), &parent, name)?,
            Err(error) => return Err(error),
        }
        self.remove_empty_parents(from);
        Ok(())
    }

    /// Opens the folder of a path, and creates it if it is missing.
    fn open_parent<'p>(&self, path: &'p WorkspacePath) -> io::Result<(Dir, &'p str)> {
        let (folder, name) = path.split_folder_and_name();
        let parent = match folder {
            None => self.folder.try_clone()?,
            Some(folder) => {
                self.folder.create_dir_all(folder)?;
                self.folder.open_dir(folder)?
            }
        };
        Ok((parent, name))
    }

    fn remove_empty_parents(&self, path: &WorkspacePath) {
        let mut folder = path.split_folder_and_name().0;
        // Fails at the first folder that is not empty, which ends the loop.
        while let Some(empty) = folder.filter(|folder| self.folder.remove_dir(folder).is_ok()) {
            folder = empty.rsplit_once('/').map(|(parent, _)| parent);
        }
    }
}

/// Opens a regular file. Pipes, devices and folders are refused without waiting for them.
pub(crate) fn open_regular_file(folder: &Dir, path: &str) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = folder.open_with(path, &options)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((file, metadata))
}

/// Reads a regular file of at most `bytes_max`.
pub(crate) fn read_regular_file(folder: &Dir, path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, metadata) = open_regular_file(folder, path)?;
    let too_large = |bytes: u64| {
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {bytes} bytes; the limit is {bytes_max}"))
    };
    if metadata.len() > bytes_max {
        return Err(too_large(metadata.len()));
    }
    let mut content = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // The file may grow while it is read.
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    match content.len() as u64 > bytes_max {
        true => Err(too_large(content.len() as u64)),
        false => Ok(content),
    }
}

/// Returns whether an error means that there is no such file.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
