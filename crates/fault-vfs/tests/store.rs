//! The SQLite store on a file system that fails and loses power: nothing that was acknowledged is lost, and every error is
//! reported. The recording is shared by the process, so these tests are steps of one.

use std::path::Path;
use std::sync::Arc;

use segue_core::ids::{Seq, SessionId};
use segue_fault_vfs::{InjectedSqliteFileFaults, PowerCutDiskImage, PowerCutWriteLoss, SqliteFileChange};
use segue_store::conformance::{
    TestJournalWriter, read_all_records, sample_commit, sample_records, sample_summary, visible_body,
};
use segue_store::sqlite::SqliteStore;
use segue_store::{LeaseTakeoverPolicy, Store};

const SESSIONS: u64 = 3;
const ROUNDS: u64 = 14;
/// A part of the cuts is tried with each kind of loss. All of them would take minutes.
const CUTS_TRIED_MAX: usize = 400;

fn open_store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder.join("segue.db")).expect("the store opens"))
}

fn session_name(number: u64) -> SessionId {
    format!("s{number}").as_str().into()
}

/// A mark says how many records of a session were acknowledged.
fn acknowledge(session: u64, head: Seq) {
    segue_fault_vfs::mark(session << 32 | head.0);
}

/// Writes sessions until all kinds of changes have happened: commits, texts, checkpoints and a deletion.
async fn fill_store(store: &Arc<dyn Store>) {
    let mut writers = Vec::new();
    for number in 0..SESSIONS {
        writers.push(TestJournalWriter::create_session(store, &format!("s{number}")).await);
    }
    let doomed = TestJournalWriter::create_session(store, "doomed").await;
    for round in 0..ROUNDS {
        for (number, writer) in writers.iter_mut().enumerate() {
            let text = format!("{} {round} ", writer.session).repeat(200);
            let summary = Some(sample_summary(writer.session.as_str(), round + 1));
            writer.append_records_with(2, vec![visible_body(&text)], summary).await;
            acknowledge(number as u64, writer.lease.head);
        }
        // Deleting truncates the log, so the database itself is written.
        if round == ROUNDS / 2 {
            store.delete_session(&doomed.session, None).await.expect("deleted");
        }
    }
}

/// Returns how many records of each session were acknowledged before a cut.
fn acknowledged_before(changes: &[SqliteFileChange]) -> Vec<u64> {
    let mut heads = vec![0; SESSIONS as usize];
    for change in changes {
        if let SqliteFileChange::Mark(mark) = change {
            heads[(mark >> 32) as usize] = mark & u64::from(u32::MAX);
        }
    }
    heads
}

/// Opens what a power cut left, and checks that it contains what was acknowledged, and nothing else.
async fn check_recovery(image: &PowerCutDiskImage, acknowledged: &[u64], shown: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    image.write_to(folder.path()).expect("written");
    let store = open_store(folder.path());
    for (number, head) in acknowledged.iter().enumerate() {
        let session = session_name(number as u64);
        let found = store.read_records(&session, Seq(0), usize::MAX).await;
        if *head == 0 && found.is_err() {
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{shown}: {session} is lost: {error}"));
        assert!(found.len() as u64 >= *head, "{shown}: {} of {head} records of {session} are left", found.len());
        assert_eq!(found, sample_records(&session, found.len() as u64), "{shown}: {session} was changed");
    }
    let report = store.check_integrity().await.unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(report.is_clean(), "{shown}: {report:?}");
}

async fn survives_power_cuts() {
    let folder = tempfile::tempdir().expect("a folder");
    segue_fault_vfs::start_recording();
    let store = open_store(folder.path());
    fill_store(&store).await;
    drop(store);
    let changes = segue_fault_vfs::stop_recording();
    assert!(changes.iter().any(|change| matches!(change, SqliteFileChange::Sync { path } if path.ends_with("-wal"))));
    assert!(
        changes.iter().any(|change| matches!(change, SqliteFileChange::Write { path, .. } if path.ends_with(".db")))
    );
    // Before the schema is complete, there is no store yet.
    let first = changes.iter().position(|change| matches!(change, SqliteFileChange::Mark(_))).expect("acknowledged");
    let step = (changes.len() - first).div_ceil(CUTS_TRIED_MAX / 3).max(1);
    for (number, cut) in (first..=changes.len()).step_by(step).enumerate() {
        let (before, seed) = (&changes[..cut], number as u64 + 1);
        for lost in [PowerCutWriteLoss::All, PowerCutWriteLoss::None, PowerCutWriteLoss::Random(seed)] {
            let image = PowerCutDiskImage::after_power_cut(before, lost);
            check_recovery(&image, &acknowledged_before(before), &format!("cut {cut}, {lost:?}")).await;
        }
    }
}

/// A disk that forgets what it was told to sync would lose acknowledged commits: this shows that the check can fail.
async fn lost_syncs_are_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    segue_fault_vfs::start_recording();
    let store = open_store(folder.path());
    fill_store(&store).await;
    drop(store);
    let changes = segue_fault_vfs::stop_recording();
    let last_mark =
        changes.iter().rposition(|change| matches!(change, SqliteFileChange::Mark(_))).expect("acknowledged");
    let first = changes.iter().position(|change| matches!(change, SqliteFileChange::Mark(_))).expect("acknowledged");
    let lying: Vec<SqliteFileChange> = changes[..=last_mark]
        .iter()
        .enumerate()
        .filter(|(index, change)| {
            *index < first || !matches!(change, SqliteFileChange::Sync { path } if path.ends_with("-wal"))
        })
        .map(|(_, change)| change.clone())
        .collect();
    let image = PowerCutDiskImage::after_power_cut(&lying, PowerCutWriteLoss::All);
    let acknowledged = acknowledged_before(&lying);
    let checked = tokio::spawn(async move { check_recovery(&image, &acknowledged, "a disk that lies").await });
    assert!(checked.await.is_err(), "a disk that lies about syncs loses commits");
}

async fn failed_sync_is_reported_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    segue_fault_vfs::start_recording();
    let store = open_store(folder.path());
    let mut writer = TestJournalWriter::create_session(&store, "s0").await;
    writer.append_records_with(2, Vec::new(), None).await;
    segue_fault_vfs::inject_faults(InjectedSqliteFileFaults {
        wal_sync_fails: true,
        ..InjectedSqliteFileFaults::default()
    });
    let refused = store.append_commit(sample_commit(&writer.session, writer.lease, 2)).await;
    assert!(refused.is_err() && segue_fault_vfs::faults_hit() > 0, "{refused:?}");
    segue_fault_vfs::inject_faults(InjectedSqliteFileFaults::default());
    // Whether it was written is unknown, as the engine knows; the lease tells.
    let lease = store.acquire_lease(&writer.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("its own");
    assert!([Seq(2), Seq(4)].contains(&lease.head), "{:?}", lease.head);
    writer.lease = lease;
    writer.append_records_with(2, Vec::new(), None).await;
    let head = writer.lease.head.0;
    drop((writer, store));
    let image = PowerCutDiskImage::after_power_cut(&segue_fault_vfs::stop_recording(), PowerCutWriteLoss::All);
    check_recovery(&image, &[head], "after a failed sync").await;
}

async fn full_disk_at_a_checkpoint_loses_nothing() {
    for faults in [
        InjectedSqliteFileFaults { database_is_full: true, ..InjectedSqliteFileFaults::default() },
        InjectedSqliteFileFaults { database_sync_fails: true, ..InjectedSqliteFileFaults::default() },
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        segue_fault_vfs::start_recording();
        let store = open_store(folder.path());
        let mut writer = TestJournalWriter::create_session(&store, "s0").await;
        let doomed = TestJournalWriter::create_session(&store, "doomed").await;
        segue_fault_vfs::inject_faults(faults);
        for round in 0..6_u64 {
            let text = format!("{round} ").repeat(1_000);
            writer.append_records_with(2, vec![visible_body(&text)], None).await;
        }
        // This makes a checkpoint, which fails. The commit itself is in the log.
        let deleted = store.delete_session(&doomed.session, None).await;
        assert!(segue_fault_vfs::faults_hit() > 0, "the checkpoint wrote to the database: {deleted:?}");
        writer.append_records_with(2, Vec::new(), None).await;
        assert_eq!(read_all_records(&store, &writer.session).await, sample_records(&writer.session, 14));
        let crashed =
            PowerCutDiskImage::after_power_cut(&segue_fault_vfs::recorded_changes(), PowerCutWriteLoss::Random(5));
        segue_fault_vfs::inject_faults(InjectedSqliteFileFaults::default());
        writer.append_records_with(2, Vec::new(), None).await;
        drop((writer, doomed, store));
        let closed = PowerCutDiskImage::after_power_cut(&segue_fault_vfs::stop_recording(), PowerCutWriteLoss::All);
        // Only now, because the stores that are opened for the checks would be recorded, too.
        check_recovery(&crashed, &[14], &format!("a power cut after {faults:?}")).await;
        check_recovery(&closed, &[16], "later").await;
    }
}

#[tokio::test]
async fn store_survives_power_cuts_and_failing_disks() {
    segue_fault_vfs::install();
    survives_power_cuts().await;
    lost_syncs_are_noticed().await;
    failed_sync_is_reported_and_loses_nothing().await;
    full_disk_at_a_checkpoint_loses_nothing().await;
}
