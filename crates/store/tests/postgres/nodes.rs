//! Several nodes on one database.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::Seq;
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, first_record_bodies, sample_commit, sample_summary, visible_body,
};
use segue_store::{
    JournalCommit, LeaseTakeoverPolicy, PendingWorkQuery, PendingWorkStatus, SessionListChangeCursor, SessionSummary,
    Store, StoredSessionListChange,
};

use crate::temporary_database::TemporaryDatabase;

#[tokio::test]
async fn a_text_that_is_erased_and_used_at_the_same_time_is_kept_or_stored_again() {
    let database = TemporaryDatabase::new();
    let (store, other) = (database.open_store(), database.open_store());
    let text = visible_body("a text that two sessions use");
    for round in 0..20 {
        let mut old = TestJournalWriter::create_session(&store, &format!("old-{round}")).await;
        old.append_records_with(1, vec![text.clone()], None).await;
        let new = TestJournalWriter::create_session(&other, &format!("new-{round}")).await;
        let bodies = first_record_bodies(new.lease, vec![text.clone()]);
        let commit = JournalCommit { bodies, ..sample_commit(&new.session, new.lease, 1) };
        let (deleted, appended) = tokio::join!(store.delete_session(&old.session, None), other.append_commit(commit));
        deleted.expect("deleted");
        assert_eq!(appended, Ok(Seq(1)));
        let read = other.read_bodies(&new.session, &[BodyId::hash_text(&text.text)]).await.expect("the session has it");
        assert_eq!(&*read[0], &*text.text);
        other.delete_session(&new.session, None).await.expect("deleted");
        assert_eq!(database.body_count(), 0, "the last one to use it takes it along");
    }
}

#[tokio::test]
async fn sessions_that_share_texts_can_be_deleted_at_the_same_time() {
    let database = TemporaryDatabase::new();
    let (store, other) = (database.open_store(), database.open_store());
    let texts: Vec<_> = (0..20).map(|number| visible_body(&format!("shared text {number}"))).collect();
    let ids: Vec<BodyId> = texts.iter().map(|text| text.id).collect();
    for round in 0..10 {
        let mut owner = TestJournalWriter::create_session(&store, &format!("owner-{round}")).await;
        owner.append_records_with(1, texts.clone(), None).await;
        let mut second = TestJournalWriter::create_session(&other, &format!("second-{round}")).await;
        second.append_records_with(1, texts.clone(), None).await;
        let mut third = TestJournalWriter::create_session(&other, &format!("third-{round}")).await;
        third.append_records_with(1, texts.clone(), None).await;
        let deletions =
            tokio::join!(store.delete_session(&owner.session, None), other.delete_session(&second.session, None));
        assert_eq!(deletions, (Ok(()), Ok(())));
        let read = store.read_bodies(&third.session, &ids).await.expect("the third session has them still");
        assert_eq!(read.len(), texts.len());
        assert!(store.check_integrity().await.expect("checked").is_clean());
        other.delete_session(&third.session, None).await.expect("deleted");
        assert_eq!(database.body_count(), 0, "the last one to use them takes them along");
    }
}

#[tokio::test]
async fn appends_find_their_sessions_with_the_index_even_if_there_were_few_at_first() {
    // PostgreSQL plans the first five executions of a statement on each of the two connections one by one.
    const PLANNED_ONE_BY_ONE: u64 = 10;
    const SCANS: &str = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'segue_sessions'";
    let database = TemporaryDatabase::new();
    let store: Arc<dyn Store> = database.open_store();
    for (sessions, rounds) in [(1, 30), (100, 10)] {
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..sessions {
            let store = store.clone();
            writers.spawn(async move {
                let mut writer = TestJournalWriter::create_session(&store, &format!("s-{sessions}-{number}")).await;
                for round in 0..rounds {
                    let text = visible_body(&format!("text {round} of {number}"));
                    writer.append_records_with(1, vec![text], Some(sample_summary("", round))).await;
                }
            });
        }
        while let Some(done) = writers.join_next().await {
            done.expect("appended");
        }
    }
    store.close().await.expect("closes");
    // A connection has reported its scans when it has ended.
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()";
    while database.run_sql(connections) != "1" {
        tokio::task::yield_now().await;
    }
    let scans: u64 = database.run_sql(SCANS).parse().expect("a number");
    assert!(scans <= PLANNED_ONE_BY_ONE, "{scans} scans of all sessions");
}

#[tokio::test]
async fn a_reader_of_changes_that_begins_now_gets_none_of_before() {
    let database = TemporaryDatabase::new();
    let store: Arc<dyn Store> = database.open_store();
    let mut writer = TestJournalWriter::create_session(&store, "one").await;
    // More sessions than one statement numbers, whose changes nobody has read.
    database.run_sql(
        "INSERT INTO segue_sessions (uid, name, epoch, head, updated_at, changed_at)
         SELECT 1000000 + n, 'unread-' || n, 1, 0, n, n FROM generate_series(1, 10001) n",
    );
    let start = store.changes_after(None, 1).await.expect("read").next_cursor;
    writer.append_records_with(1, Vec::new(), Some(sample_summary("new", 1))).await;
    let page = store.changes_after(Some(start), 9).await.expect("read");
    let names: Vec<String> = page.changes.iter().map(|change| format!("{change:?}")).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(
        matches!(&page.changes[0], StoredSessionListChange::Updated(entry) if entry.session.as_str() == "one"),
        "{names:?}"
    );
}

#[tokio::test]
async fn changes_of_several_nodes_are_neither_missed_nor_repeated() {
    const ROUNDS: u64 = 40;
    let database = Arc::new(TemporaryDatabase::new());
    let stores: Vec<Arc<dyn Store>> = (0..3).map(|_| database.open_store()).collect();
    let mut writers = tokio::task::JoinSet::new();
    for (number, store) in stores.iter().enumerate() {
        for session in 0..3 {
            let store = store.clone();
            writers.spawn(async move {
                let mut writer = TestJournalWriter::create_session(&store, &format!("s-{number}-{session}")).await;
                for round in 0..=ROUNDS {
                    writer.append_records_with(1, Vec::new(), Some(sample_summary(&format!("{round}"), round))).await;
                }
            });
        }
    }
    let mut cursor = SessionListChangeCursor(0);
    let mut last_seen = std::collections::BTreeMap::new();
    let mut is_last_look = false;
    loop {
        let page = stores[0].changes_after(Some(cursor), 7).await.expect("read");
        assert!(page.next_cursor > cursor || page.changes.is_empty());
        cursor = page.next_cursor;
        for change in &page.changes {
            let StoredSessionListChange::Updated(entry) = change else { panic!("nothing is deleted: {change:?}") };
            let round: u64 = entry.summary.title.parse().expect("a round");
            let before = last_seen.insert(entry.session.clone(), round);
            assert!(before.is_none_or(|before| before < round), "{}: {before:?} then {round}", entry.session);
        }
        if page.changes.is_empty() {
            if is_last_look {
                break;
            }
            is_last_look = writers.is_empty();
            while writers.try_join_next().is_some() {}
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(last_seen.len(), 9);
    assert!(last_seen.values().all(|round| *round == ROUNDS), "{last_seen:?}");
}

#[tokio::test]
async fn a_node_leaves_the_work_of_live_nodes_to_them() {
    let database = TemporaryDatabase::new();
    let (store, other) = (database.open_store(), database.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let summary = SessionSummary { pending_work: PendingWorkStatus::Now, ..sample_summary("", 1) };
    a.append_records_with(1, Vec::new(), Some(summary)).await;
    let pending = async || {
        let query = PendingWorkQuery { due_until: Default::default(), after_cursor: None, limit: 9 };
        other.sessions_with_pending_work(&query).await.expect("listed").sessions.len()
    };
    assert_eq!(pending().await, 0, "its holder is alive");
    database.clock().advance_ms(20_000);
    assert_eq!(pending().await, 1, "its holder is dead");
    store.renew_leases(&[]).await.expect("renewed");
    assert_eq!(pending().await, 0, "it has come back");
    store.close().await.expect("closes");
    assert_eq!(pending().await, 1, "its holder has ended");
    let lease = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderEnded).await.expect("free");
    assert_eq!(other.append_commit(sample_commit(&a.session, lease, 1)).await, Ok(Seq(2)));
}
