//! Keys: who may ask. A key is shown once, when it is made; what is kept is its hash, in a file beside the store. A key of this
//! form is not guessable, so a plain hash will do; it is compared in constant time.
//!
//! Several processes may share the file. It is replaced as a whole and read again when it changed, so that a revoked key is worth
//! nothing a moment later, also in a server that runs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use segue_core::ids::FlowName;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller::{Caller, validate_owner_name};
use crate::limits::{KEY_NAME_CHARS_MAX, KEYS_CACHE_MS, KEYS_MAX};

/// What every key begins with.
pub const KEY_PREFIX: &str = "sg_";
/// The file that keys are kept in.
pub const KEYS_FILE: &str = "keys.json";

const KEY_ID_BYTES: usize = 6;
const KEY_SECRET_BYTES: usize = 32;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// Names it; part of the key itself.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The hash of its secret, in hexadecimal digits.
    pub hash: String,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// Whose sessions it opens; nothing: everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The flows it may use; nothing: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<BTreeSet<FlowName>>,
}

/// What a new key is to be.
#[derive(Debug, Clone, Default)]
pub struct NewApiKey {
    /// What people call it.
    pub name: String,
    /// Whose sessions it opens.
    pub owner: Option<String>,
    /// The flows it may use.
    pub flows: Option<BTreeSet<FlowName>>,
}

/// Why keys could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("cannot use the file of keys {path}")]
    FileAccess {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not one of ours.
    #[error("the file of keys {path} cannot be understood; restore it, or remove it and make new keys")]
    InvalidFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A key cannot be made like that.
    #[error("{0}")]
    InvalidKey(String),
    /// There is no such key.
    #[error("there is no key `{0}`; `segue keys` lists those there are")]
    NoSuchKey(String),
}

/// The file of keys, as far as it is known.
#[derive(Debug)]
pub struct ApiKeyStore {
    path: PathBuf,
    cache: Mutex<CachedKeysFile>,
}

#[derive(Debug, Default)]
struct CachedKeysFile {
    keys: Vec<ApiKey>,
    file_stamp: Option<(SystemTime, u64)>,
    checked_at: Option<Instant>,
}

impl ApiKeyStore {
    /// The keys in a folder.
    #[must_use]
    pub fn from_folder(folder: &Path) -> Self {
        Self { path: folder.join(KEYS_FILE), cache: Mutex::default() }
    }

    /// All keys.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn list_keys(&self) -> Result<Vec<ApiKey>, Error> {
        read_keys_file(&self.path)
    }

    /// Makes a key. The second part is the key itself, which nobody can tell again.
    ///
    /// # Errors
    /// It cannot be made like that, or not be written down.
    pub fn create_key(&self, new: NewApiKey, created: u64) -> Result<(ApiKey, String), Error> {
        if new.name.trim().is_empty() || new.name.chars().count() > KEY_NAME_CHARS_MAX {
            return Err(Error::InvalidKey(format!("a key's name has 1 to {KEY_NAME_CHARS_MAX} characters")));
        }
        if let Some(owner) = &new.owner {
            validate_owner_name(owner).map_err(Error::InvalidKey)?;
        }
        let mut keys = read_keys_file(&self.path)?;
        if keys.len() >= KEYS_MAX {
            return Err(Error::InvalidKey(format!("there are {KEYS_MAX} keys, the most there may be; revoke some")));
        }
        let id = loop {
            let id = random_hex(KEY_ID_BYTES)?;
            if keys.iter().all(|key| key.id != id) {
                break id;
            }
        };
        let secret = random_hex(KEY_SECRET_BYTES)?;
        let NewApiKey { name, owner, flows } = new;
        let key = ApiKey { hash: hash_secret(&secret), name, created, owner, flows, id: id.clone() };
        keys.push(key.clone());
        write_keys_file(&self.path, &keys)?;
        Ok((key, format!("{KEY_PREFIX}{id}_{secret}")))
    }

    /// Ends a key.
    ///
    /// # Errors
    /// There is none of that id, or the file cannot be written.
    pub fn revoke_key(&self, id: &str) -> Result<ApiKey, Error> {
        let mut keys = read_keys_file(&self.path)?;
        let place = keys.iter().position(|key| key.id == id).ok_or_else(|| Error::NoSuchKey(id.to_owned()))?;
        let key = keys.remove(place);
        write_keys_file(&self.path, &keys)?;
        Ok(key)
    }

    /// Whether there is any key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.with_current_keys(|keys| keys.is_empty())
    }

    /// Whose key this is; nothing if it is nobody's.
    #[must_use]
    pub fn authenticate_key(&self, key: &str) -> Option<Caller> {
        let (id, secret) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let given = hash_secret(secret);
        self.with_current_keys(|keys| {
            let found = keys.iter().find(|key| key.id == id);
            // Compared in any case, so that time does not tell whether the id exists.
            let kept = found.map_or_else(|| hash_secret(""), |key| key.hash.clone());
            let fits = bool::from(kept.as_bytes().ct_eq(given.as_bytes()));
            let key = found.filter(|_| fits)?;
            Some(Caller { key_id: Some(key.id.clone()), owner: key.owner.clone(), allowed_flows: key.flows.clone() })
        })
    }

    /// Does something with the keys as they are now. A file that cannot be read has no keys in it.
    fn with_current_keys<T>(&self, work: impl FnOnce(&[ApiKey]) -> T) -> T {
        let mut seen = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = seen.checked_at.is_some_and(|at| at.elapsed() < Duration::from_millis(KEYS_CACHE_MS));
        if !is_fresh {
            let stamp = read_file_stamp(&self.path);
            if stamp != seen.file_stamp || stamp.is_none() {
                seen.keys = read_keys_file(&self.path).unwrap_or_default();
                seen.file_stamp = stamp;
            }
            seen.checked_at = Some(Instant::now());
        }
        work(&seen.keys)
    }
}

fn read_file_stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn read_keys_file(path: &Path) -> Result<Vec<ApiKey>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::FileAccess { path: path.to_owned(), source }),
    };
    serde_json::from_slice(&bytes).map_err(|source| Error::InvalidFile { path: path.to_owned(), source })
}

fn write_keys_file(path: &Path, keys: &[ApiKey]) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(keys).expect("keys are plain JSON");
    crate::files::replace_file(path, text.as_bytes())
        .map_err(|source| Error::FileAccess { path: path.to_owned(), source })
}

fn hash_secret(secret: &str) -> String {
    to_hex(&Sha256::digest(secret.as_bytes()))
}

/// That many bytes nobody can foresee, in hexadecimal digits.
fn random_hex(bytes: usize) -> Result<String, Error> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Error::InvalidKey(format!("the system gives no random bytes: {error}")))?;
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
    fn a_key_is_known_again_and_only_as_it_was_made() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        assert!(keys.is_empty());
        let new = NewApiKey { name: "laptop".into(), owner: Some("acme".into()), flows: None };
        let (key, secret) = ApiKeyStore::from_folder(folder.path()).create_key(new, 7).expect("made");
        let kept = std::fs::read_to_string(folder.path().join(KEYS_FILE)).expect("written");
        let (_, hidden) = secret.rsplit_once('_').expect("a secret");
        assert!(!kept.contains(hidden), "only a hash is kept");
        let keys = ApiKeyStore::from_folder(folder.path());
        let caller = keys.authenticate_key(&secret).expect("known");
        assert_eq!((caller.key_id.as_deref(), caller.owner.as_deref()), (Some(key.id.as_str()), Some("acme")));
        for wrong in [format!("{secret}0"), secret.replace("sg_", "sg-"), format!("sg_{}_", key.id), "sg_".into()] {
            assert_eq!(keys.authenticate_key(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_revoked_key_is_worth_nothing() {
        let folder = folder();
        let keys = ApiKeyStore::from_folder(folder.path());
        let (key, secret) = keys.create_key(NewApiKey { name: "a".into(), ..NewApiKey::default() }, 1).expect("made");
        assert_eq!(keys.revoke_key(&key.id).expect("there").id, key.id);
        assert!(ApiKeyStore::from_folder(folder.path()).authenticate_key(&secret).is_none());
        assert!(matches!(keys.revoke_key(&key.id), Err(Error::NoSuchKey(_))));
    }

    #[test]
    fn unfit_names_are_refused() {
        let keys = ApiKeyStore::from_folder(folder().path());
        let add = |name: &str, owner: Option<&str>| {
            keys.create_key(NewApiKey { name: name.into(), owner: owner.map(Into::into), flows: None }, 1)
        };
        assert!(matches!(add(" ", None), Err(Error::InvalidKey(_))));
        assert!(matches!(add("a", Some("a.b")), Err(Error::InvalidKey(_))));
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        ApiKeyStore::from_folder(folder.path())
            .create_key(NewApiKey { name: "a".into(), ..NewApiKey::default() }, 1)
            .expect("made");
        let mode = std::fs::metadata(folder.path().join(KEYS_FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
