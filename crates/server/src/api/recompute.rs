//! Recomputes a past call, and resolves a call whose outcome is unknown.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::{OperatorCommand, RecomputeCallOverrides, UnknownCallOutcomeResolution};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::calls::find_call;
use super::session_view::{SessionView, read_session_state};
use super::{CallPathParamDocs, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, JsonBody};
use crate::problem::HttpProblem;
use crate::usage::{admit_turn, check_allowed_models};

/// What to change in the recomputation.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecomputeCallRequest {
    /// The model to use instead.
    #[serde(default)]
    pub model: Option<String>,
    /// Settings to override; all others keep their values.
    #[serde(default)]
    pub settings: Value,
}

/// A past call and its recomputation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallRecomputationView {
    /// The new call.
    pub call: String,
    /// The original call.
    pub recomputes: String,
    /// The model of the new call.
    pub model: String,
    pub previous_answer: Option<String>,
    pub new_answer: Option<String>,
    /// Why there is no new answer.
    pub problem: Option<String>,
    /// The fragments that differ.
    pub changed_fragments: Vec<String>,
}

/// Recompute a past call
///
/// The new call is recorded outside the timeline and changes nothing in the conversation.
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/recompute", tag = "calls", params(SessionPathParamDocs, CallPathParamDocs), request_body = RecomputeCallRequest, responses((status = 200, body = CallRecomputationView)))]
pub(crate) async fn recompute_call(
    session_ref: CallerSessionRef,
    Path((_, call)): Path<(String, String)>,
    JsonBody(request): JsonBody<RecomputeCallRequest>,
) -> Result<Json<CallRecomputationView>, HttpProblem> {
    let entry = find_call(&session_ref, &call, None).await?;
    if !request.settings.is_null() && !request.settings.is_object() {
        return Err(HttpProblem::bad_request("`settings` must be an object").with_extension("field", "settings"));
    }
    let engine = &session_ref.app.engine;
    if let Some(model) = &request.model {
        let known = engine.models().get(&model.as_str().into());
        known.map_err(|failure| HttpProblem::bad_request(failure.message).with_extension("field", "model"))?;
    }
    let options = RecomputeCallOverrides { model: request.model.map(Into::into), settings: request.settings };
    check_allowed_models(&session_ref.caller, &options.model)?;
    let _admitted = admit_turn(&session_ref).await?;
    let result = engine
        .recompute_call(&session_ref.session, entry.call, &options)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let previous_answer = result.original.answer.ok().map(|answer| answer.text);
    let (new_answer, problem) = match result.rerun.answer {
        Ok(answer) => (Some(answer.text), None),
        Err(problem) => (None, Some(problem)),
    };
    let changed_fragments = result.changed_fragments.iter().map(ToString::to_string).collect();
    Ok(Json(CallRecomputationView {
        call: result.rerun.call.to_string(),
        recomputes: result.original.call.to_string(),
        model: result.rerun.model.to_string(),
        previous_answer,
        new_answer,
        problem,
        changed_fragments,
    }))
}

/// A decision about a call whose outcome is unknown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveUnknownCallRequest {
    pub action: ResolveUnknownCallAction,
}

/// What to do with a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResolveUnknownCallAction {
    /// Make the call again, although it may be billed twice.
    Retry,
    /// Treat the call as failed.
    Fail,
}

/// Resolve a call whose outcome is unknown
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/resolve", tag = "calls", params(SessionPathParamDocs, CallPathParamDocs), request_body = ResolveUnknownCallRequest, responses((status = 200, body = SessionView)))]
pub(crate) async fn resolve_call(
    session_ref: CallerSessionRef,
    Path((_, call)): Path<(String, String)>,
    JsonBody(resolve): JsonBody<ResolveUnknownCallRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let call = find_call(&session_ref, &call, None).await?.call;
    let resolution = match resolve.action {
        ResolveUnknownCallAction::Retry => UnknownCallOutcomeResolution::Retry,
        ResolveUnknownCallAction::Fail => UnknownCallOutcomeResolution::Fail,
    };
    // Checks that the session can be read before the command is sent.
    read_session_state(&session_ref, None).await?;
    super::sessions::run_paid_command(&session_ref, OperatorCommand::Resolve { call, resolution }).await
}
