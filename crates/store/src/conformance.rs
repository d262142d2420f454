//! Tests that every store must pass. A backend runs them with [`suite!`](crate::suite).
//!
//! A test knows a backend only as a [`StoreFixture`]: a location at which a store can be opened several times, as if by
//! separate processes. Each test gets a fixture of its own.

use std::sync::Arc;

use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::ids::{Seq, SessionId, UnixMillis};

use crate::{
    CommittedTextBody, JournalCommit, JournalRecord, Lease, PendingWorkQuery, PendingWorkStatus, SessionSummary, Store,
    StoreClock,
};

pub mod changes;
pub mod deletion;
pub mod erasing;
pub mod inbox;
pub mod lease_expiry;
pub mod listing;
pub mod quarantine;
pub mod reading;
pub mod shared_state;
pub mod sharing;
pub mod writing;

/// A location at which stores are opened. Dropping the last handle to a store simulates the death of its process.
pub trait StoreFixture: Send + Sync {
    /// Opens the store, as a new process.
    fn open_store(&self) -> Arc<dyn Store>;
    /// Returns the number of bodies in the store.
    fn body_count(&self) -> usize;
    /// Returns whether `marker` is part of the stored data, in whatever form the backend keeps it.
    fn contains_text(&self, marker: &str) -> bool;
    /// Returns the clock of all stores opened here.
    fn clock(&self) -> StoreClock;
}

/// Defines the tests of all capabilities that every store has. `$fixture` is an expression for a new
/// [`StoreFixture`](crate::conformance::StoreFixture). There is a macro for each capability as well.
#[macro_export]
macro_rules! suite {
    ($fixture:expr) => {
        $crate::journal_suite!($fixture);
        $crate::lease_suite!($fixture);
        $crate::inbox_suite!($fixture);
        $crate::catalog_suite!($fixture);
        $crate::deletion_suite!($fixture);
    };
}

/// Defines the tests of reading and writing journals.
#[macro_export]
macro_rules! journal_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; writing:
            a_new_session_is_empty_and_leased,
            a_write_probe_changes_nothing,
            a_name_can_be_used_once,
            an_empty_session_of_a_dead_process_can_be_replaced,
            appended_records_are_read_back_in_order,
            the_head_rises_with_each_commit,
            an_append_that_does_not_follow_the_head_is_refused,
            of_concurrent_appends_only_one_succeeds,
            a_refused_append_writes_nothing,
            an_invalid_commit_is_refused,
            invalid_names_are_refused,
            records_keep_their_times,
            sessions_are_independent,
            a_long_commit_is_atomic,
            large_and_unusual_texts_survive);
        $crate::conformance_tests!($fixture; reading:
            any_range_can_be_read,
            missing_sessions_and_bodies_are_named,
            many_heads_are_read_at_once,
            a_body_is_stored_once,
            bodies_are_returned_in_the_requested_order,
            a_body_of_another_session_cannot_be_read,
            the_newest_snapshot_is_kept,
            a_snapshot_beyond_the_head_is_ignored,
            a_journal_can_be_copied);
    };
}

/// Defines the tests of leases, and of sessions whose holders die.
#[macro_export]
macro_rules! lease_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; sharing:
            an_older_writer_is_fenced,
            a_session_is_held_while_its_holder_is_alive,
            the_lease_of_a_dead_process_can_be_acquired,
            a_lease_can_be_taken_by_force,
            a_released_lease_is_free_and_its_epoch_is_rejected,
            only_the_holder_can_release,
            a_lease_of_the_same_process_can_be_renewed,
            epochs_are_never_reused,
            reading_needs_no_lease,
            data_survives_reopening,
            a_closed_store_refuses_calls);
        $crate::conformance_tests!($fixture; quarantine:
            r3_three_takeovers_without_progress_quarantine_a_session,
            r3_a_release_or_progress_ends_the_series_of_takeovers);
    };
}

/// Defines the tests of leases that expire. `$fixture` is an expression for a new
/// [`ExpiringLeaseFixture`](crate::conformance::lease_expiry::ExpiringLeaseFixture).
#[macro_export]
macro_rules! lease_expiry_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; lease_expiry:
            r19_a_lease_that_is_not_renewed_expires,
            r19_a_renewed_lease_is_kept,
            r19_an_expired_lease_that_nobody_took_is_still_valid,
            r13_an_expired_lease_is_left_alone_if_its_holder_may_be_alive);
    };
}

/// Defines the tests of inboxes, and of what commits deliver.
#[macro_export]
macro_rules! inbox_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; inbox:
            entries_are_read_oldest_first,
            r1_draining_deletes_exactly_the_entries_it_names,
            r1_a_commit_that_drains_a_missing_entry_writes_nothing,
            r1_a_rejected_commit_in_a_group_leaves_no_trace,
            r3_the_outcome_of_a_drained_entry_is_kept_for_a_day,
            a_repeated_submission_changes_nothing,
            r4_an_inbox_entry_is_pending_work_by_itself,
            r5_a_session_with_a_reused_name_inherits_nothing,
            r11_a_full_inbox_accepts_only_exempt_submissions,
            r11_a_submission_that_cannot_be_delivered_bounces,
            outgoing_submissions_are_part_of_the_commit,
            a_spawned_session_has_its_parent_and_its_entries);
    };
}

/// Defines the tests of lists, searches, pending work and changes.
#[macro_export]
macro_rules! catalog_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; listing:
            sessions_are_listed_newest_first,
            pages_follow_each_other_without_gap,
            sessions_can_be_filtered_by_flow,
            sessions_can_be_filtered_by_name_prefix,
            titles_and_visible_texts_are_searched,
            internal_texts_are_not_searched_until_visible,
            the_last_summary_is_listed,
            only_sessions_with_pending_work_are_recovered);
        $crate::conformance_tests!($fixture; changes:
            pending_work_is_returned_in_pages_by_urgency,
            a_query_skips_a_limited_number_of_sessions,
            changes_are_reported_in_the_order_of_their_commits);
    };
}

/// Defines the tests of forks and deletions.
#[macro_export]
macro_rules! deletion_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; erasing:
            a_fork_has_the_prefix_and_its_bodies,
            a_fork_can_be_cut_inside_a_commit,
            a_fork_of_a_long_commit_has_the_bodies_its_records_refer_to,
            a_fork_and_its_origin_are_independent,
            a_fork_outside_the_journal_is_refused,
            a_fork_outlives_its_origin,
            a_deleted_session_is_erased_from_the_disk,
            a_deleted_name_can_be_used_again_but_not_by_its_old_writer,
            deleting_keeps_bodies_that_others_use,
            a_session_held_by_another_is_not_deleted,
            an_intact_store_passes_the_integrity_check);
        $crate::conformance_tests!($fixture; deletion:
            r8_a_session_with_children_is_not_deleted,
            r8_a_session_being_deleted_accepts_nothing,
            r8_an_interrupted_deletion_can_be_continued,
            r8_inbox_and_outcomes_are_erased_with_their_session);
    };
}

/// Defines the tests of what servers share besides sessions. `$fixture` is an expression for a new
/// [`SharedStateFixture`](crate::conformance::shared_state::SharedStateFixture).
#[macro_export]
macro_rules! shared_state_suite {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture; shared_state:
            a_record_is_read_by_every_process,
            of_concurrent_writes_of_one_version_only_one_succeeds,
            an_expired_record_is_missing,
            a_slot_has_one_holder_until_it_is_released_or_expires,
            a_slot_that_was_extended_is_not_released,
            concurrent_requests_never_get_more_slots_than_there_are,
            processes_share_the_tokens_of_a_bucket,
            concurrent_requests_never_get_more_tokens_than_there_are,
            usage_is_summed_once_per_source);
    };
}

/// Defines one test for each function of a group.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr; $group:ident: $($test:ident),* $(,)?) => {
        mod $group {
            use super::*;
            $(
                #[tokio::test]
                async fn $test() {
                    $crate::conformance::$group::$test(&$fixture).await;
                }
            )*
        }
    };
}

#[must_use]
pub fn session_id(text: &str) -> SessionId {
    SessionId::from(text)
}

/// Returns a visible text.
#[must_use]
pub fn visible_body(text: &str) -> TextToStore {
    TextToStore { id: BodyId::hash_text(text), text: text.into(), kind: BodyVisibility::Conversation }
}

/// Returns an internal text.
#[must_use]
pub fn internal_body(text: &str) -> TextToStore {
    TextToStore { kind: BodyVisibility::Internal, ..visible_body(text) }
}

/// Returns a summary with this title and time of change, without pending work.
#[must_use]
pub fn sample_summary(title: &str, updated: u64) -> SessionSummary {
    SessionSummary {
        flow: "chat".into(),
        title: title.into(),
        phase: "open".into(),
        turns: 1,
        calls: 2,
        cost_microusd: Some(30),
        created_at: UnixMillis(1),
        updated_at: UnixMillis(updated),
        pending_work: PendingWorkStatus::None,
    }
}

/// Returns the record `seq` of `session`.
#[must_use]
pub fn sample_record(session: &SessionId, seq: u64) -> JournalRecord {
    let bytes = format!(r#"{{"session":"{session}","seq":{seq},"text":"something at {seq}"}}"#).into_bytes();
    JournalRecord { seq: Seq(seq), at: UnixMillis(1_700_000_000_000 + seq * 7), bytes }
}

/// Returns a commit of `count` long records after the lease's head; each refers to a text of its own.
#[must_use]
pub fn sample_long_commit(session: &SessionId, lease: Lease, count: u64) -> JournalCommit {
    let texts: Vec<TextToStore> =
        (1..=count).map(|step| visible_body(&format!("text {}", lease.head.0 + step))).collect();
    let padding = "so on and on ".repeat(100);
    let make_record = |(step, text): (u64, &TextToStore)| {
        let bytes = format!("{} {padding}", text.id).into_bytes();
        JournalRecord { bytes, ..sample_record(session, lease.head.0 + step) }
    };
    let records = (1..=count).zip(&texts).map(make_record).collect();
    let bodies = (1..=count).zip(texts);
    let bodies =
        bodies.map(|(step, text)| CommittedTextBody { text, first_used_by: Seq(lease.head.0 + step) }).collect();
    JournalCommit { records, bodies, ..sample_commit(session, lease, 0) }
}

/// Returns a commit of `count` records after the lease's head.
#[must_use]
pub fn sample_commit(session: &SessionId, lease: Lease, count: u64) -> JournalCommit {
    let records = (1..=count).map(|step| sample_record(session, lease.head.0 + step)).collect();
    JournalCommit::of_records(session.clone(), lease.epoch, lease.head, records)
}

/// Returns texts that the first record after the lease's head refers to.
#[must_use]
pub fn first_record_bodies(lease: Lease, texts: Vec<TextToStore>) -> Vec<CommittedTextBody> {
    texts.into_iter().map(|text| CommittedTextBody { text, first_used_by: lease.head.next() }).collect()
}

/// A session and the lease of its writer.
#[derive(Debug)]
pub struct TestJournalWriter {
    store: Arc<dyn Store>,
    pub session: SessionId,
    /// Its lease, with the head after the last append.
    pub lease: Lease,
}

impl TestJournalWriter {
    /// Creates a session.
    pub async fn create_session(store: &Arc<dyn Store>, session: &str) -> Self {
        let session = session_id(session);
        let lease = store.create_session(&session).await.expect("a new name");
        Self { store: store.clone(), session, lease }
    }

    /// Appends `count` records.
    pub async fn append_records(&mut self, count: u64) {
        self.append_records_with(count, Vec::new(), None).await;
    }

    /// Appends `count` records with `bodies` and an optional summary.
    pub async fn append_records_with(&mut self, count: u64, bodies: Vec<TextToStore>, summary: Option<SessionSummary>) {
        let bodies = first_record_bodies(self.lease, bodies);
        let commit = JournalCommit { bodies, summary, ..sample_commit(&self.session, self.lease, count) };
        self.lease.head = self.store.append_commit(commit).await.expect("an append in time");
    }
}

/// Returns the names of sessions with work to do at once, in the order of their creation.
pub async fn pending_session_names(store: &dyn Store) -> Vec<String> {
    let query = PendingWorkQuery { due_until: UnixMillis(0), after_cursor: None, limit: usize::MAX };
    let page = store.sessions_with_pending_work(&query).await.expect("listed");
    page.sessions.iter().map(|pending| pending.session.to_string()).collect()
}

/// Reads all records of a session.
pub async fn read_all_records(store: &Arc<dyn Store>, session: &SessionId) -> Vec<JournalRecord> {
    store.read_records(session, Seq(0), usize::MAX).await.expect("readable")
}

/// Returns the first `count` records of [`sample_record`].
#[must_use]
pub fn sample_records(session: &SessionId, count: u64) -> Vec<JournalRecord> {
    (1..=count).map(|seq| sample_record(session, seq)).collect()
}
