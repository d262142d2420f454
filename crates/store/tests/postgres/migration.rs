//! Formats of the database, and what is refused.

use segue_store::conformance::{TestJournalWriter, read_all_records};
use segue_store::postgres::PostgresStore;
use segue_store::{Error, Store};
use std::sync::Arc;

use crate::temporary_database::TemporaryDatabase;

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let database = TemporaryDatabase::new();
    drop(database.open());
    assert_eq!(
        database.run_sql("INSERT INTO segue_migrations VALUES (99); SELECT max(format) FROM segue_migrations"),
        "INSERT 0 1\n99"
    );
    let error = PostgresStore::open(&database.url).expect_err("newer");
    assert!(matches!(error, Error::NewerFormat { found: 99, .. }), "{error}");
}

#[tokio::test]
async fn several_nodes_may_create_the_tables_at_once() {
    let database = Arc::new(TemporaryDatabase::new());
    let openings = (0..8).map(|_| {
        let database = database.clone();
        std::thread::spawn(move || database.open())
    });
    let openings: Vec<_> = openings.collect();
    let stores: Vec<Arc<dyn Store>> =
        openings.into_iter().map(|opening| Arc::new(opening.join().expect("opens")) as Arc<dyn Store>).collect();
    let mut a = TestJournalWriter::create_session(&stores[0], "a").await;
    a.append_records(2).await;
    assert_eq!(read_all_records(&stores[7], &a.session).await.len(), 2);
}

#[test]
fn an_unusable_url_is_explained_without_its_password() {
    let refused = PostgresStore::open("postgres://me:secret@127.0.0.1:1/db").expect_err("nothing listens there");
    assert!(matches!(refused, Error::DatabaseUnavailable { .. }), "{refused}");
    assert!(refused.to_string().contains("postgres://127.0.0.1/db"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    let refused = PostgresStore::open("postgres://me:secret@host:many/db").expect_err("no port");
    assert!(refused.to_string().contains("postgres://user:password@host:5432/database"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}
