//! Copies what servers share in the files of a data folder into a database: keys, what they used, webhooks and how far their
//! events were delivered.
//!
//! A record in the database tells what was copied. So a copy that was interrupted continues, and what was removed or changed in
//! the database since then stays so.

use std::collections::BTreeSet;
use std::path::Path;

use segue_core::ids::{SessionUid, UnixMillis};
use segue_engine::{
    SessionCatalog, SessionListChangeCursor, SessionQuery, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecords, StoreError,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::file_records::FileSharedRecords;
use super::{CrossServerSharedState, read_whole_record, update_record};
use crate::keys::{KEYS_RECORD, StoredApiKey};
use crate::limits::{CHANGES_SESSIONS_MAX, KEYS_MAX, WEBHOOKS_MAX};
use crate::usage::{FileApiKeyUsageStore, copy_usage};
use crate::webhooks::{
    VersionedWebhookDeliveryQueue, WEBHOOKS_RECORD, Webhook, WebhookDeliveryQueue, queue_record_name,
};

/// The name of the record that tells what was copied.
const COPIED_RECORD: &str = "copied-from-files";

/// What a copy added to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedStateCopyReport {
    pub keys: usize,
    pub webhooks: usize,
    /// The days of a key for which there is usage, whether it was copied now or before.
    pub usage_days: usize,
}

/// Why shared state cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum SharedStateCopyError {
    /// The files or the database cannot be read or written.
    #[error("cannot copy what servers share besides sessions")]
    Access(#[from] StoreError),
    #[error("cannot read the files with the usage of keys")]
    KeyUsageFiles(#[source] std::io::Error),
    /// A record is not what it should be.
    #[error("the stored {0} are invalid; correct or delete them, then run the migration again")]
    InvalidRecord(&'static str, #[source] serde_json::Error),
    /// The database has something else with the same id.
    #[error("the database has another {kind} with the id `{id}`; delete one of the two, then run the migration again")]
    Different { kind: &'static str, id: String },
    #[error(
        "with the copies the database would have {count} {kind}s, but {count_max} is the maximum; delete some first"
    )]
    TooMany { kind: &'static str, count: usize, count_max: usize },
    /// What was read back is not what was written.
    #[error("the {kind} `{id}` is not in the database as it was copied; another process changes it: stop that process")]
    ChangedMeanwhile { kind: &'static str, id: String },
}

/// A copy from a data folder to a database, after all sessions were copied.
#[derive(Debug, Clone, Copy)]
pub struct SharedStateCopyToDatabase<'a> {
    pub folder: &'a Path,
    pub source_sessions: &'a dyn SessionCatalog,
    pub target: &'a CrossServerSharedState,
    pub target_sessions: &'a dyn SessionCatalog,
    pub now: UnixMillis,
}

/// What was copied before.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CopiedKeyAndWebhookIds {
    #[serde(default)]
    keys: BTreeSet<String>,
    #[serde(default)]
    webhooks: BTreeSet<String>,
}

/// An item with an id, of which a record of the shared state contains a list, and which is copied to another database.
trait CopyableSharedStateItem: Clone + PartialEq + Send + Sync + Serialize + DeserializeOwned {
    const KIND: &'static str;
    const RECORD: &'static str;
    fn count_max() -> usize;
    fn id(&self) -> &str;
    fn copied_ids(copied: &mut CopiedKeyAndWebhookIds) -> &mut BTreeSet<String>;
    /// Returns the item without what differs between stores.
    fn comparable(&self) -> Self;
}

impl CopyableSharedStateItem for StoredApiKey {
    const KIND: &'static str = "key";
    const RECORD: &'static str = KEYS_RECORD;

    fn count_max() -> usize {
        KEYS_MAX
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn copied_ids(copied: &mut CopiedKeyAndWebhookIds) -> &mut BTreeSet<String> {
        &mut copied.keys
    }

    fn comparable(&self) -> Self {
        self.clone()
    }
}

impl CopyableSharedStateItem for Webhook {
    const KIND: &'static str = "webhook";
    const RECORD: &'static str = WEBHOOKS_RECORD;

    fn count_max() -> usize {
        WEBHOOKS_MAX
    }

    fn id(&self) -> &str {
        &self.webhook
    }

    fn copied_ids(copied: &mut CopiedKeyAndWebhookIds) -> &mut BTreeSet<String> {
        &mut copied.webhooks
    }

    fn comparable(&self) -> Self {
        Self { after_change: SessionListChangeCursor::default(), ..self.clone() }
    }
}

impl SharedStateCopyToDatabase<'_> {
    /// Copies what is missing, and compares it with the files.
    ///
    /// # Errors
    /// Something cannot be read or written, or the database has other things with the same ids.
    pub async fn run(&self) -> Result<SharedStateCopyReport, SharedStateCopyError> {
        let source = FileSharedRecords::from_folder(self.folder);
        let keys = read_list::<StoredApiKey>(&source).await?;
        let keys = self.copy_items(&keys).await?;
        let webhooks = self.copy_webhooks(&source).await?;
        let files = FileApiKeyUsageStore::from_folder(self.folder);
        let usage_days = copy_usage(&files, self.target, self.now).await?;
        Ok(SharedStateCopyReport { keys, webhooks, usage_days })
    }

    /// Copies webhooks and their queues. The list comes last, so that no node delivers from a queue that is missing.
    async fn copy_webhooks(&self, source: &FileSharedRecords) -> Result<usize, SharedStateCopyError> {
        let mut webhooks = read_list::<Webhook>(source).await?;
        if webhooks.is_empty() {
            return Ok(0);
        }
        let records = self.target.records.as_ref();
        let known: BTreeSet<String> =
            read_list::<Webhook>(records).await?.into_iter().map(|webhook| webhook.webhook).collect();
        // A webhook that was copied before and is gone now was removed in the database.
        let copied = read_copied_ids(records).await?.webhooks;
        let is_new = |webhook: &&mut Webhook| !known.contains(&webhook.webhook) && !copied.contains(&webhook.webhook);
        let cursor = self.find_newest_change().await?;
        let existing = list_session_uids(self.source_sessions).await?;
        // A known webhook has its queue, and a node may have delivered from it.
        for webhook in webhooks.iter_mut().filter(is_new) {
            let mut queue = VersionedWebhookDeliveryQueue::load(source, webhook).await?.queue;
            self.apply_all_changes(webhook, &mut queue, &existing).await?;
            queue.changes = cursor;
            self.write_queue(webhook, &queue).await?;
            webhook.after_change = cursor;
        }
        self.copy_items(&webhooks).await
    }

    /// Brings a queue up to date with the changes in the files' store, because the database numbers its changes anew.
    async fn apply_all_changes(
        &self,
        webhook: &Webhook,
        queue: &mut WebhookDeliveryQueue,
        existing: &BTreeSet<SessionUid>,
    ) -> Result<(), SharedStateCopyError> {
        loop {
            let page = self.source_sessions.changes_after(Some(queue.changes), CHANGES_SESSIONS_MAX).await?;
            let is_last = page.next_cursor == queue.changes;
            queue.changes = page.next_cursor;
            for change in page.changes {
                // A session that was deleted has nothing left to forget here.
                let _ = queue.apply_change(webhook, change);
            }
            if is_last {
                queue.sessions.retain(|uid, _| existing.contains(uid));
                queue.prune_idle_sessions();
                return Ok(());
            }
        }
    }

    async fn write_queue(&self, webhook: &Webhook, queue: &WebhookDeliveryQueue) -> Result<(), SharedStateCopyError> {
        let records = self.target.records.as_ref();
        // Our own types can always be serialized.
        let bytes = serde_json::to_vec(queue).unwrap_or_default();
        let name = queue_record_name(&webhook.webhook);
        let write =
            SharedRecordWrite { name, bytes, condition: SharedRecordWriteCondition::Always, expires_in_ms: None };
        records.write_record(write).await?;
        if VersionedWebhookDeliveryQueue::load(records, webhook).await?.queue == *queue {
            return Ok(());
        }
        Err(SharedStateCopyError::ChangedMeanwhile { kind: "queue of the webhook", id: webhook.webhook.clone() })
    }

    /// Returns the newest change of the database's session list when all changes have a number.
    async fn find_newest_change(&self) -> Result<SessionListChangeCursor, StoreError> {
        let mut newest = SessionListChangeCursor::default();
        loop {
            let page = self.target_sessions.changes_after(None, CHANGES_SESSIONS_MAX).await?;
            if page.next_cursor == newest {
                return Ok(newest);
            }
            newest = page.next_cursor;
        }
    }

    /// Adds items to the list in the database. Returns how many were added.
    async fn copy_items<T: CopyableSharedStateItem>(&self, items: &[T]) -> Result<usize, SharedStateCopyError> {
        if items.is_empty() {
            return Ok(0);
        }
        let records = self.target.records.as_ref();
        let mut copied = read_copied_ids(records).await?;
        let copied_ids = T::copied_ids(&mut copied).clone();
        let added = update_record(records, T::RECORD, |bytes| {
            let mut list: Vec<T> = parse_list(bytes)?;
            let added = add_missing(&mut list, items, &copied_ids)?;
            // Our own types can always be serialized.
            Ok::<_, SharedStateCopyError>((serde_json::to_vec_pretty(&list).unwrap_or_default(), added))
        })
        .await?;
        let stored: Vec<T> = read_list(records).await?;
        if let Some(missing) = added.iter().find(|item| !stored.contains(item)) {
            return Err(SharedStateCopyError::ChangedMeanwhile { kind: T::KIND, id: missing.id().to_owned() });
        }
        T::copied_ids(&mut copied).extend(items.iter().map(|item| item.id().to_owned()));
        let bytes = serde_json::to_vec(&copied).unwrap_or_default();
        let condition = SharedRecordWriteCondition::Always;
        let write = SharedRecordWrite { name: COPIED_RECORD.to_owned(), bytes, condition, expires_in_ms: None };
        records.write_record(write).await?;
        Ok(added.len())
    }
}

/// Adds the items that the list does not have and that were not copied before. Returns them.
fn add_missing<T: CopyableSharedStateItem>(
    list: &mut Vec<T>,
    items: &[T],
    copied_ids: &BTreeSet<String>,
) -> Result<Vec<T>, SharedStateCopyError> {
    let mut added = Vec::new();
    // What was copied before may have been changed or removed since.
    for item in items.iter().filter(|item| !copied_ids.contains(item.id())) {
        match list.iter().find(|known| known.id() == item.id()) {
            Some(known) if known.comparable() == item.comparable() => {}
            Some(_) => return Err(SharedStateCopyError::Different { kind: T::KIND, id: item.id().to_owned() }),
            None => added.push(item.clone()),
        }
    }
    let count = list.len() + added.len();
    if !added.is_empty() && count > T::count_max() {
        return Err(SharedStateCopyError::TooMany { kind: T::KIND, count, count_max: T::count_max() });
    }
    list.extend(added.iter().cloned());
    Ok(added)
}

async fn read_list<T: CopyableSharedStateItem>(records: &dyn SharedRecords) -> Result<Vec<T>, SharedStateCopyError> {
    let record = read_whole_record(records, T::RECORD).await?;
    parse_list(record.as_ref().map(|(_, bytes)| bytes.as_slice()))
}

fn parse_list<T: CopyableSharedStateItem>(bytes: Option<&[u8]>) -> Result<Vec<T>, SharedStateCopyError> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    serde_json::from_slice(bytes).map_err(|error| SharedStateCopyError::InvalidRecord(T::RECORD, error))
}

async fn read_copied_ids(records: &dyn SharedRecords) -> Result<CopiedKeyAndWebhookIds, SharedStateCopyError> {
    let Some((_, bytes)) = read_whole_record(records, COPIED_RECORD).await? else {
        return Ok(CopiedKeyAndWebhookIds::default());
    };
    serde_json::from_slice(&bytes).map_err(|error| SharedStateCopyError::InvalidRecord("marks of a migration", error))
}

async fn list_session_uids(sessions: &dyn SessionCatalog) -> Result<BTreeSet<SessionUid>, StoreError> {
    let mut uids = BTreeSet::new();
    let mut query = SessionQuery::newest(CHANGES_SESSIONS_MAX);
    loop {
        let page = sessions.list_sessions(&query).await?;
        uids.extend(page.entries.iter().map(|entry| entry.uid));
        match page.next_cursor {
            Some(next) => query.after_cursor = Some(next),
            None => return Ok(uids),
        }
    }
}
