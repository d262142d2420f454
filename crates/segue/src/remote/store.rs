//! A server's sessions as a store that can only be read: what is folded from it here is what the server's own engine has.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{Epoch, Millis, Seq, SessionId};
use segue_store::{
    Claim, Commit, Error, Fork, Owes, Page, Query, Record, Report, Row, Snapshot, Store, Summary, Takeover,
};
use serde_json::{Value, json};

use super::client::{Client, Problem};
use crate::limits::{REMOTE_EVENTS_MAX, REMOTE_TEXTS_MAX};

/// A server's sessions.
#[derive(Debug)]
pub struct RemoteStore {
    client: Arc<Client>,
}

impl RemoteStore {
    pub fn new(client: Arc<Client>) -> Self {
        Self { client }
    }
}

fn failed(session: &SessionId, error: &anyhow::Error) -> Error {
    if Problem::is(error, "no-such-session") {
        return Error::NoSuchSession { session: session.clone() };
    }
    Error::Io { what: format!("asking the server about `{session}`"), detail: format!("{error:#}") }
}

/// Nothing is written but by the server.
fn read_only(session: &SessionId) -> Error {
    Error::Malformed { session: session.clone(), detail: "it is the server's to change".to_owned() }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[async_trait]
impl Store for RemoteStore {
    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        let mut records: Vec<Record> = Vec::new();
        let mut after = after.0;
        while records.len() < limit {
            let page = (limit - records.len()).min(REMOTE_EVENTS_MAX);
            let path = format!("/v1/sessions/{session}/events?texts=none&after={after}&limit={page}");
            let page = self.client.get(&path).await.map_err(|error| failed(session, &error))?;
            for event in page["events"].as_array().into_iter().flatten() {
                let (seq, at) = (Seq(number(&event["seq"])), Millis(number(&event["at"])));
                records.push(Record { seq, at, bytes: event["event"].to_string().into_bytes() });
            }
            after = number(&page["last"]);
            if page["more"] != true {
                break;
            }
        }
        Ok(records)
    }

    async fn heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let mut heads = Vec::with_capacity(sessions.len());
        for session in sessions {
            let found = self.client.get(&format!("/v1/sessions/{session}")).await;
            heads.push(match found.map_err(|error| failed(session, &error)) {
                Ok(found) => Some(Seq(number(&found["seq"]))),
                Err(Error::NoSuchSession { .. }) => None,
                Err(error) => return Err(error),
            });
        }
        Ok(heads)
    }

    async fn bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let mut texts = Vec::with_capacity(ids.len());
        for some in ids.chunks(REMOTE_TEXTS_MAX) {
            let path = format!("/v1/sessions/{session}/texts");
            let found = self.client.post(&path, &json!({ "bodies": some })).await;
            let found = found.map_err(|error| failed(session, &error))?;
            texts.extend(some.iter().map(|id| Arc::from(words(&found["texts"][id.to_string()]))));
        }
        Ok(texts)
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let limit = query.limit.clamp(1, REMOTE_TEXTS_MAX);
        let nobody = SessionId::from("");
        let page =
            self.client.get(&format!("/v1/sessions?limit={limit}")).await.map_err(|error| failed(&nobody, &error))?;
        let row = |row: &Value| Row {
            session: words(&row["session"]).into(),
            summary: Summary {
                flow: words(&row["flow"]),
                title: words(&row["title"]),
                phase: words(&row["phase"]),
                turns: u32::try_from(number(&row["turns"])).unwrap_or(u32::MAX),
                calls: u32::try_from(number(&row["calls"])).unwrap_or(u32::MAX),
                cost_microusd: row["cost_microusd"].as_u64(),
                created: Millis(number(&row["created"])),
                updated: Millis(number(&row["updated"])),
                owes: if row["at_work"] == true { Owes::Now } else { Owes::Nothing },
            },
            head: Seq(number(&row["seq"])),
            excerpt: None,
        };
        Ok(Page { rows: page["sessions"].as_array().into_iter().flatten().map(row).collect(), next: None })
    }

    async fn snapshot(&self, _: &SessionId) -> Result<Option<Snapshot>, Error> {
        Ok(None)
    }

    async fn keep_snapshot(&self, _: &SessionId, _: Snapshot) -> Result<(), Error> {
        Ok(())
    }

    async fn owing(&self) -> Result<Vec<(SessionId, Owes)>, Error> {
        Ok(Vec::new())
    }

    async fn check(&self) -> Result<Report, Error> {
        Ok(Report::default())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn create(&self, session: &SessionId) -> Result<Claim, Error> {
        Err(read_only(session))
    }

    async fn claim(&self, session: &SessionId, _: Takeover) -> Result<Claim, Error> {
        Err(read_only(session))
    }

    async fn release(&self, session: &SessionId, _: Epoch) -> Result<(), Error> {
        Err(read_only(session))
    }

    async fn append(&self, commit: Commit) -> Result<Seq, Error> {
        Err(read_only(&commit.session))
    }

    async fn fork(&self, fork: Fork) -> Result<(), Error> {
        Err(read_only(&fork.from))
    }

    async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        Err(read_only(session))
    }
}
