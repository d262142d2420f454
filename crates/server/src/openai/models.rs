//! The flows, as models.

use axum::Json;
use axum::extract::{Path, State};
use segue_core::flow::FlowSpec;
use serde::Serialize;
use utoipa::ToSchema;

use super::{OpenAiRejection, flow_for_model};
use crate::app::AppState;
use crate::caller::Caller;

/// All flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenAiModelList {
    /// `list`.
    pub object: String,
    /// By name.
    pub data: Vec<OpenAiModel>,
}

/// A flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenAiModel {
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
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, body = OpenAiModelList)))]
pub async fn list_models(State(app): State<AppState>, caller: Caller) -> Json<OpenAiModelList> {
    let specs = app.engine.flows().map(|rules| rules.spec()).filter(|spec| caller.can_use_flow(&spec.name));
    Json(OpenAiModelList { object: "list".to_owned(), data: specs.map(to_openai_model).collect() })
}

/// A flow, as a model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path, description = "The flow's name.")),
    responses((status = 200, body = OpenAiModel)))]
pub async fn get_model(
    State(app): State<AppState>,
    caller: Caller,
    Path(model): Path<String>,
) -> Result<Json<OpenAiModel>, OpenAiRejection> {
    let name = flow_for_model(&app, &caller, &model)?;
    let spec = app.engine.flows().map(|rules| rules.spec()).find(|spec| spec.name == name);
    Ok(Json(spec.map(to_openai_model).unwrap_or_else(|| to_openai_model(&FlowSpec::new(&model, "")))))
}

fn to_openai_model(spec: &FlowSpec) -> OpenAiModel {
    OpenAiModel {
        id: spec.name.to_string(),
        object: "model".to_owned(),
        created: 0,
        owned_by: "segue".to_owned(),
        about: spec.description.clone(),
    }
}
