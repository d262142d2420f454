//! The traits of a store, implemented by transactions of the writer and the readers.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId};

use super::body_index::SqliteStoreConnection;
use super::inbox::SqliteEncodedInboxSubmission;
use super::process_lock::ProcessLivenessLock;
use super::writer::WalErasureRequirement;
use super::{SqliteStore, catalog, fork_delete, inbox, leases, read, write};
use crate::{
    Error, InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit,
    JournalReader, JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy,
    NewInboxSubmission, PendingWorkPage, PendingWorkQuery, SessionCatalog, SessionForkSpec, SessionListChangeCursor,
    SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, Snapshot, StoreMaintenance, encoding,
    validate_session_id,
};

#[async_trait]
impl JournalReader for SqliteStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        self.run_session_read(session, move |db, session| read::read_records(db, session, after, limit)).await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let sessions = sessions.to_vec();
        self.run_store_read(move |db| read::read_heads(db, &sessions)).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let ids = ids.to_vec();
        self.run_session_read(session, move |db, session| read::read_bodies(db, session, &ids)).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        self.run_session_read(session, |db, session| read::load_snapshot(db, session)).await
    }
}

#[async_trait]
impl JournalWriter for SqliteStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        validate_session_id(session)?;
        let name = session.clone();
        self.run_write(session, 0, WalErasureRequirement::NotRequired, move |db, node| {
            leases::create_session(db, &name, node)
        })
        .await
    }

    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        commit.validate()?;
        let prepared = write::SqliteEncodedCommit::from_commit(&commit);
        let (bytes, clock) = (prepared.byte_len(), self.clock.clone());
        self.run_write(&commit.session, bytes, WalErasureRequirement::NotRequired, move |db, node| {
            write::append_commit(db, &prepared, node, &clock)
        })
        .await
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let sealed = encoding::seal_snapshot(session, &snapshot);
        let (name, bytes) = (session.clone(), sealed.len());
        let work = move |db: &SqliteStoreConnection, _: &ProcessLivenessLock| {
            write::save_snapshot(db, &name, &snapshot, &sealed)
        };
        self.run_write(session, bytes, WalErasureRequirement::NotRequired, work).await
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error> {
        validate_session_id(&fork.to)?;
        let session = fork.from.clone();
        self.run_write(&session, 0, WalErasureRequirement::NotRequired, move |db, node| {
            fork_delete::fork_session(db, &fork, node)
        })
        .await
    }

    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error> {
        let name = session.clone();
        self.run_write(session, 0, WalErasureRequirement::NotRequired, move |db, node| {
            fork_delete::begin_delete(db, &name, node)
        })
        .await
    }

    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> Result<(), Error> {
        let (name, now) = (session.clone(), self.clock.now());
        self.run_write(session, 0, WalErasureRequirement::Required, move |db, node| {
            fork_delete::delete_session(db, &name, notice_to_parent.as_ref(), node, now)
        })
        .await
    }
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> Result<Lease, Error> {
        let name = session.clone();
        self.run_write(session, 0, WalErasureRequirement::NotRequired, move |db, node| {
            leases::acquire_lease(db, &name, takeover, node)
        })
        .await
    }

    fn lease_ms(&self) -> Option<u64> {
        None
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error> {
        let held = held.to_vec();
        self.run_store_read(move |db| leases::find_lost_leases(db, &held)).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        let name = session.clone();
        self.run_write(session, 0, WalErasureRequirement::NotRequired, move |db, _| {
            leases::release_lease(db, &name, epoch)
        })
        .await
    }
}

#[async_trait]
impl InboxStore for SqliteStore {
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> Result<SessionUid, Error> {
        let encoded = SqliteEncodedInboxSubmission::new(session, &submission);
        let (name, bytes, now) = (session.clone(), encoded.byte_len(), self.clock.now());
        self.run_write(session, bytes, WalErasureRequirement::NotRequired, move |db, _| {
            inbox::submit(db, &name, expected, &encoded, now)
        })
        .await
    }

    async fn read_inbox(&self, session: &SessionId, limit: usize) -> Result<Vec<InboxEntry>, Error> {
        self.run_session_read(session, move |db, session| inbox::read_inbox(db, session, limit)).await
    }

    async fn read_outcome(
        &self,
        session: &SessionId,
        submission: SubmissionId,
    ) -> Result<InboxSubmissionStatus, Error> {
        let now = self.clock.now();
        self.run_session_read(session, move |db, session| inbox::read_outcome(db, session, submission, now)).await
    }

    async fn held_sessions_with_entries(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        let node = {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.as_ref().ok_or(Error::Closed)?.node.clone()
        };
        self.run_store_read(move |db| inbox::held_sessions_with_entries(db, node.name(), limit)).await
    }
}

#[async_trait]
impl SessionCatalog for SqliteStore {
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        let query = query.clone();
        self.run_store_read(move |db| catalog::list_sessions(db, &query)).await
    }

    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        self.run_session_read(session, |db, session| catalog::parent_of(db, session)).await
    }

    async fn children_of(&self, parent: SessionUid, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        self.run_store_read(move |db| catalog::children_of(db, parent, limit)).await
    }

    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> Result<PendingWorkPage, Error> {
        let query = query.clone();
        self.run_store_read(move |db| catalog::sessions_with_pending_work(db, &query)).await
    }

    async fn sessions_to_delete(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        self.run_store_read(move |db| catalog::sessions_to_delete(db, limit)).await
    }

    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error> {
        self.run_store_read(move |db| catalog::changes_after(db, after, limit)).await
    }
}

#[async_trait]
impl StoreMaintenance for SqliteStore {
    async fn probe_write(&self) -> Result<(), Error> {
        self.run_write(&SessionId::from(""), 0, WalErasureRequirement::NotRequired, |db, _| {
            write::rewrite_format_number(db)
        })
        .await
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        self.run_store_read(read::check_integrity).await
    }

    async fn close(&self) -> Result<(), Error> {
        if let Some(writer) = self.stop_accepting() {
            tokio::task::spawn_blocking(move || writer.drain_and_join()).await.map_err(|_| Error::Closed)?;
        }
        Ok(())
    }
}
