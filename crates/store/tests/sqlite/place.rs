//! A SQLite store in a temporary folder, as the conformance suite wants it.

use std::path::PathBuf;
use std::sync::Arc;

use segue_store::Store;
use segue_store::conformance::StoreFixture;
use segue_store::sqlite::SqliteStore;

#[derive(Debug)]
pub struct File {
    folder: tempfile::TempDir,
}

impl File {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("new folder").join("segue.db")
    }

    /// The file SQLite logs to.
    pub fn wal(&self) -> PathBuf {
        self.path().with_extension("db-wal")
    }

    /// Every byte of every file, each as one character.
    pub fn at_rest(&self) -> String {
        let folder = self.path().parent().expect("a parent").to_owned();
        let files = std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path());
        let bytes = files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).expect("read"));
        bytes.map(char::from).collect()
    }
}

impl StoreFixture for File {
    fn open_store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.path()).expect("opens"))
    }

    fn body_count(&self) -> usize {
        let db = rusqlite::Connection::open(self.path()).expect("opens");
        db.query_row("SELECT count(*) FROM bodies", [], |row| row.get(0)).expect("counts")
    }

    fn contains_text(&self, marker: &str) -> bool {
        self.at_rest().contains(marker)
    }
}
