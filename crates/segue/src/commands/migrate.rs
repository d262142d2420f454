//! `segue migrate`: copies the sessions of a store file into a PostgreSQL database, and compares the copies. Then it copies what
//! the servers keep in files beside the store: keys, their usage, and webhooks.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::ops::Range;

use anyhow::{Context, bail};
use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::codec;
use segue_core::ids::{Seq, SessionId};
use segue_engine::clock::{Clock, SystemClock};
use segue_server::{CrossServerSharedState, SharedStateCopyReport, SharedStateCopyToDatabase};
use segue_store::postgres::PostgresStore;
use segue_store::sqlite::SqliteStore;
use segue_store::{
    CommittedTextBody, InboxStore, JournalCommit, JournalReader, JournalRecord, JournalWriter, LeaseStore,
    SessionCatalog, SessionQuery, StoreMaintenance, StoredSessionListEntry,
};
use serde_json::json;

use crate::cli::{GlobalArgs, MigrateStoreArgs};
use crate::limits::{MIGRATED_INBOX_ENTRIES_MAX, MIGRATED_RECORDS_MAX, MIGRATED_SESSIONS_PAGE};
use crate::print;
use crate::print::number_format::format_plural;
use crate::store_location::{ClusterNodeOptions, StoreLocation, open_database};

/// What was copied.
#[derive(Debug, Default)]
struct MigrationReport {
    copied: usize,
    /// Sessions that an earlier run had copied.
    unchanged: usize,
    records: u64,
    shared: SharedStateCopyReport,
}

pub(crate) async fn run_migrate(global: &GlobalArgs, arguments: &MigrateStoreArgs) -> anyhow::Result<()> {
    let source_path = &arguments.source;
    let StoreLocation::Database(url) = StoreLocation::parse(&arguments.target) else {
        bail!("the target must be a database, like postgres://user@host/database");
    };
    if !source_path.is_file() {
        bail!("there is no store {}", source_path.display());
    }
    let source = SqliteStore::open(source_path)?;
    ensure_source_unused(&source, arguments)?;
    let target = open_database(url, ClusterNodeOptions::default())?;
    let nodes = target.report_database().await?.live_nodes;
    if nodes > 1 {
        bail!("the target database is in use by {}; stop them first", format_plural(nodes - 1, "running node"));
    }
    let mut report = MigrationReport::default();
    let sessions = list_all_sessions(&source).await?;
    target.skip_epochs_until(source.newest_epoch().await?).await?;
    for (index, entry) in sessions.iter().enumerate() {
        let migration = SessionToCopyToPostgres { source: &source, target: &target, entry };
        let records = migration
            .copy_and_compare()
            .await
            .with_context(|| format!("cannot migrate session `{}`", entry.session))?;
        match records {
            0 => report.unchanged += 1,
            _ => report.copied += 1,
        }
        report.records += records;
        show_migration_progress(global, index + 1, sessions.len());
    }
    ensure_source_unused(&source, arguments)?;
    ensure_same_heads(&source, &sessions).await?;
    let folder = StoreLocation::File(source_path).data_folder(None);
    let target = std::sync::Arc::new(target);
    let copy = SharedStateCopyToDatabase {
        folder: &folder,
        source_sessions: &source,
        target: &CrossServerSharedState::from_store(target.clone()),
        target_sessions: target.as_ref(),
        now: SystemClock.now(),
    };
    report.shared = copy.run().await?;
    target.close().await?;
    print_report(global, &report)
}

fn print_report(global: &GlobalArgs, report: &MigrationReport) -> anyhow::Result<()> {
    let MigrationReport { copied, unchanged, records, shared } = report;
    let SharedStateCopyReport { keys, webhooks, usage_days } = shared;
    if global.json {
        return print::print_json(&json!({
            "copied_sessions": copied, "unchanged_sessions": unchanged, "copied_events": records, "copied_keys": keys,
            "copied_webhooks": webhooks, "usage_days": usage_days
        }));
    }
    print::write_stdout(&format!(
        "copied {} with {}, {} and {}; {unchanged} sessions were there already; every journal was compared\n",
        format_plural(*copied as u64, "session"),
        format_plural(*records, "event"),
        format_plural(*keys as u64, "key"),
        format_plural(*webhooks as u64, "webhook"),
    ))
}

fn ensure_source_unused(source: &SqliteStore, arguments: &MigrateStoreArgs) -> anyhow::Result<()> {
    let others = source.other_process_count()?;
    if others > 0 {
        let path = arguments.source.display();
        bail!("the store {path} is in use by {}; stop them first", format_plural(others as u64, "other program"));
    }
    Ok(())
}

async fn list_all_sessions(source: &SqliteStore) -> anyhow::Result<Vec<StoredSessionListEntry>> {
    let mut query = SessionQuery::newest(MIGRATED_SESSIONS_PAGE);
    let mut sessions = Vec::new();
    loop {
        let page = source.list_sessions(&query).await?;
        sessions.extend(page.entries);
        match page.next_cursor {
            Some(next) => query.after_cursor = Some(next),
            None => return Ok(sessions),
        }
    }
}

/// Refuses if a process has written to the source meanwhile.
async fn ensure_same_heads(source: &SqliteStore, sessions: &[StoredSessionListEntry]) -> anyhow::Result<()> {
    for page in sessions.chunks(MIGRATED_SESSIONS_PAGE) {
        let names: Vec<_> = page.iter().map(|entry| entry.session.clone()).collect();
        for (entry, head) in page.iter().zip(source.read_heads(&names).await?) {
            if head != Some(entry.head) {
                bail!("session `{}` was changed during the migration; run it again", entry.session);
            }
        }
    }
    Ok(())
}

/// Shows how far the migration is, on a terminal and at the end.
fn show_migration_progress(global: &GlobalArgs, done: usize, all: usize) {
    if !global.json && (done == all || (done.is_multiple_of(100) && std::io::stderr().is_terminal())) {
        print::write_stderr_line(&format!("{done} of {} copied and compared", format_plural(all as u64, "session")));
    }
}

/// One session that is copied.
struct SessionToCopyToPostgres<'a> {
    source: &'a SqliteStore,
    target: &'a PostgresStore,
    entry: &'a StoredSessionListEntry,
}

/// A part of a journal, with the texts that it refers to first.
#[derive(PartialEq)]
struct JournalPartWithTexts {
    records: Vec<JournalRecord>,
    bodies: Vec<CommittedTextBody>,
}

impl SessionToCopyToPostgres<'_> {
    /// Copies what is missing, and compares everything. Returns the number of records that were copied.
    async fn copy_and_compare(&self) -> anyhow::Result<u64> {
        let StoredSessionListEntry { session, uid, parent, head, .. } = self.entry;
        let adopted = self.target.adopt_session(session, *uid, *parent).await;
        let mut lease = adopted.context("the database has another session with this name or number")?;
        let old_head = lease.head;
        if old_head > *head {
            bail!("the database has {old_head} events of this session, the store only {head}: it was continued there");
        }
        // Another session may have this name and number by chance.
        self.compare_journals(old_head).await?;
        if old_head < *head {
            let entries = self.source.read_inbox(session, MIGRATED_INBOX_ENTRIES_MAX).await?;
            self.target.adopt_inbox_entries(session, &entries).await?;
        }
        let mut known = BTreeMap::new();
        let mut after = Seq(0);
        while after < *head {
            let part = read_journal_part(self.source, session, after..*head, &mut known).await?;
            let Some(last) = part.records.last().map(|record| record.seq) else { bail!("its journal is too short") };
            let is_missing = |seq: Seq| seq > lease.head;
            let commit = JournalCommit {
                records: part.records.into_iter().filter(|record| is_missing(record.seq)).collect(),
                bodies: part.bodies.into_iter().filter(|body| is_missing(body.first_used_by)).collect(),
                summary: (last == *head).then(|| self.entry.summary.clone()),
                ..JournalCommit::of_records(session.clone(), lease.epoch, lease.head, Vec::new())
            };
            if !commit.records.is_empty() {
                lease.head = self.target.append_commit(commit).await?;
            }
            after = last;
        }
        self.compare_journals(*head).await?;
        if let Some(snapshot) = self.source.load_snapshot(session).await? {
            self.target.save_snapshot(session, snapshot).await?;
        }
        self.target.release_lease(session, lease.epoch).await?;
        Ok(head.0 - old_head.0)
    }

    /// Compares the records up to `end`, and the texts to which they refer.
    async fn compare_journals(&self, end: Seq) -> anyhow::Result<()> {
        let session = &self.entry.session;
        let (mut known_at_source, mut known_at_target) = (BTreeMap::new(), BTreeMap::new());
        let mut after = Seq(0);
        while after < end {
            let original = read_journal_part(self.source, session, after..end, &mut known_at_source).await?;
            let copy = read_journal_part(self.target, session, after..end, &mut known_at_target).await?;
            if original != copy {
                bail!("the database has other events or texts after event {after} of it");
            }
            let Some(last) = original.records.last() else { bail!("its journal is too short") };
            after = last.seq;
        }
        Ok(())
    }
}

/// Reads the next records of a journal after the start of `range` and up to its end, and the texts that were not in `known`.
async fn read_journal_part(
    store: &dyn JournalReader,
    session: &SessionId,
    range: Range<Seq>,
    known: &mut BTreeMap<BodyId, BodyVisibility>,
) -> anyhow::Result<JournalPartWithTexts> {
    let left = usize::try_from(range.end.0 - range.start.0).unwrap_or(usize::MAX);
    let records = store.read_records(session, range.start, left.min(MIGRATED_RECORDS_MAX)).await?;
    let mut uses = Vec::new();
    for record in &records {
        let event = codec::decode_event(record.seq, record.at, &record.bytes)?;
        for (id, kind) in event.event.referenced_bodies() {
            // A text that was internal is stored again when it becomes visible.
            let is_new = match known.get(&id) {
                None => true,
                Some(old) => *old == BodyVisibility::Internal && kind == BodyVisibility::Conversation,
            };
            if is_new {
                known.insert(id, kind);
                uses.push((record.seq, id, kind));
            }
        }
    }
    let ids: Vec<BodyId> = uses.iter().map(|(_, id, _)| *id).collect();
    let texts = store.read_bodies(session, &ids).await?;
    let to_body =
        |((first_used_by, id, kind), text)| CommittedTextBody { text: TextToStore { id, text, kind }, first_used_by };
    let bodies = uses.into_iter().zip(texts).map(to_body).collect();
    Ok(JournalPartWithTexts { records, bodies })
}
