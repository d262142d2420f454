//! API keys. A key is shown once, when it is created; only its hash is stored, in one record that all servers share. The secret
//! is random and long, so a plain hash is enough. It is compared in constant time.
//!
//! The record is read again when it has changed, so every running server rejects a revoked key within a moment.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use segue_core::ids::FlowName;
use segue_engine::{SharedRecordReadOutcome, SharedRecordVersion, SharedRecords, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller::{Caller, validate_owner_name};
use crate::limits::{KEY_NAME_CHARS_MAX, KEYS_CACHE_MS, KEYS_MAX};
use crate::shared_state::{CrossServerSharedState, read_whole_record, update_record};
use crate::usage::ApiKeyLimits;

/// The prefix of every key.
pub(crate) const KEY_PREFIX: &str = "sg_";
/// The name of the record.
pub(crate) const KEYS_RECORD: &str = "keys";

const KEY_ID_BYTES: usize = 6;
const KEY_SECRET_BYTES: usize = 32;

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredApiKey {
    /// The public part of the key.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The hash of the secret part, in hexadecimal.
    pub hash: String,
    /// In milliseconds since 1970.
    pub created: u64,
    /// The owner whose sessions the key opens; `None` for all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The flows that the key may use; `None` for all flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<BTreeSet<FlowName>>,
    #[serde(default, skip_serializing_if = "ApiKeyLimits::is_empty")]
    pub limits: ApiKeyLimits,
}

/// A key to create.
#[derive(Debug, Clone, Default)]
pub struct ApiKeyToCreate {
    /// A name for people.
    pub name: String,
    /// The owner whose sessions the key opens; `None` for all sessions.
    pub owner: Option<String>,
    /// The flows that the key may use; `None` for all flows.
    pub flows: Option<BTreeSet<FlowName>>,
    pub limits: ApiKeyLimits,
}

/// Why keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keys cannot be read or written.
    #[error("cannot access the keys")]
    Access(#[from] StoreError),
    /// The record is not a list of keys.
    #[error("the stored keys are invalid; restore keys.json or the database, or delete them and create new keys")]
    InvalidRecord(#[source] serde_json::Error),
    /// The new key has an invalid name or owner, or there are too many keys.
    #[error("{0}")]
    InvalidKey(String),
    /// There is no key with that id.
    #[error("there is no key `{0}`; `segue keys` lists all keys")]
    NoSuchKey(String),
}

/// The keys of all servers of a store, cached for a moment.
#[derive(Debug)]
pub struct ApiKeyStore {
    records: Arc<dyn SharedRecords>,
    cache: Mutex<CachedApiKeys>,
    /// Held by the task that reads the record again. The others wait for it.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct CachedApiKeys {
    keys: Arc<Vec<StoredApiKey>>,
    version: Option<SharedRecordVersion>,
    checked_at: Option<Instant>,
}

impl ApiKeyStore {
    /// Creates a store of the keys in a folder.
    #[must_use]
    pub fn from_folder(folder: &Path) -> Self {
        CrossServerSharedState::from_folder(folder).keys()
    }

    pub(crate) fn new(records: Arc<dyn SharedRecords>) -> Self {
        Self { records, cache: Mutex::default(), refreshing: tokio::sync::Mutex::default() }
    }

    /// Returns all keys.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn list_keys(&self) -> Result<Vec<StoredApiKey>, Error> {
        let record = read_whole_record(self.records.as_ref(), KEYS_RECORD).await?;
        parse_keys(record.as_ref().map(|(_, bytes)| bytes.as_slice()))
    }

    /// Creates a key. Returns it with its secret text, which cannot be recovered later.
    ///
    /// # Errors
    /// The name or owner is invalid, there are too many keys, or the keys cannot be written.
    pub async fn create_key(&self, new: ApiKeyToCreate, created: u64) -> Result<(StoredApiKey, String), Error> {
        if new.name.trim().is_empty() || new.name.chars().count() > KEY_NAME_CHARS_MAX {
            return Err(Error::InvalidKey(format!("a key's name must have 1 to {KEY_NAME_CHARS_MAX} characters")));
        }
        if let Some(owner) = &new.owner {
            validate_owner_name(owner).map_err(Error::InvalidKey)?;
        }
        let secret = random_hex(KEY_SECRET_BYTES)?;
        let id = random_hex(KEY_ID_BYTES)?;
        let ApiKeyToCreate { name, owner, flows, limits } = new;
        let key = StoredApiKey { hash: hash_secret(&secret), name, created, owner, flows, limits, id };
        self.change_keys(|keys| {
            if keys.len() >= KEYS_MAX {
                let detail = format!("there are {KEYS_MAX} keys, which is the maximum; revoke one first");
                return Err(Error::InvalidKey(detail));
            }
            if keys.iter().any(|known| known.id == key.id) {
                return Err(Error::InvalidKey("the new key has the id of another; create it again".to_owned()));
            }
            keys.push(key.clone());
            Ok(())
        })
        .await?;
        let text = format!("{KEY_PREFIX}{}_{secret}", key.id);
        Ok((key, text))
    }

    /// Replaces the limits of a key.
    ///
    /// # Errors
    /// There is no key with that id, or they cannot be written.
    pub async fn set_limits(&self, id: &str, limits: ApiKeyLimits) -> Result<StoredApiKey, Error> {
        self.change_keys(|keys| {
            let key = keys.iter_mut().find(|key| key.id == id).ok_or_else(|| Error::NoSuchKey(id.to_owned()))?;
            key.limits = limits.clone();
            Ok(key.clone())
        })
        .await
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// There is no key with that id, or they cannot be written.
    pub async fn revoke_key(&self, id: &str) -> Result<StoredApiKey, Error> {
        self.change_keys(|keys| {
            let index = keys.iter().position(|key| key.id == id).ok_or_else(|| Error::NoSuchKey(id.to_owned()))?;
            Ok(keys.remove(index))
        })
        .await
    }

    pub(crate) async fn is_empty(&self) -> bool {
        self.current_keys().await.is_empty()
    }

    /// Returns the caller that a key belongs to; `None` for an unknown key.
    pub(crate) async fn authenticate_key(&self, key: &str) -> Option<Caller> {
        let (id, secret) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let given = hash_secret(secret);
        let keys = self.current_keys().await;
        let found = keys.iter().find(|key| key.id == id);
        // A hash is compared even for an unknown id, so that timing does not reveal which ids exist.
        let stored = found.map_or_else(|| hash_secret(""), |key| key.hash.clone());
        let matches = bool::from(stored.as_bytes().ct_eq(given.as_bytes()));
        let key = found.filter(|_| matches)?;
        Some(Caller {
            key_id: Some(key.id.clone()),
            owner: key.owner.clone(),
            allowed_flows: key.flows.clone(),
            limits: Arc::new(key.limits.clone()),
        })
    }

    /// Returns the key with an id.
    pub(crate) async fn find_key(&self, id: &str) -> Option<StoredApiKey> {
        self.current_keys().await.iter().find(|key| key.id == id).cloned()
    }

    /// Waits until the caller's key is revoked; forever if the caller needed no key.
    pub(crate) async fn wait_for_revocation(&self, caller: &Caller) {
        let Some(id) = &caller.key_id else { return std::future::pending().await };
        while self.find_key(id).await.is_some() {
            tokio::time::sleep(Duration::from_millis(KEYS_CACHE_MS)).await;
        }
    }

    /// Returns the keys that are accepted now. If they cannot be read, the last ones that were read stay valid: a database
    /// that fails over must not turn clients away.
    pub(crate) async fn current_keys(&self) -> Arc<Vec<StoredApiKey>> {
        if let Some(keys) = self.fresh_keys() {
            return keys;
        }
        let _refreshing = self.refreshing.lock().await;
        if let Some(keys) = self.fresh_keys() {
            return keys;
        }
        let known = self.lock_cache().version;
        let read = self.records.read_record(KEYS_RECORD, known).await;
        let mut cache = self.lock_cache();
        match read {
            Ok(SharedRecordReadOutcome::Unchanged) => {}
            Ok(SharedRecordReadOutcome::Missing) => (cache.keys, cache.version) = (Arc::default(), None),
            Ok(SharedRecordReadOutcome::Found { version, bytes }) => {
                let keys = parse_keys(Some(&bytes)).unwrap_or_else(|error| {
                    tracing::error!(%error, "no key is accepted");
                    Vec::new()
                });
                (cache.keys, cache.version) = (Arc::new(keys), Some(version));
            }
            Err(error) => tracing::error!(%error, "the keys cannot be read; the last known ones are accepted"),
        }
        cache.checked_at = Some(Instant::now());
        cache.keys.clone()
    }

    fn fresh_keys(&self) -> Option<Arc<Vec<StoredApiKey>>> {
        let cache = self.lock_cache();
        let is_fresh = cache.checked_at.is_some_and(|at| at.elapsed() < Duration::from_millis(KEYS_CACHE_MS));
        is_fresh.then(|| cache.keys.clone())
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, CachedApiKeys> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the stored keys. Nothing is stored if `change` returns an error.
    async fn change_keys<T>(
        &self,
        mut change: impl FnMut(&mut Vec<StoredApiKey>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        update_record(self.records.as_ref(), KEYS_RECORD, |bytes| {
            let mut keys = parse_keys(bytes)?;
            let value = change(&mut keys)?;
            Ok((serde_json::to_vec_pretty(&keys).expect("keys are plain JSON"), value))
        })
        .await
    }
}

fn parse_keys(bytes: Option<&[u8]>) -> Result<Vec<StoredApiKey>, Error> {
    bytes.map_or_else(|| Ok(Vec::new()), |bytes| serde_json::from_slice(bytes).map_err(Error::InvalidRecord))
}

fn hash_secret(secret: &str) -> String {
    to_hex(&Sha256::digest(secret.as_bytes()))
}

/// Returns random bytes in hexadecimal.
fn random_hex(bytes: usize) -> Result<String, Error> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Error::InvalidKey(format!("the system provides no random bytes: {error}")))?;
    Ok(to_hex(&random))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string cannot fail");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[tokio::test]
    async fn key_is_accepted_only_unchanged() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        assert!(keys.is_empty().await);
        let new = ApiKeyToCreate { name: "laptop".into(), owner: Some("acme".into()), ..ApiKeyToCreate::default() };
        let (key, secret) = ApiKeyStore::from_folder(folder.path()).create_key(new, 7).await.expect("made");
        let stored = std::fs::read_to_string(folder.path().join("keys.json")).expect("written");
        let (_, hidden) = secret.rsplit_once('_').expect("a secret");
        assert!(!stored.contains(hidden), "only a hash is stored");
        let keys = ApiKeyStore::from_folder(folder.path());
        let caller = keys.authenticate_key(&secret).await.expect("known");
        assert_eq!((caller.key_id.as_deref(), caller.owner.as_deref()), (Some(key.id.as_str()), Some("acme")));
        for wrong in [format!("{secret}0"), secret.replace("sg_", "sg-"), format!("sg_{}_", key.id), "sg_".into()] {
            assert_eq!(keys.authenticate_key(&wrong).await, None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn revoked_key_is_refused() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        let (key, secret) =
            keys.create_key(ApiKeyToCreate { name: "a".into(), ..ApiKeyToCreate::default() }, 1).await.expect("made");
        assert_eq!(keys.revoke_key(&key.id).await.expect("there").id, key.id);
        assert!(ApiKeyStore::from_folder(folder.path()).authenticate_key(&secret).await.is_none());
        assert!(matches!(keys.revoke_key(&key.id).await, Err(Error::NoSuchKey(_))));
    }

    #[tokio::test]
    async fn invalid_names_are_refused() {
        let keys = ApiKeyStore::from_folder(folder().path());
        let add = |name: &str, owner: Option<&str>| {
            let owner = owner.map(Into::into);
            keys.create_key(ApiKeyToCreate { name: name.into(), owner, ..ApiKeyToCreate::default() }, 1)
        };
        assert!(matches!(add(" ", None).await, Err(Error::InvalidKey(_))));
        assert!(matches!(add("a", Some("a.b")).await, Err(Error::InvalidKey(_))));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn keys_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        ApiKeyStore::from_folder(folder.path())
            .create_key(ApiKeyToCreate { name: "a".into(), ..ApiKeyToCreate::default() }, 1)
            .await
            .expect("made");
        let mode = std::fs::metadata(folder.path().join("keys.json")).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
