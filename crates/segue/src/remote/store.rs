//! The sessions of a server as a read-only store, from which a local engine computes the same state as the server's.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId, UnixMillis};
use segue_store::{
    Error, InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit,
    JournalReader, JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy,
    NewInboxSubmission, PendingWorkPage, PendingWorkQuery, PendingWorkStatus, SessionCatalog, SessionForkSpec,
    SessionListChangeCursor, SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, SessionSummary,
    Snapshot, StoreMaintenance, StoredSessionListEntry,
};
use serde_json::{Value, json};

use super::client::{RemoteServerProblem, ServerClient};
use crate::limits::{REMOTE_EVENTS_MAX, REMOTE_TEXTS_MAX};

/// A read-only store backed by the HTTP API.
#[derive(Debug)]
pub(crate) struct RemoteReadOnlyStore {
    client: Arc<ServerClient>,
}

impl RemoteReadOnlyStore {
    pub(crate) fn new(client: Arc<ServerClient>) -> Self {
        Self { client }
    }
}

fn remote_error(session: &SessionId, error: &anyhow::Error) -> Error {
    if RemoteServerProblem::has_code(error, "no-such-session") {
        return Error::NoSuchSession { session: session.clone() };
    }
    Error::Io { what: format!("asking the server about `{session}`"), detail: format!("{error:#}") }
}

/// Returns the error for a write, which only the server may perform.
fn read_only_error(session: &SessionId) -> Error {
    Error::Malformed { session: session.clone(), detail: "only the server can change it".to_owned() }
}

/// Returns the error for a query that the HTTP API does not offer.
fn not_offered_error(session: &SessionId) -> Error {
    Error::Malformed { session: session.clone(), detail: "only the server can tell".to_owned() }
}

fn u64_or_zero(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[async_trait]
impl JournalReader for RemoteReadOnlyStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        let mut records: Vec<JournalRecord> = Vec::new();
        let mut after = after.0;
        while records.len() < limit {
            let page = (limit - records.len()).min(REMOTE_EVENTS_MAX);
            let path = format!("/v1/sessions/{session}/events?texts=none&after={after}&limit={page}");
            let page = self.client.get(&path).await.map_err(|error| remote_error(session, &error))?;
            for event in page["events"].as_array().into_iter().flatten() {
                let (seq, at) = (Seq(u64_or_zero(&event["seq"])), UnixMillis(u64_or_zero(&event["at"])));
                records.push(JournalRecord { seq, at, bytes: event["event"].to_string().into_bytes() });
            }
            after = u64_or_zero(&page["last_seq"]);
            if page["has_more"] != true {
                break;
            }
        }
        Ok(records)
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let mut heads = Vec::with_capacity(sessions.len());
        for session in sessions {
            let found = self.client.get(&format!("/v1/sessions/{session}")).await;
            heads.push(match found.map_err(|error| remote_error(session, &error)) {
                Ok(found) => Some(Seq(u64_or_zero(&found["seq"]))),
                Err(Error::NoSuchSession { .. }) => None,
                Err(error) => return Err(error),
            });
        }
        Ok(heads)
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let mut texts = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(REMOTE_TEXTS_MAX) {
            let path = format!("/v1/sessions/{session}/texts");
            let found = self.client.post(&path, &json!({ "bodies": chunk })).await;
            let found = found.map_err(|error| remote_error(session, &error))?;
            texts.extend(chunk.iter().map(|id| Arc::from(string_or_empty(&found["texts"][id.to_string()]))));
        }
        Ok(texts)
    }

    async fn load_snapshot(&self, _: &SessionId) -> Result<Option<Snapshot>, Error> {
        Ok(None)
    }
}

#[async_trait]
impl SessionCatalog for RemoteReadOnlyStore {
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        let limit = query.limit.clamp(1, REMOTE_TEXTS_MAX);
        let no_session = SessionId::from("");
        let page = self
            .client
            .get(&format!("/v1/sessions?limit={limit}"))
            .await
            .map_err(|error| remote_error(&no_session, &error))?;
        let row = |row: &Value| StoredSessionListEntry {
            session: string_or_empty(&row["session"]).into(),
            // The HTTP API identifies sessions by their names.
            uid: SessionUid(0),
            parent: None,
            is_quarantined: false,
            summary: SessionSummary {
                flow: string_or_empty(&row["flow"]),
                title: string_or_empty(&row["title"]),
                phase: string_or_empty(&row["phase"]),
                turns: u32::try_from(u64_or_zero(&row["turns"])).unwrap_or(u32::MAX),
                calls: u32::try_from(u64_or_zero(&row["calls"])).unwrap_or(u32::MAX),
                cost_microusd: row["cost_microusd"].as_u64(),
                created_at: UnixMillis(u64_or_zero(&row["created"])),
                updated_at: UnixMillis(u64_or_zero(&row["updated"])),
                pending_work: if row["is_active"] == true { PendingWorkStatus::Now } else { PendingWorkStatus::None },
            },
            head: Seq(u64_or_zero(&row["seq"])),
            excerpt: None,
        };
        Ok(SessionListPage {
            entries: page["sessions"].as_array().into_iter().flatten().map(row).collect(),
            next_cursor: None,
        })
    }

    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        Err(not_offered_error(session))
    }

    async fn children_of(&self, _: SessionUid, _: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        Err(not_offered_error(&SessionId::from("")))
    }

    async fn sessions_with_pending_work(&self, _: &PendingWorkQuery) -> Result<PendingWorkPage, Error> {
        Ok(PendingWorkPage { sessions: Vec::new(), next_cursor: None })
    }

    async fn sessions_to_delete(&self, _: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        Ok(Vec::new())
    }

    async fn changes_after(
        &self,
        _: Option<SessionListChangeCursor>,
        _: usize,
    ) -> Result<SessionListChangePage, Error> {
        Err(not_offered_error(&SessionId::from("")))
    }
}

#[async_trait]
impl JournalWriter for RemoteReadOnlyStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        Err(read_only_error(session))
    }

    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        Err(read_only_error(&commit.session))
    }

    async fn save_snapshot(&self, _: &SessionId, _: Snapshot) -> Result<(), Error> {
        Ok(())
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error> {
        Err(read_only_error(&fork.from))
    }

    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error> {
        Err(read_only_error(session))
    }

    async fn delete_session(&self, session: &SessionId, _: Option<NewInboxSubmission>) -> Result<(), Error> {
        Err(read_only_error(session))
    }
}

#[async_trait]
impl LeaseStore for RemoteReadOnlyStore {
    async fn acquire_lease(&self, session: &SessionId, _: LeaseTakeoverPolicy) -> Result<Lease, Error> {
        Err(read_only_error(session))
    }

    fn lease_ms(&self) -> Option<u64> {
        None
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error> {
        match held.first() {
            Some((session, _)) => Err(read_only_error(session)),
            None => Ok(LeaseRenewalResult { expires_at: None, lost: Vec::new() }),
        }
    }

    async fn release_lease(&self, session: &SessionId, _: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        Err(read_only_error(session))
    }
}

#[async_trait]
impl InboxStore for RemoteReadOnlyStore {
    async fn submit(
        &self,
        session: &SessionId,
        _: Option<SessionUid>,
        _: NewInboxSubmission,
    ) -> Result<SessionUid, Error> {
        Err(read_only_error(session))
    }

    async fn read_inbox(&self, session: &SessionId, _: usize) -> Result<Vec<InboxEntry>, Error> {
        Err(not_offered_error(session))
    }

    async fn read_outcome(&self, session: &SessionId, _: SubmissionId) -> Result<InboxSubmissionStatus, Error> {
        Err(not_offered_error(session))
    }

    async fn held_sessions_with_entries(&self, _: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        // This process holds no session.
        Ok(Vec::new())
    }
}

#[async_trait]
impl StoreMaintenance for RemoteReadOnlyStore {
    async fn probe_write(&self) -> Result<(), Error> {
        let ready = self.client.get("/ready").await;
        ready.map(|_| ()).map_err(|error| remote_error(&SessionId::from(""), &error))
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        Ok(IntegrityReport::default())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
