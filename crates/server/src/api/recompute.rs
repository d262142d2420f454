//! A past call once more, and a decision about one whose end is not known.

use axum::Json;
use axum::extract::Path;
use segue_core::decide::{Change, Command, Resolution};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::calls::find;
use super::session_view::{SessionView, state};
use super::{CallNamed, Named};
use crate::extract::{Body, Held};
use crate::problem::Problem;

/// What is to be different this time.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recompute {
    /// Another model.
    #[serde(default)]
    pub model: Option<String>,
    /// Other settings; those not named stay as they were.
    #[serde(default)]
    pub settings: Value,
}

/// A past call and the same once more.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecomputedView {
    /// The new call.
    pub call: String,
    /// The past one.
    pub recomputes: String,
    /// The model that answered now.
    pub model: String,
    /// What was answered then.
    pub before: Option<String>,
    /// What is answered now.
    pub now: Option<String>,
    /// Why nothing is.
    pub problem: Option<String>,
    /// The fragments that differ.
    pub changed: Vec<String>,
}

/// Make a past call once more, beside the timeline
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/recompute", tag = "calls", params(Named, CallNamed), request_body = Recompute, responses((status = 200, body = RecomputedView)))]
pub async fn recompute(
    held: Held,
    Path((_, call)): Path<(String, String)>,
    Body(wanted): Body<Recompute>,
) -> Result<Json<RecomputedView>, Problem> {
    let note = find(&held, &call, None).await?;
    if !wanted.settings.is_null() && !wanted.settings.is_object() {
        return Err(Problem::bad_request("`settings` must be an object").with("field", "settings"));
    }
    let engine = &held.app.engine;
    if let Some(model) = &wanted.model {
        let known = engine.models().get(&model.as_str().into());
        known.map_err(|failure| Problem::bad_request(failure.message).with("field", "model"))?;
    }
    super::messages::room_for_turn(&held)?;
    let change = Change { model: wanted.model.map(Into::into), settings: wanted.settings };
    let made = engine.recompute(&held.session, note.call, &change).await.map_err(|error| held.problem(error))?;
    let before = made.then.answer.ok().map(|answer| answer.text);
    let (now, problem) = match made.now.answer {
        Ok(answer) => (Some(answer.text), None),
        Err(why) => (None, Some(why)),
    };
    let changed = made.changed.iter().map(ToString::to_string).collect();
    Ok(Json(RecomputedView {
        call: made.now.call.to_string(),
        recomputes: made.then.call.to_string(),
        model: made.now.model.to_string(),
        before,
        now,
        problem,
        changed,
    }))
}

/// What to do about a call whose end is not known.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// What.
    pub how: ResolveHow,
}

/// What to do about a call whose end is not known.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveHow {
    /// Make it again, though it may be billed twice.
    Retry,
    /// Take it as failed.
    Fail,
}

/// Decide about a call whose end is not known
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/resolve", tag = "calls", params(Named, CallNamed), request_body = Resolve, responses((status = 200, body = SessionView)))]
pub async fn resolve(
    held: Held,
    Path((_, call)): Path<(String, String)>,
    Body(resolve): Body<Resolve>,
) -> Result<Json<SessionView>, Problem> {
    let call = find(&held, &call, None).await?.call;
    let how = match resolve.how {
        ResolveHow::Retry => Resolution::Retry,
        ResolveHow::Fail => Resolution::Fail,
    };
    // Read first, so that a session that cannot be read is not told anything.
    state(&held, None).await?;
    super::sessions::command(&held, Command::Resolve { call, how }).await
}
