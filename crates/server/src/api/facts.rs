//! What a flow knows: its own facts as they were recorded, and what it puts on show.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use segue_core::event::Event;
use segue_core::flow::artifact::Artifact;
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPath};
use crate::extract::{QueryParams, SessionRef};
use crate::limits::FACTS_MAX;
use crate::problem::HttpProblem;

/// Facts of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct FactList {
    /// In order.
    pub facts: Vec<FactView>,
    /// How many there are of each kind.
    pub counts_by_kind: BTreeMap<String, usize>,
}

/// A fact.
#[derive(Debug, Serialize, ToSchema)]
pub struct FactView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// Its kind.
    pub kind: String,
    /// What it says.
    pub value: Value,
}

/// Which facts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFactsParams {
    /// Only those of this kind.
    kind: Option<String>,
    /// Only the newest of each kind.
    latest: Option<bool>,
    /// As it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// What the flow noted
#[utoipa::path(get, path = "/v1/sessions/{session}/facts", tag = "flow", params(SessionPath, ListFactsParams), responses((status = 200, body = FactList)))]
pub async fn list_facts(
    session_ref: SessionRef,
    QueryParams(params): QueryParams<ListFactsParams>,
) -> Result<Json<FactList>, HttpProblem> {
    let at = AtEventParams { at: params.at }.to_seq()?;
    let (notes, kinds) = with_session_history(&session_ref, at, |chronicle| {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        chronicle.facts.iter().for_each(|note| *kinds.entry(note.kind.clone()).or_default() += 1);
        let wanted = chronicle.facts.iter().filter(|note| params.kind.as_ref().is_none_or(|kind| note.kind == *kind));
        let mut notes: Vec<_> = wanted.cloned().collect();
        if params.latest == Some(true) {
            let newest: BTreeMap<String, Seq> =
                notes.iter().map(|note| (note.kind.clone(), note.position.seq)).collect();
            notes.retain(|note| newest.get(&note.kind) == Some(&note.position.seq));
        }
        let skipped = notes.len().saturating_sub(FACTS_MAX);
        (notes.split_off(skipped), kinds)
    })
    .await?;
    let mut facts = Vec::with_capacity(notes.len());
    for note in notes {
        let before = Seq(note.position.seq.0.saturating_sub(1));
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
        let turn = note.turn.map(|turn| turn.to_string());
        facts.push(FactView { seq: note.position.seq.0, at: note.position.at.0, turn, kind: note.kind, value });
    }
    Ok(Json(FactList { facts, counts_by_kind: kinds }))
}

/// What is on show.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArtifactList {
    /// One by one.
    pub artifacts: Vec<ArtifactView>,
}

/// Something on show.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArtifactView {
    /// Its name within the flow.
    pub name: String,
    /// What people should read above it.
    pub title: String,
    /// `checklist`, `graph`, `table` or `notes`.
    pub kind: String,
    /// What there is to see, in the form that `is` says.
    #[serde(flatten)]
    #[schema(ignore)]
    pub content: serde_json::Map<String, Value>,
}

/// What the flow puts on show
#[utoipa::path(get, path = "/v1/sessions/{session}/artifacts", tag = "flow", params(SessionPath, AtEventParams), responses((status = 200, body = ArtifactList)))]
pub async fn list_artifacts(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ArtifactList>, HttpProblem> {
    let exhibits = read_artifacts(&session_ref, at.to_seq()?).await?;
    Ok(Json(ArtifactList { artifacts: exhibits.into_iter().map(artifact_view).collect() }))
}

/// One thing on show
#[utoipa::path(get, path = "/v1/sessions/{session}/artifacts/{artifact}", tag = "flow",
    params(SessionPath, ("exhibit" = String, Path, description = "Its name, such as `workflow`."), AtEventParams), responses((status = 200, body = ArtifactView)))]
pub async fn get_artifact(
    session_ref: SessionRef,
    Path((_, name)): Path<(String, String)>,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ArtifactView>, HttpProblem> {
    let exhibits = read_artifacts(&session_ref, at.to_seq()?).await?;
    let none = || HttpProblem::not_found(format!("nothing called `{name}` is on show"));
    exhibits.into_iter().find(|exhibit| exhibit.name == name).map(artifact_view).map(Json).ok_or_else(none)
}

async fn read_artifacts(session_ref: &SessionRef, at: Option<Seq>) -> Result<Vec<Artifact>, HttpProblem> {
    let (rules, state) = read_session_state(session_ref, at).await?;
    session_ref
        .app
        .engine
        .artifacts(&session_ref.session, &*rules, &state)
        .await
        .map_err(|error| session_ref.to_problem(error))
}

fn artifact_view(exhibit: Artifact) -> ArtifactView {
    let mut form = match serde_json::to_value(&exhibit.content) {
        Ok(Value::Object(form)) => form,
        _ => serde_json::Map::new(),
    };
    format_turn_ids(&mut form);
    let is = form.remove("type").and_then(|is| is.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    ArtifactView { name: exhibit.name, title: exhibit.title, kind: is, content: form }
}

/// Turns are named here as they are everywhere in the API.
fn format_turn_ids(form: &mut serde_json::Map<String, Value>) {
    let items = form.get_mut("items").and_then(Value::as_array_mut);
    for turn in items.into_iter().flatten().filter_map(|item| item.get_mut("turn")) {
        if let Some(number) = turn.as_u64() {
            *turn = format!("t{number}").into();
        }
    }
}
