//! The traits of a store, implemented by operations on the database.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId};

use super::append::PostgresEncodedCommit;
use super::deliveries::{PostgresCommitWithDeliveries, append_with_deliveries};
use super::{PostgresStore, catalog, changes, fork_delete, inbox, leases, metrics, nodes, read, run_operation};
use crate::{
    Error, InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit,
    JournalReader, JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy,
    NewInboxSubmission, PendingWorkPage, PendingWorkQuery, SessionCatalog, SessionForkSpec, SessionListChangeCursor,
    SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, Snapshot, StoreMaintenance, StoreMetrics,
    encoding, validate_session_id,
};

fn reading(session: &SessionId) -> String {
    format!("reading session `{session}`")
}

fn writing(session: &SessionId) -> String {
    format!("writing session `{session}`")
}

#[async_trait]
impl JournalReader for PostgresStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        run_operation!(self, reading(session), (session, after, limit), |db| read::read_records(
            db, &session, after, limit
        ))
        .await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let sessions: Arc<[SessionId]> = sessions.into();
        run_operation!(self, "reading sessions".to_owned(), (sessions), |db| read::read_heads(db, &sessions)).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let ids: Arc<[BodyId]> = ids.into();
        run_operation!(self, reading(session), (session, ids), |db| read::read_bodies(db, &session, &ids)).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        run_operation!(self, reading(session), (session), |db| read::load_snapshot(db, &session)).await
    }
}

#[async_trait]
impl JournalWriter for PostgresStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        validate_session_id(session)?;
        run_operation!(self, writing(session), (session), |db| leases::create_session(db, &session)).await
    }

    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        commit.validate()?;
        if commit.spawned.is_empty() && commit.outgoing.is_empty() {
            return self.run_append(PostgresEncodedCommit::new(&commit)).await;
        }
        let what = writing(&commit.session);
        let deliveries = Arc::new(PostgresCommitWithDeliveries::new(commit));
        run_operation!(self, what, (deliveries), |db| append_with_deliveries(db, &deliveries)).await
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let sealed: Arc<[u8]> = encoding::seal_snapshot(session, &snapshot).into();
        let (seq, format) = (snapshot.seq, snapshot.format);
        run_operation!(self, writing(session), (session, seq, format, sealed), |db| read::save_snapshot(
            db, &session, seq, format, &sealed
        ))
        .await
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error> {
        validate_session_id(&fork.to)?;
        run_operation!(self, writing(&fork.to), (fork), |db| fork_delete::fork_session(db, &fork)).await
    }

    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error> {
        run_operation!(self, writing(session), (session), |db| fork_delete::begin_delete(db, &session)).await
    }

    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> Result<(), Error> {
        run_operation!(self, writing(session), (session, notice_to_parent), |db| fork_delete::delete_session(
            db,
            &session,
            notice_to_parent.as_ref()
        ))
        .await
    }
}

#[async_trait]
impl LeaseStore for PostgresStore {
    fn lease_ms(&self) -> Option<u64> {
        Some(self.backend.lease_ms)
    }

    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> Result<Lease, Error> {
        run_operation!(self, writing(session), (session, takeover), |db| leases::acquire_lease(db, &session, takeover))
            .await
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error> {
        let held: Arc<[(SessionId, LeaseEpoch)]> = held.into();
        run_operation!(self, "renewing leases".to_owned(), (held), |db| nodes::renew_leases(db, &held)).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        run_operation!(self, writing(session), (session, epoch), |db| leases::release_lease(db, &session, epoch)).await
    }

    async fn find_holder_addresses(&self, sessions: &[SessionId]) -> Result<Vec<Option<String>>, Error> {
        let sessions: Arc<[SessionId]> = sessions.into();
        run_operation!(self, "looking for nodes".to_owned(), (sessions), |db| nodes::find_holder_addresses(
            db, &sessions
        ))
        .await
    }
}

#[async_trait]
impl InboxStore for PostgresStore {
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> Result<SessionUid, Error> {
        let submission = Arc::new(submission);
        run_operation!(self, writing(session), (session, expected, submission), |db| inbox::submit(
            db,
            &session,
            expected,
            &submission
        ))
        .await
    }

    async fn read_inbox(&self, session: &SessionId, limit: usize) -> Result<Vec<InboxEntry>, Error> {
        run_operation!(self, reading(session), (session, limit), |db| inbox::read_inbox(db, &session, limit)).await
    }

    async fn read_outcome(
        &self,
        session: &SessionId,
        submission: SubmissionId,
    ) -> Result<InboxSubmissionStatus, Error> {
        run_operation!(self, reading(session), (session, submission), |db| inbox::read_outcome(
            db, &session, submission
        ))
        .await
    }

    async fn held_sessions_with_entries(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        run_operation!(self, "reading inboxes".to_owned(), (limit), |db| inbox::held_sessions_with_entries(db, limit))
            .await
    }
}

#[async_trait]
impl SessionCatalog for PostgresStore {
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        run_operation!(self, "listing sessions".to_owned(), (query), |db| catalog::list_sessions(db, &query)).await
    }

    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        run_operation!(self, reading(session), (session), |db| catalog::parent_of(db, &session)).await
    }

    async fn children_of(&self, parent: SessionUid, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        run_operation!(self, "listing children".to_owned(), (parent, limit), |db| catalog::children_of(
            db, parent, limit
        ))
        .await
    }

    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> Result<PendingWorkPage, Error> {
        run_operation!(self, "looking for pending work".to_owned(), (query), |db| {
            catalog::sessions_with_pending_work(db, &query)
        })
        .await
    }

    async fn sessions_to_delete(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        run_operation!(self, "listing deletions".to_owned(), (limit), |db| catalog::sessions_to_delete(db, limit)).await
    }

    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error> {
        run_operation!(self, "reading changes".to_owned(), (after, limit), |db| changes::changes_after(
            db, after, limit
        ))
        .await
    }
}

#[async_trait]
impl StoreMaintenance for PostgresStore {
    async fn probe_write(&self) -> Result<(), Error> {
        run_operation!(self, "writing to the database".to_owned(), (), |db| read::probe_write(db)).await
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        run_operation!(self, "checking the database".to_owned(), (), |db| read::check_integrity(db)).await
    }

    async fn read_metrics(&self) -> Result<StoreMetrics, Error> {
        run_operation!(self, "reading metrics".to_owned(), (), |db| metrics::read_metrics(db)).await
    }

    async fn close(&self) -> Result<(), Error> {
        if let Some(running) = self.stop_accepting() {
            tokio::task::spawn_blocking(move || running.drain_and_end()).await.map_err(|_| Error::Closed)?;
        }
        Ok(())
    }
}
