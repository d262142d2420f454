//! Serves the flows as models.

use axum::Json;
use axum::extract::{Path, State};
use segue_core::flow::FlowSpec;
use serde::Serialize;
use utoipa::ToSchema;

use super::{OpenAiRejection, flow_for_model};
use crate::app::AppState;
use crate::caller::Caller;

/// The flows as a list of models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenAiModelList {
    /// Always `list`.
    pub object: String,
    pub data: Vec<OpenAiFlowModel>,
}

/// A flow as a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenAiFlowModel {
    /// The name of the flow.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// Always 0.
    pub created: u64,
    /// Always `segue`.
    pub owned_by: String,
    /// A description of the flow.
    pub about: String,
}

/// List the flows as models
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, body = OpenAiModelList)))]
pub(crate) async fn list_models(State(app): State<AppState>, caller: Caller) -> Json<OpenAiModelList> {
    let specs = app.engine.flows().map(|flow| flow.spec());
    // Nobody talks to a session that opens on demand, such as a workspace.
    let specs = specs.filter(|spec| caller.can_use_flow(&spec.name) && !spec.opens_on_demand);
    Json(OpenAiModelList { object: "list".to_owned(), data: specs.map(to_openai_model).collect() })
}

/// Get a flow as a model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path, description = "The name of the flow.")),
    responses((status = 200, body = OpenAiFlowModel)))]
pub(crate) async fn get_model(
    State(app): State<AppState>,
    caller: Caller,
    Path(model): Path<String>,
) -> Result<Json<OpenAiFlowModel>, OpenAiRejection> {
    let name = flow_for_model(&app, &caller, &model)?;
    let spec = app.engine.flows().map(|flow| flow.spec()).find(|spec| spec.name == name);
    Ok(Json(spec.map(to_openai_model).unwrap_or_else(|| to_openai_model(&FlowSpec::new(&model, "")))))
}

fn to_openai_model(spec: &FlowSpec) -> OpenAiFlowModel {
    OpenAiFlowModel {
        id: spec.name.to_string(),
        object: "model".to_owned(),
        created: 0,
        owned_by: "segue".to_owned(),
        about: spec.description.clone(),
    }
}
