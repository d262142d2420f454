//! API keys. A key is shown once, when it is created; only its hash is stored, in a file in the store's folder. The secret is
//! random and long, so a plain hash is enough. It is compared in constant time.
//!
//! Several processes may share the file. It is replaced atomically and read again when it has changed, so a running server
//! rejects a revoked key within a moment.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use segue_core::ids::FlowName;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller::{Caller, validate_owner_name};
use crate::limits::{KEY_NAME_CHARS_MAX, KEYS_CACHE_MS, KEYS_MAX};
use crate::usage::KeyLimits;

/// The prefix of every key.
pub(crate) const KEY_PREFIX: &str = "sg_";
/// The name of the file.
pub(crate) const KEYS_FILE: &str = "keys.json";

const KEY_ID_BYTES: usize = 6;
const KEY_SECRET_BYTES: usize = 32;

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerApiKey {
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
    #[serde(default, skip_serializing_if = "KeyLimits::is_empty")]
    pub limits: KeyLimits,
}

/// A key to create.
#[derive(Debug, Clone, Default)]
pub struct ServerApiKeySpec {
    /// A name for people.
    pub name: String,
    /// The owner whose sessions the key opens; `None` for all sessions.
    pub owner: Option<String>,
    /// The flows that the key may use; `None` for all flows.
    pub flows: Option<BTreeSet<FlowName>>,
    pub limits: KeyLimits,
}

/// Why keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("cannot access the keys file {path}")]
    FileAccess { path: PathBuf, source: std::io::Error },
    /// The file is not a list of keys.
    #[error("the keys file {path} is invalid; restore it, or delete it and create new keys")]
    InvalidFile { path: PathBuf, source: serde_json::Error },
    /// The new key has an invalid name or owner, or there are too many keys.
    #[error("{0}")]
    InvalidKey(String),
    /// There is no key with that id.
    #[error("there is no key `{0}`; `segue keys` lists all keys")]
    NoSuchKey(String),
}

/// The keys in a file, cached for a moment.
#[derive(Debug)]
pub struct ApiKeyStore {
    path: PathBuf,
    cache: Mutex<CachedKeysFile>,
}

#[derive(Debug, Default)]
struct CachedKeysFile {
    keys: Vec<ServerApiKey>,
    file_stamp: Option<(SystemTime, u64)>,
    checked_at: Option<Instant>,
}

impl ApiKeyStore {
    /// Creates a store of the keys in a folder.
    #[must_use]
    pub fn from_folder(folder: &Path) -> Self {
        Self { path: folder.join(KEYS_FILE), cache: Mutex::default() }
    }

    /// Returns all keys.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn list_keys(&self) -> Result<Vec<ServerApiKey>, Error> {
        read_keys_file(&self.path)
    }

    /// Creates a key. Returns it with its secret text, which cannot be recovered later.
    ///
    /// # Errors
    /// The name or owner is invalid, there are too many keys, or the file cannot be written.
    pub fn create_key(&self, new: ServerApiKeySpec, created: u64) -> Result<(ServerApiKey, String), Error> {
        if new.name.trim().is_empty() || new.name.chars().count() > KEY_NAME_CHARS_MAX {
            return Err(Error::InvalidKey(format!("a key's name must have 1 to {KEY_NAME_CHARS_MAX} characters")));
        }
        if let Some(owner) = &new.owner {
            validate_owner_name(owner).map_err(Error::InvalidKey)?;
        }
        let mut keys = read_keys_file(&self.path)?;
        if keys.len() >= KEYS_MAX {
            return Err(Error::InvalidKey(format!(
                "there are {KEYS_MAX} keys, which is the maximum; revoke one first"
            )));
        }
        let id = loop {
            let id = random_hex(KEY_ID_BYTES)?;
            if keys.iter().all(|key| key.id != id) {
                break id;
            }
        };
        let secret = random_hex(KEY_SECRET_BYTES)?;
        let ServerApiKeySpec { name, owner, flows, limits } = new;
        let key = ServerApiKey { hash: hash_secret(&secret), name, created, owner, flows, limits, id: id.clone() };
        keys.push(key.clone());
        write_keys_file(&self.path, &keys)?;
        Ok((key, format!("{KEY_PREFIX}{id}_{secret}")))
    }

    /// Replaces the limits of a key.
    ///
    /// # Errors
    /// There is no key with that id, or the file cannot be written.
    pub fn set_limits(&self, id: &str, limits: KeyLimits) -> Result<ServerApiKey, Error> {
        let mut keys = read_keys_file(&self.path)?;
        let key = keys.iter_mut().find(|key| key.id == id).ok_or_else(|| Error::NoSuchKey(id.to_owned()))?;
        key.limits = limits;
        let key = key.clone();
        write_keys_file(&self.path, &keys)?;
        Ok(key)
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// There is no key with that id, or the file cannot be written.
    pub fn revoke_key(&self, id: &str) -> Result<ServerApiKey, Error> {
        let mut keys = read_keys_file(&self.path)?;
        let index = keys.iter().position(|key| key.id == id).ok_or_else(|| Error::NoSuchKey(id.to_owned()))?;
        let key = keys.remove(index);
        write_keys_file(&self.path, &keys)?;
        Ok(key)
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.with_current_keys(|keys| keys.is_empty())
    }

    /// Returns the caller that a key belongs to; `None` for an unknown key.
    #[must_use]
    pub(crate) fn authenticate_key(&self, key: &str) -> Option<Caller> {
        let (id, secret) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let given = hash_secret(secret);
        self.with_current_keys(|keys| {
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
        })
    }

    /// Returns the keys that are accepted now.
    #[must_use]
    pub(crate) fn current_keys(&self) -> Vec<ServerApiKey> {
        self.with_current_keys(<[ServerApiKey]>::to_vec)
    }

    /// Returns the key with an id.
    #[must_use]
    pub(crate) fn find_key(&self, id: &str) -> Option<ServerApiKey> {
        self.with_current_keys(|keys| keys.iter().find(|key| key.id == id).cloned())
    }

    /// Waits until the caller's key is revoked; forever if the caller needed no key.
    pub(crate) async fn wait_for_revocation(&self, caller: &Caller) {
        let Some(id) = &caller.key_id else { return std::future::pending().await };
        while self.with_current_keys(|keys| keys.iter().any(|key| key.id == *id)) {
            tokio::time::sleep(Duration::from_millis(KEYS_CACHE_MS)).await;
        }
    }

    /// Passes the current keys to `work`. An unreadable file counts as empty.
    fn with_current_keys<T>(&self, work: impl FnOnce(&[ServerApiKey]) -> T) -> T {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = cache.checked_at.is_some_and(|at| at.elapsed() < Duration::from_millis(KEYS_CACHE_MS));
        if !is_fresh {
            let file_stamp = read_file_stamp(&self.path);
            if file_stamp != cache.file_stamp || file_stamp.is_none() {
                cache.keys = read_keys_file(&self.path).unwrap_or_else(|error| {
                    tracing::error!(%error, "no key is accepted");
                    Vec::new()
                });
                cache.file_stamp = file_stamp;
            }
            cache.checked_at = Some(Instant::now());
        }
        work(&cache.keys)
    }
}

/// Returns what changes with the file. Errors may be dropped: reading the file returns them too.
fn read_file_stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_keys_file(path: &Path) -> Result<Vec<ServerApiKey>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::FileAccess { path: path.to_owned(), source }),
    };
    serde_json::from_slice(&bytes).map_err(|source| Error::InvalidFile { path: path.to_owned(), source })
}

fn write_keys_file(path: &Path, keys: &[ServerApiKey]) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(keys).expect("keys are plain JSON");
    crate::files::replace_file(path, text.as_bytes())
        .map_err(|source| Error::FileAccess { path: path.to_owned(), source })
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

    #[test]
    fn key_is_accepted_only_unchanged() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        assert!(keys.is_empty());
        let new = ServerApiKeySpec { name: "laptop".into(), owner: Some("acme".into()), ..ServerApiKeySpec::default() };
        let (key, secret) = ApiKeyStore::from_folder(folder.path()).create_key(new, 7).expect("made");
        let stored = std::fs::read_to_string(folder.path().join(KEYS_FILE)).expect("written");
        let (_, hidden) = secret.rsplit_once('_').expect("a secret");
        assert!(!stored.contains(hidden), "only a hash is stored");
        let keys = ApiKeyStore::from_folder(folder.path());
        let caller = keys.authenticate_key(&secret).expect("known");
        assert_eq!((caller.key_id.as_deref(), caller.owner.as_deref()), (Some(key.id.as_str()), Some("acme")));
        for wrong in [format!("{secret}0"), secret.replace("sg_", "sg-"), format!("sg_{}_", key.id), "sg_".into()] {
            assert_eq!(keys.authenticate_key(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn revoked_key_is_refused() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        let (key, secret) =
            keys.create_key(ServerApiKeySpec { name: "a".into(), ..ServerApiKeySpec::default() }, 1).expect("made");
        assert_eq!(keys.revoke_key(&key.id).expect("there").id, key.id);
        assert!(ApiKeyStore::from_folder(folder.path()).authenticate_key(&secret).is_none());
        assert!(matches!(keys.revoke_key(&key.id), Err(Error::NoSuchKey(_))));
    }

    #[test]
    fn invalid_names_are_refused() {
        let keys = ApiKeyStore::from_folder(folder().path());
        let add = |name: &str, owner: Option<&str>| {
            let owner = owner.map(Into::into);
            keys.create_key(ServerApiKeySpec { name: name.into(), owner, ..ServerApiKeySpec::default() }, 1)
        };
        assert!(matches!(add(" ", None), Err(Error::InvalidKey(_))));
        assert!(matches!(add("a", Some("a.b")), Err(Error::InvalidKey(_))));
    }

    #[cfg(unix)]
    #[test]
    fn keys_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        ApiKeyStore::from_folder(folder.path())
            .create_key(ServerApiKeySpec { name: "a".into(), ..ServerApiKeySpec::default() }, 1)
            .expect("made");
        let mode = std::fs::metadata(folder.path().join(KEYS_FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
