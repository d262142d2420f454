//! What every store must do, as claims a backend's tests run one by one through [`suite!`](crate::suite).
//!
//! A claim knows a backend only as a [`Place`]: somewhere a store can be opened, more than once, by what count as
//! separate processes. Each claim gets a place of its own, and panics where the store breaks its word.

use std::sync::Arc;

use segue_core::body::{BodyId, BodyKind, TextBody};
use segue_core::ids::{Seq, SessionId, UnixMillis};

use crate::{Commit, JournalRecord, Lease, PendingWork, SessionSummary, Store};

pub mod erasing;
pub mod listing;
pub mod reading;
pub mod sharing;
pub mod writing;

/// Somewhere stores are opened. Dropping the last handle to a store is the death of its process.
pub trait StoreFixture: Send + Sync {
    /// Opens the store that lies here, as a process of its own.
    fn open_store(&self) -> Arc<dyn Store>;
    /// How many texts lie here.
    fn body_count(&self) -> usize;
    /// Whether `marker` is anywhere in what lies here, in whatever form the backend keeps it.
    fn contains_text(&self, marker: &str) -> bool;
}

/// Makes one test a claim. `$place` is an expression for a fresh [`Place`](crate::conformance::Place).
#[macro_export]
macro_rules! suite {
    ($place:expr) => {
        $crate::suite!($place; writing:
            a_new_session_is_empty_and_ours,
            a_name_is_taken_once,
            an_empty_session_of_the_dead_is_no_obstacle,
            appended_records_are_read_back_in_order,
            the_head_rises_with_each_commit,
            an_append_that_does_not_follow_the_head_is_refused,
            of_many_appends_at_one_place_one_wins,
            a_refused_append_leaves_nothing,
            a_commit_that_cannot_be_is_refused,
            names_that_cannot_be_are_refused,
            records_keep_the_time_they_came_with,
            sessions_do_not_disturb_each_other,
            a_long_commit_is_one_commit,
            a_large_text_and_strange_characters_survive);
        $crate::suite!($place; sharing:
            an_older_writer_is_fenced,
            a_session_is_held_while_its_holder_lives,
            a_dead_holder_is_no_obstacle,
            force_takes_a_session_from_the_living,
            a_released_session_is_free_and_its_epoch_is_over,
            only_the_holder_can_release,
            a_claim_of_our_own_is_no_obstacle,
            an_epoch_never_comes_again,
            everyone_can_follow_a_session,
            what_was_appended_is_there_after_reopening,
            a_closed_store_says_so);
        $crate::suite!($place; reading:
            any_stretch_can_be_read,
            what_is_not_there_is_named,
            many_heads_are_told_at_one_look,
            a_body_is_stored_once,
            bodies_come_in_the_order_asked,
            a_foreign_body_cannot_be_read,
            the_newest_snapshot_is_kept,
            a_snapshot_of_the_future_is_not_kept,
            a_journal_can_be_carried_to_another_store);
        $crate::suite!($place; listing:
            sessions_are_listed_newest_first,
            pages_follow_each_other_without_gap,
            a_flow_can_be_singled_out,
            names_that_begin_alike_can_be_singled_out,
            titles_and_said_texts_are_searched,
            inner_texts_are_not_searched_until_they_are_said,
            the_summary_is_the_last_one_given,
            only_sessions_that_owe_are_recovered);
        $crate::suite!($place; erasing:
            a_fork_has_the_prefix_and_its_bodies,
            a_fork_can_be_cut_inside_a_commit,
            a_fork_of_a_long_commit_has_the_bodies_its_records_name,
            a_fork_and_its_origin_go_their_own_ways,
            a_fork_outside_the_journal_is_refused,
            a_fork_outlives_its_origin,
            a_deleted_session_is_gone_from_the_disk,
            a_deleted_name_can_be_used_again_but_not_by_its_old_writer,
            deleting_spares_what_others_use,
            a_session_held_by_another_is_not_deleted,
            a_sound_store_passes_its_check);
    };
    ($place:expr; $group:ident: $($claim:ident),* $(,)?) => {
        mod $group {
            use super::*;
            $(
                #[tokio::test]
                async fn $claim() {
                    $crate::conformance::$group::$claim(&$place).await;
                }
            )*
        }
    };
}

/// A session's name.
#[must_use]
pub fn session_id(text: &str) -> SessionId {
    SessionId::from(text)
}

/// A text to be said, with its address.
#[must_use]
pub fn visible_body(text: &str) -> TextBody {
    TextBody { id: BodyId::hash_text(text), text: text.into(), kind: BodyKind::Conversation }
}

/// A text of the machinery, with its address.
#[must_use]
pub fn internal_body(text: &str) -> TextBody {
    TextBody { kind: BodyKind::Internal, ..visible_body(text) }
}

/// A summary with this title that changed at this time and owes nothing.
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
        pending_work: PendingWork::None,
    }
}

/// What record `seq` of `session` says in these tests.
#[must_use]
pub fn sample_record(session: &SessionId, seq: u64) -> JournalRecord {
    let bytes = format!(r#"{{"session":"{session}","seq":{seq},"said":"something at {seq}"}}"#).into_bytes();
    JournalRecord { seq: Seq(seq), at: UnixMillis(1_700_000_000_000 + seq * 7), bytes }
}

/// A commit of `count` long records after the claim's head, of which each names a text of its own.
#[must_use]
pub fn sample_long_commit(session: &SessionId, claim: Lease, count: u64) -> Commit {
    let texts: Vec<TextBody> = (1..=count).map(|step| visible_body(&format!("text {}", claim.head.0 + step))).collect();
    let padding = "so on and on ".repeat(100);
    let say = |(step, text): (u64, &TextBody)| {
        let bytes = format!("{} {padding}", text.id).into_bytes();
        JournalRecord { bytes, ..sample_record(session, claim.head.0 + step) }
    };
    let records = (1..=count).zip(&texts).map(say).collect();
    let names = |record: &JournalRecord| {
        let id = std::str::from_utf8(&record.bytes).ok().and_then(|text| text.split(' ').next()?.parse().ok());
        id.into_iter().collect()
    };
    Commit { records, bodies: texts, extract_body_ids: names, ..sample_commit(session, claim, 0) }
}

/// `count` records after the claim's head.
#[must_use]
pub fn sample_commit(session: &SessionId, claim: Lease, count: u64) -> Commit {
    let records = (1..=count).map(|step| sample_record(session, claim.head.0 + step)).collect();
    Commit {
        session: session.clone(),
        epoch: claim.epoch,
        expected_head: claim.head,
        records,
        bodies: Vec::new(),
        extract_body_ids: |_| Vec::new(),
        summary: None,
    }
}

/// A session under way: what a writer holds while it writes.
#[derive(Debug)]
pub struct TestWriter {
    store: Arc<dyn Store>,
    /// Its name.
    pub session: SessionId,
    /// Its claim, with the head as of the last append.
    pub lease: Lease,
}

impl TestWriter {
    /// Begins a session.
    pub async fn create_session(store: &Arc<dyn Store>, session: &str) -> Self {
        let session = session_id(session);
        let claim = store.create_session(&session).await.expect("a new name");
        Self { store: store.clone(), session, lease: claim }
    }

    /// Appends `count` records.
    pub async fn append_records(&mut self, count: u64) {
        self.append_records_with(count, Vec::new(), None).await;
    }

    /// Appends `count` records with `bodies` and perhaps a summary.
    pub async fn append_records_with(&mut self, count: u64, bodies: Vec<TextBody>, summary: Option<SessionSummary>) {
        let commit = Commit { bodies, summary, ..sample_commit(&self.session, self.lease, count) };
        self.lease.head = self.store.append_commit(commit).await.expect("an append in time");
    }
}

/// All records of a session.
pub async fn read_all_records(store: &Arc<dyn Store>, session: &SessionId) -> Vec<JournalRecord> {
    store.read_records(session, Seq(0), usize::MAX).await.expect("readable")
}

/// What `all` gives if a session has exactly `count` of our records.
#[must_use]
pub fn sample_records(session: &SessionId, count: u64) -> Vec<JournalRecord> {
    (1..=count).map(|seq| sample_record(session, seq)).collect()
}
