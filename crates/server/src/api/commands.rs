//! Runs the commands that a flow declares.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::OperatorCommand;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::SessionPathParamDocs;
use super::session_view::SessionView;
use super::sessions::run_paid_command;
use crate::extract::{CallerSessionRef, JsonBody};
use crate::problem::HttpProblem;

/// The arguments of a flow command.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunFlowCommandRequest {
    /// Arguments by name, as the flow declares them.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub arguments: Value,
}

/// Run a command of the flow
#[utoipa::path(post, path = "/v1/sessions/{session}/commands/{command}", tag = "flow",
    params(SessionPathParamDocs, ("command" = String, Path, description = "The name of the command; `/v1/flows/{flow}` lists them.")),
    request_body = RunFlowCommandRequest, responses((status = 200, body = SessionView)))]
pub(crate) async fn run_flow_command(
    session_ref: CallerSessionRef,
    Path((_, name)): Path<(String, String)>,
    JsonBody(request): JsonBody<RunFlowCommandRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    if !request.arguments.is_null() && !request.arguments.is_object() {
        return Err(HttpProblem::bad_request("`arguments` must be an object").with_extension("field", "arguments"));
    }
    run_paid_command(&session_ref, OperatorCommand::Flow { command: name, arguments: request.arguments }).await
}
