//! What a flow itself offers to be told.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::Command;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Named;
use super::session_view::SessionView;
use super::sessions::command;
use crate::extract::{Body, Held};
use crate::problem::Problem;

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
    params(Named, ("command" = String, Path, description = "Its name; `/v1/flows/{flow}` lists them.")),
    request_body = CommandArguments, responses((status = 200, body = SessionView)))]
pub async fn run(
    held: Held,
    Path((_, name)): Path<(String, String)>,
    Body(given): Body<CommandArguments>,
) -> Result<Json<SessionView>, Problem> {
    if !given.arguments.is_null() && !given.arguments.is_object() {
        return Err(Problem::bad_request("`arguments` must be an object").with("field", "arguments"));
    }
    command(&held, Command::Flow { command: name, arguments: given.arguments }).await
}
