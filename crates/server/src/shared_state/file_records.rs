//! Records in the files of a data folder. A file's version is a hash of its contents. A slot is a lock on a file, which ends
//! with its process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use segue_engine::{
    ConcurrencySlotLease, ConcurrencySlotRequest, SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite,
    SharedRecordWriteCondition, SharedRecordWriteOutcome, SharedRecords, StoreError,
};

use crate::files::{create_private_folder, open_lock_file, replace_file};

/// The lock that a process holds while it replaces a file.
const WRITE_LOCK_FILE: &str = "records.lock";

/// Records in files.
#[derive(Debug)]
pub(crate) struct FileSharedRecords {
    folder: PathBuf,
    /// The locks of the slots that this process holds, with their holders.
    slots: Mutex<HashMap<String, (String, File)>>,
}

impl FileSharedRecords {
    pub(crate) fn from_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), slots: Mutex::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, write: &SharedRecordWrite) -> io::Result<SharedRecordWriteOutcome> {
        create_private_folder(&self.folder)?;
        let lock = open_lock_file(&self.folder.join(WRITE_LOCK_FILE))?;
        lock.lock()?;
        let current = self.read(&write.name)?.map(|bytes| content_version(&bytes));
        let is_allowed = match write.condition {
            SharedRecordWriteCondition::Always => true,
            SharedRecordWriteCondition::Missing => current.is_none(),
            SharedRecordWriteCondition::Version(expected) => current == Some(expected),
        };
        if !is_allowed {
            return Ok(SharedRecordWriteOutcome::Conflict);
        }
        replace_file(&self.path(&write.name), &write.bytes)?;
        Ok(SharedRecordWriteOutcome::Written(content_version(&write.bytes)))
    }

    fn to_store_error(&self, name: &str) -> impl Fn(io::Error) -> StoreError + use<> {
        let what = format!("accessing {}", self.path(name).display());
        move |error| StoreError::Io { what: what.clone(), detail: error.to_string() }
    }
}

#[async_trait]
impl SharedRecords for FileSharedRecords {
    async fn read_record(
        &self,
        name: &str,
        known: Option<SharedRecordVersion>,
    ) -> Result<SharedRecordReadOutcome, StoreError> {
        Ok(match self.read(name).map_err(self.to_store_error(name))? {
            None => SharedRecordReadOutcome::Missing,
            Some(bytes) => match content_version(&bytes) {
                version if known == Some(version) => SharedRecordReadOutcome::Unchanged,
                version => SharedRecordReadOutcome::Found { version, bytes },
            },
        })
    }

    async fn write_record(&self, write: SharedRecordWrite) -> Result<SharedRecordWriteOutcome, StoreError> {
        self.write(&write).map_err(self.to_store_error(&write.name))
    }

    async fn delete_record(&self, name: &str) -> Result<(), StoreError> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.to_store_error(name)(error)),
            _ => Ok(()),
        }
    }

    /// A group has one slot here.
    async fn hold_slot(&self, request: ConcurrencySlotRequest) -> Result<Option<ConcurrencySlotLease>, StoreError> {
        let lease = Some(ConcurrencySlotLease { expires_at: u64::MAX });
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((holder, _)) = slots.get(&request.group) {
            return Ok(lease.filter(|_| *holder == request.holder));
        }
        let open = || {
            create_private_folder(&self.folder)?;
            open_lock_file(&self.folder.join(format!("{}.lock", request.group)))
        };
        let file = open().map_err(self.to_store_error(&request.group))?;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        slots.insert(request.group, (request.holder, file));
        Ok(lease)
    }

    async fn release_slot(&self, group: &str, holder: &str, _lease: ConcurrencySlotLease) -> Result<(), StoreError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.get(group).is_some_and(|(current, _)| current == holder) {
            slots.remove(group);
        }
        Ok(())
    }
}

fn content_version(bytes: &[u8]) -> SharedRecordVersion {
    let mut start = [0; 8];
    start.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    SharedRecordVersion(u64::from_le_bytes(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(bytes: &[u8], condition: SharedRecordWriteCondition) -> SharedRecordWrite {
        SharedRecordWrite { name: "keys".to_owned(), bytes: bytes.to_vec(), condition, expires_in_ms: None }
    }

    #[tokio::test]
    async fn record_that_another_process_changed_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) =
            (FileSharedRecords::from_folder(folder.path()), FileSharedRecords::from_folder(folder.path()));
        assert_eq!(one.read_record("keys", None).await, Ok(SharedRecordReadOutcome::Missing));
        let first = one.write_record(write(b"1", SharedRecordWriteCondition::Missing)).await.expect("written");
        let SharedRecordWriteOutcome::Written(version) = first else { panic!("it was missing") };
        assert_eq!(other.read_record("keys", Some(version)).await, Ok(SharedRecordReadOutcome::Unchanged));
        other.write_record(write(b"2", SharedRecordWriteCondition::Version(version))).await.expect("written");
        let late = one.write_record(write(b"3", SharedRecordWriteCondition::Version(version))).await;
        assert_eq!(late, Ok(SharedRecordWriteOutcome::Conflict));
        assert_eq!(std::fs::read(folder.path().join("keys.json")).expect("there"), b"2");
        one.delete_record("keys").await.expect("deleted");
        assert_eq!(other.read_record("keys", None).await, Ok(SharedRecordReadOutcome::Missing));
    }

    #[tokio::test]
    async fn slot_is_free_when_its_process_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) =
            (FileSharedRecords::from_folder(folder.path()), FileSharedRecords::from_folder(folder.path()));
        let request = |holder: &str| ConcurrencySlotRequest {
            group: "webhooks".into(),
            holder: holder.into(),
            slots_max: 1,
            hold_ms: 1,
        };
        assert!(one.hold_slot(request("a")).await.expect("held").is_some());
        assert!(one.hold_slot(request("a")).await.expect("held").is_some());
        assert_eq!(other.hold_slot(request("b")).await, Ok(None));
        drop(one);
        assert!(other.hold_slot(request("b")).await.expect("held").is_some());
    }
}
