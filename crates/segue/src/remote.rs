//! A server somewhere else, talked to as if its engine were here. What is only looked at is folded here from the journal that the server
//! gives out; what is to happen is asked of the server.

mod client;
mod listener;
mod store;

use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::decide::Command;
use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::Rules;
use segue_core::ids::{CallId, FlowName, MessageId, Seq, SessionId};
use segue_engine::{Engine, Message, Opening, Recomputed, Recovery, Setup};
use segue_models::Models;
use serde_json::{Value, json};

use crate::settings;

pub use client::{Client, Problem};
pub use listener::Listener;

/// A server, and an engine that looks at its sessions.
pub struct Remote {
    pub client: Arc<Client>,
    pub engine: Engine,
    /// What the server says of itself.
    pub about: Value,
}

impl Remote {
    /// Finds the server. Its sessions are looked at with these flows.
    pub async fn at(url: &str, flows: Vec<Arc<dyn Rules>>) -> anyhow::Result<Self> {
        let client = Arc::new(Client::at(url)?);
        let about = client.get("/v1/server").await?;
        check_version(url, about["version"].as_str())?;
        let store = Arc::new(store::RemoteStore::new(client.clone()));
        let setup = Setup { recovery: Recovery::Never, ..Setup::new(store, flows, Models::new(), "remote") };
        Ok(Self { client, engine: Engine::start(setup).await?, about })
    }

    pub async fn open(&self, flow: &FlowName, opening: &Opening) -> anyhow::Result<SessionId> {
        let mut body =
            json!({ "flow": flow, "session": opening.session, "busy": opening.busy, "models": opening.cast });
        if opening.settings.is_object() {
            body["settings"] = opening.settings.clone();
        }
        let made = self.client.post("/v1/sessions", &body).await?;
        Ok(SessionId::from(made["session"].as_str().context("the server named no session")?))
    }

    pub async fn send(&self, session: &SessionId, message: &Message) -> anyhow::Result<MessageId> {
        let path = format!("/v1/sessions/{session}/messages");
        let body = json!({ "text": message.text, "images": message.images, "wait": false });
        let accepted = self.client.post(&path, &body).await?;
        let message = accepted["message"].as_str().and_then(|message| message.parse().ok());
        message.context("the server named no message")
    }

    pub async fn fork(&self, session: &SessionId, name: Option<&SessionId>) -> anyhow::Result<SessionId> {
        let made = self.client.post(&format!("/v1/sessions/{session}/fork"), &json!({ "session": name })).await?;
        Ok(SessionId::from(made["session"].as_str().context("the server named no session")?))
    }

    pub async fn once_more(
        &self,
        session: &SessionId,
        call: CallId,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<Recomputed> {
        let (rules, _) = self.engine.state(session).await?;
        let change = json!({ "model": model, "settings": settings::given(rules.spec(), set)? });
        let made = self.client.post(&format!("/v1/sessions/{session}/calls/{call}/recompute"), &change).await?;
        let again = made["call"].as_str().and_then(|call| call.parse().ok()).context("the server named no call")?;
        Ok(self.engine.recomputed(session, again).await?)
    }

    pub async fn command(&self, session: &SessionId, command: &Command) -> anyhow::Result<()> {
        let path = |rest: &str| format!("/v1/sessions/{session}/{rest}");
        let of = |phase: &PhaseKey, body: Value| with_graph(body, phase);
        let asked = match command {
            Command::Rename { title } => {
                return self
                    .client
                    .patch(&format!("/v1/sessions/{session}"), &json!({ "title": title }))
                    .await
                    .map(drop);
            }
            Command::Cancel => (path("cancel"), json!({})),
            Command::Retry => (path("retry"), json!({})),
            Command::Close => (path("close"), json!({})),
            Command::Forget { role, agent, peer } => {
                (path("forget"), json!({ "role": role, "agent": agent, "peer": peer }))
            }
            Command::Resolve { call, how } => (path(&format!("calls/{call}/resolve")), json!({ "how": how })),
            Command::Propose { phase, to, reason } => {
                (path("phases/propose"), of(phase, json!({ "to": to, "reason": reason })))
            }
            Command::Grant { phase, to } => (path("phases/grant"), of(phase, json!({ "to": to }))),
            Command::RollBack { phase, visit } => (path("phases/rollback"), of(phase, json!({ "visit": visit }))),
            Command::Flow { command, arguments } => {
                (path(&format!("commands/{command}")), json!({ "arguments": arguments }))
            }
        };
        match self.client.post(&asked.0, &asked.1).await {
            // It is recorded, and seen like everything else.
            Err(error) if Problem::is(&error, "phase-refused") => Ok(()),
            other => other.map(drop),
        }
    }

    pub async fn listen(&self, session: &SessionId, after: Seq) -> anyhow::Result<Listener> {
        Listener::begin(self.client.clone(), session.clone(), after).await
    }
}

/// What is folded here from a server's journal must be what the server has: the rules of both must be the same.
fn check_version(url: &str, theirs: Option<&str>) -> anyhow::Result<()> {
    const OURS: &str = env!("CARGO_PKG_VERSION");
    let Some(theirs) = theirs else { bail!("what answers at {url} is no server of segue's") };
    let line = |version: &str| version.rsplit_once('.').map(|(line, _)| line.to_owned());
    if line(theirs) != line(OURS) {
        bail!("the server at {url} is segue {theirs}, and this is segue {OURS}; use the same version on both sides");
    }
    Ok(())
}

fn with_graph(mut body: Value, phase: &PhaseKey) -> Value {
    body["graph"] = json!(phase.graph);
    match &phase.owner {
        Owner::Session => {}
        Owner::Role(role) => body["of"] = json!(role),
        Owner::Agent(agent) => body["of"] = json!(agent),
    }
    body
}
