//! Messages: send one, and get its reply at once, as it is said, or later.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use segue_core::event::Busy;
use segue_core::ids::{IdempotencyKey, MessageId};
use segue_engine::{Error, Message};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::session_view::chronicle;
use super::shapes::{BusyPolicy, Spent, TurnOutcome};
use crate::chronicle::{SaidNote, TurnNote};
use crate::extract::{Held, Showing, Wanted};
use crate::images::NewImage;
use crate::problem::Problem;
use crate::stream::{Follow, Until};
use crate::teller::TextsWanted;

/// A message to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// What it says.
    pub text: String,
    /// What it shows.
    #[serde(default)]
    #[schema(max_items = 8)]
    pub images: Vec<NewImage>,
    /// What you call it: the same key again is the same message.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub key: Option<String>,
    /// What happens to it while a turn runs; the session's own policy if absent.
    #[serde(default)]
    pub busy: Option<BusyPolicy>,
    /// Whether the answer waits for the end of the turn.
    #[serde(default)]
    pub wait: Option<bool>,
}

/// What a message led to.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageReport {
    /// The session.
    pub session: String,
    /// The message.
    pub message: String,
    /// Its turn.
    pub turn: String,
    /// How that ended.
    pub outcome: TurnOutcome,
    /// All replies, joined by blank lines.
    pub reply: String,
    /// One by one.
    pub replies: Vec<Reply>,
    /// Where the session's phase graphs stand afterwards.
    pub phase: String,
    /// The calls of the turn.
    pub calls: Vec<String>,
    /// What it cost.
    pub spent: Spent,
    /// The place of the turn's last event.
    pub seq: u64,
}

/// Something said to the user.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reply {
    /// What.
    pub text: String,
    /// By whom.
    pub by: Option<String>,
    /// The call it came from.
    pub call: Option<String>,
    /// Its place.
    pub seq: u64,
}

/// A message that is safe.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    /// The session.
    pub session: String,
    /// The message.
    pub message: String,
    /// The place from which on everything about it is heard.
    pub after: u64,
}

/// Send a message
///
/// The answer comes when the turn has ended; with `"wait": false` as soon as the message is safe; with `Accept: text/event-stream`
/// as a stream from the message to the end of its turn.
#[utoipa::path(post, path = "/v1/sessions/{session}/messages", tag = "messages",
    params(super::Named, ("idempotency-key" = Option<String>, Header, description = "What you call the message, if `key` does not say.")),
    request_body = NewMessage,
    responses((status = 200, content((MessageReport = "application/json"), (String = "text/event-stream"))), (status = 202, body = Accepted)))]
pub async fn send(
    held: Held,
    wanted: Wanted,
    headers: HeaderMap,
    Showing(new): Showing<NewMessage>,
) -> Result<Response, Problem> {
    room_for_turn(&held)?;
    let key = match new.key {
        Some(key) => Some(IdempotencyKey::from(key)),
        None => header_key(&headers)?,
    };
    let images = NewImage::read(new.images).map_err(|problem| problem.with("field", "images"))?;
    let message = Message { key, busy: new.busy.map(Busy::from), images, ..Message::from(new.text) };
    let engine = &held.app.engine;
    if wanted == Wanted::Stream {
        let message = engine.send(&held.session, message).await.map_err(|error| held.problem(error))?;
        let (after, head) = before(&held, message).await?;
        let until = Until::Answered(message);
        return Follow { held, after, head, texts: TextsWanted::Said, words: true, until }.respond().await;
    }
    if new.wait == Some(false) {
        let message = engine.send(&held.session, message).await.map_err(|error| held.problem(error))?;
        let (after, _) = before(&held, message).await?;
        let accepted = Accepted { session: held.name(), message: message.to_string(), after: after.0 };
        return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
    }
    let ended = engine.ask(&held.session, message).await.map_err(|error| held.problem(error))?;
    held.app.metrics.turn(&ended.outcome);
    let report = report(&held, ended.message, Some(ended.phase)).await?;
    Ok(Json(report).into_response())
}

/// # Errors
/// There are as many sessions at work as there may be, and this is none of them.
pub fn room_for_turn(held: &Held) -> Result<(), Problem> {
    let Held { app, session, .. } = held;
    let most = app.options.bounds.turns_max;
    if app.engine.at_work() >= most && !app.engine.is_at_work(session) {
        let detail = format!("{most} sessions are at work, the most there may be; try again in a moment");
        return Err(Problem::new("too-many-turns", detail).after_seconds(1));
    }
    Ok(())
}

/// The key in the header of a request.
///
/// # Errors
/// It is not to be read.
pub fn header_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().map_err(|_| Problem::bad_request("`Idempotency-Key` must be plain ASCII"))?;
    Ok(Some(key.into()).filter(|_| !key.is_empty()))
}

/// The place right before a message, and the last one.
async fn before(held: &Held, message: MessageId) -> Result<(segue_core::ids::Seq, segue_core::ids::Seq), Problem> {
    chronicle(held, None, |chronicle| {
        let place = chronicle.messages.get(&message).map_or(chronicle.seq, |note| note.place.seq);
        (segue_core::ids::Seq(place.0.saturating_sub(1)), chronicle.seq)
    })
    .await
}

/// What a message led to, once its turn has ended.
///
/// # Errors
/// It has not, or the session cannot be read.
pub async fn report(held: &Held, message: MessageId, phase: Option<String>) -> Result<MessageReport, Problem> {
    let turn = chronicle(held, None, |chronicle| {
        let turn = chronicle.messages.get(&message).and_then(|note| note.turn)?;
        chronicle.turns.get(&turn).cloned()
    });
    let turn = turn.await?.ok_or_else(|| held.problem(Error::Stopped(held.session.clone())))?;
    let phase = match phase {
        Some(phase) => phase,
        None => super::session_view::state(held, None).await?.1.session.phase_label(),
    };
    let replies = replies(held, &turn.said).await?;
    let TurnNote { turn: id, outcome, calls, spent, ended, .. } = turn;
    let (Some(outcome), Some(ended)) = (outcome, ended) else {
        return Err(held.problem(Error::Stopped(held.session.clone())));
    };
    Ok(MessageReport {
        session: held.name(),
        message: message.to_string(),
        turn: id.to_string(),
        outcome: outcome.into(),
        reply: replies.iter().map(|reply| reply.text.as_str()).collect::<Vec<_>>().join("\n\n"),
        replies,
        phase,
        calls: calls.iter().map(ToString::to_string).collect(),
        spent: spent.into(),
        seq: ended.seq.0,
    })
}

/// What was said, with its words.
///
/// # Errors
/// The words cannot be read.
pub async fn replies(held: &Held, said: &[SaidNote]) -> Result<Vec<Reply>, Problem> {
    let ids: Vec<_> = said.iter().map(|note| note.text.body).collect();
    let texts = held.app.engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
    let reply = |(note, text): (&SaidNote, std::sync::Arc<str>)| Reply {
        text: text.to_string(),
        by: note.by.as_ref().map(ToString::to_string),
        call: note.call.map(|call| call.to_string()),
        seq: note.place.seq.0,
    };
    Ok(said.iter().zip(texts).map(reply).collect())
}
