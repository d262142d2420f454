//! Tests of sessions that are taken over again and again without progress.

use super::inbox::{open_session, sample_submission};
use super::{StoreFixture, TestJournalWriter, pending_session_names, sample_commit, sample_summary};
use crate::limits::TAKEOVERS_WITHOUT_PROGRESS_MAX;
use crate::{JournalCommit, LeaseTakeoverPolicy, PendingWorkStatus, SessionQuery, SessionSummary, Store};

pub async fn r3_three_takeovers_without_progress_quarantine_a_session(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = session_with_pending_work(fixture).await;
    for takeover in 1..=TAKEOVERS_WITHOUT_PROGRESS_MAX {
        assert_eq!(pending_session_names(&*store).await, ["a"], "before takeover {takeover}");
        assert!(!is_first_session_quarantined(&*store).await);
        take_over_and_die(fixture, &mut a).await;
    }
    assert_eq!(pending_session_names(&*store).await, [""; 0]);
    assert!(is_first_session_quarantined(&*store).await);
    store.submit(&a.session, None, sample_submission(1)).await.expect("room");
    assert!(!is_first_session_quarantined(&*store).await, "a person sent something");
    assert_eq!(pending_session_names(&*store).await, ["a"]);
}

pub async fn r3_a_release_or_progress_ends_the_series_of_takeovers(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = session_with_pending_work(fixture).await;
    for round in 0..3 {
        for _ in 1..TAKEOVERS_WITHOUT_PROGRESS_MAX {
            take_over_and_die(fixture, &mut a).await;
        }
        // The process that acquires the session now makes the series complete, until it shows progress.
        a.lease = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("its holder is dead");
        assert!(is_first_session_quarantined(&*store).await, "round {round}");
        if round == 1 {
            let commit = JournalCommit { shows_progress: true, ..sample_commit(&a.session, a.lease, 1) };
            a.lease.head = store.append_commit(commit).await.expect("in time");
            assert!(!is_first_session_quarantined(&*store).await, "progress");
        }
        store.release_lease(&a.session, a.lease.epoch).await.expect("held");
        assert!(!is_first_session_quarantined(&*store).await, "released");
        // An acquisition after a release is no takeover.
        take_over_and_die(fixture, &mut a).await;
    }
    for _ in 0..2 * TAKEOVERS_WITHOUT_PROGRESS_MAX {
        a.lease = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
        store.release_lease(&a.session, a.lease.epoch).await.expect("held");
    }
    assert!(!is_first_session_quarantined(&*store).await, "sessions that are used and released");
}

/// Creates the session `a`, whose holder dies with work to do.
async fn session_with_pending_work(fixture: &impl StoreFixture) -> TestJournalWriter {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    let summary = SessionSummary { pending_work: PendingWorkStatus::Now, ..sample_summary("", 1) };
    a.append_records_with(1, Vec::new(), Some(summary)).await;
    store.close().await.expect("closes");
    a
}

/// Takes the session over, commits something that is no progress, and dies.
async fn take_over_and_die(fixture: &impl StoreFixture, a: &mut TestJournalWriter) {
    let store = fixture.open_store();
    let lease = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("its holder is dead");
    store.append_commit(sample_commit(&a.session, lease, 1)).await.expect("in time");
}

async fn is_first_session_quarantined(store: &dyn Store) -> bool {
    let page = store.list_sessions(&SessionQuery::newest(1)).await.expect("listed");
    page.entries[0].is_quarantined
}
