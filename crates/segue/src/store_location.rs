//! Where the sessions are stored: in a file, or in a database that several nodes share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use segue_server::{ClusterSecret, CrossServerSharedState};
use segue_store::Store;
use segue_store::postgres::{PostgresOptions, PostgresStore, database_location};
use segue_store::sqlite::SqliteStore;

/// The environment variable with the password of the database, if the URL has none.
const DATABASE_PASSWORD_ENV: &str = "SEGUE_STORE_PASSWORD";

/// A location of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreLocation<'a> {
    File(&'a Path),
    /// The URL of a PostgreSQL database.
    Database(&'a str),
}

impl<'a> StoreLocation<'a> {
    /// Recognises a URL by its scheme. Everything else is a file.
    pub(crate) fn parse(path: &'a Path) -> Self {
        match path.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => Self::Database(url),
            _ => Self::File(path),
        }
    }

    /// Returns whether there may be a store. Whether a database has one is known when it is opened.
    pub(crate) fn may_exist(self) -> bool {
        match self {
            Self::File(path) => path.exists(),
            Self::Database(_) => true,
        }
    }

    /// Returns the location for people: without a user or a password.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Database(url) => database_location(url),
        }
    }

    /// Returns the folder for files that belong to the store: its own, or the user's data folder.
    pub(crate) fn data_folder(self, default_store: Option<&Path>) -> PathBuf {
        let file = match self {
            Self::File(path) => Some(path),
            Self::Database(_) => default_store,
        };
        file.and_then(Path::parent).map_or_else(PathBuf::new, Path::to_path_buf)
    }

    /// Opens the store, and creates it if there is none.
    pub(crate) fn open(self, node: ClusterNodeOptions) -> anyhow::Result<Arc<dyn Store>> {
        Ok(self.open_with_shared_state(node, Path::new(""))?.0)
    }

    /// Opens the store, and what its servers share besides sessions: in the database, or in files of `data_folder`.
    pub(crate) fn open_with_shared_state(
        self,
        node: ClusterNodeOptions,
        data_folder: &Path,
    ) -> anyhow::Result<(Arc<dyn Store>, CrossServerSharedState)> {
        match self {
            Self::File(path) => {
                let opened = SqliteStore::open(path);
                let store = opened.with_context(|| format!("cannot open the store {}", path.display()))?;
                Ok((Arc::new(store), CrossServerSharedState::from_folder(data_folder)))
            }
            Self::Database(url) => {
                let store = Arc::new(open_database(url, node)?);
                Ok((store.clone(), CrossServerSharedState::from_store(store)))
            }
        }
    }

    /// Opens what the servers share besides sessions. Files need no store.
    pub(crate) fn open_shared_state(self, data_folder: &Path) -> anyhow::Result<CrossServerSharedState> {
        match self {
            Self::File(_) => Ok(CrossServerSharedState::from_folder(data_folder)),
            Self::Database(_) => Ok(self.open_with_shared_state(ClusterNodeOptions::default(), data_folder)?.1),
        }
    }
}

/// What a node of a cluster tells the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterNodeOptions {
    /// Where other nodes reach this one.
    pub address: Option<String>,
    pub lease_ms: Option<u64>,
    /// The labels of the folders that this node has.
    pub placements: Vec<String>,
    /// The secret that the nodes of the cluster share.
    pub secret: Option<ClusterSecret>,
}

/// Opens the store in a database. The password may be in the environment.
pub(crate) fn open_database(url: &str, node: ClusterNodeOptions) -> anyhow::Result<PostgresStore> {
    let defaults = PostgresOptions::default();
    let options = PostgresOptions {
        password: std::env::var(DATABASE_PASSWORD_ENV).ok().filter(|password| !password.is_empty()),
        node_address: node.address,
        lease_ms: node.lease_ms.unwrap_or(defaults.lease_ms),
        ..defaults
    };
    // The error names the database.
    Ok(PostgresStore::open_with_options(url, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_database_and_everything_else_a_file() {
        let database = Path::new("postgres://me:secret@db.example:5433/segue");
        assert_eq!(StoreLocation::parse(database).describe(), "postgres://db.example/segue");
        assert!(matches!(StoreLocation::parse(Path::new("postgresql://db/segue")), StoreLocation::Database(_)));
        let default = Path::new("/home/me/.local/share/segue/segue.db");
        let folder = StoreLocation::parse(database).data_folder(Some(default));
        assert_eq!(folder, Path::new("/home/me/.local/share/segue"));
        for file in ["segue.db", "postgres.db", "postgres:/x"] {
            assert_eq!(StoreLocation::parse(Path::new(file)), StoreLocation::File(Path::new(file)));
        }
    }
}
