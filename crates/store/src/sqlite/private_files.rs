//! Creates files and folders that only their owner can read, whatever the umask is. What exists already keeps its mode:
//! its owner may have shared it on purpose.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder and its parents, unless they exist.
pub(super) fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates an empty database file, unless it exists. SQLite gives its write-ahead log the mode of the database.
pub(super) fn create_private_database(path: &Path) -> io::Result<()> {
    match create_new_private_file(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates a file that must not exist yet.
pub(super) fn create_new_private_file(path: &Path) -> io::Result<File> {
    private_options().create_new(true).open(path)
}

/// Opens a file for writing, and creates it if needed.
pub(super) fn open_private_file(path: &Path) -> io::Result<File> {
    private_options().create(true).truncate(false).open(path)
}

fn private_options() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
