//! What a session cost, by role, model, phase and turn; and its whole state and texts, for those who want to look below.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::ledger::Tally;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::session_view::{chronicle, state};
use super::shapes::{Account, Spent};
use super::{At, Named};
use crate::caller::Caller;
use crate::extract::{Body, Held, Params};
use crate::limits::TEXTS_MAX;
use crate::problem::Problem;

/// What a session cost.
#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerView {
    /// In all.
    pub total: Spent,
    /// By role.
    pub roles: Vec<Account>,
    /// By model.
    pub models: Vec<Account>,
    /// By phase, as `graph/phase`.
    pub phases: Vec<Account>,
    /// By turn.
    pub turns: Vec<Account>,
}

/// What a session cost
#[utoipa::path(get, path = "/v1/sessions/{session}/ledger", tag = "ledger", params(Named, At), responses((status = 200, body = LedgerView)))]
pub async fn ledger(held: Held, Params(at): Params<At>) -> Result<Json<LedgerView>, Problem> {
    let at = at.seq()?;
    let (_, state) = state(&held, at).await?;
    let turns = chronicle(&held, at, |chronicle| {
        let account =
            |note: &crate::chronicle::TurnNote| Account { name: note.turn.to_string(), spent: note.spent.into() };
        chronicle.turns.values().map(account).collect()
    });
    let ledger = &state.session.ledger;
    Ok(Json(LedgerView {
        total: ledger.total.into(),
        roles: accounts(&ledger.roles),
        models: accounts(&ledger.models),
        phases: accounts(&ledger.phases),
        turns: turns.await?,
    }))
}

fn accounts<K: ToString>(tallies: &BTreeMap<K, Tally>) -> Vec<Account> {
    tallies.iter().map(|(name, tally)| Account { name: name.to_string(), spent: (*tally).into() }).collect()
}

/// The whole state of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateView {
    /// The place of the last event folded into it.
    pub seq: u64,
    /// When that was.
    pub at: u64,
    /// What every session has.
    #[schema(value_type = Object)]
    pub session: Value,
    /// What its flow remembers.
    pub memory: Value,
}

/// The whole state of a session at any event
#[utoipa::path(get, path = "/v1/sessions/{session}/state", tag = "state", params(Named, At), responses((status = 200, body = StateView)))]
pub async fn get_state(held: Held, Params(at): Params<At>) -> Result<Json<StateView>, Problem> {
    let (rules, state) = state(&held, at.seq()?).await?;
    let mut session = serde_json::to_value(&state.session).unwrap_or_default();
    hide_room(&mut session, &held.caller);
    let memory = rules.save(&state.flow).unwrap_or_default();
    Ok(Json(StateView { seq: state.session.seq.0, at: state.session.at.0, session, memory }))
}

fn hide_room(session: &mut Value, caller: &Caller) {
    if let Some(Value::String(id)) = session.get_mut("id") {
        *id = caller.public(&id.as_str().into());
    }
}

/// One text
#[utoipa::path(get, path = "/v1/sessions/{session}/texts/{body}", tag = "state",
    params(Named, ("body" = String, Path, description = "Its id: 32 characters.")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn text(held: Held, Path((_, body)): Path<(String, String)>) -> Result<Response, Problem> {
    let id: BodyId = body.parse().map_err(Problem::bad_request)?;
    let texts = held.app.engine.texts(&held.session, &[id]).await.map_err(|error| missing(&held, &error))?;
    let text = texts.first().map(ToString::to_string).unwrap_or_default();
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable"),
    ];
    Ok((headers, text).into_response())
}

fn missing(held: &Held, error: &segue_engine::Error) -> Problem {
    if error.is_missing_text() {
        return Problem::no_such_thing("the session has no such text");
    }
    held.problem(error)
}

/// Which texts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TextsWish {
    /// Their ids.
    #[schema(max_items = 200)]
    pub bodies: Vec<String>,
}

/// Texts by id.
#[derive(Debug, Serialize, ToSchema)]
pub struct TextsView {
    /// By id.
    pub texts: BTreeMap<String, String>,
}

/// Several texts at once
#[utoipa::path(post, path = "/v1/sessions/{session}/texts", tag = "state", params(Named), request_body = TextsWish, responses((status = 200, body = TextsView)))]
pub async fn texts(held: Held, Body(wish): Body<TextsWish>) -> Result<Json<TextsView>, Problem> {
    if wish.bodies.len() > TEXTS_MAX {
        return Err(
            Problem::bad_request(format!("at most {TEXTS_MAX} texts are given at once")).with("field", "bodies")
        );
    }
    let ids = wish.bodies.iter().map(|body| body.parse().map_err(Problem::bad_request));
    let ids: Vec<BodyId> = ids.collect::<Result<_, _>>()?;
    let texts = held.app.engine.texts(&held.session, &ids).await.map_err(|error| missing(&held, &error))?;
    let texts = wish.bodies.into_iter().zip(texts).map(|(body, text)| (body, text.to_string()));
    Ok(Json(TextsView { texts: texts.collect() }))
}
