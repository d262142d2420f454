//! What a flow knows: its own facts as they were recorded, and what it puts on show.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use segue_core::event::Event;
use segue_core::flow::exhibit::Exhibit;
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::session_view::{chronicle, state};
use super::{At, Named};
use crate::extract::{Held, Params};
use crate::limits::FACTS_MAX;
use crate::problem::Problem;

/// Facts of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct Facts {
    /// In order.
    pub facts: Vec<FactView>,
    /// How many there are of each kind.
    pub kinds: BTreeMap<String, usize>,
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
pub struct FactsParams {
    /// Only those of this kind.
    kind: Option<String>,
    /// Only the newest of each kind.
    latest: Option<bool>,
    /// As it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// What the flow noted
#[utoipa::path(get, path = "/v1/sessions/{session}/facts", tag = "flow", params(Named, FactsParams), responses((status = 200, body = Facts)))]
pub async fn list(held: Held, Params(params): Params<FactsParams>) -> Result<Json<Facts>, Problem> {
    let at = At { at: params.at }.seq()?;
    let (notes, kinds) = chronicle(&held, at, |chronicle| {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        chronicle.facts.iter().for_each(|note| *kinds.entry(note.kind.clone()).or_default() += 1);
        let wanted = chronicle.facts.iter().filter(|note| params.kind.as_ref().is_none_or(|kind| note.kind == *kind));
        let mut notes: Vec<_> = wanted.cloned().collect();
        if params.latest == Some(true) {
            let newest: BTreeMap<String, Seq> = notes.iter().map(|note| (note.kind.clone(), note.place.seq)).collect();
            notes.retain(|note| newest.get(&note.kind) == Some(&note.place.seq));
        }
        let skipped = notes.len().saturating_sub(FACTS_MAX);
        (notes.split_off(skipped), kinds)
    })
    .await?;
    let mut facts = Vec::with_capacity(notes.len());
    for note in notes {
        let before = Seq(note.place.seq.0.saturating_sub(1));
        let found = held.app.engine.events(&held.session, before, 1).await.map_err(|error| held.problem(error))?;
        let Some(Event::Fact { value, .. }) = found.into_iter().next().map(|recorded| recorded.event) else { continue };
        let turn = note.turn.map(|turn| turn.to_string());
        facts.push(FactView { seq: note.place.seq.0, at: note.place.at.0, turn, kind: note.kind, value });
    }
    Ok(Json(Facts { facts, kinds }))
}

/// What is on show.
#[derive(Debug, Serialize, ToSchema)]
pub struct Exhibits {
    /// One by one.
    pub exhibits: Vec<ExhibitView>,
}

/// Something on show.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExhibitView {
    /// Its name within the flow.
    pub name: String,
    /// What people should read above it.
    pub title: String,
    /// `checklist`, `graph`, `table` or `notes`.
    pub is: String,
    /// What there is to see, in the form that `is` says.
    #[serde(flatten)]
    #[schema(ignore)]
    pub form: serde_json::Map<String, Value>,
}

/// What the flow puts on show
#[utoipa::path(get, path = "/v1/sessions/{session}/exhibits", tag = "flow", params(Named, At), responses((status = 200, body = Exhibits)))]
pub async fn exhibits(held: Held, Params(at): Params<At>) -> Result<Json<Exhibits>, Problem> {
    let exhibits = on_show(&held, at.seq()?).await?;
    Ok(Json(Exhibits { exhibits: exhibits.into_iter().map(exhibit_view).collect() }))
}

/// One thing on show
#[utoipa::path(get, path = "/v1/sessions/{session}/exhibits/{exhibit}", tag = "flow",
    params(Named, ("exhibit" = String, Path, description = "Its name, such as `workflow`."), At), responses((status = 200, body = ExhibitView)))]
pub async fn exhibit(
    held: Held,
    Path((_, name)): Path<(String, String)>,
    Params(at): Params<At>,
) -> Result<Json<ExhibitView>, Problem> {
    let exhibits = on_show(&held, at.seq()?).await?;
    let none = || Problem::no_such_thing(format!("nothing called `{name}` is on show"));
    exhibits.into_iter().find(|exhibit| exhibit.name == name).map(exhibit_view).map(Json).ok_or_else(none)
}

async fn on_show(held: &Held, at: Option<Seq>) -> Result<Vec<Exhibit>, Problem> {
    let (rules, state) = state(held, at).await?;
    held.app.engine.exhibits(&held.session, &*rules, &state).await.map_err(|error| held.problem(error))
}

fn exhibit_view(exhibit: Exhibit) -> ExhibitView {
    let mut form = match serde_json::to_value(&exhibit.form) {
        Ok(Value::Object(form)) => form,
        _ => serde_json::Map::new(),
    };
    name_turns(&mut form);
    let is = form.remove("is").and_then(|is| is.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    ExhibitView { name: exhibit.name, title: exhibit.title, is, form }
}

/// Turns are named here as they are everywhere in the API.
fn name_turns(form: &mut serde_json::Map<String, Value>) {
    let items = form.get_mut("items").and_then(Value::as_array_mut);
    for turn in items.into_iter().flatten().filter_map(|item| item.get_mut("turn")) {
        if let Some(number) = turn.as_u64() {
            *turn = format!("t{number}").into();
        }
    }
}
