//! A client for the engine of a remote server. Reads are computed locally from the server's journal; messages and
//! commands are sent to the server.

mod client;
mod event_stream;
mod store;

use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::decide::OperatorCommand;
use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, FlowName, MessageId, Seq, SessionId};
use segue_engine::{Engine, EngineConfig, RecomputedCallComparison, SessionOptions, SessionResumePolicy, UserMessage};
use segue_models::ModelRegistry;
use serde_json::{Value, json};

use crate::config::RecordedDefinitionLoader;
use crate::setting_values;

pub(crate) use client::{RemoteServerProblem, ServerClient};
pub(crate) use event_stream::RemoteSubscription;

/// A server, and a local engine that reads its sessions.
pub(crate) struct RemoteServerConnection {
    pub client: Arc<ServerClient>,
    pub engine: Engine,
    /// The response of `GET /v1/server`.
    pub server_info: Value,
}

impl RemoteServerConnection {
    /// Connects to a server. `flows` are used to read its sessions.
    pub(crate) async fn connect(url: &str, flows: Vec<Arc<dyn DynFlow>>) -> anyhow::Result<Self> {
        let client = Arc::new(ServerClient::new(url)?);
        let about = client.get("/v1/server").await?;
        check_version(url, about["version"].as_str())?;
        let store = Arc::new(store::RemoteReadOnlyStore::new(client.clone()));
        let setup = EngineConfig {
            flow_loader: Some(Arc::new(RecordedDefinitionLoader)),
            recovery: SessionResumePolicy::Never,
            ..EngineConfig::new(store, flows, ModelRegistry::new(), "remote")
        };
        Ok(Self { client, engine: Engine::start(setup).await?, server_info: about })
    }

    pub(crate) async fn open_session(&self, flow: &FlowName, opening: &SessionOptions) -> anyhow::Result<SessionId> {
        let mut body = json!({ "flow": flow, "session": opening.session, "mid_turn_policy": opening.mid_turn_policy, "models": opening.role_models });
        if opening.settings.is_object() {
            body["settings"] = opening.settings.clone();
        }
        let made = self.client.post("/v1/sessions", &body).await?;
        Ok(SessionId::from(made["session"].as_str().context("the server's response contains no session")?))
    }

    pub(crate) async fn send_message(&self, session: &SessionId, message: &UserMessage) -> anyhow::Result<MessageId> {
        let path = format!("/v1/sessions/{session}/messages");
        let body = json!({ "text": message.text, "images": message.images, "wait": false });
        let accepted = self.client.post(&path, &body).await?;
        let message = accepted["message"].as_str().and_then(|message| message.parse().ok());
        message.context("the server's response contains no message id")
    }

    pub(crate) async fn fork_session(
        &self,
        session: &SessionId,
        name: Option<&SessionId>,
    ) -> anyhow::Result<SessionId> {
        let made = self.client.post(&format!("/v1/sessions/{session}/fork"), &json!({ "session": name })).await?;
        Ok(SessionId::from(made["session"].as_str().context("the server's response contains no session")?))
    }

    pub(crate) async fn recompute_call(
        &self,
        session: &SessionId,
        call: CallId,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<RecomputedCallComparison> {
        let (rules, _) = self.engine.load_session(session).await?;
        let change = json!({ "model": model, "settings": setting_values::parse_settings(rules.spec(), set)? });
        let made = self.client.post(&format!("/v1/sessions/{session}/calls/{call}/recompute"), &change).await?;
        let again = made["call"]
            .as_str()
            .and_then(|call| call.parse().ok())
            .context("the server's response contains no call id")?;
        Ok(self.engine.load_recompute_result(session, again).await?)
    }

    pub(crate) async fn send_command(&self, session: &SessionId, command: &OperatorCommand) -> anyhow::Result<()> {
        let path = |rest: &str| format!("/v1/sessions/{session}/{rest}");
        let of = |phase: &PhaseGraphKey, body: Value| add_graph_fields(body, phase);
        let asked = match command {
            OperatorCommand::Rename { title } => {
                return self
                    .client
                    .patch(&format!("/v1/sessions/{session}"), &json!({ "title": title }))
                    .await
                    .map(drop);
            }
            OperatorCommand::Cancel { turn } => (path("cancel"), json!({ "turn": turn.map(|turn| turn.to_string()) })),
            OperatorCommand::Retry { turn } => (path("retry"), json!({ "turn": turn.map(|turn| turn.to_string()) })),
            OperatorCommand::Close => (path("close"), json!({})),
            OperatorCommand::Forget { role, agent, peer } => {
                (path("forget"), json!({ "role": role, "agent": agent, "peer": peer }))
            }
            OperatorCommand::Resolve { call, resolution: how } => {
                (path(&format!("calls/{call}/resolve")), json!({ "action": how }))
            }
            OperatorCommand::Approve { run, arguments, remember, .. } => {
                (path(&format!("tool-runs/{run}/approve")), json!({ "arguments": arguments, "remember": remember }))
            }
            OperatorCommand::Deny { run, reason } => {
                (path(&format!("tool-runs/{run}/deny")), json!({ "reason": reason }))
            }
            OperatorCommand::ResolveToolRun { run, resolution, text } => {
                (path(&format!("tool-runs/{run}/resolve")), json!({ "action": resolution, "text": text }))
            }
            OperatorCommand::ProvideToolResults { .. } => {
                bail!("send the results of a client's tools to the OpenAI-compatible endpoint")
            }
            OperatorCommand::Propose { phase, to, reason } => {
                (path("phases/propose"), of(phase, json!({ "to": to, "reason": reason })))
            }
            OperatorCommand::Grant { phase, to } => (path("phases/grant"), of(phase, json!({ "to": to }))),
            OperatorCommand::RollBack { phase, visit } => {
                (path("phases/rollback"), of(phase, json!({ "visit": visit })))
            }
            OperatorCommand::Flow { command, arguments } => {
                (path(&format!("commands/{command}")), json!({ "arguments": arguments }))
            }
        };
        match self.client.post(&asked.0, &asked.1).await {
            // The refusal is an event of the journal and is shown like every other event.
            Err(error) if RemoteServerProblem::has_code(&error, "phase-refused") => Ok(()),
            other => other.map(drop),
        }
    }

    pub(crate) async fn subscribe(&self, session: &SessionId, after: Seq) -> anyhow::Result<RemoteSubscription> {
        RemoteSubscription::connect_after(self.client.clone(), session.clone(), after).await
    }
}

/// Checks that client and server have the same version, because the state computed from the journal must be the same.
fn check_version(url: &str, theirs: Option<&str>) -> anyhow::Result<()> {
    const OURS: &str = env!("CARGO_PKG_VERSION");
    let Some(theirs) = theirs else { bail!("{url} is not a Segue server") };
    let line = |version: &str| version.rsplit_once('.').map(|(line, _)| line.to_owned());
    if line(theirs) != line(OURS) {
        bail!("the server at {url} is segue {theirs}, and this is segue {OURS}; use the same version on both sides");
    }
    Ok(())
}

fn add_graph_fields(mut body: Value, phase: &PhaseGraphKey) -> Value {
    body["graph"] = json!(phase.graph);
    match &phase.owner {
        PhaseStateOwner::Session => {}
        PhaseStateOwner::Role(role) => body["owner"] = json!(role),
        PhaseStateOwner::Agent(agent) => body["owner"] = json!(agent),
    }
    body
}
