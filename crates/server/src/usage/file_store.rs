//! Stores usage in the data folder: one file of JSON lines per day, to which every process on this machine appends. Each
//! process reads what the others appended. A line names a session only by a hash.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use segue_core::ids::{SessionId, UnixMillis};
use segue_core::session::UsageTotals;
use segue_engine::{SessionUsageChange, UsageAmounts};
use serde::{Deserialize, Serialize};

use super::{ApiKeyDailyUsage, ApiKeyUsageStore, UtcDay, hash_root_session, hash_session};
use crate::files::create_private_folder;
use crate::limits::USAGE_DAYS_KEPT;

const USAGE_FOLDER: &str = "usage";

/// Stores the usage of keys in files.
#[derive(Debug, Clone)]
pub(crate) struct FileApiKeyUsageStore(Arc<FileApiKeyUsageStoreInner>);

#[derive(Debug)]
struct FileApiKeyUsageStoreInner {
    folder: PathBuf,
    folded: Mutex<ApiKeyUsageReadFromFiles>,
}

/// What the files contain, as far as they were read.
#[derive(Debug, Default)]
struct ApiKeyUsageReadFromFiles {
    /// How far each file was read.
    offsets: BTreeMap<UtcDay, u64>,
    accounts: HashMap<(UtcDay, String), ApiKeyDailyUsage>,
    payers: HashMap<String, ValueWithUtcDay<Option<String>>>,
    /// The totals of a session's ledger that were recorded.
    recorded: HashMap<String, ValueWithUtcDay<RecordedSessionUsage>>,
}

#[derive(Debug)]
struct RecordedSessionUsage {
    /// The key that paid for the last change.
    key: String,
    total: SessionUsageTotals,
}

/// Everything that the files contain. Sessions are hashes.
#[derive(Debug, Default)]
pub(super) struct ApiKeyUsageFileContents {
    /// What each key used on each day.
    pub(super) accounts: Vec<(UtcDay, String, UsageAmounts)>,
    /// The key that pays for a session, and since when.
    pub(super) payers: Vec<(UtcDay, String, String)>,
    /// The recorded total of a session, with the day and the key of its last change.
    pub(super) totals: Vec<(UtcDay, String, String, UsageAmounts)>,
}

#[derive(Debug)]
struct ValueWithUtcDay<T> {
    day: UtcDay,
    value: T,
}

/// A line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ApiKeyUsageFileLine {
    Payer { session: String, key: Option<String> },
    Usage { session: String, key: String, added: SessionUsageTotals, total: SessionUsageTotals },
}

/// The part of a ledger's totals that counts.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct SessionUsageTotals {
    cost_microusd: u64,
    input_tokens: u64,
    output_tokens: u64,
    unpriced_answers: u64,
}

impl SessionUsageTotals {
    fn from_ledger(totals: &UsageTotals) -> Self {
        Self {
            cost_microusd: totals.cost_microusd,
            input_tokens: totals.input_tokens,
            output_tokens: totals.output_tokens,
            unpriced_answers: u64::from(totals.unpriced_answers),
        }
    }

    fn to_amounts(self) -> UsageAmounts {
        let Self { cost_microusd, input_tokens, output_tokens, unpriced_answers } = self;
        UsageAmounts { cost_microusd, input_tokens, output_tokens, unpriced_answers }
    }

    fn subtract(&self, other: &Self) -> Self {
        Self {
            cost_microusd: self.cost_microusd.saturating_sub(other.cost_microusd),
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            unpriced_answers: self.unpriced_answers.saturating_sub(other.unpriced_answers),
        }
    }

    fn is_zero(&self) -> bool {
        self.cost_microusd == 0 && self.input_tokens == 0 && self.output_tokens == 0 && self.unpriced_answers == 0
    }
}

impl FileApiKeyUsageStore {
    /// Creates a store in a data folder. Nothing is read or written yet.
    #[must_use]
    pub(crate) fn from_folder(folder: &Path) -> Self {
        Self(Arc::new(FileApiKeyUsageStoreInner { folder: folder.join(USAGE_FOLDER), folded: Mutex::default() }))
    }

    /// Reads everything that still counts.
    pub(super) fn read_everything(&self, now: UnixMillis) -> io::Result<ApiKeyUsageFileContents> {
        self.0.with_current_usage(UtcDay::from_time(now), |folded| Ok(folded.to_stored_usage()))
    }
}

impl FileApiKeyUsageStoreInner {
    /// Reads what was appended since the last time, and passes everything to `work`.
    fn with_current_usage<T>(
        &self,
        today: UtcDay,
        work: impl FnOnce(&mut ApiKeyUsageReadFromFiles) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut folded = self.folded.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_appended_lines(today, &mut folded)?;
        work(&mut folded)
    }

    fn read_appended_lines(&self, today: UtcDay, folded: &mut ApiKeyUsageReadFromFiles) -> io::Result<()> {
        // Only the files of today and yesterday can still grow.
        let days_back = if folded.offsets.is_empty() { USAGE_DAYS_KEPT } else { 2 };
        if !folded.offsets.contains_key(&today) {
            self.drop_old_days(today, folded);
        }
        for day in (today.0.saturating_sub(days_back.saturating_sub(1))..=today.0).map(UtcDay) {
            let offset = folded.offsets.get(&day).copied().unwrap_or_default();
            let lines = match read_from(&self.day_path(day), offset) {
                Ok(lines) => lines,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            // The rest is a line that another process has not finished.
            let complete = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            for line in lines[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice(line) {
                    Ok(line) => folded.apply_line(day, line),
                    // The end of a write that a power cut interrupted.
                    Err(_) => tracing::warn!(%day, "a line of the usage file cannot be read; it is ignored"),
                }
            }
            folded.offsets.insert(day, offset + complete as u64);
        }
        Ok(())
    }

    /// Forgets days that no longer count, and deletes their files.
    fn drop_old_days(&self, today: UtcDay, folded: &mut ApiKeyUsageReadFromFiles) {
        let first_kept = UtcDay(today.0.saturating_sub(USAGE_DAYS_KEPT.saturating_sub(1)));
        folded.offsets.retain(|day, _| *day >= first_kept);
        folded.accounts.retain(|(day, _), _| *day >= first_kept);
        folded.payers.retain(|_, payer| payer.day >= first_kept);
        folded.recorded.retain(|_, recorded| recorded.day >= first_kept);
        let oldest_name = self.day_path(first_kept);
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.path() < oldest_name && entry.path().extension().is_some_and(|ending| ending == "jsonl") {
                // If it cannot be removed now, the next process tries again.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn append_line(&self, day: UtcDay, line: &ApiKeyUsageFileLine) -> io::Result<File> {
        create_private_folder(&self.folder)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(self.day_path(day))?;
        let mut bytes = Vec::new();
        if !ends_with_newline(&mut file)? {
            bytes.push(b'\n');
        }
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
        // One write, so that lines of several processes do not mix.
        file.write_all(&bytes)?;
        Ok(file)
    }

    fn day_path(&self, day: UtcDay) -> PathBuf {
        self.folder.join(format!("{day}.jsonl"))
    }
}

impl ApiKeyUsageReadFromFiles {
    fn apply_line(&mut self, day: UtcDay, line: ApiKeyUsageFileLine) {
        match line {
            ApiKeyUsageFileLine::Payer { session, key } => {
                self.payers.insert(session, ValueWithUtcDay { day, value: key });
            }
            ApiKeyUsageFileLine::Usage { session, key, added, total } => {
                let account = self.accounts.entry((day, key.clone())).or_default();
                account.cost_microusd = account.cost_microusd.saturating_add(added.cost_microusd);
                account.input_tokens = account.input_tokens.saturating_add(added.input_tokens);
                account.output_tokens = account.output_tokens.saturating_add(added.output_tokens);
                account.unpriced_answers = account.unpriced_answers.saturating_add(added.unpriced_answers);
                self.recorded.insert(session, ValueWithUtcDay { day, value: RecordedSessionUsage { key, total } });
            }
        }
    }

    fn to_stored_usage(&self) -> ApiKeyUsageFileContents {
        let accounts = self.accounts.iter().map(|((day, key), used)| {
            let ApiKeyDailyUsage { cost_microusd, input_tokens, output_tokens, unpriced_answers } = *used;
            (*day, key.clone(), UsageAmounts { cost_microusd, input_tokens, output_tokens, unpriced_answers })
        });
        let payers = self.payers.iter().filter_map(|(session, payer)| {
            let key = payer.value.clone()?;
            Some((payer.day, session.clone(), key))
        });
        let totals = self.recorded.iter().map(|(session, ValueWithUtcDay { day, value })| {
            (*day, session.clone(), value.key.clone(), value.total.to_amounts())
        });
        ApiKeyUsageFileContents { accounts: accounts.collect(), payers: payers.collect(), totals: totals.collect() }
    }

    fn payer(&self, session: &str) -> Option<&str> {
        self.payers.get(session).and_then(|payer| payer.value.as_deref())
    }
}

#[async_trait]
impl ApiKeyUsageStore for FileApiKeyUsageStore {
    async fn set_payer(&self, session: &SessionId, key: Option<&str>, now: UnixMillis) -> io::Result<()> {
        let (files, today) = (self.0.clone(), UtcDay::from_time(now));
        let (session, key) = (hash_root_session(session), key.map(str::to_owned));
        let is_known = files.with_current_usage(today, |folded| {
            // Without a payer, nothing has to be stored.
            Ok(folded.payers.get(&session).map_or(key.is_none(), |payer| payer.value == key && payer.day == today))
        })?;
        if is_known {
            return Ok(());
        }
        let written = tokio::task::spawn_blocking(move || {
            files.append_line(today, &ApiKeyUsageFileLine::Payer { session, key })?.sync_data()
        });
        written.await.map_err(io::Error::other)?
    }

    async fn find_payer(&self, session: &SessionId, now: UnixMillis) -> io::Result<Option<String>> {
        let session = hash_root_session(session);
        self.0.with_current_usage(UtcDay::from_time(now), |folded| Ok(folded.payer(&session).map(str::to_owned)))
    }

    async fn record_usage(&self, key: &str, change: &SessionUsageChange, now: UnixMillis) -> io::Result<()> {
        let today = UtcDay::from_time(now);
        let session = hash_session(change);
        let (before, total) =
            (SessionUsageTotals::from_ledger(&change.before), SessionUsageTotals::from_ledger(&change.after));
        self.0.with_current_usage(today, |folded| {
            // A process that died may have committed an answer without recording it here.
            let start = folded.recorded.get(&session).map_or(before, |recorded| recorded.value.total);
            let added = total.subtract(&start);
            if added.is_zero() {
                return Ok(());
            }
            self.0
                .append_line(today, &ApiKeyUsageFileLine::Usage { session, key: key.to_owned(), added, total })
                .map(drop)
        })
    }

    async fn read_usage(&self, key: &str, now: UnixMillis) -> io::Result<ApiKeyDailyUsage> {
        let today = UtcDay::from_time(now);
        self.0.with_current_usage(today, |folded| {
            Ok(folded.accounts.get(&(today, key.to_owned())).copied().unwrap_or_default())
        })
    }
}

fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() <= offset {
        return Ok(Vec::new());
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_795_000_000_000);
    const TOMORROW: UnixMillis = UnixMillis(NOW.0 + 86_400_000);

    fn change(session: &str, before: u64, after: u64) -> SessionUsageChange {
        let totals = |tokens| UsageTotals { input_tokens: tokens, cost_microusd: 2 * tokens, ..UsageTotals::default() };
        SessionUsageChange {
            session: session.into(),
            session_opened_at: UnixMillis(1),
            before: totals(before),
            after: totals(after),
        }
    }

    #[tokio::test]
    async fn usage_survives_a_restart_and_resets_at_midnight() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileApiKeyUsageStore::from_folder(folder.path());
        store.set_payer(&"fox".into(), Some("k1"), NOW).await.expect("stored");
        store.record_usage("k1", &change("fox", 0, 10), NOW).await.expect("stored");
        store.record_usage("k1", &change("fox~1", 0, 5), NOW).await.expect("stored");
        let restarted = FileApiKeyUsageStore::from_folder(folder.path());
        let usage = restarted.read_usage("k1", NOW).await.expect("read");
        assert_eq!((usage.input_tokens, usage.cost_microusd), (15, 30));
        assert_eq!(restarted.read_usage("k2", NOW).await.expect("read"), ApiKeyDailyUsage::default());
        assert_eq!(restarted.read_usage("k1", TOMORROW).await.expect("read"), ApiKeyDailyUsage::default());
        for session in ["fox", "fox~1", "fox~1~2"] {
            let payer = restarted.find_payer(&session.into(), TOMORROW).await.expect("read");
            assert_eq!(payer.as_deref(), Some("k1"), "{session}");
        }
        assert_eq!(restarted.find_payer(&"hen".into(), NOW).await.expect("read"), None);
    }

    #[tokio::test]
    async fn processes_see_what_others_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) =
            (FileApiKeyUsageStore::from_folder(folder.path()), FileApiKeyUsageStore::from_folder(folder.path()));
        assert_eq!(one.read_usage("k1", NOW).await.expect("read"), ApiKeyDailyUsage::default());
        other.record_usage("k1", &change("fox", 0, 10), NOW).await.expect("stored");
        assert_eq!(one.read_usage("k1", NOW).await.expect("read").input_tokens, 10);
    }

    #[tokio::test]
    async fn change_that_was_not_recorded_is_added_with_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileApiKeyUsageStore::from_folder(folder.path());
        store.record_usage("k1", &change("fox", 0, 10), NOW).await.expect("stored");
        // The change from 10 to 30 was committed, but the process died.
        store.record_usage("k1", &change("fox", 30, 31), NOW).await.expect("stored");
        assert_eq!(store.read_usage("k1", NOW).await.expect("read").input_tokens, 31);
        store.record_usage("k1", &change("fox", 30, 31), NOW).await.expect("stored");
        assert_eq!(store.read_usage("k1", NOW).await.expect("read").input_tokens, 31, "a repetition adds nothing");
    }

    #[tokio::test]
    async fn torn_line_is_ignored_and_names_are_not_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileApiKeyUsageStore::from_folder(folder.path());
        store.set_payer(&"secret-name".into(), Some("k1"), NOW).await.expect("stored");
        let path = folder.path().join("usage/2026-11-18.jsonl");
        let mut file = OpenOptions::new().append(true).open(&path).expect("there");
        file.write_all(b"{\"usage\":{\"ses").expect("written");
        store.record_usage("k1", &change("secret-name", 0, 10), NOW).await.expect("stored");
        let restarted = FileApiKeyUsageStore::from_folder(folder.path());
        assert_eq!(restarted.read_usage("k1", NOW).await.expect("read").input_tokens, 10);
        assert!(!std::fs::read_to_string(&path).expect("text").contains("secret-name"));
    }

    #[tokio::test]
    async fn old_files_are_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        FileApiKeyUsageStore::from_folder(folder.path())
            .record_usage("k1", &change("fox", 0, 10), NOW)
            .await
            .expect("stored");
        let later = UnixMillis(NOW.0 + USAGE_DAYS_KEPT * 86_400_000);
        FileApiKeyUsageStore::from_folder(folder.path()).read_usage("k1", later).await.expect("read");
        assert!(!folder.path().join("usage/2026-11-18.jsonl").exists());
    }
}
