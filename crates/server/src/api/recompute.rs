//! A past call once more, and a decision about one whose end is not known.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::{OperatorCommand, RecomputeOptions, UnknownCallResolution};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::calls::find_call;
use super::session_view::{SessionView, read_session_state};
use super::{CallPath, SessionPath};
use crate::extract::{JsonBody, SessionRef};
use crate::problem::HttpProblem;

/// What is to be different this time.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecomputeRequest {
    /// Another model.
    #[serde(default)]
    pub model: Option<String>,
    /// Other settings; those not named stay as they were.
    #[serde(default)]
    pub settings: Value,
}

/// A past call and the same once more.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecomputationView {
    /// The new call.
    pub call: String,
    /// The past one.
    pub recomputes: String,
    /// The model that answered now.
    pub model: String,
    /// What was answered then.
    pub previous_answer: Option<String>,
    /// What is answered now.
    pub new_answer: Option<String>,
    /// Why nothing is.
    pub problem: Option<String>,
    /// The fragments that differ.
    pub changed_fragments: Vec<String>,
}

/// Make a past call once more, beside the timeline
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/recompute", tag = "calls", params(SessionPath, CallPath), request_body = RecomputeRequest, responses((status = 200, body = RecomputationView)))]
pub async fn recompute_call(
    session_ref: SessionRef,
    Path((_, call)): Path<(String, String)>,
    JsonBody(wanted): JsonBody<RecomputeRequest>,
) -> Result<Json<RecomputationView>, HttpProblem> {
    let note = find_call(&session_ref, &call, None).await?;
    if !wanted.settings.is_null() && !wanted.settings.is_object() {
        return Err(HttpProblem::bad_request("`settings` must be an object").with_extension("field", "settings"));
    }
    let engine = &session_ref.app.engine;
    if let Some(model) = &wanted.model {
        let known = engine.models().get(&model.as_str().into());
        known.map_err(|failure| HttpProblem::bad_request(failure.message).with_extension("field", "model"))?;
    }
    super::messages::check_turn_capacity(&session_ref)?;
    let change = RecomputeOptions { model: wanted.model.map(Into::into), settings: wanted.settings };
    let made = engine
        .recompute_call(&session_ref.session, note.call, &change)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let before = made.original.answer.ok().map(|answer| answer.text);
    let (now, problem) = match made.rerun.answer {
        Ok(answer) => (Some(answer.text), None),
        Err(why) => (None, Some(why)),
    };
    let changed = made.changed_fragments.iter().map(ToString::to_string).collect();
    Ok(Json(RecomputationView {
        call: made.rerun.call.to_string(),
        recomputes: made.original.call.to_string(),
        model: made.rerun.model.to_string(),
        previous_answer: before,
        new_answer: now,
        problem,
        changed_fragments: changed,
    }))
}

/// What to do about a call whose end is not known.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveCallRequest {
    /// What.
    pub action: ResolveAction,
}

/// What to do about a call whose end is not known.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAction {
    /// Make it again, though it may be billed twice.
    Retry,
    /// Take it as failed.
    Fail,
}

/// Decide about a call whose end is not known
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/resolve", tag = "calls", params(SessionPath, CallPath), request_body = ResolveCallRequest, responses((status = 200, body = SessionView)))]
pub async fn resolve_call(
    session_ref: SessionRef,
    Path((_, call)): Path<(String, String)>,
    JsonBody(resolve): JsonBody<ResolveCallRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let call = find_call(&session_ref, &call, None).await?.call;
    let how = match resolve.action {
        ResolveAction::Retry => UnknownCallResolution::Retry,
        ResolveAction::Fail => UnknownCallResolution::Fail,
    };
    // Read first, so that a session that cannot be read is not told anything.
    read_session_state(&session_ref, None).await?;
    super::sessions::run_session_command(&session_ref, OperatorCommand::Resolve { call, resolution: how }).await
}
