//! A SQLite store in a temporary folder, as a fixture for the conformance suite.

use std::path::PathBuf;
use std::sync::Arc;

use segue_store::conformance::StoreFixture;
use segue_store::sqlite::{SqliteOptions, SqliteStore};
use segue_store::{Store, StoreClock};

#[derive(Debug)]
pub(crate) struct SqliteFile {
    folder: tempfile::TempDir,
    clock: StoreClock,
}

impl SqliteFile {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder"), clock: StoreClock::system() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("new folder").join("segue.db")
    }

    /// Returns the path of the write-ahead log.
    pub(crate) fn wal_path(&self) -> PathBuf {
        self.path().with_extension("db-wal")
    }

    /// Returns every byte of every file, each as one character.
    pub(crate) fn all_bytes(&self) -> String {
        let folder = self.path().parent().expect("a parent").to_owned();
        let files = std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path());
        let bytes = files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).expect("read"));
        bytes.map(char::from).collect()
    }
}

impl StoreFixture for SqliteFile {
    fn open_store(&self) -> Arc<dyn Store> {
        let options = SqliteOptions { clock: Some(self.clock.clone()), ..SqliteOptions::default() };
        Arc::new(SqliteStore::open_with_options(self.path(), &options).expect("opens"))
    }

    fn body_count(&self) -> usize {
        let db = rusqlite::Connection::open(self.path()).expect("opens");
        db.query_row("SELECT count(*) FROM bodies", [], |row| row.get(0)).expect("counts")
    }

    fn contains_text(&self, marker: &str) -> bool {
        self.all_bytes().contains(marker)
    }

    fn clock(&self) -> StoreClock {
        self.clock.clone()
    }
}
