//! Creates folders that only their owner can read, whatever the umask is.

use std::fs::DirBuilder;
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
