//! What a flow itself offers to be told.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::OperatorCommand;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::SessionPath;
use super::session_view::SessionView;
use super::sessions::run_session_command;
use crate::extract::{JsonBody, SessionRef};
use crate::problem::HttpProblem;

/// How a command is to be followed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandArguments {
    /// By name, as the flow describes them.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub arguments: Value,
}

/// Have the flow follow one of its own commands
#[utoipa::path(post, path = "/v1/sessions/{session}/commands/{command}", tag = "flow",
    params(SessionPath, ("command" = String, Path, description = "Its name; `/v1/flows/{flow}` lists them.")),
    request_body = CommandArguments, responses((status = 200, body = SessionView)))]
pub async fn run_flow_command(
    session_ref: SessionRef,
    Path((_, name)): Path<(String, String)>,
    JsonBody(given): JsonBody<CommandArguments>,
) -> Result<Json<SessionView>, HttpProblem> {
    if !given.arguments.is_null() && !given.arguments.is_object() {
        return Err(HttpProblem::bad_request("`arguments` must be an object").with_extension("field", "arguments"));
    }
    run_session_command(&session_ref, OperatorCommand::Flow { command: name, arguments: given.arguments }).await
}
