//! The number of files that this process may have open. Systems usually allow 1,024 unless a process asks for more, which is
//! less than a server has connections.

use crate::limits::OPEN_FILES_BESIDES_CONNECTIONS;

/// Raises the limit so that the server can have its connections, as far as the system allows it.
#[cfg(unix)]
pub(crate) fn raise_open_files_limit(connections_max: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let wanted = connections_max as u64 + OPEN_FILES_BESIDES_CONNECTIONS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = wanted.min(limit.maximum.unwrap_or(wanted));
    let result = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    if let Err(error) = result {
        tracing::warn!(%error, wanted, allowed = limit.current, "the limit of open files cannot be raised");
    } else if raised < wanted {
        tracing::warn!(
            wanted,
            allowed = raised,
            "the system allows few open files, so fewer connections are accepted at the same time"
        );
    }
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_open_files_limit(_connections_max: usize) {}
