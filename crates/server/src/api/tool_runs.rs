//! Lists the tool runs that wait for a person, and decides about them.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::OperatorCommand;
use segue_core::event::UnknownToolRunOutcomeResolution;
use segue_core::ids::ToolRunId;
use segue_core::session::Session;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::SessionPathParamDocs;
use super::common_types::serialized_name;
use super::session_view::SessionView;
use super::sessions::run_paid_command;
use crate::extract::{self, CallerSessionRef, JsonBody};
use crate::problem::HttpProblem;

/// A tool run that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldToolRunView {
    pub run: String,
    /// `approval`: it has not started. `unknown_outcome`: it was in progress when the process died. `client_result`: the
    /// client runs the tool.
    pub reason: String,
    pub tool: String,
    /// The arguments with which it will run.
    pub arguments: Value,
    /// The role that requested it; `null` if the flow did.
    pub role: Option<String>,
    pub agent: Option<String>,
    pub phase: Option<String>,
    pub turn: Option<String>,
    /// The call whose answer requested it.
    pub call: Option<String>,
    /// Since when it waits.
    pub since: u64,
}

/// Returns the tool runs of a session that wait for a person.
pub(crate) fn held_tool_run_views(session: &Session) -> Vec<HeldToolRunView> {
    let views = session.held_tool_runs.iter().filter_map(|(run, held)| {
        let opened = session.open_tool_runs.get(run)?;
        Some(HeldToolRunView {
            run: run.to_string(),
            reason: serialized_name(&held.reason),
            tool: opened.tool.to_string(),
            arguments: opened.arguments.clone(),
            role: held.role.as_ref().map(ToString::to_string),
            agent: opened.agent.as_ref().map(ToString::to_string),
            phase: opened.phase.as_ref().map(ToString::to_string),
            turn: opened.turn.map(|turn| turn.to_string()),
            call: opened.requested_by.as_ref().map(|(call, _)| call.to_string()),
            since: held.since.0,
        })
    });
    views.collect()
}

/// The path parameter `run`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ToolRunPathParamDocs {
    /// The tool run, such as `x3`.
    #[expect(dead_code, reason = "only describes the parameter; the handlers read it with `Path`")]
    pub run: String,
}

/// How a tool run is approved.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApproveToolRunRequest {
    /// The arguments to use instead of those that were requested.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// Also allows the same role to use the tool for the rest of the session.
    #[serde(default)]
    pub remember: bool,
}

/// Approve a tool run that waits for it
#[utoipa::path(post, path = "/v1/sessions/{session}/tool-runs/{run}/approve", tag = "turns", params(SessionPathParamDocs, ToolRunPathParamDocs), request_body = ApproveToolRunRequest, responses((status = 200, body = SessionView)))]
pub(crate) async fn approve_tool_run(
    session_ref: CallerSessionRef,
    Path((_, run)): Path<(String, String)>,
    JsonBody(request): JsonBody<ApproveToolRunRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let run: ToolRunId = extract::parse_numbered_id(&run)?;
    let ApproveToolRunRequest { arguments, remember } = request;
    let by = session_ref.caller.key_id.clone();
    run_paid_command(&session_ref, OperatorCommand::Approve { run, arguments, remember, by }).await
}

/// Why a tool run is denied.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenyToolRunRequest {
    /// The model is told the reason.
    #[serde(default)]
    pub reason: String,
}

/// Deny a tool run that waits for approval
///
/// The model is told that the run was denied, and why.
#[utoipa::path(post, path = "/v1/sessions/{session}/tool-runs/{run}/deny", tag = "turns", params(SessionPathParamDocs, ToolRunPathParamDocs), request_body = DenyToolRunRequest, responses((status = 200, body = SessionView)))]
pub(crate) async fn deny_tool_run(
    session_ref: CallerSessionRef,
    Path((_, run)): Path<(String, String)>,
    JsonBody(request): JsonBody<DenyToolRunRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let run: ToolRunId = extract::parse_numbered_id(&run)?;
    run_paid_command(&session_ref, OperatorCommand::Deny { run, reason: request.reason }).await
}

/// A decision about a tool run whose outcome is unknown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveUnknownToolRunRequest {
    pub action: ResolveUnknownToolRunAction,
    /// For `done`, the result; for `fail`, the reason. The model is told.
    #[serde(default)]
    pub text: Option<String>,
}

/// What to do with a tool run whose outcome is unknown.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResolveUnknownToolRunAction {
    /// Run the tool again, although it may take effect twice.
    RunAgain,
    /// Treat the run as failed.
    Fail,
    /// Treat the run as done.
    Done,
}

/// Resolve a tool run whose outcome is unknown
#[utoipa::path(post, path = "/v1/sessions/{session}/tool-runs/{run}/resolve", tag = "turns", params(SessionPathParamDocs, ToolRunPathParamDocs), request_body = ResolveUnknownToolRunRequest, responses((status = 200, body = SessionView)))]
pub(crate) async fn resolve_tool_run(
    session_ref: CallerSessionRef,
    Path((_, run)): Path<(String, String)>,
    JsonBody(request): JsonBody<ResolveUnknownToolRunRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let run: ToolRunId = extract::parse_numbered_id(&run)?;
    let resolution = match request.action {
        ResolveUnknownToolRunAction::RunAgain => UnknownToolRunOutcomeResolution::RunAgain,
        ResolveUnknownToolRunAction::Fail => UnknownToolRunOutcomeResolution::Fail,
        ResolveUnknownToolRunAction::Done => UnknownToolRunOutcomeResolution::Done,
    };
    let command = OperatorCommand::ResolveToolRun { run, resolution, text: request.text };
    run_paid_command(&session_ref, command).await
}
