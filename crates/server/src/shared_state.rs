//! What a server shares with the other servers of its store, besides sessions: keys and their usage, webhooks and what was
//! delivered. On one machine this is kept in files of the data folder; the nodes of a cluster keep it in their database.

mod copy_to_database;
mod file_records;

use std::path::Path;
use std::sync::Arc;

use segue_engine::{
    SharedMeters, SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecordWriteOutcome, SharedRecords, SharedState, StoreError,
};

use crate::keys::ApiKeyStore;
use crate::limits::RECORD_ATTEMPTS_MAX;
use crate::usage::{ApiKeyUsageStore, FileApiKeyUsageStore, SharedApiKeyUsageStore};
pub use copy_to_database::{SharedStateCopyError, SharedStateCopyReport, SharedStateCopyToDatabase};
use file_records::FileSharedRecords;

/// What a server shares with others. Clones refer to the same state.
#[derive(Debug, Clone)]
pub struct CrossServerSharedState {
    pub(crate) records: Arc<dyn SharedRecords>,
    /// Counts requests for all servers; without it each server counts its own.
    pub(crate) meters: Option<Arc<dyn SharedMeters>>,
    pub(crate) key_usage: Arc<dyn ApiKeyUsageStore>,
}

impl CrossServerSharedState {
    /// Uses files in a data folder, which all processes on this machine share.
    #[must_use]
    pub fn from_folder(folder: &Path) -> Self {
        Self {
            records: Arc::new(FileSharedRecords::from_folder(folder)),
            meters: None,
            key_usage: Arc::new(FileApiKeyUsageStore::from_folder(folder)),
        }
    }

    /// Uses a store that several nodes share.
    #[must_use]
    pub fn from_store<S: SharedState + 'static>(store: Arc<S>) -> Self {
        Self {
            records: store.clone(),
            meters: Some(store.clone()),
            key_usage: Arc::new(SharedApiKeyUsageStore::new(store.clone(), store)),
        }
    }

    /// Returns the keys.
    #[must_use]
    pub fn keys(&self) -> ApiKeyStore {
        ApiKeyStore::new(self.records.clone())
    }

    /// Returns where the usage of keys is stored.
    #[must_use]
    pub fn key_usage(&self) -> Arc<dyn ApiKeyUsageStore> {
        self.key_usage.clone()
    }
}

/// Reads a record and its version.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn read_whole_record(
    records: &dyn SharedRecords,
    name: &str,
) -> Result<Option<(SharedRecordVersion, Vec<u8>)>, StoreError> {
    Ok(match records.read_record(name, None).await? {
        SharedRecordReadOutcome::Found { version, bytes } => Some((version, bytes)),
        SharedRecordReadOutcome::Missing | SharedRecordReadOutcome::Unchanged => None,
    })
}

/// Replaces a record with what `change` makes of it, again if another process changed it meanwhile.
///
/// # Errors
/// The record cannot be read or written, or `change` refuses.
pub(crate) async fn update_record<T, E: From<StoreError>>(
    records: &dyn SharedRecords,
    name: &str,
    mut change: impl FnMut(Option<&[u8]>) -> Result<(Vec<u8>, T), E> + Send,
) -> Result<T, E> {
    for _ in 0..RECORD_ATTEMPTS_MAX {
        let current = read_whole_record(records, name).await?;
        let (bytes, value) = change(current.as_ref().map(|(_, bytes)| bytes.as_slice()))?;
        let condition = match current {
            None => SharedRecordWriteCondition::Missing,
            Some((version, _)) => SharedRecordWriteCondition::Version(version),
        };
        let write = SharedRecordWrite { name: name.to_owned(), bytes, condition, expires_in_ms: None };
        if let SharedRecordWriteOutcome::Written(_) = records.write_record(write).await? {
            return Ok(value);
        }
    }
    let detail = "other processes changed it again and again".to_owned();
    Err(StoreError::Io { what: format!("changing `{name}`"), detail }.into())
}
