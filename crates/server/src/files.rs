//! Writes small files that several processes share: atomically, and readable only by their owner.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Replaces the contents of a file.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        create_private_folder(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&name);
    let written = write_private_file(part, bytes).and_then(|()| std::fs::rename(part, path));
    if written.is_err() {
        // An incomplete file is useless. If it cannot be removed either, its name ends with `.part`.
        let _ = std::fs::remove_file(part);
    }
    written
}

/// Creates a folder and its parents, unless they exist. A folder that exists keeps its mode.
///
/// # Errors
/// The folder cannot be created.
pub(crate) fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a lock file, which is created if needed.
///
/// # Errors
/// The file cannot be created.
pub(crate) fn open_lock_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn write_private_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
