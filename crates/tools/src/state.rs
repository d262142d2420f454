//! What the host of the workspace tools remembers across restarts, in one database beside the store: which lease epoch each session
//! last had, which content each agent last read, the checkpoints with their files, and the isolated copies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use segue_core::ids::LeaseEpoch;

use crate::limits::{
    CHECKPOINT_BYTES_MAX, CHECKPOINTS_KEPT_MIN, CHECKPOINTS_MAX, COPIES_MAX, DATABASE_BUSY_MS_MAX,
    SESSIONS_REMEMBERED_MAX,
};
use crate::scan::FileManifest;

/// The database.
#[derive(Debug)]
pub(crate) struct WorkspaceStateDatabase {
    connection: Mutex<Connection>,
    folder: PathBuf,
}

/// An agent of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileReadingAgentKey {
    /// The session's name and opening time: a name can be used again.
    pub session: String,
    /// The agent; empty if the session has no agents.
    pub agent: String,
    /// The workspace, and the copy if there is one.
    pub place: String,
}

/// An isolated copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceCopyRecord {
    pub name: String,
    /// The checkpoint of the content that was copied.
    pub base: String,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS sessions (session TEXT PRIMARY KEY, epoch INTEGER NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS reads (
        session TEXT NOT NULL, agent TEXT NOT NULL, place TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL,
        PRIMARY KEY (session, agent, place, path)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS checkpoints (
        workspace TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL, used_at INTEGER NOT NULL, manifest TEXT NOT NULL,
        PRIMARY KEY (workspace, id)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS files (digest TEXT PRIMARY KEY, content BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS copies (
        workspace TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, base TEXT NOT NULL,
        PRIMARY KEY (workspace, name)) WITHOUT ROWID;
";

impl WorkspaceStateDatabase {
    /// Opens the database in a folder, and creates both if they are missing.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("the state of workspaces in {}: {error}", folder.display());
        create_private_folder(folder).map_err(|error| failed(&error))?;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(folder.join("state.db"))?;
            connection.busy_timeout(Duration::from_millis(DATABASE_BUSY_MS_MAX))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let connection = open().map_err(|error| failed(&error))?;
        Ok(Self { connection: Mutex::new(connection), folder: folder.to_owned() })
    }

    /// Returns the folder for files of the host, such as copies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_transaction<T>(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, String> {
        let mut connection = self.lock();
        let run = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        run(&mut connection).map_err(|error: rusqlite::Error| state_error(&error))
    }

    /// Refuses a run with an older lease epoch than an earlier run of the same session had: another process owns the session now.
    pub(crate) fn check_lease_epoch(&self, session: &str, epoch: LeaseEpoch) -> Result<(), String> {
        let epoch = i64::try_from(epoch.0).unwrap_or(i64::MAX);
        let known = self.with_transaction(|transaction| {
            let known: Option<i64> = transaction
                .query_row("SELECT epoch FROM sessions WHERE session = ?1", [session], |row| row.get(0))
                .optional()?;
            if known.is_none_or(|known| known < epoch) {
                transaction.execute(
                    "INSERT INTO sessions (session, epoch, used_at) VALUES (?1, ?2, ?3)
                     ON CONFLICT (session) DO UPDATE SET epoch = ?2, used_at = ?3",
                    params![session, epoch, now_ms()],
                )?;
                forget_old_sessions(transaction)?;
            }
            Ok(known)
        })?;
        match known {
            Some(known) if known > epoch => Err(format!(
                "refused: another process owns the session since lease epoch {known}; this run has {epoch}"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the digest of the content that an agent last read or wrote.
    pub(crate) fn last_read_digest(&self, reader: &FileReadingAgentKey, path: &str) -> Result<Option<String>, String> {
        self.lock()
            .query_row(
                "SELECT digest FROM reads WHERE session = ?1 AND agent = ?2 AND place = ?3 AND path = ?4",
                params![reader.session, reader.agent, reader.place, path],
                |row| row.get(0),
            )
            .optional()
            .map_err(|error| state_error(&error))
    }

    /// Records what an agent read or wrote; `None` if it no longer knows the content.
    pub(crate) fn set_last_read(
        &self,
        reader: &FileReadingAgentKey,
        path: &str,
        digest: Option<&str>,
    ) -> Result<(), String> {
        let FileReadingAgentKey { session, agent, place } = reader;
        self.with_transaction(|transaction| {
            match digest {
                Some(digest) => transaction.execute(
                    "INSERT INTO reads (session, agent, place, path, digest) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (session, agent, place, path) DO UPDATE SET digest = ?5",
                    params![session, agent, place, path, digest],
                )?,
                None => transaction.execute(
                    "DELETE FROM reads WHERE session = ?1 AND agent = ?2 AND place = ?3 AND path = ?4",
                    params![session, agent, place, path],
                )?,
            };
            Ok(())
        })
    }

    /// Returns whether the content of a file is stored.
    pub(crate) fn has_file(&self, digest: &str) -> Result<bool, String> {
        self.lock()
            .query_row("SELECT 1 FROM files WHERE digest = ?1", [digest], |_| Ok(()))
            .optional()
            .map(|found| found.is_some())
            .map_err(|error| state_error(&error))
    }

    pub(crate) fn load_file(&self, digest: &str) -> Result<Option<Vec<u8>>, String> {
        self.lock()
            .query_row("SELECT content FROM files WHERE digest = ?1", [digest], |row| row.get(0))
            .optional()
            .map_err(|error| state_error(&error))
    }

    /// Stores a checkpoint and those of its files that are not stored yet, and drops the oldest checkpoints beyond the limits.
    pub(crate) fn save_checkpoint(
        &self,
        workspace: &str,
        label: &str,
        manifest: &FileManifest,
        new_files: &[(String, Vec<u8>)],
    ) -> Result<String, String> {
        let id = manifest.digest();
        let text = serde_json::to_string(manifest).map_err(|error| error.to_string())?;
        self.with_transaction(|transaction| {
            for (digest, content) in new_files {
                transaction.execute(
                    "INSERT OR IGNORE INTO files (digest, content) VALUES (?1, ?2)",
                    params![digest, content],
                )?;
            }
            transaction.execute(
                "INSERT INTO checkpoints (workspace, id, label, used_at, manifest) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (workspace, id) DO UPDATE SET used_at = ?4",
                params![workspace, id, label, now_ms(), text],
            )?;
            drop_old_checkpoints(transaction, workspace)
        })?;
        Ok(id)
    }

    pub(crate) fn load_checkpoint(&self, workspace: &str, id: &str) -> Result<FileManifest, String> {
        let text: Option<String> = self
            .lock()
            .query_row("SELECT manifest FROM checkpoints WHERE workspace = ?1 AND id = ?2", [workspace, id], |row| {
                row.get(0)
            })
            .optional()
            .map_err(|error| state_error(&error))?;
        match text {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| format!("the checkpoint `{id}` is damaged: {error}"))
            }
            None => Err(format!("the workspace has no checkpoint `{id}`; old ones are dropped")),
        }
    }

    /// Records a copy, unless there are too many.
    pub(crate) fn add_copy(&self, workspace: &str, owner: &str, copy: &WorkspaceCopyRecord) -> Result<(), String> {
        let count = self.with_transaction(|transaction| {
            let count: usize =
                transaction
                    .query_row("SELECT count(*) FROM copies WHERE workspace = ?1", [workspace], |row| row.get(0))?;
            if count < COPIES_MAX {
                transaction.execute(
                    "INSERT OR IGNORE INTO copies (workspace, name, owner, base) VALUES (?1, ?2, ?3, ?4)",
                    params![workspace, copy.name, owner, copy.base],
                )?;
            }
            Ok(count)
        })?;
        match count < COPIES_MAX {
            true => Ok(()),
            false => Err(format!("the workspace has {count} copies, which is the maximum; remove some first")),
        }
    }

    /// Returns a copy that belongs to this owner.
    pub(crate) fn find_copy(
        &self,
        workspace: &str,
        owner: &str,
        name: &str,
    ) -> Result<Option<WorkspaceCopyRecord>, String> {
        self.lock()
            .query_row(
                "SELECT name, base FROM copies WHERE workspace = ?1 AND owner = ?2 AND name = ?3",
                [workspace, owner, name],
                |row| Ok(WorkspaceCopyRecord { name: row.get(0)?, base: row.get(1)? }),
            )
            .optional()
            .map_err(|error| state_error(&error))
    }

    pub(crate) fn remove_copy(&self, workspace: &str, name: &str) -> Result<(), String> {
        self.with_transaction(|transaction| {
            transaction.execute("DELETE FROM copies WHERE workspace = ?1 AND name = ?2", [workspace, name])?;
            Ok(())
        })
    }
}

/// Creates a folder that other users of the machine cannot read: it will contain copies of files and what agents read.
pub(crate) fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn forget_old_sessions(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let old = "SELECT session FROM sessions ORDER BY used_at DESC LIMIT -1 OFFSET ?1";
    transaction.execute(&format!("DELETE FROM reads WHERE session IN ({old})"), [SESSIONS_REMEMBERED_MAX])?;
    transaction.execute(&format!("DELETE FROM sessions WHERE session IN ({old})"), [SESSIONS_REMEMBERED_MAX])?;
    Ok(())
}

/// Drops checkpoints beyond the limits, oldest first, except those from which copies were made.
fn drop_old_checkpoints(transaction: &Transaction<'_>, workspace: &str) -> rusqlite::Result<()> {
    let mut dropped = transaction.execute(
        "DELETE FROM checkpoints WHERE workspace = ?1
           AND id IN (SELECT id FROM checkpoints WHERE workspace = ?1 ORDER BY used_at DESC LIMIT -1 OFFSET ?2)
           AND id NOT IN (SELECT base FROM copies WHERE workspace = ?1)",
        params![workspace, CHECKPOINTS_MAX],
    )?;
    let stored: u64 =
        transaction.query_row("SELECT coalesce(sum(length(content)), 0) FROM files", [], |row| row.get(0))?;
    if stored > CHECKPOINT_BYTES_MAX {
        // Half of this workspace's checkpoints are dropped at once, because each clean-up reads all manifests.
        let count: usize =
            transaction
                .query_row("SELECT count(*) FROM checkpoints WHERE workspace = ?1", [workspace], |row| row.get(0))?;
        dropped += transaction.execute(
            "DELETE FROM checkpoints WHERE workspace = ?1
               AND id IN (SELECT id FROM checkpoints WHERE workspace = ?1 ORDER BY used_at DESC LIMIT -1 OFFSET ?2)
               AND id NOT IN (SELECT base FROM copies WHERE workspace = ?1)",
            params![workspace, (count / 2).max(CHECKPOINTS_KEPT_MIN)],
        )?;
    }
    if dropped > 0 {
        drop_unused_files(transaction)?;
    }
    Ok(())
}

fn drop_unused_files(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut used = BTreeSet::new();
    let mut manifests = transaction.prepare("SELECT manifest FROM checkpoints")?;
    let mut rows = manifests.query([])?;
    while let Some(row) = rows.next()? {
        let manifest: FileManifest = serde_json::from_str(&row.get::<_, String>(0)?).unwrap_or_default();
        used.extend(manifest.files.into_values().map(|file| file.digest));
    }
    let mut stored = transaction.prepare("SELECT digest FROM files")?;
    let stored: Vec<String> = stored.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for digest in stored.iter().filter(|digest| !used.contains(*digest)) {
        transaction.execute("DELETE FROM files WHERE digest = ?1", [digest])?;
    }
    Ok(())
}

fn state_error(error: &rusqlite::Error) -> String {
    format!("the state of workspaces cannot be used: {error}")
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confined_folder::FileMode;
    use crate::scan::FileManifestEntry;

    fn manifest(name: &str) -> FileManifest {
        let entry = FileManifestEntry { digest: name.to_owned(), bytes: 1, mode: FileMode::Plain };
        FileManifest { files: [(name.to_owned(), entry)].into() }
    }

    #[test]
    fn r12_a_run_with_an_older_lease_epoch_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = WorkspaceStateDatabase::open(folder.path()).expect("the state opens");
        assert_eq!(state.check_lease_epoch("a", LeaseEpoch(3)), Ok(()));
        assert_eq!(state.check_lease_epoch("a", LeaseEpoch(3)), Ok(()));
        assert_eq!(state.check_lease_epoch("b", LeaseEpoch(1)), Ok(()));
        assert!(
            state
                .check_lease_epoch("a", LeaseEpoch(2))
                .expect_err("it is refused")
                .contains("another process owns the session")
        );
        // Another process has its own connection.
        let other = WorkspaceStateDatabase::open(folder.path()).expect("the state opens twice");
        assert_eq!(other.check_lease_epoch("a", LeaseEpoch(4)), Ok(()));
        assert!(state.check_lease_epoch("a", LeaseEpoch(3)).is_err());
    }

    #[test]
    fn the_oldest_checkpoints_and_their_files_are_dropped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = WorkspaceStateDatabase::open(folder.path()).expect("the state opens");
        let base = state.save_checkpoint("w", "", &manifest("base"), &[("base".into(), vec![1])]).expect("saved");
        state.add_copy("w", "", &WorkspaceCopyRecord { name: "c".into(), base: base.clone() }).expect("added");
        let first = state.save_checkpoint("w", "", &manifest("first"), &[("first".into(), vec![1])]).expect("saved");
        state.lock().execute("UPDATE checkpoints SET used_at = 0", []).expect("aged");
        for n in 0..CHECKPOINTS_MAX {
            let name = format!("f{n}");
            state.save_checkpoint("w", "", &manifest(&name), &[(name.clone(), vec![2])]).expect("saved");
        }
        assert!(state.load_checkpoint("w", &first).is_err());
        assert_eq!(state.has_file("first"), Ok(false));
        assert!(state.load_checkpoint("w", &base).is_ok(), "a copy was made from it");
        assert_eq!(state.has_file("f0"), Ok(true));
    }
}
