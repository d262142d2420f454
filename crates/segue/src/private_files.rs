//! Creates files and folders that only their owner can read, whatever the umask is.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::Path;

/// Creates a folder and its parents, unless they exist. A folder that exists keeps its mode.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates a file, or empties it if it exists.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
