//! Accepts messages, and returns the reply when the turn has ended, as a stream, or not at all.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::event::MidTurnPolicy;
use segue_core::ids::{IdempotencyKey, MessageId};
use segue_engine::{Error, UserMessage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, MidTurnPolicyView, TurnOutcomeView};
use super::session_view::with_session_history;
use crate::event_view::EventTextFilter;
use crate::extract::{CallerSessionRef, JsonBodyWithImages, NegotiatedResponseFormat};
use crate::history::{ReplyHistoryEntry, TurnHistoryEntry};
use crate::images::NewMessageImage;
use crate::problem::HttpProblem;
use crate::stream::{EventStreamRequest, StreamEndCondition};
use crate::usage::admit_turn;

/// A message to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMessage {
    pub text: String,
    #[serde(default)]
    #[schema(max_items = 8)]
    pub images: Vec<NewMessageImage>,
    /// The idempotency key. A second message with the same key is not sent; the turn of the first one is returned.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub key: Option<String>,
    /// What happens if a turn is running; the session's policy by default.
    #[serde(default)]
    pub mid_turn_policy: Option<MidTurnPolicyView>,
    /// Whether the response waits for the end of the turn; `true` by default.
    #[serde(default)]
    pub wait: Option<bool>,
}

/// The result of a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageResult {
    pub session: String,
    pub message: String,
    pub turn: String,
    pub outcome: TurnOutcomeView,
    /// All replies, joined by blank lines.
    pub reply: String,
    pub replies: Vec<ReplyView>,
    /// The current phases of the session, in a few words.
    pub phase: String,
    pub calls: Vec<String>,
    /// The usage and cost of the turn.
    pub spent: CallTotalsView,
    /// The sequence number of the turn's last event.
    pub seq: u64,
}

/// A reply to the user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplyView {
    pub text: String,
    pub role: Option<String>,
    /// The call that produced the reply.
    pub call: Option<String>,
    pub seq: u64,
}

/// A message that was recorded and is not answered yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedMessage {
    pub session: String,
    pub message: String,
    /// The sequence number before the message; follow `/events` from here.
    pub after: u64,
}

/// Send a message
///
/// The response is sent when the turn has ended. With `"wait": false` it is sent as soon as the message is durable. With
/// `Accept: text/event-stream` it is a stream from the message to the end of its turn.
#[utoipa::path(post, path = "/v1/sessions/{session}/messages", tag = "messages",
    params(super::SessionPathParamDocs, ("idempotency-key" = Option<String>, Header, description = "The idempotency key, if the body has no `key`.")),
    request_body = NewMessage,
    responses((status = 200, content((MessageResult = "application/json"), (String = "text/event-stream"))), (status = 202, body = AcceptedMessage)))]
pub(crate) async fn send_message(
    session_ref: CallerSessionRef,
    format: NegotiatedResponseFormat,
    headers: HeaderMap,
    JsonBodyWithImages(new): JsonBodyWithImages<NewMessage>,
) -> Result<Response, HttpProblem> {
    let _admitted = admit_turn(&session_ref).await?;
    let key = match new.key {
        Some(key) => Some(IdempotencyKey::from(key)),
        None => parse_idempotency_header(&headers)?,
    };
    let images = NewMessageImage::parse_all(new.images).map_err(|problem| problem.with_extension("field", "images"))?;
    let message = UserMessage {
        idempotency_key: key,
        mid_turn_policy: new.mid_turn_policy.map(MidTurnPolicy::from),
        images,
        ..UserMessage::from(new.text)
    };
    let engine = &session_ref.app.engine;
    let content_if_keyed =
        message.idempotency_key.is_some().then(|| IdempotentMessageFingerprint::from_message(&message));
    let check_message = async |message| match &content_if_keyed {
        Some(content) => content.check_same_message_for_key(&session_ref, message).await,
        None => Ok(()),
    };
    if format == NegotiatedResponseFormat::EventStream {
        let message =
            engine.send_message(&session_ref.session, message).await.map_err(|error| session_ref.to_problem(error))?;
        check_message(message).await?;
        let (after, head) = seq_before_message_and_head(&session_ref, message).await?;
        let until = StreamEndCondition::TurnEnded(message);
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
        check_message(message).await?;
        let (after, _) = seq_before_message_and_head(&session_ref, message).await?;
        let accepted =
            AcceptedMessage { session: session_ref.public_name(), message: message.to_string(), after: after.0 };
        return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
    }
    let ended =
        engine.send_and_wait(&session_ref.session, message).await.map_err(|error| session_ref.to_problem(error))?;
    check_message(ended.message).await?;
    session_ref.app.metrics.record_turn(&ended.outcome);
    let report = build_message_result(&session_ref, ended.message, Some(ended.phase)).await?;
    Ok(Json(report).into_response())
}

/// The hashes of a message's text and images, by which it is compared with a recorded message.
pub(crate) struct IdempotentMessageFingerprint {
    text: BodyId,
    images: Vec<BodyId>,
}

impl IdempotentMessageFingerprint {
    pub(crate) fn from_message(message: &UserMessage) -> Self {
        Self {
            text: BodyId::hash_text(&message.text),
            images: message.images.iter().map(|image| BodyId::hash_text(&image.data)).collect(),
        }
    }

    /// Checks that the message to which an idempotency key belongs is this one.
    ///
    /// # Errors
    /// The key was used for another message.
    pub(crate) async fn check_same_message_for_key(
        &self,
        session_ref: &CallerSessionRef,
        message: MessageId,
    ) -> Result<(), HttpProblem> {
        let is_same = with_session_history(session_ref, None, |history| {
            history.messages.get(&message).is_none_or(|recorded| {
                recorded.text.body == self.text
                    && recorded.images.iter().map(|image| image.body).eq(self.images.iter().copied())
            })
        });
        if is_same.await? {
            return Ok(());
        }
        let detail = format!(
            "this idempotency key was used for the message {message}, which has another content; use a new one"
        );
        Err(HttpProblem::new("idempotency-key-reused", detail).with_extension("message", message.to_string()))
    }
}

/// Reads the header `Idempotency-Key`.
///
/// # Errors
/// The header is not ASCII.
pub(crate) fn parse_idempotency_header(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, HttpProblem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().map_err(|_| HttpProblem::bad_request("`Idempotency-Key` must be plain ASCII"))?;
    Ok(Some(key.into()).filter(|_| !key.is_empty()))
}

/// Returns the sequence number before a message, and the last one of the session.
async fn seq_before_message_and_head(
    session_ref: &CallerSessionRef,
    message: MessageId,
) -> Result<(segue_core::ids::Seq, segue_core::ids::Seq), HttpProblem> {
    with_session_history(session_ref, None, |history| {
        let seq = history.messages.get(&message).map_or(history.last_seq, |entry| entry.position.seq);
        (segue_core::ids::Seq(seq.0.saturating_sub(1)), history.last_seq)
    })
    .await
}

/// Builds the result of a message whose turn has ended.
///
/// # Errors
/// The turn has not ended, or the session cannot be read.
pub(crate) async fn build_message_result(
    session_ref: &CallerSessionRef,
    message: MessageId,
    phase: Option<String>,
) -> Result<MessageResult, HttpProblem> {
    let turn = with_session_history(session_ref, None, |history| {
        let turn = history.messages.get(&message).and_then(|entry| entry.turn)?;
        history.turns.get(&turn).cloned()
    });
    let turn = turn.await?.ok_or_else(|| session_ref.to_problem(Error::Stopped(session_ref.session.clone())))?;
    let phase = match phase {
        Some(phase) => phase,
        None => super::session_view::read_session_state(session_ref, None).await?.1.session.phases_label(),
    };
    let replies = read_replies(session_ref, &turn.replies).await?;
    let TurnHistoryEntry { turn: id, outcome, calls, spent, ended, .. } = turn;
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

/// Reads the texts of replies.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn read_replies(
    session_ref: &CallerSessionRef,
    replies: &[ReplyHistoryEntry],
) -> Result<Vec<ReplyView>, HttpProblem> {
    let ids: Vec<_> = replies.iter().map(|entry| entry.text.body).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let reply = |(entry, text): (&ReplyHistoryEntry, std::sync::Arc<str>)| ReplyView {
        text: text.to_string(),
        role: entry.role.as_ref().map(ToString::to_string),
        call: entry.call.map(|call| call.to_string()),
        seq: entry.position.seq.0,
    };
    Ok(replies.iter().zip(texts).map(reply).collect())
}
