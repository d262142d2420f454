//! Sessions that open when another session first asks them, such as workspaces.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use segue_core::decide::{Decision, InboxSubmission};
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, Seq, SessionId, session_owner};

use crate::config::SessionOptions;
use crate::engine::Engine;
use crate::error::Error;
use crate::limits::{ON_DEMAND_POLL_MS, ON_DEMAND_POLLS_MAX};
use crate::session_name::on_demand_flow;

impl Engine {
    /// Opens the on-demand sessions that a decision asks and that do not exist yet. It runs before the decision is
    /// written, because the store delivers a question only to a session that exists. Opening is idempotent: the store
    /// creates a name once, whichever process is first. If the store fails, nothing is written and the decision is
    /// repeated. If a session cannot be opened for another reason, the question comes back as undeliverable.
    pub(crate) fn open_on_demand_sessions<'a>(
        &'a self,
        asker: &'a SessionId,
        decision: &'a Decision,
    ) -> BoxFuture<'a, Result<(), segue_store::Error>> {
        // Boxed, because opening a session can start the task of a session, which can open sessions.
        Box::pin(self.open_missing_on_demand_sessions(asker, decision))
    }

    async fn open_missing_on_demand_sessions(
        &self,
        asker: &SessionId,
        decision: &Decision,
    ) -> Result<(), segue_store::Error> {
        let asked: BTreeSet<&SessionId> = decision
            .submissions
            .iter()
            .filter(|outgoing| matches!(&outgoing.submission, InboxSubmission::Ask { reply_to: Some(_), .. }))
            .map(|outgoing| &outgoing.to)
            .filter(|to| session_owner(to) == session_owner(asker))
            .collect();
        for session in asked {
            let Some(flow) = on_demand_flow(session).filter(|flow| self.opens_on_demand(flow)) else { continue };
            if let Err(error) = self.ensure_session_open(session, &flow).await {
                tracing::warn!(%session, %error, "cannot open a session on demand");
                if error.is_transient() {
                    let what = format!("opening {session}");
                    return Err(segue_store::Error::Io { what, detail: error.to_string() });
                }
            }
        }
        Ok(())
    }

    fn opens_on_demand(&self, flow: &FlowName) -> bool {
        let spec: Option<&FlowSpec> = self.shared().flows.get(flow).map(|flow| flow.spec());
        spec.is_some_and(|spec| spec.opens_on_demand)
    }

    async fn ensure_session_open(&self, session: &SessionId, flow: &FlowName) -> Result<(), Error> {
        for _ in 0..ON_DEMAND_POLLS_MAX {
            if self.has_records(session).await? {
                return Ok(());
            }
            let options = SessionOptions { title: Some(session.to_string()), ..SessionOptions::default() };
            match self.open_session_with_name(flow, session.clone(), options).await {
                Ok(()) => {
                    tracing::info!(%session, %flow, "session opened on demand");
                    return Ok(());
                }
                // Another process is opening it right now.
                Err(Error::SessionExists(_) | Error::InUse { .. }) => {
                    tokio::time::sleep(Duration::from_millis(ON_DEMAND_POLL_MS)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoSuchSession(session.clone()))
    }

    async fn has_records(&self, session: &SessionId) -> Result<bool, Error> {
        let heads = self.shared().store.read_heads(std::slice::from_ref(session)).await;
        let heads = heads.map_err(|error| Error::from_store_error(session, error))?;
        Ok(heads.first().is_some_and(|head| head.is_some_and(|head| head > Seq(0))))
    }
}
