//! `segue migrate` copies sessions into a database, continues after an interruption, and refuses what it would damage.

use std::path::Path;
use std::process::{Command, Output};

use segue_core::ids::Seq;
use segue_store::postgres::PostgresStore;
use segue_store::sqlite::SqliteStore;
use segue_store::{JournalCommit, JournalReader, JournalWriter, SessionCatalog, SessionQuery};
use segue_testkit::TemporaryPostgres;
use tempfile::TempDir;

/// A node that has ended is forgotten after its lease at the latest; an attempt takes longer than a tenth of a second.
const ATTEMPTS_MAX: usize = 300;

/// A folder with a store file and a scenario.
struct Source(TempDir);

impl Source {
    /// Creates a store with two sessions and a key.
    fn with_sessions() -> Self {
        let source = Self(tempfile::tempdir().expect("a folder"));
        let scenario = "[default]\ntext = \"You said: {{last}}\"\n";
        std::fs::write(source.0.path().join("scenario.toml"), scenario).expect("written");
        for session in ["fox", "hen"] {
            for text in ["a first message", "a second message"] {
                source.send(&source.file(), session, text);
            }
        }
        expect_success(&source.run(&["keys", "add", "laptop", "--store", &source.file()]));
        source
    }

    fn file(&self) -> String {
        self.0.path().join("segue.db").display().to_string()
    }

    fn send(&self, store: &str, session: &str, text: &str) -> String {
        let sent = self.run(&["send", "--script", "scenario.toml", "--session", session, "--store", store, text]);
        expect_success(&sent)
    }

    fn migrate(&self, target: &str) -> Output {
        self.run(&["migrate", &self.file(), target, "--json"])
    }

    /// Migrates when no other program is registered as a node: on a busy machine, one that has ended may still be.
    fn migrate_when_unused(&self, target: &str) -> Output {
        let in_use = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("stop them first");
        let mut attempts = (0..ATTEMPTS_MAX).map(|_| self.migrate(target));
        attempts.find(|output| !in_use(output)).expect("nodes that have ended are forgotten")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).current_dir(self.0.path()).env_clear();
        for folder in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(folder, self.0.path());
        }
        command.output().expect("it runs")
    }
}

fn expect_success(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn expect_refusal(output: &Output, reason: &str) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains(reason), "{text}");
}

#[test]
fn migrated_sessions_are_equal_and_can_be_continued() {
    let (source, target) = (Source::with_sessions(), TemporaryPostgres::shared().create_database());
    let report = expect_success(&source.migrate(&target));
    assert!(report.contains("\"copied_sessions\": 2") && report.contains("\"copied_keys\": 1"), "{report}");
    for session in ["fox", "hen"] {
        let export = |store: &str| expect_success(&source.run(&["export", session, "--store", store]));
        assert_eq!(export(&source.file()), export(&target));
    }
    let again = expect_success(&source.migrate_when_unused(&target));
    assert!(again.contains("\"copied_sessions\": 0") && again.contains("\"unchanged_sessions\": 2"), "{again}");
    assert!(expect_success(&source.run(&["keys", "--store", &target])).contains("laptop"));
    let reply = source.send(&target, "fox", "a third message");
    assert!(reply.contains("You said: a third message"), "{reply}");
    expect_refusal(&source.migrate_when_unused(&target), "it was continued there");
}

#[test]
fn migration_continues_after_an_interruption() {
    let (source, target) = (Source::with_sessions(), TemporaryPostgres::shared().create_database());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(copy_one_record(Path::new(&source.file()), &target));
    let report = expect_success(&source.migrate(&target));
    assert!(report.contains("\"copied_sessions\": 2"), "{report}");
    for session in ["fox", "hen"] {
        let export = |store: &str| expect_success(&source.run(&["export", session, "--store", store]));
        assert_eq!(export(&source.file()), export(&target));
    }
}

/// Copies the first record of a session, like a migration that was killed.
async fn copy_one_record(file: &Path, target: &str) {
    let (source, target) = (SqliteStore::open(file).expect("opens"), PostgresStore::open(target).expect("opens"));
    let page = source.list_sessions(&SessionQuery::newest(1)).await.expect("listed");
    let entry = page.entries.first().expect("a session");
    let lease = target.adopt_session(&entry.session, entry.uid, None).await.expect("adopted");
    let records = source.read_records(&entry.session, Seq(0), 1).await.expect("read");
    let commit = JournalCommit::of_records(entry.session.clone(), lease.epoch, lease.head, records);
    assert_eq!(target.append_commit(commit).await, Ok(Seq(1)));
}

#[test]
fn migration_refuses_stores_in_use_and_sessions_that_differ() {
    let (source, target) = (Source::with_sessions(), TemporaryPostgres::shared().create_database());
    let in_use = SqliteStore::open(source.file()).expect("opens");
    expect_refusal(&source.migrate(&target), "stop them first");
    drop(in_use);
    let node = PostgresStore::open(&target).expect("opens");
    expect_refusal(&source.migrate(&target), "stop them first");
    drop(node);
    source.send(&target, "fox", "something else");
    expect_refusal(&source.migrate_when_unused(&target), "another session with this name");
    expect_refusal(&source.run(&["migrate", &source.file(), "copy.db"]), "the target must be a database");
    expect_refusal(&source.run(&["migrate", "nothing.db", &target]), "there is no store");
}
