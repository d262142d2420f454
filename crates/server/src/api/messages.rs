//! Messages: send one, and get its reply at once, as it is said, or later.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use segue_core::event::MidTurnPolicy;
use segue_core::ids::{IdempotencyKey, MessageId};
use segue_engine::{Error, UserMessage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, MidTurnPolicyView, TurnResultView};
use super::session_view::with_session_history;
use crate::event_view::EventTextFilter;
use crate::extract::{JsonBodyWithImages, ResponseFormat, SessionRef};
use crate::history::{ReplyEntry, TurnEntry};
use crate::images::NewImage;
use crate::problem::HttpProblem;
use crate::stream::{EventStreamRequest, StreamUntil};

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
    pub mid_turn_policy: Option<MidTurnPolicyView>,
    /// Whether the answer waits for the end of the turn.
    #[serde(default)]
    pub wait: Option<bool>,
}

/// What a message led to.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageResult {
    /// The session.
    pub session: String,
    /// The message.
    pub message: String,
    /// Its turn.
    pub turn: String,
    /// How that ended.
    pub outcome: TurnResultView,
    /// All replies, joined by blank lines.
    pub reply: String,
    /// One by one.
    pub replies: Vec<ReplyView>,
    /// Where the session's phase graphs stand afterwards.
    pub phase: String,
    /// The calls of the turn.
    pub calls: Vec<String>,
    /// What it cost.
    pub spent: CallTotalsView,
    /// The place of the turn's last event.
    pub seq: u64,
}

/// Something said to the user.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplyView {
    /// What.
    pub text: String,
    /// By whom.
    pub role: Option<String>,
    /// The call it came from.
    pub call: Option<String>,
    /// Its place.
    pub seq: u64,
}

/// A message that is safe.
#[derive(Debug, Serialize, ToSchema)]
pub struct AcceptedMessage {
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
    params(super::SessionPath, ("idempotency-key" = Option<String>, Header, description = "What you call the message, if `key` does not say.")),
    request_body = NewMessage,
    responses((status = 200, content((MessageResult = "application/json"), (String = "text/event-stream"))), (status = 202, body = AcceptedMessage)))]
pub async fn send_message(
    session_ref: SessionRef,
    format: ResponseFormat,
    headers: HeaderMap,
    JsonBodyWithImages(new): JsonBodyWithImages<NewMessage>,
) -> Result<Response, HttpProblem> {
    check_turn_capacity(&session_ref)?;
    let key = match new.key {
        Some(key) => Some(IdempotencyKey::from(key)),
        None => parse_idempotency_header(&headers)?,
    };
    let images = NewImage::parse_all(new.images).map_err(|problem| problem.with_extension("field", "images"))?;
    let message = UserMessage {
        idempotency_key: key,
        mid_turn_policy: new.mid_turn_policy.map(MidTurnPolicy::from),
        images,
        ..UserMessage::from(new.text)
    };
    let engine = &session_ref.app.engine;
    if format == ResponseFormat::EventStream {
        let message =
            engine.send_message(&session_ref.session, message).await.map_err(|error| session_ref.to_problem(error))?;
        let (after, head) = seq_before_message(&session_ref, message).await?;
        let until = StreamUntil::TurnEnded(message);
        return EventStreamRequest {
            session_ref,
            after,
            head,
            text_filter: EventTextFilter::Conversation,
            include_deltas: true,
            until,
        }
        .into_sse_response()
        .await;
    }
    if new.wait == Some(false) {
        let message =
            engine.send_message(&session_ref.session, message).await.map_err(|error| session_ref.to_problem(error))?;
        let (after, _) = seq_before_message(&session_ref, message).await?;
        let accepted =
            AcceptedMessage { session: session_ref.public_name(), message: message.to_string(), after: after.0 };
        return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
    }
    let ended =
        engine.send_and_wait(&session_ref.session, message).await.map_err(|error| session_ref.to_problem(error))?;
    session_ref.app.metrics.record_turn(&ended.outcome);
    let report = build_message_result(&session_ref, ended.message, Some(ended.phase)).await?;
    Ok(Json(report).into_response())
}

/// # Errors
/// There are as many sessions at work as there may be, and this is none of them.
pub fn check_turn_capacity(session_ref: &SessionRef) -> Result<(), HttpProblem> {
    let SessionRef { app, session, .. } = session_ref;
    let most = app.options.limits.turns_max;
    if app.engine.active_session_count() >= most && !app.engine.is_session_active(session) {
        let detail = format!("{most} sessions are at work, the most there may be; try again in a moment");
        return Err(HttpProblem::new("too-many-turns", detail).with_retry_after(1));
    }
    Ok(())
}

/// The key in the header of a request.
///
/// # Errors
/// It is not to be read.
pub fn parse_idempotency_header(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, HttpProblem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().map_err(|_| HttpProblem::bad_request("`Idempotency-Key` must be plain ASCII"))?;
    Ok(Some(key.into()).filter(|_| !key.is_empty()))
}

/// The place right before a message, and the last one.
async fn seq_before_message(
    session_ref: &SessionRef,
    message: MessageId,
) -> Result<(segue_core::ids::Seq, segue_core::ids::Seq), HttpProblem> {
    with_session_history(session_ref, None, |chronicle| {
        let place = chronicle.messages.get(&message).map_or(chronicle.last_seq, |note| note.position.seq);
        (segue_core::ids::Seq(place.0.saturating_sub(1)), chronicle.last_seq)
    })
    .await
}

/// What a message led to, once its turn has ended.
///
/// # Errors
/// It has not, or the session cannot be read.
pub async fn build_message_result(
    session_ref: &SessionRef,
    message: MessageId,
    phase: Option<String>,
) -> Result<MessageResult, HttpProblem> {
    let turn = with_session_history(session_ref, None, |chronicle| {
        let turn = chronicle.messages.get(&message).and_then(|note| note.turn)?;
        chronicle.turns.get(&turn).cloned()
    });
    let turn = turn.await?.ok_or_else(|| session_ref.to_problem(Error::Stopped(session_ref.session.clone())))?;
    let phase = match phase {
        Some(phase) => phase,
        None => super::session_view::read_session_state(session_ref, None).await?.1.session.phases_label(),
    };
    let replies = read_replies(session_ref, &turn.replies).await?;
    let TurnEntry { turn: id, outcome, calls, spent, ended, .. } = turn;
    let (Some(outcome), Some(ended)) = (outcome, ended) else {
        return Err(session_ref.to_problem(Error::Stopped(session_ref.session.clone())));
    };
    Ok(MessageResult {
        session: session_ref.public_name(),
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
pub async fn read_replies(session_ref: &SessionRef, said: &[ReplyEntry]) -> Result<Vec<ReplyView>, HttpProblem> {
    let ids: Vec<_> = said.iter().map(|note| note.text.body).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let reply = |(note, text): (&ReplyEntry, std::sync::Arc<str>)| ReplyView {
        text: text.to_string(),
        role: note.role.as_ref().map(ToString::to_string),
        call: note.call.map(|call| call.to_string()),
        seq: note.position.seq.0,
    };
    Ok(said.iter().zip(texts).map(reply).collect())
}
