//! The flows, as models.

use axum::Json;
use axum::extract::{Path, State};
use segue_core::flow::FlowSpec;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Refused, flow};
use crate::app::App;
use crate::caller::Caller;

/// All flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// By name.
    pub data: Vec<ModelCard>,
}

/// A flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelCard {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Seconds since 1970; of no meaning here.
    pub created: u64,
    /// `segue`.
    pub owned_by: String,
    /// What it is for.
    pub about: String,
}

/// Flows, as models
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, body = ModelList)))]
pub async fn list(State(app): State<App>, caller: Caller) -> Json<ModelList> {
    let specs = app.engine.flows().map(|rules| rules.spec()).filter(|spec| caller.may_use(&spec.name));
    Json(ModelList { object: "list".to_owned(), data: specs.map(card).collect() })
}

/// A flow, as a model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path, description = "The flow's name.")),
    responses((status = 200, body = ModelCard)))]
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(model): Path<String>,
) -> Result<Json<ModelCard>, Refused> {
    let name = flow(&app, &caller, &model)?;
    let spec = app.engine.flows().map(|rules| rules.spec()).find(|spec| spec.name == name);
    Ok(Json(spec.map(card).unwrap_or_else(|| card(&FlowSpec::new(&model, "")))))
}

fn card(spec: &FlowSpec) -> ModelCard {
    ModelCard {
        id: spec.name.to_string(),
        object: "model".to_owned(),
        created: 0,
        owned_by: "segue".to_owned(),
        about: spec.about.clone(),
    }
}
