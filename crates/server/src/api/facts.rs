//! Serves the facts that a flow recorded, and its artifacts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use segue_core::event::Event;
use segue_core::flow::FlowArtifact;
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, QueryParams};
use crate::limits::FACTS_MAX;
use crate::problem::HttpProblem;

/// The facts of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowFactListView {
    pub facts: Vec<FlowFactView>,
    /// The number of facts of each kind.
    pub counts_by_kind: BTreeMap<String, usize>,
}

/// A fact that the flow recorded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowFactView {
    pub seq: u64,
    pub at: u64,
    pub turn: Option<String>,
    pub kind: String,
    pub value: Value,
}

/// Filters of a list of facts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListFactsParams {
    /// Only facts of this kind.
    kind: Option<String>,
    /// Only the newest fact of each kind.
    latest: Option<bool>,
    /// Shows the session as it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// List the facts that the flow recorded
#[utoipa::path(get, path = "/v1/sessions/{session}/facts", tag = "flow", params(SessionPathParamDocs, ListFactsParams), responses((status = 200, body = FlowFactListView)))]
pub(crate) async fn list_facts(
    session_ref: CallerSessionRef,
    QueryParams(params): QueryParams<ListFactsParams>,
) -> Result<Json<FlowFactListView>, HttpProblem> {
    let at = AtEventParams { at: params.at }.to_seq()?;
    let (entries, counts_by_kind) = with_session_history(&session_ref, at, |history| {
        let mut counts_by_kind: BTreeMap<String, usize> = BTreeMap::new();
        history.facts.iter().for_each(|entry| *counts_by_kind.entry(entry.kind.clone()).or_default() += 1);
        let wanted = history.facts.iter().filter(|entry| params.kind.as_ref().is_none_or(|kind| entry.kind == *kind));
        let mut entries: Vec<_> = wanted.cloned().collect();
        if params.latest == Some(true) {
            let newest: BTreeMap<String, Seq> =
                entries.iter().map(|entry| (entry.kind.clone(), entry.position.seq)).collect();
            entries.retain(|entry| newest.get(&entry.kind) == Some(&entry.position.seq));
        }
        let skipped = entries.len().saturating_sub(FACTS_MAX);
        (entries.split_off(skipped), counts_by_kind)
    })
    .await?;
    let mut facts = Vec::with_capacity(entries.len());
    for entry in entries {
        let before = Seq(entry.position.seq.0.saturating_sub(1));
        let found = session_ref
            .app
            .engine
            .read_events(&session_ref.session, before, 1)
            .await
            .map_err(|error| session_ref.to_problem(error))?;
        let Some(Event::FlowFactRecorded { value, .. }) = found.into_iter().next().map(|recorded| recorded.event)
        else {
            continue;
        };
        let turn = entry.turn.map(|turn| turn.to_string());
        facts.push(FlowFactView { seq: entry.position.seq.0, at: entry.position.at.0, turn, kind: entry.kind, value });
    }
    Ok(Json(FlowFactListView { facts, counts_by_kind }))
}

/// The artifacts of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArtifactList {
    pub artifacts: Vec<ArtifactView>,
}

/// Structured output of the flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArtifactView {
    /// Its name within the flow.
    pub name: String,
    /// The heading to show above the artifact.
    pub title: String,
    /// `checklist`, `graph`, `table` or `notes`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The content, in the form that `type` names.
    #[serde(flatten)]
    #[schema(ignore)]
    pub content: serde_json::Map<String, Value>,
}

/// List the artifacts of the flow
#[utoipa::path(get, path = "/v1/sessions/{session}/artifacts", tag = "flow", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = ArtifactList)))]
pub(crate) async fn list_artifacts(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ArtifactList>, HttpProblem> {
    let artifacts = read_artifacts(&session_ref, at.to_seq()?).await?;
    Ok(Json(ArtifactList { artifacts: artifacts.into_iter().map(artifact_view).collect() }))
}

/// Get one artifact
#[utoipa::path(get, path = "/v1/sessions/{session}/artifacts/{artifact}", tag = "flow",
    params(SessionPathParamDocs, ("artifact" = String, Path, description = "The name of the artifact."), AtEventParams), responses((status = 200, body = ArtifactView)))]
pub(crate) async fn get_artifact(
    session_ref: CallerSessionRef,
    Path((_, name)): Path<(String, String)>,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ArtifactView>, HttpProblem> {
    let artifacts = read_artifacts(&session_ref, at.to_seq()?).await?;
    let none = || HttpProblem::not_found(format!("the session has no artifact `{name}`"));
    artifacts.into_iter().find(|artifact| artifact.name == name).map(artifact_view).map(Json).ok_or_else(none)
}

async fn read_artifacts(session_ref: &CallerSessionRef, at: Option<Seq>) -> Result<Vec<FlowArtifact>, HttpProblem> {
    let (flow, state) = read_session_state(session_ref, at).await?;
    session_ref
        .app
        .engine
        .artifacts(&session_ref.session, &*flow, &state)
        .await
        .map_err(|error| session_ref.to_problem(error))
}

fn artifact_view(artifact: FlowArtifact) -> ArtifactView {
    let mut content = match serde_json::to_value(&artifact.content) {
        Ok(Value::Object(content)) => content,
        _ => serde_json::Map::new(),
    };
    format_turn_ids(&mut content);
    let kind = content.remove("type").and_then(|kind| kind.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    ArtifactView { name: artifact.name, title: artifact.title, kind, content }
}

/// Replaces bare turn numbers by turn ids such as `t3`.
fn format_turn_ids(content: &mut serde_json::Map<String, Value>) {
    let items = content.get_mut("items").and_then(Value::as_array_mut);
    for turn in items.into_iter().flatten().filter_map(|item| item.get_mut("turn")) {
        if let Some(number) = turn.as_u64() {
            *turn = format!("t{number}").into();
        }
    }
}
